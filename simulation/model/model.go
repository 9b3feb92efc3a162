// Package model is one queue as plainly as it can be said: slices that are scanned
// from end to end.
//
// It is written from the specification, not from package ledger, whose answers,
// effects and figures the tests and the simulation compare with it after every
// call. It is slow and that is its merit: nothing in it is there for speed, so
// nothing needs to be kept in step.
package model

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// Model is one queue incarnation. Its methods are those of [ledger.Ledger], which
// says what they mean.
type Model struct {
	source *messages.Source
	start  time.Time
	config messages.QueueConfig
	draw   func(put, failure uint64) uint64
	now    time.Time

	entries []*entry // all that are ready, delayed or leased, in put order
	claims  []claim  // ids that outlive their message, in the order of their puts
	letters []messages.DeadLetter
	given   map[uint64]bool // letter number: its id was the caller's
	ended   []endedLease    // of the whole incarnation

	consumers []*drinker
	line      []*turn    // who has credit or waits, in the order of turns
	seats     []*drinker // in the order of attachment, with a detached active one
	active    *drinker

	puts, tags, readied, letterNumber uint64

	retries, successes []time.Time // for the retry budget
	lastRelease        time.Time   // the latest of any claim: when all will be free

	paused, draining, closed, quarantined bool
	wasAlarmed                            bool // the oldest age is over MaxAge and was told

	counters messages.Counters
	effects  []Effect
	taken    []Effect // given away by TakeEffects, and to be used again
}

type state uint8

const (
	ready state = iota
	delayed
	waiting // for the retry budget; counted as delayed
	leased
)

// Lanes in the order in which they are served.
const (
	interruptedLane = iota
	failedLane
	freshLane
)

type entry struct {
	number uint64
	put    *ledger.Put
	at     time.Time // of the put or redrive
	expiry time.Time // zero: never
	first  time.Time // when it was first ready; zero: not yet

	state state
	lane  int
	seq   uint64    // ready or waiting: place in its line
	order uint64    // delayed: the tag it comes from, or its put number
	due   time.Time // delayed
	skips string    // ready: the holder that let it expire

	attempts, deliveries int
	lastError            string

	// The running lease.
	tag      uint64
	holder   string
	consumer *drinker // nil for a get
	since    time.Time
	deadline time.Time // zero: none
	timeout  time.Duration
	forever  bool // without timeout
	started  bool
}

func (e *entry) details() *messages.Details { return detailsOf(e.put) }

func detailsOf(p *ledger.Put) *messages.Details {
	if p.Details == nil {
		return &messages.Details{}
	}
	return p.Details
}

// pastOf is what the message has been through; nothing when it is new.
func pastOf(p *ledger.Put) ledger.Past {
	if p.Past == nil {
		return ledger.Past{}
	}
	return *p.Past
}

func (e *entry) size() int64 { return sizeOf(e.put) }

func sizeOf(p *ledger.Put) int64 {
	return messages.Size(p.ID, p.Body, p.Headers, detailsOf(p).Extra)
}

// claim is the id of a message that was acked or purged within its window.
type claim struct {
	id     string
	body   []byte
	number uint64
	until  time.Time
}

type endedLease struct {
	tag uint64
	how messages.LeaseEnd
}

// drinker is an attached consumer.
type drinker struct {
	*ledger.Consumer
	attached bool
	uses     []*use // one for each unit of credit in use
	// displaced: it let a lease run out, so it must give way on a queue with a single
	// active consumer.
	displaced bool
}

// use is one unit of a consumer's credit: with a handler it comes back when the
// lease is over and the handler has returned, without one when the lease is over.
type use struct {
	tag            uint64
	over, returned bool
}

// turn is a place in the line: a consumer's or a get's.
type turn struct {
	consumer *drinker
	waiter   *ledger.Waiter
}

// New returns an empty queue. config must have its defaults in place; draw is the
// source of jitter, nil for none.
func New(source *messages.Source, config messages.QueueConfig, start time.Time, draw func(put, failure uint64) uint64) *Model {
	return &Model{source: source, start: start, config: config, draw: draw, now: start}
}

// Effect is one thing to do outside. Which fields are set depends on Kind, as in
// [ledger.Effect].
type Effect struct {
	Kind     ledger.EffectKind
	Consumer string // HandedOver to it, LeaseLost by it: its tag
	Waiter   *ledger.Waiter
	Tag      uint64
	Delivery messages.Delivery // HandedOver
	Letter   *messages.DeadLetter
	Announce bool
	Alarm    messages.Alarm
	Owner    *ledger.Owner
}

// TakeEffects returns the effects since it was last called, in their order. They are
// valid until the next call.
func (m *Model) TakeEffects() []Effect {
	clear(m.taken)
	m.taken, m.effects = m.effects, m.taken[:0]
	return m.taken
}

func (m *Model) say(e Effect) { m.effects = append(m.effects, e) }

// ---- time ----

// advance settles what fell due by now, each event at its own instant and in the
// order of the instants.
func (m *Model) advance(now time.Time) {
	for !m.closed && !m.quarantined {
		at, ok := m.NextEvent()
		if !ok || at.After(now) {
			break
		}
		if at.After(m.now) {
			m.now = at
		}
		m.settleInstant()
	}
	if now.After(m.now) {
		m.now = now
	}
}

