package ledger

import (
	"time"

	"github.com/postroom/postroom/messages"
)

// Consumer competes for messages by credit.
type Consumer struct {
	// Tag names it as a holder.
	Tag string
	// Prefetch is how many leases it may have out; 0 halts it.
	Prefetch int
	// AckTimeout is how long its leases last without a touch. Zero: the queue's.
	AckTimeout time.Duration
	// NoTimeout makes them last as long as it does; so does the queue's (SPEC Q17).
	NoTimeout bool
	// Handler says that it runs a handler: credit returns when the lease is over and
	// [Ledger.Returned] was called (C5), and a lease lost before [Ledger.Started] is
	// interrupted (C3). Without it credit returns with the lease, which counts as
	// started.
	Handler bool
	// Address is the shell's own and never looked at.
	Address any

	place     taker
	attached  bool
	displaced bool // SingleActive: its turn is over, the successor waits for its leases (C8)
	leases    int
	back      tagSet // leases over whose handler has not returned
	// in order of attaching
	nextSeat, prevSeat *Consumer
}

func (c *Consumer) hasCredit() bool { return c.attached && c.leases+c.back.len() < c.Prefetch }

// Waiter is one Get in line with the consumers (C6); it is served once.
type Waiter struct {
	// Holder is the session that will hold the lease; an empty one is nobody's.
	Holder string
	// AckTimeout and NoTimeout are as for [Consumer].
	AckTimeout time.Duration
	NoTimeout  bool
	// Address is the shell's own and never looked at.
	Address any

	place taker
}

// taker is a consumer with credit, or a Get, and its place in line.
type taker struct {
	next, prev *taker
	inLine     bool
	consumer   *Consumer // one of the two is set
	waiter     *Waiter
	lapse      *lease // see lapsed
}

// lapsed is what a message has in place of its lease when t let that run out: a
// million of them run out at once, and each would need a place for the name.
func (t *taker) lapsed() *lease {
	if t.lapse == nil {
		t.lapse = &lease{holder: t}
	}
	return t.lapse
}

// name is the holder's.
func (t *taker) name() string {
	if t.consumer != nil {
		return t.consumer.Tag
	}
	return t.waiter.Holder
}

// session is the holder of the leases that its Gets took. The Gets themselves, with
// whoever waited, are gone as soon as they are served: a lease may last for days.
type session struct {
	taker
	as     Waiter
	leases int
}

// holderOf is who holds the lease of a message that t takes.
func (l *Ledger) holderOf(t *taker) *taker {
	if t.consumer != nil {
		return t
	}
	name := t.waiter.Holder
	s := l.sessions[name]
	if s == nil {
		s = &session{as: Waiter{Holder: name}}
		s.waiter = &s.as
		if l.sessions == nil {
			l.sessions = make(map[string]*session)
		}
		l.sessions[name] = s
	}
	s.leases++
	return &s.taker
}

// letGo forgets a session that holds no lease any more. It is not used again for
// another one: effects may still name it. That of nobody, which each Get without a
// session is of, stays until trim.
func (l *Ledger) letGo(t *taker) {
	s := l.sessions[t.waiter.Holder]
	if s.leases--; s.leases == 0 && s.as.Holder != "" {
		delete(l.sessions, s.as.Holder)
	}
}

// takers is the line of those who can take a message now (Q11). Who has no credit
// is not in it, so nobody ever looks at them.
type takers struct{ first, last *taker }

func (q *takers) push(t *taker) {
	t.prev, t.next, t.inLine = q.last, nil, true
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
}

func (q *takers) remove(t *taker) {
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next, t.inLine = nil, nil, false
}

// seats are the attached consumers, and at most one more: the active one of a
// SingleActive queue that was detached and whose leases are not over.
type seats struct {
	byTag       map[string]*Consumer
	first, last *Consumer // in order of attaching
	active      *Consumer // SingleActive only
}

func (s *seats) push(c *Consumer) {
	c.prevSeat, c.nextSeat = s.last, nil
	if s.last == nil {
		s.first = c
	} else {
		s.last.nextSeat = c
	}
	s.last = c
}

