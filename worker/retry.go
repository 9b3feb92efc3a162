package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom/messages"
)

// Defaults of [Policy].
const (
	DefaultAttempts = 3                      // a queue's MaxAttempts
	DefaultDeadline = 30 * time.Second       // a queue's AckTimeout: later the work may be somebody else's
	DefaultBase     = 100 * time.Millisecond // a tenth of a queue's: nobody else can do something meanwhile
	DefaultCap      = 5 * time.Second
)

// Policy says when [Retry] goes on. A zero field means its default; what switches a
// bound off is postroom.Unlimited (-1) and must be written.
type Policy struct {
	// Attempts is how many calls there are at most, the first included. Zero: 3.
	Attempts int
	// Deadline bounds all attempts and waits together, from the call of Retry. An
	// earlier deadline of the context counts instead. Zero: 30 s.
	Deadline time.Duration
	// AttemptTimeout bounds each attempt, and is clipped to what is left of the
	// deadline. Zero: what is left. It ends the attempt's context; a function that
	// does not look at it cannot be interrupted.
	AttemptTimeout time.Duration
	// Base and Cap bound the wait after failure k: uniform in [0, min(Cap,
	// Base·2^(k-1))], full jitter. Zero: 100 ms and 5 s. A Base above Cap means Cap.
	Base, Cap time.Duration
	// Clock is what all this is measured on. nil: the machine's.
	Clock Clock
	// Draw is where the jitter comes from. nil: seeded by the operating system.
	Draw Draw
}

// Why a Retry stopped, for errors.Is; see [StoppedError].
var (
	ErrAttempts = errors.New("attempts spent")
	ErrBudget   = errors.New("retry budget spent")
	// ErrDeadline: the deadline has passed.
	ErrDeadline = errors.New("deadline passed")
	// ErrNoTime: the wait before the next attempt would reach the deadline, so it was
	// not begun. It is an ErrDeadline too.
	ErrNoTime = fmt.Errorf("the next wait would reach the deadline: %w", ErrDeadline)
	// ErrInterrupted: the context was cancelled.
	ErrInterrupted = errors.New("interrupted")
)

// StoppedError is a Retry that ended without success although the last failure was
// one to retry. It unwraps to its Reason and to that failure. The last attempt may
// have taken effect, if the failure does not say otherwise: repeat the operation with
// the same identity.
//
// It is itself not [Retryable]: what has been retried here is not retried again by
// the caller's own Retry, unless that marks it on purpose. Three layers that each
// allow three attempts would else make 27 calls of one.
type StoppedError struct {
	Reason   error // one of the above
	Attempts int   // calls made; 0 when the deadline had passed before the first
	Elapsed  time.Duration
	Wait     time.Duration // with ErrNoTime, the wait that did not fit
	Last     error         // the last attempt's error, or why the context ended; may be nil
}

func (e *StoppedError) Error() string {
	s := "stopped before the first attempt"
	if e.Attempts > 0 {
		s = fmt.Sprintf("stopped after attempt %d, %s", e.Attempts, e.Elapsed)
	}
	s += ": " + e.Reason.Error()
	if e.Last != nil {
		s += fmt.Sprintf(": %v", e.Last)
	}
	return s
}

// Unwrap returns the reason and the last failure.
func (e *StoppedError) Unwrap() []error { return []error{e.Reason, e.Last} }

// Retryable implements what [IsRetryable] looks for.
func (e *StoppedError) Retryable() bool { return false }

// Hint says what to do.
func (e *StoppedError) Hint() string {
	switch e.Reason {
	case ErrAttempts:
		return "the dependency stayed away for all attempts: let the queue retry later, or look at the last error"
	case ErrBudget:
		return "too much fails for more retries to help: shed load, and let the budget refill"
	case ErrInterrupted:
		return "the caller has gone; nothing more was tried"
	}
	return "no time was left: give it a later deadline, or shorter waits and attempts"
}

// retryable marks an error that another attempt may cure.
type retryable struct{ error }

func (r retryable) Unwrap() error   { return r.error }
func (r retryable) Retryable() bool { return true }

// Retryable marks err as one that another attempt may cure, of an operation that is
// safe to repeat: a dependency that is away, a lost race. A timeout belongs here if the
// operation has an identity that makes a repetition harmless. Retryable(nil) is nil.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return retryable{err}
}

