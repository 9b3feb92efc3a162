package actors

import (
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
//
// It is kept at three cache lines, the last of which is all that the worker writes.
type slot struct {
	messages.Delivery
	next *slot // on the way back: see returns

	state atomic.Uint32
	again              // the queue's
	until atomic.Int64 // the lease's deadline as touched last, since the broker was opened; 0: never

	// Written by the worker before it takes the slot, read by the consumer after.
	started time.Duration // since the broker was opened
	worker  *worker

	failure *failure // written by the worker before it hands the slot to the queue

	altered bool // since its put, written by the queue: see integrity

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
	if state := s.state.Load(); state == slotWaiting || state == slotOver {
		return // and a slot that waits has no worker
	}
	// In this order: once the slot is over its worker may have the next one's.
	context := s.worker.context.Load()
	if !s.state.CompareAndSwap(slotRunning, slotFlagged) &&
		!s.state.CompareAndSwap(slotSettling, slotFlagged) && s.state.Load() != slotFlagged {
		return
	}
	if cause != nil {
		s.cancelled = true
		context.cancel(cause)
	}
}

// touched notes the lease's new deadline. The broker was opened at began.
func (s *slot) touched(deadline, began time.Time) { s.until.Store(int64(deadline.Sub(began))) }

// lapsed reports whether the lease is over at now, since the broker was opened at began.
func (s *slot) lapsed(now time.Duration, began time.Time) bool {
	if until := s.until.Load(); until != 0 {
		return int64(now) >= until
	}
	return !s.Deadline.IsZero() && now >= s.Deadline.Sub(began)
}

// takeBack takes a slot that waits; its handler will never see it.
func (s *slot) takeBack() bool { return s.state.CompareAndSwap(slotWaiting, slotOver) }

// Fail is told that the queue will not settle the slot. A crash costs the settle,
// and the lease runs out (SPEC S3), but not the credit: that is asked for again.
func (s *slot) Fail(err error) {
	if !s.quiet {
		s.quiet, s.lost = true, true
	}
	if s.mayRetry(err) {
		s.worker.consumer.queue.returns.push(s, false)
	}
}

// chunk is deliveries that a queue hands to a consumer together. They lie side by side
// in a room, which the next chunk goes on with: one allocation for many.
type chunk struct{ slots []slot }

// roomMax bounds a room, because one slow handler keeps all of it in memory.
const roomMax = 64

type room = [roomMax]slot

func (ch chunk) live() bool {
	for i := range ch.slots {
		if ch.slots[i].state.Load() != slotOver {
			return true
		}
	}
	return false
}

// inbox is where a consumer's deliveries wait for a free worker. Like a mailbox it
// has a mutex of its own: the queue puts in, on its own goroutine, which spares a
// hop through the consumer; the workers take out; the consumer looks after what is
// held and says when nobody can work on more.
type inbox struct {
	mu      sync.Mutex
	open    bool    // somebody can work on what comes
	held    []chunk // may have slots that are not over, oldest first
	waiting []chunk // those with slots that no worker has looked at
	first   int     // in waiting
	tidyAt  int     // held is looked through when it has grown to this
}

// push takes deliveries in, or refuses them when the inbox is shut.
func (b *inbox) push(c chunk) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return false
	}
	if len(b.held) >= b.tidyAt {
		b.tidy()
	}
	b.held = append(b.held, c)
	if len(b.waiting) == cap(b.waiting) && b.first >= cap(b.waiting)/2 && b.first > 0 { // before it grows
		n := copy(b.waiting, b.waiting[b.first:])
		clear(b.waiting[n:])
		b.waiting, b.first = b.waiting[:n], 0
	}
	b.waiting = append(b.waiting, c)
	return true
}

// tidy forgets chunks whose leases are all over. Those that are not are at most as
// many as the prefetch, so looking again only when there are twice as many costs
// O(1) a chunk.
func (b *inbox) tidy() {
	kept := b.held[:0]
	for _, ch := range b.held {
		if ch.live() {
			kept = append(kept, ch)
		}
	}
	clear(b.held[len(kept):])
	b.held = kept
	b.tidyAt = 2*len(kept) + 16
}

// pop returns the next slot, or the next ones when all of them are for the same worker;
// nil when there is none. Some may have been taken back meanwhile.
func (b *inbox) pop(several bool) []slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == len(b.waiting) {
		return nil
	}
	c := &b.waiting[b.first]
	got := c.slots
	if several || len(got) == 1 {
		c.slots = nil
		if b.first++; b.first == len(b.waiting) {
			b.waiting, b.first = b.waiting[:0], 0
		}
		return got
	}
	c.slots = got[1:]
	return got[:1]
}

// empty reports whether pop would find nothing.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first == len(b.waiting)
}

// all appends what is held to a slice, to be gone through without the mutex.
func (b *inbox) all(to []chunk) []chunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(to, b.held...)
}

// setOpen says whether somebody can work on what comes. What was pushed before it
// was shut is held; what comes later is refused: nothing falls in between.
func (b *inbox) setOpen(open bool) {
	b.mu.Lock()
	b.open = open
	b.mu.Unlock()
}

// busy reports whether a lease is not over, and forgets those that are when none is.
func (b *inbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ch := range b.held {
		if ch.live() {
			return true
		}
	}
	clear(b.held)
	b.held = b.held[:0]
	return false
}
