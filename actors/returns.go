package actors

import (
	"errors"
	"sync/atomic"

	"github.com/postroom/postroom/internal/actorkit"
)

// effectsMax is how many effects of a burst gather before they are carried out.
const effectsMax = 64

// returns is the way back of a queue's deliveries: workers push those whose handlers
// have returned, and the first one sends the returns themselves to the queue, which
// takes all that is there by then. So a burst of settles is one message in the
// queue's mailbox, and a settle costs one compare-and-swap.
type returns struct {
	again
	to     *actorkit.Address
	pushed atomic.Pointer[slot] // newest first

	// Of the queue's turn.
	taken *slot // oldest first
	now   *slot // under way
}

// push sends a slot on its way to the queue.
func (r *returns) push(s *slot) {
	top := r.pushed.Load()
	for s.next = top; !r.pushed.CompareAndSwap(top, s); s.next = top {
		top = r.pushed.Load()
	}
	switch {
	case top != nil: // whoever pushed that has sent the message, or is about to
	case s.consumer.inbox.empty():
		r.to.Call(r) // the worker would be idle, so it may as well run the queue's turn
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

// Fail costs the settle that crashed the queue, and sends for the others again.
// When the queue has ended they are lost, as its leases are.
func (r *returns) Fail(err error) {
	if !errors.Is(err, actorkit.ErrCrashed) {
		r.pushed.Store(nil)
		return
	}
	if s := r.now; s != nil {
		r.now = nil
		s.Fail(err)
		r.to.Send(r)
		return
	}
	r.retry(r.to, r, err)
}

// left reports whether a crash has left something to do.
func (r *returns) left() bool { return r.now != nil || r.taken != nil }

// takeReturns settles what a burst of handlers' returns means.
func (q *workQueue) takeReturns(c *actorkit.Context) {
	r := q.returns
	r.take()
	for s := r.next(); s != nil; s = r.next() {
		q.probe("before", s)
		q.handlerReturned(c, s)
		r.tries = 0
		if len(q.ledger.Effects()) >= effectsMax {
			r.now = nil // what follows is not this settle's doing
			q.performAll(c)
		}
	}
}
