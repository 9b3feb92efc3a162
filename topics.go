package postroom

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
)

// Publish hands an event to every subscriber and every bound queue whose pattern
// matches the topic, and returns when each of those queues has answered; it waits
// for no subscriber to run (SPEC T5). The envelope's own Topic is overwritten.
//
// Errors: [*ArgumentError] for an empty topic or one below $sys., which is the
// broker's own; [*LimitError]; [*OutcomeError] when ctx ends first.
func (b *Broker) Publish(ctx context.Context, topic string, e Envelope) (PublishResult, error) {
	e.Topic = topic
	if err := b.core.CheckPublish(&e); err != nil {
		return PublishResult{}, err
	}
	a, err := b.core.AskRouter(ctx, "publish", &messages.Publish{Envelope: e})
	if err != nil {
		return PublishResult{}, err
	}
	return a.Value.(PublishResult), nil
}

// Subscription is a running subscription and how it ends.
type Subscription struct {
	// Name is sub-1, sub-2, …
	Name   string
	broker *Broker
	actor  *actorkit.Address
}

// Subscribe calls fn for each publication that matches the pattern, one after the
// other on a goroutine of its own; fn may block. Up to 1,024 events wait for it; one
// more is dropped for it and counted. A panic in fn costs that event only.
//
// In a pattern, * stands for exactly one word and # for any number of words.
// System events are on $sys.dead.<queue>, $sys.alarm.<queue>,
// $sys.consumer.stopped.<queue> and $sys.quarantined.<queue>.
//
// Errors: [*ArgumentError], [*LimitError].
func (b *Broker) Subscribe(ctx context.Context, pattern string, fn func(subscription string, e *Event)) (*Subscription, error) {
	if fn == nil {
		return nil, &ArgumentError{Op: "subscribe", Argument: "fn", Problem: "must not be nil"}
	}
	if err := messages.CheckPattern("subscribe", "pattern", pattern); err != nil {
		return nil, err
	}
	a, err := b.core.AskRouter(ctx, "subscribe", &router.Subscribe{Pattern: pattern, Handle: fn})
	if err != nil {
		return nil, err
	}
	s := a.Value.(router.Subscribed)
	return &Subscription{Name: s.Name, broker: b, actor: s.Actor}, nil
}

// Done is closed when the subscription has ended and its function has returned.
func (s *Subscription) Done() <-chan struct{} { return s.actor.Done() }

// Err is nil while the subscription lives and after Unsubscribe, and
// [ErrBrokerClosed] when the broker's end ended it.
func (s *Subscription) Err() error {
	if s.actor.Ended() && s.broker.core.Closing() {
		return ErrBrokerClosed
	}
	return nil
}

// Unsubscribe ends a subscription. An event already in its function is finished;
// those that wait are dropped. Errors: [*NotFoundError].
func (b *Broker) Unsubscribe(ctx context.Context, subscription string) error {
	_, err := b.core.AskRouter(ctx, "unsubscribe", &messages.Unsubscribe{Subscription: subscription})
	return err
}

// Unsubscribe ends the subscription; see [Broker.Unsubscribe].
func (s *Subscription) Unsubscribe(ctx context.Context) error {
	return s.broker.Unsubscribe(ctx, s.Name)
}

// Bind copies every publication that matches the pattern into the queue. The same
// binding twice is one, and a queue with several matching bindings gets one copy.
// Errors: [*QueueNotFoundError], [*ArgumentError], [*LimitError].
func (b *Broker) Bind(ctx context.Context, queue, pattern string) error {
	q, err := b.core.Find("bind", queue)
	if err != nil {
		return err
	}
	if err := messages.CheckPattern("bind", "pattern", pattern); err != nil {
		return err
	}
	_, err = b.core.AskRouter(ctx, "bind", &router.Bind{Queue: queue, To: q.Address, Pattern: pattern})
	return err
}

// Unbind undoes a Bind. Errors: [*QueueNotFoundError], [*NotFoundError].
func (b *Broker) Unbind(ctx context.Context, queue, pattern string) error {
	if _, err := b.core.Find("unbind", queue); err != nil {
		return err
	}
	_, err := b.core.AskRouter(ctx, "unbind", &router.Unbind{Queue: queue, Pattern: pattern})
	return err
}

// ---- dead letters ----

// DeadLetters reads up to n letters of a queue, oldest first, with a Number above
// after: begin with 0 and go on with the last Number read.
// Errors: [*QueueNotFoundError], [*ArgumentError].
func (b *Broker) DeadLetters(ctx context.Context, queue string, after uint64, n int) ([]DeadLetter, error) {
	if n < 0 {
		return nil, &ArgumentError{Op: "dead letters", Argument: "n", Problem: "must not be negative"}
	}
	a, err := b.core.AskQueue(ctx, "dead letters", queue, &messages.DeadLettersQuery{After: after, N: n})
	if err != nil {
		return nil, err
	}
	return a.Value.([]DeadLetter), nil
}

// Discard removes dead letters by message id and says how many there were.
// Errors: [*QueueNotFoundError].
func (b *Broker) Discard(ctx context.Context, queue string, ids ...string) (int, error) {
	a, err := b.core.AskQueue(ctx, "discard", queue, &messages.Discard{IDs: ids})
	return int(a.N), err
}

// RedriveConfig says where dead letters go, how fast and how many.
type RedriveConfig struct {
	// To is the target queue. Empty: the queue they died in.
	To string
	// Rate is letters a second: in any time w at most Rate*w + 1 move. Zero: 100.
	Rate float64
	// Max bounds the letters tried. Zero: all that are dead when it starts.
	Max int
}

// Redrive moves dead letters back to work, oldest first, at a bounded rate, with a
// fresh attempt budget and their identity and history kept (SPEC R8). A letter
// leaves only when the target has taken it; one whose id is taken there stays and
// is counted as skipped. Ending ctx cancels it.
//
// Errors: [*QueueNotFoundError], [*ArgumentError]; [*OutcomeError] when ctx ends
// first: letters may have moved. A target that refuses is in Redriven.Stopped.
func (b *Broker) Redrive(ctx context.Context, queue string, config RedriveConfig) (Redriven, error) {
	m := &messages.Redrive{Queue: queue, To: config.To, Rate: config.Rate, Max: config.Max}
	a, err := b.core.AskPool(ctx, "redrive", m)
	if err != nil {
		return Redriven{}, err
	}
	return a.Value.(Redriven), nil
}

func gone(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrQueueClosed) || errors.Is(err, ErrBrokerClosed)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
