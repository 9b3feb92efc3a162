package benchmark

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"github.com/postroom/postroom"
)

// topics is publications of which each matches one of many bindings.
type topics struct {
	executor string
	bindings int
	messages int
}

func (f topics) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue, backlogMax = queuePrefix, 1024
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		published := make([]string, f.bindings)
		for i := range published {
			place := "shop." + strconv.Itoa(i)
			if err := b.Bind(ctx, queue, place+".*"); err != nil {
				return s, err
			}
			published[i] = place + ".sold"
		}
		stats, err := b.Stats(ctx)
		if err != nil {
			return s, err
		}
		if stats.Bindings != f.bindings {
			return s, fmt.Errorf("%d bindings, want %d", stats.Bindings, f.bindings)
		}
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // nothing is to be kept secret
		random.Shuffle(len(published), func(i, j int) { published[i], published[j] = published[j], published[i] })
		body := make([]byte, bodyBytes)
		runtime.GC()
		before, wakeUps := allocated(), b.runtime.wakeUps.Load()
		var took time.Duration
		accepted, purged := 0, 0
		for i := 0; i < f.messages; {
			began := time.Now()
			for range min(backlogMax, f.messages-i) {
				r, err := b.Publish(ctx, published[i%len(published)], postroom.Envelope{Body: body})
				if err != nil {
					return s, err
				}
				accepted += r.Accepted
				i++
			}
			took += time.Since(began)
			n, err := b.Purge(ctx, queue)
			if err != nil {
				return s, err
			}
			purged += n
		}
		s.value = perMessage(took, f.messages)
		before.since(&s, f.messages)
		b.woken(&s, wakeUps, f.messages)
		s.backlog = min(backlogMax, int64(f.messages))
		if accepted != f.messages || purged != f.messages {
			return s, fmt.Errorf("%d copies accepted and %d there, want %d", accepted, purged, f.messages)
		}
		return s, nil
	})
}
