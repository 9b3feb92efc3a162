package actors

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
)

// workQueue is one queue: a ledger that decides, and what it takes to carry its
// decisions out. The value outlives crashes of the actor that runs it; the actor
// is a queueShell.
//
// Every command goes the same way: the ledger decides and keeps a record, then
// perform carries the effects out in order, then the command is answered. A panic
// in between costs that command and nothing else: effects that were not carried
// out yet are, when the actor has restarted (SPEC S3).
type workQueue struct {
	broker  *Broker
	source  *messages.Source
	config  *messages.QueueConfig
	returns *returns // nil before the first consumer
	ledger  Ledger
	self    *actorkit.Address

	// performed is how many of the ledger's effects are carried out; it moves before
	// each, so that an effect that panics is not tried for ever.
	performed int
	notices   []*router.Announce // to be sent with the next answer
	batches   []*attached        // have deliveries to be sent at the end of the turn
	counts    []windowCount      // to be told at the end of the turn

	consumers map[string]*attached
	gets      map[*messages.Get]*ledger.Waiter
	getsEver  uint64
	drains    []messages.Ref
	windows   []*Window // have messages in the ledger that count in them until settled

	incoming *ledger.Put // the put under way: see arrival
	sums     sums        // where integrity is on

	timer    actorkit.Timer // nil in a queue at rest
	armedFor time.Duration  // since the broker was opened; 0: not armed
	rings    int16          // timer events in a row that did not come to their end
	starting bool           // restarted, and not through the first turn yet
	worn     bool           // has something to trim: messages, or whoever waited, are gone
	closing  bool           // the broker closes: nothing is handed over any more
	turnPuts int32          // of windows, in this turn

	ended   error             // closed, deleted or quarantined
	deleted *messages.Deleted // set when it is closed: nothing is left to read
}

// attached is a consumer as its queue sees it.
type attached struct {
	ledger.Consumer
	consumer *Consumer
	inner    *consumer // nil for an embedder's own actor
	foreign  *actor.PID
	dirty    bool // is in batches

	room         []slot  // where deliveries go
	sent, filled int     // in room; what lies in between is this turn's
	full         []chunk // and what it has in earlier rooms
	burst        int     // how many were sent together last
}

// pendingGet is a Get in line.
type pendingGet struct {
	command *messages.Get
	ref     messages.Ref
	number  uint64 // in order of arrival
}

// windowCount gathers what one turn has to tell one publisher.
type windowCount struct {
	window        *Window
	decided, free int64
}

// ringCrashesMax is how often one timer event may panic before the queue is
// quarantined (SPEC S3).
const ringCrashesMax = 3

func newWorkQueue(b *Broker, queue *Queue, start time.Time) *workQueue {
	source := queue.Source
	return &workQueue{
		broker: b, source: source, config: queue.Config,
		ledger: b.newLedger(source, queue.Config, start, ledger.Options{Draw: b.jitter}),
	}
}

// drawJitter is [ledger.Options.Draw] of all queues.
func (b *Broker) drawJitter(of *messages.Source, put, failure uint64) uint64 {
	return b.runtime.Draw("backoff", fmt.Sprintf("%s/%d/%d", of.Queue, of.Incarnation, put), failure)
}

// queueShell is the actor around a workQueue.
type queueShell struct{ *workQueue }

func (q *workQueue) new() actorkit.Actor { return queueShell{q} }

// Started checks the ledger after a crash and finishes what the crash left.
func (q queueShell) Started(c *actorkit.Context) {
	q.self = c.Self()
	if c.Restarted() == 0 {
		return
	}
	if q.starting {
		// The restart itself has crashed. It settles what is due like a timer event, so
		// it counts as one: else the queue would crash and restart for ever.
		q.rings++
	}
	q.starting = true
	switch err := q.ledger.CheckInvariants(); {
	case q.ended != nil:
		q.dismiss(c, q.ended) // the crash may have left half of them
	case q.rings >= ringCrashesMax:
		q.quarantine(c, fmt.Errorf("its timer event panicked %d times", q.rings))
	case err != nil:
		q.quarantine(c, err)
	}
	q.returns.carryOn()
	q.perform(c)
}

// Ended dismisses whoever is left when the queue was stopped without being closed,
// because it crashed on that too.
func (q queueShell) Ended(c *actorkit.Context) {
	if q.deleted == nil {
		q.endAs(messages.ErrQueueClosed)
		q.ledger.Close(c.Now())
	}
	q.perform(c)
	q.dismiss(c, q.ended)
	q.flush(c)
}

