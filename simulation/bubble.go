package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// Bubble is the user's function as it is: on a goroutine of its own in a
// testing/synctest bubble, with plain time.Sleep, time.Now, context.WithTimeout and
// goroutines. The bubble's clock is the simulation's.
//
// Replay is exact for one goroutine per delivery whose sleeps are whole microseconds;
// when two handlers wake at one instant it is best effort, and the run says so. The
// delivery's own verbs and [External.Do] may be called from the handler; every other
// call into the broker goes through [Enter]. A mutex held over a sleep, real input and
// output, and a goroutine that never ends are beyond it: testing/synctest reports them.
func Bubble(handler postroom.Handler) Mode { return Mode{kind: modeBubble, handler: handler} }

// Enter runs fn where calls into the broker are allowed: on the simulation's thread
// if ctx is that of a handler in a bubble, and right here in all other cases,
// production included.
func Enter(ctx context.Context, fn func(ctx context.Context) error) error {
	if j := jobOf(ctx); j != nil && j.bubble != nil {
		return j.bubble.call(func() error { return fn(context.WithoutCancel(ctx)) })
	}
	return fn(ctx)
}

// bubbles is the joint between the simulation's thread and the goroutines of handlers.
//
//	driver: step ▶ Wait until every handler sleeps or asks ▶ take what they ask ▶ step …
//	nothing ready: sleep, in the bubble, until the next timer or until one asks
//
// So at any moment either the thread or one handler runs, and the order is the thread's.
type bubbles struct {
	lab      *lab
	asked    chan request
	live     int
	residues [residues]bool
	closed   atomic.Bool
	best     string // why replay is best effort; empty: it is exact
}

// residues is how many handlers can run at once, each on a nanosecond of its own
// within the microsecond: whole-microsecond sleeps keep it there, so no two handlers
// ever wake at one instant.
const residues = 1000

// request is what a handler asks of the simulation's thread.
type request struct {
	job    *job
	fn     func() error
	answer chan error // nil: the handler has ended
	err    error
	crash  any
	stack  []byte
}

// bubble is one handler on its goroutine.
type bubble struct {
	all     *bubbles
	job     *job
	residue int
	ended   bool
	err     error
	crash   any
	stack   []byte
}

// errGone ends a handler's goroutine: its worker has crashed, or the run is over.
var errGone = errors.New("simulation: the worker is gone")

// call runs fn on the simulation's thread and waits for it. It is called on the
// handler's goroutine, or on one that that has started.
func (b *bubble) call(fn func() error) error {
	if b.all.closed.Load() {
		runtime.Goexit()
	}
	r := request{job: b.job, fn: fn, answer: make(chan error, 1)}
	b.all.asked <- r
	err := <-r.answer
	if errors.Is(err, errGone) {
		runtime.Goexit() // deferred calls run; a killed process's would not
	}
	return err
}

// bubbleSettler carries out the verbs of a delivery in a bubble.
type bubbleSettler struct {
	bubble *bubble
	inner  messages.Settler
}

// SettleDelivery implements [messages.Settler]. The context is not passed on: its
// deadline is the bubble's, and an answer takes no time.
func (s bubbleSettler) SettleDelivery(_ context.Context, m messages.Settlement) (at time.Time, err error) {
	err = s.bubble.call(func() (err error) {
		at, err = s.inner.SettleDelivery(context.Background(), m)
		return err
	})
	return at, err
}

// inBubble runs a handler on a goroutine of its own, and parks the worker meanwhile.
func (l *lab) inBubble(j *job, handler postroom.Handler) error {
	all := l.bubbles
	b := &bubble{all: all, job: j, residue: -1}
	for i := 1; i < residues; i++ {
		if !all.residues[i] {
			b.residue = i
			break
		}
	}
	if b.residue < 0 {
		all.bestEffort(fmt.Sprintf("more than %d handlers at once", residues-1))
		b.residue = 0
	}
	all.residues[b.residue] = true
	defer func() { all.residues[b.residue] = false }()
	wait := (time.Duration(b.residue) - l.now()%residues + residues) % residues
	l.sleep(wait) // onto its residue
	j.bubble = b
	j.stepOn()
	d := *j.d
	source := *d.From
	source.Settler = bubbleSettler{b, source.Settler}
	d.From = &source
	all.live++
	l.labelled(j, func(context.Context) { go b.run(handler, j.ctx, &d) })
	err := l.wait("its handler in the bubble", nil, func() bool { return b.ended || j.doomed != nil })
	if err != nil {
		return err
	}
	if !b.ended { // killed: the goroutine ends at its next call into us
		j.stepOn()
	}
	if b.crash != nil {
		if c, ours := b.crash.(*crash); ours {
			panic(c)
		}
		panic(fmt.Sprintf("%v\n%s", b.crash, b.stack))
	}
	return b.err
}

