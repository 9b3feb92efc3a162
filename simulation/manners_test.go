package simulation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// mannered is a world whose one lease is lost after 2 s, and what it expects.
func mannered(mode func(postroom.Handler) Mode, handler postroom.Handler, e ...Expectation) Spec {
	return Spec{Name: "manners", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 200 * time.Millisecond, MaxAttempts: 1})
		w.Workers("w", 1, q, mode(handler), postroom.ConsumerConfig{NoHeartbeat: true})
		w.Produce("api", q, Burst(2), nil)
		w.Expect(e...)
		w.Calm(time.Hour, Drained(q))
	}}
}

// SIMULATION 1.3: HandlerHonoursContext, in each mode in which a handler is the user's.
func TestHandlerHonoursContext(t *testing.T) {
	honours := func(ctx context.Context, _ *postroom.Delivery) error { return Sleep(ctx, time.Second) }
	deaf := func(ctx context.Context, _ *postroom.Delivery) error {
		return Sleep(context.WithoutCancel(ctx), time.Second)
	}
	plainDeaf := func(context.Context, *postroom.Delivery) error { time.Sleep(time.Second); return nil }
	for _, c := range []struct {
		name    string
		mode    func(postroom.Handler) Mode
		handler postroom.Handler
		within  time.Duration
		found   bool
	}{
		{"inline, honours", Inline, honours, 10 * time.Millisecond, false},
		{"inline, deaf", Inline, deaf, 10 * time.Millisecond, true},
		{"inline, deaf for long enough", Inline, deaf, time.Second, false},
		{"bubble, honours", Bubble, honours, 10 * time.Millisecond, false},
		{"bubble, deaf", Bubble, plainDeaf, 10 * time.Millisecond, true},
		{"real, honours", Real, honours, 500 * time.Millisecond, false},
		{"real, deaf", Real, plainDeaf, 300 * time.Millisecond, true},
	} {
		r := mannered(c.mode, c.handler, HandlerHonoursContext(c.within)).In(t).Run(1)
		if !c.found {
			assert.False(t, r.Failed(), "%s: %v %v", c.name, r.Violations, r.Err)
			continue
		}
		if assert.NotEmpty(t, r.Violations, c.name) {
			assert.Equal(t, "user/HandlerHonoursContext/expected", r.Violations[0].Signature.String(), c.name)
			assert.Contains(t, r.Violations[0].Text, "after its context has ended (lease lost", c.name)
		}
	}
}

// A handler that the plan hangs has the manners that it has.
func TestTheHangsOfThePlanAreExcused(t *testing.T) {
	s := small(AnyWorkerFault())
	build := s.Build
	s.Build = func(w *World) {
		build(w)
		w.Expect(HandlerHonoursContext(time.Millisecond))
	}
	for seed := range uint64(200) {
		r := s.Run(seed)
		passes(t, &r)
	}
}

// SIMULATION 1.3: NoGoroutineLeft, in each mode in which a handler is the user's.
func TestNoGoroutineLeft(t *testing.T) {
	never := make(chan struct{})
	leaks := func(ctx context.Context, _ *postroom.Delivery) error {
		go func() { <-ctx.Done(); <-make(chan struct{}) }()
		return errors.New("too hard")
	}
	realLeaks := func(context.Context, *postroom.Delivery) error { go func() { <-never }(); return nil }
	defer close(never)
	waits := func(context.Context, *postroom.Delivery) error {
		go func() { time.Sleep(100 * time.Millisecond) }()
		return nil
	}
	for _, c := range []struct {
		name    string
		mode    func(postroom.Handler) Mode
		handler postroom.Handler
		found   string
	}{
		{"inline, ends", Inline, func(ctx context.Context, _ *postroom.Delivery) error {
			Go(ctx, func(ctx context.Context) { _ = Sleep(ctx, 100*time.Millisecond) })
			return nil
		}, ""},
		{"inline, stays", Inline, func(ctx context.Context, _ *postroom.Delivery) error {
			Go(ctx, func(ctx context.Context) { _ = Sleep(context.WithoutCancel(ctx), time.Hour) })
			return nil
		}, "1 started by simulation.Go in m1; 1 started by simulation.Go in m2"},
		{"bubble, ends", Bubble, waits, ""},
		{"bubble, stays", Bubble, leaks, "2 in simulation.TestNoGoroutineLeft.func1.1"},
		{"real, ends", Real, waits, ""},
		{"real, stays", Real, realLeaks, "2 in simulation.TestNoGoroutineLeft.func2.1"},
	} {
		r := mannered(c.mode, c.handler, NoGoroutineLeft(300*time.Millisecond)).In(t).Run(1)
		if c.found == "" {
			assert.False(t, r.Failed(), "%s: %v %v", c.name, r.Violations, r.Err)
			continue
		}
		if assert.NotEmpty(t, r.Violations, "%s: %s", c.name, r.Err) {
			assert.Equal(t, "user/NoGoroutineLeft/expected", r.Violations[0].Signature.String(), c.name)
			assert.Equal(t, "300ms after the last handler: "+c.found, r.Violations[0].Text, c.name)
		}
	}
}

// Without that oracle a goroutine that never ends is an error of the run, and not the end
// of the test's process.
func TestALeakInABubbleIsSaid(t *testing.T) {
	r := mannered(Bubble, func(context.Context, *postroom.Delivery) error {
		go func() { <-make(chan struct{}) }()
		return nil
	}).In(t).Run(1)
	require.Contains(t, r.Err, "never ends; Expect(NoGoroutineLeft(time.Minute)) names it")
}
