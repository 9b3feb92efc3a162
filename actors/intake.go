package actors

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// intake carries the puts of one publisher to their queue: by value, in sheaves
// that are used again, so that a put allocates nothing; and a burst of them as one
// message in the queue's mailbox, the publisher's [*Window]. What is posted behind
// that message by the same caller is handled after the puts, as if each of them had
// been sent: the queue goes on until it has seen the intake empty.
//
// One at a time has it: busy says that the window is in the queue's mailbox or in
// its hands.
type intake struct {
	mu          sync.Mutex
	posted      int64  // puts ever
	first, last *sheaf // those that the queue has not taken
	free        *sheaf
	kept        int // sheaves in free
	busy        bool

	telling atomic.Int32 // who are about to send the window to the queue
	held    atomic.Int32 // whose puts go with it, and wait until telling is 0
	told    sync.Cond

	// Of the queue's turn.
	_        line
	batch    *sheaf
	cursor   int      // in batch
	now      *arrival // under way
	used     *sheaf   // empty, to be given back
	usedLast *sheaf
	usedN    int
	tries    uint8 // crashes in a row that no put was the cause of
	_        line
}

// line keeps what one processor writes off the cache lines of what another one uses:
// they would take them from each other at every message.
type line [64]byte

// arrival is one put on its way in.
type arrival struct {
	ledger.Put
	held    bool // it is in the ledger and counts in the window until it is settled
	counted bool // the window was told what became of it
}

// free is how many places of the window a verdict on the put makes free.
func (a *arrival) free() int64 {
	if a.held {
		return 0
	}
	return 1
}

// sheaf is the room for some arrivals.
type sheaf struct {
	next *sheaf
	n    int
	puts [sheafPuts]arrival
}

const (
	sheafPuts = 32
	// sheavesKept bounds the room that a publisher keeps for its next burst.
	sheavesKept = 128
	// giveBackEvery is after how many sheaves the publishers get them back.
	giveBackEvery = 8
	// turnPutsMax is after how many puts a turn ends, though the intake has more: with it
	// come the answers, and what else waits in the mailbox.
	turnPutsMax = 4096
	// handOverEvery is after how many puts or settles of a burst the workers get theirs.
	handOverEvery = 64
)

// post takes one put in. True: the caller has to tell the queue, and then call
// hasTold.
func (in *intake) post(p *ledger.Put) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.last
	if s == nil || s.n == sheafPuts {
		s = in.spare()
		if in.last == nil {
			in.first = s
		} else {
			in.last.next = s
		}
		in.last = s
	}
	s.puts[s.n].Put = *p
	s.n++
	in.posted++
	if !in.busy {
		in.busy = true
		in.telling.Add(1)
		return true
	}
	if in.telling.Load() > 0 {
		in.holdOn()
	}
	return false
}

// holdOn waits, under mu, until another caller's message is in the queue's mailbox:
// our next command would else overtake it, and with it the put that we have posted.
func (in *intake) holdOn() {
	in.held.Add(1) // before telling is read again: see hasTold
	for in.telling.Load() > 0 {
		in.told.Wait()
	}
	in.held.Add(-1)
}

// hasTold lets those go on whose puts go with the message that was sent. It takes the
// mutex only for them: the queue may have it by now.
func (in *intake) hasTold() {
	if in.telling.Add(-1) == 0 && in.held.Load() > 0 {
		in.mu.Lock()
		in.told.Broadcast()
		in.mu.Unlock()
	}
}

// sent is how many puts were ever posted.
func (in *intake) sent() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.posted
}

// spare is called under mu.
func (in *intake) spare() *sheaf {
	s := in.free
	if s == nil {
		return new(sheaf)
	}
	in.free, s.next = s.next, nil
	in.kept--
	return s
}

// next returns the next put of the burst, or nil when the intake is empty, and no
// longer busy. Only the queue calls it.
func (in *intake) next() *arrival {
	in.now = nil
	if s := in.batch; s != nil && in.cursor < s.n {
		in.now = &s.puts[in.cursor]
		in.cursor++
		return in.now
	}
	if s := in.batch; s != nil {
		in.batch = s.next
		in.empty(s)
	}
	if (in.batch == nil || in.usedN >= giveBackEvery) && !in.exchange() {
		return nil
	}
	in.now, in.cursor = &in.batch.puts[0], 1
	return in.now
}

// empty clears a sheaf, so that no body of a gone message stays reachable, without the
// mutex: publishers would wait for it, and sleep.
func (in *intake) empty(s *sheaf) {
	clear(s.puts[:s.n])
	s.n, s.next = 0, in.used
	if in.used == nil {
		in.usedLast = s
	}
	in.used = s
	in.usedN++
}

