package actors

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// background never ends: what our own actors wait on.
func (b *Broker) background() context.Context { return context.Background() }

// Ask sends a command and waits for its answer.
//
// Errors: those of the command; [messages.ErrBrokerClosed]; an
// [*messages.OutcomeError] when ctx ends first, or when the actor crashed on the
// command, which says whether it may have happened.
func (b *Broker) Ask(ctx context.Context, op string, to *actorkit.Address, cmd messages.Command) (messages.Answer, error) {
	cell, err := b.begin(ctx, op, cmd)
	if err != nil {
		return messages.Answer{}, err
	}
	long := long(cmd) // before it is the actor's
	if to.Call(cmd); long {
		actorkit.Linger(cell)
	}
	return b.finish(ctx, op, cell)
}

// long tells the commands that keep a queue busy for some µs.
func long(cmd messages.Command) bool {
	const many = 16
	switch cmd := cmd.(type) {
	case *PutBatch:
		return len(cmd.Puts) >= many
	case *messages.SettleBatch:
		return len(cmd.Settlements) >= many
	}
	return false
}

func (b *Broker) begin(ctx context.Context, op string, cmd messages.Command) (actorkit.Cell, error) {
	if b.Closing() && !settles(cmd) {
		return nil, messages.ErrBrokerClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, &messages.OutcomeError{Op: op, Cause: context.Cause(ctx)}
	}
	if err := b.runtime.CheckContext(ctx); err != nil {
		return nil, err
	}
	cell := b.runtime.NewCell()
	cmd.AnswerTo(cell.Ref())
	return cell, nil
}

// settles tells the commands that handlers need to end their work. Those that run
// while the broker closes may, until its queues are closed (SPEC B5).
func settles(cmd messages.Command) bool {
	switch cmd.(type) {
	case settlement, *messages.SettleBatch:
		return true
	}
	return false
}

func (b *Broker) finish(ctx context.Context, op string, cell actorkit.Cell) (messages.Answer, error) {
	a, err := cell.Wait(ctx)
	if err != nil {
		return messages.Answer{}, &messages.OutcomeError{Op: op, Sent: true, Cause: err}
	}
	if a.Err != nil {
		a.Err = b.explain(op, "", a.Err)
	}
	return a, a.Err
}

// explain turns what the machinery says into what a caller can act on. queue is the
// one that was asked, where that is known.
func (b *Broker) explain(op, queue string, err error) error {
	if errors.Is(err, actorkit.ErrStopped) {
		if b.Closing() {
			return messages.ErrBrokerClosed
		}
		// Only queues end while the broker lives.
		return &messages.QueueStateError{Op: op, Queue: queue, Reason: messages.ErrQueueClosed}
	}
	return actorkit.Outcome(op, err)
}

// AskAt is Ask for a queue that was found before. A put that finds it gone gets a
// [*messages.PutError].
func (b *Broker) AskAt(ctx context.Context, op string, q *Queue, cmd messages.Command) (messages.Answer, error) {
	a, err := b.Ask(ctx, op, q.Address, cmd)
	if err != nil {
		err = q.named(err, cmd)
	}
	return a, err
}

// named says in an error that knew none which queue it is about.
func (q *Queue) named(err error, cmd messages.Command) error {
	var gone *messages.QueueStateError
	if !errors.As(err, &gone) || gone.Queue != "" {
		return err
	}
	gone.Queue = q.Queue
	if m, ok := cmd.(*Put); ok {
		return &messages.PutError{Queue: q.Queue, ID: m.Envelope.ID, Reason: gone.Reason}
	}
	return err
}

// WhenEnded calls fn once the last of the broker's actors has ended: at once, or
// when a handler that was stuck has returned. fn must not block.
func (b *Broker) WhenEnded(fn func()) {
	b.Desk.TellEnd(answerWith(func(messages.Answer) { fn() }))
}

// Find looks a queue up for an operation. Errors: [*messages.QueueNotFoundError],
// [messages.ErrBrokerClosed].
func (b *Broker) Find(op, queue string) (*Queue, error) {
	if q, ok := b.Queue(queue); ok {
		return q, nil
	}
	if b.Closing() {
		return nil, messages.ErrBrokerClosed
	}
	return nil, &messages.QueueNotFoundError{Op: op, Queue: queue}
}

// AskQueue is Ask for the queue of that name.
func (b *Broker) AskQueue(ctx context.Context, op, queue string, cmd messages.Command) (messages.Answer, error) {
	q, err := b.Find(op, queue)
	if err != nil {
		return messages.Answer{}, err
	}
	return b.AskAt(ctx, op, q, cmd)
}

// SettleDelivery implements [messages.Settler]: the verbs of a Delivery.
func (b *Broker) SettleDelivery(ctx context.Context, s messages.Settlement) (time.Time, error) {
	a, err := b.AskQueue(ctx, s.Verb.String(), s.Receipt.Queue, &messages.Settle{Settlement: s})
	return a.At, err
}

