package benchmark

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/postroom/postroom"
)

// openLoop is messages sent at an even rate whatever becomes of them. Its value is the
// median time from the instant a message was due to be sent until its handler had it;
// spread holds p50, p99, p99.9 and the longest, all in nanoseconds, and how much of the
// rate was reached, in percent.
//
// The clock of a message starts when it was due, not when it was sent: a producer that
// was held up would otherwise leave out just those that waited longest (coordinated
// omission). The messages of a first quarter more are not counted: a broker that was
// opened this moment makes its room then, and what they wait says nothing of later.
type openLoop struct {
	executor string
	perSec   float64
	lasts    time.Duration
}

// Bounds of what the histogram tells apart: 1 ns to a minute, three digits.
const (
	latencyMax    = int64(time.Minute)
	latencyDigits = 3
)

func (f openLoop) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue = queuePrefix
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		counted := int(f.perSec * f.lasts.Seconds())
		if counted < 1 {
			return s, fmt.Errorf("%g messages a second make none in %s", f.perSec, f.lasts)
		}
		warmUp := counted / warmUpShare
		n := warmUp + counted
		histogram := hdrhistogram.New(1, latencyMax, latencyDigits)
		g := newGate(n)
		every := float64(time.Second) / f.perSec
		countsFrom := int64(float64(warmUp) * every)
		start := time.Now()
		_, err = b.Consume(ctx, queue, func(_ context.Context, d *postroom.Delivery) error {
			due := int64(binary.LittleEndian.Uint64(d.Body))
			if due >= countsFrom {
				_ = histogram.RecordValue(max(int64(time.Since(start))-due, 1)) // over a minute: check finds it missing
			}
			g.done()
			return nil
		}, postroom.ConsumerConfig{Prefetch: 256})
		if err != nil {
			return s, err
		}
		// Nothing but the window's own bound holds the producer up.
		publisher, err := b.Publisher(ctx, queue, postroom.PublisherConfig{Window: n + 1})
		if err != nil {
			return s, err
		}
		bodies := make([]byte, n*bodyBytes)
		for i := 0; i < len(bodies); i += os.Getpagesize() {
			bodies[i] = 1 // or the producer would wait for each page
		}
		ids := manyIDs(n) // a list of them would be most of what the collector has to look at
		wakeUps := b.runtime.wakeUps.Load()
		start = time.Now()
		for i := range n {
			due := time.Duration(float64(i) * every)
			for time.Since(start) < due {
				runtime.Gosched() // a sleep would be longer than many intervals
			}
			body := bodies[i*bodyBytes : (i+1)*bodyBytes : (i+1)*bodyBytes]
			binary.LittleEndian.PutUint64(body, uint64(due))
			if _, err := publisher.Put(ctx, postroom.Envelope{ID: ids[i*idBytes : (i+1)*idBytes], Body: body}); err != nil {
				return s, err
			}
			if i%64 == 0 {
				g.deepest = max(g.deepest, int64(i)-g.handled.Load())
			}
		}
		sent := time.Since(start)
		if err := b.Drain(ctx, queue); err != nil {
			return s, err
		}
		b.woken(&s, wakeUps, n)
		s.backlog = g.deepest
		at := func(p float64) float64 { return float64(histogram.ValueAtPercentile(p)) }
		s.spread = []float64{at(50), at(99), at(99.9), float64(histogram.Max()), 100 * min(float64(n)*every/float64(sent), 1)}
		s.value = s.spread[0]
		if histogram.TotalCount() != int64(counted) {
			return s, fmt.Errorf("%d latencies of %d messages", histogram.TotalCount(), counted)
		}
		return s, nil
	})
}
