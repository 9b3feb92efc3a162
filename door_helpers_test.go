package postroom_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// run runs a test on virtual time and fails it when the simulation was stuck.
func run(t *testing.T, seed uint64, fn func(ctx context.Context, w *simulation.World)) {
	t.Helper()
	err := simulation.Run(seed, func(w *simulation.World) { fn(context.Background(), w) })
	require.NoError(t, err, "simulation with seed %d", seed)
}

// onWorld runs a test on virtual time with an open broker.
func onWorld(t *testing.T, fn func(ctx context.Context, w *simulation.World, b *postroom.Broker)) {
	t.Helper()
	run(t, 1, func(ctx context.Context, w *simulation.World) { fn(ctx, w, w.MustOpen()) })
}

func declare(t require.TestingT, b *postroom.Broker, queue string, c postroom.QueueConfig) {
	require.NoError(t, b.DeclareQueue(context.Background(), queue, c), "declare %s", queue)
}

func put(t require.TestingT, b *postroom.Broker, queue string, e postroom.Envelope) postroom.PutResult {
	r, err := b.Put(context.Background(), queue, e)
	require.NoError(t, err, "put %q into %s", e.ID, queue)
	return r
}

func get(t require.TestingT, b *postroom.Broker, queue string) *postroom.Delivery {
	d, err := b.Get(context.Background(), queue, postroom.GetConfig{NoWait: true})
	require.NoError(t, err, "get from %s", queue)
	return d
}

func statsOf(t require.TestingT, b *postroom.Broker, queue string) postroom.QueueStats {
	s, err := b.QueueStats(context.Background(), queue)
	require.NoError(t, err, "stats of %s", queue)
	return s
}

// conserved checks the equation of SPEC R10.
func conserved(t require.TestingT, s postroom.QueueStats, after string) {
	in := s.Puts + s.RedrivenIn
	out := uint64(s.Ready+s.Delayed+s.Leased) + s.Acks + s.Dead() + s.Purged + s.Dropped
	require.Equal(t, in, out, "R10 of queue %s %s: puts + redriven in against the rest, %+v", s.Queue, after, s)
}

func typeName(v any) string { return fmt.Sprintf("%T", v) }
