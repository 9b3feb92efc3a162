package simulation

import (
	"container/heap"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
)

// Epoch is when every simulation begins.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// turnMessagesMax is the largest turn that is drawn. Small turns are what finds
// bugs between two turns; a few larger ones keep batches covered.
const turnMessagesMax = 8

// lateSteps is how many steps, of microseconds each, go by between two looks at the real
// time by a run that has a limit of it.
const lateSteps = 1024

// patienceDefault is how long, in real time, one step may take before the run is
// given up for hung. A step is microseconds of work.
const patienceDefault = time.Minute

// Runtime implements [actorkit.Runtime] on one thread: whatever runs is a
// coroutine, and which one takes the next step is drawn from the seed. The same
// seed gives the same run, whatever the machine, the number of processors or the
// race detector.
//
//	         ready coroutines ──pick (drawn)──▶ one step ──▶ parked: who waits for what
//	               ▲   ▲                            │              │
//	answer, ring,  │   └────────── Schedule ────────┘              │
//	cancelled ctx  └──────────────────────────────────────────────┘
//	         nothing ready: the clock jumps to the next timer
//
// Only [Runtime.Run], on the goroutine that drives the simulation, makes anything
// move. Code that waits (the door, handlers) must be inside of a coroutine: one
// started by [Runtime.Go], or an actor. A goroutine of its own that enters the
// simulation is found out and panics.
//
// What would run on a clock of its own stays outside: time.Sleep, standard
// timeouts, channels that are waited for. A sync.Mutex held over a simulated wait
// hangs the thread; after a minute of real time without a step the run ends with
// the stacks of all goroutines.
type Runtime struct {
	// Trace, if set, is told of every step, one line each. Lines are equal for
	// equal seeds.
	Trace func(line string)

	// Of a laboratory; nil and false without one. decide makes the scheduler's
	// decisions instead of the seed, quiet is called when nothing can move before time
	// passes, and halted ends Run after the step under way.
	decide func(what What, of int, names func(int) string) int
	names  func(int) string // readyName
	quiet  func()
	halted bool
	bubble *bubbles  // handlers on goroutines of their own, and whose clock this is
	trusts int       // guard looks at one entry in so many; 0: as its comment says
	search *explorer // of an exhaustive search
	room   *room     // of a campaign: where coroutines come from and go to

	late func() bool // see Spec.late
	cut  bool        // it said yes
	// between: the timers of an instant ring between the steps of it, as the scheduler
	// picks, and not only when nobody is ready.
	between bool
	due     []*timer // of this instant, for the pick

	seed     uint64
	now      time.Time     // set by setNow
	since    time.Duration // the same since Epoch, which every step asks for
	steps    atomic.Int64  // atomic for the watchdog only
	hash     uint64
	patience time.Duration
	running  bool
	closing  bool
	closed   bool

	current *coroutine // taking its step, nil outside of steps
	ready   []*coroutine
	parked  waits
	idlers  []*coroutine // parked until nothing is ready, oldest first
	free    []*coroutine // finished, to be used again
	all     []*coroutine // in the order they were made, for Close

	timers timers
	cells  []*cell // free

	// For guard: the goroutine in Run, how many were there besides the coroutines
	// when it began, and how often guard was passed.
	driver  uint64
	others  int
	entries int

	draws struct{ pick, turn, tie, random uint64 } // numbers of draws so far
}

var (
	_ actorkit.Runtime        = (*Runtime)(nil)
	_ actorkit.Announcer      = (*Runtime)(nil)
	_ actorkit.NamedScheduler = (*Runtime)(nil)
)

// NewRuntime makes a runtime that stands at [Epoch] with nothing to do.
func NewRuntime(seed uint64) *Runtime {
	r := &Runtime{seed: seed, now: Epoch, hash: seed, patience: patienceDefault}
	r.parked.init()
	return r
}

// Seed returns the number that the run depends on.
func (r *Runtime) Seed() uint64 { return r.seed }

// Steps returns how many steps were taken: turns of coroutines, and timers that
// rang.
func (r *Runtime) Steps() int { return int(r.steps.Load()) }

