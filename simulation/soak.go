package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// Real is the user's function on real goroutines and the wall clock, with all
// oracles on: a soak. One worker of this mode makes the whole run real. Nothing is
// promised of a replay, and an hour takes an hour. Of the plan's faults those strike that
// a handler can meet by itself: crash, hang, zombie and ack-late (its ack comes when its
// lease is over), slow, nack and reject, at their events; the others are left out.
func Real(handler postroom.Handler) Mode { return Mode{kind: modeReal, handler: handler} }

// soak is what a real run has besides a laboratory: everything that touches the
// laboratory holds its lock, because here many goroutines do.
type soak struct {
	mu    sync.Mutex
	clock *soakRuntime
}

// soakRuntime is the real one with a clock that begins at [Epoch], so that events
// count from 0.
type soakRuntime struct {
	*actorkit.Real
	elapsed func() time.Duration
}

// Now implements [actorkit.Runtime].
func (r *soakRuntime) Now() time.Time { return Epoch.Add(r.elapsed()) }

// Since implements [actorkit.Runtime].
func (r *soakRuntime) Since(t time.Time) time.Duration { return r.Now().Sub(t) }

// soakPoll is how often a real run looks whether it is over.
const soakPoll = 5 * time.Millisecond

// catchUp sets the laboratory's clock to the real one; the lock is held.
func (l *lab) catchUp() {
	if now := l.soak.clock.Now(); now.After(l.rt.now) {
		l.rt.setNow(now)
	}
}

// locked runs fn under the laboratory's lock.
func (l *lab) locked(fn func()) {
	l.soak.mu.Lock()
	defer l.soak.mu.Unlock()
	l.catchUp()
	fn()
}

// realFaults are the faults that strike in a soak.
var realFaults = []FaultKind{FaultCrash, FaultHang, FaultZombie, FaultSlow, FaultNack, FaultReject, FaultAckLate}

// armReal leaves only those in the plan, and of them the ones that wait for an event.
func (l *lab) armReal() {
	l.byKind = [kinds][]*armed{}
	l.plan.Faults = slices.DeleteFunc(l.plan.Faults, func(f Fault) bool {
		return !slices.Contains(realFaults, f.Kind) || f.Anchor.Event == noEvent
	})
	for i := range l.plan.Faults {
		l.arm(&l.plan.Faults[i])
	}
}

// isReal reports whether a worker of the spec wants the wall clock.
func (l *lab) isReal() bool {
	for _, p := range l.pools {
		if p.mode.kind == modeReal {
			return true
		}
	}
	return false
}

// live runs the world on the wall clock.
func (l *lab) live() {
	real := actorkit.NewReal(actorkit.RealConfig{})
	defer real.Close()
	l.soak = &soak{clock: &soakRuntime{Real: real, elapsed: stopwatch()}}
	l.result.Replay.BestEffort, l.result.Replay.Why = true, "real time"
	ctx := context.Background()
	b, err := postroom.Open(append([]postroom.Option{
		postroom.WithRuntime(l.soak.clock, actorkit.NewSystem(l.soak.clock, nil)),
		postroom.WithListener(func(n postroom.Notice) { l.locked(func() { l.listen(n) }) }),
		postroom.WithLedger(func(s *messages.Source, c *messages.QueueConfig, at time.Time, o ledger.Options) (made actors.Ledger) {
			l.locked(func() { made = &lockedTwin{lab: l, twin: l.newTwin(s, c, at, o), Locker: &l.soak.mu} })
			return made
		}),
	}, l.policy...)...)
	if err != nil {
		l.fail(fmt.Errorf("simulation: open: %w", err))
		return
	}
	l.broker = b
	if _, err := b.Subscribe(ctx, "$sys.dead.#", func(s string, e *postroom.Event) { l.locked(func() { l.heard(s, e) }) }); err != nil {
		l.fail(fmt.Errorf("simulation: subscribe: %w", err))
		return
	}
	for _, q := range l.queues {
		if err := b.DeclareQueue(ctx, q.name, q.config); err != nil {
			l.fail(fmt.Errorf("simulation: %w", err))
			return
		}
	}
	for _, p := range l.pools {
		for _, k := range p.workers {
			k.alive = true
			c, err := b.Consume(ctx, p.queue.name, k.handleReal, p.config)
			if err != nil {
				l.fail(fmt.Errorf("simulation: %w", err))
				return
			}
			l.locked(func() { k.consumer = c; k.known(c.Tag) })
		}
	}
	var producers sync.WaitGroup
	for _, p := range l.producers {
		producers.Go(p.runReal)
	}
	producers.Wait()
	began := l.soak.clock.Now()
	for {
		done := false
		l.locked(func() {
			if l.honours != nil {
				l.honours.look(l)
			}
		})
		l.locked(func() { done = l.over || l.drained(l.queues) && len(l.jobs) == 0 })
		if done {
			break
		}
		if late := l.soak.clock.Now().Sub(began); late > l.calmFor {
			l.locked(func() { l.explainStuck(late) })
			break
		}
		_ = l.soak.clock.Sleep(ctx, soakPoll)
	}
	_ = l.soak.clock.Sleep(ctx, soakPoll) // announcements on their way arrive
	if l.leftovers != nil {
		_ = l.soak.clock.Sleep(ctx, l.leftovers.after)
	}
	l.locked(l.judgeEnd)
	l.locked(func() { l.emit(Event{Kind: KindEnd, Cause: l.events}) })
	patience, cancel := l.soak.clock.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.Close(patience); err != nil {
		l.locked(func() { l.alarm("L1", "broker does not close", "", "", err.Error()) })
	}
	l.locked(func() { l.result.Virtual = l.now() })
}

