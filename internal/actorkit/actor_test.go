package actorkit

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postroom/postroom/messages"
)

// hold occupies an actor until it is let go, so that a batch gathers behind it.
type hold struct{ entered, release chan struct{} }

func newHold() hold { return hold{make(chan struct{}), make(chan struct{})} }

func (h hold) here() { close(h.entered); <-h.release }

func TestMessagesKeepTheirOrder(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		const n = 10_000
		var got []int
		done := make(chan struct{})
		a := mustSpawn(t, s, spec("a", &part{receive: func(_ *Context, msg any) {
			if got = append(got, msg.(int)); len(got) == n {
				close(done)
			}
		}}))
		for i := range n {
			if i%2 == 0 {
				a.Send(i)
			} else {
				s.Send(a.PID(), i) // the way of foreign actors must not overtake
			}
		}
		get(t, done, "the last message")
		stopAndWait(t, s, a)
		for i := range n {
			require.Equal(t, i, got[i])
		}
	})
}

func TestPanicCostsOneMessage(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var d diary
		first := newHold()
		life := 0
		var reported atomic.Value
		a := mustSpawn(t, s, Spec{Name: "a", New: func() Actor {
			life++
			name := fmt.Sprintf("life %d: ", life)
			return &part{
				started: func(c *Context) { d.add(fmt.Sprintf("%sstarted, restarts %d", name, c.Restarted())) },
				receive: func(c *Context, msg any) {
					switch m := msg.(type) {
					case hold:
						m.here()
					case *ask:
						d.add(fmt.Sprint(name, m.n))
						if m.crash != nil {
							panic(m.crash)
						}
						c.Answer(m, messages.Answer{N: m.n})
					}
				},
				endTurn: func(*Context) { d.add(name + "end") },
			}
		}, OnPanic: func(reason any, stack []byte, msg any) {
			reported.Store(fmt.Sprint(reason, " over ", msg.(*ask).n, " ", strings.Contains(string(stack), "TestPanicCostsOneMessage")))
		}})
		a.Send(first)
		get(t, first.entered, "the first message")

		cells := make([]Cell, 5)
		for i := range cells {
			cells[i] = s.Runtime().NewCell()
			m := &ask{Asked: messages.Asked{Reply: cells[i].Ref()}, n: int64(i)}
			if i == 2 {
				m.crash = "boom"
			}
			a.Send(m)
		}
		close(first.release)
		for i, cell := range cells {
			answer, err := cell.Wait(t.Context())
			require.NoError(t, err)
			if i != 2 {
				assert.Equal(t, messages.Answer{N: int64(i)}, answer)
				continue
			}
			require.ErrorIs(t, answer.Err, ErrCrashed)
			assert.EqualError(t, answer.Err, "a: actor crashed: boom")
		}
		stopAndWait(t, s, a)
		assert.Equal(t, "boom over 2 true", reported.Load())
		got := strings.Join(d.all(), "\n")
		assert.Contains(t, got, "life 1: 0\nlife 1: 1\nlife 1: 2\nlife 2: started, restarts 1\nlife 2: end\nlife 2: 3\nlife 2: 4\nlife 2: end")
	})
}

func TestPanicInEndTurnIsACrash(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var panics atomic.Int32
		var told atomic.Value
		p := echo()
		p.endTurn = func(c *Context) {
			if c.Restarted() == 0 && panics.Add(1) == 2 { // the first one follows Started
				panic("at the end of the turn")
			}
		}
		sp := spec("a", p)
		sp.OnPanic = func(reason any, _ []byte, msg any) { told.Store(fmt.Sprint(reason, msg)) }
		a := mustSpawn(t, s, sp)
		for i := range int64(3) {
			answer, err := put(t, s.Runtime(), a.Send, &ask{n: i})
			require.NoError(t, err)
			assert.Equal(t, i, answer.N)
		}
		stopAndWait(t, s, a)
		assert.Equal(t, "at the end of the turn<nil>", told.Load())
	})
}

func TestPanicInStartedIsTriedAgain(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		p := echo()
		p.started = func(c *Context) {
			if c.Restarted() < 3 {
				panic("not yet")
			}
		}
		a := mustSpawn(t, s, spec("a", p))
		answer, err := put(t, s.Runtime(), a.Send, &ask{n: 7})
		require.NoError(t, err)
		assert.Equal(t, int64(7), answer.N)
		stopAndWait(t, s, a)
	})
}

