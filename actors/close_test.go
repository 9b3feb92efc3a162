package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/supervisor"
)

// waiters is a queue on which everybody waits for something, and what became of it.
type waiters struct {
	*sim
	*bomb
	b        *postroom.Broker
	consumer *postroom.Consumer
	returned map[string]error // by what was waited for
}

// await starts fn beside the test; its error is noted under what.
func (x *waiters) await(what string, fn func() error) {
	x.beside(func() { x.returned[what] = fn() })
}

// crowd makes a queue "jobs" with a consumer whose handler runs until its context
// ends, and one waiter of each kind.
func crowd(s *sim, options ...postroom.Option) *waiters {
	x := &waiters{sim: s, bomb: &bomb{}, returned: map[string]error{}}
	x.b = s.broker(append(options, postroom.WithProbe(x.probe))...)
	b := x.b
	declare(s.t, b, "jobs", postroom.QueueConfig{AckTimeout: time.Hour})
	declare(s.t, b, "dead", postroom.QueueConfig{})
	put(s.t, b, "jobs", "running")
	x.consumer = consume(s.t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
		return b.Sleep(ctx, 10*time.Hour)
	}, postroom.ConsumerConfig{})
	s.Idle()
	// Two letters, redriven at one in ten minutes into the queue that will end.
	put(s.t, b, "dead", "1", "2", "3")
	for range 3 {
		d, err := b.Get(ctx, "dead", postroom.GetConfig{})
		require.NoError(s.t, err)
		require.NoError(s.t, d.Reject(ctx, errWork))
	}
	x.await("redrive", func() error {
		r, err := b.Redrive(ctx, "dead", postroom.RedriveConfig{To: "jobs", Rate: 1.0 / 600})
		return errors.Join(err, r.Stopped)
	})
	s.Idle()
	x.await("drain", func() error { return b.Drain(ctx, "jobs") })
	s.Idle()
	p, err := b.Publisher(ctx, "dead", postroom.PublisherConfig{Window: 1, UntilSettled: true})
	require.NoError(s.t, err)
	_, err = p.Put(ctx, postroom.Envelope{ID: "holds the window"})
	require.NoError(s.t, err)
	require.NoError(s.t, p.Flush(ctx))
	x.await("window", func() error {
		_, err := p.Put(ctx, postroom.Envelope{ID: "waits for the window"})
		return errors.Join(err, p.Flush(ctx))
	})
	s.Idle()
	require.NoError(s.t, b.Pause(ctx, "dead"))
	for i := range 3 {
		x.await(fmt.Sprint("get ", i), func() error {
			_, err := b.Get(ctx, "dead", postroom.GetConfig{})
			return err
		})
	}
	s.Idle()
	require.Empty(s.t, x.returned, "all of them wait")
	return x
}

func TestQ14_DeletingAQueueAnswersEveryWaiter(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		x := crowd(s)
		began := s.Now()
		gone, err := x.b.DeleteQueue(ctx, "jobs")
		require.NoError(t, err)
		assert.Equal(t, postroom.Deleted{Messages: 2}, gone)
		_, err = x.b.DeleteQueue(ctx, "dead")
		require.NoError(t, err)
		s.sleep(2 * time.Second)
		for _, what := range []string{"redrive", "drain", "get 0", "get 1", "get 2"} {
			assert.ErrorIs(t, x.returned[what], postroom.ErrQueueClosed, what)
		}
		assert.ErrorIs(t, x.returned["window"], postroom.ErrQueueClosed)
		assert.True(t, ended(x.consumer))
		assert.ErrorIs(t, x.consumer.Err(), postroom.ErrQueueClosed)
		assert.Less(t, s.Now().Sub(began), 3*time.Second)
	})
}

func TestB5_CloseAnswersEveryWaiter(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		x := crowd(s)
		began := s.Now()
		short, cancel := s.WithTimeout(ctx, time.Minute)
		defer cancel()
		s.beside(func() {
			s.sleep(time.Second)
			for i := range 3 {
				assert.ErrorIs(t, x.returned[fmt.Sprint("get ", i)], postroom.ErrBrokerClosed, "hand-overs end at once")
			}
		})
		require.NoError(t, x.b.Close(short))
		s.Idle()
		for what, err := range x.returned {
			if what == "window" || what == "redrive" || what == "drain" {
				assert.Error(t, err, what)
				continue
			}
			assert.ErrorIs(t, err, postroom.ErrBrokerClosed, what)
		}
		assert.Len(t, x.returned, 6)
		assert.ErrorIs(t, x.consumer.Err(), postroom.ErrBrokerClosed)
		assert.Equal(t, time.Minute, s.Now().Sub(began), "the handler had until ctx ended, then was told")
		require.NoError(t, x.b.Close(ctx), "twice is harmless")
		_, err := x.b.Put(ctx, "jobs", postroom.Envelope{})
		assert.ErrorIs(t, err, postroom.ErrBrokerClosed)
	})
}

