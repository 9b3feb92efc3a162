package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// lab is one run of a spec: the world that Build described, what is known of it, and
// what goes wrong in it.
//
//	Build ──▶ declarations ──▶ plan complete ──▶ main: declare, attach, produce
//	                                              │ faults strike at their anchors
//	                                              ▼
//	                              calm: no more faults, all must end ──▶ judge ──▶ close
//
// Everything runs on the one thread of its [Runtime], so nothing here is locked.
type lab struct {
	spec   Spec
	plan   *Plan
	drawn  bool // Run: what Build asks for is drawn; Replay: it is looked up
	rt     *Runtime
	world  *World
	broker *postroom.Broker
	result *Result

	bubbles *bubbles // nil without handlers in a bubble
	soak    *soak    // nil but in mode Real

	queues    []*Queue
	pools     []*pool
	producers []*producer
	externals []*External
	expected  []Expectation
	always    []alwaysRule
	sometimes []sometimesRule
	catalogue Catalogue
	calmFor   time.Duration
	calmUntil []Condition
	policy    []postroom.Option

	hash     uint64
	events   int
	latest   Event
	counts   [kinds]int
	over     bool // a violation of safety was seen, or the run is being closed
	calm     bool
	finished bool // main came to its end
	ending   bool // no puller begins anything new
	pulling  int  // pullers that have not ended

	decisions int // points of decision so far
	pct       *pct
	logged    int // of plan.Decisions, for Logged

	notes
	sumSeed maphash.Seed
	kills   bool // a fault of the plan may end a handler where it is

	twins   []*twin // in the order they were made
	byQueue map[string]*twin

	byKind    [kinds][]*armed // faults that wait for their event
	points    []*armed        // actors that are to crash
	doing     int             // the latest event of somebody's command
	busy      int             // coroutines of producers and faults that have not ended
	stormTill time.Time
	acks      int
	actorDown bool // some actor of the broker crashed: what it was told may be lost
	newsDown  bool // and it was the router's: announcements may be lost

	honours    *honours     // asked for by HandlerHonoursContext
	leftovers  *leftovers   // by NoGoroutineLeft
	killedJobs map[int]bool // by number

	onTheirWay map[tagKey][]uint64 // incarnations of the receipts that handlers settle by
	failures   map[leaseKey]error  // what handlers have returned, until it reaches the ledger

	waiters []*waiter

	instant       time.Time // L5: events at one instant
	instantEvents int
}

// leaseKey names one lease.
type leaseKey struct {
	queue       string
	incarnation uint64
	tag         uint64
}

// livelockEvents is how many events one instant may hold before that is called a
// livelock (L5).
const livelockEvents = 200_000

// livelockRoles is what that is called in a signature.
const livelockRoles = "livelock"

// errCut ends a run for which there is no more real time.
var errCut = errors.New("simulation: the run was cut short: there is no more time for it")

// waiter is a coroutine that waits for something to become true.
type waiter struct {
	c    *coroutine
	cond func() bool
}

func (s Spec) newLab(p *Plan, draw bool) *lab {
	return &lab{
		spec: s, plan: p, drawn: draw, result: &Result{Hits: map[string]int{}}, calmFor: 24 * time.Hour,
		notes: s.room.takeNotes(), byQueue: map[string]*twin{}, hash: p.Seed, sumSeed: maphash.MakeSeed(),
	}
}

