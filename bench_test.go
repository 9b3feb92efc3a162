package postroom_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom"
)

// The benchmarks of the door, with the floor in the same run: what Go itself
// charges for the hops that a message makes. Read the results as ratios to it:
//
//	go test -run '^$' -bench 'Floor|Lifecycle|ConfirmedPut' -count 5 .

type floorPut struct{ body []byte }

type floorDelivery struct {
	tag  uint64
	body []byte
}

type floorAck struct{ tag uint64 }

// BenchmarkFloor is three bare channel hops a message, put, hand-over and ack,
// with a map of what is out: no lease, id, timer or retry.
func BenchmarkFloor(b *testing.B) {
	for _, prefetch := range []int{1, 256} {
		b.Run(fmt.Sprintf("lifecycle/prefetch=%d", prefetch), func(b *testing.B) { floorLifecycle(b, prefetch) })
	}
	b.Run("roundtrip", floorRoundTrip)
}

func floorLifecycle(b *testing.B, prefetch int) {
	in := make(chan any, 1024)
	out := make(chan floorDelivery, prefetch)
	done := make(chan struct{})
	total := b.N
	go func() {
		defer close(done)
		defer close(out)
		held := make(map[uint64][]byte, prefetch)
		var ready [][]byte
		var tag uint64
		for acked := 0; acked < total; {
			switch m := (<-in).(type) {
			case *floorPut:
				ready = append(ready, m.body)
			case floorAck:
				delete(held, m.tag)
				acked++
			}
			for len(held) < prefetch && len(ready) > 0 {
				tag++
				held[tag] = ready[0]
				out <- floorDelivery{tag, ready[0]}
				ready = ready[1:]
			}
		}
	}()
	go func() {
		for d := range out {
			in <- floorAck{d.tag}
		}
	}()
	body := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	for range total {
		in <- &floorPut{body}
	}
	<-done
}

func floorRoundTrip(b *testing.B) {
	type ask struct{ reply chan uint64 }
	in := make(chan ask, 64)
	go func() {
		var n uint64
		for a := range in {
			n++
			a.reply <- n
		}
	}()
	defer close(in)
	reply := make(chan uint64, 1)
	b.ReportAllocs()
	for b.Loop() {
		in <- ask{reply}
		<-reply
	}
}

// BenchmarkLifecycle is one message's whole life on one queue: put through a
// Publisher that waits for its workers, leased, handled, acked; ids given by the
// caller, leases, attempts and admission on.
func BenchmarkLifecycle(b *testing.B) {
	for _, executor := range []string{"goroutines", "lanes"} {
		for _, prefetch := range []int{1, 256} {
			b.Run(fmt.Sprintf("%s/prefetch=%d", executor, prefetch), func(b *testing.B) { lifecycle(b, executor, prefetch) })
		}
	}
}

func lifecycle(b *testing.B, executor string, prefetch int) {
	const window = 4096
	broker := open(b, executor)
	ctx := context.Background()
	must(b, broker.DeclareQueue(ctx, "bench", postroom.QueueConfig{}))
	var handled atomic.Int64
	total := int64(b.N)
	done := make(chan struct{})
	_, err := broker.Consume(ctx, "bench", func(context.Context, *postroom.Delivery) error {
		if handled.Add(1) == total {
			close(done)
		}
		return nil
	}, postroom.ConsumerConfig{Prefetch: prefetch})
	must(b, err)
	publisher, err := broker.Publisher(ctx, "bench", postroom.PublisherConfig{Window: window, UntilSettled: true})
	must(b, err)
	body := make([]byte, 100)
	// An id is free again long before its turn comes round, and there are few: a
	// million of them would be most of what the collector has to look at.
	ids := make([]string, 4*window)
	for i := range ids {
		ids[i] = "m" + strconv.Itoa(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, err := publisher.Put(ctx, postroom.Envelope{ID: ids[i%len(ids)], Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	must(b, broker.Drain(ctx, "bench"))
	b.StopTimer()
	s, err := broker.QueueStats(ctx, "bench")
	must(b, err)
	if s.Acks != uint64(total) || s.Redelivered != 0 || s.StaleBy[postroom.VerbAck] != 0 {
		b.Fatalf("%d messages: %d acked, %d redelivered, %d late", total, s.Acks, s.Redelivered, s.StaleBy[postroom.VerbAck])
	}
}

// BenchmarkConfirmedPut is a put alone on an idle queue, and its answer. The
// backlog is purged now and then, off the clock: what a deep one costs is another
// question.
func BenchmarkConfirmedPut(b *testing.B) {
	const backlogMax = 1024
	for _, executor := range []string{"goroutines", "lanes"} {
		b.Run(executor, func(b *testing.B) {
			broker := open(b, executor)
			ctx := context.Background()
			must(b, broker.DeclareQueue(ctx, "bench", postroom.QueueConfig{}))
			body := make([]byte, 100)
			ids := make([]string, b.N)
			for i := range ids {
				ids[i] = "m" + strconv.Itoa(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			purged := 0
			for i := range b.N {
				if _, err := broker.Put(ctx, "bench", postroom.Envelope{ID: ids[i], Body: body}); err != nil {
					b.Fatal(err)
				}
				if i%backlogMax == backlogMax-1 {
					b.StopTimer()
					n, err := broker.Purge(ctx, "bench")
					must(b, err)
					purged += n
					b.StartTimer()
				}
			}
			b.StopTimer()
			s, err := broker.QueueStats(ctx, "bench")
			must(b, err)
			if s.Ready+purged != b.N {
				b.Fatalf("%d messages ready and %d purged, want %d", s.Ready, purged, b.N)
			}
		})
	}
}

func open(b *testing.B, executor string) *postroom.Broker {
	b.Helper()
	var options []postroom.Option
	if executor == "lanes" {
		options = append(options, postroom.WithLanes())
	}
	broker, err := postroom.Open(options...)
	must(b, err)
	b.Cleanup(func() { must(b, broker.Close(context.Background())) })
	return broker
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
