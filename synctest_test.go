package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// The broker as it is, on the real runtime, inside of a bubble: time is the bubble's,
// and the bubble itself fails the test when a goroutine is left after Close.

func TestK2_TheBrokerWorksInsideSynctest(t *testing.T) {
	for name, options := range map[string][]postroom.Option{"default": nil, "lanes": {postroom.WithLanes()}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *postroom.Broker) {
				ctx := context.Background()
				began := time.Now()
				declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, BackoffBase: time.Second, NoJitter: true})
				at := make(chan string, 10)
				consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
					at <- fmt.Sprint(d.Attempt, " at ", time.Since(began))
					switch d.Attempt {
					case 1:
						return errors.New("not now")
					case 2:
						panic("crash")
					}
					time.Sleep(time.Minute) // the heartbeat keeps its lease
					return nil
				}, postroom.ConsumerConfig{Concurrency: 2})
				put(t, b, "jobs", message("job-1"))
				require.NoError(t, b.Drain(ctx, "jobs"))
				close(at)
				var got []string
				for line := range at {
					got = append(got, line)
				}
				assert.Equal(t, []string{"1 at 0s", "2 at 1s", "3 at 11s"}, got, "attempts")
				assert.Equal(t, 71*time.Second, time.Since(began), "when the drain was done")
				s := statsOf(t, b, "jobs")
				assert.Zero(t, s.StaleBy[postroom.VerbAck], "late acks")
				conserved(t, s, "after the drain")
			}, options...)
		})
	}
}

// Q10: an idle queue wakes for nothing, and a lease ends at its very instant.
func TestQ10_ALeaseEndsAtItsInstantOnTheRealRuntime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		ctx := context.Background()
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "jobs", message("job-1"))
		d := get(t, b, "jobs")
		time.Sleep(10*time.Second - time.Nanosecond)
		_, err := b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
		require.ErrorIs(t, err, postroom.ErrEmpty, "a get just before the deadline")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, 2, get(t, b, "jobs").Attempt, "attempt at the deadline")
		require.ErrorIs(t, d.Ack(ctx), postroom.ErrStale, "an ack at the deadline")
	})
}

// B5: running handlers may end until the context of Close does; then they are told.
func TestB5_CloseWaitsForHandlersAndThenTellsThem(t *testing.T) {
	for _, row := range []struct {
		patience time.Duration
		want     string
	}{{time.Minute, "finished"}, {time.Second, "told: broker closed"}} {
		synctest.Test(t, func(t *testing.T) {
			b, err := postroom.Open()
			require.NoError(t, err)
			declare(t, b, "jobs", postroom.QueueConfig{})
			ended := make(chan string, 1)
			consume(t, b, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
				if err := b.Sleep(ctx, 10*time.Second); err != nil {
					ended <- fmt.Sprint("told: ", err)
					return err
				}
				ended <- "finished"
				return nil
			}, postroom.ConsumerConfig{})
			put(t, b, "jobs", message("job-1"))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), row.patience)
			defer cancel()
			require.NoError(t, b.Close(ctx), "close with %v of patience", row.patience)
			assert.Equal(t, row.want, <-ended, "the handler, with %v of patience", row.patience)
		})
	}
}

// G1 on the real runtime: many producers and consumers at once lose nothing and ack
// each message once. Under -race this looks for more.
func TestG1_ManyAtOnceLoseNothing(t *testing.T) {
	for name, options := range map[string][]postroom.Option{"default": nil, "lanes": {postroom.WithLanes()}} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			b, err := postroom.Open(options...)
			require.NoError(t, err)
			declare(t, b, "jobs", postroom.QueueConfig{BackoffBase: time.Millisecond})
			var handled atomic.Int64
			for range 4 {
				consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
					if d.Attempt == 1 && d.Tag%7 == 0 {
						return errors.New("again")
					}
					handled.Add(1)
					return nil
				}, postroom.ConsumerConfig{Concurrency: 4, Prefetch: 32})
			}
			const producers, each = 4, 500
			done := make(chan error, producers)
			for p := range producers {
				go func() {
					publisher, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 64, UntilSettled: true})
					for i := range each {
						if err == nil {
							_, err = publisher.Put(ctx, postroom.Envelope{ID: fmt.Sprint(p, "-", i)})
						}
					}
					if err == nil {
						err = publisher.Flush(ctx)
					}
					done <- err
				}()
			}
			for range producers {
				require.NoError(t, <-done, "a producer")
			}
			require.NoError(t, b.Drain(ctx, "jobs"))
			s := statsOf(t, b, "jobs")
			assert.EqualValues(t, producers*each, s.Acks, "acks")
			assert.EqualValues(t, producers*each, handled.Load(), "messages handled")
			conserved(t, s, "after the drain")
			require.NoError(t, b.Close(ctx))
		})
	}
}
