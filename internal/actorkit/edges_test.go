package actorkit

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/messages"
)

// The tests here were written after mutants that the others let live.

// A healthy actor that is restarted waits for its children to end. What comes in
// meanwhile is for the new instance.
func TestRestartingActorHandlesNothingInItsOldLife(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		blocked := newHold()
		var middle, stranger *Address
		stranger = mustSpawn(t, s, spec("stranger", echo()))
		parent := mustSpawn(t, s, spec("parent", &part{
			started: func(c *Context) {
				var err error
				middle, err = c.Spawn(spec("middle", &part{
					started: func(c *Context) {
						child, err := c.Spawn(Spec{Name: "child", Blocking: true, New: func() Actor {
							return &part{receive: func(_ *Context, msg any) { msg.(hold).here() }}
						}})
						assert.NoError(t, err)
						if c.Restarted() == 0 {
							child.Send(blocked)
						}
					},
					receive: func(c *Context, msg any) {
						c.Answer(msg.(*ask), messages.Answer{N: int64(c.Restarted())})
					},
				}))
				assert.NoError(t, err)
			},
			receive: func(c *Context, msg any) {
				c.Restart(middle)
				c.Restart(stranger) // not its child: nothing happens
				c.StopChild(stranger)
				c.Answer(msg.(*ask), messages.Answer{})
			},
		}))
		get(t, blocked.entered, "the child's message")
		_, err := put(t, s.Runtime(), parent.Send, &ask{})
		require.NoError(t, err)
		middle.mailbox.waitIdle(t)
		cell := s.Runtime().NewCell()
		middle.Send(&ask{Asked: messages.Asked{Reply: cell.Ref()}})
		middle.mailbox.waitIdle(t)
		close(blocked.release)
		answer, err := cell.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, int64(1), answer.N)
		answer, err = put(t, s.Runtime(), stranger.Send, &ask{n: 5})
		require.NoError(t, err)
		assert.Equal(t, messages.Answer{N: 5}, answer)
		stopAndWait(t, s, parent)
		stopAndWait(t, s, stranger)
	})
}

// A panic in the hooks of the end must reach neither the parent's bookkeeping nor
// the actor's own stop.
func TestPanicsAtTheEndHoldNobodyUp(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var panics atomic.Int32
		onPanic := func(any, []byte, any) { panics.Add(1) }
		ended := make(chan struct{}, 1)
		parent := mustSpawn(t, s, Spec{Name: "parent", OnPanic: onPanic, New: func() Actor {
			return &part{
				started: func(c *Context) {
					_, err := c.Spawn(Spec{Name: "child", OnPanic: onPanic, New: func() Actor {
						return &part{ended: func(*Context) { panic("child's Ended") }}
					}})
					assert.NoError(t, err)
				},
				childEnded: func(*Context, *Address) { ended <- struct{}{}; panic("ChildEnded") },
			}
		}})
		stopAndWait(t, s, parent)
		get(t, ended, "ChildEnded")
		assert.Equal(t, int32(2), panics.Load())
	})
}

// A message that comes in during a turn on the caller's goroutine finds the
// mailbox busy, so the caller must see to it.
func TestCallHandsOverWhatCameIn(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		second := s.Runtime().NewCell()
		ref := second.Ref()
		a := mustSpawn(t, s, spec("a", &part{receive: func(c *Context, msg any) {
			m := msg.(*ask)
			if m.n == 1 {
				c.Self().Send(&ask{Asked: messages.Asked{Reply: ref}, n: 2})
			}
			c.Answer(m, messages.Answer{N: m.n})
		}}))
		a.mailbox.waitIdle(t)
		_, err := put(t, s.Runtime(), a.Call, &ask{n: 1})
		require.NoError(t, err)
		answer, err := second.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, int64(2), answer.N)
		stopAndWait(t, s, a)
	})
}

// failing notes that it was failed.
type failing struct {
	n int
	d *diary
}

func (f failing) Fail(error) { f.d.add(fmt.Sprint(f.n)) }

