package benchmark

import (
	"context"
	"fmt"
	"time"
)

// floor is what a case is compared with.
type floor uint8

const (
	noFloor floor = iota
	// hops is three bare channel hops a message, put, hand-over and ack, with 256
	// messages out at most: no lease, id, timer or retry.
	hops
	hops16 // with 16 out at most
	hops1  // with 1
	// roundTrip is a question and its answer over bare channels.
	roundTrip
	floors
)

var floorNames = [floors]string{"", "hops", "hops, prefetch 16", "hops, prefetch 1", "round trip"}

func (f floor) String() string { return floorNames[f] }

// measure runs the floor for n messages and returns nanoseconds a message.
func (f floor) measure(n int) (float64, error) {
	switch f {
	case hops:
		return threeHops(n, 256)
	case hops16:
		return threeHops(n, 16)
	case hops1:
		return threeHops(n, 1)
	case roundTrip:
		return askAndAnswer(n)
	default:
		panic(fmt.Sprintf("benchmark: floor %d is none", f))
	}
}

type floorPut struct{ body []byte }

type floorDelivery struct {
	tag  uint64
	body []byte
}

type floorAck struct{ tag uint64 }

// threeHops is the life of n messages on one bare goroutine that plays the queue.
func threeHops(n, prefetch int) (float64, error) {
	in := make(chan any, 1024)
	out := make(chan floorDelivery, prefetch)
	done := make(chan int)
	go func() { // the queue
		defer close(out)
		held := make(map[uint64][]byte, prefetch)
		var ready [][]byte
		var tag uint64
		acked := 0
		for acked < n {
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
		done <- acked - len(held) - len(ready)
	}()
	go func() { // the consumer
		for d := range out {
			in <- floorAck{d.tag}
		}
	}()
	body := make([]byte, bodyBytes)
	began := time.Now()
	for range n {
		in <- &floorPut{body}
	}
	acked := <-done
	took := time.Since(began)
	if acked != n {
		return 0, fmt.Errorf("floor: %d messages acked, want %d", acked, n)
	}
	return perMessage(took, n), nil
}

// askAndAnswer is n questions to one goroutine, each answered before the next.
func askAndAnswer(n int) (float64, error) {
	type question struct{ reply chan int }
	in := make(chan question, 64)
	go func() {
		answered := 0
		for q := range in {
			answered++
			q.reply <- answered
		}
	}()
	defer close(in)
	reply := make(chan int, 1)
	last := 0
	began := time.Now()
	for range n {
		in <- question{reply}
		last = <-reply
	}
	took := time.Since(began)
	if last != n {
		return 0, fmt.Errorf("floor: %d questions answered, want %d", last, n)
	}
	return perMessage(took, n), nil
}

func perMessage(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) }

// waitUntil sleeps until at, or less when ctx ends.
func waitUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
