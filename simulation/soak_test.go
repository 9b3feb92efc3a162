package simulation

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/postroom/postroom"
)

// A soak is real: goroutines, the wall clock, a handler that crashes now and then, and
// all oracles on.
func TestASoakRunsForReal(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := Spec{Name: "soak", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 50 * time.Millisecond, BackoffBase: time.Millisecond})
		smtp := w.External("smtp", nil)
		w.Workers("w", 4, q, Real(func(ctx context.Context, d *postroom.Delivery) error {
			time.Sleep(time.Millisecond)
			if d.Attempt == 1 && d.Tag%7 == 0 {
				panic("now and then")
			}
			return smtp.Do(ctx, d.ID, "")
		}), postroom.ConsumerConfig{Concurrency: 2})
		w.Produce("api", q, Over(100*time.Millisecond, 100), nil)
		w.Produce("batch", q, Burst(50), nil)
		w.Expect(EffectAtLeastOnce(smtp))
		w.Calm(20*time.Second, Drained(q))
	}}
	r := s.Run(1)
	passes(t, &r)
	assert.Equal(t, 150, r.Jepsen.Acknowledged)
	assert.True(t, r.Jepsen.Valid)
	assert.True(t, r.Replay.BestEffort)
	assert.Positive(t, r.Virtual)
}
