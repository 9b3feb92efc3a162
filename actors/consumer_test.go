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

// fixedRestarts makes the wait after a crash predictable enough for a test: at most
// a second, and a stop after so many failures that come right after each other.
func fixedRestarts(failures int) postroom.Option {
	return postroom.WithRestarts(supervisor.Policy{Base: time.Second, Cap: time.Second, MaxFailures: failures, HalfLife: time.Hour})
}

func TestC1_CancelReturnsWhatNoHandlerHasBegunUntried(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		put(t, b, "jobs", "a", "b", "c", "d")
		k := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			return b.Sleep(ctx, time.Minute)
		}, postroom.ConsumerConfig{Prefetch: 3})
		s.sleep(time.Second)
		require.NoError(t, k.Cancel(ctx))

		got := stats(t, b, "jobs")
		assert.Equal(t, 1, got.Leased, "the one that runs")
		assert.Equal(t, 3, got.Ready, "back before Cancel returns")
		assert.EqualValues(t, 2, got.Interruptions)
		assert.False(t, ended(k), "its handler still runs")
		next, err := b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
		require.NoError(t, err)
		assert.Equal(t, "b", next.ID)
		assert.Equal(t, 1, next.Attempt, "the attempt was not spent")
		assert.Equal(t, 2, next.Deliveries)

		s.sleep(2 * time.Minute)
		assert.True(t, ended(k))
		assert.NoError(t, k.Err())
		assert.EqualValues(t, 1, stats(t, b, "jobs").Acks, "the running one could settle, its lease was kept")
	})
}

func TestC1_TagsAreUniqueAcrossQueuesAndACancelledOneIsNotFound(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		b := s.broker()
		declare(t, b, "one", quick)
		declare(t, b, "two", quick)
		k1 := consume(t, b, "one", collect(&book{}), postroom.ConsumerConfig{})
		k2 := consume(t, b, "two", collect(&book{}), postroom.ConsumerConfig{})
		k3 := consume(t, b, "one", collect(&book{}), postroom.ConsumerConfig{})
		assert.Equal(t, []string{"ctag-1", "ctag-2", "ctag-3"}, []string{k1.Tag, k2.Tag, k3.Tag})

		require.NoError(t, b.Cancel(ctx, "ctag-2"))
		var missing *postroom.NotFoundError
		assert.ErrorAs(t, b.Cancel(ctx, "ctag-2"), &missing)
		assert.ErrorAs(t, b.SetPrefetch(ctx, "ctag-2", 1), &missing)
		assert.ErrorAs(t, b.Cancel(ctx, "ctag-9"), &missing)
		// The queue's end forgets its tags too (T7).
		_, err := b.DeleteQueue(ctx, "one")
		require.NoError(t, err)
		s.Idle()
		assert.ErrorAs(t, b.Cancel(ctx, "ctag-1"), &missing)
		assert.ErrorIs(t, k1.Err(), postroom.ErrQueueClosed)
		assert.NoError(t, k2.Err(), "cancelled")
	})
}

// The property of C4: a handler that returns within its timeout never gets a stale
// ack, and runs once, however short the lease.
func TestC4_HeartbeatKeepsALongHandlersLease(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "jobs", "a", "b", "c")
		got := &book{}
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			return b.Sleep(ctx, 9*time.Minute)
		}, postroom.ConsumerConfig{Prefetch: 3})
		s.sleep(time.Hour)
		f := stats(t, b, "jobs")
		assert.Equal(t, []string{"a", "b", "c"}, got.all(), "once each, those that waited too (C3)")
		assert.EqualValues(t, 3, f.Acks)
		assert.Zero(t, f.Expiries+f.StaleBy[postroom.VerbAck]+f.StaleBy[postroom.VerbTouch])
		assert.Greater(t, f.Touches, uint64(3*100))
	})
}