func (s *seats) remove(c *Consumer) {
	if c.prevSeat == nil {
		s.first = c.nextSeat
	} else {
		c.prevSeat.nextSeat = c.nextSeat
	}
	if c.nextSeat == nil {
		s.last = c.prevSeat
	} else {
		c.nextSeat.prevSeat = c.prevSeat
	}
	c.nextSeat, c.prevSeat = nil, nil
}

// Attach lets c compete, last in line. Errors: [*messages.ArgumentError] for a tag
// that is attached already, [*messages.QueueStateError].
func (l *Ledger) Attach(now time.Time, c *Consumer) error {
	l.advance(now)
	if err := l.refuse("attach"); err != nil {
		return err
	}
	if l.seats.byTag[c.Tag] != nil || c.attached {
		return &messages.ArgumentError{Op: "attach", Argument: "Tag", Problem: "is attached already: " + c.Tag}
	}
	l.wake()
	if l.seats.byTag == nil {
		l.seats.byTag = make(map[string]*Consumer)
	}
	l.seats.byTag[c.Tag] = c
	if c == l.seats.active { // back before its leases were over: it keeps its seat, not its turn
		l.seats.remove(c)
		c.displaced = true
	}
	l.seats.push(c)
	c.attached = true
	c.place.consumer = c
	l.credit(c)
	l.activate()
	return nil
}

// Detach ends c's hand-overs. Its leases stay and can be settled. False: no
// consumer of that tag is attached.
func (l *Ledger) Detach(now time.Time, tag string) bool {
	l.advance(now)
	c := l.seats.byTag[tag]
	if c == nil {
		return false
	}
	delete(l.seats.byTag, tag)
	c.attached = false
	l.credit(c)
	if c != l.seats.active {
		l.seats.remove(c)
	}
	l.activate()
	return true
}

// SetPrefetch changes how many leases the consumer may have out; 0 halts it.
// False: no consumer of that tag is attached.
func (l *Ledger) SetPrefetch(now time.Time, tag string, n int) bool {
	l.advance(now)
	c := l.seats.byTag[tag]
	if c == nil {
		return false
	}
	c.Prefetch = n
	l.credit(c)
	l.activate()
	return true
}

// credit puts c last in line when it has got credit, and out of it when it has
// lost it.
func (l *Ledger) credit(c *Consumer) {
	switch has := c.hasCredit(); {
	case has && !c.place.inLine:
		l.line.push(&c.place)
	case !has && c.place.inLine:
		l.line.remove(&c.place)
	}
}

// activate chooses the active consumer of a SingleActive queue (C8). The one there
// is stays while it has leases, and else while it is attached, was not displaced,
// and can take a message or is busy with one. Then comes the next in order of
// attaching that can take one, itself last: delivery goes on as long as anybody
// can. When nobody can, the first that will is chosen then.
func (l *Ledger) activate() {
	if !l.config.SingleActive {
		return
	}
	a := l.seats.active
	from := l.seats.first
	if a != nil {
		if a.attached && len(l.seats.byTag) == 1 {
			// Nobody to make room for: with a prefetch of 100 and one lapsed lease the
			// queue would else stand still until the other 99 are over.
			a.displaced = false
		}
		if a.leases > 0 || (a.attached && !a.displaced && (a.hasCredit() || a.back.len() > 0)) {
			return
		}
		a.displaced = false
		from = a.nextSeat
		if from == nil {
			from = l.seats.first
		}
	}
	var next *Consumer
	for c := from; c != nil; {
		if c.hasCredit() {
			next = c
			break
		}
		if c = c.nextSeat; c == nil {
			c = l.seats.first
		}
		if c == from {
			break
		}
	}
	l.seats.active = next
	if a != nil && !a.attached {
		l.seats.remove(a)
	}
}

// Want puts a Get in line. It changes nothing on a queue out of service.
func (l *Ledger) Want(now time.Time, w *Waiter) {
	l.advance(now)
	if l.gone != nil || w.place.inLine {
		return
	}
	l.wake()
	w.place.waiter = w
	l.line.push(&w.place)
}

