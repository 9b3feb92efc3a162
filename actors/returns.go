package actors

import (
	"errors"
	"sync/atomic"

	"github.com/postroom/postroom/internal/actorkit"
)

// returns is the way back of a queue's deliveries: workers push those whose handlers
// have returned, and the first one sends the returns themselves to the queue, which
// takes all that is there by then. So a burst of settles is one message in the
// queue's mailbox, and a settle costs one compare-and-swap.
type returns struct {
	again
	to *actorkit.Address

	_      line
	pushed atomic.Pointer[slot] // newest first

	// Of the queue's turn.
	_      line
	taken  *slot // oldest first
	now    *slot // under way
	taking bool  // stays true when the queue crashes on it
}

// push sends a slot on its way to the queue. A caller that has nothing else to do may
// as well run the queue's turn.
func (r *returns) push(s *slot, idle bool) {
	top := r.pushed.Load()
	for s.next = top; !r.pushed.CompareAndSwap(top, s); s.next = top {
		top = r.pushed.Load()
	}
	switch {
	case top != nil: // whoever pushed that has sent the message, or is about to
	case idle:
		r.to.Call(r)
	default:
		r.to.Send(r)
	}
}

// take fetches what was pushed, behind what a crash has left.
func (r *returns) take() {
	var burst *slot
	for s := r.pushed.Swap(nil); s != nil; {
		next := s.next
		s.next, burst = burst, s
		s = next
	}
	end := &r.taken
	for *end != nil {
		end = &(*end).next
	}
	*end = burst
}

// next returns the next slot, or nil.
func (r *returns) next() *slot {
	s := r.taken
	if s != nil {
		r.taken, s.next = s.next, nil // a finished slot keeps no other one alive
	}
	r.now = s
	return s
}

// Fail leaves the rest to carryOn when the queue has crashed. When it has ended, the
// settles are lost, as its leases are.
func (r *returns) Fail(err error) {
	if errors.Is(err, actorkit.ErrCrashed) {
		r.taking = true
		return
	}
	r.pushed.Store(nil)
}

// carryOn is called when the queue has restarted. A crash on a settle costs that one,
// and the others are sent for again, also the pushed ones: nobody else would, since
// workers send only when there is none. When the queue crashes again and again on none
// of them, all are lost.
func (r *returns) carryOn() {
	if r == nil || !r.taking {
		return
	}
	r.taking = false
	lost := r.now
	r.now = nil
	if lost == nil && r.left() && !r.mayRetry(actorkit.ErrCrashed) {
		r.tries = 0
		r.take()
		lost, r.taken = r.taken, nil
	}
	for lost != nil {
		next := lost.next
		lost.Fail(actorkit.ErrCrashed)
		lost = next
	}
	if r.left() {
		r.to.Send(r)
	}
}

// left reports whether there is something to take.
func (r *returns) left() bool { return r.taken != nil || r.pushed.Load() != nil }

// takeReturns settles what a burst of handlers' returns means.
func (q *workQueue) takeReturns(c *actorkit.Context) {
	r := q.returns
	if r == nil {
		return
	}
	r.taking = true
	r.take()
	for n := 1; ; n++ {
		s := r.next()
		if s == nil {
			break
		}
		q.probe("before", s)
		q.handlerReturned(c, s)
		r.tries = 0
		if n%handOverEvery == 0 {
			r.now = nil // what follows is not this settle's doing
			q.handOverNow(c)
		}
	}
	r.taking = false
}