func TestGoexitIsACrash(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var reason atomic.Value
		p := echo()
		inner := p.receive
		p.receive = func(c *Context, msg any) {
			if m := msg.(*ask); m.n == 0 {
				runtime.Goexit()
			}
			inner(c, msg)
		}
		sp := spec("a", p)
		sp.OnPanic = func(r any, _ []byte, _ any) { reason.Store(r) }
		a := mustSpawn(t, s, sp)
		for range 10 { // more often than there are lanes
			answer, err := put(t, s.Runtime(), a.Send, &ask{n: 0})
			require.NoError(t, err)
			require.ErrorIs(t, answer.Err, ErrCrashed)
			answer, err = put(t, s.Runtime(), a.Send, &ask{n: 1})
			require.NoError(t, err)
			require.Equal(t, messages.Answer{N: 1}, answer)
		}
		assert.Equal(t, ErrGoexit, reason.Load())
		stopAndWait(t, s, a)
	})
}

func TestStopFailsWhatWaits(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		first := newHold()
		handled := 0
		a := mustSpawn(t, s, spec("a", &part{receive: func(_ *Context, msg any) {
			if h, ok := msg.(hold); ok {
				h.here()
				return
			}
			handled++
		}}))
		a.Send(first)
		get(t, first.entered, "the first message")
		cells := make([]Cell, 300)
		for i := range cells {
			cells[i] = s.Runtime().NewCell()
			a.Send(&ask{Asked: messages.Asked{Reply: cells[i].Ref()}})
		}
		assert.GreaterOrEqual(t, a.Pending(), len(cells))
		s.Stop(a)
		close(first.release)
		get(t, a.Done(), "the end")
		assert.True(t, a.Ended())
		for _, cell := range cells {
			answer, err := cell.Wait(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, answer.Err, ErrStopped)
		}
		assert.Zero(t, handled, "a stop must not wait behind the batch")

		// After the end: at once, on both ways in.
		answer, err := put(t, s.Runtime(), a.Send, &ask{})
		require.NoError(t, err)
		require.ErrorIs(t, answer.Err, ErrStopped)
		answer, err = put(t, s.Runtime(), a.Call, &ask{})
		require.NoError(t, err)
		require.ErrorIs(t, answer.Err, ErrStopped)
		a.Send("nobody waits for this one")
		assert.Zero(t, a.Pending())

		// The name is free again, and the old address does not reach the new actor.
		b := mustSpawn(t, s, spec("a", echo()))
		answer, err = put(t, s.Runtime(), a.Send, &ask{})
		require.NoError(t, err)
		require.ErrorIs(t, answer.Err, ErrStopped)
		stopAndWait(t, s, b)
	})
}

func TestNamesAreTakenOnce(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		a := mustSpawn(t, s, spec("a", echo()))
		_, err := s.Spawn(spec("a", echo()))
		require.ErrorIs(t, err, ErrNameTaken)
		stopAndWait(t, s, a)
	})
}

func TestPoisonPillStopsBehindWhatWasBefore(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		first := newHold()
		a := mustSpawn(t, s, spec("a", &part{receive: func(c *Context, msg any) {
			switch m := msg.(type) {
			case hold:
				m.here()
			case *ask:
				c.Answer(m, messages.Answer{N: 1})
			}
		}}))
		a.Send(first)
		get(t, first.entered, "the first message")
		before, behind := s.Runtime().NewCell(), s.Runtime().NewCell()
		a.Send(&ask{Asked: messages.Asked{Reply: before.Ref()}})
		s.ActorSystem().Root.Poison(a.PID())
		a.Send(&ask{Asked: messages.Asked{Reply: behind.Ref()}})
		close(first.release)
		get(t, a.Done(), "the end")
		answer, err := before.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, messages.Answer{N: 1}, answer)
		answer, err = behind.Wait(t.Context())
		require.NoError(t, err)
		assert.ErrorIs(t, answer.Err, ErrStopped)
	})
}

