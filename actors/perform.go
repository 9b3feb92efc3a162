package actors

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
)

// perform carries out the effects that the ledger has decided and nobody has
// carried out yet, in their order.
func (q *workQueue) perform(c *actorkit.Context) {
	if len(q.ledger.Effects()) > q.performed {
		q.performAll(c)
	}
	if len(q.notices) > 0 {
		q.announceAll()
	}
}

func (q *workQueue) performAll(c *actorkit.Context) {
	effects := q.ledger.Effects()
	for q.performed < len(effects) {
		e := &effects[q.performed]
		q.performed++
		switch e.Kind {
		case ledger.HandedOver:
			q.deliver(c, e, len(effects)-q.performed+1)
		case ledger.Settled:
			w := e.Owner.Address.(*Window)
			n := min(int64(e.Count), w.held) // fewer when a quarantine has let them go
			e.Count = 0
			if n > 0 {
				q.letGo(w, n)
				q.count(w, 0, n)
			}
		case ledger.LeaseLost:
			q.leaseLost(e)
		case ledger.Died:
			delete(q.sums, e.Letter.ID)
			q.died(e)
		case ledger.Trimmed:
			q.broker.notify(messages.Trimmed{Queue: q.source.Queue, ID: e.Letter.ID, Number: e.Letter.Number})
		case ledger.AlarmRaised:
			q.alarm(c, e.Alarm)
		case ledger.Drained:
			q.endDrains(nil)
		}
		if q.performed == len(effects) {
			effects = q.ledger.Effects() // an effect can cause another
		}
	}
	q.ledger.ClearEffects()
	q.performed = 0
}

// deliver hands a message to whom the ledger lent it. left is how many effects are
// still to come, this one included.
func (q *workQueue) deliver(c *actorkit.Context, e *ledger.Effect, left int) {
	q.worn = true
	if e.Waiter != nil {
		q.deliverToGet(c, e)
		return
	}
	a := e.Consumer.Address.(*attached)
	var d *messages.Delivery
	switch {
	case a.inner != nil:
		s := a.slot(left)
		d = &s.Delivery
		q.ledger.Fill(e, d)
		if q.sums != nil {
			s.altered = q.altered(d)
		}
		if !a.dirty {
			a.dirty = true
			q.batches = append(q.batches, a)
		}
	default:
		m := &messages.Deliver{Consumer: a.Tag}
		d = &m.Delivery
		q.ledger.Fill(e, d)
		delete(q.sums, d.ID) // no worker is there to look
		c.System().Send(a.foreign, m)
	}
	if q.broker.Listener != nil {
		q.noteDelivered(d, a.Tag)
	}
}

func (q *workQueue) noteDelivered(d *messages.Delivery, holder string) {
	q.broker.notify(messages.Delivered{Queue: q.source.Queue, ID: d.ID, Consumer: holder, Tag: d.Tag, Attempt: d.Attempt, Deadline: d.Deadline})
}

// slot returns the next free slot. left is how many may be needed now.
func (a *attached) slot(left int) *slot {
	if a.filled == len(a.room) {
		a.newRoom(left)
	}
	a.filled++
	return &a.room[a.filled-1]
}

// burstsPerRoom is how many turns like the last one fill a room. One that takes longer
// to fill is out of the processor's cache by then.
const burstsPerRoom = 4

// newRoom makes room for what may be needed now, or for some turns like the last one.
func (a *attached) newRoom(left int) {
	if a.filled > a.sent { // what is in the old one goes with this turn's
		a.full = append(a.full, chunk{a.room[a.sent:a.filled]})
	}
	a.sent, a.filled = 0, 0
	left = min(left, a.Prefetch) // the others are lent to others
	n := min(max(left, burstsPerRoom*a.burst, 1), roomMax)
	if n == roomMax {
		if spare := a.inner.spare.Swap(nil); spare != nil {
			a.room = spare[:]
			return
		}
	}
	a.room = make([]slot, n)
}