func TestC4_HeartbeatStopsAtMaxLease(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxLease: 25 * time.Second, MaxAttempts: 1})
		put(t, b, "jobs", "a")
		var cause error
		var after time.Duration
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			began := b.Now()
			cause = b.Sleep(ctx, time.Hour)
			after = b.Now().Sub(began)
			return cause
		}, postroom.ConsumerConfig{})
		s.sleep(2 * time.Hour)
		assert.ErrorIs(t, cause, postroom.ErrLeaseLost)
		assert.Equal(t, 25*time.Second, after)
		assert.EqualValues(t, 1, stats(t, b, "jobs").DeadBy[postroom.MaxAttempts])
	})
}

func TestC3_WaitingMessagesAreKeptAliveWithoutHeartbeat(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "jobs", "a", "b", "c", "d")
		var attempts []int
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			attempts = append(attempts, d.Deliveries)
			return b.Sleep(ctx, 6*time.Second)
		}, postroom.ConsumerConfig{Prefetch: 4, NoHeartbeat: true})
		s.sleep(time.Hour)
		// The last one waited 18 s in the consumer, behind three handlers.
		assert.Equal(t, []int{1, 1, 1, 1}, attempts)
		f := stats(t, b, "jobs")
		assert.EqualValues(t, 4, f.Acks)
		assert.Zero(t, f.Expiries)
	})
}

func TestC4_LostLeaseCancelsTheHandler(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "jobs", "a")
		var causes []error
		runs := 0
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			if runs++; runs > 1 {
				return nil
			}
			err := b.Sleep(ctx, time.Hour)
			causes = append(causes, err)
			return err
		}, postroom.ConsumerConfig{NoHeartbeat: true})
		s.sleep(time.Hour)
		require.Len(t, causes, 1)
		assert.ErrorIs(t, causes[0], postroom.ErrLeaseLost)
		f := stats(t, b, "jobs")
		assert.EqualValues(t, 1, f.Acks)
		assert.EqualValues(t, 1, f.Expiries)
		assert.EqualValues(t, 1, f.StaleBy[postroom.VerbNack], "its own answer was late, and is counted")
		assert.Equal(t, 2, runs)
	})
}

func TestC5_HandlerTimeoutCancelsTheHandlerAndIsAFailure(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 1})
		put(t, b, "jobs", "a")
		var cause error
		var after time.Duration
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			began := b.Now()
			cause = b.Sleep(ctx, time.Hour)
			after = b.Now().Sub(began)
			return cause
		}, postroom.ConsumerConfig{HandlerTimeout: 47 * time.Second})
		s.sleep(time.Hour)
		assert.ErrorIs(t, cause, postroom.ErrHandlerTimeout)
		assert.Equal(t, 47*time.Second, after)
		f := stats(t, b, "jobs")
		assert.EqualValues(t, 1, f.Nacks, "a failure, not an interruption")
		assert.EqualValues(t, 1, f.DeadBy[postroom.MaxAttempts])
	})
}

// A handler that ignores its timeout is a black hole unless work is kept from it.
func TestC5_AStuckHandlerIsReportedOnceAndGetsNothingMore(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		n := &notices{}
		b := s.broker(postroom.WithListener(n.listen))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 30 * time.Second, MaxAttempts: 9})
		put(t, b, "jobs", "a", "b", "c")
		got := &book{}
		stuck := true
		consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			if stuck {
				_ = b.Sleep(ctx, 2*time.Hour) // not its own ctx: it hears of nothing
				stuck = false
			}
			return nil
		}, postroom.ConsumerConfig{Prefetch: 3, HandlerTimeout: time.Minute})
		s.sleep(time.Hour)
		assert.Len(t, of[messages.HandlerStuck](n), 1)
		f := stats(t, b, "jobs")
		assert.Equal(t, 3, f.Ready, "its own lease ran out; those that waited came back")
		assert.EqualValues(t, 2, f.Interruptions)
		assert.EqualValues(t, 1, f.Expiries)
		assert.EqualValues(t, 3, f.Deliveries, "nothing more until it returns")
		s.sleep(2 * time.Hour)
		assert.Len(t, of[messages.HandlerStuck](n), 1)
		assert.EqualValues(t, 3, stats(t, b, "jobs").Acks, "work has resumed")
	})
}

