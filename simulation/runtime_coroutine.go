package simulation

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// coroutine is one flow of control. It is used again for the next one when its
// function returns: a switch to a used one costs a quarter of a fresh one.
type coroutine struct {
	name string
	fn   func() // nil once it returned

	next      func() (struct{}, bool) // take a step
	stop      func()
	yield     func(struct{}) bool // end the step; false when it must unwind
	goroutine uint64              // the id it runs under, to tell it from intruders
	crash     *PanicError
	sleeper   *timer // for Sleep, once it has slept
	rang      bool

	// While parked:
	what         string
	since        time.Time
	ctx          context.Context // nil if nothing can cut the wait short
	isParked     bool
	older, newer *coroutine
}

// coroutine returns a free one, or makes one.
func (r *Runtime) coroutine() *coroutine {
	if last := len(r.free) - 1; last >= 0 {
		c := r.free[last]
		r.free = r.free[:last]
		return c
	}
	if c := r.room.takeCoroutine(r); c != nil {
		r.others-- // it was counted as somebody else's
		r.all = append(r.all, c)
		return c
	}
	c := &coroutine{}
	c.next, c.stop = pull(func(yield func(struct{}) bool) {
		c.yield, c.goroutine = yield, goroutineID()
		for c.call() && yield(struct{}{}) {
		}
	})
	r.all = append(r.all, c)
	return c
}

// call runs the function once and reports whether the coroutine can go on. A
// panic is kept with its stack, which would be lost on the way through iter.Pull;
// a Goexit just passes.
func (c *coroutine) call() (usable bool) {
	defer func() {
		if usable {
			return
		}
		if value := recover(); value != nil {
			c.crash = &PanicError{Who: c.name, Value: value, Stack: debug.Stack()}
		}
	}()
	c.fn()
	c.fn = nil
	return true
}

// pick decides who is next. The others keep their order: the first is ready longest.
func (r *Runtime) pick() *coroutine { return r.take(r.choose(len(r.ready))) }

// stepOrRing makes a step or rings a timer of this instant, whichever is picked of all.
func (r *Runtime) stepOrRing() {
	r.due = r.due[:0]
	if r.isDue() {
		for _, t := range r.timers {
			if !t.at.After(r.now) {
				r.due = append(r.due, t)
			}
		}
		slices.SortFunc(r.due, func(a, b *timer) int { return cmp.Compare(a.set, b.set) })
	}
	if r.search != nil {
		r.search.choose(r.now, r.ready, r.due)
	}
	i := r.choose(len(r.ready) + len(r.due))
	if i < len(r.ready) {
		r.step(r.take(i))
		return
	}
	t := r.due[i-len(r.ready)]
	heap.Remove(&r.timers, t.index)
	r.ringOne(t)
}

// isDue reports whether a timer of this instant has not rung.
func (r *Runtime) isDue() bool { return len(r.timers) > 0 && !r.timers[0].at.After(r.now) }

// choose picks one of so many.
func (r *Runtime) choose(of int) (i int) {
	switch {
	case of == 1:
	case r.decide != nil:
		if r.names == nil {
			r.names = r.readyName // bound once: a method value for each pick would allocate
		}
		i = r.decide(WhatStep, of, r.names)
	default:
		i = int(r.draw("pick", &r.draws.pick) % uint64(of))
	}
	return i
}

// take takes a coroutine out of those that are ready.
func (r *Runtime) take(i int) *coroutine {
	c := r.ready[i]
	last := len(r.ready) - 1
	copy(r.ready[i:], r.ready[i+1:])
	r.ready[last] = nil
	r.ready = r.ready[:last]
	return c
}

// readyName is who it is that may be picked.
func (r *Runtime) readyName(i int) string {
	if i >= len(r.ready) {
		return "timer"
	}
	return r.ready[i].name
}

// step lets c run until it parks or ends.
func (r *Runtime) step(c *coroutine) {
	r.current = c
	c.next()
	r.current = nil
	r.steps.Add(1)
	switch {
	case c.crash != nil:
		panic(c.crash)
	case c.fn == nil:
		r.record(c.name, "done")
		r.free = append(r.free, c)
	default:
		r.record(c.name, c.what)
	}
}