// native sends asks the way a foreign actor does, and passes answers on.
func native(t *testing.T, s *System) (request func(to *Address, m *ask), answers chan *messages.Answer, stop func()) {
	t.Helper()
	answers = make(chan *messages.Answer, 10)
	pid, err := s.ActorSystem().Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return receiver(func(c actor.Context) {
			if m, ok := c.Message().(*messages.Answer); ok {
				answers <- m
			}
		})
	}), "native")
	require.NoError(t, err)
	request = func(to *Address, m *ask) { s.ActorSystem().Root.RequestWithCustomSender(to.PID(), m, pid) }
	return request, answers, func() {
		ended := make(chan struct{})
		watcher := mustSpawn(t, s, spec("watcher", &part{
			started: func(c *Context) { c.WatchForeign(pid) },
			receive: func(_ *Context, msg any) {
				if gone, ok := msg.(*ForeignEnded); ok && gone.PID.Equal(pid) {
					close(ended)
				}
			},
		}))
		s.ActorSystem().Root.Stop(pid)
		get(t, ended, "the foreign actor's end")
		stopAndWait(t, s, watcher)
	}
}

type receiver func(actor.Context)

func (r receiver) Receive(c actor.Context) { r(c) }

func TestForeignActorsAreAnsweredByMessage(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var later messages.Ref
		p := echo()
		inner := p.receive
		p.receive = func(c *Context, msg any) {
			m := msg.(*ask)
			assert.NotNil(t, c.Sender())
			switch m.n {
			case 100:
				later = c.Ref(m)
				assert.True(t, later.Waiting())
			case 101:
				assert.True(t, later.Resolve(messages.Answer{N: 100}))
				assert.False(t, later.Resolve(messages.Answer{N: 100}), "twice")
				assert.False(t, later.Waiting())
			default:
				inner(c, msg)
			}
		}
		a := mustSpawn(t, s, spec("a", p))
		request, answers, stop := native(t, s)
		request(a, &ask{n: 5})
		assert.Equal(t, &messages.Answer{N: 5}, get(t, answers, "an answer"))
		request(a, &ask{n: 100})
		request(a, &ask{n: 101})
		assert.Equal(t, &messages.Answer{N: 100}, get(t, answers, "a late answer"))
		request(a, &ask{crash: "boom"})
		require.ErrorIs(t, get(t, answers, "the crash").Err, ErrCrashed)
		stopAndWait(t, s, a)
		answer, err := put(t, s.Runtime(), func(m any) { request(a, m.(*ask)) }, &ask{})
		require.NoError(t, err)
		require.ErrorIs(t, answer.Err, ErrStopped, "a dead letter")
		stop()
	})
}

func TestForeignActorsAreToldOfAStop(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		first := newHold()
		a := mustSpawn(t, s, spec("a", &part{receive: func(_ *Context, msg any) { msg.(hold).here() }}))
		request, answers, stop := native(t, s)
		a.Send(first)
		get(t, first.entered, "the first message")
		request(a, &ask{})
		s.Stop(a)
		close(first.release)
		require.ErrorIs(t, get(t, answers, "the refusal").Err, ErrStopped)
		get(t, a.Done(), "the end")
		stop()
	})
}

func TestEndedPanicsAndStopsAllTheSame(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var started, ended, reported atomic.Int32
		a := mustSpawn(t, s, Spec{Name: "a", OnPanic: func(any, []byte, any) { reported.Add(1) }, New: func() Actor {
			return &part{
				started: func(*Context) { started.Add(1) },
				ended:   func(*Context) { ended.Add(1); panic("in Ended") },
			}
		}})
		stopAndWait(t, s, a)
		assert.Equal(t, []int32{1, 1, 1}, []int32{started.Load(), ended.Load(), reported.Load()})
	})
}

func TestRestartAfterStopBringsNobodyBack(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var lives atomic.Int32
		a := mustSpawn(t, s, Spec{Name: "a", New: func() Actor { lives.Add(1); return echo() }})
		a.mailbox.PostSystemMessage(stop)
		a.mailbox.PostSystemMessage(restart)
		get(t, a.Done(), "the end")
		s.Runtime().Close() // all activations are over
		assert.Equal(t, int32(1), lives.Load())
	})
}