// A timer event that panics three times quarantines its queue (S3).
func TestS3_QuarantineAnswersEveryWaiterAndStaysReadable(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			eachSeed(t, 10, func(s *sim) {
				n := &notices{}
				x := crowd(s, postroom.WithListener(n.listen))
				b := x.b
				quarantined := events(t, b, "$sys.quarantined.*")
				put(t, b, "dead", "ready") // dead is paused: it stays
				for i := range 3 {
					_, err := b.Put(ctx, "dead", postroom.Envelope{Delay: time.Duration(i+1) * time.Minute})
					require.NoError(t, err)
				}
				before := stats(t, b, "dead")
				k := consume(t, b, "dead", collect(&book{}), postroom.ConsumerConfig{})

				x.arm("queue dead "+when+" *actors.ring", 3)
				s.sleep(4 * time.Minute)
				require.Equal(t, 3, x.hit())
				assert.Equal(t, []string{"$sys.quarantined.dead "}, quarantined.all(), "announced once")
				assert.Len(t, of[messages.Quarantined](n), 1)
				for _, what := range []string{"get 0", "get 1", "get 2", "window"} {
					assert.ErrorIs(t, x.returned[what], postroom.ErrQuarantined, what)
				}
				assert.True(t, ended(k))
				assert.ErrorIs(t, k.Err(), postroom.ErrQuarantined)

				// Refuses work.
				_, err := b.Put(ctx, "dead", postroom.Envelope{})
				assert.ErrorIs(t, err, postroom.ErrQuarantined)
				_, err = b.Get(ctx, "dead", postroom.GetConfig{})
				assert.ErrorIs(t, err, postroom.ErrQuarantined)
				_, err = b.Consume(ctx, "dead", collect(&book{}), postroom.ConsumerConfig{})
				assert.ErrorIs(t, err, postroom.ErrQuarantined)
				assert.ErrorIs(t, b.Drain(ctx, "dead"), postroom.ErrQuarantined)
				assert.ErrorIs(t, b.Ack(ctx, "dead", 1), postroom.ErrQuarantined)
				require.NoError(t, b.Bind(ctx, "dead", "t"))
				r, err := b.Publish(ctx, "t", postroom.Envelope{})
				require.NoError(t, err)
				assert.Equal(t, 1, r.Refused)

				// Stays readable.
				f := stats(t, b, "dead")
				assert.True(t, f.Quarantined)
				assert.Equal(t, before.Ready+before.Delayed, f.Ready+f.Delayed)
				letters, err := b.DeadLetters(ctx, "dead", 0, 10)
				require.NoError(t, err)
				assert.Len(t, letters, before.DeadLetters)
				_, err = b.Peek(ctx, "dead", 10)
				require.NoError(t, err)

				// Can be deleted, and declared again.
				_, err = b.DeleteQueue(ctx, "dead")
				require.NoError(t, err)
				declare(t, b, "dead", postroom.QueueConfig{})
				put(t, b, "dead", "works")
				require.NoError(t, b.Close(shortly(s)))
			})
		})
	}
}

// shortly is a context that ends in a second.
func shortly(s *sim) context.Context {
	short, cancel := s.WithTimeout(ctx, time.Second)
	s.t.Cleanup(cancel)
	return short
}

// Twice is no quarantine, when the next one goes through.
func TestS3_TwoCrashesOfATimerEventAreNoQuarantine(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		x := &bomb{}
		b := s.broker(postroom.WithProbe(x.probe))
		declare(t, b, "jobs", postroom.QueueConfig{})
		for range 5 {
			for i := range 3 {
				_, err := b.Put(ctx, "jobs", postroom.Envelope{Delay: time.Duration(i+1) * time.Minute})
				require.NoError(t, err)
			}
			x.arm("queue jobs before *actors.ring", 2)
			s.sleep(4 * time.Minute)
			require.Equal(t, 2, x.hit())
		}
		f := stats(t, b, "jobs")
		assert.False(t, f.Quarantined)
		assert.Equal(t, 15, f.Ready)
	})
}