// With concurrency, the others of the consumer go on: the lease in the stuck
// handler's hands must not use up their credit.
func TestC5_AStuckHandlerDoesNotStarveItsSiblings(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 30 * time.Second, MaxAttempts: 9})
		got := &book{}
		consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			if d.ID == "stuck" && d.Attempt == 1 {
				_ = b.Sleep(ctx, 10*time.Hour)
			}
			return nil
		}, postroom.ConsumerConfig{Concurrency: 2, HandlerTimeout: time.Minute})
		put(t, b, "jobs", "stuck")
		s.sleep(time.Hour)
		put(t, b, "jobs", "a", "b", "c")
		s.sleep(time.Hour)
		assert.EqualValues(t, 4, stats(t, b, "jobs").Acks, "%v", got.all())
	})
}

// RUNTIME.md's black hole: without the credit rule a hung consumer drew a message
// again each time its lease ran out, and burned its attempts.
func TestC5_AHungConsumerBesideAHealthyOneBurnsNoAttempts(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 3})
		hung := 0
		consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			hung++
			_ = b.Sleep(ctx, 10*time.Hour)
			return nil
		}, postroom.ConsumerConfig{Prefetch: 5, NoHeartbeat: true, HandlerTimeout: time.Minute})
		got := &book{}
		consume(t, b, "jobs", collect(got), postroom.ConsumerConfig{Prefetch: 5})
		for i := range 100 {
			put(t, b, "jobs", fmt.Sprint(i))
			s.sleep(time.Second)
		}
		s.sleep(time.Hour)
		f := stats(t, b, "jobs")
		assert.EqualValues(t, 100, f.Acks)
		assert.Zero(t, f.Dead())
		assert.Equal(t, 1, hung)
		assert.LessOrEqual(t, f.Expiries, uint64(1))
	})
}

func TestC2_AHandlerThatSettledByItselfHasItsReturnIgnored(t *testing.T) {
	settled := map[string]func(d *postroom.Delivery) error{
		"ack":     func(d *postroom.Delivery) error { return d.Ack(ctx) },
		"reject":  func(d *postroom.Delivery) error { return d.Reject(ctx, errWork) },
		"nack in": func(d *postroom.Delivery) error { return d.NackIn(ctx, time.Hour, errWork) },
		"release": func(d *postroom.Delivery) error { return d.Release(ctx) },
	}
	for name, settle := range settled {
		for _, returned := range []error{nil, errWork, postroom.Permanent(errWork)} {
			t.Run(fmt.Sprint(name, " ", returned), func(t *testing.T) {
				eachSeed(t, 3, func(s *sim) {
					b := s.broker()
					declare(t, b, "jobs", quick)
					put(t, b, "jobs", "a")
					runs := 0
					consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
						if runs++; runs > 1 {
							return nil
						}
						assert.NoError(t, settle(d))
						return returned
					}, postroom.ConsumerConfig{})
					s.sleep(time.Minute)
					f := stats(t, b, "jobs")
					assert.Equal(t, [messages.Verbs]uint64{}, f.StaleBy, "uncounted")
					switch name {
					case "ack":
						assert.EqualValues(t, 1, f.Acks)
					case "reject":
						assert.EqualValues(t, 1, f.DeadBy[postroom.Rejected])
					case "nack in":
						assert.Equal(t, 1, f.Delayed)
					case "release":
						assert.EqualValues(t, 1, f.Interruptions)
						assert.EqualValues(t, 1, f.Acks, "the second run")
					}
				})
			})
		}
	}
}

