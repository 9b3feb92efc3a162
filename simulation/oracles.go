package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/messages"
)

// The must-hit list: what a campaign over faults has to have seen, or it has shown
// nothing (SIMULATION 1.3, non-vacuity). [Result.Hits] counts them by these names.
const (
	HitStale            = "stale settle"
	HitExpireAlive      = "expiry while the handler lives"
	HitSameInstant      = "settle and expiry at one instant"
	HitCrashAfterEffect = "crash after the effect, before the ack"
	HitUnknownPut       = "unknown put"
	HitNackAtMax        = "nack at the last attempt"
	HitRestartHolding   = "restart while holding a lease"
	HitDedup            = "dedup hit"
	HitOverflow         = "overflow"
	HitPriority         = "a higher priority overtakes"
	HitExtendRace       = "touch racing expiry"
	HitRedrive          = "redrive"
	HitTwoFinish        = "two workers finish one message"
	HitQueueCrash       = "crash of a queue's actor"
	HitRouterCrash      = "crash of the router"
	HitConsumerCrash    = "crash of a consumer's actor"
	HitRoomCrash        = "crash of an actor that starts and ends consumers, queues or redrives"
)

// MustHit is the must-hit list in order.
var MustHit = []string{
	HitStale, HitExpireAlive, HitSameInstant, HitCrashAfterEffect, HitUnknownPut, HitNackAtMax, HitRestartHolding,
	HitDedup, HitOverflow, HitPriority, HitExtendRace, HitRedrive, HitTwoFinish,
	HitQueueCrash, HitRouterCrash, HitConsumerCrash, HitRoomCrash,
}

func (l *lab) hit(name string) { l.result.Hits[name]++ }

// ---- externals ----

// External is a system outside, of which handlers make use: what they do there is
// recorded, by key, and it is between its record and the ack that crashes hurt most.
type External struct {
	lab     *lab
	name    string
	fn      func(ctx context.Context, key, detail string) error
	effects []effect
	byKey   map[string]int
}

type effect struct {
	key, message string
	generation   int
	tag          uint64
	fenced       bool // its lease was over
	event        int
}

// External adds a system outside. fn plays its part and may refuse; nil always
// accepts.
func (w *World) External(name string, fn func(ctx context.Context, key, detail string) error) *External {
	l := w.describing("External")
	x := &External{lab: l, name: name, fn: fn, byKey: map[string]int{}}
	l.externals = append(l.externals, x)
	return x
}

// Do is one effect under a key, such as a payment's number; detail is for people.
// ctx must be the handler's. The error is the external's own: then there was no effect.
func (x *External) Do(ctx context.Context, key, detail string) error {
	if l := x.lab; l.soak != nil {
		return x.doReal(ctx, key, detail)
	}
	if j := jobOf(ctx); j != nil && j.bubble != nil {
		return j.bubble.call(func() error { return x.do(j, ctx, key, detail) })
	}
	return x.do(jobOf(ctx), ctx, key, detail)
}

func (x *External) do(j *job, ctx context.Context, key, detail string) error {
	if x.fn != nil {
		if err := x.fn(ctx, key, detail); err != nil {
			return err
		}
	}
	x.note(j, key, detail)
	if j != nil {
		j.point("effect")
	}
	return nil
}

// doReal is do on the wall clock.
func (x *External) doReal(ctx context.Context, key, detail string) error {
	if x.fn != nil {
		if err := x.fn(ctx, key, detail); err != nil {
			return err
		}
	}
	j := jobOf(ctx)
	x.lab.locked(func() { x.note(j, key, detail) })
	if j != nil {
		j.realPoint("effect")
	}
	return nil
}

