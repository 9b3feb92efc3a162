package actors

import (
	"context"
	"errors"
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
	owner  ledger.Owner // us, to the ledger

	_         line
	inflight  atomic.Int64 // counts towards size
	undecided atomic.Int64 // sent and not yet accepted or refused
	waiting   atomic.Int32 // refs in entering
	flushing  atomic.Int32 // refs in flushers

	intake intake

	mu       sync.Mutex
	entering []messages.Ref // wait for room
	flushers []messages.Ref // wait until nothing is undecided
	failed   []error        // since the last Flush, at most failuresMax of them
	missed   int            // failures beyond those
	_        line

	// Of the queue's actor, with UntilSettled: how many messages it holds, and where
	// the window is in its list of those that have any.
	held  int64
	place int
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
	w.undecided.Add(n)
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
	cell := w.waitIn(rt, &w.entering, &w.waiting)
	if in := w.inflight.Load(); in+n <= w.size || in == 0 {
		w.wake(&w.entering, &w.waiting)
	}
	_, err := cell.Wait(ctx)
	return err
}

// Withdraw gives n places back whose puts were not sent after all.
func (w *Window) Withdraw(n int64) { w.decided(n, n) }

// leave gives places back and wakes the waiters once half of the window is free:
// waking at every place would cost a wake-up a message.
func (w *Window) leave(n int64) {
	if w.inflight.Add(-n) <= w.size/2 && w.waiting.Load() > 0 {
		w.wake(&w.entering, &w.waiting)
	}
}

// waitIn puts a new cell in one of the two lines; n is that line's count.
func (w *Window) waitIn(rt actorkit.Runtime, line *[]messages.Ref, n *atomic.Int32) actorkit.Cell {
	cell := rt.NewCell()
	w.mu.Lock()
	defer w.mu.Unlock()
	*line = append(*line, cell.Ref())
	n.Add(1)
	return cell
}

// wake answers everybody in a line.
func (w *Window) wake(line *[]messages.Ref, n *atomic.Int32) {
	w.mu.Lock()
	refs := *line
	*line = nil
	n.Store(0)
	w.mu.Unlock()
	for _, ref := range refs {
		ref.Resolve(messages.Answer{})
	}
}

// decided is called by the queue when puts were accepted or refused; free of them
// no longer count.
func (w *Window) decided(n, free int64) {
	left := w.undecided.Add(-n)
	if free > 0 {
		w.leave(free)
	}
	if left == 0 && w.flushing.Load() > 0 {
		w.wake(&w.flushers, &w.flushing)
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
// the refusals since the last Flush, joined.
func (w *Window) Flush(ctx context.Context, rt actorkit.Runtime) error {
	for w.undecided.Load() > 0 {
		cell := w.waitIn(rt, &w.flushers, &w.flushing)
		if w.undecided.Load() == 0 {
			w.wake(&w.flushers, &w.flushing)
		}
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
