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
)

// busy is a run with a bit of everything.
func busy(s *sim) {
	x := &bomb{}
	b := s.broker(fixedRestarts(postroom.Unlimited), postroom.WithProbe(x.probe))
	declare(s.t, b, "jobs", postroom.QueueConfig{AckTimeout: 5 * time.Second, MaxAttempts: 4, DeadLetterTopic: "dlx"})
	declare(s.t, b, "all", postroom.QueueConfig{})
	require.NoError(s.t, b.Bind(ctx, "all", "#"))
	require.NoError(s.t, b.Bind(ctx, "jobs", "orders.*"))
	for range 2 {
		events(s.t, b, "orders.#")
	}
	n := 0
	for range 3 {
		consume(s.t, b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			switch n++; n % 5 {
			case 0:
				panic("crash")
			case 1:
				return errWork
			case 2:
				return b.Sleep(ctx, 7*time.Second)
			}
			return nil
		}, postroom.ConsumerConfig{Concurrency: 2, Prefetch: 4})
	}
	for i := range 3 {
		s.beside(func() {
			for j := range 20 {
				_, err := b.Publish(ctx, fmt.Sprintf("orders.%d", i), postroom.Envelope{ID: fmt.Sprint(i, "-", j)})
				assert.True(s.t, err == nil || errors.Is(err, postroom.ErrOutcomeUnknown), err)
				s.sleep(time.Duration(j) * time.Second)
			}
		})
	}
	for range 4 {
		s.beside(func() {
			short, cancel := s.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, _ = b.Get(short, "jobs", postroom.GetConfig{})
		})
		s.beside(func() { _, _ = b.Get(ctx, "empty", postroom.GetConfig{}) })
	}
	declare(s.t, b, "empty", postroom.QueueConfig{})
	for range 5 {
		s.beside(func() { _, _ = b.Get(ctx, "empty", postroom.GetConfig{}) })
	}
	p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 2, UntilSettled: true})
	require.NoError(s.t, err)
	s.beside(func() {
		for range 20 {
			if _, err := p.Put(ctx, postroom.Envelope{}); err != nil {
				return
			}
		}
	})
	for _, point := range []string{"queue jobs after *actors.slot", "router before *messages.Publish", "queue jobs before *actors.ring"} {
		x.arm(point, 1)
		s.sleep(20 * time.Second)
	}
	_, err = b.DeleteQueue(ctx, "empty")
	require.NoError(s.t, err)
	s.sleep(time.Hour)
	require.NoError(s.t, b.Close(ctx))
}

func TestK2_OneSeedIsOneRun(t *testing.T) {
	hashes := map[uint64]bool{}
	for seed := uint64(1); seed <= 3; seed++ {
		first := runSeed(t, seed, busy)
		for range 20 {
			again := runSeed(t, seed, busy)
			require.Equal(t, first.TraceHash(), again.TraceHash(), "seed %d, %d and %d steps", seed, first.Steps(), again.Steps())
		}
		hashes[first.TraceHash()] = true
	}
	assert.Len(t, hashes, 3, "and another seed is another")
}
