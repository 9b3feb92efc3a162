package simulation

import (
	"context"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
)

// deadlineContext is a context whose deadline is on the simulated clock.
//
// It hides a standard cancelled context that does the cancelling. Contexts made
// from it by context.WithCancel and the like find that one through Value and Done
// and hang themselves below it, so they are cancelled with it at once, and no
// goroutine is started to watch us. Their Err says Canceled where ours says
// DeadlineExceeded; context.Cause says DeadlineExceeded for both.
type deadlineContext struct {
	context.Context
	runtime *Runtime
	at      time.Time
}

// deadlineKey finds the nearest deadlineContext.
type deadlineKey struct{}

// Deadline implements [context.Context].
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.at, true }

// Err implements [context.Context].
func (c *deadlineContext) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// Value implements [context.Context].
func (c *deadlineContext) Value(key any) any {
	if key == (deadlineKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// WithTimeout implements [actorkit.Runtime]. An earlier deadline of ctx stays.
func (r *Runtime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	c := &deadlineContext{Context: inner, runtime: r, at: r.now.Add(d)}
	if at, ok := ctx.Deadline(); ok && r.CheckContext(ctx) == nil && at.Before(c.at) {
		c.at = at
		return c, func() { cancel(context.Canceled) }
	}
	if d <= 0 {
		cancel(context.DeadlineExceeded)
		return c, func() {}
	}
	t := r.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return c, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}

// CheckContext implements [actorkit.Runtime]: a deadline must be one that
// [Runtime.WithTimeout] of this very runtime has set.
func (r *Runtime) CheckContext(ctx context.Context) error {
	at, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	if ours, ok := ctx.Value(deadlineKey{}).(*deadlineContext); ok && ours.runtime == r && ours.at.Equal(at) {
		return nil
	}
	return &actorkit.ForeignDeadlineError{Deadline: at}
}
