package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom"
)

// Work is what is done for one kind of message, over a store whose transactions are T.
type Work[T any] struct {
	// Operation and Caller scope the keys; see [Key]. An empty Caller is the queue.
	Operation, Caller string

	// Check refuses a payload that cannot be worked on, such as a negative amount: its
	// error parks the message at once. nil: every payload is good.
	Check func(d *postroom.Delivery) error

	// Canonical makes payloads that mean the same the same bytes, for the comparison
	// with the key's. nil: [Canonical] where ContentType is JSON, otherwise the body as
	// it is.
	Canonical func(body []byte) ([]byte, error)

	// Deadline reads a business deadline out of the payload; a zero time is none. Prefer
	// ExpiresAt of the envelope, which the queue itself watches. nil: only that.
	Deadline func(d *postroom.Delivery) (time.Time, error)

	// Do makes the change, in the transaction and through tx only. An error is tried
	// again by the queue, up to its MaxAttempts; postroom.Permanent parks at once, and so
	// does what no attempt can cure, postroom.ErrArgument and ErrLimit.
	Do func(ctx context.Context, tx T, d *postroom.Delivery) error

	// Applied, if set, is told of each delivery whose change was committed, or was
	// found to be there already (again). It runs before the ack; it is for counting.
	Applied func(d *postroom.Delivery, again bool)
}

// ErrTooLate is a business deadline that passed before the work began; see
// [ExpiredError].
var ErrTooLate = errors.New("expired")

// ExpiredError is a message whose business deadline had passed when its handler got it:
// the work was not begun. Unwraps to [ErrTooLate].
//
// When the deadline was the envelope's ExpiresAt it is an ordinary failure, and the
// queue, which knows that instant too, buries the message with reason expired, or
// max_attempts if this was the last. When it was read from the payload it is
// postroom.Permanent: the queue cannot know, so the reason is rejected. The error says
// expired each time.
type ExpiredError struct {
	At, Now     time.Time
	FromPayload bool
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("expired at %s, %s before it was to be worked on", e.At.UTC().Format(time.RFC3339Nano), e.Now.Sub(e.At))
}

// Unwrap returns [ErrTooLate], marked where no retry can help.
func (e *ExpiredError) Unwrap() error {
	if e.FromPayload {
		return postroom.Permanent(ErrTooLate)
	}
	return ErrTooLate
}

// Hint says what to do.
func (e *ExpiredError) Hint() string {
	return "add workers so that it waits less, or give it a later deadline; do not redrive what nobody wants any more"
}

// Handler joins a lease to an effect: it returns the handler for a consumer that
// checks a delivery, makes its change by [Apply] and, by returning nil, acks after the
// commit.
//
//	delivery ──deadline?──▶ Check ──▶ Apply(Do) ──commit──▶ nil: ack
//	               │          │          │
//	            expired    dead at    error: nack, later again; Permanent, key reused:
//	                        once      dead at once; lease lost: rolled back, no answer
//
// The message's id is the key, so it must be the business identity: the same for every
// put of one operation. The consumer keeps the lease alive meanwhile (its Heartbeat)
// and ends the context when the lease is lost or HandlerTimeout passes: then the
// transaction is rolled back, even if Do never returns.
//
// Errors: [*postroom.ArgumentError].
func Handler[T any](store Store[T], w Work[T]) (postroom.Handler, error) {
	bad := func(field, problem string) (postroom.Handler, error) {
		return nil, &postroom.ArgumentError{Op: "handle", Argument: field, Problem: problem}
	}
	switch {
	case isNil(store):
		return bad("store", "must not be nil")
	case w.Do == nil:
		return bad("Do", "must not be nil")
	case w.Operation == "":
		return bad("Operation", "must not be empty")
	}
	return func(ctx context.Context, d *postroom.Delivery) error { return handle(ctx, store, &w, d) }, nil
}

// Handle starts a consumer with [Handler] of the work. c.Manual must be off: the commit
// decides what is acked.
// Errors: as for [Handler] and for Consume.
func Handle[T any](ctx context.Context, b *postroom.Broker, queue string, store Store[T], w Work[T], c postroom.ConsumerConfig) (*postroom.Consumer, error) {
	if b == nil {
		return nil, &postroom.ArgumentError{Op: "handle", Argument: "broker", Problem: "must not be nil"}
	}
	if c.Manual {
		return nil, &postroom.ArgumentError{Op: "handle", Argument: "Manual", Problem: "must be off: the handler's return settles"}
	}
	handler, err := Handler(store, w)
	if err != nil {
		return nil, err
	}
	return b.Consume(ctx, queue, handler, c)
}

func handle[T any](ctx context.Context, store Store[T], w *Work[T], d *postroom.Delivery) error {
	if err := tooLate(store.Clock().Now(), w.Deadline, d); err != nil {
		return err
	}
	if w.Check != nil {
		if err := w.Check(d); err != nil {
			return postroom.Permanent(err)
		}
	}
	payload, err := canonical(w.Canonical, d)
	if err != nil {
		return postroom.Permanent(err)
	}
	key := Key{Caller: w.Caller, Operation: w.Operation, ID: d.ID}
	or(&key.Caller, d.Queue())
	applied, err := Apply(ctx, store, key, payload, func(tx T) error { return w.Do(ctx, tx, d) })
	switch {
	case errors.Is(err, postroom.ErrArgument), errors.Is(err, postroom.ErrLimit):
		return postroom.Permanent(err) // such as an id or a body that no key can hold
	case err != nil:
		return err
	}
	if w.Applied != nil {
		w.Applied(d, !applied)
	}
	return nil
}

func tooLate(now time.Time, read func(*postroom.Delivery) (time.Time, error), d *postroom.Delivery) error {
	if d.Details != nil && !d.ExpiresAt.IsZero() && !now.Before(d.ExpiresAt) {
		return &ExpiredError{At: d.ExpiresAt, Now: now}
	}
	if read == nil {
		return nil
	}
	at, err := read(d)
	if err != nil {
		return postroom.Permanent(err)
	}
	if !at.IsZero() && !now.Before(at) {
		return &ExpiredError{At: at, Now: now, FromPayload: true}
	}
	return nil
}

func canonical(fn func([]byte) ([]byte, error), d *postroom.Delivery) ([]byte, error) {
	if fn != nil {
		return fn(d.Body)
	}
	if d.Details != nil {
		kind, _, _ := strings.Cut(d.ContentType, ";")
		if kind = strings.TrimSpace(strings.ToLower(kind)); kind == "application/json" || strings.HasSuffix(kind, "+json") {
			return Canonical(d.Body)
		}
	}
	return d.Body, nil
}
