package ledger

import (
	"time"

	"github.com/postroom/postroom/messages"
)

// Stats counts the queue as it is now; every figure equals a recount (SPEC B3). It
// settles what is due like any other command, but not while the ledger is Behind: who
// looks often to see it catch up would do that work on his own time, and leave the
// timer's turns none of their pauses (Q10).
func (l *Ledger) Stats(now time.Time) messages.QueueStats {
	if !l.behind {
		l.advance(now)
	}
	s := messages.QueueStats{
		Queue: l.source.Queue, Incarnation: l.source.Incarnation,
		Ready: l.readyN, Delayed: l.delayedN, Leased: l.leasedN,
		DeadLetters: l.letters.n, Consumers: len(l.seats.byTag),
		Bytes: l.bytes, DeadLetterBytes: l.letters.bytes,
		Paused: l.paused, Draining: l.draining, Quarantined: l.gone == quarantined,
		Counters: l.counters.all(),
	}
	if oldest := l.age.first; oldest != nil {
		s.OldestAge = time.Duration(l.now - oldest.firstReady())
	}
	return s
}

// counters are [messages.Counters], of which most queues need but a few: those that
// every message moves are here, and the rest is made when the first of them moves.
type counters struct {
	Puts, Deliveries, Acks uint64
	rest                   *moreCounters // nil: all zero
}

type moreCounters struct {
	messages.Counters
	lettersDropped uint64 // at Close
}

// more are the counters besides those three, to be counted up.
func (c *counters) more() *moreCounters {
	if c.rest == nil {
		c.rest = new(moreCounters)
	}
	return c.rest
}

func (c *counters) lettersDropped() uint64 {
	if c.rest == nil {
		return 0
	}
	return c.rest.lettersDropped
}

// all are the counters as they stand.
func (c *counters) all() messages.Counters {
	var k messages.Counters
	if c.rest != nil {
		k = c.rest.Counters
	}
	k.Puts, k.Deliveries, k.Acks = c.Puts, c.Deliveries, c.Acks
	return k
}

// CountBusy counts a put that the shell answered with ErrBusy.
func (l *Ledger) CountBusy() { l.counters.more().Refusals++ }

// CountLostNotice counts an announcement lost to a crash (S3).
func (l *Ledger) CountLostNotice() { l.counters.more().LostNotices++ }

// countEnd counts the end of a lease that was not acked. A lease taken back with
// its holder is no nack and no expiry: it counts only when it was interrupted.
func (l *Ledger) countEnd(how messages.LeaseEnd, reason messages.Reason, untried bool) {
	if untried {
		l.counters.more().Interruptions++
	}
	switch {
	case how == messages.LeaseExpired:
		l.counters.more().Expiries++
	case how == messages.LeaseNacked && reason == messages.Rejected:
		l.counters.more().Rejections++
	case how == messages.LeaseNacked:
		l.counters.more().Nacks++
	}
}