// note records an effect.
func (x *External) note(j *job, key, detail string) {
	l := x.lab
	if l.over {
		return
	}
	f := effect{key: key}
	text := x.name + " " + key
	if detail != "" {
		text += ": " + detail
	}
	if j == nil {
		f.event = l.emit(Event{Kind: KindEffect, Detail: text, Cause: l.events})
	} else {
		f.message, f.tag, f.fenced, f.generation = j.name, j.d.Tag, j.over, j.story.accepted
		j.effects++
		e := j.event(KindEffect)
		e.Queue, e.Message, e.Tag, e.Attempt, e.Deliveries = j.d.Queue(), j.name, j.d.Tag, j.d.Attempt, j.d.Deliveries
		e.Detail, e.Cause = text, j.last
		if j.over {
			e.Reason = "after its lease"
		}
		f.event = j.worker.emitOf(j.story, e)
		j.last = f.event
		j.noteWork()
	}
	x.effects = append(x.effects, f)
	x.byKey[key]++
}

// Count is how often something was done under a key.
func (x *External) Count(key string) int { return x.byKey[key] }

// ---- expectations ----

// Expectation is an oracle over the externals, judged at the end of a run.
type Expectation struct {
	name  string
	setUp func(l *lab) // may be nil
	judge func(l *lab) error
}

// Expect adds expectations.
func (w *World) Expect(e ...Expectation) {
	l := w.describing("Expect")
	l.expected = append(l.expected, e...)
	for _, x := range e {
		if x.setUp != nil {
			x.setUp(l)
		}
	}
}

// EffectAtLeastOnce: every message that was acked had an effect on x.
func EffectAtLeastOnce(x *External) Expectation {
	return Expectation{name: "EffectAtLeastOnce " + x.name, judge: func(l *lab) error {
		had := map[string]bool{}
		for _, f := range x.effects {
			had[f.message] = true
		}
		for _, e := range l.ackedNames() {
			if !had[e] {
				return fmt.Errorf("%s was acked and had no effect on %s", e, x.name)
			}
		}
		return nil
	}}
}

// EffectAtMostOnceByKey: nothing was done twice under one key, so the handler, or
// the external, is idempotent.
func EffectAtMostOnceByKey(x *External) Expectation {
	return Expectation{name: "EffectAtMostOnceByKey " + x.name, judge: func(*lab) error {
		for _, key := range slices.Sorted(maps.Keys(x.byKey)) {
			if n := x.byKey[key]; n > 1 {
				return fmt.Errorf("%s was done %d times under key %q", x.name, n, key)
			}
		}
		return nil
	}}
}

// NoEffectAfterFence: nothing was done on a lease that was over.
func NoEffectAfterFence(x *External) Expectation {
	return Expectation{name: "NoEffectAfterFence " + x.name, judge: func(*lab) error {
		for _, f := range x.effects {
			if f.fenced {
				return fmt.Errorf("%s was done for %s by tag %d, whose lease was over", x.name, f.message, f.tag)
			}
		}
		return nil
	}}
}

