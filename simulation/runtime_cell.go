package simulation

import (
	"context"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// cell is a reply cell of the simulation. There is one thread, so it needs no more
// than a generation and a stage.
type cell struct {
	runtime    *Runtime
	generation uint64
	stage      cellStage
	answer     messages.Answer
	waiter     *coroutine // parked on it, or woken and not yet back
}

type cellStage uint8

const (
	pending cellStage = iota
	answered
	abandoned
)

// NewCell implements [actorkit.Runtime]. Every door call begins with it, so it is
// where a goroutine that does not belong here is found out.
func (r *Runtime) NewCell() actorkit.Cell {
	r.enter("a call that waits for an answer")
	if last := len(r.cells) - 1; last >= 0 {
		c := r.cells[last]
		r.cells = r.cells[:last]
		return c
	}
	return &cell{runtime: r}
}

// Ref implements [actorkit.Cell].
func (c *cell) Ref() messages.Ref { return messages.Ref{To: c, Generation: c.generation} }

// Resolve implements [messages.Resolver].
func (c *cell) Resolve(generation uint64, answer messages.Answer) bool {
	if generation != c.generation {
		return false
	}
	switch c.stage {
	case pending:
		c.stage, c.answer = answered, answer
		if c.waiter != nil {
			c.runtime.wake(c.waiter)
		}
		return true
	case abandoned:
		c.recycle()
	}
	return false
}

// Waiting implements [messages.Resolver].
func (c *cell) Waiting(generation uint64) bool {
	return generation == c.generation && c.stage == pending
}

// Wait implements [actorkit.Cell]. A context with a deadline on the wall clock is
// refused with an *actorkit.ForeignDeadlineError.
func (c *cell) Wait(ctx context.Context) (messages.Answer, error) {
	r := c.runtime
	r.enter("Wait")
	if c.stage == pending {
		if err := r.CheckContext(ctx); err != nil {
			c.stage = abandoned
			return messages.Answer{}, err
		}
		if ctx.Err() == nil {
			c.waiter = r.current
			r.park("an answer", ctx)
			c.waiter = nil
		}
	}
	if c.stage != answered {
		c.stage = abandoned
		return messages.Answer{}, context.Cause(ctx)
	}
	answer := c.answer
	c.recycle()
	return answer, nil
}

// Abandon implements [actorkit.Cell].
func (c *cell) Abandon() { c.recycle() }

func (c *cell) recycle() {
	c.generation++
	c.stage, c.answer, c.waiter = pending, messages.Answer{}, nil
	c.runtime.cells = append(c.runtime.cells, c)
}
