package ledger

import (
	"time"

	"github.com/postroom/postroom/messages"
)

// slice is how many events one call settles at most (Q10): a million leases that
// end at one instant must not hold up the command that happens to come then. At
// 0.3 µs an event a slice is a third of a millisecond.
const slice = 1024

// source is what makes an event. At one instant they are settled in this order: a
// new budget window first, for it holds that instant; lease ends before delayed
// ones before TTL deaths; the alarm last, for those that died or left are not old.
type source uint8

const (
	nothing source = iota
	windowTurns
	leaseEnds
	delayEnds
	lifeEnds
	claimEnds
	ageComes
)

// advance moves time forward to now and settles what fell due on the way, the
// earliest first, at most a slice of it.
func (l *Ledger) advance(now time.Time) {
	if now == l.latest && l.settled {
		return // as for most commands of a turn: nothing that they do is due at once
	}
	l.latest = now
	// A clock that steps back would prolong every lease by the step (K3).
	if at := int64(now.Sub(l.start)); at > l.now {
		l.now = at
	}
	l.settled = false
	if l.gone != nil {
		l.clock = l.now
		return
	}
	l.behind = false // events come in order; only between calls can something overtake
	for range slice {
		if !l.step() {
			l.clock = l.now
			l.settled = true
			return
		}
	}
	l.clock = l.now
	at, _ := l.due()
	l.behind = at <= l.now
}

// catchUp settles all that is due, for a command whose verdict may depend on it.
func (l *Ledger) catchUp() {
	if l.gone != nil {
		return
	}
	l.behind = false
	for l.step() {
	}
	l.clock = l.now
}

// due returns the earliest event: its instant, and what makes it.
func (l *Ledger) due() (at int64, s source) {
	at, s = l.dueBesidesClaims()
	if t := l.claims.first(); t < at {
		at, s = t, claimEnds
	}
	return at, s
}

func (l *Ledger) dueBesidesClaims() (at int64, s source) {
	at = never
	if l.budget.line.first != nil {
		at, s = l.budget.end, windowTurns
	}
	if e := l.leases.first; e != nil && e.lease.deadline < at {
		at, s = e.lease.deadline, leaseEnds
	}
	if t := l.timers.first(); t < at {
		at, s = t, leaseEnds
	}
	if t := l.delays.first(); t < at {
		at, s = t, delayEnds
	}
	if t := l.lifetimes.first(); t < at {
		at, s = t, lifeEnds
	}
	if t := l.ageInstant(); t < at {
		at, s = t, ageComes
	}
	return at, s
}

// step settles the earliest event if it has come.
func (l *Ledger) step() bool {
	at, s := l.due()
	if at > l.now || s == nothing {
		return false
	}
	l.clock = at
	switch s {
	case windowTurns:
		l.releaseWaiting()
	case leaseEnds:
		l.expire(l.firstLease())
	case delayEnds:
		l.comeDue(l.delays.slots[0].e)
	case lifeEnds:
		l.die(l.lifetimes.slots[0].e, death{reason: messages.Expired})
	case claimEnds:
		l.dropClaim(l.claims.heap[0].ref, RecordClaimFreed)
	case ageComes:
		l.raiseAge()
	}
	return true
}

// firstLease is the lease that ends first, of the list and the heap: messages
// returned together go in tag order, whichever container each lease was in and in
// whatever order they were touched (Q12).
func (l *Ledger) firstLease() *entry {
	a := l.leases.first
	if len(l.timers.slots) == 0 {
		return a
	}
	b := &l.timers.slots[0]
	if a == nil || b.at < a.lease.deadline || (b.at == a.lease.deadline && b.order < a.lease.tag) {
		return b.e
	}
	return a
}

// expire ends a lease at its deadline (Q10).
func (l *Ledger) expire(e *entry) {
	var wait int64
	if l.config.RetryExpired && e.lease.has(started) {
		wait = l.backoff(e)
	}
	l.lose(e, messages.LeaseExpired, wait)
}

// comeDue makes a delayed message ready at its due instant (R2); a failed one only
// as far as the retry budget goes.
func (l *Ledger) comeDue(e *entry) {
	to := toLane
	if e.lane == failed {
		to = l.retryPlace()
	}
	l.delayEnded(e, to)
}

// delayEnded is the transition from delayed to ready or waiting.
func (l *Ledger) delayEnded(e *entry, to place) {
	if l.journal {
		l.record(Record{Kind: RecordDue, Number: e.number, Waits: to == toBudget})
	}
	l.unplace(e)
	if to == toBudget {
		l.wait(e)
		return
	}
	if e.lane == failed {
		l.budget.retry(l)
	}
	l.makeReady(e)
}

// ageInstant is when the MaxAge alarm goes off (A2); never while it is off, raised,
// or nothing is old enough to grow older.
func (l *Ledger) ageInstant() int64 {
	if l.config.MaxAge == 0 || l.ageRaised || l.age.first == nil {
		return never
	}
	return addSat(l.age.first.firstReady(), int64(l.config.MaxAge))
}

func (l *Ledger) raiseAge() {
	l.ageRaised = true
	l.effect(AlarmRaised).Alarm = messages.OldestAge
}

// leaveAge takes a message out of the age list and re-arms the alarm when those
// left are younger than it.
func (l *Ledger) leaveAge(e *entry) {
	if e == l.age.first && l.ageInstant() < l.clock && !l.folding {
		l.raiseAge() // behind: its instant has come and was not settled yet
	}
	l.age.remove(e)
	if l.ageRaised && (l.age.first == nil || addSat(l.age.first.firstReady(), int64(l.config.MaxAge)) > l.clock) {
		l.ageRaised = false
	}
}

// Tick only settles what is due.
func (l *Ledger) Tick(now time.Time) { l.advance(now) }

// NextDeadline returns when Tick must be called next: the owner needs one timer,
// armed to it. False: nothing will happen by itself.
//
// Ids that will be free again do not wake it one by one: whatever comes next frees
// those whose window is over before it is looked at. They ask for one call when all
// of them are, so that an idle queue does not keep a million of them for ever.
func (l *Ledger) NextDeadline() (time.Time, bool) {
	if l.gone != nil {
		return time.Time{}, false
	}
	at, _ := l.dueBesidesClaims()
	if l.claims.first() != never {
		at = min(at, l.claims.last)
	}
	if at == never {
		return time.Time{}, false
	}
	return l.time(at), true
}

// Behind reports whether due work is left because a slice was full: Tick again
// soon. Verdicts are already as if it were done.
func (l *Ledger) Behind() bool { return l.behind }
