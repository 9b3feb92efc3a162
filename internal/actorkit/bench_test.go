package actorkit

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom/messages"
)

// BenchmarkMailbox measures one message from Send to Receive with a sender that
// does not wait. A backlog that runs away would pass for speed, so the sender keeps
// within a window, and messages per turn are reported: they say how much of the
// cost of a wake-up each message carries.
func BenchmarkMailbox(b *testing.B) {
	for _, executor := range executors {
		for _, window := range []int64{1, 64, 1024} {
			b.Run(fmt.Sprintf("%v/window=%d", executor, window), func(b *testing.B) {
				rt := NewReal(RealConfig{Executor: executor})
				defer rt.Close()
				s := NewSystem(rt, nil)
				var handled atomic.Int64
				turns := 0
				room := make(chan struct{}, 1)
				var waiting atomic.Int64 // the sender waits until this many are handled
				a := mustSpawn(b, s, spec("a", &part{
					receive: func(*Context, any) {
						if n := handled.Add(1); n == waiting.Load() {
							room <- struct{}{}
						}
					},
					endTurn: func(*Context) { turns++ },
				}))
				msg := &ask{}
				var sent int64
				b.ReportAllocs()
				for b.Loop() {
					if sent%window == 0 && sent > 0 {
						// The window is full: wait until it is empty. The order of the two
						// looks keeps the wake-up from being lost.
						waiting.Store(sent)
						if handled.Load() < sent {
							<-room
						}
						select {
						case <-room:
						default:
						}
					}
					a.Send(msg)
					sent++
				}
				stopAfter(b, s, a, &handled, sent)
				b.ReportMetric(float64(sent)/float64(turns), "msgs/turn")
			})
		}
	}
}

// stopAfter lets the actor finish and checks that it saw every message.
func stopAfter(b *testing.B, s *System, a *Address, handled *atomic.Int64, sent int64) {
	b.Helper()
	s.ActorSystem().Root.Poison(a.PID())
	<-a.Done()
	if handled.Load() != sent {
		b.Fatalf("%d messages handled, want %d", handled.Load(), sent)
	}
}

// BenchmarkMailboxContended posts from all processors to one actor.
func BenchmarkMailboxContended(b *testing.B) {
	for _, executor := range executors {
		b.Run(executor.String(), func(b *testing.B) {
			rt := NewReal(RealConfig{Executor: executor})
			defer rt.Close()
			s := NewSystem(rt, nil)
			var handled, sent atomic.Int64
			a := mustSpawn(b, s, spec("a", &part{receive: func(*Context, any) { handled.Add(1) }}))
			msg := &ask{}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				n := int64(0)
				for pb.Next() {
					a.Send(msg)
					n++
				}
				sent.Add(n)
			})
			stopAfter(b, s, a, &handled, sent.Load())
		})
	}
}

// BenchmarkPingPong is one message there and one back between two actors, both
// idle in between: two wake-ups, nothing to batch.
func BenchmarkPingPong(b *testing.B) {
	for _, executor := range executors {
		b.Run(executor.String(), func(b *testing.B) {
			rt := NewReal(RealConfig{Executor: executor})
			defer rt.Close()
			s := NewSystem(rt, nil)
			pongs := 0
			pong := mustSpawn(b, s, spec("pong", &part{receive: func(_ *Context, msg any) {
				pongs++
				msg.(*Address).Send(msg)
			}}))
			total := b.N
			pings := 0
			done := make(chan struct{})
			ping := mustSpawn(b, s, spec("ping", &part{receive: func(c *Context, _ any) {
				if pings++; pings > total {
					close(done)
					return
				}
				pong.Send(c.Self())
			}}))
			b.ReportAllocs()
			b.ResetTimer()
			ping.Send("go")
			<-done
			if pongs != total {
				b.Fatalf("%d pongs, want %d", pongs, total)
			}
		})
	}
}

// BenchmarkRoundTrip is a confirmed call: cell, command, turn, answer.
func BenchmarkRoundTrip(b *testing.B) {
	for _, executor := range executors {
		for _, way := range []string{"call", "send"} {
			b.Run(executor.String()+"/"+way, func(b *testing.B) {
				rt := NewReal(RealConfig{Executor: executor})
				defer rt.Close()
				s := NewSystem(rt, nil)
				a := mustSpawn(b, s, spec("a", echo()))
				send := a.Send
				if way == "call" {
					send = a.Call
				}
				ctx, cancel := context.WithCancel(context.Background()) // callers have contexts that can end
				defer cancel()
				m := &ask{}
				b.ReportAllocs()
				for b.Loop() {
					m.n++
					cell := rt.NewCell()
					m.Reply = cell.Ref()
					send(m)
					if answer, err := cell.Wait(ctx); err != nil || answer.N != m.n {
						b.Fatalf("got %v, %v, want %d", answer, err, m.n)
					}
				}
			})
		}
	}
}

// BenchmarkFloor is the same round trip over bare channels, to compare with.
func BenchmarkFloor(b *testing.B) {
	type question struct {
		n     int64
		reply chan messages.Answer
	}
	questions := make(chan question, 64)
	go func() {
		for q := range questions {
			q.reply <- messages.Answer{N: q.n}
		}
	}()
	defer close(questions)
	reply := make(chan messages.Answer, 1)
	b.ReportAllocs()
	var n int64
	for b.Loop() {
		n++
		questions <- question{n, reply}
		if answer := <-reply; answer.N != n {
			b.Fatalf("got %d, want %d", answer.N, n)
		}
	}
}

// BenchmarkSpawn starts and ends one actor, and reports what an idle one keeps.
func BenchmarkSpawn(b *testing.B) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	s := NewSystem(rt, nil)
	p := echo()
	b.ReportAllocs()
	for b.Loop() {
		a := mustSpawn(b, s, spec("a", p))
		s.Stop(a)
		<-a.Done()
	}
}

func BenchmarkMix(b *testing.B) {
	seen := uint64(0)
	for b.Loop() {
		seen ^= Mix(1, "retry", "orders", seen)
	}
	if seen == 0 {
		b.Fatal("all draws cancel out")
	}
}
