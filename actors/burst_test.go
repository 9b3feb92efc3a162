package actors_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// A crash on one put of a burst costs that one. The others are still handled before
// what their publisher's caller asked for next: here a purge, which would else find
// an empty queue and leave behind what was put before it.
func TestS3_ACrashedBurstStaysAheadOfWhatItsCallerAskedForNext(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		eachSeed(t, 10, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", quick)
			p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{})
			require.NoError(t, err)
			x.arm("queue jobs "+when+" *actors.arrival", 1)
			for range 100 {
				_, err := p.Put(ctx, postroom.Envelope{})
				require.NoError(t, err)
			}
			purged, err := b.Purge(ctx, "jobs")
			require.NoError(t, err)
			require.Equal(t, 1, x.hit())
			want := 99
			if when == "after" {
				want = 100
			}
			assert.Equal(t, want, purged)
			assert.Zero(t, stats(t, b, "jobs").Ready)
		})
	}
}

// However often the queue crashes on the message that its workers' answers come
// with, the answers that come later are taken: the workers send that message only
// when nothing is on its way already.
func TestS3_SettlesGoOnAfterTheirMessageHasCrashedTheQueue(t *testing.T) {
	for times := 1; times <= 12; times++ {
		eachSeed(t, 4, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true, MaxAttempts: 100})
			consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{Prefetch: 4})
			x.arm("queue jobs before *actors.returns", times)
			put(t, b, "jobs", "a", "b", "c", "d", "e", "f", "g", "h")
			s.sleep(24 * time.Hour)
			put(t, b, "jobs", "i", "j")
			s.sleep(24 * time.Hour)
			require.Equal(t, times, x.hit())
			st := stats(t, b, "jobs")
			assert.EqualValues(t, 10, st.Acks, "after %d crashes: %+v", times, st)
		})
	}
}

// A message that always crashes its queue ends, and the queue goes on without what
// came with it. The leases are back when their consumer has ended.
func TestS3_AMessageThatAlwaysCrashesTheQueueEnds(t *testing.T) {
	eachSeed(t, 4, func(s *sim) {
		x := &bomb{}
		b := s.broker(postroom.WithProbe(x.probe))
		declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true, MaxAttempts: 100})
		nothing := func(context.Context, *postroom.Delivery) error { return nil }
		k := consume(t, b, "jobs", nothing, postroom.ConsumerConfig{Prefetch: 4})
		x.arm("queue jobs before *actors.returns", 1000)
		put(t, b, "jobs", "a", "b", "c", "d", "e", "f", "g", "h")
		s.sleep(time.Hour)
		require.Less(t, x.hit(), 100)
		require.Equal(t, 4, stats(t, b, "jobs").Leased)
		x.arm("", 0)
		require.NoError(t, b.Cancel(ctx, k.Tag))
		consume(t, b, "jobs", nothing, postroom.ConsumerConfig{})
		s.sleep(time.Hour)
		assert.EqualValues(t, 8, stats(t, b, "jobs").Acks)
	})
}

// A crash on one settle of a burst costs that one. The others reach the queue before
// it hears that their consumer has ended, which returns leases without a timeout.
func TestS3_ACrashOnOneSettleCostsNoOtherOneOfAConsumerThatEnds(t *testing.T) {
	hits := 0
	for skip := range 3 {
		eachSeed(t, 40, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true, MaxAttempts: 100})
			put(t, b, "jobs", "a", "b", "c", "d")
			got := &book{}
			k := consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
				got.add("%s", d.ID)
				_ = b.Sleep(ctx, time.Minute)
				return nil
			}, postroom.ConsumerConfig{Concurrency: 4})
			s.sleep(time.Second)
			require.Len(t, got.all(), 4)
			require.NoError(t, b.Cancel(ctx, k.Tag))
			x.arm("queue jobs before *actors.slot", 1)
			x.skip = skip
			s.sleep(time.Hour)
			require.True(t, ended(k))
			hits += x.hit()
			st := stats(t, b, "jobs")
			assert.EqualValues(t, 3, st.Acks, "%+v", st)
			assert.Equal(t, 1, st.Ready+st.Delayed, "the culprit comes back: %+v", st)
		})
	}
	assert.Equal(t, 3*40, hits)
}