// ackedNames are the names of which a generation ended with an ack.
func (l *lab) ackedNames() []string {
	var names []string
	for _, s := range l.told {
		if s.acked > 0 {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// View is what a user's oracle sees, between two events.
type View struct{ lab *lab }

// Event is the latest event.
func (v View) Event() Event { return v.lab.latest }

// Now is the virtual time since [Epoch].
func (v View) Now() time.Duration { return v.lab.now() }

// Count is how many events of a kind there were.
func (v View) Count(k Kind) int { return v.lab.counts[k] }

// Hits is how often an item of the must-hit list came up.
func (v View) Hits(name string) int { return v.lab.result.Hits[name] }

// Calm reports whether the calm phase has begun.
func (v View) Calm() bool { return v.lab.calm }

// Stats counts a queue as of the last command that it was given.
func (v View) Stats(q *Queue) postroom.QueueStats {
	t := v.lab.byQueue[q.name]
	if t == nil {
		return postroom.QueueStats{}
	}
	return t.stats
}

type alwaysRule struct {
	name string
	rule func(View) error
}

type sometimesRule struct {
	name string
	rule func(View) bool
}

// Always adds a rule that must hold after every event. It must be quick.
func (w *World) Always(name string, rule func(View) error) {
	l := w.describing("Always")
	l.always = append(l.always, alwaysRule{name, rule})
}

// Sometimes adds something that must come true in at least one run of a campaign;
// [Result.Hits] counts the runs by the name.
func (w *World) Sometimes(name string, rule func(View) bool) {
	l := w.describing("Sometimes")
	l.sometimes = append(l.sometimes, sometimesRule{name, rule})
	l.result.Hits[name] += 0
}

// consult asks the user's oracles.
func (l *lab) consult(e *Event) {
	if e.Kind == KindViolation {
		return
	}
	for _, r := range l.always {
		if err := r.rule(View{l}); err != nil {
			l.object("user", r.name, "always", err.Error())
			return
		}
	}
	for _, r := range l.sometimes {
		if l.result.Hits[r.name] == 0 && r.rule(View{l}) {
			l.hit(r.name)
		}
	}
}

// ---- rest: liveness at every instant ----

// atRest is called when nothing can move before time passes: what could have been
// done by now must have been (L2, L3, L4).
func (l *lab) atRest() {
	if l.honours != nil {
		l.honours.look(l)
	}
	if l.over || l.broker == nil || l.finished || l.latest.Kind == KindEnd {
		return
	}
	if j := l.untold(); j != nil {
		l.object("safety", "I10", "handler of a lost lease is not told", fmt.Sprintf("%s works on %s by tag %d, which expired, and its context has not ended", j.worker.name, j.name, j.d.Tag))
		return
	}
	for _, t := range l.twins {
		if t.closed || t.book.closed {
			continue
		}
		if at, ok := t.model.NextEvent(); ok && !at.After(l.rt.now) && !t.face.Behind() {
			l.alarm("L3", "due and not done", "", t.source.Queue, fmt.Sprintf("something was due at %v and now is %v", at.Sub(Epoch), l.now()))
			l.stop()
			return
		}
		if t.book.ready == 0 || t.book.paused || t.config.SingleActive || t.quarantined {
			continue
		}
		for _, k := range l.workersOf(t.source.Queue) {
			if k.isIdle(t) {
				invariant := "L2"
				if k.restarts > 0 || k.incarnation > 1 {
					invariant = "L4"
				}
				l.alarm(invariant, "ready message and idle worker", "", t.source.Queue,
					fmt.Sprintf("%d messages of %s are ready and %s is idle", t.book.ready, t.source.Queue, k.name))
				l.stop()
				return
			}
		}
	}
}

// untold returns a handler whose lease ran out and whose context goes on (SPEC Q10);
// the one that began first.
func (l *lab) untold() (first *job) {
	if l.newsDown {
		return nil // the news may have been lost in the crash
	}
	for _, j := range l.jobs {
		if j.worker.pool.pull == nil && j.over && j.how == messages.LeaseExpired && j.ctx.Err() == nil && (first == nil || j.number < first.number) {
			first = j
		}
	}
	return first
}

// isIdle reports that the worker could take a message of t right now.
func (k *worker) isIdle(t *twin) bool {
	if k.pool.pull != nil {
		return k.waiting && k.incarnation == 1 // a Get of an older one may be about to end
	}
	if !k.alive || k.down > 0 || k.paused > 0 || k.consumer == nil || k.running() > 0 {
		return false
	}
	_, attached := t.book.prefetch[k.consumer.Tag]
	return attached && t.book.holds[k.consumer.Tag] == 0
}

// ---- deaths ----

// died expects an announcement.
func (l *lab) died(t *twin, n *entryNote) { l.deaths[t.source.Queue+"/"+n.id]++ }

// heard is the subscriber of $sys.dead.
func (l *lab) heard(_ string, e *postroom.Event) {
	var notice actors.DeathNotice
	if err := json.Unmarshal(e.Body, &notice); err != nil {
		l.object("safety", "I17", "announcement unreadable", err.Error())
		return
	}
	key := notice.Queue + "/" + notice.ID
	s := l.storyOf(notice.ID)
	name := s.name
	l.emitOf(s, Event{Kind: KindAnnounce, Queue: notice.Queue, Message: name, Reason: notice.Reason, Cause: s.last})
	l.deaths[key]--
	if l.deaths[key] < 0 {
		l.result.Categories.DeadTwice++
		l.object("safety", "I17", "death announced twice", name+" of "+notice.Queue+" is announced more often than it died")
	}
}

// ---- the end ----

// judge is the verdict at the end of a run.
func (l *lab) judge() {
	if l.over {
		return
	}
	l.rt.Idle() // announcements on their way arrive
	if l.leftovers != nil {
		l.sleep(l.leftovers.after)
	}
	l.judgeEnd()
}

// judgeEnd is judge when everything has arrived.
func (l *lab) judgeEnd() {
	if l.over {
		return
	}
	drained := len(l.result.Alarms) == 0 && l.drained(l.queues)
	for _, t := range l.twins {
		t.op = "end"
		t.fold(l.rt.now)
	}
	l.judgeQueue(drained)
	c := &l.result.Categories
	for _, key := range slices.Sorted(maps.Keys(l.deaths)) {
		if l.deaths[key] > 0 && !l.newsDown {
			c.DeadUnannounced++
			l.object("safety", "I17", "death not announced", key+" died and nobody heard of it")
		}
	}
	for _, x := range l.expected {
		if err := x.judge(l); err != nil {
			l.object("user", x.name, "expected", err.Error())
		}
	}
}

// judgeQueue is Jepsen's total-queue over the history of the run: a message is taken
// out by its ack, a purge or the end of its queue, and a last drain takes the dead
// letters that are left.
func (l *lab) judgeQueue(drained bool) {
	if !drained || l.over {
		return
	}
	var left []string
	for _, t := range l.twins {
		for _, n := range sortedKeys(t.book.letters) {
			left = append(left, t.book.letters[n].message)
		}
	}
	l.ops = append(l.ops, QueueOp{Type: DrainOK, Values: left})
	// A put is acknowledged by its own answer or by that of a later duplicate; several
	// answers may speak of one.
	for _, s := range l.told {
		for range min(s.confirmed, s.taken) {
			l.ops = append(l.ops, QueueOp{Type: EnqueueOK, Value: s.name})
		}
	}
	verdict, ok := CheckTotalQueue(l.ops)
	if !ok {
		return
	}
	l.result.Jepsen = verdict
	c := &l.result.Categories
	c.Recovered = verdict.Recovered
	if verdict.Lost > 0 {
		c.Lost = verdict.Lost
		l.object("safety", "I1", "lost", fmt.Sprintf("accepted and never came out: %v", verdict.LostValues))
	}
	if verdict.Unexpected > 0 {
		c.Unexpected = verdict.Unexpected
		l.object("safety", "I2", "unexpected", fmt.Sprintf("came out and was never put: %v", verdict.UnexpectedValues))
	}
}

// took notes in the history that a message left the queue for good.
func (l *lab) took(name string) {
	l.ops = append(l.ops, QueueOp{Type: DequeueOK, Value: name})
}

// count adds a violation in the category of SIMULATION 1.2 that it belongs to.
func (c *Categories) count(invariant string) {
	switch invariant {
	case "I7":
		c.DuplicateIllegal++
	case "I3", "I4":
		c.Resurrected++
	case "I16":
		c.Premature++
	case "I15":
		c.Overdelivered++
	case "I10":
		c.PhantomSettle++
	}
}

// adopt makes the twin of a queue's new incarnation the one that is looked at.
func (l *lab) adopt(t *twin) {
	l.twins = append(l.twins, t)
	l.byQueue[t.source.Queue] = t
	l.emit(Event{Kind: KindQueue, Queue: t.source.Queue, Detail: fmt.Sprintf("declared, incarnation %d", t.source.Incarnation), Cause: l.doing})
}

// touched checks the new deadline of a lease (I12).
func (b *book) touched(n *entryNote, at time.Time) {
	if n.noTimeout {
		return
	}
	if limit := b.twin.config.MaxLease; limit > 0 && at.After(n.granted.Add(limit)) {
		b.object("I12", "lease beyond its limit", "tag %d of %s runs until %v, handed over at %v with at most %v", n.tag, n.message, since(at), since(n.granted), limit)
	}
	n.deadline = at
}
