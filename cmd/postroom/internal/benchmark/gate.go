package benchmark

import (
	"context"
	"sync/atomic"
)

// gate lets a producer be at most limit messages ahead of the handlers. It wakes the
// producer once half of that is done, as a publisher's window does, but for many
// queues at once.
type gate struct {
	limit   int64
	handled atomic.Int64
	awaited atomic.Int64 // the count that the producer waits for
	room    chan struct{}
	deepest int64 // of the producer
}

func newGate(limit int) *gate { return &gate{limit: int64(limit), room: make(chan struct{}, 1)} }

// done is called for each handled message, by any handler.
func (g *gate) done() {
	if g.handled.Add(1) == g.awaited.Load() {
		g.wake()
	}
}

func (g *gate) wake() {
	select {
	case g.room <- struct{}{}:
	default:
	}
}

// enter waits until the next message may be sent, after sent others. Looking at what
// is handled is dear on another core, so it is done for every 64th.
func (g *gate) enter(ctx context.Context, sent int64) error {
	if sent%64 != 0 {
		return nil
	}
	ahead := sent - g.handled.Load()
	g.deepest = max(g.deepest, ahead)
	if ahead < g.limit {
		return nil
	}
	return g.await(ctx, sent-g.limit/2)
}

// await waits until n messages were handled.
func (g *gate) await(ctx context.Context, n int64) error {
	g.awaited.Store(n)
	for g.handled.Load() < n {
		select {
		case <-g.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