// A parent that decides later, as a back-off does: the child waits with its
// mailbox, then goes on. Meanwhile a child that was stopped is not revived.
func TestParentDecidesAboutItsChild(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		type revive struct{}
		var child *Address
		failed, ended := make(chan string, 4), make(chan string, 4)
		parent := mustSpawn(t, s, spec("parent", &part{
			started: func(c *Context) {
				var err error
				child, err = c.Spawn(spec("child", echo()))
				assert.NoError(t, err)
				_, err = c.Spawn(spec("child", echo()))
				assert.ErrorIs(t, err, ErrNameTaken)
			},
			receive: func(c *Context, msg any) {
				switch m := msg.(type) {
				case *ask:
					c.Answer(m, messages.Answer{Value: child})
				case revive:
					c.Restart(child)
				case string:
					c.StopChild(child)
					c.StopChild(child)
				}
			},
			childFailed: func(_ *Context, failing *Address, reason, msg any) {
				failed <- fmt.Sprint(failing.Name(), " ", reason, " ", msg.(*ask).n)
			},
			childEnded: func(c *Context, gone *Address) {
				ended <- fmt.Sprint(gone.Name(), " ", gone.Ended(), " ", c.Children())
			},
		}))
		answer, err := put(t, s.Runtime(), parent.Send, &ask{})
		require.NoError(t, err)
		c := answer.Value.(*Address)
		assert.Equal(t, "parent/child", c.PID().Id)

		answer, err = put(t, s.Runtime(), c.Send, &ask{n: 3, crash: "boom"})
		require.NoError(t, err)
		require.ErrorIs(t, answer.Err, ErrCrashed)
		assert.Equal(t, "child boom 3", get(t, failed, "the failure"))
		cell := s.Runtime().NewCell()
		ref := cell.Ref()
		c.Send(&ask{Asked: messages.Asked{Reply: ref}, n: 4})
		time.Sleep(5 * time.Millisecond)
		assert.True(t, ref.Waiting(), "a suspended child handles nothing")
		parent.Send(revive{})
		answer, err = cell.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, int64(4), answer.N)

		_, err = put(t, s.Runtime(), c.Send, &ask{crash: "again"})
		require.NoError(t, err)
		get(t, failed, "the second failure")
		parent.Send("stop the child")
		assert.Equal(t, "child true 0", get(t, ended, "the child's end"))
		parent.Send(revive{}) // the zombie trap
		_, err = put(t, s.Runtime(), parent.Send, &ask{})
		require.NoError(t, err)
		assert.True(t, c.Ended())
		stopAndWait(t, s, parent)
		assert.Empty(t, ended, "ChildEnded comes once")
	})
}

func TestParentStopsWithItsChildren(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		var d diary
		parent := mustSpawn(t, s, spec("parent", &part{
			started: func(c *Context) {
				for _, name := range []string{"x", "y", "z"} {
					child, err := c.Spawn(spec(name, &part{ended: func(c *Context) { d.add(c.Self().Name()) }}))
					assert.NoError(t, err)
					c.WatchForeign(child.PID()) // must not make ChildEnded come twice
				}
			},
			childEnded: func(_ *Context, child *Address) { d.add("gone " + child.Name()); panic("while stopping") },
			ended:      func(c *Context) { d.add("parent") },
		}))
		cell := s.Runtime().NewCell()
		parent.TellEnd(cell.Ref())
		stopAndWait(t, s, parent)
		_, err := cell.Wait(t.Context())
		require.NoError(t, err)
		lines := d.all()
		require.Len(t, lines, 7)
		assert.Equal(t, "parent", lines[6])
		assert.ElementsMatch(t, []string{"x", "y", "z", "gone x", "gone y", "gone z"}, lines[:6])
		late := s.Runtime().NewCell()
		parent.TellEnd(late.Ref())
		_, err = late.Wait(t.Context())
		require.NoError(t, err)
	})
}

// staunch is a message that crashes its actor some times and keeps its place.
type staunch struct {
	to      *Address
	crashes int
}

func (m *staunch) Fail(err error) {
	if errors.Is(err, ErrCrashed) {
		m.to.PutBack(m)
	}
}

func TestAMessageThatIsPutBackKeepsItsPlace(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		for name, send := range map[string]func(a *Address, msg any){"sent": (*Address).Send, "called": (*Address).Call} {
			var d diary
			last := make(chan struct{})
			a := mustSpawn(t, s, Spec{Name: name, New: func() Actor {
				return &part{receive: func(c *Context, msg any) {
					switch msg := msg.(type) {
					case *staunch:
						if msg.crashes > 0 {
							msg.crashes--
							d.add("crash")
							for i := range 10 { // behind it, and more than there is room for at first
								c.Self().Send(i)
							}
							panic("boom")
						}
						d.add("done")
						c.Self().Send(last)
					case int:
						d.add(fmt.Sprint(msg))
					case chan struct{}:
						close(msg)
					}
				}}
			}})
			send(a, &staunch{to: a, crashes: 2})
			get(t, last, "the last message")
			stopAndWait(t, s, a)
			all := d.all()
			require.Len(t, all, 23)
			assert.Equal(t, []string{"crash", "crash", "done", "0"}, all[:4])
		}
	})
}