func TestC2_WhatAHandlersReturnMeans(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want func(t *testing.T, f postroom.QueueStats)
	}{
		"nil acks":               {nil, func(t *testing.T, f postroom.QueueStats) { assert.EqualValues(t, 1, f.Acks) }},
		"an error nacks":         {errWork, func(t *testing.T, f postroom.QueueStats) { assert.EqualValues(t, 1, f.Nacks) }},
		"a permanent one kills":  {postroom.Permanent(errWork), func(t *testing.T, f postroom.QueueStats) { assert.EqualValues(t, 1, f.DeadBy[postroom.Rejected]) }},
		"retry in waits exactly": {&messages.RetryInError{Delay: time.Hour}, func(t *testing.T, f postroom.QueueStats) { assert.Equal(t, 1, f.Delayed) }},
	} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, 3, func(s *sim) {
				b := s.broker()
				declare(t, b, "jobs", quick)
				put(t, b, "jobs", "a")
				first := true
				consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error {
					if !first {
						return nil
					}
					first = false
					return c.err
				}, postroom.ConsumerConfig{})
				s.sleep(time.Minute)
				c.want(t, stats(t, b, "jobs"))
			})
		})
	}
}

func TestC2_ManualReturnSettlesNothing(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "jobs", "a")
		var held []*postroom.Delivery
		consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			held = append(held, d)
			return errWork
		}, postroom.ConsumerConfig{Manual: true})
		s.sleep(5 * time.Second)
		assert.Equal(t, 1, stats(t, b, "jobs").Leased)
		s.sleep(6 * time.Second)
		require.Len(t, held, 2, "nobody touches it after the return, so it ran out")
		assert.ErrorIs(t, held[0].Ack(ctx), postroom.ErrStale)
		assert.NoError(t, held[1].Ack(ctx))
	})
}

// ---- crashes of handlers ----

func TestS1_ACrashedHandlersLeaseRunsOutAndItsErrorTells(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		n := &notices{}
		b := s.broker(postroom.WithListener(n.listen), fixedRestarts(10))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 30 * time.Second, MaxAttempts: 2})
		put(t, b, "jobs", "a", "b", "c")
		got := &book{}
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			if d.ID == "a" {
				panic("no such file")
			}
			return nil
		}, postroom.ConsumerConfig{Prefetch: 3})
		s.Idle()
		f := stats(t, b, "jobs")
		assert.Equal(t, 1, f.Leased, "the crashed one is not settled")
		assert.Equal(t, 2, f.Ready, "what had not started is back at once")
		assert.EqualValues(t, 2, f.Interruptions)
		s.sleep(2 * time.Second)
		require.Len(t, of[messages.WorkerRestarted](n), 1, "after a wait on the broker's clock")
		assert.EqualValues(t, 2, stats(t, b, "jobs").Acks)
		s.sleep(2 * time.Minute)
		assert.Equal(t, []string{"a", "b", "c", "a"}, got.all())
		letters, err := b.DeadLetters(ctx, "jobs", 0, 10)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.MaxAttempts, letters[0].Reason)
		assert.Equal(t, 2, letters[0].Attempts)
		assert.Contains(t, letters[0].Error, "handler crashed: no such file")
		assert.Len(t, of[messages.HandlerCrashed](n), 2)
	})
}

// At whatever point of its work the handler crashes, the message is neither lost
// nor settled by the crash.
func TestS1_CrashesBeforeInsideAndAfterTheHandlersEffect(t *testing.T) {
	for _, point := range []string{"before", "inside", "after"} {
		t.Run(point, func(t *testing.T) {
			eachSeed(t, 10, func(s *sim) {
				b := s.broker(fixedRestarts(10))
				declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
				declare(t, b, "next", postroom.QueueConfig{DedupWindow: time.Hour})
				put(t, b, "jobs", "a")
				crashed := false
				crash := func(here string) {
					if here == point && !crashed {
						crashed = true
						panic("crash " + here)
					}
				}
				consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
					crash("before")
					_, err := b.Put(ctx, "next", postroom.Envelope{ID: d.ID})
					crash("inside")
					if err == nil {
						err = d.Ack(ctx)
					}
					crash("after")
					return err
				}, postroom.ConsumerConfig{})
				s.sleep(time.Minute)
				assert.True(t, crashed)
				f, next := stats(t, b, "jobs"), stats(t, b, "next")
				assert.EqualValues(t, 1, f.Acks)
				assert.Zero(t, f.Leased+f.Ready+f.Delayed)
				assert.EqualValues(t, 1, next.Puts)
				assert.EqualValues(t, map[string]int{"before": 0, "inside": 1, "after": 0}[point], next.Duplicates)
			})
		})
	}
}