// run carries a plan out. draw says that its parts are to be drawn first.
func (s Spec) run(p Plan, draw bool) (result Result) {
	if !s.hostedNow && s.needsBubble(p) {
		began := stopwatch()
		s.hostedNow, s.fresh = true, true
		if left := s.hosted(func() { result = s.run(p, draw) }); left != "" && !result.Failed() {
			result.Err = left
		}
		result.Elapsed = began()
		return result
	}
	if s.hostedNow {
		s.room = nil // what a bubble has begun cannot leave it
	}
	l := s.newLab(&p, draw)
	began := stopwatch()
	defer func() {
		if l.soak == nil { // goroutines of a soak may still speak
			s.room.giveBack(l)
		}
		result = *l.result
		result.Plan = p
		result.Elapsed = began()
	}()
	if err := p.Validate(); err != nil {
		l.fail(err)
		return Result{} // what the deferred call gathers
	}
	if p.Spec != s.Name {
		l.fail(fmt.Errorf("%w: it is of spec %q, this is %q", ErrPlan, p.Spec, s.Name))
		return Result{}
	}
	l.rt = NewRuntime(p.Seed)
	l.rt.search, l.rt.room, l.rt.late = s.search, s.room, s.late
	if s.cover {
		l.result.cover = newCoverage(p.Seed)
	}
	system := borrowSystem(s.fresh)
	clean := false
	defer func() { returnSystem(system, clean && !s.fresh) }()
	defer l.rt.Close()
	l.world = &World{runtime: l.rt, system: actorkit.MountSystem(l.rt, system, ""), lab: l}
	if !l.build() {
		return Result{}
	}
	l.rt.decide, l.rt.quiet = l.decide, l.atRest
	if draw {
		p.Decisions = make([]Decision, 0, 8*len(p.Items)+64)
	}
	if s.hostedNow {
		l.bubbles = &bubbles{lab: l, asked: make(chan request, residues)}
		l.rt.bubble = l.bubbles
		defer l.bubbles.close()
	}
	l.rt.trusts = 1 << 20
	for _, p := range l.pools {
		if p.mode.kind != modeScript {
			l.rt.trusts = 32
		}
	}
	if l.isReal() {
		l.armReal()
		l.live()
	} else {
		clean = l.execute()
	}
	l.conclude()
	return Result{}
}

// fail notes why the run cannot be carried out.
func (l *lab) fail(err error) {
	if l.result.Err == "" {
		l.result.Err = err.Error()
	}
	l.over = true
	if l.rt != nil {
		l.rt.halted = true
	}
}

// build calls Build and completes the plan.
func (l *lab) build() (ok bool) {
	defer func() {
		if value := recover(); value != nil {
			l.fail(fmt.Errorf("simulation: Build of %q panics: %v\n%s", l.spec.Name, value, debug.Stack()))
			ok = false
		}
	}()
	if l.spec.Build == nil {
		l.fail(fmt.Errorf("simulation: spec %q has no Build", l.spec.Name))
		return false
	}
	l.spec.Build(l.world)
	l.rt.between = l.betweenSteps()
	if l.drawn {
		l.drawItems()
		l.drawFaults()
	}
	if err := l.adoptPlan(); err != nil {
		l.fail(err)
		return false
	}
	l.startStrategy()
	return true
}

// timersSetting says whether the timers of one instant ring when nobody is ready any
// more, or between the steps of that instant: a lease that runs out while the heartbeat
// of that instant is on its way. timersBetween is the latter, which one seed in four has.
const (
	timersSetting = "timers"
	timersBetween = 3
)

func (l *lab) betweenSteps() bool {
	return l.setting(timersSetting, 0, timersBetween, func(v int64) string {
		return [...]string{"after the steps", "after the steps", "after the steps", "between the steps"}[v]
	}) == timersBetween
}

// execute runs the world to its end and reports whether it left nothing behind.
func (l *lab) execute() bool {
	l.rt.Go("main", l.main)
	virtual, steps := l.spec.Virtual, l.spec.Steps
	if virtual == 0 {
		virtual = DefaultVirtualTime
	}
	if steps == 0 {
		steps = DefaultStepsMax
	}
	err := l.drive(virtual, steps)
	l.result.Steps = l.rt.Steps()
	l.result.Virtual = l.now()
	var limit *LimitError
	var stuck *StuckError
	switch {
	case l.rt.cut:
		l.fail(errCut)
	case err == nil:
		return l.finished && !l.over
	case l.over:
	case errors.As(err, &stuck):
		l.alarm("L1", "everybody waits", "", "", "nothing moves any more although somebody waits")
		l.waitsFor(stuck.Waits)
	case errors.As(err, &limit):
		if errors.Is(err, ErrStepLimit) {
			l.alarm("L5", "step limit", "", "", fmt.Sprintf("the run did not end within %d steps", steps))
		} else {
			l.alarm("L1", "time limit", "", "", fmt.Sprintf("the run did not end within %v", virtual))
		}
		l.waitsFor(limit.Waits)
	default:
		l.fail(err)
	}
	return false
}

// drive is Runtime.Run with a panic of user code outside of handlers made an error.
func (l *lab) drive(virtual time.Duration, steps int) (err error) {
	defer func() {
		if value := recover(); value != nil {
			crash, ok := value.(*PanicError)
			if !ok {
				panic(value)
			}
			err = crash
		}
	}()
	return l.rt.Run(virtual, steps)
}

func (l *lab) waitsFor(waits []Wait) {
	for i, w := range waits {
		if i == waitsMax {
			break
		}
		l.result.Waits = append(l.result.Waits, w.String())
	}
}

