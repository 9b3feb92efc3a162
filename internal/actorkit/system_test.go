package actorkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/messages"
)

func TestMountedSystemLivesBesideItsHost(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	host := NewSystem(NewReal(RealConfig{}), logger).ActorSystem() // any actor.ActorSystem
	stream := host.EventStream
	rt := NewReal(RealConfig{})
	defer rt.Close()
	s := MountSystem(rt, host, "postroom/")
	assert.Same(t, host, s.ActorSystem())
	assert.Same(t, stream, host.EventStream)
	guardians := func() int {
		n := 0
		for _, shard := range host.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, key := range shard.Keys() {
				if strings.HasPrefix(key, "guardian") {
					n++
				}
			}
		}
		return n
	}
	for i := range 3 { // brokers opened one after the other
		again := MountSystem(rt, host, fmt.Sprintf("postroom-%d/", i))
		a := mustSpawn(t, again, spec("a", echo()))
		assert.Equal(t, fmt.Sprintf("postroom-%d/a", i), a.PID().Id)
		assert.Equal(t, a.PID().Id, a.String())
		stopAndWait(t, again, a)
		assert.Equal(t, 1, guardians(), "the library keeps a guardian for each strategy it saw")
	}
	assert.Contains(t, log.String(), "actor system started")
}

// Our own system knows whom any system knows at birth, and whoever comes later, in a
// registry that is a hundredth of the size.
func TestOurSystemKeepsLittleOfTheRegistry(t *testing.T) {
	names := func(r *actor.ProcessRegistryValue) (all []string) {
		for _, processes := range r.LocalPIDs.LocalPIDs {
			all = append(all, processes.Keys()...)
		}
		slices.Sort(all)
		return all
	}
	theirs := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	defer theirs.Shutdown()
	eachExecutor(t, func(t *testing.T, s *System) {
		registry := s.ActorSystem().ProcessRegistry
		born := names(theirs.ProcessRegistry)
		require.NotEmpty(t, born)
		assert.Equal(t, born, names(registry))
		assert.Len(t, registry.LocalPIDs.LocalPIDs, registryMaps)
		known := func(name string) bool {
			_, ok := registry.GetLocal(name)
			return ok
		}
		for _, name := range born {
			assert.True(t, known(name), name)
		}
		for i := range 100 {
			a := mustSpawn(t, s, spec(fmt.Sprint("a", i), echo()))
			assert.True(t, known(a.Name()))
			_, err := s.Spawn(spec(a.Name(), echo()))
			require.Error(t, err, "one of a name")
			stopAndWait(t, s, a)
			assert.False(t, known(a.Name()))
		}
	})
}

func TestWatchOfNobodyIsToldAtOnce(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		gone := make(chan *actor.PID, 2)
		a := mustSpawn(t, s, spec("a", &part{
			started: func(c *Context) {
				assert.Same(t, s, c.System())
				c.UnwatchForeign(c.Self().PID())
				c.WatchForeign(s.ActorSystem().NewLocalPID("nobody"))
			},
			receive: func(_ *Context, msg any) { gone <- msg.(*ForeignEnded).PID },
		}))
		assert.Equal(t, "nobody", get(t, gone, "the news").Id)
		s.Send(nil, "to nobody")
		stopAndWait(t, s, a)
	})
}

// plain is an actor without any of the optional parts.
type plain struct{ child func(c *Context) }

func (p plain) Receive(c *Context, msg any) {
	if m := msg.(*ask); m.crash != nil {
		panic(m.crash)
	} else {
		if p.child != nil {
			p.child(c)
		}
		c.Answer(m, messages.Answer{N: int64(c.Restarted())})
	}
}

func TestParentWithoutOpinionRestartsAtOnce(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		children := make(chan *Address, 1)
		parent := mustSpawn(t, s, Spec{Name: "parent", New: func() Actor {
			return plain{func(c *Context) {
				child, err := c.Spawn(Spec{Name: "child", New: func() Actor { return plain{} }})
				assert.NoError(t, err)
				children <- child
			}}
		}})
		_, err := put(t, s.Runtime(), parent.Send, &ask{})
		require.NoError(t, err)
		child := <-children
		_, err = put(t, s.Runtime(), child.Send, &ask{crash: errors.New("boom")})
		require.NoError(t, err)
		answer, err := put(t, s.Runtime(), child.Send, &ask{})
		require.NoError(t, err)
		assert.Equal(t, int64(1), answer.N)
		stopAndWait(t, s, parent)
		assert.True(t, child.Ended())
	})
}

