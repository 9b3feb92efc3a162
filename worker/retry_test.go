package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/worker"
)

var errAway = errors.New("away")

func budget(t testing.TB, c worker.BudgetConfig) *worker.Budget {
	t.Helper()
	b, err := worker.NewBudget(c)
	require.NoError(t, err)
	return b
}

// finite is the document's budget: it does not replenish.
func finite(t testing.TB, tokens int) *worker.Budget {
	return budget(t, worker.BudgetConfig{Tokens: tokens, PerSuccess: worker.None, PerSecond: worker.None})
}

// failing counts its calls and always fails in a way that may pass.
func failing(calls *int) func(context.Context, int) error {
	return func(context.Context, int) error {
		*calls++
		return worker.Retryable(errAway)
	}
}

func stopped(t *testing.T, err, reason error) *worker.StoppedError {
	t.Helper()
	var s *worker.StoppedError
	require.ErrorAs(t, err, &s)
	require.ErrorIs(t, err, reason)
	assert.NotEmpty(t, postroom.Hint(err))
	return s
}

func TestRetryStopsAtTheAttemptCap(t *testing.T) {
	clock, calls := newStepClock(), 0
	err := worker.Retry(t.Context(), worker.Policy{Attempts: 4, Clock: clock}, nil, failing(&calls))
	s := stopped(t, err, worker.ErrAttempts)
	assert.Equal(t, 4, calls)
	assert.Equal(t, 4, s.Attempts)
	require.ErrorIs(t, err, errAway, "the last failure is in it")
}

func TestRetryReturnsAPermanentErrorAtOnceAndUnchanged(t *testing.T) {
	for _, permanent := range []error{errors.New("invalid"), postroom.Permanent(errAway), context.DeadlineExceeded} {
		calls := 0
		err := worker.Retry(t.Context(), worker.Policy{Clock: newStepClock()}, nil, func(context.Context, int) error {
			calls++
			return permanent
		})
		assert.Equal(t, permanent, err)
		assert.Equal(t, 1, calls)
	}
}

func TestRetryStopsWhenTheBudgetIsSpentOverTwoOperations(t *testing.T) {
	clock, calls := newStepClock(), 0
	b := finite(t, 3)
	policy := worker.Policy{Attempts: 3, Clock: clock}
	stopped(t, worker.Retry(t.Context(), policy, b, failing(&calls)), worker.ErrAttempts)
	assert.Equal(t, 3, calls, "the first operation spends two tokens")
	stopped(t, worker.Retry(t.Context(), policy, b, failing(&calls)), worker.ErrBudget)
	assert.Equal(t, 5, calls, "the second has one")
	stopped(t, worker.Retry(t.Context(), policy, b, failing(&calls)), worker.ErrBudget)
	assert.Equal(t, 6, calls, "a first call costs nothing")
	assert.Equal(t, worker.BudgetStats{Spent: 3, Exhausted: 2}, b.Stats(clock.Now()))
}

func TestRetryWithAnExpiredDeadlineCallsNothing(t *testing.T) {
	clock := newStepClock()
	ctx := deadline{t.Context(), clock.Now()}
	err := worker.Retry(ctx, worker.Policy{Clock: clock}, nil, func(context.Context, int) error {
		t.Error("called")
		return nil
	})
	s := stopped(t, err, worker.ErrDeadline)
	assert.Zero(t, s.Attempts)
}

// deadline is a context with a deadline on a stepClock.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func TestRetryStopsBeforeAWaitThatReachesTheDeadline(t *testing.T) {
	const base = 100 * time.Millisecond
	for _, row := range []struct {
		left  time.Duration // after the first failure
		calls int
	}{
		{base - 1, 1}, // past it
		{base, 1},     // exactly at it
		{base + 1, 2}, // the second attempt has a nanosecond
	} {
		clock, calls := newStepClock(), 0
		b := finite(t, 10)
		// mostDraw waits for the whole bound.
		policy := worker.Policy{Deadline: row.left, Base: base, Clock: clock, Draw: mostDraw}
		err := worker.Retry(t.Context(), policy, b, failing(&calls))
		s := stopped(t, err, worker.ErrDeadline)
		require.ErrorIs(t, err, worker.ErrNoTime, "it says why")
		assert.Equal(t, row.calls, calls, "with %s left", row.left)
		assert.Equal(t, base<<(row.calls-1), s.Wait)
		assert.Equal(t, time.Duration(row.calls-1)*base, s.Elapsed, "it did not wait")
		assert.EqualValues(t, row.calls-1, b.Stats(clock.Now()).Spent, "nor spend")
	}
}

func TestRetryStopsWhenAnAttemptUsedTheDeadlineUp(t *testing.T) {
	clock, calls := newStepClock(), 0
	err := worker.Retry(t.Context(), worker.Policy{Deadline: time.Second, Clock: clock}, nil, func(context.Context, int) error {
		calls++
		clock.Step(time.Second)
		return worker.Retryable(errAway)
	})
	s := stopped(t, err, worker.ErrDeadline)
	assert.NotErrorIs(t, err, worker.ErrNoTime)
	assert.Equal(t, 1, calls)
	assert.Equal(t, time.Second, s.Elapsed)
}

