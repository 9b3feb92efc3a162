package simulation

import (
	"context"
	"fmt"
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
// promised of a replay, the plan's faults are left out, and an hour takes an hour.
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
		postroom.WithLedger(func(s *messages.Source, c messages.QueueConfig, at time.Time, o ledger.Options) (made actors.Ledger) {
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
		j.number = j.emit(KindStart, "")
	})
	defer func() {
		value := recover()
		l.locked(func() {
			if l.honours != nil {
				l.honours.check(l, j)
			}
			delete(l.jobs, j.key)
			if value != nil {
				k.down++
				j.emit(KindCrash, "handler panics")
				return
			}
			j.emit(KindReturn, errorRole(err))
		})
		if value != nil {
			panic(value)
		}
	}()
	l.labelled(j, func(context.Context) { err = k.pool.mode.handler(j.ctx, d) })
	return err
}
