package ledger

import (
	"math/bits"
	"time"

	"github.com/postroom/postroom/messages"
)

// running returns the message leased under tag, if that lease is running. At the
// deadline exactly it is over (Q9), also when a ledger that is behind has not come
// to settle it.
func (l *Ledger) running(tag uint64) *entry {
	if l.gone != nil {
		return nil
	}
	if e := l.tags.get(tag); e != nil && e.lease.deadline > l.now {
		return e
	}
	return nil
}

// held is running with the answer for a settle that comes too late (Q8).
func (l *Ledger) held(verb messages.Verb, tag uint64) (*entry, error) {
	if e := l.running(tag); e != nil {
		return e, nil
	}
	if err := l.refuse(verb.String()); err != nil {
		return nil, err
	}
	l.counters.more().StaleBy[verb]++
	stale := &messages.StaleError{
		Verb:    verb,
		Receipt: messages.Receipt{Queue: l.source.Queue, Incarnation: l.source.Incarnation, Tag: tag},
	}
	stale.Issued, stale.Ended = l.LeaseEnd(tag)
	if l.tags.get(tag) != nil {
		stale.Ended = messages.LeaseExpired // its deadline has come; only its settling has not
	}
	return nil, stale
}

// RefuseForeign answers a settle with a receipt of another incarnation, whose tags
// this one never gave out (Q3); counted like any stale settle. Errors:
// [*messages.StaleError], [*messages.QueueStateError].
func (l *Ledger) RefuseForeign(verb messages.Verb, r messages.Receipt) error {
	if err := l.refuse(verb.String()); err != nil {
		return err
	}
	l.counters.more().StaleBy[verb]++
	return &messages.StaleError{Verb: verb, Receipt: r}
}

// LeaseEnd says whether tag was ever given out and how its lease ended:
// LeaseRunning while it runs, also past its deadline as long as that is not
// settled, and for a lease that is not among the last 4,096 ended ones (Q8).
func (l *Ledger) LeaseEnd(tag uint64) (issued bool, end messages.LeaseEnd) {
	if tag == 0 || tag > l.lastTag {
		return false, messages.LeaseRunning
	}
	if l.tags.get(tag) != nil { // else each prompt settle would search all that ended
		return true, messages.LeaseRunning
	}
	return true, l.ended.find(tag)
}

// Ack finishes the delivery; the message is gone (SPEC Q5). Errors, as for every
// settle: [*messages.StaleError], [*messages.QueueStateError]; nothing has changed.
func (l *Ledger) Ack(now time.Time, tag uint64) error {
	l.advance(now)
	e, err := l.held(messages.VerbAck, tag)
	if err != nil {
		return err
	}
	l.ack(e)
	return nil
}

// AckReturned is [Ledger.Returned] and then [Ledger.Ack] of a lease that runs: what
// most deliveries come to, at the price of one. False: the lease is over or another
// consumer's, and nothing has changed or been counted.
func (l *Ledger) AckReturned(now time.Time, consumer string, tag uint64) bool {
	l.advance(now)
	e := l.running(tag)
	if e == nil {
		return false
	}
	if c := e.lease.holder.consumer; c == nil || c.Tag != consumer {
		return false
	}
	e.lease.flags |= returned
	l.ack(e)
	return true
}

func (l *Ledger) ack(e *entry) {
	l.budgetOnTime()
	l.acked(e)
	l.boundClaims()
	l.releaseWaiting()
	l.tellDrained()
}

// acked is the transition of an ack.
func (l *Ledger) acked(e *entry) {
	if l.journal {
		l.record(Record{Kind: RecordAcked, Number: e.number, Tag: e.lease.tag})
	}
	l.endLease(e, messages.LeaseAcked)
	l.counters.Acks++
	l.budget.success(l)
	l.leave(e, true)
}