// IsRetryable reports whether err is marked: the outermost error with a Retryable
// method decides.
func IsRetryable(err error) bool {
	var r interface{ Retryable() bool }
	return errors.As(err, &r) && r.Retryable()
}

// Retry calls fn until it succeeds, fails with an error that is not [Retryable], or
// more calls are not worth it. Before every call but the first it spends a token of
// the budget, which may be nil: then only the policy bounds the calls.
//
// fn gets the number of the attempt (1, 2, …) and a context that ends with the
// attempt's timeout, and must give every attempt the same operation identity.
//
// Errors: fn's own, unchanged, if it is not Retryable; [*StoppedError];
// [*postroom.ArgumentError].
func Retry(ctx context.Context, p Policy, budget *Budget, fn func(ctx context.Context, attempt int) error) error {
	p, err := p.check()
	if err != nil {
		return err
	}
	if fn == nil {
		return &messages.ArgumentError{Op: "retry", Argument: "fn", Problem: "must not be nil"}
	}
	clock := orSystem(p.Clock)
	start := clock.Now()
	stopped := &StoppedError{}
	stop := func(reason error) error {
		stopped.Reason, stopped.Elapsed = reason, clock.Now().Sub(start)
		return stopped
	}
	now := start
	// left is the time until the nearer deadline; false when there is none.
	left := func() (time.Duration, bool) {
		now = clock.Now()
		d, bounded := p.Deadline-now.Sub(start), p.Deadline != messages.Unlimited
		if at, ok := ctx.Deadline(); ok && (!bounded || at.Sub(now) < d) {
			d, bounded = at.Sub(now), true
		}
		return d, bounded
	}

	for attempt := 1; ; attempt++ {
		remaining, bounded := left()
		if bounded && remaining <= 0 {
			return stop(ErrDeadline)
		}
		if ctx.Err() != nil {
			stopped.Last = context.Cause(ctx)
			return stop(ErrInterrupted)
		}
		stopped.Attempts = attempt
		err := p.attempt(ctx, clock, remaining, bounded, attempt, fn)
		if err == nil {
			if budget != nil {
				budget.Success()
			}
			return nil
		}
		if !IsRetryable(err) {
			return err
		}
		stopped.Last = err
		if attempt == p.Attempts {
			return stop(ErrAttempts)
		}
		if remaining, bounded = left(); bounded && remaining <= 0 {
			return stop(ErrDeadline)
		}
		if ctx.Err() != nil {
			return stop(ErrInterrupted)
		}
		if p.Draw == nil {
			p.Draw = orSystemDraw(nil, "retry")
		}
		wait := backoff(p.Base, p.Cap, attempt, p.Draw())
		if bounded && wait >= remaining {
			stopped.Wait = wait
			return stop(ErrNoTime)
		}
		// Spent before the wait: it is better to know at once than after it.
		if budget != nil && !budget.Spend(now) {
			return stop(ErrBudget)
		}
		if clock.Sleep(ctx, wait) != nil {
			if remaining, bounded = left(); bounded && remaining <= 0 {
				return stop(ErrDeadline)
			}
			return stop(ErrInterrupted)
		}
	}
}

// attempt makes one call, with its timeout clipped to what is left.
func (p *Policy) attempt(ctx context.Context, clock Clock, left time.Duration, bounded bool, n int, fn func(context.Context, int) error) error {
	timeout := p.AttemptTimeout
	if bounded && (timeout == 0 || left < timeout) {
		timeout = left
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = clock.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return fn(ctx, n)
}

// check returns p with its defaults, or what is wrong with it.
func (p Policy) check() (Policy, error) {
	bad := func(field, problem string) (Policy, error) {
		return p, &messages.ArgumentError{Op: "retry", Argument: field, Problem: problem}
	}
	switch {
	case p.Attempts < messages.Unlimited:
		return bad("Attempts", "must be positive, 0 for the default or Unlimited (-1)")
	case p.Deadline < messages.Unlimited:
		return bad("Deadline", "must be positive, 0 for the default or Unlimited (-1)")
	case p.AttemptTimeout < 0:
		return bad("AttemptTimeout", "must not be negative")
	case p.Base < 0:
		return bad("Base", "must not be negative")
	case p.Cap < 0:
		return bad("Cap", "must not be negative")
	}
	if p.Attempts == 0 {
		p.Attempts = DefaultAttempts
	}
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	or(&p.Deadline, DefaultDeadline)
	or(&p.Base, DefaultBase)
	or(&p.Cap, DefaultCap)
	return p, nil
}
