package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// newRuntime closes itself, and checks that nothing of it is left.
func newRuntime(t *testing.T, seed uint64) *Runtime {
	t.Helper()
	before := goleak.IgnoreCurrent()
	r := NewRuntime(seed)
	t.Cleanup(func() {
		r.Close()
		goleak.VerifyNone(t, before)
	})
	return r
}

// ask is a command; crash makes its actor panic.
type ask struct {
	messages.Asked
	n     int
	crash bool
}

// testWorker is a small world of its own: it answers, sleeps, panics and sets timers.
type testWorker struct {
	r    *Runtime
	note func(string, ...any)
}

func (w *testWorker) Started(c *actorkit.Context) {
	w.note("%s started %d", c.Self(), c.Restarted())
	self := c.Self()
	w.r.AfterFunc(time.Second, func() { self.Send("ring") })
}

func (w *testWorker) Receive(c *actorkit.Context, msg any) {
	switch m := msg.(type) {
	case string:
		w.note("%s %s", c.Self(), m)
	case *ask:
		w.note("%s got %d", c.Self(), m.n)
		if m.crash {
			panic("asked to")
		}
		if m.n%3 == 0 { // a handler that blocks
			_ = w.r.Sleep(context.Background(), time.Duration(m.n)*time.Millisecond)
		}
		c.Answer(m, messages.Answer{N: int64(m.n)})
	}
}

func (w *testWorker) EndTurn(c *actorkit.Context) { w.note("%s end of turn %v", c.Self(), c.Now()) }

// parent supervises workers with a delay, as a back-off does.
type parent struct {
	testWorker
	children []*actorkit.Address
}

type revive struct{ child *actorkit.Address }

func (p *parent) Started(c *actorkit.Context) {
	for i := range 3 {
		child, err := c.Spawn(actorkit.Spec{
			Name: fmt.Sprint("child-", i), Blocking: true,
			New: func() actorkit.Actor { return &testWorker{p.r, p.note} },
		})
		if err != nil {
			panic(err)
		}
		p.children = append(p.children, child)
	}
}

func (p *parent) Receive(c *actorkit.Context, msg any) {
	switch m := msg.(type) {
	case *ask:
		c.Answer(m, messages.Answer{Value: p.children})
	case revive:
		c.Restart(m.child)
	}
}

func (p *parent) ChildFailed(c *actorkit.Context, child *actorkit.Address, reason, msg any) {
	p.note("%s failed: %v over %d", child, reason, msg.(*ask).n)
	self := c.Self()
	delay := time.Duration(p.r.Draw("restart", child.Name(), 0) % uint64(time.Second))
	p.r.AfterFunc(delay, func() { self.Send(revive{child}) })
}

func (p *parent) ChildEnded(_ *actorkit.Context, child *actorkit.Address) { p.note("%s ended", child) }

// reused is one actor system for all runs, as a search over seeds has it.
var reused = actorkit.NewSystem(NewRuntime(0), nil).ActorSystem()

// scenario runs clients against supervised workers and returns the trace.
func scenario(t testing.TB, seed uint64) (hash uint64, steps int, lines []string) {
	r := NewRuntime(seed)
	defer r.Close()
	note := func(format string, args ...any) { r.Note(fmt.Sprintf(format, args...)) }
	r.Trace = func(line string) { lines = append(lines, line) }
	s := actorkit.MountSystem(r, reused, "scenario/")
	root, err := s.Spawn(actorkit.Spec{Name: "root", New: func() actorkit.Actor { return &parent{testWorker: testWorker{r, note}} }})
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, to *actorkit.Address, m *ask) (messages.Answer, error) {
		cell := r.NewCell()
		m.Reply = cell.Ref()
		to.Call(m)
		return cell.Wait(ctx)
	}
	r.Go("main", func() {
		answer, err := call(context.Background(), root, &ask{})
		if err != nil {
			t.Error(err)
		}
		open := 4
		for client := range open {
			r.Go(fmt.Sprint("client-", client), func() {
				defer func() { open-- }()
				for i := range 12 {
					to := answer.Value.([]*actorkit.Address)[r.Draw("target", fmt.Sprint(client), uint64(i))%3]
					ctx, cancel := r.WithTimeout(context.Background(), 200*time.Millisecond)
					a, err := call(ctx, to, &ask{n: 100*client + i, crash: i%5 == 4})
					note("client %d: %d %v %v", client, a.N, a.Err, err)
					cancel()
				}
			})
		}
		for open > 0 {
			if err := r.Sleep(context.Background(), 10*time.Millisecond); err != nil {
				t.Error(err)
			}
		}
		id, err := uuid.NewRandomFromReader(r.Random())
		note("id %v %v", id, err)
		cell := r.NewCell()
		root.TellEnd(cell.Ref())
		s.Stop(root)
		_, err = cell.Wait(context.Background())
		note("stopped %v", err)
	})
	if err := r.Run(time.Hour, 100_000); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	return r.TraceHash(), r.Steps(), lines
}

func TestOneSeedIsOneRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	want, steps, lines := scenario(t, 7)
	assert.Greater(t, steps, 100)
	for range 50 {
		got, _, gotLines := scenario(t, 7)
		if got != want {
			for i := range lines {
				if i >= len(gotLines) || lines[i] != gotLines[i] {
					t.Fatalf("line %d: %q, then %q", i, lines[i], gotLines[i:min(i+1, len(gotLines))])
				}
			}
			t.Fatalf("hash %x, then %x", want, got)
		}
	}
	trace := strings.Join(lines, "\n")
	for _, part := range []string{
		"scenario/root/child-1 failed: asked to", "started 1", "ring", "actor crashed", "context deadline exceeded",
		"scenario/root/child-0 ended", "stopped <nil>",
	} {
		assert.Contains(t, trace, part, "the scenario exercises it")
	}
}

func TestOtherSeedsAreOtherRuns(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(50) {
		hash, _, _ := scenario(t, seed)
		other, twice := seen[hash]
		require.False(t, twice, "seeds %d and %d", seed, other)
		seen[hash] = seed
	}
}

func TestClockJumpsAndTiesAreDrawn(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(20) {
		r := NewRuntime(seed)
		var order string
		for _, name := range []string{"a", "b", "c"} {
			r.AfterFunc(time.Hour, func() { order += name })
		}
		late := r.AfterFunc(2*time.Hour, func() { order += fmt.Sprint("@", r.Now().Sub(Epoch)) })
		late.Reset(3 * time.Hour)
		r.AfterFunc(time.Minute, func() { order += "never" }).Stop()
		require.NoError(t, r.Run(24*time.Hour, 100))
		assert.Len(t, order, len("abc@3h0m0s"))
		orders[order] = true
		r.Close()
	}
	assert.Len(t, orders, 6)
}

func TestNextStepIsDrawn(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(60) {
		r := NewRuntime(seed)
		var order string
		for _, name := range []string{"a", "b", "c"} {
			r.Go(name, func() { order += name })
		}
		require.NoError(t, r.Run(0, 3), "a run that is quiet at its last step has reached no limit")
		orders[order] = true
		r.Close()
	}
	assert.Len(t, orders, 6)
}

func TestLimits(t *testing.T) {
	r := newRuntime(t, 1)
	r.Go("sleeper", func() {
		for r.Sleep(context.Background(), time.Minute) == nil {
		}
	})
	var limit *LimitError
	err := r.Run(time.Hour+time.Second, 1_000_000)
	require.ErrorIs(t, err, ErrTimeLimit)
	require.ErrorAs(t, err, &limit)
	assert.Equal(t, Epoch.Add(time.Hour+time.Second), r.Now())
	assert.Contains(t, err.Error(), "sleeper waits for time to pass since +1h0m0s")
	before := r.Steps()
	require.ErrorIs(t, r.Run(1000*time.Hour, 7), ErrStepLimit)
	assert.Equal(t, before+7, r.Steps())
}

func TestStuckTellsWhoWaitsForWhat(t *testing.T) {
	r := newRuntime(t, 1)
	r.Go("client", func() {
		_ = r.Sleep(context.Background(), time.Second)
		_, _ = r.NewCell().Wait(context.Background())
		t.Error("woken by nobody")
	})
	err := r.Run(time.Hour, 1000)
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.ErrorIs(t, err, ErrStuck)
	assert.Equal(t, []Wait{{Who: "client", What: "an answer", Since: Epoch.Add(time.Second)}}, stuck.Waits)
}