// deliverToGet answers a Get. One whose caller has gone leaves no lease: the
// message goes back, interrupted (SPEC C6).
func (q *workQueue) deliverToGet(c *actorkit.Context, e *ledger.Effect) {
	p := e.Waiter.Address.(*pendingGet)
	delete(q.gets, p.command)
	tag, holder := e.Tag, e.Waiter.Holder
	d := &messages.Delivery{}
	q.ledger.Fill(e, d)
	delete(q.sums, d.ID) // no worker is there to look
	if !p.ref.Resolve(messages.Answer{Value: d}) {
		_ = q.ledger.Release(c.Now(), tag) // the lease began in this very turn: it cannot be stale
		return
	}
	if q.broker.Listener != nil {
		q.noteDelivered(d, holder)
	}
}

// flushDeliveries sends the deliveries that the turn has gathered.
func (q *workQueue) flushDeliveries() {
	for _, a := range q.batches {
		q.flushTo(a)
	}
	clear(q.batches)
	q.batches = q.batches[:0]
}

// flush sends what the turn has gathered: deliveries and window counts.
func (q *workQueue) flush(c *actorkit.Context) {
	q.flushDeliveries()
	if q.incoming != nil {
		*q.incoming = ledger.Put{} // or the last message would be kept alive
	}
	for _, n := range q.counts {
		n.window.decided(n.decided, n.free)
	}
	clear(q.counts)
	q.counts = q.counts[:0]
}

func (q *workQueue) flushTo(a *attached) {
	a.burst = a.filled - a.sent
	for _, ch := range a.full {
		a.burst += len(ch.slots)
		a.send(ch)
	}
	clear(a.full)
	a.full = a.full[:0]
	if a.filled > a.sent {
		a.send(chunk{a.room[a.sent:a.filled]})
		a.sent = a.filled
	}
	a.dirty = false
}

// send gives the consumer's workers a chunk, or the consumer when none of them can work.
func (a *attached) send(ch chunk) {
	if !a.inner.deliver(ch) {
		late := ch // or each chunk would be allocated
		a.inner.self.Send(&late)
	}
}

// count gathers what a publisher is to be told at the end of the turn.
func (q *workQueue) count(w *Window, decided, free int64) {
	for i := range q.counts { // few publishers write in one turn
		if q.counts[i].window == w {
			q.counts[i].decided += decided
			q.counts[i].free += free
			return
		}
	}
	q.counts = append(q.counts, windowCount{w, decided, free})
}

// hold notes that a message in the ledger counts in the window until it is settled.
func (q *workQueue) hold(w *Window) {
	if w.held++; w.held == 1 {
		w.place = len(q.windows)
		q.windows = append(q.windows, w)
	}
}

// letGo undoes hold for n messages.
func (q *workQueue) letGo(w *Window, n int64) {
	if w.held -= n; w.held > 0 {
		return
	}
	last := len(q.windows) - 1
	moved := q.windows[last]
	q.windows[w.place], moved.place = moved, w.place
	q.windows[last] = nil
	q.windows = q.windows[:last]
}

func (q *workQueue) leaseLost(e *ledger.Effect) {
	holder := ""
	if e.Waiter != nil {
		holder = e.Waiter.Holder
	}
	if e.Consumer != nil {
		holder = e.Consumer.Tag
		if a := e.Consumer.Address.(*attached); a.inner != nil {
			a.inner.self.Send(&leaseLost{tag: e.Tag})
		}
	}
	if q.broker.Listener != nil {
		q.broker.notify(messages.LeaseRanOut{Queue: q.source.Queue, Consumer: holder, Tag: e.Tag})
	}
}

// answer carries the effects of a command out and then answers it. When they hold
// an announcement, the router answers for us, once the event is on its way: that
// is how a death is heard of before the settle that caused it returns (SPEC T6).
func (q *workQueue) answer(c *actorkit.Context, cmd messages.Command, a messages.Answer) {
	if len(q.ledger.Effects()) > q.performed {
		q.performAll(c)
	}
	ref := c.Ref(cmd)
	if n := len(q.notices); n > 0 {
		last := q.notices[n-1]
		last.Then = append(last.Then, func() { ref.Resolve(a) })
		q.announceAll()
		return
	}
	ref.Resolve(a)
}