// Receive implements [actorkit.Actor].
func (q queueShell) Receive(c *actorkit.Context, msg any) {
	actorkit.AnswerOnce(c, msg)
	if _, ok := msg.(*ring); ok {
		// Before anything can panic: it is one more try, and this ring will not come again.
		q.rings++
		q.armedFor = 0
	}
	q.probe("before", msg)
	if q.ended != nil && q.refuse(c, msg) {
		return
	}
	q.handle(c, msg)
	q.perform(c)
}

// probe lets a test crash the actor at a named point.
func (q *workQueue) probe(when string, msg any) {
	if q.broker.Probe != nil {
		q.probed(when, msg)
	}
}

// probed is apart so that probe is inlined.
func (q *workQueue) probed(when string, msg any) {
	q.broker.probe("queue "+q.source.Queue, when, msg)
}

// handle says which method handles which message. Puts, settles and the timer leave
// handing over to the end of the turn, so that a burst becomes one batch; all others
// see a queue that has handed over what it could.
func (q queueShell) handle(c *actorkit.Context, msg any) {
	switch msg := msg.(type) {
	case *Put:
		q.put(c, msg, msg)
		return
	case *Window:
		q.takeIn(c, msg)
		return
	case *returns:
		q.takeReturns(c)
		return
	case *router.Copy:
		q.takeCopy(c, msg)
		return
	case *PutBatch:
		q.putBatch(c, msg.Puts, msg)
		return
	case *messages.SettleBatch:
		q.settleBatch(c, msg)
		return
	case *messages.Put:
		q.putFromActor(c, msg)
		return
	case settlement:
		q.settle(c, msg)
		return
	case *ring:
		q.rang(c)
		return
	}

	q.handOver(c)
	q.worn = q.worn || leavesRoom(msg)
	switch msg := msg.(type) {
	case *messages.PutBatch:
		q.putBatchFromActor(c, msg)
	case *keepAlive:
		q.keepAlive(c, msg)
	case *messages.Get:
		q.get(c, msg)
	case *CancelGet:
		q.cancelGet(msg)
	case *attach:
		q.attach(c, msg)
	case *detach:
		q.detach(c, msg)
	case *giveBack:
		q.giveBack(c, msg)
	case *effectivePrefetch:
		q.ledger.SetPrefetch(c.Now(), msg.consumer.tag, msg.n)
		q.probe("after", msg)
	case *messages.SetPrefetch: // of an embedder's actor: nobody stands in between
		q.ledger.SetPrefetch(c.Now(), msg.Tag, msg.Prefetch)
		q.done(c, msg, messages.Answer{})
	case *crashed:
		q.crashed(c, msg)
	case *lostNotice:
		q.ledger.CountLostNotice()
		q.probe("after", msg)
	case *holderEnded:
		q.holderEnded(c, msg)
	case *endHandOvers:
		q.endHandOvers(msg)
	case *EndHolder:
		q.ledger.HolderEnded(c.Now(), msg.Holder)
		q.done(c, msg, messages.Answer{})
	case *stopConsumer: // of an embedder's actor
		q.stopForeign(c, msg)
	case *messages.Pause:
		q.ledger.Pause(c.Now())
		q.done(c, msg, messages.Answer{})
	case *messages.Resume:
		q.resume(c, msg)
	case *messages.Purge:
		n := q.ledger.Purge(c.Now())
		q.done(c, msg, messages.Answer{N: int64(n)})
	case *messages.Peek:
		q.done(c, msg, messages.Answer{Value: q.ledger.Peek(msg.N)})
	case *messages.Drain:
		q.drains = append(q.drains, c.Ref(msg))
		q.ledger.Drain(c.Now())
		q.probe("after", msg)
	case *messages.DeadLettersQuery:
		q.done(c, msg, messages.Answer{N: int64(q.ledger.LastLetter()), Value: q.ledger.DeadLetters(msg.After, msg.N)})
	case *messages.Discard:
		n := q.ledger.Discard(c.Now(), msg.IDs)
		q.done(c, msg, messages.Answer{N: int64(n)})
	case *redriveLetter:
		result, err := q.ledger.Redrive(c.Now(), msg.number)
		q.done(c, msg, messages.Answer{N: duplicate(result.Duplicate), Err: err})
	case *removeLetter:
		q.ledger.RemoveLetter(c.Now(), msg.number)
		q.done(c, msg, messages.Answer{})
	case *messages.QueueStatsQuery:
		q.done(c, msg, messages.Answer{Value: q.stats(c)})
	case *closeQueue:
		q.close(c, msg)
	case messages.Command:
		q.done(c, msg, messages.Answer{Err: &messages.ArgumentError{
			Op: "queue", Argument: fmt.Sprintf("%T", msg), Problem: "is not for a queue; the broker's actor takes it"}})
	}
}