// conclude writes down what the run leaves.
func (l *lab) conclude() {
	for _, t := range l.twins {
		returnRecords(t.records)
		t.records = nil
	}
	l.result.EventCount = l.events
	if l.bubbles != nil && l.bubbles.best != "" {
		l.result.Replay.BestEffort, l.result.Replay.Why = true, l.bubbles.best
	}
	l.result.TraceHash = actorkit.Mix(l.hash, "steps", "", l.rt.TraceHash())
}

func (l *lab) now() time.Duration { return l.rt.since }

// ---- events ----

// emit makes something happen: it is numbered, hashed, kept, and shown to the
// oracles and to the faults that wait for it. It returns the event's number.
func (l *lab) emit(e Event) int {
	if e.Message == "" || l.over {
		return l.emitOf(nil, e)
	}
	return l.emitOf(l.story(e.Message), e)
}

// emitOf is emit for whom the message's story is at hand; nil for an event of none.
func (l *lab) emitOf(s *story, e Event) int {
	if l.over {
		return l.events
	}
	l.events++
	e.Number, e.At = l.events, l.now()
	if e.Cause >= e.Number {
		e.Cause = e.Number - 1
	}
	l.hash = e.mix(l.hash)
	if !l.spec.NoEvents {
		l.result.Events = append(l.result.Events, e)
	}
	if l.events%CheckpointEvents == 0 {
		l.result.Checkpoints = append(l.result.Checkpoints, Checkpoint{l.events, l.hash})
	}
	l.counts[e.Kind]++
	if l.rt.search != nil {
		l.rt.search.event(&e)
	}
	if l.result.cover != nil {
		l.result.cover.note(&e)
	}
	if s != nil {
		s.last = e.Number
		if e.Kind == KindSettle && e.Verb == "ack" {
			s.acked++
		}
	}
	l.latest = e
	if !l.instant.Equal(l.rt.now) {
		l.instant, l.instantEvents = l.rt.now, 0
	}
	if l.instantEvents++; l.instantEvents > cmp.Or(l.spec.livelock, livelockEvents) {
		l.alarm("L5", livelockRoles, e.Message, e.Queue, fmt.Sprintf("%d events at one instant", l.instantEvents))
		l.stop()
		return e.Number
	}
	l.consult(&e)
	l.anchor(&e)
	l.poke()
	return e.Number
}

// mix takes an event into a hash, field by field: text would cost more than the
// event itself.
func (e *Event) mix(h uint64) uint64 {
	h = actorkit.Mix(h, e.Queue, e.Message, uint64(e.Kind)|uint64(e.Attempt)<<8|uint64(e.Deliveries)<<24|uint64(e.Incarnation)<<40)
	h = actorkit.Mix(h, e.Worker, e.Verb, uint64(e.At))
	h = actorkit.Mix(h, e.Reason, e.Detail, e.Tag^uint64(e.Deadline)<<1)
	return actorkit.Mix(h, e.Consumer, "", uint64(e.Cause)|e.Put<<32)
}

// stop ends the run after the step under way.
func (l *lab) stop() {
	l.over = true
	l.rt.halted = true
}

// object is a violation: the run ends with it.
func (l *lab) object(kind, invariant, roles, text string) {
	if l.over {
		return
	}
	n := l.emit(Event{Kind: KindViolation, Reason: invariant + " " + roles, Detail: text, Cause: l.events})
	l.result.Violations = append(l.result.Violations, Violation{
		Signature: Signature{Kind: kind, Invariant: invariant, Roles: roles}, Event: n, At: l.now(), Text: text,
	})
	l.result.Categories.count(invariant)
	l.stop()
}

// alarm is a lack of progress.
func (l *lab) alarm(invariant, roles, message, queue, reason string) {
	l.result.Alarms = append(l.result.Alarms, Alarm{
		Signature: Signature{Kind: "liveness", Invariant: invariant, Roles: roles},
		Event:     l.events, At: l.now(), Message: message, Queue: queue, Reason: reason,
	})
}

// wait parks the calling coroutine until cond is true, or ctx (which may be nil)
// ends.
func (l *lab) wait(what string, ctx context.Context, cond func() bool) error {
	for !cond() {
		if ctx != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.rt.enter("wait")
		w := &waiter{l.rt.current, cond}
		l.waiters = append(l.waiters, w)
		l.rt.park(what, ctx)
		l.waiters = slices.DeleteFunc(l.waiters, func(o *waiter) bool { return o == w })
	}
	return nil
}