func TestContextsRunOnTheSimulatedClock(t *testing.T) {
	r := newRuntime(t, 1)
	bg := context.Background()
	r.Go("main", func() {
		ctx, cancel := r.WithTimeout(bg, time.Minute)
		defer cancel()
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		inner, cancelInner := r.WithTimeout(child, time.Hour)
		defer cancelInner()
		at, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.Equal(t, Epoch.Add(time.Minute), at)
		at, _ = inner.Deadline()
		assert.Equal(t, Epoch.Add(time.Minute), at, "the earlier deadline stays")
		for _, c := range []context.Context{ctx, child, inner} {
			require.NoError(t, r.CheckContext(c))
			require.NoError(t, c.Err())
		}
		_, err := r.NewCell().Wait(inner)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, Epoch.Add(time.Minute), r.Now())
		assert.Equal(t, context.DeadlineExceeded, ctx.Err())
		assert.Equal(t, context.DeadlineExceeded, inner.Err())
		require.Error(t, child.Err())
		assert.Equal(t, context.DeadlineExceeded, context.Cause(child))
		require.ErrorIs(t, r.Sleep(child, time.Hour), context.DeadlineExceeded)

		// A cancel reaches derived contexts and parked waits.
		why := errors.New("why not")
		outer, cancelOuter := context.WithCancelCause(bg)
		derived, cancelDerived := r.WithTimeout(outer, time.Hour)
		defer cancelDerived()
		r.Go("canceller", func() { cancelOuter(why) })
		start := r.Now()
		require.ErrorIs(t, r.Sleep(derived, time.Minute), why)
		assert.Equal(t, start, r.Now())
		assert.Equal(t, context.Canceled, derived.Err())

		gone, cancelGone := r.WithTimeout(bg, 0)
		assert.Equal(t, context.DeadlineExceeded, gone.Err())
		cancelGone()
		early, cancelEarly := r.WithTimeout(bg, time.Hour)
		cancelEarly()
		assert.Equal(t, context.Canceled, early.Err())
	})
	require.NoError(t, r.Run(24*time.Hour, 1000))
}

func TestForeignDeadlinesAreRefused(t *testing.T) {
	r := newRuntime(t, 1)
	wall, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	other := NewRuntime(2)
	defer other.Close()
	elsewhere, cancelElsewhere := other.WithTimeout(context.Background(), time.Hour)
	defer cancelElsewhere()
	r.Go("main", func() {
		for _, ctx := range []context.Context{wall, elsewhere} {
			var foreign *actorkit.ForeignDeadlineError
			require.ErrorAs(t, r.CheckContext(ctx), &foreign)
			assert.Contains(t, foreign.Hint(), "World.WithTimeout")
			cell := r.NewCell()
			ref := cell.Ref()
			_, err := cell.Wait(ctx)
			require.ErrorIs(t, err, actorkit.ErrForeignDeadline)
			assert.False(t, ref.Waiting())
			require.ErrorIs(t, r.Sleep(ctx, time.Second), actorkit.ErrForeignDeadline)
		}
	})
	require.NoError(t, r.Run(time.Hour, 1000))
}

func TestCellsAreUsedAgain(t *testing.T) {
	r := newRuntime(t, 1)
	r.Go("main", func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		cell := r.NewCell()
		ref := cell.Ref()
		_, err := cell.Wait(ended)
		require.ErrorIs(t, err, context.Canceled)
		assert.False(t, ref.Waiting())
		assert.False(t, ref.Resolve(messages.Answer{}))
		again := r.NewCell()
		assert.Same(t, cell, again)
		assert.False(t, ref.Resolve(messages.Answer{}), "a late answer reaches nobody")
		ref = again.Ref()
		assert.True(t, ref.Resolve(messages.Answer{N: 1}))
		answer, err := again.Wait(ended)
		require.NoError(t, err, "an answer that is there wins")
		assert.Equal(t, int64(1), answer.N)
	})
	require.NoError(t, r.Run(time.Hour, 1000))
}