// AskDesk, AskPool and AskRouter are Ask for the three rooms.
func (b *Broker) AskDesk(ctx context.Context, op string, cmd messages.Command) (messages.Answer, error) {
	return b.Ask(ctx, op, b.queueDesk, cmd)
}

// AskPool asks the actor that starts and ends consumers.
func (b *Broker) AskPool(ctx context.Context, op string, cmd messages.Command) (messages.Answer, error) {
	return b.Ask(ctx, op, b.pool, cmd)
}

// AskRouter asks the topic router.
func (b *Broker) AskRouter(ctx context.Context, op string, cmd messages.Command) (messages.Answer, error) {
	return b.Ask(ctx, op, b.Router, cmd)
}

// Get asks a queue for one message and takes the request out of line when ctx ends
// first (SPEC C6).
func (b *Broker) Get(ctx context.Context, queue string, config messages.GetConfig) (*messages.Delivery, error) {
	q, err := b.Find("get", queue)
	if err != nil {
		return nil, err
	}
	m := &messages.Get{GetConfig: config}
	a, err := b.AskAt(ctx, "get", q, m)
	if err != nil {
		var ended *messages.OutcomeError
		if errors.As(err, &ended) && ended.Sent && !errors.Is(err, actorkit.ErrCrashed) {
			q.Address.Send(&CancelGet{Get: m})
			// No lease is left behind, so for a get the outcome is known: nothing.
			return nil, &messages.OutcomeError{Op: "get", Cause: ended.Cause}
		}
		return nil, err
	}
	return a.Value.(*messages.Delivery), nil
}

// closeGrace is how long Close waits for handlers that were told to stop, and for
// our own actors, before it says what is left.
const closeGrace = 5 * time.Second

// Close ends the broker (SPEC B5): hand-overs first; running handlers may end until
// ctx does, then their contexts are cancelled; queues are closed, waiters answered,
// actors stopped. Twice is harmless. Errors: [*StuckError] for handlers that did not
// return even so.
func (b *Broker) Close(ctx context.Context) error {
	if b.closing.Swap(true) {
		return nil
	}
	for _, q := range (&queueDesk{broker: b}).sorted() {
		q.Address.Send(&endHandOvers{queue: q}) // before its consumers give anything back
	}
	stuck := b.closeConsumers(ctx)
	b.patiently(b.queueDesk, &closeQueues{})
	b.System.Stop(b.Desk)
	if stuck != nil {
		return stuck // the tree ends when the last handler returns
	}
	ended := b.runtime.NewCell()
	b.Desk.TellEnd(ended.Ref())
	wait, cancel := b.runtime.WithTimeout(b.background(), closeGrace)
	defer cancel()
	if _, err := ended.Wait(wait); err != nil {
		return &StuckError{}
	}
	return nil
}

// StuckError is a Close that left handlers, or subscribers, behind which did not
// return after they were told to. Their goroutines end when they do.
type StuckError struct{ Consumers []string }

func (e *StuckError) Error() string {
	if len(e.Consumers) == 0 {
		return "close: a subscriber or an actor of the broker still runs"
	}
	return "close: handlers still run: " + strings.Join(e.Consumers, ", ")
}

// Hint says what to do.
func (e *StuckError) Hint() string { return "make the handlers return when their context ends" }

func (b *Broker) closeConsumers(ctx context.Context) error {
	if _, err := b.insist(ctx, b.pool, &closeConsumers{}); err == nil {
		return nil
	}
	b.pool.Send(&abortConsumers{})
	if b.patiently(b.pool, &closeConsumers{}) {
		return nil
	}
	a, err := b.insist(b.background(), b.pool, &livingConsumers{}) // the pool itself never blocks
	if err != nil {
		return err
	}
	return &StuckError{Consumers: a.Value.([]string)}
}

// patiently asks and waits for closeGrace; it reports whether it was done.
func (b *Broker) patiently(to *actorkit.Address, cmd messages.Command) bool {
	wait, cancel := b.runtime.WithTimeout(b.background(), closeGrace)
	defer cancel()
	_, err := b.insist(wait, to, cmd)
	return err == nil
}

// insist asks one of our own actors, and again when it crashed on that: asking twice to
// close is harmless, and to go on without it would cut off what still runs. Errors: ctx
// ended first, or it crashes each time.
func (b *Broker) insist(ctx context.Context, to *actorkit.Address, cmd messages.Command) (messages.Answer, error) {
	for tries := 0; ; tries++ {
		cell := b.runtime.NewCell()
		cmd.AnswerTo(cell.Ref())
		to.Send(cmd)
		a, err := cell.Wait(ctx)
		if err == nil {
			err = a.Err
		}
		if !errors.Is(err, actorkit.ErrCrashed) || tries == triesMax {
			return a, err
		}
	}
}