// Put order is that of each goroutine that uses a publisher (SPEC A3), also when
// another one has yet to tell the queue of the burst that both are in.
func TestA3_APutOfAPublisherIsAheadOfItsCallersNextCommand(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		const callers, each = 16, 500
		b := openReal(t, options...)
		defer func() { assert.NoError(t, b.Close(ctx)) }()
		declare(t, b, "jobs", postroom.QueueConfig{})
		p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{})
		require.NoError(t, err)
		var late atomic.Int64
		var all sync.WaitGroup
		for g := range callers {
			all.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%d-%d", g, i)
					if _, err := p.Put(ctx, postroom.Envelope{ID: id}); !assert.NoError(t, err) {
						return
					}
					// The same put once more: the queue has seen the first.
					r, err := b.Put(ctx, "jobs", postroom.Envelope{ID: id})
					if !assert.NoError(t, err) {
						return
					}
					if !r.Duplicate {
						late.Add(1)
					}
				}
			})
		}
		all.Wait()
		assert.Zero(t, late.Load(), "puts that came behind their caller's next command, of %d", callers*each)
		assert.Equal(t, callers*each, stats(t, b, "jobs").Ready)
	})
}

// A publisher used by many goroutines, with a queue that crashes on some of its puts
// and is deleted in the end, reports each put once and ends with an empty window.
func TestA3_EachPutIsReportedOnceWhateverBecomesOfTheQueue(t *testing.T) {
	for _, c := range []struct {
		window       int
		untilSettled bool
	}{{1, false}, {1, true}, {7, true}, {5000, false}, {5000, true}} {
		t.Run(fmt.Sprintf("window=%d until settled=%v", c.window, c.untilSettled), func(t *testing.T) {
			eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
				const callers, each = 8, 1000
				var passed atomic.Int64
				crashing := postroom.WithProbe(func(point string) {
					if point == "queue jobs after *actors.arrival" || point == "queue jobs before *actors.arrival" || point == "queue jobs before *actors.slot" {
						if passed.Add(1)%997 == 0 {
							panic("bomb")
						}
					}
				})
				b := openReal(t, append(options, crashing)...)
				defer func() { assert.NoError(t, b.Close(ctx)) }()
				declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 100 * time.Millisecond, MaxAttempts: 100})
				var mu sync.Mutex
				reported := map[string]int{}
				told := make(chan struct{}, callers*each*2)
				p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: c.window, UntilSettled: c.untilSettled, OnResult: func(r postroom.PutResult) {
					mu.Lock()
					reported[r.ID]++
					mu.Unlock()
					told <- struct{}{}
				}})
				require.NoError(t, err)
				for range 2 {
					consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{Concurrency: 2, Prefetch: 100})
				}
				var all sync.WaitGroup
				var half atomic.Int64
				for g := range callers {
					all.Go(func() {
						for i := range each {
							if _, err := p.Put(ctx, postroom.Envelope{ID: fmt.Sprintf("%d-%d", g, i)}); !assert.NoError(t, err) {
								return
							}
							if half.Add(1) == callers*each*3/4 {
								all.Go(func() { _, _ = b.DeleteQueue(ctx, "jobs") })
							}
							if i%50 == 0 {
								runtime.Gosched()
							}
						}
					})
				}
				await(t, "the publishers", whenDone(all.Wait))
				_ = p.Flush(ctx)
				for range callers * each {
					await(t, "a result", told)
				}
				mu.Lock()
				defer mu.Unlock()
				assert.Len(t, reported, callers*each)
				var twice []string
				for id, n := range reported {
					if n != 1 {
						twice = append(twice, id)
					}
				}
				slices.Sort(twice)
				assert.Empty(t, twice, "reported more than once")
				// The window is as empty as it was: all of it can be had at once.
				end, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				for range c.window {
					_, err := p.Put(end, postroom.Envelope{})
					require.NoError(t, err)
				}
			})
		})
	}
}