func TestIdleLetsTheOthersFinishWithoutTime(t *testing.T) {
	r := newRuntime(t, 3)
	s := actorkit.MountSystem(r, reused, "idle/")
	got := 0
	a, err := s.Spawn(actorkit.Spec{Name: "a", New: func() actorkit.Actor { return counter{&got} }})
	require.NoError(t, err)
	r.Go("main", func() {
		rang := false
		r.AfterFunc(time.Second, func() { rang = true })
		for range 100 {
			a.Send("x")
		}
		r.Go("second", func() { r.Idle() })
		r.Idle()
		assert.Equal(t, 100, got)
		assert.Equal(t, Epoch, r.Now())
		assert.False(t, rang)
		s.Stop(a)
	})
	require.NoError(t, r.Run(time.Hour, 10_000))
	assert.True(t, a.Ended())
}

type counter struct{ n *int }

func (c counter) Receive(*actorkit.Context, any) { *c.n++ }

func TestCallsFromOutsideAreFoundOut(t *testing.T) {
	r := newRuntime(t, 1)
	assert.PanicsWithValue(t, "simulation: a call that waits for an answer called outside of a coroutine; "+
		"start the caller with Go, and let timers only post messages", func() { r.NewCell() })
	assert.Panics(t, func() { _ = r.Sleep(context.Background(), 1) })
	assert.Panics(t, func() { r.Idle() })
	r.Go("main", func() {
		assert.Panics(t, func() { _ = r.Run(1, 1) })
		assert.Panics(t, r.Close)
		var intruder sync.WaitGroup
		intruder.Go(func() {
			defer func() { assert.Contains(t, fmt.Sprint(recover()), "while main takes its step") }()
			r.NewCell()
		})
		intruder.Wait() // one after the other: what they do is a race, and -race says so
		intruder.Go(func() {
			defer func() { assert.Contains(t, fmt.Sprint(recover()), "Schedule called on goroutine") }()
			r.Schedule(func() { t.Error("ran") })
		})
		intruder.Wait()
	})
	require.NoError(t, r.Run(time.Hour, 100))
}

func TestPanicComesOutOfRunWithItsStack(t *testing.T) {
	r := newRuntime(t, 1)
	boom := errors.New("boom")
	r.Go("bystander", func() { _ = r.Sleep(context.Background(), time.Hour) })
	r.Go("culprit", func() { explode(boom) })
	defer func() {
		crash, ok := recover().(*PanicError)
		require.True(t, ok)
		assert.Equal(t, "culprit", crash.Who)
		require.ErrorIs(t, crash, boom)
		assert.Contains(t, crash.Error(), "explode")
	}()
	_ = r.Run(time.Minute, 100)
	t.Error("Run returned")
}

func explode(err error) { panic(err) }

func TestCloseUnwindsEverybody(t *testing.T) {
	r := NewRuntime(1)
	before := goleak.IgnoreCurrent()
	s := actorkit.MountSystem(r, reused, "close/")
	var deferred, panics int
	a, err := s.Spawn(actorkit.Spec{
		Name: "a", Blocking: true, OnPanic: func(any, []byte, any) { panics++ },
		New: func() actorkit.Actor { return stubborn{r, &deferred} },
	})
	require.NoError(t, err)
	a.Send("x")
	r.Go("sleeper", func() {
		defer func() { deferred++; _ = r.Sleep(context.Background(), time.Hour); deferred += 100 }()
		_, _ = r.NewCell().Wait(context.Background())
	})
	r.Go("finished", func() {})
	require.Error(t, r.Run(time.Hour, 1000))
	r.Go("never started", func() { t.Error("started") })
	r.Close()
	r.Close()
	assert.Equal(t, 2, deferred)
	assert.Zero(t, panics, "to be unwound is no crash")
	require.ErrorIs(t, r.Run(time.Hour, 1), ErrClosed)
	require.NoError(t, goleak.Find(before))
	// The next run in this system would find the name taken: it was never stopped.
	reused.ProcessRegistry.Remove(a.PID())
}

// stubborn tries to survive the unwinding.
type stubborn struct {
	r        *Runtime
	deferred *int
}