func (q *workQueue) announceAll() {
	notices := q.notices
	q.notices = nil
	for _, n := range notices {
		q.broker.Router.Send(n)
	}
}

// announce readies a system event; it leaves with the next answer or at the end
// of the command.
func (q *workQueue) announce(kind string, body any) {
	q.notices = append(q.notices, &router.Announce{
		Envelope: messages.Envelope{
			ID: q.broker.NewID(), Topic: messages.SystemTopics + kind + "." + messages.TopicWord(q.source.Queue),
			Body: marshal(body), ContentType: "application/json",
		},
		Lost: q.lost(),
	})
}

func marshal(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // our own structs of strings and numbers always marshal
	}
	return text
}

// DeathNotice is the body of an event on $sys.dead.<queue>.
type DeathNotice struct {
	Queue    string `json:"queue"`
	ID       string `json:"id"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error"`
}

// died announces a death and publishes the letter's copy where one is wanted.
func (q *workQueue) died(e *ledger.Effect) {
	l := e.Letter
	if e.Announce {
		q.announce("dead", DeathNotice{Queue: q.source.Queue, ID: l.ID, Reason: l.Reason.String(), Attempts: l.Attempts, Error: l.Error})
	}
	if q.config.DeadLetterTopic != "" {
		q.notices = append(q.notices, q.copyOf(l))
	}
	if q.broker.Listener != nil { // last: whatever becomes of it costs no announcement
		q.broker.notify(messages.Died{Queue: q.source.Queue, ID: l.ID, Reason: l.Reason, Attempts: l.Attempts, ErrorBytes: len(l.Error)})
	}
}

// copyOf is what is published on DeadLetterTopic (SPEC R7): the message without
// its deadline, which would kill it again on arrival, and with its deaths as headers.
func (q *workQueue) copyOf(l *messages.DeadLetter) *router.Announce {
	e := l.Envelope()
	e.Topic, e.ExpiresAt, e.Delay = q.config.DeadLetterTopic, time.Time{}, 0
	headers := make(map[string]string, len(e.Headers)+6)
	for k, v := range e.Headers {
		headers[k] = v
	}
	const prefix = "postroom-death-"
	headers[prefix+"count"] = strconv.Itoa(l.Deaths)
	headers[prefix+"queue"] = l.Queue
	headers[prefix+"reason"] = l.Reason.String()
	headers[prefix+"attempts"] = strconv.Itoa(l.Attempts)
	headers[prefix+"error"] = l.Error
	for i, d := range l.History {
		n := strconv.Itoa(i + 1)
		headers[prefix+n] = d.Queue + " " + d.Reason.String() + " " + strconv.Itoa(d.Attempts) + " " + d.At.UTC().Format(time.RFC3339Nano)
	}
	e.Headers = headers
	return &router.Announce{Envelope: e, Given: true, History: l.History, Deaths: l.Deaths, Lost: q.lost()}
}

// alarm publishes on $sys.alarm.<queue>.
func (q *workQueue) alarm(c *actorkit.Context, alarm messages.Alarm) {
	s := q.ledger.Stats(c.Now())
	q.broker.notify(messages.AlarmRaised{Queue: q.source.Queue, Alarm: alarm})
	q.announce("alarm", struct {
		Queue       string  `json:"queue"`
		Alarm       string  `json:"alarm"`
		DeadLetters int     `json:"dead_letters"`
		OldestAge   float64 `json:"oldest_age_seconds"`
	}{q.source.Queue, alarm.String(), s.DeadLetters, s.OldestAge.Seconds()})
}

// lost returns what tells the queue of a lost announcement, to be counted.
func (q *workQueue) lost() func() {
	self := q.self
	return func() { self.Send(&lostNotice{}) }
}

// lostNotice says that the router crashed on an announcement.
type lostNotice struct{}
