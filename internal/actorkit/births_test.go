package actorkit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/messages"
)

// All actors share their Props, which ask whose instance is wanted: each gets its own,
// also when many are born and crash at the same time.
func TestActorsThatAreBornTogetherAreThemselves(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		const actors, crashes = 64, 3
		var all sync.WaitGroup
		for n := range int64(actors) {
			all.Go(func() {
				lives := int64(0)
				a, err := s.Spawn(Spec{Name: fmt.Sprint("actor-", n), New: func() Actor {
					lives++
					return &part{receive: func(c *Context, msg any) {
						m, ok := msg.(*ask)
						if ok && m.crash != nil {
							panic(m.crash)
						}
						if ok {
							c.Answer(m, messages.Answer{N: n*100 + lives})
						}
					}}
				}})
				if !assert.NoError(t, err) {
					return
				}
				for range crashes {
					_, err := put(t, s.Runtime(), a.Send, &ask{crash: "on purpose"})
					assert.NoError(t, err)
				}
				answer, err := put(t, s.Runtime(), a.Send, &ask{})
				assert.NoError(t, err)
				assert.Equal(t, n*100+1+crashes, answer.N)
				assert.Equal(t, fmt.Sprint("actor-", n), a.Name())
				stopAndWait(t, s, a)
			})
		}
		all.Wait()
	})
}

// scheduler is a runtime whose Schedule is the test's.
type scheduler struct {
	Runtime
	schedule func(fn func())
}

func (s *scheduler) Schedule(fn func()) { s.schedule(fn) }

// An actor whose Started panics may be in the middle of its restart before the spawn has
// returned: its birth there is not the spawner's to end.
func TestASpawnLeavesARestartAlone(t *testing.T) {
	rt := &scheduler{Runtime: NewReal(RealConfig{})}
	defer rt.Close()
	s := NewSystem(rt, nil)
	a := newAddress(s, spec("a", echo()))
	var run func()
	rt.schedule = func(fn func()) {
		s.births.begin(a)
		run = fn
	}
	_, err := a.spawn(s.root, s.top, "a")
	require.NoError(t, err)
	assert.False(t, s.births.mu.TryLock(), "the restart's place among the births is taken")
	assert.Same(t, a, s.births.of)
	s.births.end(a)

	rt.schedule = rt.Runtime.Schedule
	rt.Schedule(run)
	answer, err := put(t, rt, a.Send, &ask{n: 7})
	require.NoError(t, err)
	assert.EqualValues(t, 7, answer.N)
	stopAndWait(t, s, a)
}

// A parent that restarts waits for its children to end. Others may be born meanwhile,
// also by whoever hears of the children's end, and by hooks at its own end.
func TestARestartThatWaitsHoldsUpNoBirth(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var others sync.WaitGroup
		var spawned atomic.Int64
		spawn := func(*Context) {
			others.Add(1)
			a, err := s.Spawn(spec(fmt.Sprint("other-", spawned.Add(1)), &part{ended: func(*Context) { others.Done() }}))
			assert.NoError(t, err)
			s.Stop(a)
		}
		var panics atomic.Int64
		described := spec("parent", &part{
			started: func(c *Context) {
				for n := range 3 {
					_, err := c.Spawn(spec(fmt.Sprint("child-", n), &part{ended: spawn}))
					assert.NoError(t, err)
				}
			},
			receive:    echo().receive,
			childEnded: func(c *Context, _ *Address) { spawn(c) },
			ended:      spawn,
		})
		described.OnPanic = func(any, []byte, any) { panics.Add(1) }
		parent := mustSpawn(t, s, described)
		_, err := put(t, s.Runtime(), parent.Send, &ask{crash: "on purpose"})
		require.NoError(t, err)
		answer, err := put(t, s.Runtime(), parent.Send, &ask{n: 7})
		require.NoError(t, err)
		assert.EqualValues(t, 7, answer.N)
		assert.EqualValues(t, 1, panics.Load(), "the one on purpose")
		stopAndWait(t, s, parent)
		others.Wait()
		assert.EqualValues(t, 2*(3+3)+1, spawned.Load(), "by children, by who hears of their end, in two lives, and at the end")
	})
}

// Done may be asked for before the end and after it.
func TestDoneIsThereWheneverItIsAskedFor(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		a := mustSpawn(t, s, spec("a", echo()))
		before := a.Done()
		select {
		case <-before:
			t.Fatal("a lives, and Done is closed")
		default:
		}
		s.Stop(a)
		get(t, before, "the end of a")
		get(t, a.Done(), "the end of a, asked for after it")
		b := mustSpawn(t, s, spec("b", echo()))
		ended := s.Runtime().NewCell()
		b.TellEnd(ended.Ref())
		s.Stop(b)
		_, err := ended.Wait(t.Context())
		require.NoError(t, err)
		get(t, b.Done(), "the end of b, asked for after it")
	})
}
