package simulation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// plain is a handler as it stands in production: it sleeps, has a timeout of its own
// and a goroutine.
func plain(smtp *External) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(len(d.ID)) * 100 * time.Millisecond)
			done <- nil
		}()
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().Before(d.EnqueuedAt) {
			return errors.New("the clock is another")
		}
		return smtp.Do(ctx, d.ID, "send")
	}
}

func bubbled(faults Catalogue) Spec {
	return Spec{Name: "bubbled", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 2 * time.Second})
		smtp := w.External("smtp", nil)
		w.Workers("mailer", 3, q, Bubble(plain(smtp)), postroom.ConsumerConfig{})
		w.Produce("api", q, Items(8), nil)
		w.Faults(faults)
		w.Expect(EffectAtLeastOnce(smtp))
		w.Calm(10*time.Minute, Drained(q))
	}}
}

func TestPlainHandlersRunInABubble(t *testing.T) {
	s := bubbled(Catalogue{}).In(t)
	r := s.RunTwice(3)
	passes(t, &r)
	for _, e := range r.Events {
		t.Log(e)
	}
	assert.True(t, r.Replay.Exact, r.Replay.String())
	assert.False(t, r.Replay.BestEffort, r.Replay.Why)
	assert.Equal(t, 8, r.Jepsen.Acknowledged)
}

func TestBubblesUnderFaults(t *testing.T) {
	s := bubbled(AnyFault()).In(t)
	for seed := range uint64(60) {
		r := s.RunTwice(seed)
		passes(t, &r)
		require.True(t, r.Replay.Exact, "seed %d: %v", seed, r.Replay)
	}
}

func TestABubbleNeedsATest(t *testing.T) {
	r := bubbled(Catalogue{}).Run(1)
	assert.Contains(t, r.Err, "only a test can host")
}