func TestParentRestartsWithNewChildren(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		parent := mustSpawn(t, s, spec("parent", &part{
			started: func(c *Context) {
				_, err := c.Spawn(spec("child", echo()))
				assert.NoError(t, err)
			},
			receive: func(c *Context, msg any) {
				if m := msg.(*ask); m.crash != nil {
					panic(m.crash)
				} else {
					c.Answer(m, messages.Answer{N: int64(c.Restarted())})
				}
			},
		}))
		for i := range int64(20) { // the library's own strategy gives up at the eleventh
			_, err := put(t, s.Runtime(), parent.Send, &ask{crash: "boom"})
			require.NoError(t, err)
			answer, err := put(t, s.Runtime(), parent.Send, &ask{})
			require.NoError(t, err)
			require.Equal(t, i+1, answer.N)
		}
		stopAndWait(t, s, parent)
	})
}

func TestCallRunsOnItsCaller(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		onCaller := func(sp Spec) bool {
			stacks := make(chan string, 1)
			sp.New = func() Actor {
				return &part{receive: func(c *Context, msg any) {
					stacks <- string(debug.Stack())
					c.Answer(msg.(*ask), messages.Answer{})
				}}
			}
			a := mustSpawn(t, s, sp)
			a.mailbox.waitIdle(t)
			_, err := put(t, s.Runtime(), a.Call, &ask{})
			require.NoError(t, err)
			stopAndWait(t, s, a)
			return strings.Contains(<-stacks, "actorkit.put(")
		}
		assert.True(t, onCaller(Spec{Name: "plain"}))
		assert.False(t, onCaller(Spec{Name: "user code", UserCode: true}))
		assert.False(t, onCaller(Spec{Name: "blocking", Blocking: true}))
	})
}

// waitIdle waits for the activation by Started to be over.
func (m *mailbox) waitIdle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !m.busy
	}, 10*time.Second, 50*time.Microsecond)
}

func TestIdleMailboxIsSmall(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		first := newHold()
		a := mustSpawn(t, s, spec("a", &part{receive: func(_ *Context, msg any) {
			if h, ok := msg.(hold); ok {
				h.here()
			}
		}}))
		a.Send(first)
		get(t, first.entered, "the first message")
		for i := range 2000 {
			a.Send(i)
		}
		close(first.release)
		a.mailbox.waitIdle(t)
		assert.Equal(t, inlineMessages, cap(a.mailbox.posted))
		assert.Equal(t, inlineMessages, cap(a.mailbox.batch))
		assert.Zero(t, a.mailbox.inline)
		assert.Zero(t, a.Pending())
		require.NotEmpty(t, s.slabs.free, "the room goes back for the next burst")
		for _, slab := range s.slabs.free {
			for _, entry := range slab[:cap(slab)] {
				require.Nil(t, entry, "a slab keeps no message alive")
			}
		}
		stopAndWait(t, s, a)
	})
}

func TestNowIsOnePerTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := NewReal(RealConfig{})
		s := NewSystem(rt, nil)
		times := make(chan time.Time, 3)
		a := mustSpawn(t, s, Spec{Name: "a", Blocking: true, New: func() Actor {
			return &part{receive: func(c *Context, _ any) {
				times <- c.Now()
				time.Sleep(time.Second)
				times <- c.Now()
			}}
		}})
		a.Send(1)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		assert.Equal(t, <-times, <-times)
		s.Stop(a)
		<-a.Done()
		rt.Close()
	})
}

