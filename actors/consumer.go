package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/supervisor"
)

// Handler works on one delivery. nil acks, an error nacks, a
// [messages.Permanent] error rejects, a panic is a crash (SPEC C2).
type Handler func(ctx context.Context, d *messages.Delivery) error

// Consumer is what the outside knows of one consumer.
type Consumer struct {
	Tag    string
	Config messages.ConsumerConfig
	Queue  *Queue

	inner   *consumer  // nil for an embedder's own actor
	foreign *actor.PID // nil for one of ours
	control *actorkit.Address

	gone atomic.Bool // ends, or has ended: its tag is forgotten
	done chan struct{}
	err  atomic.Pointer[error]
}

// Done is closed when the consumer has ended: it gets nothing more, and its
// handlers have returned.
func (c *Consumer) Done() <-chan struct{} { return c.done }

// Err is nil while the consumer lives and after Cancel, else why it ended.
func (c *Consumer) Err() error {
	if p := c.err.Load(); p != nil {
		return *p
	}
	return nil
}

// ended closes a consumer's book, once.
func (b *Broker) ended(k *Consumer, reason error) {
	k.gone.Store(true)
	if reason != nil {
		k.err.CompareAndSwap(nil, &reason)
	}
	close(k.done)
	b.notify(messages.ConsumerStopped{Queue: k.Queue.Queue, Consumer: k.Tag, Reason: reason})
}

// consumer owns what waits for its workers, keeps their leases alive and restarts
// them. It never blocks: handlers run in its workers. The value outlives crashes
// of the actor that runs it.
type consumer struct {
	broker  *Broker
	public  *Consumer
	tag     string
	config  messages.ConsumerConfig
	queue   *Queue
	handler Handler
	self    *actorkit.Address
	tickFor time.Duration // between ticks
	point   string        // its name at probes

	_       line
	inbox   inbox
	_       line
	spare   atomic.Pointer[room] // see stockUp
	scratch []chunk              // see held
	workers []*worker
	policy  supervisor.Policy

	timer   actorkit.Timer
	ticking atomic.Bool // a tick is on its way

	ending    bool
	settling  bool           // everything unstarted was given back; only handlers are left
	cancelled []messages.Ref // wait for that
	reason    error
	started   messages.Ref // who waits for the consumer to be attached
}

// ticksPerLease is how often a lease is touched in its time (V: a third).
const ticksPerLease = 3

func newConsumer(b *Broker, k *Consumer, h Handler) *consumer {
	c := &consumer{broker: b, public: k, tag: k.Tag, config: k.Config, queue: k.Queue, handler: h, policy: b.Restart, point: "consumer " + k.Tag}
	lease := k.Queue.Config.AckTimeout
	if k.Config.AckTimeout > 0 {
		lease = k.Config.AckTimeout
	}
	if m := k.Queue.Config.MaxLease; m > 0 && m < lease {
		lease = m
	}
	c.tickFor = max(lease/ticksPerLease, 1)
	if t := k.Config.HandlerTimeout; t > 0 && t < c.tickFor {
		c.tickFor = t
	}
	return c
}

// consumerShell is the actor around a consumer.
type consumerShell struct{ *consumer }

func (c *consumer) new() actorkit.Actor { return consumerShell{c} }

// Started spawns the workers and asks the queue for work, once.
func (s consumerShell) Started(c *actorkit.Context) {
	s.self = c.Self()
	if c.Restarted() > 0 {
		// Only a Goexit in the listener gets here, and protoactor has stopped the
		// workers: a consumer without any must not go on taking messages.
		s.stop(c, &stopConsumer{tag: s.tag, reason: ErrCrashLoop})
		return
	}
	for i := range s.config.Concurrency {
		w := newWorker(s.consumer, i)
		address, err := c.Spawn(actorkit.Spec{
			Name: fmt.Sprintf("worker-%d", i+1), New: w.new, Blocking: true, UserCode: true, OnPanic: w.onPanic,
		})
		if err != nil {
			s.started.Resolve(messages.Answer{Err: err})
			s.end(c)
			return
		}
		w.self = address
		s.workers = append(s.workers, w)
	}
	s.reopen()
	answer := answerWith(func(a messages.Answer) { s.self.Send(&attachAnswered{a.Err}) })
	s.queue.Address.Send(&attach{Asked: messages.Asked{Reply: answer}, consumer: s.public})
}