// runReal puts a producer's items on the wall clock.
func (p *producer) runReal() {
	l, ctx := p.lab, context.Background()
	for i := range p.items {
		it := &p.items[i]
		if d := Epoch.Add(it.At).Sub(l.soak.clock.Now()); d > 0 {
			_ = l.soak.clock.Sleep(ctx, d)
		}
		e := p.envelope(it)
		l.locked(func() {
			l.begins(it, &e)
			l.emit(Event{Kind: KindPut, Queue: it.Queue, Message: it.Message, Cause: l.story(it.Message).last})
		})
		r, err := l.broker.Put(ctx, it.Queue, e)
		l.locked(func() { l.answered(it, &r, err) })
	}
}

// handleReal is the handler that the broker calls in mode Real.
func (k *worker) handleReal(ctx context.Context, d *postroom.Delivery) (err error) {
	l := k.lab
	j := &job{worker: k, d: d, key: leaseKey{d.Queue(), d.From.Incarnation, d.Tag}}
	l.locked(func() {
		j.story = l.storyOf(d.ID)
		j.name = j.story.name
		j.ctx, j.twin = l.jobContext(ctx, j), l.twinOf(j.key)
		l.jobs[j.key] = j
		l.checkBody(j)
		j.began = l.rt.now
		j.armed = l.pending[j.key]
		delete(l.pending, j.key)
		j.number = j.emit(KindStart, "")
	})
	defer func() {
		value := recover()
		l.locked(func() {
			if l.honours != nil {
				l.honours.check(l, j)
			}
			delete(l.jobs, j.key)
			if value == nil {
				return
			}
			text := "handler panics"
			if c, ours := value.(*crash); ours {
				text = c.why
			}
			if j.effects > 0 && !j.over {
				l.hit(HitCrashAfterEffect)
			}
			k.down++
			j.emit(KindCrash, text)
		})
		if value != nil {
			panic(value)
		}
	}()
	j.realPoint("start")
	l.labelled(j, func(context.Context) { err = k.pool.mode.handler(j.ctx, d) })
	l.locked(func() { j.emit(KindReturn, errorRole(err)) })
	j.realPoint("return")
	if j.verdict != nil && err == nil {
		err = j.verdict
	}
	return err
}

// realPoint is a place of the handler where its faults strike, on its own goroutine.
func (j *job) realPoint(at string) {
	l := j.worker.lab
	for {
		var a *armed
		l.locked(func() {
			j.at = at
			if len(j.armed) > 0 && !l.over {
				a, j.armed = j.armed[0], j.armed[1:]
				j.last = max(j.last, a.event)
			}
		})
		if a == nil {
			return
		}
		j.sufferReal(a)
	}
}

// sufferReal is what one fault does to a handler on the wall clock.
func (j *job) sufferReal(a *armed) {
	l, f := j.worker.lab, a.fault
	ctx := context.Background()
	switch f.Kind {
	case FaultCrash:
		panic(&crash{"crash at " + j.at})
	case FaultHang:
		l.locked(func() { j.excused = true; j.emitFault(KindHang, a, f.For.String()) })
		_ = l.soak.clock.Sleep(ctx, f.For)
	case FaultZombie, FaultAckLate:
		l.locked(func() { j.excused = true; j.emitFault(KindHang, a, "until its lease is over") })
		for over := false; !over; {
			_ = l.soak.clock.Sleep(ctx, soakPoll)
			// A heartbeat would keep it for ever.
			l.locked(func() { over = j.over || l.over || l.rt.now.Sub(j.began) > zombieMax })
		}
	case FaultSlow:
		_ = l.soak.clock.Sleep(j.ctx, f.For)
	case FaultNack:
		j.verdict = errors.New("nack of the plan")
	case FaultReject:
		j.verdict = postroom.Permanent(errors.New("reject of the plan"))
	}
}

// zombieMax bounds the hang of a handler whose lease is kept by its heartbeat.
const zombieMax = 5 * time.Second