// Unwant takes a Get out of line; false when it is not in it, because it was served
// or never came.
func (l *Ledger) Unwant(w *Waiter) bool {
	if !w.place.inLine {
		return false
	}
	l.line.remove(&w.place)
	return true
}

// Started says that the handler has begun with this delivery: to lose the lease now
// spends the attempt (C3). A lease that is over is not started.
func (l *Ledger) Started(now time.Time, tag uint64) {
	l.advance(now)
	if e := l.running(tag); e != nil {
		e.lease.flags |= started
	}
}

// Returned says that the consumer's handler has returned from this delivery. It is
// half of what brings its credit back; the lease's end is the other (C5).
func (l *Ledger) Returned(now time.Time, consumer string, tag uint64) {
	l.advance(now)
	if l.gone != nil {
		return
	}
	if e := l.tags.get(tag); e != nil {
		if c := e.lease.holder.consumer; c != nil && c.Tag == consumer {
			e.lease.flags |= returned
		}
		return
	}
	if c := l.seats.byTag[consumer]; c != nil && c.back.remove(tag) {
		l.credit(c)
		l.activate()
	}
}

// Crashed says that the handler panicked: the attempt is spent and the error kept.
// A lease without timeout returns at once as failed (Q17), any other runs out (S1).
// It brings back no credit: Returned does, when the worker can take another.
func (l *Ledger) Crashed(now time.Time, tag uint64, errText string) {
	l.advance(now)
	e := l.running(tag)
	if e == nil {
		return
	}
	e.lease.flags |= started
	if e.lease.has(noTimeout) {
		l.fail(e, messages.LeaseReturned, 0, false, errText)
		return
	}
	if errText != "" {
		if l.journal {
			l.record(Record{Kind: RecordErrored, Number: e.number, Tag: tag, Error: messages.CutError(errText)})
		}
		l.keepError(e, errText)
	}
}

// HolderEnded says that a consumer or session is gone for good: its leases without
// timeout return at once as failed, in tag order (Q17); those its handler never
// started return interrupted (C3). Others run out.
func (l *Ledger) HolderEnded(now time.Time, name string) {
	l.advance(now)
	if l.gone != nil {
		return
	}
	for h := l.holders[name]; h != nil && h.leases.first != nil; h = l.holders[name] {
		l.lose(h.leases.first, messages.LeaseReturned, 0)
	}
}

// holder is one holder's leases without timeout, in tag order.
type holder struct{ leases list }

func (l *Ledger) keep(e *entry) {
	name := e.lease.holder.name()
	h := l.holders[name]
	if h == nil {
		if h = l.spare; h == nil {
			h = new(holder)
		}
		l.spare = nil
		if l.holders == nil {
			l.holders = make(map[string]*holder)
		}
		l.holders[name] = h
	}
	h.leases.push(e)
}

func (l *Ledger) unkeep(e *entry) {
	name := e.lease.holder.name()
	h := l.holders[name]
	h.leases.remove(e)
	if h.leases.first == nil {
		delete(l.holders, name)
		l.spare = h
	}
}

// tagSet is a set of tags: most have none or one, which came last.
type tagSet struct {
	few  []uint64
	many map[uint64]struct{} // instead of few, from tagSetFew on
}

const tagSetFew = 32

func (s *tagSet) len() int { return len(s.few) + len(s.many) }

func (s *tagSet) add(tag uint64) {
	if s.many == nil && len(s.few) < tagSetFew {
		s.few = append(s.few, tag)
		return
	}
	if s.many == nil {
		s.many = make(map[uint64]struct{})
		for _, t := range s.few {
			s.many[t] = struct{}{}
		}
		s.few = s.few[:0]
	}
	s.many[tag] = struct{}{}
}

func (s *tagSet) remove(tag uint64) bool {
	if s.many != nil {
		_, ok := s.many[tag]
		delete(s.many, tag)
		if len(s.many) == 0 {
			s.many = nil
		}
		return ok
	}
	for i := len(s.few) - 1; i >= 0; i-- {
		if s.few[i] == tag {
			s.few[i] = s.few[len(s.few)-1]
			s.few = s.few[:len(s.few)-1]
			return true
		}
	}
	return false
}
