package postroom

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/messages"
)

// Consumer is a running consumer: its tag, and how it ends.
type Consumer struct {
	*actors.Consumer
	broker *Broker
}

// Consume runs handler for messages of the queue, up to Concurrency at once, until
// the consumer is cancelled, its queue or the broker ends, or its handler crashes
// too often. Tags are ctag-1, ctag-2, … across all queues of the broker.
//
// nil from the handler acks, an error nacks, a [Permanent] error rejects and a
// panic is a crash: the lease then runs out and the message goes to somebody else,
// so a handler may run twice for one message, even at the same time. Its context is
// cancelled when the lease is lost ([ErrLeaseLost]), HandlerTimeout passes
// ([ErrHandlerTimeout]) or the broker closes ([ErrBrokerClosed]); it is shared by the
// deliveries of one worker, so it does not end when the handler returns.
//
// Errors: [*QueueNotFoundError], [*ArgumentError]; [*OutcomeError] when ctx ends
// first. ctx is for starting only.
func (b *Broker) Consume(ctx context.Context, queue string, handler Handler, config ConsumerConfig) (*Consumer, error) {
	if handler == nil {
		return nil, &ArgumentError{Op: "consume", Argument: "handler", Problem: "must not be nil"}
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if _, err := b.core.Find("consume", queue); err != nil {
		return nil, err
	}
	a, err := b.core.AskPool(ctx, "consume", &actors.StartConsumer{Queue: queue, Config: config, Handler: handler})
	if err != nil {
		return nil, err
	}
	return &Consumer{a.Value.(*actors.Consumer), b}, nil
}

// Cancel ends the consumer; see [Broker.Cancel].
func (c *Consumer) Cancel(ctx context.Context) error { return c.broker.Cancel(ctx, c.Tag) }

// Cancel ends hand-overs to a consumer before it returns. Messages that no handler
// has begun are back in the queue then, untried; running handlers end by themselves
// and can still settle. Consumer.Done tells when the last has.
// Errors: [*NotFoundError].
func (b *Broker) Cancel(ctx context.Context, tag string) error {
	_, err := b.core.AskPool(ctx, "cancel", &messages.Cancel{Tag: tag})
	return err
}

// SetPrefetch changes how many leases a consumer may hold; 0 halts it. Otherwise it
// must be at least the consumer's Concurrency. Errors: [*NotFoundError], [*ArgumentError].
func (b *Broker) SetPrefetch(ctx context.Context, tag string, prefetch int) error {
	if prefetch < 0 {
		return &ArgumentError{Op: "set prefetch", Argument: "prefetch", Problem: "must not be negative"}
	}
	_, err := b.core.AskPool(ctx, "set prefetch", &messages.SetPrefetch{Tag: tag, Prefetch: prefetch})
	return err
}

// Get takes one message, waiting for it in line with the consumers (SPEC C6). The
// lease is nobody's in particular: whoever has the delivery may settle it. A call
// that ends without a message leaves no lease behind.
//
// config.Session makes a session the holder, by its raw name: that of
// [Broker.Session] has "session " in front. Prefer [Session.Get], whose session can
// be closed.
//
// Errors: [ErrEmpty] with NoWait; [*QueueNotFoundError], [*QueueStateError],
// [*ArgumentError]; [*OutcomeError] (not sent) when ctx ends first.
func (b *Broker) Get(ctx context.Context, queue string, config GetConfig) (*Delivery, error) {
	if config.AckTimeout < 0 {
		return nil, &ArgumentError{Op: "get", Argument: "AckTimeout", Problem: "must not be negative"}
	}
	if config.NoTimeout && config.Session == "" {
		return nil, &ArgumentError{Op: "get", Argument: "NoTimeout", Problem: "needs a Session: the lease lasts as long as its holder"}
	}
	return b.core.Get(ctx, queue, config)
}

// ---- settling by receipt or tag ----

// Settle carries out one settlement; a touch answers the new deadline.
// Errors: [*StaleError], [*QueueNotFoundError], [*ArgumentError], [*OutcomeError].
func (b *Broker) Settle(ctx context.Context, s Settlement) (time.Time, error) {
	if err := checkSettlement(s); err != nil {
		return time.Time{}, err
	}
	return b.core.SettleDelivery(ctx, s)
}

// Settlement is one verb for one lease.
type Settlement = messages.Settlement

func checkSettlement(s Settlement) *ArgumentError {
	switch {
	case int(s.Verb) >= messages.Verbs:
		return &ArgumentError{Op: "settle", Argument: "Verb", Problem: "is unknown"}
	case s.Delay < 0:
		return &ArgumentError{Op: s.Verb.String(), Argument: "Delay", Problem: "must not be negative"}
	case s.Receipt.Tag == 0:
		return &ArgumentError{Op: s.Verb.String(), Argument: "Receipt", Problem: "has no tag: tags begin with 1"}
	}
	return nil
}

// SettleBatch settles many leases, of any queues, with one command for each queue.
// Each settlement stands on its own: a stale one fails only itself (SPEC C10). The
// results are in the order of the settlements.
// Errors: [*ArgumentError] before anything was sent; all others are in the results.
func (b *Broker) SettleBatch(ctx context.Context, settlements []Settlement) ([]SettleResult, error) {
	if len(settlements) == 0 {
		return nil, &ArgumentError{Op: "settle", Argument: "settlements", Problem: "must not be empty"}
	}
	for i := range settlements {
		if err := checkSettlement(settlements[i]); err != nil {
			err.Op = fmt.Sprintf("%s settlements[%d]", err.Op, i)
			return nil, err
		}
	}
	queue := settlements[0].Receipt.Queue
	if !slices.ContainsFunc(settlements, func(s Settlement) bool { return s.Receipt.Queue != queue }) {
		return b.settleAt(ctx, queue, settlements), nil
	}
	var queues []string // in order of first appearance
	places := map[string][]int{}
	for i := range settlements {
		q := settlements[i].Receipt.Queue
		if places[q] == nil {
			queues = append(queues, q)
		}
		places[q] = append(places[q], i)
	}
	results := make([]SettleResult, len(settlements))
	for _, q := range queues {
		part := make([]Settlement, len(places[q]))
		for n, i := range places[q] {
			part[n] = settlements[i]
		}
		for n, r := range b.settleAt(ctx, q, part) {
			results[places[q][n]] = r
		}
	}
	return results, nil
}

// settleAt settles leases of one queue.
func (b *Broker) settleAt(ctx context.Context, queue string, settlements []Settlement) []SettleResult {
	// A copy: when ctx ends first the queue has it still, and the caller has their own.
	sent := b.core.Settlements.Borrow(len(settlements))
	copy(*sent, settlements)
	a, err := b.core.AskQueue(ctx, "settle", queue, &messages.SettleBatch{Settlements: *sent})
	if err == nil {
		b.core.Settlements.Return(sent)
		return a.Value.([]SettleResult)
	}
	results := make([]SettleResult, len(settlements))
	for i := range results {
		results[i].Err = err
	}
	return results
}

// Ack finishes the delivery with this tag. It means the queue that lives now: a tag
// kept across a delete and a new declare may meet another message. Prefer
// Delivery.Ack, which is fenced (SPEC Q3). Errors: as for [Broker.Settle].
func (b *Broker) Ack(ctx context.Context, queue string, tag uint64) error {
	_, err := b.Settle(ctx, Settlement{Receipt: Receipt{Queue: queue, Tag: tag}, Verb: VerbAck})
	return err
}

// Nack gives the delivery with this tag back, to be tried again after the queue's
// retry delay. Not fenced, see [Broker.Ack].
func (b *Broker) Nack(ctx context.Context, queue string, tag uint64, cause error) error {
	_, err := b.Settle(ctx, Settlement{Receipt: Receipt{Queue: queue, Tag: tag}, Verb: VerbNack, Error: text(cause)})
	return err
}

// Reject kills the message of the delivery with this tag: dead at once, reason
// rejected. Not fenced, see [Broker.Ack].
func (b *Broker) Reject(ctx context.Context, queue string, tag uint64, cause error) error {
	_, err := b.Settle(ctx, Settlement{Receipt: Receipt{Queue: queue, Tag: tag}, Verb: VerbReject, Error: text(cause)})
	return err
}

// Touch renews the lease with this tag and answers its deadline. Not fenced, see
// [Broker.Ack].
func (b *Broker) Touch(ctx context.Context, queue string, tag uint64) (time.Time, error) {
	return b.Settle(ctx, Settlement{Receipt: Receipt{Queue: queue, Tag: tag}, Verb: VerbTouch})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return messages.CutError(err.Error())
}

// Session is a holder of leases that is no consumer: what a connection or channel
// would be (SPEC Q2). Its end returns the leases it took without a timeout.
type Session struct {
	broker *Broker
	name   string
	queues map[string]struct{}
}

// Session opens a session. The name identifies it within the broker; two sessions
// of one name are one holder, "session " and the name, see [GetConfig]. Errors: [*ArgumentError] for an empty name,
// [*LimitError] for one over 200 bytes.
// A Session is for one goroutine at a time.
func (b *Broker) Session(name string) (*Session, error) {
	if name == "" {
		return nil, &ArgumentError{Op: "session", Argument: "name", Problem: "must not be empty"}
	}
	if len(name) > messages.QueueNameBytesMax {
		return nil, &LimitError{Op: "session", What: "name bytes", Limit: messages.QueueNameBytesMax, Got: int64(len(name))}
	}
	return &Session{broker: b, name: "session " + name, queues: map[string]struct{}{}}, nil
}

// Get is [Broker.Get] with the session as the holder.
func (s *Session) Get(ctx context.Context, queue string, config GetConfig) (*Delivery, error) {
	config.Session = s.name
	d, err := s.broker.Get(ctx, queue, config)
	if err == nil {
		s.queues[queue] = struct{}{}
	}
	return d, err
}

// Close ends the session: leases without a timeout return at once as failed
// deliveries, in tag order; those with one run on and can still be settled.
// Errors: [*OutcomeError] when ctx ends first.
func (s *Session) Close(ctx context.Context) error {
	for _, q := range sortedKeys(s.queues) {
		if _, err := s.broker.core.AskQueue(ctx, "close session", q, &actors.EndHolder{Holder: s.name}); err != nil && !gone(err) {
			return err
		}
		delete(s.queues, q)
	}
	return nil
}
