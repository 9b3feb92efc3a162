package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/supervisor"
)

// worker runs a consumer's handler, one delivery after the other. It may block for
// hours, so it lives on the lane for that. Its fields outlive a crash.
type worker struct {
	consumer *consumer
	index    int
	self     *actorkit.Address

	_       line
	idle    atomic.Bool
	rest    []slot               // from the inbox, not begun
	done    int                  // slots since the consumer's spare room was looked at
	running atomic.Pointer[slot] // or the last one, until the worker is idle

	// What handlers get. It is shared by consecutive deliveries, since making one for
	// each would cost more than the rest of the delivery, and replaced as soon as it was
	// cancelled, which happens only while "its" delivery runs.
	context atomic.Pointer[handlerContext]

	// Of the consumer, which is the only one to touch them.
	history     supervisor.History
	crashes     uint64
	after       time.Duration
	down, stuck bool
}

// handlerContext is a context, and how it is cancelled.
type handlerContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newWorker(k *consumer, index int) *worker {
	w := &worker{consumer: k, index: index}
	w.idle.Store(true)
	w.newContext()
	return w
}

func (w *worker) new() actorkit.Actor { return workerShell{w} }

func (w *worker) newContext() {
	ctx, cancel := context.WithCancelCause(w.consumer.broker.background())
	w.context.Store(&handlerContext{ctx, cancel})
}

// wakeUp sends the worker to its inbox if it is not there already, and reports
// whether it had to.
func (w *worker) wakeUp() bool {
	if w.idle.Load() && w.idle.CompareAndSwap(true, false) {
		w.self.Send(&wake{})
		return true
	}
	return false
}

func (w *worker) onPanic(reason any, stack []byte, _ any) {
	s := w.atWork()
	if s == nil {
		return
	}
	k := w.consumer
	k.broker.notify(messages.HandlerCrashed{Queue: k.queue.Queue, Consumer: k.tag, Tag: s.Tag, Reason: reason, Stack: stack})
}

// workerShell is the actor around a worker.
type workerShell struct{ *worker }

// Started looks into the inbox after a crash: what came meanwhile woke nobody.
func (w workerShell) Started(c *actorkit.Context) {
	if c.Restarted() > 0 {
		w.idle.Store(false)
		c.Self().Send(&wake{})
	}
}

// Receive works until the inbox is empty, but not for ever: system messages, such
// as the stop, wait for the end of a turn.
func (w workerShell) Receive(c *actorkit.Context, msg any) {
	if _, ok := msg.(*wake); !ok {
		return
	}
	most, _ := w.consumer.broker.runtime.Turn()
	for range most {
		if len(w.rest) == 0 && !w.fetch() {
			w.running.Store(nil) // an idle worker keeps no room
			w.idle.Store(true)
			// A chunk that was pushed after the pop and before the store woke nobody.
			if w.consumer.inbox.empty() || !w.idle.CompareAndSwap(true, false) {
				return
			}
			continue
		}
		s := &w.rest[0]
		w.rest = w.rest[1:]
		w.work(s)
		if w.done++; w.done >= roomMax {
			w.done = 0
			w.consumer.stockUp()
		}
	}
	c.Self().Send(&wake{})
}

// atWork is the slot that a handler, or what follows its return, is at; nil: none.
func (w *worker) atWork() *slot {
	if s := w.running.Load(); s != nil && s.state.Load() != slotOver {
		return s
	}
	return nil
}

// fetch takes what is next from the inbox; a single worker takes a chunk at once.
func (w *worker) fetch() bool {
	w.rest = w.consumer.inbox.pop(len(w.consumer.workers) == 1)
	return len(w.rest) > 0
}

// empty reports whether nothing waits for the worker.
func (w *worker) empty() bool { return len(w.rest) == 0 && w.consumer.inbox.empty() }

// work runs the handler on one delivery and sends the queue what came of it.
func (w *worker) work(s *slot) {
	k := w.consumer
	now := k.broker.runtime.Since(k.broker.began)
	s.worker, s.started = w, now
	if s.lapsed(now, k.broker.began) {
		// Its lease ran out while it waited: another has it, or soon will (C3).
		if s.takeBack() {
			k.giveBack(messages.Ref{}, []*slot{s})
		}
		return
	}
	if !s.state.CompareAndSwap(slotWaiting, slotRunning) {
		return // taken back
	}
	w.running.Store(s)
	var before uint64
	check := &k.broker.integrity
	if check.on {
		s.blameProducer()
		before = check.of(&s.Delivery)
	}
	ctx := w.context.Load().Context
	err := k.handler(ctx, &s.Delivery)
	if check.on {
		check.blame(before, s)
	}

	var cause error
	if !s.state.CompareAndSwap(slotRunning, slotSettling) { // flagged
		cause = context.Cause(ctx)
	}
	s.verdict(err, cause, k.config.Manual) // asks the error, which may panic: still the handler's crash
	k.queue.returns.push(s, w.empty())
	if !s.state.CompareAndSwap(slotSettling, slotOver) {
		s.state.Store(slotOver)
		w.newContext()
		k.self.Send(&returned{s})
	}
}

// verdict is what a handler's return means (SPEC C2).
func (s *slot) verdict(err, cause error, manual bool) {
	switch {
	case manual:
		s.quiet = true
	case err == nil:
		s.verb = messages.VerbAck
	case errors.Is(cause, messages.ErrBrokerClosed):
		s.verb = messages.VerbRelease // it was told to stop: no attempt is spent
	default:
		s.failed(err)
	}
}

// failed is apart because what errors.As writes to is allocated.
func (s *slot) failed(err error) {
	s.failure = &failure{text: err.Error()}
	var in *messages.RetryInError
	switch {
	case messages.IsPermanent(err):
		s.verb = messages.VerbReject
	case errors.As(err, &in):
		s.verb, s.failure.delay = messages.VerbNackIn, max(in.Delay, 0)
	default:
		s.verb = messages.VerbNack
	}
}
