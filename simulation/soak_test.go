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

// Issue 3, Real: the same faults by plan, and the same invariants, on the wall clock.
func TestASoakMeetsTheFaultsOfItsPlan(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := Spec{Name: "soak", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 50 * time.Millisecond, BackoffBase: time.Millisecond})
		smtp := w.External("smtp", nil)
		w.Workers("w", 4, q, Real(func(ctx context.Context, d *postroom.Delivery) error {
			return smtp.Do(ctx, d.ID, "")
		}), postroom.ConsumerConfig{Concurrency: 2, NoHeartbeat: true})
		w.Produce("api", q, Over(100*time.Millisecond, 60), nil)
		w.At(AfterEffect("m1", 1), Fault{Kind: FaultCrash})
		w.At(OnStart("m2", 1), Fault{Kind: FaultCrash})
		w.At(OnReturn("m3", 1), Fault{Kind: FaultCrash})
		w.At(OnStart("m4", 1), Fault{Kind: FaultHang, For: 120 * time.Millisecond})
		w.At(AfterEffect("m5", 1), Fault{Kind: FaultZombie})
		w.At(OnStart("m6", 1), Fault{Kind: FaultSlow, For: 20 * time.Millisecond})
		w.At(OnReturn("m7", 1), Fault{Kind: FaultAckLate})
		w.At(OnStart("m8", 1), Fault{Kind: FaultNack})
		w.At(OnStart("m9", 1), Fault{Kind: FaultReject})
		w.At(OnStart("m10", 1), Fault{Kind: FaultPurge}) // not of a handler: left out
		w.Expect(EffectAtLeastOnce(smtp))
		w.Calm(20*time.Second, Drained(q))
	}}
	r := s.Run(1)
	passes(t, &r)
	assert.Len(t, r.Plan.Faults, 9)
	struck, crashes := map[string]bool{}, 0
	for _, e := range r.Events {
		switch e.Kind {
		case KindFault:
			struck[e.Message+" "+e.Reason] = true
		case KindCrash:
			crashes++
		}
	}
	assert.Len(t, struck, 9, "%v", struck)
	assert.Equal(t, 3, crashes)
	assert.Positive(t, r.Hits[HitCrashAfterEffect])
	assert.Positive(t, r.Hits[HitStale], "late acks came late")
	assert.Positive(t, r.Hits[HitExpireAlive])
	assert.Equal(t, 60, r.Jepsen.Acknowledged)
	assert.True(t, r.Jepsen.Valid)
}

// The catalogue draws for a soak as for any run.
func TestASoakUnderDrawnFaults(t *testing.T) {
	s := small(AnyFault())
	build := s.Build
	s.Build = func(w *World) {
		build(w)
		x := w.External("x", nil)
		w.lab.queues[0].config.AckTimeout = 40 * time.Millisecond
		for _, p := range w.lab.pools {
			p.mode = Real(func(ctx context.Context, d *postroom.Delivery) error { return x.Do(ctx, d.ID, "") })
		}
	}
	for seed := range uint64(4) {
		r := s.Run(seed)
		passes(t, &r)
	}
}