// A queue that crashes on its own end as well is dropped all the same.
func TestS3_AQueueThatCannotCloseIsDropped(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			eachSeed(t, 10, func(s *sim) {
				x := crowd(s)
				x.arm("queue dead "+when+" *actors.closeQueue", 1000)
				_, err := x.b.DeleteQueue(ctx, "dead")
				if when == "before" {
					unknown(t, err)
				} else {
					require.NoError(t, err, "what has gone is known, and the rest was done")
				}
				s.sleep(2 * time.Second)
				for _, what := range []string{"get 0", "get 1", "get 2", "window", "redrive"} {
					assert.ErrorIs(t, x.returned[what], postroom.ErrQueueClosed, what)
				}
				assert.LessOrEqual(t, x.hit(), 4)
				declare(t, x.b, "dead", postroom.QueueConfig{})
				put(t, x.b, "dead", "a")
				require.NoError(t, x.b.Close(shortly(s)))
			})
		})
	}
}

// Contexts that end while their call waits say whether it may have happened.
func TestG1_AContextThatEndsSaysWhetherTheCommandWasSent(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, err := b.Put(over, "jobs", postroom.Envelope{})
		notSent(t, err)
		_, err = b.Get(over, "jobs", postroom.GetConfig{})
		notSent(t, err)
		_, err = b.Publish(over, "t", postroom.Envelope{})
		notSent(t, err)
		assert.Zero(t, stats(t, b, "jobs").Puts)

		// Cancelled while it waits: sent, so unknown; a get leaves nothing behind.
		put(t, b, "jobs", "a")
		drain, cancelDrain := s.WithTimeout(ctx, time.Minute)
		defer cancelDrain()
		unknown(t, b.Drain(drain, "jobs"))
		assert.True(t, stats(t, b, "jobs").Draining, "it stays so until Resume")
		require.NoError(t, b.Resume(ctx, "jobs"))

		p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 1, UntilSettled: true})
		require.NoError(t, err)
		_, err = p.Put(ctx, postroom.Envelope{})
		require.NoError(t, err)
		window, cancelWindow := s.WithTimeout(ctx, time.Minute)
		defer cancelWindow()
		_, err = p.Put(window, postroom.Envelope{})
		notSent(t, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.Flush(ctx))
	})
}

// ---- windows and crashes ----

// A crash on a put must neither leak its place in the window nor free it twice.
func TestA3_ACrashKeepsTheWindowsCount(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		for _, untilSettled := range []bool{false, true} {
			t.Run(fmt.Sprint(when, " until settled ", untilSettled), func(t *testing.T) {
				eachSeed(t, 10, func(s *sim) {
					x := &bomb{}
					b := s.broker(postroom.WithProbe(x.probe))
					declare(t, b, "jobs", quick)
					results := &book{}
					p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 2, UntilSettled: untilSettled, NoWait: true,
						OnResult: func(r postroom.PutResult) { results.add("%s %v", r.ID, r.Err == nil) }})
					require.NoError(t, err)
					x.arm("queue jobs "+when+" *actors.arrival", 1)
					_, err = p.Put(ctx, postroom.Envelope{ID: "crash"})
					require.NoError(t, err)
					err = p.Flush(ctx)
					assert.ErrorIs(t, err, postroom.ErrOutcomeUnknown)
					s.Idle()
					assert.Equal(t, []string{"crash false"}, results.all())

					settle := func() {
						for {
							d, err := b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
							if errors.Is(err, postroom.ErrEmpty) {
								return
							}
							require.NoError(t, err)
							require.NoError(t, d.Ack(ctx))
						}
					}
					settle()
					require.NoError(t, b.Pause(ctx, "jobs"))
					// Two places are free now, and not three or one.
					taken := 0
					for i := range 5 {
						if _, err := p.Put(ctx, postroom.Envelope{ID: fmt.Sprint(i)}); err == nil {
							taken++
						} else {
							assert.ErrorIs(t, err, postroom.ErrBusy)
						}
						if !untilSettled {
							break
						}
						s.Idle()
					}
					if untilSettled {
						assert.Equal(t, 2, taken)
					}
					require.NoError(t, p.Flush(ctx))
				})
			})
		}
	}
}

// ---- Close with handlers ----