// leavesRoom tells the commands after which less is there: what it was in can be trimmed.
func leavesRoom(msg any) bool {
	switch msg.(type) {
	case *messages.Purge, *messages.Discard, *redriveLetter, *removeLetter,
		*CancelGet, *detach, *holderEnded, *stopConsumer, *EndHolder:
		return true
	}
	return false
}

// done is for commands whose whole work is one call on the ledger.
func (q *workQueue) done(c *actorkit.Context, cmd messages.Command, a messages.Answer) {
	q.probe("after", cmd)
	q.answer(c, cmd, a)
}

// settlement is what messages.Ack, Nack, Reject, Touch and Settle have in common.
type settlement interface {
	messages.Command
	Settled() messages.Settlement
}

// EndTurn hands over what the turn made ready and tells everybody.
func (q queueShell) EndTurn(c *actorkit.Context) {
	q.perform(c)
	q.handOver(c)
	q.flush(c)
	q.arm(c)
	if raceEnabled {
		q.checkNow(c)
	}
	q.starting, q.turnPuts = false, 0
}

// checkedMessagesMax bounds what checkNow looks through at every turn.
const checkedMessagesMax = 512

// checkNow checks the ledger after every turn, in builds with the race detector. A
// long queue is spared: the check visits every message.
func (q *workQueue) checkNow(c *actorkit.Context) {
	if s := q.ledger.Stats(c.Now()); q.ended != nil || s.Ready+s.Delayed+s.Leased+s.DeadLetters > checkedMessagesMax {
		return
	}
	if err := q.ledger.CheckInvariants(); err != nil {
		panic(fmt.Sprintf("queue %s: %v", q.source.Queue, err))
	}
}

// ---- puts ----

// put takes a message in; cmd is the command as it came.
func (q *workQueue) put(c *actorkit.Context, m *Put, cmd messages.Command) {
	p := q.arrival()
	*p = ledger.NewPut(&m.Envelope, m.Given)
	p.Past = m.past
	result, err := q.ledger.Put(c.Now(), p)
	if q.broker.integrity.on {
		q.remember(p, result, err)
	}
	if q.broker.Listener != nil {
		q.notePut(p, err)
	}
	q.probe("after", cmd)
	q.answer(c, m, messages.Answer{N: duplicate(result.Duplicate), Err: err})
}

// arrival is where the put under way is kept: what goes through the Ledger
// interface would else be allocated anew for each message.
func (q *workQueue) arrival() *ledger.Put {
	if q.incoming == nil {
		q.incoming = new(ledger.Put)
	}
	return q.incoming
}

func (q *workQueue) notePut(p *ledger.Put, err error) {
	if err != nil {
		q.broker.notify(messages.Refused{Queue: q.source.Queue, ID: p.ID, Reason: errors.Unwrap(err)})
		return
	}
	q.broker.notify(messages.Accepted{Queue: q.source.Queue, ID: p.ID, Delayed: p.Delay})
}

func duplicate(d bool) int64 {
	if d {
		return 1
	}
	return 0
}

// putFromActor is a put that did not come through the door: nobody has checked it
// or made its id, and nothing but InboxLimit keeps its sender from flooding (A3).
func (q *workQueue) putFromActor(c *actorkit.Context, m *messages.Put) {
	given := m.Envelope.ID != ""
	if err := q.checkFromActor(c, &m.Envelope); err != nil {
		q.done(c, m, messages.Answer{Err: err})
		return
	}
	q.put(c, &Put{Put: *m, Given: given}, m)
}

func (q *workQueue) checkFromActor(c *actorkit.Context, e *messages.Envelope) error {
	if limit := q.config.InboxLimit; limit >= 0 && c.Self().Pending() > limit {
		q.ledger.CountBusy()
		return &messages.PutError{Queue: q.source.Queue, ID: e.ID, Reason: messages.ErrBusy}
	}
	if err := q.broker.Limits.Check("put", e); err != nil {
		return err
	}
	if e.ID == "" {
		e.ID = q.broker.NewID()
	}
	return nil
}

