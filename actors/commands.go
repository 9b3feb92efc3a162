package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// What our own actors say to each other, and the door to them, beyond package
// messages.
type (
	// Put is messages.Put from the door, which has made the id.
	Put struct {
		messages.Put
		// Given says that the caller chose the id, so it is indexed (SPEC E3).
		Given bool
		past  *ledger.Past // of a letter that comes from another queue (SPEC R8)
	}

	// PutBatch is messages.PutBatch with the ids made.
	PutBatch struct {
		messages.Asked
		Puts []ledger.Put
	}

	// CancelGet takes a waiting Get out of line (SPEC C6).
	CancelGet struct{ Get *messages.Get }

	// EndHolder says that a session has ended (SPEC Q17).
	EndHolder struct {
		messages.Asked
		Holder string
	}

	// redriveLetter moves one letter back into its own queue.
	redriveLetter struct {
		messages.Asked
		number uint64
	}

	// removeLetter drops a letter that another queue has taken.
	removeLetter struct {
		messages.Asked
		again
		queue  *Queue
		number uint64
	}

	// endHandOvers says that the broker closes: who waits for a message is told, and
	// nothing is handed over any more. Settles go on.
	endHandOvers struct {
		again
		queue *Queue
	}

	// closeQueue ends a queue (SPEC Q14). Answer.Value is messages.Deleted.
	closeQueue struct {
		messages.Asked
		ifEmpty, ifUnused bool
		reason            error
	}

	// attach makes a consumer compete on a queue. Answer.Value is what it waits for.
	attach struct {
		messages.Asked
		consumer *Consumer
	}

	// detach ends hand-overs to a consumer; detached follows, behind the last of them.
	detach struct {
		again
		consumer *consumer
	}

	// giveBack returns leases whose handler never started, and then answers.
	giveBack struct {
		messages.Asked
		again
		consumer *consumer
		slots    []*slot
	}

	// keepAlive says which handlers have begun since the last one, and touches the
	// leases that a consumer keeps (SPEC C3, C4).
	keepAlive struct {
		again
		consumer *consumer
		started  []uint64
		touch    []*slot
	}

	// crashed says that the handler of a lease panicked (SPEC S1).
	crashed struct {
		again
		consumer *consumer
		tag      uint64
		err      string
	}

	// holderEnded says that a consumer is gone for good.
	holderEnded struct {
		again
		queue *Queue
		tag   string
	}

	// effectivePrefetch is the prefetch that the workers still standing can serve.
	effectivePrefetch struct {
		again
		consumer *consumer
		n        int
	}

	// ring is the queue's alarm clock.
	ring struct{}
)

// What a queue says to a consumer, besides *chunk.
type (
	detached  struct{}
	leaseLost struct{ tag uint64 }
	queueGone struct{ reason error }
)

// What the pool and the door say to a consumer.
type (
	// stopConsumer ends it: no new deliveries, unstarted ones go back, running ones
	// end by themselves. Answered when what had not started is back.
	stopConsumer struct {
		messages.Asked
		again
		to     *actorkit.Address // where it was sent
		queue  *Queue            // where an embedder's actor is attached; nil for one of ours
		tag    string
		reason error // nil: cancelled
		// holderGone: the embedder's actor has ended, and holds nothing any more.
		holderGone bool
	}

	// abort cancels the contexts of running handlers.
	abort struct{ cause error }

	// returned says that a flagged slot's handler has returned.
	returned struct{ slot *slot }

	// tick is a consumer's alarm clock, firstTick asks for it to be set.
	tick      struct{}
	firstTick struct{}

	// restart is the end of a crashed worker's wait.
	restart struct{ worker *worker }

	// wake tells a worker that its inbox is not empty.
	wake struct{}
)

