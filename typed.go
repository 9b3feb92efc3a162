package postroom

import (
	"context"
	"encoding/json"
	"fmt"
)

// Codec turns values into bodies and back.
type Codec[T any] interface {
	Encode(value T) (body []byte, contentType string, err error)
	Decode(body []byte) (T, error)
}

// JSON is the codec that Typed uses unless it is given another.
type JSON[T any] struct{}

// Encode implements [Codec].
func (JSON[T]) Encode(value T) ([]byte, string, error) {
	body, err := json.Marshal(value)
	return body, "application/json", err
}

// Decode implements [Codec].
func (JSON[T]) Decode(body []byte) (value T, err error) {
	err = json.Unmarshal(body, &value)
	return value, err
}

// Typed is a queue of values instead of bytes.
type Typed[T any] struct {
	broker *Broker
	queue  string
	codec  Codec[T]
}

// NewTyped returns a typed view of a queue. codec may be nil: JSON.
// Errors: [*QueueNotFoundError], [*ArgumentError] for a nil broker.
func NewTyped[T any](b *Broker, queue string, codec Codec[T]) (*Typed[T], error) {
	if b == nil {
		return nil, &ArgumentError{Op: "typed", Argument: "broker", Problem: "must not be nil"}
	}
	if _, err := b.core.Find("typed", queue); err != nil {
		return nil, err
	}
	if codec == nil {
		codec = JSON[T]{}
	}
	return &Typed[T]{b, queue, codec}, nil
}

// Put adds a value. id may be empty. Errors: [*ArgumentError] when the value cannot
// be encoded, else as for [Broker.Put].
func (t *Typed[T]) Put(ctx context.Context, id string, value T) (PutResult, error) {
	body, contentType, err := t.codec.Encode(value)
	if err != nil {
		return PutResult{}, &ArgumentError{Op: "put", Argument: "value", Problem: "cannot be encoded: " + err.Error()}
	}
	return t.broker.Put(ctx, t.queue, Envelope{ID: id, Body: body, ContentType: contentType})
}

// Consume runs handler for values; see [Broker.Consume]. A body that does not decode
// is rejected: no retry would cure it.
func (t *Typed[T]) Consume(ctx context.Context, handler func(ctx context.Context, value T, d *Delivery) error, config ConsumerConfig) (*Consumer, error) {
	if handler == nil {
		return nil, &ArgumentError{Op: "consume", Argument: "handler", Problem: "must not be nil"}
	}
	return t.broker.Consume(ctx, t.queue, func(ctx context.Context, d *Delivery) error {
		value, err := t.codec.Decode(d.Body)
		if err != nil {
			return Permanent(fmt.Errorf("decode body: %w", err))
		}
		return handler(ctx, value, d)
	}, config)
}

// Get takes one value; see [Broker.Get]. A body that does not decode is rejected and
// the error returned.
func (t *Typed[T]) Get(ctx context.Context, config GetConfig) (T, *Delivery, error) {
	var zero T
	d, err := t.broker.Get(ctx, t.queue, config)
	if err != nil {
		return zero, nil, err
	}
	value, err := t.codec.Decode(d.Body)
	if err != nil {
		err = fmt.Errorf("decode body: %w", err)
		_ = d.Reject(ctx, err) // best effort: if it fails the lease runs out and the next one rejects it
		return zero, nil, err
	}
	return value, d, nil
}
