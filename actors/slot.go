package actors

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/messages"
)

// A slot is one lease in a consumer: where a delivery waits, runs and ends.
//
//	            worker             worker              worker
//	waiting ──────────────▶ running ─────▶ settling ─────────────▶ over
//	   │                       │ consumer     │ consumer            ▲
//	   │ consumer              ▼              ▼                     │ worker
//	   └──────▶ over        flagged ◀─────────┘ ────────────────────┘
//
// The state is the only thing that the consumer and its workers both write, by
// compare-and-swap, so each lease has exactly one owner at a time: who wins
// "waiting" may start it or give it back, never both. A worker whose slot was
// flagged tells the consumer when the handler has returned. A slot is over only
// when its settle is on its way to the queue: a consumer that ends as soon as all
// are over would else be gone before its last ack.
type slot struct {
	messages.Delivery
	consumer *consumer

	state atomic.Uint32
	until atomic.Int64 // the lease's deadline as known last, UnixNano; 0: none

	// Written by the worker before it takes the slot, read by the consumer after.
	started time.Duration // since the broker was opened
	cancel  context.CancelCauseFunc
	worker  *worker

	failure *failure // written by the worker before it hands the slot to the queue
	again            // the queue's

	// Written by the worker before it hands the slot to the queue.
	verb  messages.Verb
	quiet bool // settles nothing: Manual
	lost  bool // the settle was lost to a crash of the queue

	// Written by the consumer, only it.
	noted     bool // the queue was told that the handler has begun
	stuck     bool // reported as stuck
	cancelled bool // the handler's context was
}

// failure is what an error of the handler means. It is kept apart, since most
// deliveries succeed and a slot is there for each.
type failure struct {
	text  string
	delay time.Duration // for messages.VerbNackIn
}

const (
	slotWaiting uint32 = iota
	slotRunning
	slotSettling
	slotFlagged
	slotOver
)

// flag marks a running slot so that its worker reports the handler's return, and
// cancels the handler's context when there is a cause. The context belongs to this
// delivery alone from then on: a worker never reuses one that was flagged.
func (s *slot) flag(cause error) {
	if !s.state.CompareAndSwap(slotRunning, slotFlagged) &&
		!s.state.CompareAndSwap(slotSettling, slotFlagged) && s.state.Load() != slotFlagged {
		return
	}
	if cause != nil {
		s.cancelled = true
		s.cancel(cause)
	}
}

// takeBack takes a slot that waits; its handler will never see it.
func (s *slot) takeBack() bool { return s.state.CompareAndSwap(slotWaiting, slotOver) }

// Fail is told that the queue will not settle the slot. A crash costs the settle,
// and the lease runs out (SPEC S3), but not the credit: that is asked for again.
func (s *slot) Fail(err error) {
	if !s.quiet {
		s.quiet, s.lost = true, true
	}
	s.retry(s.consumer.queue.Address, s, err)
}

// chunk is the deliveries of one turn of the queue for one consumer: one
// allocation and one message however many they are.
type chunk struct{ slots []slot }

// chunkMax bounds a chunk, because one slow handler keeps all of it in memory.
const chunkMax = 64

// inbox is where a consumer's deliveries wait for a free worker. Like a mailbox it
// has a mutex of its own; several workers take from it.
type inbox struct {
	mu     sync.Mutex
	chunks []*chunk
	next   int // in chunks[0]
}

func (b *inbox) push(c *chunk) {
	b.mu.Lock()
	b.chunks = append(b.chunks, c)
	b.mu.Unlock()
}

// pop returns the next slot, or nil. Some may have been taken back meanwhile.
func (b *inbox) pop() *slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.chunks) == 0 {
		return nil
	}
	c := b.chunks[0]
	s := &c.slots[b.next]
	if b.next++; b.next == len(c.slots) {
		n := copy(b.chunks, b.chunks[1:])
		b.chunks[n] = nil
		b.chunks, b.next = b.chunks[:n], 0
	}
	return s
}

// empty reports whether pop would find nothing.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.chunks) == 0
}