func TestS2_ACrashLoopStopsTheConsumer(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		n := &notices{}
		b := s.broker(postroom.WithListener(n.listen), fixedRestarts(3))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 2 * time.Second, MaxAttempts: 100})
		stopped := events(t, b, "$sys.consumer.stopped.*")
		put(t, b, "jobs", "a")
		k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { panic("always") }, postroom.ConsumerConfig{Name: "crasher"})
		s.sleep(time.Hour)
		assert.True(t, ended(k))
		assert.ErrorIs(t, k.Err(), postroom.ErrCrashLoop)
		assert.Equal(t, []string{"$sys.consumer.stopped.jobs ctag-1"}, stopped.all(), "once")
		assert.Len(t, of[messages.HandlerCrashed](n), 4, "three restarts and the last straw")
		assert.Len(t, of[messages.ConsumerStopped](n), 1)
		f := stats(t, b, "jobs")
		assert.Zero(t, f.Consumers)
		assert.Equal(t, 1, f.Ready, "the message has come back")
		assert.ErrorIs(t, k.Cancel(ctx), postroom.ErrNotFound, "it is cancelled (C9)")
	})
}

func TestS2_TheCrashCountDecaysInCalm(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		b := s.broker(fixedRestarts(3))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: time.Second, MaxAttempts: 1})
		k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { panic("sometimes") }, postroom.ConsumerConfig{})
		for i := range 20 {
			put(t, b, "jobs", fmt.Sprint(i))
			s.sleep(3 * time.Hour)
		}
		assert.False(t, ended(k))
		assert.EqualValues(t, 20, stats(t, b, "jobs").DeadBy[postroom.MaxAttempts])
	})
}

// A handler that crashes when its consumer was cancelled already, once too often,
// must not keep the consumer from ending.
func TestS2_TheLastStrawAfterACancelStillEndsTheConsumer(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker(fixedRestarts(1))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 5 * time.Second, MaxAttempts: 100})
		stopped := events(t, b, "$sys.consumer.stopped.*")
		put(t, b, "jobs", "a")
		runs := 0
		k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error {
			if runs++; runs == 2 {
				_ = b.Sleep(ctx, time.Minute)
			}
			panic("again")
		}, postroom.ConsumerConfig{})
		s.sleep(20 * time.Second)
		require.Equal(t, 2, runs)
		require.NoError(t, k.Cancel(ctx))
		s.sleep(time.Hour)
		assert.True(t, ended(k))
		assert.NoError(t, k.Err(), "it was cancelled")
		assert.Empty(t, stopped.all())
	})
}

func TestS1_OneCrashedWorkerDoesNotStopTheOthers(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		slow := postroom.WithRestarts(supervisor.Policy{Base: 10 * time.Hour, Cap: 10 * time.Hour})
		b := s.broker(slow)
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: time.Hour, MaxAttempts: 9})
		got := &book{}
		k := consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			if d.ID == "bad" {
				panic("bad")
			}
			got.add("%s", d.ID)
			return nil
		}, postroom.ConsumerConfig{Concurrency: 2})
		put(t, b, "jobs", "bad")
		s.Idle()
		put(t, b, "jobs", "a", "b", "c")
		s.Idle()
		assert.ElementsMatch(t, []string{"a", "b", "c"}, got.all(), "at once, and not when the bad one's lease is over")
		assert.False(t, ended(k))
	})
}