// NextEvent is the earliest instant at which something happens by itself; the bool is
// false when nothing will.
func (m *Model) NextEvent() (time.Time, bool) {
	var best time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (best.IsZero() || t.Before(best)) {
			best = t
		}
	}
	for _, e := range m.entries {
		switch e.state {
		case leased:
			consider(e.deadline)
		case delayed:
			consider(e.due)
			consider(e.expiry)
		case waiting:
			consider(m.windowEnd())
			consider(e.expiry)
		case ready:
			consider(e.expiry)
		}
	}
	if m.config.MaxAge > 0 && !m.wasAlarmed {
		if oldest := m.oldest(); !oldest.IsZero() {
			consider(oldest.Add(m.config.MaxAge))
		}
	}
	return best, !best.IsZero()
}

// settleInstant does what is due at m.now: a new window of the retry budget lets
// some go, leases end in tag order, delays end in the order of their due instants,
// what is not in somebody's hands and past its deadline dies, and last the age is
// looked at.
func (m *Model) settleInstant() {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(m.now) }
	m.releaseWaiting()
	for _, e := range m.sorted(leased, func(a, b *entry) int { return cmp.Compare(a.tag, b.tag) }) {
		if due(e.deadline) {
			m.expireLease(e)
		}
	}
	for _, e := range m.sorted(delayed, func(a, b *entry) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.order, b.order))
	}) {
		if due(e.due) {
			m.retryOrReady(e)
		}
	}
	for _, e := range slices.Clone(m.entries) {
		if e.state != leased && due(e.expiry) {
			m.die(e, messages.Expired)
		}
	}
	m.age()
}