// poke wakes those for whom it is true now.
func (l *lab) poke() {
	for _, w := range l.waiters {
		if w.c.isParked && w.cond() {
			l.rt.wake(w.c)
		}
	}
}

// sleepUntil waits for an instant, or for the calm phase.
func (l *lab) sleep(d time.Duration) { _ = l.rt.Sleep(context.Background(), d) }

// within waits for cond at most d and reports whether it came.
func (l *lab) within(what string, d time.Duration, cond func() bool) bool {
	late := false
	t := l.rt.AfterFunc(d, func() { late = true; l.poke() })
	defer t.Stop()
	_ = l.wait(what, nil, func() bool { return late || cond() })
	return cond()
}

// ---- the run ----

// main is the story of a run.
func (l *lab) main() {
	if !l.open() {
		return
	}
	for _, p := range l.producers {
		l.busy++
		l.rt.Go("producer "+p.name, func() {
			defer l.idle()
			p.run()
		})
	}
	l.armTimes()
	// The storm lasts as long as something is on its way, and a while longer, so that
	// faults that wait for a later delivery have their chance.
	l.within("the workload to be over", l.stormFor(), func() bool { return l.busy == 0 && l.drained(l.queues) && len(l.jobs) == 0 })
	l.calmDown()
	l.judge()
	l.finish()
}

// idle is the end of a producer or a fault.
func (l *lab) idle() {
	l.busy--
	l.poke()
}

// open starts the broker, its queues and the workers.
func (l *lab) open() bool {
	options := append([]postroom.Option{
		postroom.WithRuntime(l.rt, l.world.system), postroom.WithListener(l.listen), postroom.WithLedger(l.newTwin),
	}, l.policy...)
	if l.spec.probed != nil || slices.ContainsFunc(l.plan.Faults, func(f Fault) bool { return f.Kind == FaultActor }) {
		options = append(options, postroom.WithProbe(l.probe))
	}
	b, err := postroom.Open(options...)
	if err != nil {
		l.fail(fmt.Errorf("simulation: open: %w", err))
		return false
	}
	l.broker = b
	for _, x := range l.externals {
		x.effects, x.byKey = make([]effect, 0, len(l.plan.Items)), make(map[string]int, len(l.plan.Items))
	}
	l.world.brokers = append(l.world.brokers, b)
	ctx := context.Background()
	if _, err := b.Subscribe(ctx, "$sys.dead.#", l.heard); err != nil {
		l.fail(fmt.Errorf("simulation: subscribe: %w", err))
		return false
	}
	for _, q := range l.queues {
		if err := insist(func() error { return b.DeclareQueue(ctx, q.name, q.config) }); err != nil {
			l.fail(fmt.Errorf("simulation: %w", err))
			return false
		}
	}
	for _, p := range l.pools {
		for _, k := range p.workers {
			k.start()
		}
	}
	return !l.over
}

// insist does what is harmless to do twice, again while an actor that crashed on it
// leaves the outcome unknown.
func insist(do func() error) (err error) {
	for range putTriesMax {
		if err = do(); !errors.Is(err, postroom.ErrOutcomeUnknown) {
			break
		}
	}
	return err
}

// stormFor is how long faults may strike: until the last item and five times the
// longest lease after it.
func (l *lab) stormFor() time.Duration {
	var last, lease time.Duration
	for _, it := range l.plan.Items {
		last = max(last, it.At)
	}
	for _, f := range l.plan.Faults {
		if f.Anchor.Event == noEvent {
			last = max(last, f.Anchor.At)
		}
	}
	for _, q := range l.queues {
		lease = max(lease, q.config.WithDefaults().AckTimeout)
	}
	return last + 5*lease + time.Second
}

// calmDown ends all faults and waits until everything has come to its end.
func (l *lab) calmDown() {
	l.calm = true
	l.points = nil
	for i := range l.byKind {
		l.byKind[i] = nil
	}
	l.emit(Event{Kind: KindCalm, Cause: l.events})
	l.poke()
	// Faults under way end, then everything that stood still goes on.
	if !l.within("faults to end", 24*time.Hour, func() bool { return l.busy == 0 }) {
		l.alarm("L1", "producer or fault does not end", "", "", "a producer or a fault is still under way after a day of calm")
	}
	ctx := context.Background()
	for _, q := range l.queues {
		if t := l.byQueue[q.name]; t != nil && !t.closed {
			if t.stats.Paused || t.stats.Draining {
				_ = l.broker.Resume(ctx, q.name)
			}
		}
	}
	for _, p := range l.pools {
		for _, k := range p.workers {
			k.revive()
		}
	}
	began := l.rt.now
	conditions := l.calmUntil
	if len(conditions) == 0 {
		conditions = []Condition{Drained(l.queues...)}
	}
	done := func() bool {
		for _, c := range conditions {
			if !c.holds(l) {
				return false
			}
		}
		return len(l.jobs) == 0
	}
	if l.within("the queues to drain", l.calmFor, done) {
		return
	}
	l.explainStuck(l.rt.now.Sub(began))
}