func TestC1_SetPrefetchZeroHaltsAndMoreResumes(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		got := &book{}
		k := consume(t, b, "jobs", collect(got), postroom.ConsumerConfig{Concurrency: 2})
		require.NoError(t, b.SetPrefetch(ctx, k.Tag, 0))
		put(t, b, "jobs", "a", "b")
		s.sleep(time.Minute)
		assert.Empty(t, got.all())
		var bad *postroom.ArgumentError
		assert.ErrorAs(t, b.SetPrefetch(ctx, k.Tag, 1), &bad, "less than Concurrency")
		require.NoError(t, b.SetPrefetch(ctx, k.Tag, 2))
		s.sleep(time.Second)
		assert.ElementsMatch(t, []string{"a", "b"}, got.all())
	})
}

// A consumer that is halted stays so when a worker of it crashes and comes back.
func TestC1_ACrashDoesNotLiftAHalt(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker(fixedRestarts(10))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 2 * time.Second, MaxAttempts: 1})
		runs := 0
		k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error {
			runs++
			_ = b.Sleep(ctx, time.Second)
			panic("crash")
		}, postroom.ConsumerConfig{Concurrency: 2})
		put(t, b, "jobs", "a")
		s.Idle()
		require.NoError(t, b.SetPrefetch(ctx, k.Tag, 0))
		put(t, b, "jobs", "b", "c")
		s.sleep(time.Minute)
		assert.Equal(t, 1, runs)
		assert.Equal(t, 2, stats(t, b, "jobs").Ready)
	})
}

func TestC8_SingleActiveHandsOverWhenThePredecessorIsGone(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, SingleActive: true})
		got := &book{}
		running := 0
		handler := func(name string) postroom.Handler {
			return func(ctx context.Context, d *postroom.Delivery) error {
				got.add("%s %s", name, d.ID)
				running++
				assert.Equal(t, 1, running, "one at a time")
				err := b.Sleep(ctx, 20*time.Second)
				running--
				return err
			}
		}
		first := consume(t, b, "jobs", handler("first"), postroom.ConsumerConfig{})
		consume(t, b, "jobs", handler("second"), postroom.ConsumerConfig{})
		put(t, b, "jobs", "a", "b", "c")
		s.sleep(30 * time.Second)
		require.NoError(t, first.Cancel(ctx))
		s.sleep(time.Minute)
		assert.Equal(t, []string{"first a", "first b", "second c"}, got.all())
		assert.EqualValues(t, 3, stats(t, b, "jobs").Acks)
	})
}

// ---- NoTimeout (Q17) ----

func TestQ17_WithoutATimeoutAHandlersLeaseLastsAsLongAsItsConsumer(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker(fixedRestarts(10))
		declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true, AckTimeout: time.Second, NoJitter: true})
		put(t, b, "jobs", "a", "b")
		got := &book{}
		k := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			got.add("%s %d", d.ID, d.Attempt)
			if d.ID == "a" && d.Attempt == 1 {
				_ = b.Sleep(ctx, 5*time.Minute)
				panic("after all that time")
			}
			return nil
		}, postroom.ConsumerConfig{Manual: true})
		s.sleep(4 * time.Minute)
		assert.Equal(t, 1, stats(t, b, "jobs").Leased)
		s.sleep(61 * time.Second)
		assert.Equal(t, []string{"a 1", "a 2"}, got.all())
		f := stats(t, b, "jobs")
		assert.Zero(t, f.Expiries, "a panic returns it at once, as failed")
		require.NoError(t, k.Cancel(ctx))
		s.Idle()
		f = stats(t, b, "jobs")
		assert.True(t, ended(k))
		assert.Zero(t, f.Leased, "the holder's end returns the rest")
	})
}