// Nack gives the message back, to be tried again after the queue's retry delay (R1).
func (l *Ledger) Nack(now time.Time, tag uint64, errText string) error {
	l.advance(now)
	e, err := l.held(messages.VerbNack, tag)
	if err != nil {
		return err
	}
	l.fail(e, messages.LeaseNacked, l.backoff(e), false, errText)
	return nil
}

// NackIn gives the message back, to be tried again after exactly d; 0 is now, at
// the end of the failed lane (Q6). Errors also: [*messages.ArgumentError] for a
// negative d.
func (l *Ledger) NackIn(now time.Time, tag uint64, d time.Duration, errText string) error {
	l.advance(now)
	if d < 0 {
		return &messages.ArgumentError{Op: "nack", Argument: "delay", Problem: "must not be negative"}
	}
	e, err := l.held(messages.VerbNackIn, tag)
	if err != nil {
		return err
	}
	l.fail(e, messages.LeaseNacked, int64(d), false, errText)
	return nil
}

// Reject kills the message at once (Q6).
func (l *Ledger) Reject(now time.Time, tag uint64, errText string) error {
	l.advance(now)
	e, err := l.held(messages.VerbReject, tag)
	if err != nil {
		return err
	}
	l.fail(e, messages.LeaseNacked, 0, true, errText)
	return nil
}

// Release gives the message back untried: the attempt is not spent, and it goes
// before the failed and the fresh ones (R10, Q12).
func (l *Ledger) Release(now time.Time, tag uint64) error {
	l.advance(now)
	e, err := l.held(messages.VerbRelease, tag)
	if err != nil {
		return err
	}
	l.interrupt(e, messages.LeaseReturned)
	return nil
}

// Touch renews the lease to now + AckTimeout, never backwards and never beyond
// MaxLease, and answers the new deadline; zero for a lease without one (Q7).
func (l *Ledger) Touch(now time.Time, tag uint64) (time.Time, error) {
	l.advance(now)
	e, err := l.held(messages.VerbTouch, tag)
	if err != nil {
		return time.Time{}, err
	}
	le := e.lease
	return l.extend(e, max(le.deadline, addSat(l.now, le.timeout))), nil
}

// TouchFor makes the lease end at now + d exactly, or at MaxLease if that is
// earlier. A lease without timeout stays without (Q17). Errors also:
// [*messages.ArgumentError] unless d is positive.
func (l *Ledger) TouchFor(now time.Time, tag uint64, d time.Duration) (time.Time, error) {
	l.advance(now)
	if d <= 0 {
		return time.Time{}, &messages.ArgumentError{Op: "touch", Argument: "extension", Problem: "must be more than zero"}
	}
	e, err := l.held(messages.VerbTouch, tag)
	if err != nil {
		return time.Time{}, err
	}
	return l.extend(e, addSat(l.now, int64(d))), nil
}

// extend sets a running lease's deadline. It makes no record: touches are volatile
// (K4).
func (l *Ledger) extend(e *entry, deadline int64) time.Time {
	l.counters.more().Touches++
	le := e.lease
	if le.has(noTimeout) {
		deadline = never // there is none to move (Q17), but that of MaxLease
	}
	deadline = min(deadline, l.leaseLimit(le.handed))
	if deadline != le.deadline {
		l.disarm(e)
		le.deadline = deadline
		l.arm(e)
	}
	return l.time(deadline)
}

// lose ends a lease that its holder did not settle, as failed or, when the handler
// never began, as interrupted (C3).
func (l *Ledger) lose(e *entry, how messages.LeaseEnd, wait int64) {
	if !e.lease.has(started) {
		l.interrupt(e, how)
		return
	}
	l.fail(e, how, wait, false, "")
}

// fail ends a delivery that did not succeed: the message dies by the first reason
// that applies (Q15), or waits for its next attempt.
func (l *Ledger) fail(e *entry, how messages.LeaseEnd, wait int64, reject bool, errText string) {
	errText = messages.CutError(errText)
	d := death{how: how, errText: errText}
	switch {
	case reject:
		d.reason = messages.Rejected
	case l.config.MaxAttempts >= 0 && int(e.attempt) >= l.config.MaxAttempts:
		d.reason = messages.MaxAttempts
	case e.lease.expires <= l.clock:
		d.reason = messages.Expired
	default:
		l.giveBack(e, &comeback{how: how, lane: failed, due: addSat(l.clock, wait), errText: errText})
		return
	}
	l.die(e, d)
}

