package actorkit

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom/messages"
)

// A cell's state is one word: its generation, whether somebody is parked on it,
// and where it stands.
//
//	pending ──Resolve──▶ answering ──▶ answered ──Wait──▶ pending, next generation
//	   │
//	   └──ctx ended──▶ abandoned ──Resolve──▶ pending, next generation
//
// answering exists because an answer is too large to be written atomically: it
// keeps a second resolver out, and makes a leaving waiter stay for the answer.
const (
	cellPending   = 0
	cellAnswering = 1
	cellAnswered  = 2
	cellAbandoned = 3
	cellStage     = 3 // mask
	cellParked    = 4 // flag: the waiter must be woken through its channel
	cellBits      = 3
)

// realCell is a [Cell] for goroutines. When the answer is there before the wait,
// as after a turn on the caller's own goroutine, the channel is not touched.
type realCell struct {
	state  atomic.Uint64
	answer messages.Answer
	woken  chan struct{} // capacity 1; one token for a waiter that parked
	pool   *sync.Pool    // of one runtime: a channel made inside a synctest bubble must not leave it

	callers *callers
}

func (c *realCell) Ref() messages.Ref {
	return messages.Ref{To: c, Generation: c.state.Load() >> cellBits}
}

func (c *realCell) Resolve(generation uint64, answer messages.Answer) bool {
	for {
		state := c.state.Load()
		if state>>cellBits != generation {
			return false
		}
		switch state & cellStage {
		case cellPending:
			if !c.state.CompareAndSwap(state, state|cellAnswering) {
				continue // the waiter parked or left in between
			}
			c.answer = answer
			if c.state.Swap(generation<<cellBits|cellAnswered)&cellParked != 0 {
				c.woken <- struct{}{}
			}
			return true
		case cellAbandoned:
			// Its waiter is gone and this is the only answer it will get, so the
			// resolver brings it back.
			if c.state.CompareAndSwap(state, (generation+1)<<cellBits) {
				c.pool.Put(c)
			}
			return false
		default:
			return false
		}
	}
}

func (c *realCell) Waiting(generation uint64) bool {
	state := c.state.Load()
	return state>>cellBits == generation && state&cellStage == cellPending
}

func (c *realCell) answered() bool { return c.state.Load()&cellStage == cellAnswered }

func (c *realCell) Wait(ctx context.Context) (messages.Answer, error) {
	for {
		state := c.state.Load()
		if state&cellStage == cellAnswered {
			return c.take(state), nil
		}
		if c.state.CompareAndSwap(state, state|cellParked) {
			break
		}
	}
	done := ctx.Done()
	if done == nil {
		<-c.woken
		return c.take(c.state.Load()), nil
	}
	select {
	case <-c.woken:
	case <-done:
		state := c.state.Load()
		if state&cellStage == cellPending && c.state.CompareAndSwap(state, state&^uint64(cellParked)|cellAbandoned) {
			return messages.Answer{}, context.Cause(ctx)
		}
		<-c.woken // answered at the same time: the answer wins
	}
	return c.take(c.state.Load()), nil
}

func (c *realCell) Abandon() {
	state := c.state.Load()
	switch state & cellStage {
	case cellPending:
		if c.state.CompareAndSwap(state, (state>>cellBits+1)<<cellBits) {
			c.pool.Put(c)
		}
	case cellAnswered:
		c.take(state)
	}
}

// take empties an answered cell and gives it back.
func (c *realCell) take(state uint64) messages.Answer {
	answer := c.answer
	c.answer = messages.Answer{} // a parked cell must not keep a delivery alive
	c.state.Store((state>>cellBits + 1) << cellBits)
	c.pool.Put(c)
	return answer
}