// When the queue crashes on a handler's answer, the lease has no deadline that would
// bring the message back: it must come back all the same, and the credit with it.
func TestQ17_AnAnswerLostToACrashComesBack(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		x := &bomb{}
		b := s.broker(postroom.WithProbe(x.probe))
		declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true})
		x.arm("queue jobs before *actors.slot", 1)
		got := &book{}
		consume(t, b, "jobs", collect(got), postroom.ConsumerConfig{})
		put(t, b, "jobs", "a", "b")
		s.sleep(time.Minute)
		assert.Equal(t, 1, x.hit())
		f := stats(t, b, "jobs")
		assert.EqualValues(t, 2, f.Acks)
		assert.EqualValues(t, 3, f.Deliveries)
	})
}

func TestQ17_ASessionsEndReturnsItsLeasesInTagOrder(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: time.Second})
		put(t, b, "jobs", "a", "b", "c")
		session, err := b.Session("laptop")
		require.NoError(t, err)
		_, err = session.Get(ctx, "jobs", postroom.GetConfig{NoTimeout: true})
		require.NoError(t, err)
		// The same holder, by the raw name that GetConfig tells of.
		_, err = b.Get(ctx, "jobs", postroom.GetConfig{NoTimeout: true, Session: "session laptop"})
		require.NoError(t, err)
		s.sleep(time.Hour)
		assert.Equal(t, 2, stats(t, b, "jobs").Leased)
		require.NoError(t, session.Close(ctx))
		var order []string
		for range 3 {
			d, err := b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
			require.NoError(t, err)
			order = append(order, fmt.Sprint(d.ID, d.Attempt))
		}
		assert.Equal(t, []string{"a2", "b2", "c1"}, order)
	})
}

// ---- gets (C6) ----

func TestC6_AGetThatEndsLeavesNoLease(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		short, cancel := s.WithTimeout(ctx, time.Second)
		defer cancel()
		s.beside(func() { // at the very instant: whoever wins, nothing is lost
			s.sleep(time.Second)
			put(t, b, "jobs", "a")
		})
		d, err := b.Get(short, "jobs", postroom.GetConfig{})
		s.sleep(time.Second)
		f := stats(t, b, "jobs")
		if err != nil {
			notSent(t, err)
			assert.Zero(t, f.Leased)
			assert.Equal(t, 1, f.Ready)
		} else {
			assert.Equal(t, "a", d.ID)
			assert.Equal(t, 1, f.Leased)
		}
	})
}

func TestC6_AGetWakesAtTheDueInstant(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		_, err := b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
		assert.ErrorIs(t, err, postroom.ErrEmpty)
		began := s.Now()
		_, err = b.Put(ctx, "jobs", postroom.Envelope{Delay: time.Minute})
		require.NoError(t, err)
		_, err = b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		assert.Equal(t, time.Minute, s.Now().Sub(began))
	})
}

func TestC10_OneStaleItemFailsOnlyItself(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		declare(t, b, "other", quick)
		put(t, b, "jobs", "a", "b")
		put(t, b, "other", "c")
		var all []postroom.Settlement
		for _, q := range []string{"jobs", "other", "jobs"} {
			d, err := b.Get(ctx, q, postroom.GetConfig{})
			require.NoError(t, err)
			all = append(all, postroom.Settlement{Receipt: d.Receipt()})
		}
		require.NoError(t, b.Ack(ctx, "jobs", all[0].Receipt.Tag))
		results, err := b.SettleBatch(ctx, all)
		require.NoError(t, err)
		assert.ErrorIs(t, results[0].Err, postroom.ErrStale)
		assert.NoError(t, errors.Join(results[1].Err, results[2].Err))
	})
}

// ---- listeners, subscribers and callbacks ----