func whenDone(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	return done
}

// A queue that is quarantined in the middle of a burst has accepted what came before
// the culprit and refuses what comes after it. Each put is reported once, and nobody
// waits for a message that will not be settled any more.
func TestA3_AQuarantineInABurstLeavesAnEmptyWindow(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		eachSeed(t, 10, func(s *sim) {
			const window, culprit = 300, 150
			x := &bomb{}
			breaks, invariant, panics := false, error(nil), 0
			b := s.broker(withBroken(&breaks, &invariant, &panics), postroom.WithProbe(x.probe))
			declare(t, b, "jobs", quick)
			var results []postroom.PutResult
			p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: window, UntilSettled: true, NoWait: true,
				OnResult: func(r postroom.PutResult) { results = append(results, r) }})
			require.NoError(t, err)
			x.arm("queue jobs "+when+" *actors.arrival", 1)
			x.skip = culprit - 1
			invariant = errWork
			for i := range window {
				_, err := p.Put(ctx, postroom.Envelope{ID: fmt.Sprint(i + 1)})
				require.NoError(t, err)
			}
			require.Error(t, p.Flush(ctx))
			s.Idle()
			require.Len(t, results, window)
			for i, r := range results {
				assert.Equal(t, fmt.Sprint(i+1), r.ID, "in put order")
				switch {
				case i+1 < culprit:
					assert.NoError(t, r.Err)
				case i+1 == culprit:
					unknown(t, r.Err)
				default:
					assert.ErrorIs(t, r.Err, postroom.ErrQuarantined)
				}
			}
			for range window { // all of the window can be had at once
				_, err := p.Put(ctx, postroom.Envelope{})
				require.NoError(t, err)
			}
			require.ErrorIs(t, p.Flush(ctx), postroom.ErrQuarantined)
		})
	}
}

// A queue that is quarantined by a crash on a settle has let go of all that its
// publisher's window holds: what the settles before the culprit have yet to tell it
// must free no place twice.
func TestA3_AQuarantineInABurstOfSettlesFreesEachPlaceOnce(t *testing.T) {
	hits := 0
	for skip := range 4 {
		eachSeed(t, 20, func(s *sim) {
			const window = 8
			n, settles := &notices{}, 0
			breaks, invariant, panics := false, error(nil), 0
			probe := func(point string) {
				if point != "queue jobs after *actors.slot" {
					return
				}
				if settles++; settles == skip+1 {
					hits++
					invariant = errWork // not before: with the race detector each turn's end looks at it
					panic("bomb")
				}
			}
			b := s.broker(withBroken(&breaks, &invariant, &panics), postroom.WithProbe(probe), postroom.WithListener(n.listen))
			declare(t, b, "jobs", quick)
			p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: window, UntilSettled: true, NoWait: true})
			require.NoError(t, err)
			for range window {
				_, err := p.Put(ctx, postroom.Envelope{})
				require.NoError(t, err)
			}
			require.NoError(t, p.Flush(ctx))
			consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{Prefetch: window})
			s.sleep(time.Second)
			require.True(t, stats(t, b, "jobs").Quarantined)
			assert.Len(t, of[messages.ActorCrashed](n), 1)

			for range window {
				_, err := p.Put(ctx, postroom.Envelope{})
				require.NoError(t, err, "all of the window can be had")
			}
			_, err = p.Put(ctx, postroom.Envelope{})
			require.ErrorIs(t, err, postroom.ErrBusy, "and no more")
			require.ErrorIs(t, p.Flush(ctx), postroom.ErrQuarantined)
		})
	}
	assert.Equal(t, 4*20, hits)
}
