package benchmark

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/postroom/postroom"
)

// readyMemory is what a ready message takes beyond its body, in bytes; spread holds
// the same for a leased one.
type readyMemory struct {
	executor string
	messages int
	madeIDs  bool
}

func (f readyMemory) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue, batchMax = queuePrefix, 64
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		before := heap()
		for i := 0; i < f.messages; i += batchMax {
			batch := make([]postroom.Envelope, min(batchMax, f.messages-i))
			for n := range batch {
				if !f.madeIDs {
					batch[n].ID = fmt.Sprintf("order-%010d", i+n)
				}
			}
			if _, err := b.PutBatch(ctx, queue, batch); err != nil {
				return s, err
			}
		}
		ready := heap() - before
		// The delivery itself is the caller's, and gone when heap looks.
		for range f.messages {
			if _, err := b.Get(ctx, queue, postroom.GetConfig{NoWait: true}); err != nil {
				return s, err
			}
		}
		leased := heap() - before
		s.value = ready / float64(f.messages)
		s.spread = []float64{leased / float64(f.messages)}
		s.backlog = int64(f.messages)
		stats, err := b.QueueStats(ctx, queue)
		if err == nil && (stats.Leased != f.messages || stats.Ready != 0) {
			err = fmt.Errorf("%d messages leased, want %d", stats.Leased, f.messages)
		}
		return s, err
	})
}

// idleQueues is what a queue takes that was used and is empty again, in bytes; spread
// holds the goroutines that all of them keep.
type idleQueues struct {
	executor string
	queues   int
	used     int // messages through each, in one burst
	lean     bool
}

// idleLease is short because a queue rests only when the timer of its last lease has
// rung, and long enough for a slow machine to ack in time.
const idleLease = time.Second

func (f idleQueues) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		running := runtime.NumGoroutine()
		before := heap()
		config := postroom.QueueConfig{AckTimeout: idleLease}
		if f.lean {
			config.DeadLetterLimit, config.DedupLimit, config.MaxMessages = 16, 16, 128
		}
		for i := range f.queues {
			name := queuePrefix + strconv.Itoa(i)
			if err := b.DeclareQueue(ctx, name, config); err != nil {
				return s, err
			}
			if err := b.useOnce(ctx, name, f.used); err != nil {
				return s, err
			}
		}
		if err := waitUntil(ctx, time.Now().Add(idleLease+idleLease/4)); err != nil {
			return s, err
		}
		s.value = (heap() - before) / float64(f.queues)
		s.spread = []float64{float64(runtime.NumGoroutine() - running)}
		stats, err := b.Stats(ctx)
		if err == nil && stats.Queues != f.queues {
			err = fmt.Errorf("%d queues, want %d", stats.Queues, f.queues)
		}
		return s, err
	})
}

func (b *bench) useOnce(ctx context.Context, queue string, n int) error {
	if n == 0 {
		return nil
	}
	batch := make([]postroom.Envelope, n)
	for i := range batch {
		batch[i] = postroom.Envelope{ID: strconv.Itoa(i), Body: []byte("x")}
	}
	if _, err := b.PutBatch(ctx, queue, batch); err != nil {
		return err
	}
	for range n {
		d, err := b.Get(ctx, queue, postroom.GetConfig{NoWait: true})
		if err != nil {
			return err
		}
		if err := d.Ack(ctx); err != nil {
			return err
		}
	}
	return nil
}