// exchange gives the publishers the empty sheaves and takes what they have posted, if
// nothing is left of the last. False: there is nothing, and the intake not busy.
func (in *intake) exchange() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.used != nil && in.kept+in.usedN <= sheavesKept {
		in.usedLast.next, in.free = in.free, in.used
		in.kept += in.usedN
	}
	in.used, in.usedLast, in.usedN = nil, nil, 0
	if in.batch == nil {
		in.batch, in.first, in.last = in.first, nil, nil
	}
	in.busy = in.batch != nil
	return in.busy
}

// prepare makes the put of an envelope ready for the queue, all but an id that the
// caller did not give. What it does here the queue need not, which has more to do than
// those who put.
func (q *Queue) prepare(p *ledger.Put, e *messages.Envelope) {
	*p = ledger.NewPut(e, e.ID != "")
	if p.GivenID {
		p.Hash = q.hash(e.ID)
	}
}

// PrepareAll makes the puts of a batch ready.
func (q *Queue) PrepareAll(puts []ledger.Put, batch []messages.Envelope) {
	for i := range batch {
		q.prepare(&puts[i], &batch[i])
	}
	q.work.broker.nameAll(puts)
}

// Post sends a put on its way, which must have entered the window, and returns its id.
func (w *Window) Post(e *messages.Envelope) string {
	var p ledger.Put
	if w.queue.prepare(&p, e); !p.GivenID {
		p.ID = w.broker.NewID()
	}
	if w.untilSettled {
		p.Owner = &w.owner
	}
	id := p.ID // before it is sent
	if w.intake.post(&p) {
		w.queue.Address.Send(w)
		w.intake.hasTold()
	}
	return id
}

// Fail answers the put that crashed the queue and has the others handled, still
// ahead of what their callers sent afterwards; it answers all of them when the queue
// has ended, or crashes again and again on none of them.
func (w *Window) Fail(err error) {
	in := &w.intake
	crashed := errors.Is(err, actorkit.ErrCrashed)
	switch a := in.now; {
	case crashed && a != nil:
		in.now = nil
		w.fail(a, err)
	case crashed && in.tries < triesMax-1:
		in.tries++
	default:
		in.tries = 0
		for a := in.next(); a != nil; a = in.next() {
			w.fail(a, err)
		}
		return
	}
	w.queue.Address.PutBack(w)
}

// fail answers a put that will not be handled, or crashed the queue, and frees its
// place in the window unless the message is in the queue and will do that itself.
func (w *Window) fail(a *arrival, err error) {
	if a.counted {
		return
	}
	a.counted = true
	err = w.broker.explain("put", w.queue.Queue, err)
	if gone := (*messages.QueueStateError)(nil); errors.As(err, &gone) {
		err = &messages.PutError{Queue: w.queue.Queue, ID: a.ID, Reason: gone.Reason}
	}
	w.tell(a, messages.Answer{Err: err})
	w.decided(1, a.free())
}

// tell gives the publisher the verdict on a put.
func (w *Window) tell(a *arrival, verdict messages.Answer) {
	if verdict.Err != nil {
		w.refuse(verdict.Err)
	}
	if w.Report != nil {
		w.Report(a.ID, verdict)
	}
}

// handOverNow is for the middle of a burst.
func (q *workQueue) handOverNow(c *actorkit.Context) {
	q.perform(c)
	q.handOver(c)
	q.flushDeliveries()
}

// takeIn handles a burst of a publisher's puts. It may be long, so that the workers
// are looked after meanwhile: a queue that is only filled leaves them idle.
func (q *workQueue) takeIn(c *actorkit.Context, w *Window) {
	for n := 1; ; n++ {
		if q.turnPuts == turnPutsMax {
			w.intake.now = nil
			c.Again()
			return
		}
		a := w.intake.next()
		if a == nil {
			return
		}
		q.turnPuts++
		q.probe("before", a)
		q.putOfWindow(c, w, a)
		w.intake.tries = 0
		if n%handOverEvery == 0 {
			w.intake.now = nil // what follows is not this put's doing
			if q.returns != nil && q.returns.pushed.Load() != nil {
				q.takeReturns(c)
			}
			q.handOverNow(c)
		}
	}
}

func (q *workQueue) putOfWindow(c *actorkit.Context, w *Window, a *arrival) {
	result, err := q.ledger.Put(c.Now(), &a.Put)
	if q.broker.integrity.on {
		q.remember(&a.Put, result, err)
	}
	if a.Owner != nil && err == nil && !result.Duplicate {
		a.held = true // until Settled
		q.hold(w)
	}
	if q.broker.Listener != nil {
		q.notePut(&a.Put, err)
	}
	q.probe("after", a)
	a.counted = true
	q.count(w, 1, a.free())
	w.tell(a, messages.Answer{N: duplicate(result.Duplicate), Err: err})
	if len(q.ledger.Effects()) > q.performed {
		q.performAll(c)
	}
}