func (s stubborn) Receive(*actorkit.Context, any) {
	defer func() { *s.deferred++ }()
	for {
		func() {
			defer func() { _ = recover() }()
			_ = s.r.Sleep(context.Background(), 24*time.Hour)
		}()
	}
}

// t.Fatal in a coroutine ends the test that runs it. The proof fails on purpose, so
// it is another process.
func TestFatalInACoroutineEndsTheTest(t *testing.T) {
	if os.Getenv("POSTROOM_FATAL") != "" {
		r := NewRuntime(1)
		t.Cleanup(func() { r.Close(); fmt.Println("cleaned up") })
		r.Go("sleeper", func() { _ = r.Sleep(context.Background(), time.Hour) })
		r.Go("fatal", func() { t.Fatal("from a coroutine") })
		_ = r.Run(time.Hour, 100)
		fmt.Println("not reached")
		return
	}
	again := exec.Command(os.Args[0], "-test.run=^TestFatalInACoroutineEndsTheTest$")
	again.Env = append(os.Environ(), "POSTROOM_FATAL=1")
	out, err := again.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "from a coroutine")
	assert.Contains(t, string(out), "cleaned up")
	assert.NotContains(t, string(out), "not reached")
}

// The watchdog ends the process, so it has one of its own here.
func TestBlockedThreadIsFoundOut(t *testing.T) {
	if os.Getenv("POSTROOM_BLOCKED") != "" {
		r := NewRuntime(5)
		r.patience = 20 * time.Millisecond
		var mutex sync.Mutex
		r.Go("holder", func() { mutex.Lock(); _ = r.Sleep(context.Background(), time.Second) })
		r.AfterFunc(time.Millisecond, func() { r.Go("blocked", mutex.Lock) })
		_ = r.Run(time.Hour, 100)
		return
	}
	again := exec.Command(os.Args[0], "-test.run=^TestBlockedThreadIsFoundOut$")
	again.Env = append(os.Environ(), "POSTROOM_BLOCKED=1")
	out, err := again.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "simulation: seed 5: step 3 has not ended for 20ms of real time")
	assert.Contains(t, string(out), "sync.(*Mutex).Lock", "the stack of the culprit")
}

func TestSimulationRunsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := NewRuntime(1)
		r.Go("main", func() { _ = r.Sleep(context.Background(), time.Hour) })
		require.NoError(t, r.Run(24*time.Hour, 100))
		assert.Equal(t, Epoch.Add(time.Hour), r.Now())
		assert.Equal(t, start, time.Now())
		r.Close()
	})
}

func TestDrawsAreKeyed(t *testing.T) {
	r := newRuntime(t, 42)
	first := r.Draw("retry", "orders", 1)
	_, _ = r.Turn()
	_ = r.Draw("retry", "orders", 2)
	assert.Equal(t, first, r.Draw("retry", "orders", 1))
	assert.Equal(t, first, NewRuntime(42).Draw("retry", "orders", 1))
	assert.NotEqual(t, first, NewRuntime(43).Draw("retry", "orders", 1))
	sizes := map[int]bool{}
	for range 200 {
		size, handBack := r.Turn()
		assert.True(t, handBack)
		sizes[size] = true
	}
	assert.Len(t, sizes, turnMessagesMax)
}

// BenchmarkSteps is a whole run of the scenario on a reused system.
func BenchmarkSteps(b *testing.B) {
	steps := 0
	seed := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		_, n, _ := scenario(b, seed)
		steps += n
		seed++
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
}

// BenchmarkSwitch is one coroutine from Schedule to its end.
func BenchmarkSwitch(b *testing.B) {
	r := NewRuntime(1)
	defer r.Close()
	n := 0
	var fn func()
	fn = func() {
		if n++; n < b.N {
			r.Schedule(fn)
		}
	}
	r.Schedule(fn)
	b.ReportAllocs()
	b.ResetTimer()
	if err := r.Run(0, b.N+1); err != nil || n != b.N {
		b.Fatal(err, n)
	}
}

func BenchmarkGoroutineID(b *testing.B) {
	want := goroutineID()
	for b.Loop() {
		if goroutineID() != want {
			b.Fatal("another id")
		}
	}
}
