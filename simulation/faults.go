package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// Catalogue is which faults a seed may draw, and how many at most.
type Catalogue struct {
	Kinds []FaultKind
	// Most is how many faults one run has at most. Zero: 6.
	Most int
	// Points are where actors crash, for FaultActor. Zero: half of the draws are among
	// those of [ActorPoints] where something is decided, half among the others; and every
	// other run has one crash of an actor at any of its messages besides.
	Points []string
}

// ActorPoints are the points at which the broker's actors are crashed: before and after
// each message of each of them that comes up in a laboratory. The desk passes on what an
// embedder's actors say, and there are none.
var ActorPoints = slices.Concat(decidingPoints, otherPoints)

// decidingPoints are those of the queue and the router where a message changes its state,
// or an announcement is made: where a crash is most likely to cost something.
var decidingPoints = pointsOf("*actors.Put", "*actors.slot", "*actors.ring", "*actors.giveBack", "*actors.keepAlive", "*actors.crashed",
	"*actors.attach", "*actors.detach", "*actors.holderEnded", "*actors.effectivePrefetch", "*messages.Settle", "*router.Announce")

// otherPoints are the rest: what is asked of queues and router by hand, and all of the
// consumers' actors, of the two rooms and of redrivers.
var otherPoints = pointsOf(
	"*messages.Get", "*actors.CancelGet", "*actors.EndHolder", "*messages.Purge", "*messages.Pause", "*messages.Resume", "*messages.Drain",
	"*actors.redriveLetter", "*messages.DeadLettersQuery", "*actors.closeQueue", "*router.Copy", "*router.Forget",
	"*actors.chunk", "*actors.tick", "*actors.firstTick", "*actors.returned", "*actors.leaseLost", "*actors.restart", "*actors.stopConsumer",
	"*actors.detached", "*actors.queueGone", "*actors.attachAnswered",
	"*actors.StartConsumer", "*actors.consumerGone", "*messages.Cancel", "*messages.Redrive",
	"*messages.DeclareQueue", "*messages.DeleteQueue", "*actors.queueClosed",
	"*actors.lettersRead", "*actors.nextLetter", "*actors.letterMoved")

// pointActors are the actors as their probes name them, for a crash at any message.
var pointActors = []string{"queue", "router", "consumer", "consumers", "queues", "redrive"}

func pointsOf(messages ...string) []string {
	all := make([]string, 0, 2*len(messages))
	for _, m := range messages {
		all = append(all, "before "+m, "after "+m)
	}
	return all
}

// AnyWorkerFault is every fault of a worker.
func AnyWorkerFault() Catalogue {
	return Catalogue{Kinds: FaultKinds()[:FaultReorder]}
}

// AnyFault is every fault there is: of workers, producers, queues and the broker's
// own actors.
func AnyFault() Catalogue { return Catalogue{Kinds: FaultKinds(), Most: 8} }

// OnlyFaults are these.
func OnlyFaults(most int, kinds ...FaultKind) Catalogue { return Catalogue{Kinds: kinds, Most: most} }

// Faults lets each seed draw from the catalogue: which kinds, how many, and where.
// One run in four has none.
func (w *World) Faults(c Catalogue) {
	l := w.describing("Faults")
	if c.Most == 0 {
		c.Most = 6
	}
	l.catalogue = c
}

// At adds one fault to every run.
func (w *World) At(a Anchor, f Fault) {
	l := w.describing("At")
	f.Anchor = a
	if l.drawn {
		l.plan.Faults = append(l.plan.Faults, f)
	}
}

// OnLease is the nth lease of a message.
func OnLease(message string, nth int) Anchor {
	return Anchor{Event: KindGrant, Message: message, Nth: nth}
}

// AfterEffect is after the nth effect for a message, before the ack.
func AfterEffect(message string, nth int) Anchor {
	return Anchor{Event: KindEffect, Message: message, Nth: nth}
}

// OnStart is when a handler begins on a message for the nth time.
func OnStart(message string, nth int) Anchor {
	return Anchor{Event: KindStart, Message: message, Nth: nth}
}

// OnReturn is when a handler has returned for the nth time, before its answer leaves.
func OnReturn(message string, nth int) Anchor {
	return Anchor{Event: KindReturn, Message: message, Nth: nth}
}

// OnPut is when the message is put for the nth time.
func OnPut(message string, nth int) Anchor {
	return Anchor{Event: KindPut, Message: message, Nth: nth}
}

// AtTime is an instant of the run.
func AtTime(at time.Duration) Anchor { return Anchor{At: at} }