// What the door says to the pool.
type (
	// StartConsumer makes a consumer with a handler. Answer.Value is a *Consumer.
	StartConsumer struct {
		messages.Asked
		Queue   string
		Config  messages.ConsumerConfig
		Handler Handler
	}

	consumeNative struct {
		messages.Consume
		to *actor.PID
	}

	// consumerGone tells the pool that a consumer's actor may be forgotten. mayHold
	// says that an embedder's actor may still hold leases of it.
	consumerGone struct {
		consumer *Consumer
		mayHold  bool
	}

	// closeConsumers ends them all; answered when the last has ended.
	closeConsumers struct{ messages.Asked }

	// closeQueues ends every queue; answered when the last has.
	closeQueues struct{ messages.Asked }
)

// again sends a message once more whose loss would leave a consumer waiting or
// its credit spent: the actor that crashed on it has restarted. The number of
// tries is bounded, so that a message that always crashes ends.
type again struct{ tries uint8 }

const triesMax = 3

func (a *again) retry(to *actorkit.Address, msg any, err error) bool {
	if !a.mayRetry(err) {
		return false
	}
	to.Send(msg)
	return true
}

// mayRetry counts a try, and says whether there is one.
func (a *again) mayRetry(err error) bool {
	if !errors.Is(err, actorkit.ErrCrashed) || a.tries >= triesMax {
		return false
	}
	a.tries++
	return true
}

// Fail tells the consumer that its queue is gone, unless that has only crashed.
func (m *detach) Fail(err error) {
	if !m.retry(m.consumer.queue.Address, m, err) {
		m.consumer.self.Send(&queueGone{reason: err})
	}
}

// Fail answers as if done: what a queue that is gone had lent is gone with it.
func (m *giveBack) Fail(err error) {
	if !m.retry(m.consumer.queue.Address, m, err) {
		m.Reply.Resolve(messages.Answer{})
	}
}

// Fail tries again: which handlers have begun is said only once.
func (m *keepAlive) Fail(err error) { m.retry(m.consumer.queue.Address, m, err) }

// Fail tries again: the letter has moved, and must not stay here as well.
func (m *removeLetter) Fail(err error) {
	if !m.retry(m.queue.Address, m, err) {
		m.Asked.Fail(err)
	}
}

// Fail tries again.
func (m *endHandOvers) Fail(err error) { m.retry(m.queue.Address, m, err) }

// Fail tries again, and at a queue only where nobody waits for an answer and could ask
// again himself. A consumer whose actor has ended is not there any more, whoever asked.
func (m *stopConsumer) Fail(err error) {
	if (m.queue == nil || m.Reply.IsZero()) && m.to != nil && m.retry(m.to, m, err) {
		return
	}
	if errors.Is(err, actorkit.ErrStopped) {
		err = &messages.NotFoundError{Op: "cancel", What: "consumer", Name: m.tag}
	}
	m.Asked.Fail(err)
}

// Fail tries again.
func (m *crashed) Fail(err error) { m.retry(m.consumer.queue.Address, m, err) }

// Fail tries again; as often as it takes when the crash was a settle's.
func (m *holderEnded) Fail(err error) {
	if r := m.queue.returns; r != nil && r.taking && errors.Is(err, actorkit.ErrCrashed) {
		m.queue.Address.PutBack(m)
		return
	}
	m.retry(m.queue.Address, m, err)
}

// Fail tries again.
func (m *effectivePrefetch) Fail(err error) { m.retry(m.consumer.queue.Address, m, err) }

func errMore(n int) error { return fmt.Errorf("and %d more", n) }

// StartReporter makes an actor that runs a publisher's callback, result by result.
// Answer.Value is its *actorkit.Address; it takes *messages.PutResult.
type StartReporter struct {
	messages.Asked
	Handle func(messages.PutResult)
}

// reporter runs user code and may block.
type reporter struct{ handle func(messages.PutResult) }

// Receive implements [actorkit.Actor].
func (r reporter) Receive(_ *actorkit.Context, msg any) {
	if m, ok := msg.(*messages.PutResult); ok {
		r.handle(*m)
	}
}