func TestWhatWaitsIsFailedInOrder(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var d diary
		first, second := newHold(), newHold()
		a := mustSpawn(t, s, spec("a", &part{receive: func(_ *Context, msg any) {
			if h, ok := msg.(hold); ok {
				h.here()
			}
		}}))
		a.Send(first)
		get(t, first.entered, "the first message")
		a.Send(second)
		a.Send(failing{1, &d}) // in the batch of second
		a.Send(failing{2, &d})
		close(first.release)
		get(t, second.entered, "the second message")
		a.Send(failing{3, &d}) // posted behind it
		s.Stop(a)
		close(second.release)
		get(t, a.Done(), "the end")
		assert.Equal(t, []string{"1", "2", "3"}, d.all())
	})
}

func TestAnswerGoesToNoOtherSender(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var kept *ask
		a := mustSpawn(t, s, spec("a", &part{receive: func(c *Context, msg any) {
			m := msg.(*ask)
			if kept == nil {
				kept = m
				return
			}
			c.Answer(kept, messages.Answer{N: kept.n}) // came from somebody else
			assert.True(t, c.Ref(kept).IsZero())
			c.Answer(m, messages.Answer{N: m.n})
		}}))
		request, answers, stop := native(t, s)
		a.Send(&ask{n: 1}) // from nobody
		request(a, &ask{n: 2})
		assert.Equal(t, int64(2), get(t, answers, "the answer").N)
		assert.Empty(t, answers)
		stopAndWait(t, s, a)
		stop()
	})
}

// An embedder's spawn middleware would make the library forget our guardian, and
// its own gives up at the eleventh crash.
func TestHostsMiddlewareDoesNotTakeTheGuardian(t *testing.T) {
	host := NewSystem(NewReal(RealConfig{}), nil).ActorSystem()
	host.Root.WithSpawnMiddleware(func(next actor.SpawnFunc) actor.SpawnFunc { return next })
	rt := NewReal(RealConfig{})
	defer rt.Close()
	s := MountSystem(rt, host, "x/")
	a := mustSpawn(t, s, spec("a", echo()))
	for range 15 {
		_, err := put(t, rt, a.Send, &ask{crash: "boom"})
		require.NoError(t, err)
	}
	answer, err := put(t, rt, a.Send, &ask{n: 9})
	require.NoError(t, err)
	assert.Equal(t, messages.Answer{N: 9}, answer)
	stopAndWait(t, s, a)
}

func TestLaneSurvivesGoexitWithWorkWaiting(t *testing.T) {
	l := newLanes(1)
	blocked, done := newHold(), make(chan struct{})
	l.schedule(func() { blocked.here(); runtime.Goexit() })
	get(t, blocked.entered, "the first function")
	for range 100 { // more than the ring holds at first
		l.schedule(func() {})
	}
	l.schedule(func() { close(done) })
	close(blocked.release)
	get(t, done, "the last function")
	l.close()
	get(t, l.wait(), "the end")
}

func TestTimerAfterCloseDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := NewReal(RealConfig{})
		rt.AfterFunc(time.Second, func() { t.Error("rang") })
		rt.Close()
		time.Sleep(time.Minute)
	})
}

func TestCellKeepsNoAnswer(t *testing.T) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	for _, end := range []func(Cell){
		func(c Cell) { _, _ = c.Wait(t.Context()) },
		func(c Cell) { c.Abandon() },
	} {
		cell := rt.NewCell()
		cell.Ref().Resolve(messages.Answer{Value: "a delivery"})
		end(cell)
		assert.Zero(t, cell.(*realCell).answer)
	}
}

// A message that is more work than a turn should hold ends it and comes first in the
// next, whatever was posted meanwhile.
func TestAgainEndsTheTurnAndComesFirst(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		began, posted, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var seen []string
		turn := 0
		p := &part{endTurn: func(*Context) { turn++ }}
		p.receive = func(c *Context, msg any) {
			text, ok := msg.(string)
			if !ok {
				return
			}
			if len(seen) == 0 {
				turn = 1
				close(began)
				<-posted
			}
			if text == "long" && seen[len(seen)-1] == "short in turn 2" {
				c.Again()
			}
			seen = append(seen, fmt.Sprint(text, " in turn ", turn))
			if text == "last" {
				close(over)
			}
		}
		a := mustSpawn(t, s, spec("a", p))
		a.Send("first")
		get(t, began, "the first message")
		for _, text := range []string{"short", "long", "last"} {
			a.Send(text)
		}
		close(posted)
		get(t, over, "the last message")
		stopAndWait(t, s, a)
		assert.Equal(t, []string{"first in turn 1", "short in turn 2", "long in turn 2", "long in turn 3", "last in turn 3"}, seen)
	})
}