// TraceHash sums up all steps and notes so far in one number.
func (r *Runtime) TraceHash() uint64 { return r.hash }

// Note puts a line of the scenario's own into the trace and its hash.
func (r *Runtime) Note(line string) {
	r.hash = actorkit.Mix(r.hash, "note", line, uint64(r.since))
	if r.Trace != nil {
		r.Trace(fmt.Sprintf("%d %s %s", r.Steps(), r.stamp(), line))
	}
}

func (r *Runtime) stamp() string { return "+" + r.since.String() }

func (r *Runtime) setNow(now time.Time) { r.now, r.since = now, now.Sub(Epoch) }

// Go starts fn as a coroutine. name says in traces and errors who it is. After
// Close it does nothing.
func (r *Runtime) Go(name string, fn func()) {
	if r.closing {
		return
	}
	r.guard("Go or Schedule")
	if r.search != nil {
		r.search.touch(name)
	}
	c := r.coroutine()
	c.name, c.fn = name, fn
	r.ready = append(r.ready, c)
}

// Schedule implements [actorkit.Runtime].
func (r *Runtime) Schedule(fn func()) { r.Go("actor", fn) }

// ScheduleBlocking implements [actorkit.Runtime]. Any coroutine may wait, so there
// is one lane.
func (r *Runtime) ScheduleBlocking(fn func()) { r.Go("actor", fn) }

// ScheduleNamed implements [actorkit.NamedScheduler]: both lanes are one.
func (r *Runtime) ScheduleNamed(actor string, fn func()) { r.Go(actor, fn) }

// Announce implements [actorkit.Announcer]: it names the coroutine that takes its
// step after the actor it works for.
func (r *Runtime) Announce(actor string) {
	if r.current != nil {
		r.current.name = actor
	}
}

// Run lets the simulation run until nothing moves any more: no coroutine is
// ready, nobody waits and no timer is set. It may be called again, to go on.
//
// until bounds the clock, counted from [Epoch], and stepsMax the number of further
// steps. Errors: [*LimitError] at a bound; the clock then stands at until if it was
// that one. [*StuckError] when somebody waits and nothing is left that could end
// the wait. [ErrClosed].
//
// A panic in a coroutine comes out of Run as a [*PanicError] with its stack; one in
// an actor is that actor's crash and does not. runtime.Goexit in a coroutine, as by
// t.FailNow, ends the goroutine that called Run, which is what t.FailNow wants.
func (r *Runtime) Run(until time.Duration, stepsMax int) error {
	switch {
	case r.closed:
		return ErrClosed
	case r.running:
		panic("simulation: Run called from inside the simulation; it is driven from outside, by one goroutine")
	}
	r.running = true
	r.driver, r.others = r.room.goroutine(), runtime.NumGoroutine()-len(r.all)
	watchdog := r.watch()
	defer func() { // also after a Goexit or panic, so that Close still works
		watchdog.Stop()
		r.running, r.current = false, nil
	}()
	end := Epoch.Add(until)
	last := r.steps.Load() + int64(stepsMax)
	for {
		if r.halted {
			return nil
		}
		if r.late != nil && r.steps.Load()%lateSteps == 0 && r.late() {
			r.cut = true
			return nil
		}
		if r.steps.Load() >= last {
			if r.done() {
				return nil
			}
			return &LimitError{Reached: ErrStepLimit, Steps: r.Steps(), At: r.now, Waits: r.Waits()}
		}
		if r.bubble != nil {
			r.bubble.take()
		}
		switch {
		case r.between && (len(r.ready) > 0 || r.isDue()):
			r.stepOrRing()
		case len(r.ready) > 0:
			r.step(r.pick())
		case len(r.timers) > 0 && !r.timers[0].at.After(r.now):
			r.ring() // due at this very instant: whoever waits for idleness waits for it too
		case len(r.idlers) > 0:
			r.wake(r.idlers[0])
			continue
		case r.quiet != nil && r.settle():
			continue
		case len(r.timers) > 0 && r.timers[0].at.After(end):
			if r.now.Before(end) {
				r.setNow(end)
			}
			return &LimitError{Reached: ErrTimeLimit, Steps: r.Steps(), At: r.now, Waits: r.Waits()}
		case len(r.timers) > 0:
			if r.bubble != nil && r.timers[0].at.After(r.now) && r.bubble.advance(r.timers[0].at).Before(r.timers[0].at) {
				continue // a handler has asked for something before
			}
			if r.between { // as one of those that are due then
				r.setNow(r.timers[0].at)
				continue
			}
			r.ring()
		case r.bubble != nil && r.bubble.live > 0 && r.now.Before(end):
			r.bubble.advance(end) // only handlers can go on
			continue
		case r.parked.len > 0:
			return &StuckError{At: r.now, Waits: r.Waits()}
		default:
			return nil
		}
		r.wakeCancelled()
	}
}