// attachAnswered is the queue's answer to attach.
type attachAnswered struct{ err error }

// Receive implements [actorkit.Actor].
func (s consumerShell) Receive(c *actorkit.Context, msg any) {
	s.broker.carryOn(c, s.point, msg, s.handle)
}

// handle says which method handles which message.
func (s consumerShell) handle(c *actorkit.Context, msg any) {
	switch msg := msg.(type) {
	case *chunk:
		s.receive(*msg)
	case *tick:
		s.tick(c)
	case *firstTick:
		s.armIn(s.tickFor)
	case *returned:
		s.returned(c, msg.slot)
	case *leaseLost:
		s.leaseLost(msg.tag)
	case *restart:
		s.restart(c, msg.worker)
	case *messages.SetPrefetch:
		s.setPrefetch(c, msg)
	case *stopConsumer:
		s.stop(c, msg)
	case *detached:
		s.detached(c)
	case *queueGone:
		s.queueGone(c, msg.reason)
	case *abort:
		s.abort(msg.cause)
	case *attachAnswered:
		s.attached(c, msg.err)
	}
}

func (k *consumer) attached(c *actorkit.Context, err error) {
	if err != nil {
		k.started.Resolve(messages.Answer{Err: err})
		if errors.Is(err, actorkit.ErrCrashed) {
			// It may be attached, and messages on their way here: they go back.
			k.stop(c, &stopConsumer{tag: k.tag, reason: k.broker.explain("consume", k.queue.Queue, err)})
			return
		}
		k.reason = k.broker.explain("consume", k.queue.Queue, err)
		k.end(c)
		return
	}
	if !k.started.Resolve(messages.Answer{Value: k.public}) {
		// Its caller has gone, or was told that nobody knows: nobody has its tag, so it
		// must not stay.
		k.stop(c, &stopConsumer{tag: k.tag})
	}
}

// deliver takes deliveries in and wakes a worker for each while there are idle
// ones. The queue calls it, on its own goroutine. False: nobody can work on them, and
// they are to be sent to the consumer, which gives them back.
func (k *consumer) deliver(ch chunk) bool {
	if !k.inbox.push(ch) {
		return false
	}
	woken := 0
	for _, w := range k.workers {
		if woken == len(ch.slots) {
			break
		}
		if w.wakeUp() {
			woken++
		}
	}
	if !k.ticking.Load() && k.ticking.CompareAndSwap(false, true) {
		k.self.Send(&firstTick{})
	}
	return true
}

// stockUp makes room for the queue's next deliveries, on the worker's time: the queue
// has more to do than its workers, and a tenth of that was making room.
func (k *consumer) stockUp() {
	if k.spare.Load() == nil {
		k.spare.Store(new(room))
	}
}

// rest lets go of deliveries that are over, and of the room for more: the queue is empty,
// and the next tick may be hours away.
func (k *consumer) rest() {
	if !k.inbox.busy() {
		k.spare.Store(nil)
	}
}

// receive is for deliveries that came when nobody could work on them.
func (k *consumer) receive(ch chunk) {
	if k.ending || k.standing() == 0 || !k.deliver(ch) {
		k.giveBack(messages.Ref{}, takeBack([]chunk{ch}))
	}
}

// reopen opens the inbox while somebody can work, and shuts it when nobody can.
func (k *consumer) reopen() { k.inbox.setOpen(!k.ending && k.standing() > 0) }

// held calls fn with every chunk that may have leases which are not over. They are gone
// through without the inbox's mutex, and not kept: the next tick may be hours away.
func (k *consumer) held(fn func(chunks []chunk)) {
	k.scratch = k.inbox.all(k.scratch[:0])
	defer clear(k.scratch)
	fn(k.scratch)
}

