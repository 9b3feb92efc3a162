package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom/messages"
)

// Fold rebuilds a ledger from its records: the same durable state (SPEC K4), which
// is what [Ledger.Dump] prints. Consumers, Gets, touched deadlines, started marks,
// owners and the counters of what changes nothing are not durable. Each lease's
// holder is a name only; [Ledger.Recover] returns the leases.
//
// An error says which record does not fit the state before it.
func Fold(source *messages.Source, config *messages.QueueConfig, start time.Time, records []Record) (*Ledger, error) {
	l := New(source, config, start, Options{})
	l.folding = true
	byNumber := make(map[uint64]*entry)
	for i := range records {
		r := &records[i]
		l.clock = int64(r.At.Sub(start))
		l.now = max(l.now, l.clock)
		if err := l.apply(r, byNumber); err != nil {
			return nil, fmt.Errorf("ledger: record %d, %s of message %d: %w", i, r.Kind, r.Number, err)
		}
		l.ClearEffects()
	}
	l.folding = false
	l.clock = l.now
	// A lease that was kept by touches is back at its first deadline, which may have
	// passed: that is for the next command to settle.
	at, _ := l.due()
	l.behind = l.gone == nil && at <= l.now
	return l, nil
}

// instant is the opposite of Ledger.time.
func (l *Ledger) instant(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return int64(t.Sub(l.start))
}

func (l *Ledger) apply(r *Record, byNumber map[uint64]*entry) error {
	find := func(want ...state) (*entry, error) {
		e := byNumber[r.Number]
		if e == nil {
			return nil, fmt.Errorf("no such message")
		}
		for _, s := range want {
			if e.state == s && (s != leased || e.lease.tag == r.Tag) {
				return e, nil
			}
		}
		return nil, fmt.Errorf("it is %s", e.state)
	}
	switch r.Kind {
	case RecordPut:
		if r.Number != l.lastPut+1 {
			return fmt.Errorf("the last was %d", l.lastPut)
		}
		if r.Letter != 0 && l.letters.get(r.Letter) == nil {
			return fmt.Errorf("no letter %d", r.Letter)
		}
		past := newcomer
		if r.Redriven || r.Deaths > 0 {
			past = &Past{Redriven: r.Redriven, Deliveries: r.Deliveries, History: r.History, Deaths: r.Deaths}
		}
		in := arrival{
			Put: &Put{ID: r.ID, Body: r.Body, Headers: r.Headers, GivenID: r.GivenID}, Past: past,
			details: r.Details, letter: r.Letter,
			due: l.instant(r.Due), waits: !r.Due.IsZero(), expires: l.instant(r.Expires),
		}
		in.weighShared()
		if r.GivenID {
			in.hash = l.hash(r.ID)
			if s := l.index.find(in.hash, r.ID, &l.claims); s != nil && (s.e != nil || !r.Redriven) {
				return fmt.Errorf("id %q is taken", r.ID)
			}
		}
		byNumber[r.Number] = l.enter(&in)
	case RecordLent:
		e, err := find(ready)
		if err != nil {
			return err
		}
		if r.Tag != l.lastTag+1 {
			return fmt.Errorf("tag %d after %d", r.Tag, l.lastTag)
		}
		l.lend(e, ghost(r))
	case RecordAcked:
		e, err := find(leased)
		if err != nil {
			return err
		}
		l.acked(e)
		delete(byNumber, r.Number)
	case RecordReturned:
		e, err := find(leased)
		if err != nil {
			return err
		}
		b := comeback{how: r.How, lane: failed, due: l.clock, errText: r.Error}
		if r.Interrupted {
			b.lane = interrupted
		}
		switch {
		case !r.Due.IsZero():
			b.waits, b.due = toDelays, l.instant(r.Due)
		case r.Waits:
			b.waits = toBudget
		}
		l.comesBack(e, &b)
	case RecordDue:
		e, err := find(delayed)
		if err != nil {
			return err
		}
		to := toLane
		if r.Waits {
			to = toBudget
		}
		l.delayEnded(e, to)
	case RecordRetried:
		e, err := find(waiting)
		if err != nil {
			return err
		}
		l.retried(e)
	case RecordDied:
		e, err := find(ready, delayed, waiting, leased)
		if err != nil {
			return err
		}
		l.died(e, death{reason: r.Reason, how: r.How, untried: r.Interrupted, errText: r.Error})
		delete(byNumber, r.Number)
	case RecordErrored:
		e, err := find(leased)
		if err != nil {
			return err
		}
		l.keepError(e, r.Error)
	case RecordTrimmed, RecordDiscarded, RecordRedrivenOut:
		t := l.letters.get(r.Letter)
		if t == nil {
			return fmt.Errorf("no letter %d", r.Letter)
		}
		l.letterGone(t, r.Kind)
	case RecordPurged:
		for number, e := range byNumber {
			if e.state != leased {
				delete(byNumber, number)
			}
		}
		l.purged()
	case RecordClaimFreed, RecordClaimDropped:
		s := l.index.find(l.hash(r.ID), r.ID, &l.claims)
		if s == nil || s.claim == 0 {
			return fmt.Errorf("no claim of %q", r.ID)
		}
		l.dropClaim(s.claim, r.Kind)
	case RecordPaused, RecordResumed, RecordDraining:
		l.setMode(r.Kind)
	case RecordClosed:
		l.closed()
		clear(byNumber)
	default:
		return fmt.Errorf("unknown kind %d", r.Kind)
	}
	return nil
}

// ghost stands for a holder of which only the name is known.
func ghost(r *Record) *taker {
	w := &Waiter{Holder: r.Consumer, AckTimeout: r.Timeout, NoTimeout: r.NoTimeout}
	w.place.waiter = w
	return &w.place
}