// run is the handler's goroutine.
func (b *bubble) run(handler postroom.Handler, ctx context.Context, d *postroom.Delivery) {
	r := request{job: b.job}
	finished := false
	defer func() {
		if !finished {
			if r.crash = recover(); r.crash != nil {
				r.stack = debug.Stack()
			} else {
				r.err = errGone
			}
		}
		if !b.all.closed.Load() {
			b.all.asked <- r
		}
	}()
	r.err = handler(ctx, d)
	finished = true
}

func (s *bubbles) bestEffort(why string) {
	if s.best == "" {
		s.best = why
	}
}

// take waits until every handler sleeps, waits or has asked, and makes what they ask
// for ready. It is called by the driver after each step.
func (s *bubbles) take() {
	if s.live == 0 {
		return
	}
	synctest.Wait()
	var asked []request
	for {
		select {
		case r := <-s.asked:
			asked = append(asked, r)
			continue
		default:
		}
		break
	}
	s.serve(asked)
}

func (s *bubbles) serve(asked []request) {
	if len(asked) > 1 {
		slices.SortStableFunc(asked, func(a, b request) int { return cmp.Compare(a.job.number, b.job.number) })
		s.bestEffort(fmt.Sprintf("%d handlers woke at one instant", len(asked)))
	}
	l := s.lab
	for _, r := range asked {
		b := r.job.bubble
		if r.answer == nil {
			s.live--
			b.ended, b.err, b.crash, b.stack = true, r.err, r.crash, r.stack
			l.poke()
			continue
		}
		l.rt.Go("bubble of "+r.job.worker.name, func() { s.answer(b, r) })
	}
}

// answer runs what a handler asks for. A fault that crashes the handler here is kept
// for its worker, and ends the goroutine.
func (s *bubbles) answer(b *bubble, r request) {
	if b.job.doomed != nil {
		r.answer <- errGone
		return
	}
	answered := false
	defer func() {
		if answered {
			return
		}
		value := recover()
		if value == nil {
			return // unwound with the run
		}
		b.crash = value
		b.job.doomed = errors.New("crash")
		if c, ours := value.(*crash); ours {
			b.job.doomed = errors.New(c.why)
		}
		r.answer <- errGone
		s.lab.poke()
	}()
	err := r.fn()
	answered = true
	r.answer <- err
}

// advance lets the bubble's clock run until the instant, or until a handler asks.
func (s *bubbles) advance(until time.Time) time.Time {
	if s.live == 0 {
		time.Sleep(time.Until(until))
		return time.Now()
	}
	timer := time.NewTimer(time.Until(until))
	var asked []request
	select {
	case <-timer.C:
	case r := <-s.asked:
		asked = append(asked, r)
	}
	timer.Stop()
	synctest.Wait()
	for {
		select {
		case r := <-s.asked:
			asked = append(asked, r)
			continue
		default:
		}
		break
	}
	s.lab.rt.setNow(time.Now())
	s.serve(asked)
	return s.lab.rt.now
}

// bubbleEnd is how much virtual time goroutines have that a run has left behind, those
// of crashed handlers above all: testing/synctest stops the clock with the bubble's first
// goroutine, and panics if another one still sleeps.
const bubbleEnd = time.Hour

// close lets the goroutines that are left run out.
func (s *bubbles) close() {
	s.closed.Store(true)
	for range 2 {
		time.Sleep(bubbleEnd / 2)
		synctest.Wait()
		for {
			select {
			case r := <-s.asked:
				if r.answer != nil {
					r.answer <- errGone
				}
				continue
			default:
			}
			break
		}
	}
}

// hosted runs fn in a bubble of the spec's test, whose clock stands at [Epoch]. It returns
// what is wrong with what fn leaves there: goroutines that never end.
func (s Spec) hosted(fn func()) (left string) {
	ended := false
	defer func() {
		if value := recover(); value != nil {
			if !ended {
				panic(value)
			}
			left = fmt.Sprintf("simulation: a goroutine that a handler has started never ends; Expect(NoGoroutineLeft(time.Minute)) names it (%v)", value)
		}
	}()
	synctest.Test(s.host, func(*testing.T) {
		time.Sleep(time.Until(Epoch))
		fn()
		ended = true
	})
	return ""
}

// needsBubble reports whether the spec has workers of mode Bubble: Build says so.
func (s Spec) needsBubble(p Plan) (needs bool) {
	if s.host == nil || s.Build == nil {
		return false
	}
	defer func() { _ = recover() }() // whatever is wrong, the run itself will say so
	scratch := p.Clone()
	s.room = nil
	l := s.newLab(&scratch, true)
	l.rt = NewRuntime(p.Seed)
	defer l.rt.Close()
	l.world = &World{runtime: l.rt, lab: l}
	s.Build(l.world)
	for _, pool := range l.pools {
		if pool.mode.kind == modeBubble {
			return true
		}
	}
	return false
}
