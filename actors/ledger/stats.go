package ledger

import (
	"time"

	"github.com/postroom/postroom/messages"
)

// Stats counts the queue as it is now; every figure equals a recount (SPEC B3). It
// settles what is due like any other command, at most a slice.
func (l *Ledger) Stats(now time.Time) messages.QueueStats {
	l.advance(now)
	s := messages.QueueStats{
		Queue: l.source.Queue, Incarnation: l.source.Incarnation,
		Ready: l.readyN, Delayed: l.delayedN, Leased: l.leasedN,
		DeadLetters: l.letters.n, Consumers: len(l.seats.byTag),
		Bytes: l.bytes, DeadLetterBytes: l.letters.bytes,
		Paused: l.paused, Draining: l.draining, Quarantined: l.gone == messages.ErrQuarantined,
		Counters: l.counters,
	}
	if oldest := l.age.first; oldest != nil {
		s.OldestAge = time.Duration(l.now - oldest.firstReady)
	}
	return s
}

// CountBusy counts a put that the shell answered with ErrBusy.
func (l *Ledger) CountBusy() { l.counters.Refusals++ }

// CountLostNotice counts an announcement lost to a crash (S3).
func (l *Ledger) CountLostNotice() { l.counters.LostNotices++ }

// countEnd counts the end of a lease that was not acked. A lease taken back with
// its holder is no nack and no expiry: it counts only when it was interrupted.
func (l *Ledger) countEnd(how messages.LeaseEnd, reason messages.Reason, untried bool) {
	if untried {
		l.counters.Interruptions++
	}
	switch {
	case how == messages.LeaseExpired:
		l.counters.Expiries++
	case how == messages.LeaseNacked && reason == messages.Rejected:
		l.counters.Rejections++
	case how == messages.LeaseNacked:
		l.counters.Nacks++
	}
}