func (m *Model) sorted(s state, order func(a, b *entry) int) []*entry {
	var found []*entry
	for _, e := range m.entries {
		if e.state == s {
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, order)
	return found
}

func (m *Model) oldest() time.Time {
	var oldest time.Time
	for _, e := range m.entries {
		if !e.first.IsZero() && (oldest.IsZero() || e.first.Before(oldest)) {
			oldest = e.first
		}
	}
	return oldest
}

// age raises the alarm when the oldest message is MaxAge old; rearm makes the next
// crossing count when it is not any more.
func (m *Model) age() {
	if m.isOld() && !m.wasAlarmed {
		m.say(Effect{Kind: ledger.AlarmRaised, Alarm: messages.OldestAge})
		m.wasAlarmed = true
	}
}

func (m *Model) rearm() { m.wasAlarmed = m.wasAlarmed && m.isOld() }

func (m *Model) isOld() bool {
	if m.config.MaxAge <= 0 {
		return false
	}
	oldest := m.oldest()
	return !oldest.IsZero() && m.now.Sub(oldest) >= m.config.MaxAge
}

// NextDeadline is [ledger.Ledger.NextDeadline].
func (m *Model) NextDeadline() (time.Time, bool) {
	if m.closed || m.quarantined {
		return time.Time{}, false
	}
	at, ok := m.NextEvent()
	for _, c := range m.claims { // one wake-up for all of them
		if c.until.After(m.now) && (!ok || m.lastRelease.Before(at)) {
			at, ok = m.lastRelease, true
		}
	}
	return at, ok
}

// Behind is [ledger.Ledger.Behind].
func (m *Model) Behind() bool { return false }

// Tick is [ledger.Ledger.Tick].
func (m *Model) Tick(now time.Time) { m.advance(now) }

// ---- puts ----

func (m *Model) refuse(p *ledger.Put, reason error) (ledger.PutResult, error) {
	m.counters.Refusals++
	return ledger.PutResult{}, &messages.PutError{Queue: m.source.Queue, ID: p.ID, Reason: reason}
}

// Put is [ledger.Ledger.Put].
func (m *Model) Put(now time.Time, p *ledger.Put) (ledger.PutResult, error) {
	m.advance(now)
	return m.put(p, 0)
}

// put is also the redrive of a letter, when there is one.
func (m *Model) put(p *ledger.Put, letter uint64) (ledger.PutResult, error) {
	switch {
	case m.closed:
		return m.refuse(p, messages.ErrQueueClosed)
	case m.quarantined:
		return m.refuse(p, messages.ErrQuarantined)
	case m.draining:
		return m.refuse(p, messages.ErrDraining)
	}
	past := pastOf(p)
	if past.Redriven {
		q, d := *p, *detailsOf(p)
		d.ExpiresAt = time.Time{}
		q.Delay, q.Details = 0, &d
		p = &q
	}
	if p.GivenID {
		if number, body, taken := m.isTaken(p.ID, p); taken {
			if !bytes.Equal(body, p.Body) {
				return m.refuse(p, messages.ErrIDReused)
			}
			m.counters.Duplicates++
			return ledger.PutResult{Number: number, Duplicate: true}, nil
		}
	}
	expires := detailsOf(p).ExpiresAt
	if !expires.IsZero() && !expires.After(m.now) {
		return m.refuse(p, messages.ErrExpired)
	}
	victims, err := m.admit(p)
	if err != nil {
		m.counters.Refusals++
		return ledger.PutResult{}, err
	}
	// A redriven letter leaves before a victim can push it over the limit.
	if letter != 0 {
		m.letters = slices.DeleteFunc(m.letters, func(l messages.DeadLetter) bool { return l.Number == letter })
		m.counters.RedrivenOut++
	}
	if past.Redriven && p.GivenID {
		m.claims = slices.DeleteFunc(m.claims, func(c claim) bool { return c.id == p.ID })
	}
	for _, v := range victims {
		m.die(v, messages.Overflowed)
	}
	m.puts++
	e := &entry{
		number: m.puts, put: p, at: m.now, lane: freshLane, deliveries: past.Deliveries,
		expiry: expires,
	}
	if m.config.TTL > 0 {
		if at := m.now.Add(m.config.TTL); e.expiry.IsZero() || at.Before(e.expiry) {
			e.expiry = at
		}
	}
	if past.Redriven {
		m.counters.RedrivenIn++
	} else {
		m.counters.Puts++
	}
	if n := len(past.History); n > 0 {
		e.lastError = past.History[n-1].Error
	}
	m.entries = append(m.entries, e)
	if p.Delay > 0 {
		m.delay(e, p.Delay, e.number)
	} else {
		m.makeReady(e)
	}
	return ledger.PutResult{Number: e.number}, nil
}

// isTaken says whether the id belongs to a message, or to one that was here within
// its window. What the same message left behind never blocks its redrive.
func (m *Model) isTaken(id string, p *ledger.Put) (number uint64, body []byte, taken bool) {
	for _, e := range m.entries {
		if e.put.GivenID && e.put.ID == id {
			return e.number, e.put.Body, true
		}
	}
	for _, c := range m.claims {
		if c.id == id && m.now.Before(c.until) && !(pastOf(p).Redriven && bytes.Equal(c.body, p.Body)) {
			return c.number, c.body, true
		}
	}
	return 0, nil, false
}

// admit says which messages must die so that p fits, or why it does not fit.
func (m *Model) admit(p *ledger.Put) (victims []*entry, err error) {
	count, size := int64(len(m.entries)), int64(0)
	for _, e := range m.entries {
		size += e.size()
	}
	over := func() error {
		if most := int64(m.config.MaxMessages); most != messages.Unlimited && count >= most {
			return &messages.QueueFullError{Queue: m.source.Queue, Limit: "messages", Max: most, Current: count}
		}
		if most := m.config.MaxBytes; most != messages.Unlimited && size+sizeOf(p) > most {
			return &messages.QueueFullError{Queue: m.source.Queue, Limit: "bytes", Max: most, Current: size}
		}
		return nil
	}
	err = over()
	if err == nil || m.config.Overflow != messages.DropOldest {
		return nil, err
	}
	for over() != nil {
		victim := m.victim(detailsOf(p).Priority, victims)
		if victim == nil {
			return nil, err // nothing is killed for a put that is refused all the same
		}
		victims = append(victims, victim)
		count, size = count-1, size-victim.size()
	}
	return victims, nil
}

// victim is the head of the lowest priority that is not empty, and there of the
// lane that is served last.
func (m *Model) victim(priority int, but []*entry) *entry {
	var victim *entry
	for _, e := range m.entries {
		if e.state != ready || slices.Contains(but, e) {
			continue
		}
		if victim == nil || cmp.Or(
			cmp.Compare(e.priority(), victim.priority()),
			-cmp.Compare(e.lane, victim.lane),
			cmp.Compare(e.seq, victim.seq),
		) < 0 {
			victim = e
		}
	}
	if victim != nil && victim.priority() > priority {
		return nil
	}
	return victim
}

func (e *entry) priority() int { return e.details().Priority }

func (m *Model) makeReady(e *entry) {
	m.readied++
	e.state, e.seq = ready, m.readied
	if e.first.IsZero() {
		e.first = m.now
	}
}

func (m *Model) delay(e *entry, d time.Duration, order uint64) {
	e.state, e.order, e.due = delayed, order, m.now.Add(d)
	if e.due.Before(m.now) {
		e.due = time.Unix(1<<40, 0) // saturated
	}
}

// retryOrReady makes a message ready; a failed one only as far as the budget goes,
// and never before another that waits for it.
func (m *Model) retryOrReady(e *entry) {
	if e.lane != failedLane || !m.config.RetryBudget.On() {
		m.makeReady(e)
		return
	}
	if m.mayRetry() && len(m.sorted(waiting, bySeq)) == 0 {
		m.retries = append(m.retries, m.now)
		m.makeReady(e)
		return
	}
	m.readied++
	e.state, e.seq = waiting, m.readied
}

func bySeq(a, b *entry) int { return cmp.Compare(a.seq, b.seq) }

func (m *Model) releaseWaiting() {
	for _, e := range m.sorted(waiting, bySeq) {
		if m.mayRetry() {
			m.retries = append(m.retries, m.now)
			m.makeReady(e)
		}
	}
}

// remove takes e out of the queue for good.
func (m *Model) remove(e *entry) {
	m.entries = slices.DeleteFunc(m.entries, func(o *entry) bool { return o == e })
}

func (m *Model) settled(e *entry) {
	if e.put.Owner != nil {
		m.say(Effect{Kind: ledger.Settled, Owner: e.put.Owner})
	}
}

// keepClaim is what an ack or a purge leaves of an id.
func (m *Model) keepClaim(e *entry) {
	until := e.at.Add(m.config.DedupWindow)
	if !e.put.GivenID || m.config.DedupWindow <= 0 || !until.After(m.now) {
		return
	}
	m.claims = slices.DeleteFunc(m.claims, func(c claim) bool { return !c.until.After(m.now) })
	m.claims = append(m.claims, claim{e.put.ID, e.put.Body, e.number, until})
	if until.After(m.lastRelease) {
		m.lastRelease = until
	}
	slices.SortStableFunc(m.claims, func(a, b claim) int { return cmp.Compare(a.number, b.number) })
}

// boundClaims lets the oldest go at DedupLimit.
func (m *Model) boundClaims() {
	if most := m.config.DedupLimit; most != messages.Unlimited && len(m.claims) > most {
		m.counters.ClaimsDropped += uint64(len(m.claims) - most)
		m.claims = m.claims[len(m.claims)-most:]
	}
}

// ---- hand-over ----

// HandOver is [ledger.Ledger.HandOver].
func (m *Model) HandOver(now time.Time) {
	m.advance(now)
	for !m.paused && !m.closed && !m.quarantined {
		e := m.head()
		if e == nil {
			return
		}
		to := m.pick(e)
		if to == nil {
			return
		}
		m.lend(e, to)
	}
}

// head is the first message in the order of SPEC Q12.
func (m *Model) head() *entry {
	var first *entry
	for _, e := range m.entries {
		if e.state == ready && (first == nil || inOrder(e, first) < 0) {
			first = e
		}
	}
	return first
}

// inOrder compares two ready messages by who is served first.
func inOrder(a, b *entry) int {
	return cmp.Or(-cmp.Compare(a.priority(), b.priority()), cmp.Compare(a.lane, b.lane), cmp.Compare(a.seq, b.seq))
}

// mayRetry counts retries and successes in the window that holds now; windows
// follow each other from the start.
func (m *Model) mayRetry() bool {
	b := m.config.RetryBudget
	begin := m.windowEnd().Add(-b.Window)
	within := func(times []time.Time) int {
		n := 0
		for _, t := range times {
			if !t.Before(begin) {
				n++
			}
		}
		return n
	}
	return float64(within(m.retries)) < float64(b.Floor)+b.Ratio*float64(within(m.successes))
}

func (m *Model) windowEnd() time.Time {
	w := m.config.RetryBudget.Window
	return m.start.Add((m.now.Sub(m.start)/w + 1) * w)
}

// pick takes the first in line, unless the message just ran out in its hands and
// another one is there. With a single active consumer it is that one or nobody, and
// gets have their turn only while no consumer is attached.
func (m *Model) pick(e *entry) *turn {
	if m.config.SingleActive && len(m.consumers) > 0 {
		for _, t := range m.line {
			if t.consumer != nil && t.consumer == m.active && !m.active.displaced {
				return t
			}
		}
		return nil
	}
	for _, t := range m.line {
		if e.skips == "" || t.name() != e.skips {
			return t
		}
	}
	if len(m.line) > 0 {
		return m.line[0]
	}
	return nil
}

func (t *turn) name() string {
	if t.consumer != nil {
		return t.consumer.Tag
	}
	return t.waiter.Holder
}

// activate chooses the single active consumer. It stays while it has leases, and
// else while it is attached, has not let a lease run out and could take a message or
// is busy with one. Then comes the next in the order of attachment that can take
// one, itself last; or, when none can, the first that will.
func (m *Model) activate() {
	if !m.config.SingleActive {
		return
	}
	a, from := m.active, 0
	if a != nil && a.attached && len(m.consumers) == 1 {
		a.displaced = false // there is nobody to give way to
	}
	if a != nil {
		if m.leasesOf(a) > 0 || a.attached && !a.displaced && (a.hasCredit() || len(a.uses) > 0) {
			return
		}
		a.displaced = false
		from = slices.Index(m.seats, a) + 1
	}
	m.active = nil
	for i := range m.seats {
		if d := m.seats[(from+i)%len(m.seats)]; m.active == nil && d.hasCredit() {
			m.active = d
		}
	}
	m.seats = slices.DeleteFunc(m.seats, func(d *drinker) bool { return !d.attached && d != m.active })
}

func (d *drinker) hasCredit() bool { return d.attached && len(d.uses) < d.Prefetch }

func (m *Model) leasesOf(d *drinker) int {
	n := 0
	for _, e := range m.entries {
		if e.state == leased && e.consumer == d {
			n++
		}
	}
	return n
}

func (m *Model) lend(e *entry, t *turn) {
	m.tags++
	e.state, e.tag, e.since = leased, m.tags, m.now
	e.attempts++
	e.deliveries++
	e.skips = ""
	m.counters.Deliveries++
	if e.deliveries > 1 {
		m.counters.Redelivered++
	}
	noTimeout := m.config.NoTimeout
	e.timeout = m.config.AckTimeout
	said := ""
	if d := t.consumer; d != nil {
		e.holder, e.consumer, e.started = d.Tag, d, !d.Handler
		noTimeout = noTimeout || d.NoTimeout
		if d.AckTimeout > 0 {
			e.timeout = d.AckTimeout
		}
		d.uses = append(d.uses, &use{tag: e.tag, returned: !d.Handler})
		said = d.Tag
	} else {
		e.holder, e.consumer, e.started = t.waiter.Holder, nil, true
		noTimeout = noTimeout || t.waiter.NoTimeout
		if t.waiter.AckTimeout > 0 {
			e.timeout = t.waiter.AckTimeout
		}
	}
	e.forever = noTimeout
	e.deadline = time.Time{}
	if !noTimeout {
		e.deadline = m.clip(e, m.now.Add(e.timeout))
	} else if m.config.MaxLease > 0 {
		e.deadline = m.now.Add(m.config.MaxLease)
	}
	m.line = slices.DeleteFunc(m.line, func(o *turn) bool { return o == t })
	m.queueUp(t.consumer)
	m.say(Effect{Kind: ledger.HandedOver, Consumer: said, Waiter: t.waiter, Tag: e.tag, Delivery: messages.Delivery{
		ID: e.put.ID, Body: e.put.Body, Headers: e.put.Headers, Details: e.details(),
		Tag: e.tag, Attempt: e.attempts, Deliveries: e.deliveries, EnqueuedAt: e.at, Deadline: e.deadline, From: m.source,
	}})
}

// clip bounds a deadline by MaxLease.
func (m *Model) clip(e *entry, t time.Time) time.Time {
	if most := e.since.Add(m.config.MaxLease); m.config.MaxLease > 0 && t.After(most) {
		return most
	}
	return t
}

// queueUp puts a consumer at the end of the line if it has credit and is not there.
func (m *Model) queueUp(d *drinker) {
	if d == nil {
		return
	}
	in := slices.IndexFunc(m.line, func(t *turn) bool { return t.consumer == d })
	switch has := d.hasCredit(); {
	case has && in < 0:
		m.line = append(m.line, &turn{consumer: d})
	case !has && in >= 0:
		m.line = slices.Delete(m.line, in, in+1)
	}
}

// ---- the end of a lease ----

func (m *Model) state(op string) error {
	switch {
	case m.closed:
		return &messages.QueueStateError{Op: op, Queue: m.source.Queue, Reason: messages.ErrQueueClosed}
	case m.quarantined:
		return &messages.QueueStateError{Op: op, Queue: m.source.Queue, Reason: messages.ErrQuarantined}
	}
	return nil
}

// held finds the lease that a settle is for, or says why there is none.
func (m *Model) held(now time.Time, verb messages.Verb, tag uint64) (*entry, error) {
	m.advance(now)
	if err := m.state(verb.String()); err != nil {
		return nil, err
	}
	for _, e := range m.entries {
		if e.state == leased && e.tag == tag {
			return e, nil
		}
	}
	m.counters.StaleBy[verb]++
	stale := &messages.StaleError{
		Verb:    verb,
		Receipt: messages.Receipt{Queue: m.source.Queue, Incarnation: m.source.Incarnation, Tag: tag},
	}
	stale.Issued, stale.Ended = m.LeaseEnd(tag)
	return nil, stale
}

// LeaseEnd looks through the last 4,096 ended leases.
func (m *Model) LeaseEnd(tag uint64) (issued bool, end messages.LeaseEnd) {
	for _, l := range m.ended[max(0, len(m.ended)-4096):] {
		if l.tag == tag {
			end = l.how
		}
	}
	return tag >= 1 && tag <= m.tags, end
}

// RefuseForeign is [ledger.Ledger.RefuseForeign].
func (m *Model) RefuseForeign(verb messages.Verb, r messages.Receipt) error {
	if err := m.state(verb.String()); err != nil {
		return err
	}
	m.counters.StaleBy[verb]++
	return &messages.StaleError{Verb: verb, Receipt: r}
}

// end ends the lease of e; the caller says what becomes of the message.
func (m *Model) end(e *entry, how messages.LeaseEnd) {
	m.ended = append(m.ended, endedLease{e.tag, how})
	tag := e.tag
	e.tag, e.deadline = 0, time.Time{}
	e.state = ready // for the moment
	if d := e.consumer; d != nil {
		if how == messages.LeaseExpired && d == m.active {
			d.displaced = true
		}
		m.credit(d, tag, func(u *use) { u.over = true })
	}
}

// credit notes half of what gives a unit of credit back.
func (m *Model) credit(d *drinker, tag uint64, half func(*use)) {
	for _, u := range d.uses {
		if u.tag == tag {
			half(u)
		}
	}
	d.uses = slices.DeleteFunc(d.uses, func(u *use) bool { return u.over && u.returned })
	m.queueUp(d)
	m.activate()
}

// Ack is [ledger.Ledger.Ack].
func (m *Model) Ack(now time.Time, tag uint64) error {
	e, err := m.held(now, messages.VerbAck, tag)
	if err != nil {
		return err
	}
	m.counters.Acks++
	m.successes = append(m.successes, m.now)
	m.end(e, messages.LeaseAcked)
	m.remove(e)
	m.keepClaim(e)
	m.settled(e)
	m.boundClaims()
	if m.config.RetryBudget.On() {
		m.releaseWaiting()
	}
	m.after()
	return nil
}

// after looks at what every removal may change.
func (m *Model) after() {
	m.rearm()
	if m.draining && len(m.entries) == 0 && !m.closed {
		m.say(Effect{Kind: ledger.Drained})
	}
}

// backoff is the delay after failure k: uniform up to a bound that doubles.
func (m *Model) backoff(e *entry) time.Duration {
	bound := m.config.BackoffCap
	if shift := e.attempts - 1; shift < 62 && m.config.BackoffBase <= math.MaxInt64>>shift {
		bound = min(bound, m.config.BackoffBase<<shift)
	}
	if m.config.NoJitter || m.draw == nil {
		return bound
	}
	return spread(m.draw(e.number, uint64(e.attempts)), bound)
}

// spread maps a random number to [0, bound], both ends included: what the random
// number is of 2^64, the delay is of bound+1.
func spread(random uint64, bound time.Duration) time.Duration {
	share := new(big.Int).SetUint64(random)
	share.Mul(share, new(big.Int).SetUint64(uint64(bound)+1))
	return time.Duration(share.Rsh(share, 64).Int64())
}

// fail gives a message back as failed, or buries it: rejected, max_attempts and
// expired, in this order.
func (m *Model) fail(e *entry, delay time.Duration, errText string) {
	if errText != "" {
		e.lastError = messages.CutError(errText)
	}
	switch {
	case m.config.MaxAttempts != messages.Unlimited && e.attempts >= m.config.MaxAttempts:
		m.die(e, messages.MaxAttempts)
	case !e.expiry.IsZero() && !e.expiry.After(m.now):
		m.die(e, messages.Expired)
	default:
		e.lane = failedLane
		if delay > 0 {
			m.delay(e, delay, m.ended[len(m.ended)-1].tag)
		} else {
			m.retryOrReady(e)
		}
	}
}

// Nack is [ledger.Ledger.Nack].
func (m *Model) Nack(now time.Time, tag uint64, errText string) error {
	e, err := m.held(now, messages.VerbNack, tag)
	if err != nil {
		return err
	}
	m.counters.Nacks++
	m.end(e, messages.LeaseNacked)
	m.fail(e, m.backoff(e), errText)
	return nil
}

// NackIn is [ledger.Ledger.NackIn].
func (m *Model) NackIn(now time.Time, tag uint64, d time.Duration, errText string) error {
	e, err := m.held(now, messages.VerbNackIn, tag)
	if err != nil {
		return err
	}
	m.counters.Nacks++
	m.end(e, messages.LeaseNacked)
	m.fail(e, d, errText)
	return nil
}

// Reject is [ledger.Ledger.Reject].
func (m *Model) Reject(now time.Time, tag uint64, errText string) error {
	e, err := m.held(now, messages.VerbReject, tag)
	if err != nil {
		return err
	}
	m.counters.Rejections++
	m.end(e, messages.LeaseNacked)
	if errText != "" {
		e.lastError = messages.CutError(errText)
	}
	m.die(e, messages.Rejected)
	return nil
}

// Release is [ledger.Ledger.Release].
func (m *Model) Release(now time.Time, tag uint64) error {
	e, err := m.held(now, messages.VerbRelease, tag)
	if err != nil {
		return err
	}
	m.end(e, messages.LeaseReturned)
	m.interrupt(e)
	return nil
}

// interrupt gives a message back untried.
func (m *Model) interrupt(e *entry) {
	m.counters.Interruptions++
	e.attempts--
	e.lane = interruptedLane
	if !e.expiry.IsZero() && !e.expiry.After(m.now) {
		m.die(e, messages.Expired)
		return
	}
	m.makeReady(e)
}

func (m *Model) expireLease(e *entry) {
	m.counters.Expiries++
	tag := e.tag
	lost := Effect{Kind: ledger.LeaseLost, Consumer: e.holder, Tag: tag}
	if e.consumer == nil {
		lost.Waiter = &ledger.Waiter{Holder: e.holder}
	}
	m.say(lost)
	m.end(e, messages.LeaseExpired)
	e.skips = e.holder
	if !e.started {
		m.interrupt(e)
		return
	}
	var delay time.Duration
	if m.config.RetryExpired {
		delay = m.backoff(e)
	}
	m.fail(e, delay, "")
}

// Touch is [ledger.Ledger.Touch].
func (m *Model) Touch(now time.Time, tag uint64) (time.Time, error) {
	e, err := m.held(now, messages.VerbTouch, tag)
	if err != nil {
		return time.Time{}, err
	}
	m.counters.Touches++
	if at := m.clip(e, m.now.Add(e.timeout)); !e.forever && at.After(e.deadline) {
		e.deadline = at
	}
	return e.deadline, nil
}

// TouchFor is [ledger.Ledger.TouchFor].
func (m *Model) TouchFor(now time.Time, tag uint64, d time.Duration) (time.Time, error) {
	e, err := m.held(now, messages.VerbTouch, tag)
	if err != nil {
		return time.Time{}, err
	}
	m.counters.Touches++
	if !e.forever {
		e.deadline = m.clip(e, m.now.Add(d))
	}
	return e.deadline, nil
}

// ---- dead letters ----

func (m *Model) die(e *entry, reason messages.Reason) {
	m.remove(e)
	m.counters.DeadBy[reason]++
	m.letterNumber++
	past := pastOf(e.put)
	l := messages.DeadLetter{
		Number: m.letterNumber, ID: e.put.ID, Body: e.put.Body, Headers: e.put.Headers, Details: e.details(),
		Queue: m.source.Queue, Reason: reason, Error: e.lastError, DiedAt: m.now,
		Attempts: e.attempts, Deliveries: e.deliveries, EnqueuedAt: e.at,
		Deaths: past.Deaths + 1,
	}
	l.History = append(slices.Clone(past.History), messages.Death{
		Queue: m.source.Queue, Reason: reason, Attempts: e.attempts, Error: e.lastError, At: m.now,
	})
	l.History = l.History[max(0, len(l.History)-messages.HistoryMax):]
	m.say(Effect{Kind: ledger.Died, Letter: &l, Announce: !strings.HasPrefix(l.Topic, messages.SystemTopics)})
	m.settled(e)
	before := len(m.letters)
	m.letters = append(m.letters, l)
	if m.given == nil {
		m.given = map[uint64]bool{}
	}
	m.given[l.Number] = e.put.GivenID
	for len(m.letters) > 0 && m.tooManyLetters() {
		m.say(Effect{Kind: ledger.Trimmed, Letter: &m.letters[0]})
		m.counters.Trimmed++
		m.letters = m.letters[1:]
	}
	if n := m.config.DeadLetterAlarm; n > 0 && before < n && len(m.letters) >= n {
		m.say(Effect{Kind: ledger.AlarmRaised, Alarm: messages.DeadLetterCount})
	}
	m.after()
}

func (m *Model) letterBytes() int64 {
	var n int64
	for i := range m.letters {
		n += m.letters[i].Bytes()
	}
	return n
}

func (m *Model) tooManyLetters() bool {
	c := &m.config
	return c.DeadLetterLimit != messages.Unlimited && len(m.letters) > c.DeadLetterLimit ||
		c.DeadLetterBytes != messages.Unlimited && m.letterBytes() > c.DeadLetterBytes
}

// LastLetter is [ledger.Ledger.LastLetter].
func (m *Model) LastLetter() uint64 { return m.letterNumber }

// DeadLetters is [ledger.Ledger.DeadLetters].
func (m *Model) DeadLetters(after uint64, n int) []messages.DeadLetter {
	var found []messages.DeadLetter
	for _, l := range m.letters {
		if l.Number > after && len(found) < n {
			found = append(found, l)
		}
	}
	return found
}

// Discard is [ledger.Ledger.Discard].
func (m *Model) Discard(now time.Time, ids []string) int {
	m.advance(now)
	if m.closed || m.quarantined {
		return 0
	}
	before := len(m.letters)
	m.letters = slices.DeleteFunc(m.letters, func(l messages.DeadLetter) bool { return slices.Contains(ids, l.ID) })
	m.counters.Discarded += uint64(before - len(m.letters))
	return before - len(m.letters)
}

// RemoveLetter is [ledger.Ledger.RemoveLetter].
func (m *Model) RemoveLetter(now time.Time, number uint64) bool {
	m.advance(now)
	if m.closed || m.quarantined {
		return false
	}
	for i := range m.letters {
		if m.letters[i].Number == number {
			m.letters = slices.Delete(m.letters, i, i+1)
			m.counters.RedrivenOut++
			return true
		}
	}
	return false
}

// Redrive is [ledger.Ledger.Redrive].
func (m *Model) Redrive(now time.Time, number uint64) (ledger.PutResult, error) {
	m.advance(now)
	if err := m.state("redrive"); err != nil {
		return ledger.PutResult{}, err
	}
	i := slices.IndexFunc(m.letters, func(l messages.DeadLetter) bool { return l.Number == number })
	if i < 0 {
		return ledger.PutResult{}, &messages.NotFoundError{Op: "redrive", What: "dead letter", Name: strconv.FormatUint(number, 10)}
	}
	l := m.letters[i]
	env := l.Envelope()
	p := ledger.NewPut(&env, m.given[number])
	p.Past = &ledger.Past{Redriven: true, Deliveries: l.Deliveries, History: l.History, Deaths: l.Deaths}
	return m.put(&p, number)
}

// ---- holders ----

func (m *Model) find(tag string) *drinker {
	for _, d := range m.consumers {
		if d.Tag == tag {
			return d
		}
	}
	return nil
}

// Attach is [ledger.Ledger.Attach].
func (m *Model) Attach(now time.Time, c *ledger.Consumer) error {
	m.advance(now)
	if err := m.state("attach"); err != nil {
		return err
	}
	if m.find(c.Tag) != nil {
		return &messages.ArgumentError{Op: "attach", Argument: "Tag", Problem: "is attached already: " + c.Tag}
	}
	// A copy: the consumer belongs to whoever else is asked the same.
	d := &drinker{attached: true, Consumer: &ledger.Consumer{
		Tag: c.Tag, Prefetch: c.Prefetch, AckTimeout: c.AckTimeout, NoTimeout: c.NoTimeout, Handler: c.Handler,
	}}
	m.consumers = append(m.consumers, d)
	m.seats = append(m.seats, d)
	m.queueUp(d)
	m.activate()
	return nil
}

// Detach is [ledger.Ledger.Detach].
func (m *Model) Detach(now time.Time, tag string) bool {
	m.advance(now)
	d := m.find(tag)
	if d == nil {
		return false
	}
	d.attached = false
	m.queueUp(d)
	m.consumers = slices.DeleteFunc(m.consumers, func(o *drinker) bool { return o == d })
	if d != m.active {
		m.seats = slices.DeleteFunc(m.seats, func(o *drinker) bool { return o == d })
	}
	m.activate()
	return true
}

// SetPrefetch is [ledger.Ledger.SetPrefetch].
func (m *Model) SetPrefetch(now time.Time, tag string, n int) bool {
	m.advance(now)
	d := m.find(tag)
	if d == nil {
		return false
	}
	d.Prefetch = n
	m.queueUp(d)
	m.activate()
	return true
}

func (m *Model) leaseByTag(tag uint64) *entry {
	if m.closed || m.quarantined {
		return nil
	}
	for _, e := range m.entries {
		if e.state == leased && e.tag == tag {
			return e
		}
	}
	return nil
}

// Started is [ledger.Ledger.Started].
func (m *Model) Started(now time.Time, tag uint64) {
	m.advance(now)
	if e := m.leaseByTag(tag); e != nil {
		e.started = true
	}
}

// Returned is [ledger.Ledger.Returned].
func (m *Model) Returned(now time.Time, consumer string, tag uint64) {
	m.advance(now)
	if m.closed || m.quarantined {
		return
	}
	if e := m.leaseByTag(tag); e != nil {
		// By the consumer that holds the lease, which may be detached by now.
		if e.consumer != nil && e.holder == consumer {
			m.credit(e.consumer, tag, func(u *use) { u.returned = true })
		}
	} else if d := m.find(consumer); d != nil {
		m.credit(d, tag, func(u *use) { u.returned = true })
	}
}

// AckReturned is [ledger.Ledger.AckReturned].
func (m *Model) AckReturned(now time.Time, consumer string, tag uint64) bool {
	if !m.Runs(now, consumer, tag) {
		return false
	}
	m.Returned(now, consumer, tag)
	return m.Ack(now, tag) == nil
}

// Runs says whether the consumer has a running lease of that tag.
func (m *Model) Runs(now time.Time, consumer string, tag uint64) bool {
	m.advance(now)
	e := m.leaseByTag(tag)
	return !m.closed && !m.quarantined && e != nil && e.consumer != nil && e.holder == consumer
}

// Crashed is [ledger.Ledger.Crashed].
func (m *Model) Crashed(now time.Time, tag uint64, errText string) {
	m.advance(now)
	e := m.leaseByTag(tag)
	if e == nil {
		return
	}
	e.started = true
	if errText != "" {
		e.lastError = messages.CutError(errText)
	}
	if e.forever {
		m.end(e, messages.LeaseReturned)
		m.fail(e, 0, "")
	}
}

// HolderEnded is [ledger.Ledger.HolderEnded].
func (m *Model) HolderEnded(now time.Time, holder string) {
	m.advance(now)
	if m.closed || m.quarantined {
		return
	}
	for _, e := range m.sorted(leased, func(a, b *entry) int { return cmp.Compare(a.tag, b.tag) }) {
		if e.holder == holder && e.forever {
			m.end(e, messages.LeaseReturned)
			if e.started {
				m.fail(e, 0, "")
			} else {
				m.interrupt(e)
			}
		}
	}
}

// Want is [ledger.Ledger.Want].
func (m *Model) Want(now time.Time, w *ledger.Waiter) {
	m.advance(now)
	if m.closed || m.quarantined {
		return
	}
	m.line = append(m.line, &turn{waiter: w})
}

// Unwant is [ledger.Ledger.Unwant].
func (m *Model) Unwant(w *ledger.Waiter) bool {
	before := len(m.line)
	m.line = slices.DeleteFunc(m.line, func(t *turn) bool { return t.waiter == w })
	return len(m.line) < before
}

// ---- the whole queue ----

// Pause is [ledger.Ledger.Pause].
func (m *Model) Pause(now time.Time) {
	m.advance(now)
	m.paused = m.paused || !m.closed && !m.quarantined
}

// Resume is [ledger.Ledger.Resume].
func (m *Model) Resume(now time.Time) {
	m.advance(now)
	if !m.closed && !m.quarantined {
		m.paused, m.draining = false, false
	}
}

// Drain is [ledger.Ledger.Drain].
func (m *Model) Drain(now time.Time) {
	m.advance(now)
	if m.closed || m.quarantined {
		return
	}
	m.draining = true
	if len(m.entries) == 0 {
		m.say(Effect{Kind: ledger.Drained})
	}
}

// Purge is [ledger.Ledger.Purge].
func (m *Model) Purge(now time.Time) int {
	m.advance(now)
	if m.closed || m.quarantined {
		return 0
	}
	n := 0
	for _, e := range slices.Clone(m.entries) {
		if e.state != leased {
			n++
			m.remove(e)
			m.counters.Purged++
			m.keepClaim(e)
			m.settled(e)
		}
	}
	m.boundClaims()
	if n > 0 {
		m.after()
	}
	return n
}

// Peek is [ledger.Ledger.Peek].
func (m *Model) Peek(n int) []messages.Delivery {
	var found []messages.Delivery
	for _, e := range m.sorted(ready, inOrder) {
		if len(found) < n {
			found = append(found, messages.Delivery{
				ID: e.put.ID, Body: e.put.Body, Headers: e.put.Headers, Details: e.details(),
				Attempt: e.attempts, Deliveries: e.deliveries, EnqueuedAt: e.at, From: m.source,
			})
		}
	}
	return found
}

// Close is [ledger.Ledger.Close].
func (m *Model) Close(now time.Time) (messagesDropped, lettersDropped int) {
	m.advance(now)
	if m.closed {
		return 0, 0
	}
	for _, e := range m.entries {
		m.counters.Dropped++
		m.settled(e)
	}
	messagesDropped, lettersDropped = len(m.entries), len(m.letters)
	m.entries, m.letters, m.consumers, m.line, m.claims = nil, nil, nil, nil, nil
	m.closed, m.quarantined = true, false
	return messagesDropped, lettersDropped
}

// Quarantine is [ledger.Ledger.Quarantine].
func (m *Model) Quarantine() { m.quarantined = !m.closed }

// Stats is [ledger.Ledger.Stats].
func (m *Model) Stats(now time.Time) messages.QueueStats {
	m.advance(now)
	s := messages.QueueStats{
		Queue: m.source.Queue, Incarnation: m.source.Incarnation,
		DeadLetters: len(m.letters), Consumers: len(m.consumers), DeadLetterBytes: m.letterBytes(),
		Paused: m.paused, Draining: m.draining, Quarantined: m.quarantined, Counters: m.counters,
	}
	for _, e := range m.entries {
		s.Bytes += e.size()
		switch e.state {
		case ready:
			s.Ready++
		case delayed, waiting:
			s.Delayed++
		case leased:
			s.Leased++
		}
	}
	if oldest := m.oldest(); !oldest.IsZero() {
		s.OldestAge = m.now.Sub(oldest)
	}
	return s
}

// Trim forgets what is spare; here that is when the last of no claims will be free.
func (m *Model) Trim() {
	if !slices.ContainsFunc(m.claims, func(c claim) bool { return c.until.After(m.now) }) {
		m.lastRelease = time.Time{}
	}
}

// Restart gives all leases back, attempt spent: their holders are gone, and with
// them the consumers, the gets and the publishers that waited.
func (m *Model) Restart(now time.Time) {
	m.advance(now)
	for _, d := range m.consumers {
		d.attached = false
	}
	m.consumers, m.seats, m.line, m.active = nil, nil, nil, nil
	c := &m.counters // of what changes nothing there are no records
	c.Touches, c.StaleBy, c.Duplicates, c.Refusals, c.LostNotices = 0, [messages.Verbs]uint64{}, 0, 0, 0
	for _, e := range m.entries {
		e.put.Owner = nil
	}
	for _, e := range m.sorted(leased, func(a, b *entry) int { return cmp.Compare(a.tag, b.tag) }) {
		m.end(e, messages.LeaseReturned)
		m.fail(e, 0, "")
	}
}

// CountBusy is [ledger.Ledger.CountBusy].
func (m *Model) CountBusy() { m.counters.Refusals++ }

// CountLostNotice is [ledger.Ledger.CountLostNotice].
func (m *Model) CountLostNotice() { m.counters.LostNotices++ }