// interrupt ends a delivery that nobody tried. MaxAttempts cannot kill what spent
// no attempt; its TTL can.
func (l *Ledger) interrupt(e *entry, how messages.LeaseEnd) {
	if e.lease.expires <= l.clock {
		l.die(e, death{reason: messages.Expired, how: how, untried: true})
		return
	}
	l.giveBack(e, &comeback{how: how, lane: interrupted, due: l.clock})
}

// comeback is a decided return to the queue.
type comeback struct {
	how     messages.LeaseEnd
	lane    lane // failed or interrupted
	due     int64
	waits   place
	errText string
}

// place is where a message goes that is not leased any more.
type place uint8

const (
	toLane   place = iota
	toDelays       // until due
	toBudget       // until the retry budget has room (R9)
)

func (l *Ledger) giveBack(e *entry, b *comeback) {
	switch {
	case b.due > l.clock || l.behind:
		// Behind, what fell due before now has not returned yet; this one waits among
		// the delayed until now, so that it does not overtake.
		b.waits = toDelays
	case b.lane == failed:
		b.waits = l.retryPlace()
	}
	l.comesBack(e, b)
}

// comesBack is the transition from leased to ready, delayed or waiting.
func (l *Ledger) comesBack(e *entry, b *comeback) {
	if l.journal {
		r := Record{Kind: RecordReturned, Number: e.number, Tag: e.lease.tag, How: b.how,
			Interrupted: b.lane == interrupted, Waits: b.waits == toBudget, Error: b.errText}
		if b.waits == toDelays {
			r.Due = l.time(b.due)
		}
		l.record(r)
	}
	l.countEnd(b.how, 0, b.lane == interrupted)
	lost := e.lease.holder
	tag, expires := l.endLease(e, b.how)
	if b.lane == interrupted {
		l.untry(e)
	}
	l.keepError(e, b.errText)
	if b.how == messages.LeaseExpired {
		// Only who let it run out is passed over: one that answered is alive (Q11).
		e.lease = lost.lapsed()
	}
	e.lane = b.lane
	switch b.waits {
	case toLane:
		if b.lane == failed {
			l.budget.retry(l)
		}
		l.makeReady(e)
	case toDelays:
		l.delay(e, b.due, tag)
	case toBudget:
		l.wait(e)
	}
	l.setExpiry(e, expires)
	if b.how == messages.LeaseExpired {
		l.leaseLost(lost, tag)
	}
}

// untry takes an attempt back that nobody made; the delivery stays counted (R10).
func (l *Ledger) untry(e *entry) {
	e.attempt--
	l.rarely(e).untried++
}

// keepError remembers the last error of a message that is still here; none keeps
// the one before.
func (l *Ledger) keepError(e *entry, errText string) {
	if errText == "" {
		return
	}
	if errText = messages.CutError(errText); e.rare == nil || e.rare.lastError != errText {
		l.rarely(e).lastError = errText
	}
}

// backoff is the delay after this failure (R1): uniform in [0, bound], or the bound
// without jitter, where bound is min(Cap, Base*2^(k-1)) after failure k.
func (l *Ledger) backoff(e *entry) int64 {
	bound := int64(l.config.BackoffCap)
	if shift := int(e.attempt) - 1; shift < bits.LeadingZeros64(uint64(l.config.BackoffBase))-1 {
		bound = min(bound, int64(l.config.BackoffBase)<<shift) // else it has saturated
	}
	if l.config.NoJitter || l.draw == nil || bound == 0 {
		return bound
	}
	return int64(messages.FullJitter(time.Duration(bound), l.draw(l.source, e.number, uint64(e.attempt))))
}