// timeouts is a clock that notes the timeouts it was asked for.
type timeouts struct {
	*stepClock
	asked []time.Duration
}

func (c *timeouts) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c.asked = append(c.asked, d)
	return c.stepClock.WithTimeout(ctx, d)
}

func TestAnAttemptsTimeoutIsClippedToWhatIsLeft(t *testing.T) {
	clock := &timeouts{stepClock: newStepClock()}
	slow := func(context.Context, int) error {
		clock.Step(400 * time.Millisecond)
		return worker.Retryable(errAway)
	}
	policy := worker.Policy{Attempts: 9, Deadline: time.Second, AttemptTimeout: 500 * time.Millisecond, Clock: clock, Draw: noDraw}
	stopped(t, worker.Retry(t.Context(), policy, nil, slow), worker.ErrDeadline)
	ms := time.Millisecond
	assert.Equal(t, []time.Duration{500 * ms, 500 * ms, 200 * ms}, clock.asked)

	clock.asked = nil
	policy.AttemptTimeout = 0
	ctx := deadline{t.Context(), clock.Now().Add(300 * ms)} // nearer than the policy's own
	stopped(t, worker.Retry(ctx, policy, nil, slow), worker.ErrDeadline)
	assert.Equal(t, []time.Duration{300 * ms}, clock.asked)
}

func TestRetryStopsWhenItsContextIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	err := worker.Retry(ctx, worker.Policy{Clock: newStepClock()}, nil, func(context.Context, int) error {
		calls++
		cancel(postroom.ErrLeaseLost)
		return worker.Retryable(errAway)
	})
	stopped(t, err, worker.ErrInterrupted)
	assert.Equal(t, 1, calls)
	err = worker.Retry(ctx, worker.Policy{Clock: newStepClock()}, nil, failing(&calls))
	stopped(t, err, worker.ErrInterrupted)
	require.ErrorIs(t, err, postroom.ErrLeaseLost)
	assert.Equal(t, 1, calls)
}

func TestRetryRefusesWhatIsNoPolicy(t *testing.T) {
	fn := func(context.Context, int) error { return nil }
	for _, p := range []worker.Policy{{Attempts: -2}, {Deadline: -2}, {AttemptTimeout: -1}, {Base: -1}, {Cap: -1}} {
		require.ErrorIs(t, worker.Retry(t.Context(), p, nil, fn), postroom.ErrArgument, "%+v", p)
	}
	require.ErrorIs(t, worker.Retry(t.Context(), worker.Policy{}, nil, nil), postroom.ErrArgument)
	for _, c := range []worker.BudgetConfig{{Tokens: -1}, {PerSuccess: -0.5}, {PerSecond: -2}} {
		_, err := worker.NewBudget(c)
		require.ErrorIs(t, err, postroom.ErrArgument, "%+v", c)
	}
}

func TestBackoffIsFullJitterBelowADoublingCap(t *testing.T) {
	clock := newStepClock()
	var waits []time.Duration
	last := clock.Now()
	policy := worker.Policy{Attempts: 8, Deadline: postroom.Unlimited, Base: time.Second, Cap: 10 * time.Second, Clock: clock, Draw: mostDraw}
	fn := func(context.Context, int) error {
		waits = append(waits, clock.Now().Sub(last))
		last = clock.Now()
		return worker.Retryable(errAway)
	}
	stopped(t, worker.Retry(t.Context(), policy, nil, fn), worker.ErrAttempts)
	s := time.Second
	assert.Equal(t, []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s, 10 * s}, waits)
	policy.Draw = noDraw
	start := clock.Now()
	stopped(t, worker.Retry(t.Context(), policy, nil, fn), worker.ErrAttempts)
	assert.Equal(t, start, clock.Now(), "the shortest wait is none, so attempts must be bounded too")
}

// layers calls through three layers, each of which allows three attempts.
func layers(ctx context.Context, b *worker.Budget, again func(error) error) (calls int) {
	policy := worker.Policy{Attempts: 3, Deadline: time.Hour, Clock: newStepClock()}
	layer := func(next func(context.Context, int) error) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error { return again(worker.Retry(ctx, policy, b, next)) }
	}
	_ = layer(layer(layer(failing(&calls))))(ctx, 1)
	return calls
}

// Three layers that each retry what the one below gave up make 27 calls of one. A
// budget that they share bounds the extra calls, and errors that are not marked again
// make three.
func TestThreeLayersOfThreeAttemptsAre27Calls(t *testing.T) {
	assert.Equal(t, 27, layers(t.Context(), nil, worker.Retryable))
	assert.Equal(t, 11, layers(t.Context(), finite(t, 10), worker.Retryable), "one call and ten tokens")
	own := func(err error) error { return err }
	assert.Equal(t, 3, layers(t.Context(), nil, own), "a StoppedError is not retried by the layer above")
}