func (q *workQueue) putBatchFromActor(c *actorkit.Context, m *messages.PutBatch) {
	puts := make([]ledger.Put, len(m.Envelopes))
	for i := range m.Envelopes {
		e := &m.Envelopes[i]
		given := e.ID != ""
		if err := q.checkFromActor(c, e); err != nil {
			q.done(c, m, messages.Answer{Err: err})
			return
		}
		puts[i] = ledger.NewPut(e, given)
	}
	q.putBatch(c, puts, m)
}

func (q *workQueue) putBatch(c *actorkit.Context, batch []ledger.Put, cmd messages.Command) {
	results := make([]messages.PutResult, len(batch))
	for i := range batch {
		p := &batch[i]
		r, err := q.ledger.Put(c.Now(), p)
		if q.broker.integrity.on {
			q.remember(p, r, err)
		}
		if q.broker.Listener != nil {
			q.notePut(p, err)
		}
		results[i] = messages.PutResult{ID: p.ID, Duplicate: r.Duplicate, Err: err}
	}
	q.done(c, cmd, messages.Answer{Value: results})
}

func (q *workQueue) takeCopy(c *actorkit.Context, m *router.Copy) {
	p := q.arrival()
	e := m.Envelope
	*p = ledger.Put{ID: e.ID, Body: e.Body, Headers: e.Headers, Details: m.Details, Delay: e.Delay, GivenID: m.Given}
	if m.Deaths > 0 {
		p.Past = &ledger.Past{History: m.History, Deaths: m.Deaths}
	}
	result, err := q.ledger.Put(c.Now(), p)
	if q.broker.integrity.on {
		q.remember(p, result, err)
	}
	q.probe("after", m)
	if err != nil {
		q.broker.notify(messages.CopyRefused{Queue: q.source.Queue, Topic: m.Envelope.Topic, Reason: err})
		m.Refuse()
		return
	}
	m.Accept(result.Duplicate)
}

// ---- settles ----

func (q *workQueue) settle(c *actorkit.Context, m settlement) {
	at, err := q.settleOne(c, m.Settled())
	q.probe("after", m)
	q.answer(c, m, messages.Answer{At: at, Err: err})
}

func (q *workQueue) settleBatch(c *actorkit.Context, m *messages.SettleBatch) {
	results := make([]messages.SettleResult, len(m.Settlements))
	for i, s := range m.Settlements {
		results[i].Deadline, results[i].Err = q.settleOne(c, s)
	}
	q.probe("after", m)
	q.answer(c, m, messages.Answer{Value: results})
}

// settleOne fences the receipt by the queue's incarnation (Q3) and applies the verb.
func (q *workQueue) settleOne(c *actorkit.Context, s messages.Settlement) (time.Time, error) {
	r := s.Receipt
	if r.Incarnation != 0 && r.Incarnation != q.source.Incarnation {
		return time.Time{}, q.ledger.RefuseForeign(s.Verb, r)
	}
	return q.apply(c, s.Verb, r.Tag, s.Delay, messages.CutError(s.Error))
}

func (q *workQueue) apply(c *actorkit.Context, verb messages.Verb, tag uint64, delay time.Duration, why string) (at time.Time, err error) {
	now := c.Now()
	switch verb {
	case messages.VerbAck:
		err = q.ledger.Ack(now, tag)
	case messages.VerbNack:
		err = q.ledger.Nack(now, tag, why)
	case messages.VerbNackIn:
		if delay < 0 {
			return at, &messages.ArgumentError{Op: "nack", Argument: "delay", Problem: "must not be negative"}
		}
		err = q.ledger.NackIn(now, tag, delay, why)
	case messages.VerbReject:
		err = q.ledger.Reject(now, tag, why)
	case messages.VerbRelease:
		err = q.ledger.Release(now, tag)
	case messages.VerbTouch:
		switch {
		case delay < 0:
			return at, &messages.ArgumentError{Op: "touch", Argument: "extension", Problem: "must not be negative"}
		case delay == 0:
			at, err = q.ledger.Touch(now, tag)
		default:
			at, err = q.ledger.TouchFor(now, tag, delay)
		}
	default:
		return at, &messages.ArgumentError{Op: "settle", Argument: "verb", Problem: "is unknown"}
	}
	if q.broker.Listener != nil {
		q.noteSettle(verb, tag, err)
	}
	return at, err
}