// takeBackAll takes all that wait.
func (k *consumer) takeBackAll() (back []*slot) {
	k.held(func(chunks []chunk) { back = takeBack(chunks) })
	return back
}

// slots calls fn for each lease that is not over.
func (k *consumer) slots(fn func(s *slot, state uint32)) {
	k.held(func(chunks []chunk) {
		for _, ch := range chunks {
			for i := range ch.slots {
				s := &ch.slots[i]
				if state := s.state.Load(); state != slotOver {
					fn(s, state)
				}
			}
		}
	})
}

// tick touches the leases held, ends handlers that ran too long, and reports those
// that went on regardless (SPEC C3, C4, C5).
func (k *consumer) tick(c *actorkit.Context) {
	now := c.Now()
	alive := &keepAlive{consumer: k}
	next := k.tickFor
	k.slots(func(s *slot, state uint32) {
		switch state {
		case slotWaiting:
			alive.touch = append(alive.touch, s)
			return
		case slotSettling:
			return // its settle is on its way
		}
		if !s.noted {
			s.noted = true
			alive.started = append(alive.started, s.Tag)
		}
		left, over := k.handlerTime(s, now)
		if over {
			k.overtime(s, now)
			return
		}
		if left > 0 && left < next {
			next = left
		}
		if !k.config.NoHeartbeat {
			alive.touch = append(alive.touch, s)
		}
	})
	if len(alive.touch)+len(alive.started) > 0 {
		k.queue.Address.Send(alive)
	}
	k.checkStuck()
	k.armIn(next)
}

// handlerTime says how much of its HandlerTimeout a running handler has left.
func (k *consumer) handlerTime(s *slot, now time.Time) (left time.Duration, over bool) {
	if k.config.HandlerTimeout < 0 {
		return 0, false
	}
	left = k.config.HandlerTimeout - k.running(s, now)
	return left, left <= 0
}

// running is how long a slot's handler has been at it.
func (k *consumer) running(s *slot, now time.Time) time.Duration {
	return now.Sub(k.broker.began) - s.started
}

// overtime cancels a handler's context; when it goes on for another tick it is stuck.
func (k *consumer) overtime(s *slot, now time.Time) {
	if !s.cancelled {
		s.flag(messages.ErrHandlerTimeout)
	}
	if !s.stuck && k.running(s, now) >= k.config.HandlerTimeout+k.tickFor {
		s.stuck = true
		k.broker.notify(messages.HandlerStuck{Queue: k.queue.Queue, Consumer: k.tag, Tag: s.Tag})
	}
}

// checkStuck takes work away from a consumer that cannot do it: what no standing
// worker can start goes back (SPEC C5).
func (k *consumer) checkStuck() {
	for _, w := range k.workers {
		s := w.atWork()
		if is := s != nil && s.stuck; is != w.stuck {
			w.stuck = is
			k.capacityChanged()
		}
	}
}

// standing is how many workers can take work.
func (k *consumer) standing() int {
	n := 0
	for _, w := range k.workers {
		if !w.down && !w.stuck {
			n++
		}
	}
	return n
}

// capacityChanged tells the queue how many leases the standing workers can serve,
// and gives back what waits when there are none.
func (k *consumer) capacityChanged() {
	k.reopen()
	if k.ending {
		return
	}
	n := k.standing()
	// Rounded up, so that a standing worker is never left without.
	share := (k.config.Prefetch*n + len(k.workers) - 1) / len(k.workers)
	if n > 0 {
		// The leases that the others were at still count, until they run out or their
		// handler returns; without a place for them the standing ones would starve.
		share = min(share+len(k.workers)-n, k.config.Prefetch)
	}
	k.queue.Address.Send(&effectivePrefetch{consumer: k, n: share})
	if n == 0 { // behind the other, or they would come straight back
		k.giveBack(messages.Ref{}, k.takeBackAll())
	}
}