// settle tells the laboratory that time is about to pass, and reports whether that
// made something move after all.
func (r *Runtime) settle() bool {
	if len(r.timers) > 0 && !r.timers[0].at.After(r.now) {
		return false // not yet: a timer of this very instant is still to ring
	}
	r.quiet()
	return r.halted || len(r.ready) > 0
}

// done reports that nothing is left to do.
func (r *Runtime) done() bool {
	return len(r.ready) == 0 && len(r.timers) == 0 && r.parked.len == 0
}

// Idle parks the calling coroutine until every other one has finished or waits,
// without letting time pass.
func (r *Runtime) Idle() {
	r.enter("Idle")
	c := r.current
	r.idlers = append(r.idlers, c)
	r.park("the others to be idle", nil)
	for i, idler := range r.idlers {
		if idler == c {
			r.idlers = append(r.idlers[:i], r.idlers[i+1:]...)
			break
		}
	}
}

// Waits tells who waits for what, the longest wait first.
func (r *Runtime) Waits() []Wait {
	var all []Wait
	for c := r.parked.first(); c != nil; c = r.parked.after(c) {
		all = append(all, Wait{Who: c.name, What: c.what, Since: c.since})
	}
	return all
}

// Close ends every coroutine with runtime.Goexit, so that deferred calls run but
// no recover of user code can hold it up. Call it on the goroutine that drives the
// simulation. Twice is harmless.
func (r *Runtime) Close() {
	if r.closing {
		return
	}
	if r.running {
		panic("simulation: Close called from inside the simulation; it is closed from outside, after Run")
	}
	r.closing = true
	for _, c := range r.all {
		if r.room != nil && c.fn == nil { // it has ended its last function, and waits for the next
			r.room.idle = append(r.room.idle, c)
			continue
		}
		r.unwind(c)
	}
	r.current = nil
	r.ready, r.idlers, r.free, r.all, r.timers, r.cells = nil, nil, nil, nil, nil, nil
	r.parked.init()
	r.closed = true
}

// unwind stops one coroutine. It does so on a goroutine of its own, because
// iter.Pull hands the coroutine's Goexit on to whoever calls stop.
func (r *Runtime) unwind(c *coroutine) {
	done := make(chan struct{})
	r.current = c
	go func() {
		defer close(done)
		c.stop()
	}()
	<-done
}

// ---- clock, randomness and the rest of actorkit.Runtime

// Now implements [actorkit.Runtime].
func (r *Runtime) Now() time.Time { return r.now }

// Since implements [actorkit.Runtime].
func (r *Runtime) Since(t time.Time) time.Duration { return r.now.Sub(t) }

// AfterFunc implements [actorkit.Runtime]. Of timers for the same instant a drawn
// one rings first: code that relies on the order they were set in is found out.
func (r *Runtime) AfterFunc(d time.Duration, fn func()) actorkit.Timer {
	t := &timer{runtime: r, fn: fn, index: -1}
	t.Reset(d)
	return t
}

