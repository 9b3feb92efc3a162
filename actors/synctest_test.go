package actors_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// inBubble runs fn with the real runtime inside of a testing/synctest bubble, where
// the standard library's clock is virtual: the whole broker, door included, opened
// and closed inside (SPEC K2).
func inBubble(t *testing.T, fn func(t *testing.T, b *postroom.Broker)) {
	for name, options := range map[string][]postroom.Option{"goroutines": nil, "lanes": {postroom.WithLanes()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := postroom.Open(options...)
				require.NoError(t, err)
				fn(t, b)
				require.NoError(t, b.Close(ctx))
			})
		})
	}
}

func TestK2_HeartbeatInsideABubble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "jobs", "a")
		runs := 0
		consume(t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			runs++
			time.Sleep(9 * time.Minute)
			return ctx.Err()
		}, postroom.ConsumerConfig{})
		time.Sleep(10 * time.Minute)
		f := stats(t, b, "jobs")
		assert.EqualValues(t, 1, f.Acks)
		assert.Zero(t, f.Expiries+f.StaleBy[postroom.VerbAck])
		assert.Greater(t, f.Touches, uint64(100))
		assert.Equal(t, 1, runs)
	})
}

func TestK2_ExpiryInsideABubble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 2})
		put(t, b, "jobs", "a")
		first, err := b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		began := time.Now()
		second, err := b.Get(ctx, "jobs", postroom.GetConfig{}) // waits for the lease to run out
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, 2, second.Attempt)
		assert.ErrorIs(t, first.Ack(ctx), postroom.ErrStale)
		short, cancel := context.WithTimeout(ctx, 5*time.Second) // standard contexts work in here
		defer cancel()
		_, err = b.Get(short, "jobs", postroom.GetConfig{})
		notSent(t, err)
		time.Sleep(5*time.Second + 1)
		synctest.Wait()
		assert.EqualValues(t, 1, stats(t, b, "jobs").DeadBy[postroom.MaxAttempts], "by itself, at its instant")
	})
}

// Between two slices of what fell due at one instant the queue has nothing to do: it
// answers, and lets others have its processor. Time stands still in here until nobody
// is busy, so it would not pass if the queue went on by itself.
func TestQ10_ManyLeasesThatEndTogetherAreSettledWithPauses(t *testing.T) {
	const many = 16 * 1024
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, NoJitter: true})
		declare(t, b, "other", postroom.QueueConfig{})
		for range many / 256 {
			results, err := b.PutBatch(ctx, "jobs", make([]postroom.Envelope, 256))
			require.NoError(t, err)
			for _, r := range results {
				require.NoError(t, r.Err)
			}
		}
		for range many {
			_, err := b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
			require.NoError(t, err)
		}
		time.Sleep(10*time.Second + 50*time.Microsecond)
		f := stats(t, b, "jobs")
		assert.NotZero(t, f.Expiries, "%d are leased", f.Leased)
		assert.NotZero(t, f.Leased, "%d ran out in one turn", f.Expiries)
		assert.Equal(t, f.Leased, stats(t, b, "jobs").Leased, "who looks does not settle")
		put(t, b, "other", "a")
		for looks := 0; stats(t, b, "jobs").Leased > 0; looks++ {
			require.Less(t, looks, many/1024, "slices")
			time.Sleep(20 * time.Microsecond)
		}
		f = stats(t, b, "jobs")
		assert.Equal(t, []int{many, many}, []int{f.Ready, int(f.Expiries)}, "ready and expiries")
	})
}

// The timer was set for the last of them, for nothing but its own memory wants them
// gone. Behind, the queue hands nothing over, so it must not wait so long.
func TestQ10_ManyIdsFreeAtOnceHoldNobodyUp(t *testing.T) {
	const many = 16 * 1024
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{DedupWindow: time.Minute, DedupLimit: 2 * many})
		for i := range many {
			put(t, b, "jobs", fmt.Sprint(i))
		}
		_, err := b.Purge(ctx, "jobs")
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		put(t, b, "jobs", "late")
		_, err = b.Purge(ctx, "jobs")
		require.NoError(t, err)
		_, err = b.Put(ctx, "jobs", postroom.Envelope{Body: []byte("soon"), Delay: 10 * time.Second})
		require.NoError(t, err)
		time.Sleep(30 * time.Second) // the window of all but the late one is over
		began := time.Now()
		d, err := b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		assert.Equal(t, "soon", string(d.Body))
		assert.Less(t, time.Since(began), time.Second)
	})
}

func TestK2_RetryInsideABubble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{NoJitter: true, BackoffBase: time.Second, MaxAttempts: 5})
		put(t, b, "jobs", "a")
		began := time.Now()
		var at []time.Duration
		consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error {
			if at = append(at, time.Since(began)); len(at) < 4 {
				return errWork
			}
			return nil
		}, postroom.ConsumerConfig{})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, at)
		assert.EqualValues(t, 1, stats(t, b, "jobs").Acks)
	})
}

// The bubble ends only when the last goroutine in it has ended, that of the handler
// which ignored its context included.
func TestB5_CloseNamesAStuckHandlerAndItsGoroutineEndsWithIt(t *testing.T) {
	for name, options := range map[string][]postroom.Option{"goroutines": nil, "lanes": {postroom.WithLanes()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := postroom.Open(options...)
				require.NoError(t, err)
				declare(t, b, "jobs", postroom.QueueConfig{})
				put(t, b, "jobs", "a")
				release := make(chan struct{})
				var cause error
				k := consume(t, b, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
					<-release
					cause = context.Cause(ctx)
					return nil
				}, postroom.ConsumerConfig{})
				synctest.Wait()
				began := time.Now()
				short, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				var stuck *postroom.StuckError
				require.ErrorAs(t, b.Close(short), &stuck)
				assert.Equal(t, []string{k.Tag}, stuck.Consumers)
				assert.Equal(t, time.Minute+5*time.Second, time.Since(began), "ctx, and the grace of one who was told")
				close(release)
				synctest.Wait()
				assert.ErrorIs(t, cause, postroom.ErrBrokerClosed)
			})
		})
	}
}