// takeBack takes every slot that no worker has begun.
func takeBack(chunks []chunk) []*slot {
	var taken []*slot
	for _, ch := range chunks {
		for i := range ch.slots {
			if s := &ch.slots[i]; s.takeBack() {
				taken = append(taken, s)
			}
		}
	}
	return taken
}

// giveBack returns unstarted leases, interrupted; ref is answered when they are back.
func (k *consumer) giveBack(ref messages.Ref, slots []*slot) {
	if len(slots) > 0 || !ref.IsZero() {
		k.queue.Address.Send(&giveBack{Asked: messages.Asked{Reply: ref}, consumer: k, slots: slots})
	}
}

// leaseLost ends the work on a lease that is over: a waiting one is dropped before
// a handler sees it, a running one has its context cancelled (SPEC Q10, C4).
func (k *consumer) leaseLost(tag uint64) {
	k.slots(func(s *slot, state uint32) {
		if s.Tag != tag {
			return
		}
		if state == slotWaiting && s.takeBack() {
			k.giveBack(messages.Ref{}, []*slot{s}) // for the credit
			return
		}
		if !s.cancelled {
			s.flag(messages.ErrLeaseLost)
		}
	})
}

// returned is told of a flagged slot whose handler has returned after all.
func (k *consumer) returned(c *actorkit.Context, s *slot) {
	if s.worker.stuck {
		s.worker.stuck = false
		k.capacityChanged()
	}
	k.endIfDone(c)
}

func (k *consumer) setPrefetch(c *actorkit.Context, m *messages.SetPrefetch) {
	if m.Prefetch != 0 && m.Prefetch < k.config.Concurrency {
		c.Answer(m, messages.Answer{Err: &messages.ArgumentError{Op: "set prefetch", Argument: "prefetch", Problem: "must be 0 or at least Concurrency"}})
		return
	}
	k.config.Prefetch = m.Prefetch
	k.capacityChanged()
	// Behind the change in the queue's mailbox: when it is answered, it is in force.
	k.giveBack(c.Ref(m), nil)
}

// ---- crashes ----

// ChildFailed is told that a handler panicked: the lease in its hands is left to
// run out, what had not started goes back at once, and the worker waits for its
// restart (SPEC S1, S2).
func (s consumerShell) ChildFailed(c *actorkit.Context, child *actorkit.Address, reason, _ any) {
	k := s.consumer
	w := k.worker(child)
	if w == nil {
		c.StopChild(child)
		return
	}
	if sl := w.atWork(); sl != nil {
		sl.state.Store(slotOver)
		k.queue.Address.Send(&crashed{consumer: k, tag: sl.Tag, err: fmt.Sprintf("handler crashed: %v", reason)})
	}
	w.down, w.stuck = true, false
	w.newContext()
	decision := k.policy.Decide(&w.history, c.Now(), k.broker.runtime.Draw("restart", k.tag, w.crashes))
	w.crashes++
	k.capacityChanged()
	k.giveBack(messages.Ref{}, k.takeBackAll())
	if k.ending {
		k.endIfDone(c)
		return
	}
	if !decision.Restart {
		k.giveUp(c, fmt.Errorf("%w: %d crashes, the last: %v", ErrCrashLoop, w.crashes, reason))
		return
	}
	w.after = decision.After
	self := k.self
	k.broker.runtime.AfterFunc(decision.After, func() { self.Send(&restart{w}) })
}

// ErrCrashLoop is why a consumer stopped whose handler crashed too often.
var ErrCrashLoop = errors.New("handler crashes in a loop")

func (k *consumer) worker(address *actorkit.Address) *worker {
	for _, w := range k.workers {
		if w.self == address {
			return w
		}
	}
	return nil
}

func (k *consumer) restart(c *actorkit.Context, w *worker) {
	if k.ending || !w.down {
		return
	}
	w.down = false
	c.Restart(w.self)
	k.broker.notify(messages.WorkerRestarted{Queue: k.queue.Queue, Consumer: k.tag, After: w.after})
	k.capacityChanged()
}