// Sleep implements [actorkit.Runtime].
func (r *Runtime) Sleep(ctx context.Context, d time.Duration) error {
	r.enter("Sleep")
	if err := r.CheckContext(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := r.current
	if r.between && d <= 0 { // no time, but others may go first
		c.what, c.since = "its turn", r.now
		r.ready = append(r.ready, c)
		c.end()
		return nil
	}
	if c.sleeper == nil { // one for each coroutine: a sleep then allocates nothing
		c.sleeper = &timer{runtime: r, index: -1, fn: func() { c.rang = true; c.sleeper.runtime.wake(c) }}
	}
	c.rang = false
	c.sleeper.Reset(d)
	r.park("time to pass", ctx)
	c.sleeper.Stop()
	if !c.rang {
		return context.Cause(ctx)
	}
	return nil
}

// Draw implements [actorkit.Runtime].
func (r *Runtime) Draw(purpose, entity string, n uint64) uint64 {
	return actorkit.Mix(r.seed, purpose, entity, n)
}

// draw is for the simulation's own decisions, numbered by count.
func (r *Runtime) draw(purpose string, count *uint64) uint64 {
	*count++
	return actorkit.Mix(r.seed, purpose, "", *count)
}

// Random implements [actorkit.Runtime] with bytes drawn from the seed.
func (r *Runtime) Random() io.Reader { return randomReader{r} }

type randomReader struct{ runtime *Runtime }

func (rr randomReader) Read(p []byte) (int, error) {
	for i := 0; i < len(p); {
		word := rr.runtime.draw("random", &rr.runtime.draws.random)
		for range 8 {
			if i == len(p) {
				break
			}
			p[i] = byte(word)
			word >>= 8
			i++
		}
	}
	return len(p), nil
}

// Watcher implements [actorkit.Watched].
func (r *Runtime) Watcher() actorkit.Watcher {
	if r.search == nil {
		return nil
	}
	return r.search
}

// Turn implements [actorkit.Runtime]: a drawn number of messages, and back to the
// scheduler after it.
func (r *Runtime) Turn() (messagesMax int, handBack bool) {
	if r.decide != nil {
		return 1 + r.decide(WhatTurn, turnMessagesMax, nil), true
	}
	return 1 + int(r.draw("turn", &r.draws.turn)%turnMessagesMax), true
}

// CallerRuns implements [actorkit.Runtime]: no, so that every turn is a step of its
// own.
func (r *Runtime) CallerRuns() bool { return false }

// Closing implements [actorkit.Runtime].
func (r *Runtime) Closing() bool { return r.closing }

// ring rings the next timer. Its function runs outside of coroutines, since it
// must not wait.
func (r *Runtime) ring() { r.ringOne(heap.Pop(&r.timers).(*timer)) }

// ringOne rings a timer that was taken out of the heap.
func (r *Runtime) ringOne(t *timer) {
	if t.at.After(r.now) {
		r.setNow(t.at)
	}
	r.steps.Add(1)
	r.record("timer", "rings")
	t.fn()
}

// record puts a step into the hash and the trace.
func (r *Runtime) record(who, what string) {
	r.hash = actorkit.Mix(r.hash, who, what, uint64(r.since))
	if r.Trace != nil {
		r.Trace(fmt.Sprintf("%d %s %s %s", r.Steps(), r.stamp(), who, what))
	}
}

// watch ends the process when no step ends for a minute of real time: some
// coroutine then blocks the thread, and Go's own deadlock detector is silent about
// it as long as any other goroutine lives.
func (r *Runtime) watch() *time.Timer {
	if r.bubble != nil { // its clock is not the real one; the bubble finds deadlocks itself
		return time.NewTimer(math.MaxInt64)
	}
	seen := int64(-1)
	var watchdog *time.Timer
	watchdog = time.AfterFunc(math.MaxInt64, func() { // set below, once watchdog is assigned
		if steps := r.steps.Load(); steps != seen {
			seen = steps
			watchdog.Reset(r.patience)
			return
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Fprintf(os.Stderr, "%s\n", stacks)
		panic(fmt.Sprintf("simulation: seed %d: step %d has not ended for %v of real time; "+
			"some coroutine blocks the thread (a mutex held over a wait, a channel, time.Sleep): see the stacks above",
			r.seed, seen+1, r.patience))
	})
	watchdog.Reset(r.patience)
	return watchdog
}