func (q *workQueue) noteSettle(verb messages.Verb, tag uint64, err error) {
	var stale *messages.StaleError
	if errors.As(err, &stale) {
		q.broker.notify(messages.Stale{Queue: q.source.Queue, Tag: tag, Verb: verb, Ended: stale.Ended})
		return
	}
	q.broker.notify(messages.Settled{Queue: q.source.Queue, Tag: tag, Verb: verb})
}

// handlerReturned settles what a handler's return means (SPEC C2). A handler that
// has settled by itself has its return ignored, and uncounted; one whose lease ran
// out is late, and counted.
func (q *workQueue) handlerReturned(c *actorkit.Context, s *slot) {
	if !s.quiet && s.verb == messages.VerbAck && q.ledger.AckReturned(c.Now(), s.worker.consumer.tag, s.Tag) {
		if q.broker.Listener != nil {
			q.noteSettle(s.verb, s.Tag, nil)
		}
		q.probe("after", s)
		return
	}
	if s.quiet {
		q.ledger.Started(c.Now(), s.Tag) // or a lease lost later would count as never begun
	}
	if s.lost && s.Deadline.IsZero() {
		// Without a timeout it would never run out, and its consumer never get credit
		// again: it comes back as after a crash of the handler (SPEC Q17).
		q.ledger.Crashed(c.Now(), s.Tag, "the queue crashed on the handler's answer")
	}
	// Before the settle, which gives the credit back when the handler has returned.
	q.ledger.Returned(c.Now(), s.worker.consumer.tag, s.Tag)
	if !s.quiet {
		if _, end := q.ledger.LeaseEnd(s.Tag); end == messages.LeaseRunning || end == messages.LeaseExpired {
			var text string
			var delay time.Duration
			if f := s.failure; f != nil {
				text, delay = messages.CutError(f.text), f.delay
			}
			// The answer is nobody's: a stale one is in the counters and the listener.
			_, _ = q.apply(c, s.verb, s.Tag, delay, text)
		}
	}
	q.probe("after", s)
}

// keepAlive notes which handlers have begun, touches what the consumer keeps and
// tells it what is lost.
func (q *workQueue) keepAlive(c *actorkit.Context, m *keepAlive) {
	for _, tag := range m.started {
		q.ledger.Started(c.Now(), tag)
	}
	for _, s := range m.touch {
		if state := s.state.Load(); state == slotSettling || state == slotOver {
			continue // its answer is on its way, or has come: a touch would be stale
		}
		at, err := q.ledger.Touch(c.Now(), s.Tag)
		if err != nil {
			m.consumer.self.Send(&leaseLost{tag: s.Tag})
			continue
		}
		if !at.IsZero() {
			s.touched(at, q.broker.began)
		}
	}
	q.probe("after", m)
}

func (q *workQueue) crashed(c *actorkit.Context, m *crashed) {
	q.ledger.Crashed(c.Now(), m.tag, messages.CutError(m.err))
	q.ledger.Returned(c.Now(), m.consumer.tag, m.tag)
	q.probe("after", m)
}

// giveBack returns leases that nobody worked on (SPEC R10). One that is over
// already counts for nothing: its consumer could not know.
func (q *workQueue) giveBack(c *actorkit.Context, m *giveBack) {
	for _, s := range m.slots {
		if _, end := q.ledger.LeaseEnd(s.Tag); end == messages.LeaseRunning {
			_, _ = q.settleOne(c, messages.Settlement{Receipt: s.Receipt(), Verb: messages.VerbRelease})
		}
		q.ledger.Returned(c.Now(), m.consumer.tag, s.Tag)
	}
	q.probe("after", m)
	q.answer(c, m, messages.Answer{})
}

// ---- gets ----

func (q *workQueue) get(c *actorkit.Context, m *messages.Get) {
	if q.closing {
		q.done(c, m, messages.Answer{Err: messages.ErrBrokerClosed})
		return
	}
	q.getsEver++
	p := &pendingGet{command: m, ref: c.Ref(m), number: q.getsEver}
	w := &ledger.Waiter{Holder: m.Session, AckTimeout: m.AckTimeout, NoTimeout: m.NoTimeout, Address: p}
	if q.gets == nil {
		q.gets = map[*messages.Get]*ledger.Waiter{}
	}
	q.gets[m] = w
	q.ledger.Want(c.Now(), w)
	q.probe("after", m)
	q.handOver(c)
	if _, waits := q.gets[m]; waits && m.NoWait {
		q.ledger.Unwant(w)
		delete(q.gets, m)
		q.answer(c, m, messages.Answer{Err: messages.ErrEmpty})
	}
}