// enter is called first by everything that may wait. Outside of a coroutine there
// is nothing that could be parked.
func (r *Runtime) enter(op string) {
	if r.closing {
		runtime.Goexit() // a deferred call of a coroutine that is being unwound
	}
	if r.current == nil {
		panic(fmt.Sprintf("simulation: %s called outside of a coroutine; start the caller with Go, and let timers only post messages", op))
	}
	r.guard(op)
}

// guard refuses a goroutine that does not belong here: a second thread would make
// the run depend on the machine's scheduler, without anybody noticing.
//
// To ask for a goroutine's id costs as much as several steps. So it is asked for
// only when there are more goroutines, or fewer, than when the run began, which
// one that the code under test has started makes true; and now and then, for those
// that were there before. A laboratory trusts its own scripted workers, and looks at
// one entry in trusts: its campaigns run several simulations at a time, and the number
// of goroutines says nothing then.
func (r *Runtime) guard(op string) {
	if !r.running {
		return
	}
	r.entries++
	if r.trusts != 0 && r.entries%r.trusts != 0 {
		return
	}
	const always, sometimes = 64, 16
	if runtime.NumGoroutine() == r.others+len(r.all) && r.entries > always && r.entries%sometimes != 0 {
		return
	}
	who, belongs := "the driver", r.driver
	if c := r.current; c != nil {
		who, belongs = c.name, c.goroutine
	}
	if id := goroutineID(); id != belongs {
		panic(fmt.Sprintf("simulation: %s called on goroutine %d while %s takes its step; "+
			"code in the simulation must not start goroutines: use Go", op, id, who))
	}
}

// park ends the step of the current coroutine until somebody wakes it, or ctx ends.
func (r *Runtime) park(what string, ctx context.Context) {
	c := r.current
	c.what, c.since, c.ctx = what, r.now, ctx
	if ctx != nil && ctx.Done() == nil {
		c.ctx = nil
	}
	r.parked.add(c)
	c.end()
	c.ctx = nil
}

// end ends the step of the coroutine, which goes on here in its next one.
func (c *coroutine) end() {
	if !c.yield(struct{}{}) {
		runtime.Goexit() // not a panic: a recover in user code could swallow that
	}
}

// wake makes a parked coroutine ready. One that is ready already stays as it is.
func (r *Runtime) wake(c *coroutine) {
	if r.search != nil && !r.closing { // also if it is ready: what it finds has changed
		r.search.touch(c.name)
	}
	if c.isParked && !r.closing {
		r.parked.remove(c)
		r.ready = append(r.ready, c)
	}
}

// wakeCancelled wakes the waits whose context has ended, the longest wait first.
// It looks at all of them after every step, because asking a standard context to
// tell would start a goroutine.
func (r *Runtime) wakeCancelled() {
	for c := r.parked.first(); c != nil; {
		next := r.parked.after(c)
		if c.ctx != nil && c.ctx.Err() != nil {
			r.wake(c)
		}
		c = next
	}
}

// waits is the list of parked coroutines in the order they parked.
type waits struct {
	root coroutine // older is the last, newer the first
	len  int
}

func (w *waits) init() {
	w.root.older, w.root.newer = &w.root, &w.root
	w.len = 0
}

func (w *waits) add(c *coroutine) {
	c.isParked = true
	c.older, c.newer = w.root.older, &w.root
	c.older.newer, c.newer.older = c, c
	w.len++
}

func (w *waits) remove(c *coroutine) {
	c.isParked = false
	c.older.newer, c.newer.older = c.newer, c.older
	c.older, c.newer = nil, nil
	w.len--
}

func (w *waits) first() *coroutine { return w.after(&w.root) }

func (w *waits) after(c *coroutine) *coroutine {
	if c.newer == &w.root {
		return nil
	}
	return c.newer
}

// goroutineID reads the id from the first line of a stack trace, "goroutine 7 [".
// Go offers no other way, on purpose; as a check against mistakes it is good enough.
func goroutineID() uint64 {
	var buffer [40]byte
	line := buffer[:runtime.Stack(buffer[:], false)]
	line = bytes.TrimPrefix(line, []byte("goroutine "))
	digits, _, _ := bytes.Cut(line, []byte(" "))
	id, _ := strconv.ParseUint(string(digits), 10, 64)
	return id
}
