package ledger

import (
	"time"

	"github.com/postroom/postroom/messages"
)

// HandOver lends ready messages to those in line, until one of the two runs out.
// It is the only method that does, so that a turn of many puts becomes one batch
// and the shell decides when: at the end of a turn, and before any command that is
// neither a put nor a settle.
//
// It does nothing while the queue is paused, out of service, or Behind: a message
// whose TTL has come must not be handed over because its death was not yet settled.
func (l *Ledger) HandOver(now time.Time) {
	l.advance(now)
	if l.behind || l.paused || l.gone != nil {
		return
	}
	for l.lanes.mask != 0 {
		e := l.lanes.head()
		t := l.turn(e)
		if t == nil {
			return
		}
		l.lend(e, t)
	}
}

// turn says whose turn it is to take e (Q11); nil when nobody can.
//
// The front of the line takes, unless it let the lease of this very message run
// out and another holder has credit: then the first other one does, and the front
// keeps its place for the next message. The search passes only places of that one
// holder: one for a consumer, and as many as it has Gets in line for a session.
func (l *Ledger) turn(e *entry) *taker {
	if l.config.SingleActive && len(l.seats.byTag) > 0 {
		// Gets wait while a consumer is attached, else they would be a second active
		// one (C8).
		if a := l.seats.active; a != nil && !a.displaced && a.place.inLine {
			return &a.place
		}
		return nil
	}
	front := l.line.first
	if front == nil || e.lease == nil {
		return front
	}
	avoided := e.avoids()
	for t := front; t != nil; t = t.next {
		if t.name() != avoided {
			return t
		}
	}
	return front
}

// lend is the transition from ready to leased.
//
// The attempt is counted here and not on failure: a consumer that crashes before it
// can answer has used one too, else a message that kills its consumer would come
// back for ever (V: attempts are counted in the queue).
func (l *Ledger) lend(e *entry, t *taker) {
	timeout, lasts := int64(l.config.AckTimeout), l.config.NoTimeout
	if c := t.consumer; c != nil {
		lasts = lasts || c.NoTimeout
		if c.AckTimeout > 0 {
			timeout = int64(c.AckTimeout)
		}
	} else {
		lasts = lasts || t.waiter.NoTimeout
		if t.waiter.AckTimeout > 0 {
			timeout = int64(t.waiter.AckTimeout)
		}
	}
	if lasts {
		timeout = never
	}
	// MaxLease bounds every lease, also one that else lasts as long as its holder.
	deadline := min(addSat(l.clock, timeout), l.leaseLimit(l.clock))
	if l.journal {
		l.record(Record{
			Kind: RecordLent, Number: e.number, Tag: l.lastTag + 1, Consumer: t.name(),
			Attempt: int(e.attempt) + 1, Deliveries: e.deliveries() + 1,
			Deadline: l.time(deadline), Timeout: time.Duration(timeout), NoTimeout: lasts,
		})
	}

	expires := int64(never)
	if e.ttlPos >= 0 {
		expires = l.lifetimes.remove(e)
	}
	l.unplace(e)
	e.state = leased
	l.leasedN++
	e.attempt++
	le := l.spares.lease()
	e.lease = le
	// Field by field, here and where else a message passes: a literal is built on the
	// stage first, and reading it back at once, in larger pieces, stalls the processor
	// for longer than all the rest of the copy takes.
	l.lastTag++
	l.tags.issue(l.lastTag, e, &l.pages)
	le.tag, le.deadline, le.handed = l.lastTag, deadline, l.clock
	le.timeout, le.expires, le.holder = timeout, expires, l.holderOf(t)
	le.where, le.flags = unarmed, 0
	if lasts {
		le.flags |= noTimeout
		l.keep(e)
	}
	l.arm(e)

	l.counters.Deliveries++
	if e.deliveries() > 1 {
		l.counters.more().Redelivered++
	}
	f := l.effect(HandedOver)
	f.Tag, f.Consumer, f.Waiter, f.entry = le.tag, t.consumer, t.waiter, e
	if c := t.consumer; c != nil {
		if !c.Handler {
			le.flags |= started
		}
		c.leases++
		if l.line.last != t || !c.hasCredit() { // alone in line and with credit left: it is last already
			l.line.remove(t)
			l.credit(c)
		}
	} else {
		le.flags |= started
		if t.inLine {
			l.line.remove(t)
		}
	}
}

// leaseLimit is when a lease that was handed over then ends whatever is touched (Q7).
func (l *Ledger) leaseLimit(handed int64) int64 {
	if l.config.MaxLease == 0 {
		return never
	}
	return addSat(handed, int64(l.config.MaxLease))
}

// arm puts a lease where its deadline will be noticed. Those with the queue's own
// timeout are appended to a list, which hand-overs and touches keep in order by
// themselves; whatever would break the order goes to the heap, so the two together
// are always in order of deadline and tag.
func (l *Ledger) arm(e *entry) {
	le := e.lease
	if le.deadline == never {
		le.where = unarmed
		return
	}
	if le.timeout == int64(l.config.AckTimeout) && le.deadline == addSat(l.clock, min(le.timeout, l.leaseLimit(0))) {
		last := l.leases.last
		if last == nil || last.lease.deadline < le.deadline || (last.lease.deadline == le.deadline && last.lease.tag < le.tag) {
			le.where = inLine
			l.leases.push(e)
			return
		}
	}
	le.where = inTimers
	l.timers.push(le.deadline, le.tag, e)
}

func (l *Ledger) disarm(e *entry) {
	switch e.lease.where {
	case inLine:
		l.leases.remove(e)
	case inTimers:
		l.timers.remove(e)
	}
	e.lease.where = unarmed
}

// endLease takes a message out of its holder's hands and gives the credit back as
// far as it is due. It returns the tag and the message's own end.
func (l *Ledger) endLease(e *entry, how messages.LeaseEnd) (tag uint64, expires int64) {
	le := e.lease
	tag, expires = le.tag, le.expires
	l.disarm(e)
	if le.has(noTimeout) {
		l.unkeep(e)
	}
	l.tags.end(tag, l.lastTag, &l.pages)
	l.ended.add(tag, how)
	l.leasedN--
	if c := le.holder.consumer; c != nil {
		c.leases--
		if c.Handler && !le.has(returned) {
			c.back.add(tag)
		}
		if how == messages.LeaseExpired && c == l.seats.active {
			c.displaced = true
		}
		l.credit(c)
		if l.config.SingleActive { // else a call for nothing, at each settle
			l.activate()
		}
	} else {
		l.letGo(le.holder)
	}
	e.lease = nil
	e.state = unused
	l.spares.giveLease(le)
	return tag, expires
}