// ---- drawing ----

// faultDraw draws the parts of one fault.
type faultDraw struct {
	l *lab
	n uint64
}

func (d faultDraw) n64(purpose string) uint64 {
	return actorkit.Mix(d.l.plan.Seed, "fault", purpose, d.n)
}

func (d faultDraw) of(purpose string, n int) int { return int(d.n64(purpose) % uint64(n)) }

func pickOf[T any](d faultDraw, purpose string, from []T) T { return from[d.of(purpose, len(from))] }

// drawFaults draws how many faults there are, and each of them by its number.
func (l *lab) drawFaults() {
	c := l.catalogue
	if len(c.Kinds) == 0 || l.setting("faults", 0, 3, func(v int64) string { return [...]string{"off", "on", "on", "on"}[v] }) == 0 {
		return
	}
	// Swarm: each seed leaves some kinds out, because one that is always there can hide
	// what another would show.
	var kinds []FaultKind
	for _, k := range c.Kinds {
		if actorkit.Mix(l.plan.Seed, "fault kind", k.String(), 0)%2 == 0 {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		kinds = c.Kinds[:1]
	}
	most := 1 + int(actorkit.Mix(l.plan.Seed, "faults", "", 0)%uint64(c.Most))
	for i := range most {
		if f, ok := l.drawFault(faultDraw{l, uint64(i)}, kinds); ok {
			l.plan.Faults = append(l.plan.Faults, f)
		}
	}
	if d := (faultDraw{l, uint64(most)}); len(c.Points) == 0 && slices.Contains(kinds, FaultActor) && d.of("any message", 2) == 0 {
		l.plan.Faults = append(l.plan.Faults, l.drawActor(d))
	}
}

func (l *lab) drawFault(d faultDraw, kinds []FaultKind) (Fault, bool) {
	f := Fault{Kind: pickOf(d, "kind", kinds)}
	if len(l.plan.Items) == 0 || len(l.queues) == 0 {
		return f, false
	}
	item := pickOf(d, "item", l.plan.Items)
	nth := 1
	for nth < 3 && d.of(fmt.Sprint("nth", nth), 3) == 0 {
		nth++
	}
	q := l.queue(item.Queue)
	lease := q.config.WithDefaults().AckTimeout
	span := pickOf(d, "span", []time.Duration{lease / 4, lease, 2 * lease, 5 * lease})
	var workers []string
	for _, p := range l.pools {
		if p.queue == q {
			for _, k := range p.workers {
				workers = append(workers, k.name)
			}
		}
	}
	at := Anchor{At: l.plan.Items[len(l.plan.Items)-1].At/2 + time.Duration(d.n64("at")%uint64(2*lease/time.Millisecond+1))*time.Millisecond}
	handler := func(events ...Kind) Anchor {
		return Anchor{Event: pickOf(d, "event", events), Message: item.Message, Nth: nth}
	}
	if f.Kind <= FaultReorder && len(workers) == 0 {
		return f, false
	}
	switch f.Kind {
	case FaultCrash, FaultKill:
		f.Anchor = handler(KindStart, KindEffect, KindReturn)
		if f.Kind == FaultKill {
			f.For = span
		}
	case FaultHang, FaultSlow:
		f.Anchor, f.For = handler(KindStart, KindEffect), span
	case FaultZombie, FaultAckLate, FaultExtendLate, FaultIgnore:
		f.Anchor = handler(KindStart, KindEffect)
	case FaultNack, FaultReject, FaultDoubleAck:
		f.Anchor = handler(KindStart)
	case FaultReorder:
		f.Anchor, f.Count = handler(KindStart), 1+d.of("count", 3)
	case FaultPause, FaultRestart:
		f.Anchor, f.For, f.Worker = at, span, pickOf(d, "worker", workers)
		if d.of("anchored", 2) == 0 {
			f.Anchor, f.Worker = handler(KindGrant, KindStart), ""
		}
	case FaultRolling, FaultScaleZero, FaultNackStorm:
		f.Anchor, f.For, f.Queue = at, span, q.name
		if d.of("anchored", 2) == 0 {
			f.Anchor = handler(KindGrant, KindEffect)
		}
	case FaultActor:
		f.Anchor, f.Point = handler(KindAccepted, KindGrant, KindStart, KindReturn), l.drawPoint(d)
	case FaultPutUnknown, FaultDuplicate:
		f.Anchor = Anchor{Event: KindPut, Message: item.Message}
		if f.Kind == FaultDuplicate {
			f.Anchor = handler(KindAccepted, KindGrant, KindSettle)
		}
	case FaultPurge, FaultDelete, FaultQueuePause, FaultDrain:
		f.Anchor, f.For, f.Queue = handler(KindAccepted, KindGrant, KindSettle), span, q.name
	case FaultRedrive:
		f.Anchor, f.Queue = Anchor{Event: KindDead, Queue: q.name, Nth: nth}, q.name
	}
	return f, true
}

// drawPoint draws the point at which an actor crashes.
func (l *lab) drawPoint(d faultDraw) string {
	points := l.catalogue.Points
	if len(points) == 0 {
		points = decidingPoints
		if d.of("where", 2) == 1 {
			points = otherPoints
		}
	}
	return pickOf(d, "point", points)
}

// drawActor draws a crash of an actor at any message of it. Without one of its own the
// rooms would crash in one run of a thousand: they hear of beginnings and ends only, and
// of most messages never.
func (l *lab) drawActor(d faultDraw) Fault {
	q := pickOf(d, "queue", l.queues)
	return Fault{
		Kind: FaultActor, Point: pickOf(d, "actor", pointActors), Count: d.of("message", 4),
		Anchor: Anchor{Event: pickOf(d, "news", []Kind{KindQueue, KindAttach, KindAccepted, KindSettle, KindDead}), Queue: q.name},
	}
}

// ---- striking ----

// armed is a fault that waits for its anchor.
type armed struct {
	fault  *Fault
	seen   int // matching events so far
	event  int // the KindFault event, once it struck
	passed int // matching points since, for FaultActor
}

func (l *lab) arm(f *Fault) {
	a := &armed{fault: f}
	if k := f.Anchor.Event; k != noEvent && k < kinds {
		l.byKind[k] = append(l.byKind[k], a)
	}
}

// armTimes sets the timers of faults that are anchored to an instant.
func (l *lab) armTimes() {
	for i := range l.plan.Faults {
		f := &l.plan.Faults[i]
		if f.Anchor.Event != noEvent {
			continue
		}
		a := &armed{fault: f}
		l.rt.AfterFunc(f.Anchor.At, func() {
			if !l.calm && !l.over {
				l.strike(a, &Event{Queue: f.Queue, Number: l.events})
			}
		})
	}
}

// anchor lets the faults strike that waited for e.
func (l *lab) anchor(e *Event) {
	waiting := l.byKind[e.Kind]
	for i := 0; i < len(waiting); i++ {
		a := waiting[i]
		if !a.fault.Anchor.Matches(e) {
			continue
		}
		if a.seen++; a.seen < max(1, a.fault.Anchor.Nth) {
			continue
		}
		waiting = slices.Delete(slices.Clone(waiting), i, i+1)
		l.byKind[e.Kind] = waiting
		i--
		l.strike(a, e)
	}
}

// strike carries a fault out, or hands it to the handler that it is for.
func (l *lab) strike(a *armed, e *Event) {
	f := a.fault
	a.event = l.emit(Event{Kind: KindFault, Queue: e.Queue, Message: e.Message, Worker: e.Worker, Incarnation: e.Incarnation, Tag: e.Tag, Reason: f.Kind.String(), Detail: f.String(), Cause: e.Number})
	queue := f.Queue
	if queue == "" {
		queue = e.Queue
	}
	target := l.worker(f.Worker)
	if target == nil {
		target = l.worker(e.Worker)
	}
	switch f.Kind {
	case FaultCrash, FaultHang, FaultZombie, FaultSlow, FaultNack, FaultReject, FaultDoubleAck, FaultAckLate, FaultExtendLate, FaultIgnore, FaultReorder:
		l.aim(a, e, target)
	case FaultActor:
		l.points = append(l.points, a)
	case FaultPutUnknown:
		// The producer looks for it right after its put event.
		l.pendingPut(a)
	case FaultKill:
		l.fault(a, func() { l.kill(a, target) })
	case FaultPause:
		if target != nil {
			l.pauseWorker(a, target)
		}
	case FaultRestart:
		l.fault(a, func() {
			if target != nil {
				target.stop()
				target.start()
			}
		})
	case FaultRolling:
		l.fault(a, func() {
			for _, k := range l.workersOf(queue) {
				k.stop()
				k.start()
				l.pauseFor(f.For / 4)
			}
		})
	case FaultScaleZero:
		l.fault(a, func() {
			for _, k := range l.workersOf(queue) {
				k.stop()
			}
			l.pauseFor(f.For)
			for _, k := range l.workersOf(queue) {
				k.start()
			}
		})
	case FaultNackStorm:
		l.stormTill = l.rt.now.Add(f.For)
	case FaultPurge:
		l.fault(a, func() { _, _ = l.broker.Purge(context.Background(), queue) })
	case FaultDelete:
		l.fault(a, func() { l.deleteQueue(queue, f.For) })
	case FaultQueuePause:
		l.fault(a, func() {
			if l.broker.Pause(context.Background(), queue) == nil {
				l.pauseFor(f.For)
				_ = l.broker.Resume(context.Background(), queue)
			}
		})
	case FaultDrain:
		l.fault(a, func() {
			ctx, cancel := l.rt.WithTimeout(context.Background(), max(f.For, time.Millisecond))
			_ = l.broker.Drain(ctx, queue)
			cancel()
			_ = l.broker.Resume(context.Background(), queue)
		})
	case FaultRedrive:
		l.fault(a, func() {
			_, _ = l.broker.Redrive(context.Background(), queue, postroom.RedriveConfig{})
		})
	case FaultDuplicate:
		if p, it := l.itemOf(e.Message); p != nil {
			l.fault(a, func() { p.put(it, false) })
		}
	}
}

// fault runs a fault's command beside everybody else.
func (l *lab) fault(a *armed, fn func()) {
	l.doing = a.event
	l.busy++
	l.rt.Go("fault "+a.fault.Kind.String(), func() {
		defer l.idle()
		if !l.over {
			fn()
		}
	})
}

// pauseFor waits for d, or for the calm phase.
func (l *lab) pauseFor(d time.Duration) {
	l.within("the fault to end", d, func() bool { return l.calm })
}

func (l *lab) workersOf(queue string) []*worker {
	var all []*worker
	for _, p := range l.pools {
		if p.queue.name == queue {
			all = append(all, p.workers...)
		}
	}
	return all
}

func (l *lab) itemOf(message string) (*producer, *Item) {
	for _, p := range l.producers {
		for i := range p.items {
			if p.items[i].Message == message {
				return p, &p.items[i]
			}
		}
	}
	return nil, nil
}

// aim hands a fault to the handler that works on the event's delivery, or will.
func (l *lab) aim(a *armed, e *Event, target *worker) {
	if a.fault.Worker != "" || e.Tag == 0 { // whatever that worker does now
		for _, j := range l.sortedJobs() {
			if j.worker == target {
				j.armed = append(j.armed, a)
				j.interrupt(a)
				return
			}
		}
		return
	}
	t := l.byQueue[e.Queue]
	if t == nil {
		return
	}
	key := leaseKey{e.Queue, t.source.Incarnation, e.Tag}
	if j := l.jobs[key]; j != nil {
		j.armed = append(j.armed, a)
		return
	}
	l.pending[key] = append(l.pending[key], a)
}

// interrupt makes a sleeping handler meet a crash now and not when it wakes.
func (j *job) interrupt(a *armed) {
	if a.fault.Kind == FaultCrash {
		j.doomed = errors.New("crash")
		j.ctx.kill(j.worker.lab)
	}
}

// kill ends a worker as kill -9 would: its handlers crash where they are, and its
// consumer is gone until a new incarnation starts.
func (l *lab) kill(a *armed, k *worker) {
	if k == nil {
		return
	}
	for _, j := range l.sortedJobs() {
		if j.worker == k {
			j.doomed, j.killed = errKilled, true
			if l.killedJobs == nil {
				l.killedJobs = map[int]bool{}
			}
			l.killedJobs[j.number] = true
			j.ctx.kill(l)
		}
	}
	k.stop()
	l.pauseFor(a.fault.For)
	k.start()
}

func (l *lab) pauseWorker(a *armed, k *worker) {
	k.paused++
	e := k.event(KindPause)
	e.Cause, e.Detail = a.event, a.fault.For.String()
	k.emit(e)
	l.rt.AfterFunc(a.fault.For, func() {
		if k.paused > 0 && !l.over {
			k.paused--
			k.emit(k.event(KindResume))
		}
	})
}

func (l *lab) deleteQueue(name string, gone time.Duration) {
	ctx := context.Background()
	if _, err := l.broker.DeleteQueue(ctx, name); err != nil {
		return
	}
	l.pauseFor(gone)
	q := l.queue(name)
	_ = insist(func() error { return l.broker.DeclareQueue(ctx, name, q.config) })
	for _, k := range l.workersOf(name) {
		k.start()
	}
}

// pendingPut keeps the fault for the producer that has just emitted its put.
func (l *lab) pendingPut(a *armed) { l.points = append(l.points, a) }

// lostAnswer takes the fault that makes the answer of the put of event n get lost.
func (l *lab) lostAnswer(n int) *armed {
	for i, a := range l.points {
		if a.fault.Kind == FaultPutUnknown && a.event > n {
			l.points = slices.Delete(l.points, i, i+1)
			return a
		}
	}
	return nil
}

// probe crashes an actor of the broker when it comes to an armed point.
func (l *lab) probe(point string) {
	if l.spec.probed != nil {
		l.spec.probed(point)
	}
	if l.rt.search != nil {
		l.rt.search.point(point)
	}
	for i, a := range l.points {
		f := a.fault
		if l.over || !f.strikesAt(point) {
			continue
		}
		if a.passed++; a.passed <= f.Count {
			continue
		}
		l.points = slices.Delete(l.points, i, i+1)
		l.emit(Event{Kind: KindActor, Detail: point, Cause: a.event})
		l.actorDown = true
		l.hit(crashHit(point))
		panic(&crash{"actor crash: " + point})
	}
}

// crashHit is the item of the must-hit list that a crash at a point is.
func crashHit(point string) string {
	switch actor, _, _ := strings.Cut(point, " "); actor {
	case "queue":
		return HitQueueCrash
	case "router":
		return HitRouterCrash
	case "consumer":
		return HitConsumerCrash
	}
	return HitRoomCrash
}

// point is a place of the handler where its faults strike, in their order.
func (j *job) point(at string) {
	j.at = at
	j.stepOn()
	l := j.worker.lab
	for len(j.armed) > 0 {
		a := j.armed[0]
		j.armed = j.armed[1:]
		if l.calm || l.over {
			continue
		}
		j.suffer(a)
		j.stepOn()
	}
}

// suffer is what one fault does to the handler.
func (j *job) suffer(a *armed) {
	l, f := j.worker.lab, a.fault
	j.last = max(j.last, a.event)
	switch f.Kind { // what the plan does to a handler is not its own manners
	case FaultHang, FaultZombie, FaultAckLate, FaultExtendLate, FaultIgnore, FaultReorder:
		j.excused = true
	}
	switch f.Kind {
	case FaultCrash:
		panic(&crash{"crash at " + j.at})
	case FaultHang:
		j.hang(a, f.For)
	case FaultZombie:
		j.emitFault(KindHang, a, "until its lease is over")
		_ = l.wait("its lease to be over", nil, func() bool { return j.over || l.calm || j.doomed != nil })
		j.ignores = true
	case FaultSlow:
		_ = j.sleep(f.For)
	case FaultNack:
		j.verdict = errors.New("nack of the plan")
	case FaultReject:
		j.verdict = postroom.Permanent(errors.New("reject of the plan"))
	case FaultDoubleAck:
		for range 2 {
			_ = j.d.Ack(context.Background())
		}
	case FaultAckLate:
		j.toDeadline()
	case FaultExtendLate:
		j.toDeadline()
		_, _ = j.d.Touch(context.Background())
	case FaultIgnore:
		j.ignores = true
	case FaultReorder:
		j.keep = f.Count
	}
}

func (j *job) emitFault(k Kind, a *armed, detail string) {
	e := j.event(k)
	e.Message, e.Tag, e.Detail, e.Cause = j.name, j.d.Tag, detail, a.event
	j.last = j.worker.emitOf(j.story, e)
	j.noteWork()
}

// hang stops the handler, whatever its context says.
func (j *job) hang(a *armed, d time.Duration) {
	l := j.worker.lab
	end := func() bool { return l.calm || j.doomed != nil }
	if d == 0 {
		j.emitFault(KindHang, a, "until the calm")
		_ = l.wait("the calm", nil, end)
		return
	}
	j.emitFault(KindHang, a, d.String())
	l.within("its hang to end", d, end)
}

// toDeadline waits until exactly the deadline of its lease, as it then is.
func (j *job) toDeadline() {
	l := j.worker.lab
	for !j.over && !l.calm && j.doomed == nil {
		t := l.byQueue[j.key.queue]
		if t == nil {
			return
		}
		n := t.book.byTag[j.d.Tag]
		if n == nil || n.deadline.IsZero() || !n.deadline.After(l.rt.now) {
			return
		}
		l.within("its deadline", n.deadline.Sub(l.rt.now), func() bool { return l.calm || j.doomed != nil })
	}
}

var _ messages.Listener = (*lab)(nil).listen