func (q *workQueue) cancelGet(m *CancelGet) {
	if w := q.gets[m.Get]; w != nil {
		q.ledger.Unwant(w)
		delete(q.gets, m.Get)
	}
	q.probe("after", m)
}

// dismissGets answers those in line, in order.
func (q *workQueue) dismissGets(why error) {
	waiting := slices.Collect(maps.Values(q.gets))
	number := func(w *ledger.Waiter) uint64 { return w.Address.(*pendingGet).number }
	slices.SortFunc(waiting, func(a, b *ledger.Waiter) int { return cmp.Compare(number(a), number(b)) })
	for _, w := range waiting {
		q.ledger.Unwant(w)
		w.Address.(*pendingGet).ref.Resolve(messages.Answer{Err: why})
	}
	clear(q.gets)
}

// endHandOvers is the first thing that a closing broker asks for.
func (q *workQueue) endHandOvers(m *endHandOvers) {
	q.closing = true
	q.dismissGets(messages.ErrBrokerClosed)
	q.probe("after", m)
}

// ---- consumers ----

func (q *workQueue) attach(c *actorkit.Context, m *attach) {
	k := m.consumer
	a := &attached{consumer: k, inner: k.inner, foreign: k.foreign}
	a.Consumer = ledger.Consumer{
		Tag: k.Tag, Prefetch: k.Config.Prefetch, AckTimeout: k.Config.AckTimeout,
		NoTimeout: k.Config.NoTimeout, Handler: k.inner != nil, Address: a,
	}
	if q.returns == nil && k.inner != nil {
		q.returns = &returns{to: q.self}
		k.Queue.returns = q.returns
	}
	err := q.ledger.Attach(c.Now(), &a.Consumer)
	if err == nil {
		if q.consumers == nil {
			q.consumers = map[string]*attached{}
		}
		q.consumers[k.Tag] = a
	}
	q.probe("after", m)
	q.answer(c, m, messages.Answer{Value: k, Err: err})
}

func (q *workQueue) detach(c *actorkit.Context, m *detach) {
	q.ledger.Detach(c.Now(), m.consumer.tag)
	q.probe("after", m)
	if a := q.consumers[m.consumer.tag]; a != nil {
		q.flushTo(a) // detached must come behind the last delivery
	}
	m.consumer.self.Send(&detached{})
}

// holderEnded first takes the settles of the consumer's last handlers: the message
// that they come with is another worker's, which may have yet to send it, and with
// the consumer its leases without a timeout end.
func (q *workQueue) holderEnded(c *actorkit.Context, m *holderEnded) {
	q.takeReturns(c)
	q.ledger.Detach(c.Now(), m.tag)
	q.ledger.HolderEnded(c.Now(), m.tag)
	delete(q.consumers, m.tag)
	q.probe("after", m)
}

// stopForeign ends an embedder's actor as a consumer: it is told once, and what
// it holds stays leased.
func (q *workQueue) stopForeign(c *actorkit.Context, m *stopConsumer) {
	a := q.consumers[m.tag]
	if a == nil || a.foreign == nil {
		q.done(c, m, messages.Answer{Err: &messages.NotFoundError{Op: "cancel", What: "consumer", Name: m.tag}})
		return
	}
	q.ledger.Detach(c.Now(), m.tag)
	delete(q.consumers, m.tag)
	if m.holderGone {
		q.ledger.HolderEnded(c.Now(), m.tag)
	}
	q.foreignEnded(c, a, m.reason, !m.holderGone)
	q.done(c, m, messages.Answer{})
}

// foreignEnded tells an embedder's actor, and the pool; mayHold says that leases may
// be left in the actor's hands.
func (q *workQueue) foreignEnded(c *actorkit.Context, a *attached, reason error, mayHold bool) {
	q.broker.ended(a.consumer, reason)
	q.broker.pool.Send(&consumerGone{a.consumer, mayHold})
	c.System().Send(a.foreign, &messages.ConsumerEnded{Tag: a.Tag, Reason: reason})
}