func TestBudgetRefillsWithSuccessesAndTime(t *testing.T) {
	clock := newStepClock()
	b := budget(t, worker.BudgetConfig{Tokens: 2, PerSuccess: 0.25, PerSecond: 0.5})
	spend := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			assert.Equal(t, w, b.Spend(clock.Now()), "call %d", i+1)
		}
	}
	spend(true, true, false)
	for range 4 {
		b.Success()
	}
	spend(true, false)
	clock.Step(2*time.Second - time.Nanosecond)
	spend(false)
	clock.Step(time.Nanosecond)
	spend(true, false)
	clock.Step(24 * time.Hour)
	spend(true, true, false)
	for range 100 {
		b.Success()
	}
	assert.InDelta(t, 2, b.Stats(clock.Now()).Tokens, 0, "never more than it holds")
	spend(true, true, false)

	// While it was full, time had nothing to put back.
	full := budget(t, worker.BudgetConfig{Tokens: 1, PerSuccess: worker.None, PerSecond: 0.5})
	full.Stats(clock.Now())
	clock.Step(1900 * time.Millisecond)
	assert.True(t, full.Spend(clock.Now()))
	clock.Step(1900 * time.Millisecond)
	assert.False(t, full.Spend(clock.Now()))
	clock.Step(100 * time.Millisecond)
	assert.True(t, full.Spend(clock.Now()))

	// Time that was worth less than a token stays owed.
	b = budget(t, worker.BudgetConfig{Tokens: 2, PerSuccess: worker.None, PerSecond: 0.5})
	spend(true, true, false)
	clock.Step(3 * time.Second)
	spend(true, false)
	clock.Step(time.Second)
	spend(true, false)

	// Asking often gives no more than asking seldom.
	b = budget(t, worker.BudgetConfig{Tokens: 2, PerSuccess: worker.None, PerSecond: 0.5})
	spend(true, true, false)
	n := 0
	for range 1_000_000 {
		clock.Step(37 * time.Microsecond)
		if b.Spend(clock.Now()) {
			n++
		}
	}
	assert.Equal(t, 18, n, "37 s at one token in two")
}

func TestEachOperationThatSucceedsPutsItsShareBack(t *testing.T) {
	clock, calls := newStepClock(), 0
	b := budget(t, worker.BudgetConfig{Tokens: 1, PerSuccess: 0.5, PerSecond: worker.None})
	policy := worker.Policy{Attempts: 2, Clock: clock}
	stopped(t, worker.Retry(t.Context(), policy, b, failing(&calls)), worker.ErrAttempts)
	for range 2 {
		assert.Less(t, b.Stats(clock.Now()).Tokens, 1.0)
		require.NoError(t, worker.Retry(t.Context(), policy, b, func(context.Context, int) error { return nil }))
	}
	assert.InDelta(t, 1, b.Stats(clock.Now()).Tokens, 0)
}

func TestBudgetIsSharedByConcurrentCallers(t *testing.T) {
	b := budget(t, worker.BudgetConfig{Tokens: 1000, PerSuccess: 0.5, PerSecond: worker.None})
	now := newStepClock().Now()
	var got atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if b.Spend(now) {
					got.Add(1)
				}
			}
		})
		all.Go(func() {
			for range 100 {
				b.Success()
			}
		})
	}
	all.Wait()
	for b.Spend(now) {
		got.Add(1)
	}
	assert.LessOrEqual(t, got.Load(), int64(1400), "1,000 and a half of 800 successes")
	assert.GreaterOrEqual(t, got.Load(), int64(1000))
	assert.EqualValues(t, got.Load(), b.Stats(now).Spent)
}

func TestOnlyTheOutermostMarkCounts(t *testing.T) {
	assert.False(t, worker.IsRetryable(nil))
	require.NoError(t, worker.Retryable(nil))
	assert.False(t, worker.IsRetryable(errAway))
	assert.True(t, worker.IsRetryable(fmt.Errorf("dial: %w", worker.Retryable(errAway))))
	err := worker.Retry(t.Context(), worker.Policy{Attempts: 1, Clock: newStepClock()}, nil, func(context.Context, int) error {
		return worker.Retryable(errAway)
	})
	assert.False(t, worker.IsRetryable(err))
	assert.True(t, worker.IsRetryable(worker.Retryable(err)))
}

func BenchmarkBudget(b *testing.B) {
	for name, c := range map[string]worker.BudgetConfig{
		"default":  {Tokens: 1 << 30},
		"no-floor": {Tokens: 1 << 30, PerSecond: worker.None},
	} {
		b.Run(name, func(b *testing.B) {
			shared := budget(b, c)
			b.ReportAllocs()
			now := newStepClock().Now()
			for b.Loop() {
				now = now.Add(time.Microsecond)
				shared.Spend(now)
			}
			if got := shared.Stats(now).Spent; got < uint64(b.N) {
				b.Fatalf("%d spent, want %d", got, b.N)
			}
		})
	}
}
