package postroom_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/postroom/postroom"
)

// BenchmarkIdleQueue measures what a queue costs that was used and is empty again:
// 100,000 queues (or b.N, if that is less) each take a burst through put, lease and
// ack, and then rest. It reports bytes and goroutines.
func BenchmarkIdleQueue(b *testing.B) {
	for _, used := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("messages=%d", used), func(b *testing.B) { idleQueues(b, used) })
	}
}

func idleQueues(b *testing.B, used int) {
	broker := open(b, "goroutines")
	ctx := context.Background()
	queues := min(b.N, 100_000)
	before := heap()
	goroutines := runtime.NumGoroutine()
	for i := range queues {
		name := "q" + strconv.Itoa(i)
		must(b, broker.DeclareQueue(ctx, name, postroom.QueueConfig{AckTimeout: 2 * time.Second}))
		batch := make([]postroom.Envelope, used)
		for n := range batch {
			batch[n] = postroom.Envelope{ID: strconv.Itoa(n), Body: []byte("x")}
		}
		if used > 0 {
			_, err := broker.PutBatch(ctx, name, batch)
			must(b, err)
		}
		for range used {
			d, err := broker.Get(ctx, name, postroom.GetConfig{})
			must(b, err)
			must(b, d.Ack(ctx))
		}
	}
	b.StopTimer()
	time.Sleep(2200 * time.Millisecond) // the last timers, armed to leases that are over, have rung
	b.ReportMetric(float64(heap()-before)/float64(queues), "B/queue")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
	s, err := broker.Stats(ctx)
	must(b, err)
	if s.Queues != queues {
		b.Fatalf("%d queues, want %d", s.Queues, queues)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalisers and pools held the first time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