// explainStuck says of each message why it could not go on (L1, L6).
func (l *lab) explainStuck(after time.Duration) {
	for _, q := range l.queues {
		t := l.byQueue[q.name]
		if t == nil {
			continue
		}
		for _, put := range sortedKeys(t.book.live) {
			n := t.book.live[put]
			l.result.Categories.Stuck++
			l.alarm("L1", "message does not end: "+[...]string{"ready", "delayed", "leased"}[n.place], n.message, q.name,
				fmt.Sprintf("%s after %v of calm; %s", [...]string{"ready", "delayed", "leased"}[n.place], after, l.whyNot(q)))
		}
	}
	if len(l.result.Alarms) == 0 {
		var who []string
		for _, j := range l.sortedJobs() {
			who = append(who, j.worker.name+" works on "+j.name)
		}
		l.alarm("L1", "handler does not end", "", "", fmt.Sprintf("after %v of calm: %s", after, strings.Join(who, ", ")))
	}
}

// whyNot says what workers a queue has and what they do.
func (l *lab) whyNot(q *Queue) string {
	var says []string
	for _, p := range l.pools {
		if p.queue != q {
			continue
		}
		for _, k := range p.workers {
			says = append(says, k.name+" "+k.state())
		}
	}
	if len(says) == 0 {
		return "the queue has no workers"
	}
	return strings.Join(says, ", ")
}

func (l *lab) sortedJobs() []*job {
	jobs := slices.Collect(maps.Values(l.jobs))
	slices.SortFunc(jobs, func(a, b *job) int { return a.number - b.number })
	return jobs
}

// drained reports that nothing is left in the queues.
func (l *lab) drained(queues []*Queue) bool {
	for _, q := range queues {
		if t := l.byQueue[q.name]; t != nil && len(t.book.live) > 0 {
			return false
		}
	}
	return true
}

// finish closes the broker; what is then still said belongs to no oracle.
func (l *lab) finish() {
	l.ending = true
	l.within("pullers to end", time.Hour, func() bool { return l.pulling == 0 })
	if l.over {
		return
	}
	l.emit(Event{Kind: KindEnd, Cause: l.events})
	l.closingDown()
	l.finished = true
}

func (l *lab) closingDown() {
	ctx, cancel := l.rt.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := l.broker.Close(ctx); err != nil && !l.over {
		l.alarm("L1", "broker does not close", "", "", err.Error())
	}
}

// ---- what the broker tells ----

// listen hears of crashes and restarts.
func (l *lab) listen(n postroom.Notice) {
	switch n := n.(type) {
	case messages.WorkerRestarted:
		if k := l.byConsumer[n.Consumer]; k != nil {
			k.restarted(n.After)
		}
	case messages.ConsumerStopped:
		if k := l.byConsumer[n.Consumer]; k != nil && k.tag == n.Consumer {
			k.stopped(n.Reason)
		}
	case messages.ActorCrashed:
		l.actorDown = true
		l.newsDown = l.newsDown || n.Actor == "topic-router"
		if _, ours := n.Reason.(*crash); ours || l.over {
			return
		}
		l.object("crash", "I27", "actor "+roleOf(n.Actor)+" panics", fmt.Sprintf("actor %s: %v\n%s", n.Actor, n.Reason, n.Stack))
	case messages.Quarantined:
		if t := l.byQueue[n.Queue]; t != nil {
			t.quarantined = true
		}
		l.object("safety", "I27", "queue quarantined", fmt.Sprintf("queue %s: %v", n.Queue, n.Reason))
	case messages.HandlerStuck:
		l.emit(Event{Kind: KindQueue, Queue: n.Queue, Consumer: n.Consumer, Tag: n.Tag, Detail: "handler stuck"})
	case messages.AlarmRaised:
		l.emit(Event{Kind: KindAlarm, Queue: n.Queue, Detail: n.Alarm.String(), Cause: l.events})
	}
}

// roleOf is an actor's name without numbers.
func roleOf(actor string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, actor), "-#")
}
