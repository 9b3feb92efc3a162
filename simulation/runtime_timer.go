package simulation

import (
	"container/heap"
	"time"
)

// timer is one call at an instant of the simulated clock.
type timer struct {
	runtime *Runtime
	at      time.Time
	tie     uint64 // decided anew at each Reset
	set     uint64 // how many were set before it, the last word
	fn      func()
	index   int    // in the heap, -1 while not set
	name    string // in an exhaustive search
}

// Reset implements actorkit.Timer.
func (t *timer) Reset(d time.Duration) {
	t.Stop()
	if t.runtime.closing {
		return
	}
	t.at = t.runtime.now.Add(max(0, d))
	r := t.runtime
	t.tie = r.draw("tie", &r.draws.tie)
	t.set = r.draws.tie
	switch {
	case r.between:
		t.tie = 0 // who rings first is picked when they are due
	case r.decide != nil:
		t.tie = uint64(r.decide(WhatTimer, timerRanks, nil))
	}
	if r.search != nil {
		owner := "another timer"
		if r.current != nil {
			owner = r.current.name
		}
		r.search.set(t, owner)
	}
	heap.Push(&t.runtime.timers, t)
}

// Stop implements actorkit.Timer.
func (t *timer) Stop() {
	if t.index >= 0 && t.index < len(t.runtime.timers) && t.runtime.timers[t.index] == t {
		if x := t.runtime.search; x != nil {
			x.stop(t)
		}
		heap.Remove(&t.runtime.timers, t.index)
	}
}

// timerRanks is how many ranks a decision puts the timers of one instant into.
// Within a rank they ring in the order they were set.
const timerRanks = 4

// timers is a heap, the next to ring first.
type timers []*timer

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	if h[i].tie != h[j].tie {
		return h[i].tie < h[j].tie
	}
	return h[i].set < h[j].set
}

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements [heap.Interface].
func (h *timers) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements [heap.Interface].
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