// Recover returns every lease, as failed and with the attempt spent, in tag order:
// after a restart no holder is left (SPEC K4).
func (l *Ledger) Recover(now time.Time) {
	l.advance(now)
	if l.gone != nil {
		return
	}
	l.catchUp()
	for _, e := range l.tags.all() {
		l.fail(e, messages.LeaseReturned, 0, false, "")
	}
}

// Dump writes the durable state as text: equal text, equal state. Not in it, because
// volatile: consumers, Gets, touched deadlines (those at hand-over are), started
// marks, owners, the memory of ended leases, the time of the last command, and the
// counters of touches, stale settles, duplicates, refusals and lost notices.
func (l *Ledger) Dump() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	at := func(n int64) string {
		if n == never {
			return "never"
		}
		return time.Duration(n).String()
	}
	p("queue %s/%d closed=%t paused=%t draining=%t", l.source.Queue, l.source.Incarnation,
		l.gone == closed, l.paused, l.draining)
	p("last put=%d tag=%d letter=%d", l.lastPut, l.lastTag, l.lastLetter)
	p("ready=%d delayed=%d leased=%d bytes=%d", l.readyN, l.delayedN, l.leasedN, l.bytes)
	c := l.counters.all()
	p("puts=%d redriven_in=%d deliveries=%d redelivered=%d acks=%d nacks=%d expiries=%d rejections=%d dead=%v purged=%d dropped=%d",
		c.Puts, c.RedrivenIn, c.Deliveries, c.Redelivered, c.Acks, c.Nacks, c.Expiries, c.Rejections, c.DeadBy[1:], c.Purged, c.Dropped)
	p("redriven_out=%d discarded=%d trimmed=%d interruptions=%d claims_dropped=%d",
		c.RedrivenOut, c.Discarded, c.Trimmed, c.Interruptions, c.ClaimsDropped)

	due, expires := make(map[*entry]int64), make(map[*entry]int64)
	for _, s := range l.delays.slots {
		due[s.e] = s.at
	}
	for _, s := range l.lifetimes.slots {
		expires[s.e] = s.at
	}
	for _, e := range l.entries() {
		fmt.Fprintf(&b, "message %d id=%q given=%t %s/%s priority=%d attempt=%d deliveries=%d enqueued=%s bytes=%d",
			e.number, e.id, e.has(given), e.state, e.lane, e.priority, e.attempt, e.deliveries(), at(e.enqueued), e.bytes())
		if e.has(aged) {
			fmt.Fprintf(&b, " first_ready=%s", at(e.firstReady()))
		}
		end, ok := expires[e]
		if le := e.lease; e.state == leased {
			end, ok = le.expires, le.expires != never
			fmt.Fprintf(&b, " tag=%d holder=%q deadline=%s no_timeout=%t", le.tag, le.holder.name(), at(l.recordedDeadline(le)), le.has(noTimeout))
		}
		if ok {
			fmt.Fprintf(&b, " expires=%s", at(end))
		}
		if d, ok := due[e]; ok {
			fmt.Fprintf(&b, " due=%s", at(d))
		}
		if r := e.rare; r != nil {
			fmt.Fprintf(&b, " headers=%v deaths=%d history=%v error=%q", r.headers, r.deaths, historyText(r.history), r.lastError)
		} else {
			b.WriteString(` headers=map[] deaths=0 history=[] error=""`)
		}
		fmt.Fprintf(&b, " avoids=%q", e.avoids())
		fmt.Fprintf(&b, " topic=%q body=%q\n", e.details.Topic, e.body)
	}
	line := func(name string, first *entry) {
		if first == nil {
			return
		}
		b.WriteString(name)
		for e := first; e != nil; e = e.next {
			fmt.Fprintf(&b, " %d", e.number)
		}
		b.WriteByte('\n')
	}
	for priority := priorities - 1; priority >= 0; priority-- {
		for n := laneCount; n > 0; n-- {
			if k := l.lanes.rank[priority]; k != nil {
				line(fmt.Sprintf("priority %d %s:", priority, n-1), k.lane[n-1].first)
			}
		}
	}
	line("waiting:", l.budget.line.first)
	if l.config.RetryBudget.On() {
		p("budget window_end=%s successes=%d retries=%d", at(l.budget.end), l.budget.successes, l.budget.retries)
	}
	if l.age.first != nil {
		b.WriteString("age:")
		for e := l.age.first; e != nil; e = e.younger {
			fmt.Fprintf(&b, " %d", e.number)
		}
		b.WriteByte('\n')
	}
	for _, k := range l.claimsInOrder() {
		p("claim %q of put %d until %s", k.id, k.number, at(k.release))
	}
	for _, place := range l.letters.row {
		if t := place.letter; t != nil {
			p("letter %d id=%q given=%t %s error=%q died=%s attempts=%d deliveries=%d enqueued=%s deaths=%d history=%v headers=%v topic=%q body=%q",
				t.Number, t.ID, t.given, t.Reason, t.Error, at(l.instant(t.DiedAt)), t.Attempts, t.Deliveries,
				at(l.instant(t.EnqueuedAt)), t.Deaths, historyText(t.History), t.Headers, t.Topic, t.Body)
		}
	}
	return b.String()
}

func historyText(history []messages.Death) []string {
	out := make([]string, len(history))
	for i, d := range history {
		out[i] = fmt.Sprintf("%s:%s:%d:%q:%d", d.Queue, d.Reason, d.Attempts, d.Error, d.At.UnixNano())
	}
	return out
}