// ---- the rest ----

func (q *workQueue) resume(c *actorkit.Context, m *messages.Resume) {
	q.ledger.Resume(c.Now())
	q.probe("after", m)
	q.endDrains(&messages.QueueStateError{Op: "drain", Queue: q.source.Queue, Reason: messages.ErrResumed})
	q.answer(c, m, messages.Answer{})
}

func (q *workQueue) endDrains(err error) {
	drains := q.drains
	q.drains = nil
	for _, ref := range drains {
		ref.Resolve(messages.Answer{Err: err})
	}
}

func (q *workQueue) stats(c *actorkit.Context) messages.QueueStats {
	return q.ledger.Stats(c.Now())
}

func (q *workQueue) rang(c *actorkit.Context) {
	q.ledger.Tick(c.Now())
	q.probe("after", &ring{})
	q.perform(c)
	for n := 1; q.ledger.Behind() && n < stretchSlices && q.broker.runtime.Since(c.Now()) < stretch; n++ {
		q.ledger.Tick(c.Now())
		q.perform(c)
	}
	if !q.ledger.Behind() && q.empty(c) { // behind it is not, and to ask would settle one more slice
		q.trim()
	}
	q.rings = 0
}

func (q *workQueue) empty(c *actorkit.Context) bool {
	s := q.ledger.Stats(c.Now())
	return s.Ready+s.Delayed+s.Leased == 0
}

// trim gives back what an empty queue has no use for: there may be 100,000 of them.
func (q *workQueue) trim() {
	q.ledger.Trim()
	q.incoming = nil
	q.worn = false
	for _, a := range q.consumers {
		if a.dirty { // this turn has yet to send what is in there
			q.worn = true
			continue
		}
		a.room, a.sent, a.filled, a.burst = nil, 0, 0, 0
		if a.inner != nil {
			a.inner.rest()
		}
	}
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if len(q.batches) == 0 {
		q.batches = nil
	}
	if len(q.counts) == 0 {
		q.counts = nil
	}
	if len(q.windows) == 0 {
		q.windows = nil
	}
	if len(q.gets) == 0 {
		q.gets = nil
	}
	if len(q.consumers) == 0 {
		q.consumers = nil
	}
}

// close ends the queue, tells everybody who waits for it and its desk.
func (q *workQueue) close(c *actorkit.Context, m *closeQueue) {
	s := q.stats(c)
	held := s.Ready + s.Delayed + s.Leased
	if (m.ifEmpty && held+s.DeadLetters > 0) || (m.ifUnused && s.Consumers > 0) {
		q.done(c, m, messages.Answer{Err: &messages.InUseError{Queue: q.source.Queue, Messages: held, Consumers: s.Consumers}})
		return
	}
	q.endAs(m.reason)
	n, letters := q.ledger.Close(c.Now())
	q.deleted = &messages.Deleted{Messages: n, DeadLetters: letters}
	q.perform(c)
	q.dismiss(c, m.reason)
	if q.timer != nil {
		q.timer.Stop()
	}
	q.probe("after", m)
	q.answer(c, m, messages.Answer{Value: *q.deleted})
}

// endAs notes why the queue ended, the first time.
func (q *workQueue) endAs(why error) {
	if q.ended == nil {
		q.ended = why
	}
}

// dismiss answers every waiter and ends every consumer: nobody waits for ever. Each
// is crossed out before he is told, so that it can be done again after a crash.
func (q *workQueue) dismiss(c *actorkit.Context, reason error) {
	gone := func(op string) error {
		return &messages.QueueStateError{Op: op, Queue: q.source.Queue, Reason: reason}
	}
	q.dismissGets(gone("get"))
	q.endDrains(gone("drain"))
	for _, a := range sortedByTag(q.consumers) {
		delete(q.consumers, a.Tag)
		if a.inner != nil {
			a.consumer.gone.Store(true)
			q.flushTo(a)
			a.inner.self.Send(&queueGone{reason: gone("consume")})
			continue
		}
		q.foreignEnded(c, a, gone("consume"), false)
	}
}

