package simulation

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
)

// What follows is for handlers. In production each does the plain thing, so that a
// handler written with them is the same there and here.

// isInline reports that the handler runs on the simulation's own thread.
func (j *job) isInline() bool { return j != nil && j.bubble == nil && j.worker.lab.soak == nil }

// Sleep waits for d on the clock of the handler that ctx belongs to: the virtual one
// in the simulation, else the wall clock. It returns nil, or the cause when ctx ends
// first.
func Sleep(ctx context.Context, d time.Duration) error {
	if j := jobOf(ctx); j.isInline() {
		if j.ignores {
			ctx = context.WithoutCancel(ctx)
		}
		err := j.worker.lab.rt.Sleep(ctx, d)
		j.stepOn()
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Now is the time on the clock of the handler that ctx belongs to.
func Now(ctx context.Context) time.Time {
	if j := jobOf(ctx); j.isInline() {
		return j.worker.lab.rt.now
	}
	return time.Now()
}

// WithTimeout is context.WithTimeout on that clock.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if j := jobOf(ctx); j.isInline() {
		return j.worker.lab.rt.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}

// Point names a place at which a handler may be made to crash or hang, such as
// between two effects. A fault is anchored there as to an effect: its event is an
// effect of the external "point" with the name as key. In production it does nothing.
func Point(ctx context.Context, name string) {
	j := jobOf(ctx)
	if j == nil || j.worker.lab.soak != nil {
		return
	}
	_ = Enter(ctx, func(context.Context) error {
		e := j.worker.event(KindEffect)
		e.Queue, e.Message, e.Tag, e.Attempt, e.Deliveries = j.d.Queue(), j.name, j.d.Tag, j.d.Attempt, j.d.Deliveries
		e.Detail, e.Cause = "point "+name, j.last
		j.last = j.worker.emitOf(j.story, e)
		j.noteWork()
		j.point(name)
		return nil
	})
}

// Rand is a random number for a purpose. In the simulation it depends on the seed, the
// message, its delivery and the purpose, so that a replay draws the same.
func Rand(ctx context.Context, purpose string) uint64 {
	if j := jobOf(ctx); j != nil {
		return actorkit.Mix(j.worker.lab.plan.Seed, purpose, j.name, uint64(j.d.Deliveries))
	}
	return maphash.String(maphash.MakeSeed(), purpose)
}

// Go runs fn beside the handler: as a coroutine on the simulation's one thread, or as
// a goroutine in a bubble and in production.
func Go(ctx context.Context, fn func(ctx context.Context)) {
	if j := jobOf(ctx); j.isInline() {
		ended := j.worker.lab.leftovers.begun(j)
		j.worker.lab.rt.Go("child of "+j.worker.name, func() {
			defer ended()
			defer j.childEnded()
			fn(ctx)
		})
		return
	}
	go fn(ctx)
}

// childEnded is the end of a child, deferred. A child that the plan crashes takes its
// worker with it, as a goroutine that panics takes its process; one of a worker that was
// killed just ends.
func (j *job) childEnded() {
	value := recover()
	if value == nil {
		return
	}
	c, ours := value.(*crash)
	if !ours {
		panic(value)
	}
	if j.doomed == nil {
		j.doomed = c
		j.ctx.kill(j.worker.lab)
	}
}