// Between a crash's report and the decision the parent may itself be told to stop.
func TestParentStopsWithACrashedChild(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		failed := make(chan *Address, 1)
		var d diary
		parent := mustSpawn(t, s, spec("parent", &part{
			started: func(c *Context) {
				child, err := c.Spawn(spec("child", &part{
					receive: func(*Context, any) { panic("boom") },
					ended:   func(*Context) { d.add("child ended") },
				}))
				assert.NoError(t, err)
				child.Send("crash")
			},
			childFailed: func(_ *Context, child *Address, _, _ any) { failed <- child },
			ended:       func(*Context) { d.add("parent ended") },
		}))
		child := get(t, failed, "the failure")
		waiting := s.Runtime().NewCell()
		child.Send(&ask{Asked: messages.Asked{Reply: waiting.Ref()}})
		stopAndWait(t, s, parent)
		answer, err := waiting.Wait(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, answer.Err, ErrStopped)
		assert.Equal(t, []string{"child ended", "parent ended"}, d.all())
	})
}

func TestNobodyWaitsOnAClosedRuntime(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		a := mustSpawn(t, s, Spec{Name: "a", UserCode: true, New: func() Actor { return echo() }})
		a.mailbox.waitIdle(t)
		s.Runtime().Close()
		assert.True(t, s.Runtime().Closing())
		for range 2 {
			answer, err := put(t, s.Runtime(), a.Call, &ask{})
			require.NoError(t, err)
			require.ErrorIs(t, answer.Err, ErrStopped)
		}
	})
}

func TestRealClock(t *testing.T) {
	rt := NewReal(RealConfig{Executor: Lanes})
	defer rt.Close()
	assert.Equal(t, Lanes, rt.Executor())
	require.NoError(t, rt.CheckContext(t.Context()))
	rings := make(chan struct{}, 2)
	timer := rt.AfterFunc(time.Hour, func() { rings <- struct{}{} })
	timer.Reset(time.Millisecond)
	get(t, rings, "the ring")
	timer.Reset(time.Hour)
	timer.Stop()
	why := errors.New("why not")
	ctx, cancel := context.WithCancelCause(context.Background())
	var slept atomic.Value
	done := make(chan struct{})
	rt.ScheduleBlocking(func() { defer close(done); slept.Store(rt.Sleep(ctx, time.Hour)) })
	cancel(why)
	get(t, done, "the end of the sleep")
	assert.Equal(t, why, slept.Load())
	assert.Equal(t, why, rt.Sleep(ctx, 0))
	require.NoError(t, rt.Sleep(context.Background(), time.Microsecond))
}

func TestSpecNeedsNameAndNew(t *testing.T) {
	s := NewSystem(NewReal(RealConfig{}), nil)
	assert.Panics(t, func() { _, _ = s.Spawn(Spec{New: func() Actor { return echo() }}) })
	assert.Panics(t, func() { _, _ = s.Spawn(Spec{Name: "a"}) })
}

func TestErrorsTellWhatHappened(t *testing.T) {
	for _, row := range []struct {
		err    error
		text   string
		reason error
	}{
		{&CrashError{Actor: "a/b", Reason: "boom"}, "a/b: actor crashed: boom", ErrCrashed},
		{&StoppedError{Actor: "a/b"}, "a/b: actor stopped", ErrStopped},
		{&ForeignDeadlineError{Deadline: time.Unix(0, 0)}, "context with deadline 1970-01-01T00:00:00Z: deadline is not on the runtime's clock", ErrForeignDeadline},
		{&SpawnError{Name: "a", Reason: ErrNameTaken}, `spawn "a": spawn: name exists`, ErrNameTaken},
	} {
		require.EqualError(t, row.err, row.text)
		require.ErrorIs(t, row.err, row.reason)
		if hint, ok := row.err.(interface{ Hint() string }); ok {
			assert.NotEmpty(t, hint.Hint())
		}
	}
	assert.Equal(t, "goroutine per active actor lanes unknown executor", fmt.Sprint(GoroutinePerActor, " ", Lanes, " ", Executor(9)))
	assert.Equal(t, "nobody", (*Address)(nil).String())
}

// What an actor costs that was busy once and is idle now. A queue's ledger and the
// registry come on top; together they are to stay below 2 KiB.
func TestIdleActorIsSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has its own memory")
	}
	rt := NewReal(RealConfig{})
	defer rt.Close()
	s := NewSystem(rt, nil)
	const n = 5000
	actors := make([]*Address, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := echo()
	for i := range actors {
		actors[i] = mustSpawn(t, s, spec(fmt.Sprint("actor-", i), p))
	}
	m := &ask{}
	for _, a := range actors {
		for range 100 {
			a.Send(m)
		}
	}
	for _, a := range actors {
		a.mailbox.waitIdle(t)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	t.Logf("%d bytes per idle actor, registry included", each)
	assert.Less(t, each, int64(1400))
	runtime.KeepAlive(actors)
	for _, a := range actors {
		s.Stop(a)
	}
	for _, a := range actors {
		get(t, a.Done(), "the end")
	}
}