// Two bubbles one after the other: what a pool kept from the first would panic in
// the second.
func TestRuntimeLivesInABubble(t *testing.T) {
	for _, executor := range executors {
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				rt := NewReal(RealConfig{Executor: executor})
				s := NewSystem(rt, nil)
				rings := make(chan time.Time, 1)
				var timer Timer
				a := mustSpawn(t, s, spec("a", &part{
					started: func(c *Context) {
						timer = rt.AfterFunc(time.Hour, func() { c.Self().Send("ring") })
					},
					receive: func(c *Context, msg any) {
						if m, ok := msg.(*ask); ok {
							c.Answer(m, messages.Answer{N: m.n})
							return
						}
						rings <- c.Now()
					},
				}))
				start := time.Now()
				for i := range int64(100) {
					answer, err := put(t, rt, a.Call, &ask{n: i})
					require.NoError(t, err)
					require.Equal(t, i, answer.N)
				}
				assert.Equal(t, time.Hour, (<-rings).Sub(start))
				require.NoError(t, rt.Sleep(t.Context(), time.Minute))
				ctx, cancel := rt.WithTimeout(t.Context(), time.Second)
				cell := rt.NewCell()
				_, err := cell.Wait(ctx)
				require.ErrorIs(t, err, ctx.Err())
				cancel()
				timer.Stop()
				stopAndWait(t, s, a)
				rt.Close()
				rt.Close()
			})
		}
	}
}

func TestBlockingActorsHoldNobodyUp(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		const n = 200
		var here sync.WaitGroup
		here.Add(n)
		release := make(chan struct{})
		blocked := make([]*Address, n)
		for i := range blocked {
			blocked[i] = mustSpawn(t, s, Spec{Name: fmt.Sprint("b", i), Blocking: true, New: func() Actor {
				return &part{receive: func(*Context, any) { here.Done(); <-release }}
			}})
			blocked[i].Send("block")
		}
		here.Wait()
		a := mustSpawn(t, s, spec("a", echo()))
		_, err := put(t, s.Runtime(), a.Send, &ask{})
		require.NoError(t, err)

		gaveUp, cancel := s.Runtime().WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		stopAndWait(t, s, a)
		for _, b := range blocked {
			s.Stop(b)
		}
		err = s.Runtime().(*Real).Shutdown(gaveUp)
		require.ErrorIs(t, err, gaveUp.Err(), "handlers still run")
		close(release)
	})
}

// Every ask is answered exactly once, whatever happens to its actor.
func TestNothingIsLostUnderFire(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		const senders, each = 4, 3000
		var answered, crashed, stopped, lives atomic.Int64
		a := mustSpawn(t, s, Spec{Name: "a", New: func() Actor {
			lives.Add(1)
			return echo()
		}})
		var wg sync.WaitGroup
		for sender := range senders {
			wg.Go(func() {
				for i := range int64(each) {
					m := &ask{n: i}
					switch draw := Mix(1, "fire", "", uint64(sender*each)+uint64(i)) % 64; {
					case draw == 0:
						m.crash = "boom"
					case sender == 0 && i == each*9/10:
						s.Stop(a)
					}
					send := a.Send
					if i%3 == 0 {
						send = a.Call
					}
					answer, err := put(t, s.Runtime(), send, m)
					switch {
					case err != nil:
						t.Errorf("no answer: %v", err)
						return
					case errors.Is(answer.Err, ErrCrashed):
						crashed.Add(1)
					case errors.Is(answer.Err, ErrStopped):
						stopped.Add(1)
					case answer.N != i:
						t.Errorf("got %d, want %d", answer.N, i)
					default:
						answered.Add(1)
					}
				}
			})
		}
		wg.Wait()
		get(t, a.Done(), "the end")
		assert.Equal(t, int64(senders*each), answered.Load()+crashed.Load()+stopped.Load())
		assert.NotZero(t, answered.Load())
		assert.NotZero(t, stopped.Load())
		// A restart may be overtaken by the stop, so at most one life is missing.
		assert.InDelta(t, crashed.Load()+1, lives.Load(), 1)
	})
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	eachExecutor(t, func(t *testing.T, s *System) {
		before := goleak.IgnoreCurrent()
		rt := s.Runtime()
		var left sync.WaitGroup
		for range 1000 {
			left.Add(2)
			rt.Schedule(left.Done)
			rt.ScheduleBlocking(left.Done)
		}
		left.Wait()
		rt.Close()
		require.NoError(t, goleak.Find(before))
		rt.Schedule(func() { t.Error("ran after Close") })
		rt.ScheduleBlocking(func() { t.Error("ran after Close") })
		require.NoError(t, goleak.Find(before))
	})
}