func TestB5_CloseLetsARunningHandlerEndAndSettle(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		put(t, b, "jobs", "a", "b")
		var settled, touched error = errWork, errWork
		runs := 0
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			runs++
			require.NoError(t, b.Sleep(ctx, time.Minute))
			_, touched = d.Touch(ctx)
			settled = d.Ack(ctx)
			return nil
		}, postroom.ConsumerConfig{Manual: true, Prefetch: 2})
		s.Idle()
		began := s.Now()
		require.NoError(t, b.Close(ctx))
		assert.Equal(t, time.Minute, s.Now().Sub(began))
		assert.NoError(t, touched)
		assert.NoError(t, settled, "a handler that runs while the broker closes can settle")
		assert.Equal(t, 1, runs, "the other was given back")
	})
}

func TestB5_CloseNamesHandlersThatIgnoreTheirContext(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		put(t, b, "jobs", "a", "b")
		var cause error
		k := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			_ = b.Sleep(context.Background(), time.Hour)
			cause = context.Cause(ctx)
			return nil
		}, postroom.ConsumerConfig{})
		polite := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			return b.Sleep(ctx, time.Hour)
		}, postroom.ConsumerConfig{})
		s.Idle()
		var stuck *postroom.StuckError
		require.ErrorAs(t, b.Close(shortly(s)), &stuck)
		assert.Equal(t, []string{k.Tag}, stuck.Consumers)
		assert.True(t, ended(polite))
		assert.False(t, ended(k))
		s.sleep(2 * time.Hour)
		assert.True(t, ended(k), "its goroutine ends with it")
		assert.ErrorIs(t, cause, postroom.ErrBrokerClosed)
	})
}

func TestB5_CloseEndsConsumersInBackoff(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker(postroom.WithRestarts(supervisor.Policy{Base: 100 * time.Hour, Cap: 100 * time.Hour}))
		declare(t, b, "jobs", quick)
		put(t, b, "jobs", "a", "b")
		k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { panic("crash") }, postroom.ConsumerConfig{Prefetch: 2})
		s.Idle()
		began := s.Now()
		require.NoError(t, b.Close(ctx))
		assert.Equal(t, began, s.Now(), "at once")
		assert.True(t, ended(k))
	})
}

// Closing is an interruption: work given up because of it has not failed.
func TestC2_AnErrorAfterCloseCancelledTheContextIsInterrupted(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		n := &notices{}
		b := s.broker(postroom.WithListener(n.listen))
		declare(t, b, "jobs", postroom.QueueConfig{MaxAttempts: 1})
		put(t, b, "jobs", "a")
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			return b.Sleep(ctx, time.Hour)
		}, postroom.ConsumerConfig{})
		s.Idle()
		require.NoError(t, b.Close(shortly(s)))
		assert.Empty(t, of[messages.Died](n))
		settled := of[messages.Settled](n)
		require.Len(t, settled, 1)
		assert.Equal(t, postroom.VerbRelease, settled[0].Verb)
	})
}

// A crash in the middle of it must not keep Close from its end.
func TestB5_CloseSurvivesCrashesOfItsOwnCommands(t *testing.T) {
	for _, does := range []string{"*actors.endHandOvers", "*actors.detach", "*actors.giveBack", "*actors.holderEnded", "*actors.stopConsumer", "*actors.closeQueue"} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+does, func(t *testing.T) {
				eachSeed(t, 5, func(s *sim) {
					x := &bomb{}
					b := s.broker(postroom.WithProbe(x.probe))
					declare(t, b, "jobs", quick)
					put(t, b, "jobs", "a", "b", "c")
					n := s.native(b, "n")
					n.request(b.PID(), &messages.Consume{Queue: "jobs", Consumer: postroom.ConsumerConfig{}})
					s.Idle()
					k := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
						return b.Sleep(ctx, time.Hour)
					}, postroom.ConsumerConfig{Prefetch: 2})
					err := errWork
					s.Idle()
					s.beside(func() { _, err = b.Get(ctx, "jobs", postroom.GetConfig{}) })
					s.Idle()
					x.arm("queue jobs "+when+" "+does, 1)
					require.NoError(t, b.Close(ctx))
					s.Idle()
					require.Equal(t, 1, x.hit())
					assert.True(t, ended(k))
					if err != nil || does != "*actors.endHandOvers" { // which comes late after its crash
						assert.ErrorIs(t, err, postroom.ErrBrokerClosed)
					}
					assert.Len(t, received[*messages.ConsumerEnded](n), 1)
					n.stop()
				})
			})
		}
	}
}
