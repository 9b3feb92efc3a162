package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
)

// Limits of one run that nobody has set: a simulation never hangs, it stops here
// and says who waits for what.
const (
	DefaultVirtualTime = 30 * 24 * time.Hour
	DefaultStepsMax    = 5_000_000
)

// World is one simulated run: a clock that jumps, one thread, and what was opened
// in it. Use it only inside the function given to [Run], and only from there and
// from handlers: a goroutine of your own that calls into the broker is found out.
type World struct {
	runtime *Runtime
	system  *actorkit.System
	brokers []*postroom.Broker
	named   int
	lab     *lab // nil in Run
}

// Run runs fn, and every actor and handler of the brokers it opens, on one thread
// in virtual time. The seed decides who takes each step; the same seed gives the
// same run. When fn returns, the brokers it left open are closed, and Run returns
// when nothing moves any more.
//
// Errors: [*LimitError] after [DefaultVirtualTime] or [DefaultStepsMax] steps,
// [*StuckError] when fn or a Close waits for something that never comes; both name
// the waits. A panic in fn comes out of Run.
func Run(seed uint64, fn func(w *World)) error {
	rt := NewRuntime(seed)
	defer rt.Close()
	w := &World{runtime: rt, system: actorkit.NewSystem(rt, nil)}
	rt.Go("main", func() {
		fn(w)
		w.close()
	})
	return rt.Run(DefaultVirtualTime, DefaultStepsMax)
}

func (w *World) close() {
	for _, b := range w.brokers {
		// Handlers that sleep get their time: in the simulation an hour costs nothing.
		ctx, cancel := w.WithTimeout(context.Background(), 24*time.Hour)
		if err := b.Close(ctx); err != nil {
			w.runtime.Note(fmt.Sprintf("close: %v", err))
		}
		cancel()
	}
}

// Open is [postroom.Open] in this world. The broker is closed when the run ends, if
// it was not before. Errors: as for postroom.Open.
func (w *World) Open(options ...postroom.Option) (*postroom.Broker, error) {
	rt, system := w.runtime, w.system
	if len(w.brokers) > 0 { // names must differ within one actor system
		system = actorkit.NewSystem(rt, nil)
	}
	b, err := postroom.Open(append(options, postroom.WithRuntime(rt, system))...)
	if err != nil {
		return nil, err
	}
	w.brokers = append(w.brokers, b)
	return b, nil
}

// MustOpen is Open for examples and tests: it panics on an error.
func (w *World) MustOpen(options ...postroom.Option) *postroom.Broker {
	b, err := w.Open(options...)
	if err != nil {
		panic(err)
	}
	return b
}

// Seed is what the run was started with.
func (w *World) Seed() uint64 { return w.runtime.Seed() }

// Now is the virtual time; a run begins at [Epoch].
func (w *World) Now() time.Time { return w.runtime.Now() }

// Sleep lets virtual time pass.
func (w *World) Sleep(d time.Duration) {
	// Without an end of its context it cannot fail.
	_ = w.runtime.Sleep(context.Background(), d)
}

// Idle waits until everybody else waits for something or has finished, without
// letting time pass: what was set in motion has then arrived.
func (w *World) Idle() { w.runtime.Idle() }

// Go starts fn beside the caller, as a producer or a client would run.
func (w *World) Go(fn func()) {
	w.named++
	w.runtime.Go(fmt.Sprintf("go-%d", w.named), fn)
}

// WithTimeout is context.WithTimeout in virtual time. A deadline of the standard
// library would never come, and is refused.
func (w *World) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return w.runtime.WithTimeout(ctx, d)
}

// Steps is how many steps were taken so far.
func (w *World) Steps() int { return w.runtime.Steps() }

// TraceHash is a hash over every step so far: equal for equal runs.
func (w *World) TraceHash() uint64 { return w.runtime.TraceHash() }