// A listener looks on. Its panic costs nothing but what it was told.
func TestS3_APanickingListenerCostsNothing(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		told := 0
		b := s.broker(fixedRestarts(10), postroom.WithListener(func(n postroom.Notice) {
			told++
			panic(fmt.Sprint("cannot log ", n))
		}))
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 5 * time.Second, MaxAttempts: 2, NoJitter: true})
		dead := events(t, b, "$sys.dead.*")
		put(t, b, "jobs", "fine", "fails", "crashes", "late")
		runs := 0
		k := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			runs++
			switch d.ID {
			case "fails":
				return errWork
			case "crashes":
				panic("crash")
			case "late":
				_ = b.Sleep(context.Background(), 30*time.Second)
			}
			return nil
		}, postroom.ConsumerConfig{Concurrency: 2, HandlerTimeout: 10 * time.Second})
		s.sleep(time.Hour)
		f := stats(t, b, "jobs")
		assert.Zero(t, f.Ready+f.Delayed+f.Leased, "%+v", f)
		assert.False(t, f.Quarantined)
		assert.ElementsMatch(t, []string{"$sys.dead.jobs fails max_attempts", "$sys.dead.jobs crashes max_attempts", "$sys.dead.jobs late max_attempts"}, dead.all())
		require.NoError(t, k.Cancel(ctx))
		s.Idle()
		assert.True(t, ended(k))
		assert.Greater(t, told, 10)
	})
}

func TestT2_APanickingSubscriberCostsOneEvent(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		n := &notices{}
		b := s.broker(postroom.WithListener(n.listen))
		var bad, good []string
		_, err := b.Subscribe(ctx, "#", func(_ string, e *postroom.Event) {
			if string(e.Body) == "2" {
				panic("cannot read")
			}
			bad = append(bad, string(e.Body))
		})
		require.NoError(t, err)
		_, err = b.Subscribe(ctx, "#", func(_ string, e *postroom.Event) { good = append(good, string(e.Body)) })
		require.NoError(t, err)
		for i := range 4 {
			_, err := b.Publish(ctx, "t", postroom.Envelope{Body: []byte(fmt.Sprint(i))})
			require.NoError(t, err)
		}
		s.Idle()
		assert.Equal(t, []string{"0", "1", "3"}, bad)
		assert.Equal(t, []string{"0", "1", "2", "3"}, good)
		assert.Len(t, of[messages.ActorCrashed](n), 1)
	})
}

func TestS3_APanickingOnResultCostsOneResult(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		var told []string
		p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 2, OnResult: func(r postroom.PutResult) {
			if r.ID == "2" {
				panic("cannot note")
			}
			told = append(told, r.ID)
		}})
		require.NoError(t, err)
		for i := range 6 {
			_, err := p.Put(ctx, postroom.Envelope{ID: fmt.Sprint(i)})
			require.NoError(t, err)
		}
		require.NoError(t, p.Flush(ctx))
		s.Idle()
		assert.Equal(t, []string{"0", "1", "3", "4", "5"}, told)
		assert.Equal(t, 6, stats(t, b, "jobs").Ready)
	})
}

// explosive is an error of the user's that panics when it is looked at.
type explosive struct{}

func (explosive) Error() string { panic("an error without a text") }

// What looks at a handler's error runs the user's code: its panic is the handler's.
func TestS1_AnErrorThatPanicsIsACrashOfItsHandler(t *testing.T) {
	for _, config := range []postroom.QueueConfig{quick, {NoTimeout: true, MaxAttempts: 5}} {
		eachSeed(t, 10, func(s *sim) {
			b := s.broker()
			declare(t, b, "jobs", config)
			put(t, b, "jobs", "a")
			runs := 0
			k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error {
				if runs++; runs == 1 {
					return explosive{}
				}
				return nil
			}, postroom.ConsumerConfig{})
			s.sleep(time.Hour)
			st := stats(t, b, "jobs")
			assert.EqualValues(t, 1, st.Acks, "%+v", st)
			assert.Equal(t, 2, runs)
			require.NoError(t, b.Cancel(ctx, k.Tag))
			s.sleep(time.Hour)
			assert.True(t, ended(k), "nothing is held any more")
		})
	}
}
