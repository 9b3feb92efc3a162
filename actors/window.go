package actors

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// Window bounds the puts of one publisher that count: those not yet accepted, or
// with UntilSettled those not yet acked or dead, so that a fast producer waits for
// its workers (SPEC A3). Several goroutines may use one window.
type Window struct {
	broker       *Broker
	queue        *Queue
	size         int64
	untilSettled bool
	// Report is told the result of each put in put order, on the queue's goroutine:
	// it must only pass it on. nil: nobody.
	Report func(id string, a messages.Answer)

	_        line
	inflight atomic.Int64 // counts towards size
	told     atomic.Int64 // puts ever accepted or refused
	waiting  atomic.Int32 // refs in entering
	flushing atomic.Int32 // len(flushers)

	intake intake

	mu       sync.Mutex
	entering []messages.Ref // wait for room
	flushers []flusher      // in the order they came
	failed   []error        // since the last Flush, at most failuresMax of them
	missed   int            // failures beyond those
	_        line

	// Of the queue's actor, with UntilSettled: us, to its ledger; how many messages it
	// holds, and where the window is in its list of those that have any.
	owner ledger.Owner
	held  int64
	place int
}

// flusher waits until so many puts are told: as many as were posted when it came. They
// are told in the order that they were posted in, so its caller's own are among them.
type flusher struct {
	puts int64
	ref  messages.Ref
}

// NewWindow makes a window of size puts for one publisher to a queue. With
// untilSettled a put counts until it is acked or dead.
func NewWindow(b *Broker, q *Queue, size int, untilSettled bool) *Window {
	w := &Window{broker: b, queue: q, size: int64(size), untilSettled: untilSettled}
	w.owner.Address = w
	w.intake.told.L = &w.intake.mu
	return w
}

// failuresMax bounds the errors that Flush joins; the rest are counted.
const failuresMax = 16

// Enter takes n places, waiting for them when the window is full. An n larger than
// the window enters when the window is empty. Errors: [messages.ErrBusy] with
// noWait, [*messages.OutcomeError] (not sent) when ctx ends.
func (w *Window) Enter(ctx context.Context, rt actorkit.Runtime, n int64, noWait bool) error {
	for !w.tryEnter(n) {
		if noWait {
			return messages.ErrBusy
		}
		if err := w.wait(ctx, rt, n); err != nil {
			return &messages.OutcomeError{Op: "put", Cause: err}
		}
	}
	return nil
}

func (w *Window) tryEnter(n int64) bool {
	now := w.inflight.Add(n)
	if now <= w.size || now == n {
		return true
	}
	w.leave(n)
	return false
}

// wait registers before it looks again: a place that came free in between would
// otherwise be announced to nobody.
func (w *Window) wait(ctx context.Context, rt actorkit.Runtime, n int64) error {
	if err := rt.CheckContext(ctx); err != nil {
		return err
	}
	cell := rt.NewCell()
	w.mu.Lock()
	w.entering = append(w.entering, cell.Ref())
	w.waiting.Add(1)
	w.mu.Unlock()
	if in := w.inflight.Load(); in+n <= w.size || in == 0 {
		w.wake()
	}
	_, err := cell.Wait(ctx)
	return err
}

// Withdraw gives n places back whose puts were not sent after all.
func (w *Window) Withdraw(n int64) { w.leave(n) }

// leave gives places back and wakes the waiters once half of the window is free:
// waking at every place would cost a wake-up a message.
func (w *Window) leave(n int64) {
	if w.inflight.Add(-n) <= w.size/2 && w.waiting.Load() > 0 {
		w.wake()
	}
}

// wake has everybody try again who waits for room.
func (w *Window) wake() {
	w.mu.Lock()
	refs := w.entering
	w.entering = nil
	w.waiting.Store(0)
	w.mu.Unlock()
	for _, ref := range refs {
		ref.Resolve(messages.Answer{})
	}
}

// decided is called by the queue when puts were accepted or refused; free of them
// no longer count.
func (w *Window) decided(n, free int64) {
	w.told.Add(n)
	if free > 0 {
		w.leave(free)
	}
	if w.flushing.Load() > 0 {
		w.wakeFlushers()
	}
}

// wakeFlushers answers those whose puts are told.
func (w *Window) wakeFlushers() {
	w.mu.Lock()
	told := w.told.Load()
	n := 0
	for n < len(w.flushers) && w.flushers[n].puts <= told {
		n++
	}
	done := slices.Clone(w.flushers[:n])
	w.flushers = slices.Delete(w.flushers, 0, n)
	w.flushing.Store(int32(len(w.flushers)))
	w.mu.Unlock()
	for _, f := range done {
		f.ref.Resolve(messages.Answer{})
	}
}

// refuse keeps an error for Flush.
func (w *Window) refuse(err error) {
	w.mu.Lock()
	if len(w.failed) < failuresMax {
		w.failed = append(w.failed, err)
	} else {
		w.missed++
	}
	w.mu.Unlock()
}

// Flush waits until every put sent so far was accepted or refused, and returns
// the refusals since the last Flush, joined. Puts that others go on sending do not
// keep it.
func (w *Window) Flush(ctx context.Context, rt actorkit.Runtime) error {
	if w.told.Load() < w.intake.sent() {
		cell := rt.NewCell()
		w.mu.Lock()
		w.flushers = append(w.flushers, flusher{w.intake.sent(), cell.Ref()})
		w.flushing.Store(int32(len(w.flushers)))
		w.mu.Unlock()
		w.wakeFlushers() // the last may have been told in between, to nobody
		if _, err := cell.Wait(ctx); err != nil {
			return &messages.OutcomeError{Op: "flush", Sent: true, Cause: err}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.failed
	if w.missed > 0 {
		failed = append(failed, errMore(w.missed))
	}
	w.failed, w.missed = nil, 0
	return errors.Join(failed...)
}
