package worker

import (
	"context"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
)

// Clock is the time that this package lives by. A *postroom.Broker is one as it is,
// so a worker in the simulation runs on virtual time; nil, wherever a Clock is asked
// for, is the machine's.
type Clock interface {
	// Now is the time; between two readings of one process it is monotonic.
	Now() time.Time
	// Sleep waits for d. It returns nil, or the cause when ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Draw is a source of randomness: each call returns a number that is uniform over
// all of uint64. nil, wherever a Draw is asked for, is seeded by the operating system.
type Draw func() uint64

// SystemClock is the machine's clock, for a process that has no broker.
func SystemClock() Clock { return actorkit.NewReal(actorkit.RealConfig{}) }

func orSystem(c Clock) Clock {
	if c == nil {
		return SystemClock()
	}
	return c
}

func orSystemDraw(d Draw, purpose string) Draw {
	if d != nil {
		return d
	}
	system := actorkit.NewReal(actorkit.RealConfig{})
	var n atomic.Uint64
	return func() uint64 { return system.Draw("worker", purpose, n.Add(1)) }
}

// backoff is how long to wait after failure k (1, 2, …): capped exponential with full
// jitter, uniform in [0, min(cap, base·2^(k-1))], both ends included. It is the rule
// of the queues (SPEC R1), so that a retry means the same on both sides of a lease.
func backoff(base, limit time.Duration, failure int, draw uint64) time.Duration {
	bound := limit
	// The cap is halved instead of the base doubled, which overflows.
	if k := failure - 1; k < 63 && base <= limit>>k {
		bound = base << k
	}
	wait, _ := bits.Mul64(draw, uint64(bound)+1)
	return time.Duration(wait)
}