// giveUp stops a consumer that crashes in a loop; its owner, its queue and the
// topic are told (SPEC S2).
func (k *consumer) giveUp(c *actorkit.Context, why error) {
	k.broker.Router.Send(stoppedNotice(k, why))
	k.stop(c, &stopConsumer{tag: k.tag, reason: why})
}

// ---- the end ----

// stop ends hand-overs first: the queue's answer, detached, comes behind the last
// delivery, so what is then in the inbox is all there will ever be.
func (k *consumer) stop(c *actorkit.Context, m *stopConsumer) {
	if ref := c.Ref(m); !ref.IsZero() {
		k.cancelled = append(k.cancelled, ref)
	}
	if k.ending {
		if k.settling {
			k.answerCancelled()
		}
		return
	}
	k.ending = true
	k.reopen()
	k.reason = m.reason
	k.public.gone.Store(true)
	k.queue.Address.Send(&detach{consumer: k})
}

func (k *consumer) detached(c *actorkit.Context) {
	k.settling = true
	refs := k.cancelled
	k.cancelled = nil
	slots := k.takeBackAll()
	if len(refs) == 0 {
		k.giveBack(messages.Ref{}, slots)
	}
	for i, ref := range refs {
		if i > 0 {
			slots = nil
		}
		k.giveBack(ref, slots)
	}
	k.slots(func(s *slot, _ uint32) { s.flag(nil) }) // their workers report back
	k.endIfDone(c)
}

// queueGone ends a consumer whose queue has dropped its leases: nothing is to be
// given back, and what runs is told that it runs for nothing.
func (k *consumer) queueGone(c *actorkit.Context, reason error) {
	if !k.ending {
		k.reason = reason
	}
	k.ending, k.settling = true, true
	k.reopen()
	k.takeBackAll()
	k.abort(reason)
	k.answerCancelled()
	k.endIfDone(c)
}

func (k *consumer) answerCancelled() {
	for _, ref := range k.cancelled {
		ref.Resolve(messages.Answer{})
	}
	k.cancelled = nil
}

// abort cancels the contexts of all handlers that still run.
func (k *consumer) abort(cause error) {
	k.slots(func(s *slot, state uint32) {
		if state != slotWaiting {
			s.flag(cause)
		}
	})
}

// endIfDone ends the actor when it is to end and no handler runs any more.
func (k *consumer) endIfDone(c *actorkit.Context) {
	if !k.ending || !k.settling {
		return
	}
	running := false
	k.slots(func(*slot, uint32) { running = true })
	if !running {
		k.end(c)
	}
}

func (k *consumer) end(c *actorkit.Context) {
	k.public.gone.Store(true)
	if k.timer != nil {
		k.timer.Stop()
	}
	k.ending, k.settling = true, true
	k.queue.Address.Send(&holderEnded{queue: k.queue, tag: k.tag})
	k.broker.pool.Send(&consumerGone{consumer: k.public})
	c.StopSelf()
}

// Ended closes the book, whatever ended the actor.
func (s consumerShell) Ended(*actorkit.Context) {
	s.started.Resolve(messages.Answer{Err: messages.ErrBrokerClosed})
	s.answerCancelled()
	s.broker.ended(s.public, s.reason)
}

// ---- the clock ----

// armIn sets the next tick, or none when nothing is held: an idle consumer wakes
// for nothing.
func (k *consumer) armIn(d time.Duration) {
	if !k.inbox.busy() {
		k.ticking.Store(false)
		// What was delivered in between saw the old value, and asked for no tick.
		if !k.inbox.busy() || !k.ticking.CompareAndSwap(false, true) {
			k.spare.Store(nil) // an idle consumer keeps no room for 64
			return
		}
	}
	if k.timer == nil {
		self := k.self
		k.timer = k.broker.runtime.AfterFunc(d, func() { self.Send(&tick{}) })
		return
	}
	k.timer.Reset(d)
}
