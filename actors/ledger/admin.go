package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/postroom/postroom/messages"
)

// Pause ends hand-overs; settles and everything by time go on (SPEC Q16).
func (l *Ledger) Pause(now time.Time) {
	l.advance(now)
	if l.gone == nil && !l.paused {
		l.setMode(RecordPaused)
	}
}

// Resume ends a pause, and a drain.
func (l *Ledger) Resume(now time.Time) {
	l.advance(now)
	if l.gone == nil && (l.paused || l.draining) {
		l.setMode(RecordResumed)
	}
}

// Drain refuses puts and redrives from now on, until Resume. The effect [Drained]
// comes when no message is left: at once, if none is there.
func (l *Ledger) Drain(now time.Time) {
	l.advance(now)
	if l.gone != nil {
		return
	}
	l.catchUp() // what is due to die may be all there is
	if !l.draining {
		l.setMode(RecordDraining)
	}
	l.tellDrained()
}

// setMode is the transition of the queue's own switches.
func (l *Ledger) setMode(to RecordKind) {
	if l.journal {
		l.record(Record{Kind: to})
	}
	switch to {
	case RecordPaused:
		l.paused = true
	case RecordResumed:
		l.paused, l.draining = false, false
	case RecordDraining:
		l.draining = true
	}
}

// tellDrained follows each command or event after which the queue may be empty.
// Nothing comes in while it drains, so it tells once.
func (l *Ledger) tellDrained() {
	if l.draining && l.total() == 0 {
		l.effect(Drained)
	}
}

// Purge forgets the ready and the delayed messages and says how many. Leased ones
// stay; ids stay taken inside their window (Q13).
func (l *Ledger) Purge(now time.Time) int {
	l.advance(now)
	if l.gone != nil {
		return 0
	}
	l.catchUp()
	n := l.purged()
	l.boundClaims()
	if n > 0 {
		l.tellDrained()
	}
	return n
}

// purged is the transition of a purge, in order of put number.
func (l *Ledger) purged() int {
	if l.readyN+l.delayedN == 0 {
		return 0
	}
	if l.journal {
		l.record(Record{Kind: RecordPurged})
	}
	n := 0
	for _, e := range l.entries() {
		if e.state == leased {
			continue
		}
		l.unplace(e)
		if e.ttlPos >= 0 {
			l.lifetimes.remove(e)
		}
		l.counters.more().Purged++
		l.leave(e, true)
		n++
	}
	return n
}

// entries lists every message in order of put number.
func (l *Ledger) entries() []*entry {
	all := make([]*entry, 0, l.total())
	for e := l.age.first; e != nil; e = e.younger {
		all = append(all, e)
	}
	for i := range l.delays.slots {
		if e := l.delays.slots[i].e; !e.has(aged) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
	return all
}

// Peek returns up to n ready messages in hand-over order, without lending them: Tag
// is 0 and Attempt counts those made. Their parts are shared and must not be changed.
func (l *Ledger) Peek(n int) []messages.Delivery {
	var out []messages.Delivery
	if n <= 0 {
		return nil
	}
	l.lanes.each(func(e *entry) bool {
		var d messages.Delivery
		l.fill(e, &d)
		out = append(out, d)
		return len(out) < n
	})
	return out
}

// Close drops all messages, leases, consumers and letters without requeueing
// anything (P1, Q14), and says how many messages and letters went. Owners are told.
// Every later command is answered with ErrQueueClosed. Twice is harmless.
func (l *Ledger) Close(now time.Time) (messagesDropped, lettersDropped int) {
	l.advance(now)
	if l.gone == closed {
		return 0, 0
	}
	l.catchUp() // what was due to die is counted with the letters
	return l.closed()
}

// closed is the transition of a close.
func (l *Ledger) closed() (messagesDropped, lettersDropped int) {
	if l.journal {
		l.record(Record{Kind: RecordClosed})
	}
	for _, o := range l.owners.row {
		if o != nil {
			f := l.effect(Settled)
			f.Owner, f.Count, o.messages = o, o.messages, 0
		}
	}
	messagesDropped, lettersDropped = l.total(), l.letters.n
	if messagesDropped > 0 {
		l.counters.more().Dropped += uint64(messagesDropped)
	}
	if lettersDropped > 0 {
		l.counters.more().lettersDropped += uint64(lettersDropped)
	}
	for t := l.line.first; t != nil; t = l.line.first {
		l.line.remove(t)
	}
	for c := l.seats.first; c != nil; c = l.seats.first {
		l.seats.remove(c)
		c.attached, c.leases, c.back = false, 0, tagSet{}
	}
	// What a closed queue still answers is its counters and its state. All else is let
	// go, so that a deleted queue that somebody holds on to costs little.
	records := l.records
	*l = Ledger{
		source: l.source, config: l.config, start: l.start, seed: l.seed, journal: l.journal, folding: l.folding,
		now: l.now, clock: l.clock, gone: closed, paused: l.paused, draining: l.draining,
		lastPut: l.lastPut, lastTag: l.lastTag, lastLetter: l.lastLetter,
		counters: l.counters,
		effects:  l.effects, work: &atRest,
	}
	if len(records) > 0 {
		l.wake()
		l.records = records
	}
	return messagesDropped, lettersDropped
}

// Quarantine ends all work, that of time too, after an invariant was found broken
// (S3): what is there stays as it is and can be read. Close still works.
func (l *Ledger) Quarantine() {
	if l.gone == nil {
		l.gone = quarantined
		l.behind = false
	}
}

// Trim gives spare memory back; for a queue that is idle. It changes nothing else
// but the order in which ended leases are forgotten.
func (l *Ledger) Trim() {
	l.spares = spares{}
	l.filled = nil
	if len(l.effects) == 0 {
		l.effects = nil
	}
	l.tags.trim(l.lastTag)
	l.ended.trim()
	if l.work != &atRest {
		l.trimWork()
	}
	l.index.trim()
}

func (l *Ledger) trimWork() {
	l.spare, l.rares, l.pages = nil, nil, nil
	if len(l.records) == 0 {
		l.records = nil
	}
	l.delays.trim()
	l.lifetimes.trim()
	l.timers.trim()
	l.trimClaims()
	l.owners.trim()
	for p, k := range l.lanes.rank {
		if k != nil && k.count == 0 {
			l.lanes.rank[p] = nil
		}
	}
	if len(l.holders) == 0 {
		l.holders = nil
	}
	if s := l.sessions[""]; s != nil && s.leases == 0 {
		delete(l.sessions, "")
	}
	if len(l.sessions) == 0 {
		l.sessions = nil
	}
	if len(l.seats.byTag) == 0 {
		l.seats.byTag = nil
	}
	l.letters.row = fit(l.letters.row)
	if l.letters.n == 0 {
		l.letters.byID = nil
	}
	l.rest()
}