// quarantine keeps a queue that failed its own checks readable and idle (S3).
func (q *workQueue) quarantine(c *actorkit.Context, why error) {
	if q.ended != nil {
		return
	}
	q.ended = messages.ErrQuarantined
	q.ledger.Quarantine()
	for len(q.windows) > 0 { // nothing will be settled any more, and publishers wait for room
		w := q.windows[0]
		q.count(w, 0, w.held)
		q.letGo(w, w.held)
	}
	q.announce("quarantined", struct {
		Queue string `json:"queue"`
		Error string `json:"error"`
	}{q.source.Queue, messages.CutError(why.Error())})
	q.dismiss(c, messages.ErrQuarantined)
	q.broker.notify(messages.Quarantined{Queue: q.source.Queue, Reason: why})
}

// refuse answers what an ended queue does not do any more; a quarantined one can
// still be read and deleted. It reports whether it took the message.
func (q *workQueue) refuse(c *actorkit.Context, msg any) bool {
	switch msg := msg.(type) {
	case *messages.QueueStatsQuery, *messages.Peek, *messages.DeadLettersQuery, *lostNotice:
		if q.deleted == nil {
			return false
		}
	case *closeQueue:
		if q.deleted == nil {
			return false
		}
		q.dismiss(c, q.ended)
		c.Answer(msg, messages.Answer{Value: *q.deleted})
		return true
	}
	why := &messages.QueueStateError{Op: commandName(msg), Queue: q.source.Queue, Reason: q.ended}
	switch msg := msg.(type) {
	case *Put:
		msg.Fail(&messages.PutError{Queue: q.source.Queue, ID: msg.Envelope.ID, Reason: q.ended})
	case *giveBack:
		msg.Fail(why) // it is as good as done
	case messages.Command:
		c.Answer(msg, messages.Answer{Err: why})
	case messages.Failer:
		msg.Fail(why)
	}
	return true
}

// commandName is a command's name for an error: the type's, in small letters.
func commandName(msg any) string {
	if s, ok := msg.(settlement); ok {
		return s.Settled().Verb.String()
	}
	return actorkit.CommandName(msg)
}

// handOver lends what can be lent, until nothing moves: a Get whose caller has
// gone gives its message back, which may go to the next. A queue that is behind lends
// nothing, and each try would settle one more slice in this same turn (SPEC Q10).
func (q *workQueue) handOver(c *actorkit.Context) {
	for !q.closing && q.ended == nil && !q.ledger.Behind() {
		q.ledger.HandOver(c.Now())
		if len(q.ledger.Effects()) == q.performed {
			return
		}
		q.perform(c)
	}
}

// A queue that is behind settles slices for stretch, at most stretchSlices of them, and
// then lets go of its processor for breath (SPEC Q10). A goroutine that is busy for as
// long as a million leases take to end has Go wake a thread for the idle processor every
// now and then, and Linux may place that one behind the busy one, for 4 ms at a time:
// timers and sockets of the whole process wait so long. To yield does not help, nor that
// the executor lingers: the busy thread must have nothing to do. So the timer's own
// goroutine runs the turn and ends. A shorter breath is often over before the thread
// sleeps. One with no other timer beside it becomes a millisecond, which is why a
// stretch is no shorter.
const (
	stretch       = 500 * time.Microsecond
	stretchSlices = 4 // where a turn takes no time: in virtual time
	breath        = 20 * time.Microsecond
)

// restAfter is how long an empty queue keeps the room that its messages have had, at most.
const restAfter = 30 * time.Second

// arm sets the timer to the ledger's next deadline, or to the next slice, or else to when
// an empty queue is trimmed. It is left alone while it would ring early enough anyway: an
// early ring does no harm, and most leases end long before their deadline.
func (q *workQueue) arm(c *actorkit.Context) {
	if q.ended != nil {
		return
	}
	next, ok := q.ledger.NextDeadline()
	wait := next.Sub(c.Now())
	if q.ledger.Behind() {
		next, ok, wait = c.Now(), true, breath
	}
	if rest := c.Now().Add(restAfter); q.worn && (!ok || next.After(rest)) &&
		(q.armedFor == 0 || q.armedFor > rest.Sub(q.broker.began)) && q.empty(c) {
		next, ok, wait = rest, true, restAfter
	}
	at := max(next.Sub(q.broker.began), 1)
	if !ok || (q.armedFor != 0 && at >= q.armedFor) {
		return
	}
	wait = max(wait, 0)
	q.armedFor = at
	if q.timer == nil {
		self := q.self
		q.timer = q.broker.runtime.AfterFunc(wait, func() { self.Call(&ring{}) })
		return
	}
	q.timer.Reset(wait)
}
