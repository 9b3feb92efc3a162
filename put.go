package postroom

import (
	"context"
	"fmt"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// Put adds a message to a queue and returns when the queue has taken it. The
// message's Body, Headers and Extra are handed over: do not change them afterwards.
//
// A nil error means accepted and says nothing of the work (SPEC G1). A Duplicate
// result means that a message with this id is in the queue already, or was within
// the DedupWindow; nothing was changed.
//
// Errors: [*QueueFullError]; [*PutError] for an id that was given to another body,
// a deadline already past, or a draining or closed queue; [*QueueNotFoundError];
// [*LimitError], [*ArgumentError]; [*OutcomeError] when ctx ends first: repeat the
// put with the same id.
func (b *Broker) Put(ctx context.Context, queue string, e Envelope) (PutResult, error) {
	q, err := b.core.Find("put", queue)
	if err != nil {
		return PutResult{}, err
	}
	if err := b.core.Limits.Check("put", &e); err != nil {
		return PutResult{}, err
	}
	m := &actors.Put{Put: messages.Put{Envelope: e}, Given: e.ID != ""}
	if !m.Given {
		m.Envelope.ID = b.core.NewID()
	}
	a, err := b.core.AskAt(ctx, "put", q, m)
	return PutResult{ID: m.Envelope.ID, Duplicate: a.N == 1, Err: err}, err
}

// PutBatch adds messages in order, in one command, each on its own: one refused
// message leaves the others alone. The error is about the batch as a whole; then
// no result is known.
//
// Errors: [*LimitError] or [*ArgumentError] when a message of the batch could be
// accepted by no queue: nothing was sent then, and the error says which it is.
// Others as for [Broker.Put] for the batch; in the results those of each message.
func (b *Broker) PutBatch(ctx context.Context, queue string, batch []Envelope) ([]PutResult, error) {
	q, err := b.core.Find("put", queue)
	if err != nil {
		return nil, err
	}
	if len(batch) == 0 {
		return nil, &ArgumentError{Op: "put", Argument: "batch", Problem: "must not be empty"}
	}
	for i := range batch {
		e := &batch[i]
		if b.core.Limits.Check("put", e) != nil {
			return nil, b.core.Limits.Check(fmt.Sprintf("put batch[%d]", i), e) // says which
		}
	}
	puts := b.core.Puts.Borrow(len(batch))
	q.PrepareAll(*puts, batch)
	a, err := b.core.AskAt(ctx, "put", q, &actors.PutBatch{Puts: *puts})
	if err != nil {
		return nil, err // and the queue may have the puts still
	}
	b.core.Puts.Return(puts)
	return a.Value.([]PutResult), nil
}

// PublisherConfig says how a Publisher behaves when its window is full.
type PublisherConfig struct {
	// Window is how many puts may count at once. Zero: 1,024. Who waits for room goes on
	// when half of it is free.
	Window int
	// UntilSettled counts a message until it was acked or died, so that a fast
	// producer waits for its workers; without it, until the queue took the put.
	UntilSettled bool
	// NoWait answers ErrBusy at once when the window is full.
	NoWait bool
	// OnResult is told the result of each put, in put order, on a goroutine of its
	// own. nil: results are only counted, and errors kept for Flush.
	OnResult func(PutResult)
}

// DefaultWindow is a Publisher's window when none is given.
const DefaultWindow = 1024

// Publisher puts without waiting for each answer; its window keeps a flood of puts
// from growing the queue's mailbox (SPEC A3). It may be used from several
// goroutines; put order is then that of each.
type Publisher struct {
	broker *Broker
	window *actors.Window
	noWait bool
	report *actorkit.Address // runs OnResult
}

// Publisher returns a publisher for one queue.
// Errors: [*QueueNotFoundError], [*ArgumentError].
func (b *Broker) Publisher(ctx context.Context, queue string, config PublisherConfig) (*Publisher, error) {
	q, err := b.core.Find("publisher", queue)
	if err != nil {
		return nil, err
	}
	if config.Window < 0 {
		return nil, &ArgumentError{Op: "publisher", Argument: "Window", Problem: "must not be negative"}
	}
	if config.Window == 0 {
		config.Window = DefaultWindow
	}
	p := &Publisher{broker: b, window: actors.NewWindow(b.core, q, config.Window, config.UntilSettled), noWait: config.NoWait}
	if config.OnResult != nil {
		a, err := b.core.AskPool(ctx, "publisher", &actors.StartReporter{Handle: func(r PutResult) { config.OnResult(r) }})
		if err != nil {
			return nil, err
		}
		p.report = a.Value.(*actorkit.Address)
		p.window.Report = func(id string, a messages.Answer) {
			p.report.Send(&PutResult{ID: id, Duplicate: a.N == 1, Err: a.Err})
		}
	}
	return p, nil
}

// Put sends a message and returns its id. It waits while the window is full.
// A nil error means sent; whether the queue took it is told to OnResult and Flush.
//
// Errors: [ErrBusy] with NoWait; [*OutcomeError] (not sent) when ctx ends first;
// [*LimitError], [*ArgumentError], [ErrBrokerClosed].
func (p *Publisher) Put(ctx context.Context, e Envelope) (string, error) {
	core := p.broker.core
	if core.Closing() {
		return "", ErrBrokerClosed
	}
	if err := core.Limits.Check("put", &e); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", &OutcomeError{Op: "put", Cause: context.Cause(ctx)}
	}
	if err := p.window.Enter(ctx, core.Runtime(), 1, p.noWait); err != nil {
		return "", err
	}
	if core.Closing() { // while it waited for its place
		p.window.Withdraw(1)
		return "", ErrBrokerClosed
	}
	return p.window.Post(&e), nil
}

// Flush waits until every put sent so far was accepted or refused, and returns the
// refusals since the last Flush, joined; at most 16 of them, the rest counted. It
// does not wait for the work. Errors: also [*OutcomeError] when ctx ends first.
func (p *Publisher) Flush(ctx context.Context) error {
	return p.window.Flush(ctx, p.broker.core.Runtime())
}
