package worker

import (
	"context"
	"reflect"
	"time"

	"github.com/postroom/postroom/messages"
)

// PayloadBytesMax bounds what is kept with a key; StoreConfig.HashPayloads keeps 32
// bytes whatever the size.
const PayloadBytesMax = 16 << 20

// Apply makes a change once. In one transaction it records the key with its payload
// and calls fn for the change; a crash leaves both or neither. A key that is known with
// the same payload is skipped: false and no error.
//
//	BEGIN ──▶ record key ──new──▶ fn: change, outbox ──▶ COMMIT ──▶ true:  ack now
//	              │
//	              └─known──▶ same payload? ─yes─▶ ROLLBACK ───────▶ false: ack now
//	                              └─no──▶ KeyReusedError:  park
//
// fn must write through tx only, and do nothing that a rollback does not undo. When
// ctx ends before the commit the transaction is rolled back, even if fn never returns:
// a worker that lost its lease, or ran out of time, changes nothing.
//
// The promise holds for as long as the key is kept; see [Prune]. Give Apply the
// canonical payload (see [Canonical]): it is compared byte by byte.
//
// Errors: fn's own, unchanged, and nothing has happened; [*KeyReusedError];
// [*StoreError], which says whether it may have happened; [*postroom.ArgumentError],
// [*postroom.LimitError].
func Apply[T any](ctx context.Context, store Store[T], key Key, payload []byte, fn func(tx T) error) (applied bool, err error) {
	if isNil(store) {
		return false, &messages.ArgumentError{Op: "apply", Argument: "store", Problem: "must not be nil"}
	}
	if fn == nil {
		return false, &messages.ArgumentError{Op: "apply", Argument: "fn", Problem: "must not be nil"}
	}
	if err := key.check("apply"); err != nil {
		return false, err
	}
	if n := len(payload); n > PayloadBytesMax {
		return false, &messages.LimitError{Op: "apply", What: "payload bytes", Limit: PayloadBytesMax, Got: int64(n)}
	}
	row := KeyRow{Key: key, Payload: payload, AppliedAt: store.Clock().Now()}
	err = store.Transact(ctx, func(tx T) error {
		applied = false // a store may run this again
		// The key first: its write takes the lock that makes a second transaction with
		// this key wait, so that it then sees the key.
		prior, err := store.PutKey(ctx, tx, row)
		if err != nil {
			return err
		}
		if prior != nil {
			if !prior.Same(payload) {
				return &KeyReusedError{Key: key, AppliedAt: prior.AppliedAt}
			}
			return nil
		}
		applied = true
		return fn(tx)
	})
	return applied && err == nil, err
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// Defaults of [PruneConfig] and [RedriveConfig]. A key must be kept for longer than a
// dead letter may lie before it is redriven, and the difference covers the time that a
// message may spend in its queue before it dies.
const (
	DefaultWindow    = 14 * 24 * time.Hour
	DefaultRetention = 7 * 24 * time.Hour // of dead letters that Redrive takes without Force
)

// PruneConfig says what [Prune] removes. A zero field means its default.
type PruneConfig struct {
	// Window is how long keys are kept. Deleting one sooner than a message can come
	// back makes that message work again, so it must be longer than the longest way of
	// a message: its time in the queue, and the retention of dead letters. Zero: 14 days.
	Window time.Duration
	// SentWindow is how long sent intents are kept, to be looked at. Zero: a day.
	SentWindow time.Duration
	// Batch is how many rows one transaction removes, so that no writer waits long.
	// Zero: 1,000.
	Batch int
	// Batches bounds one call. Zero: 1,000.
	Batches int
}

// Pruned is what Prune removed.
type Pruned struct {
	Keys, Intents int
	// More says that Batches ended it before all was removed.
	More bool
}

// Prune removes keys whose window has passed and intents that were sent, oldest
// first, in bounded batches. Call it now and then; two at once are harmless.
// Errors: [*StoreError]; what was removed before stays removed.
// [*postroom.ArgumentError].
func Prune[T any](ctx context.Context, store Store[T], c PruneConfig) (p Pruned, err error) {
	if isNil(store) {
		return p, &messages.ArgumentError{Op: "prune", Argument: "store", Problem: "must not be nil"}
	}
	if c.Window < 0 || c.SentWindow < 0 || c.Batch < 0 || c.Batches < 0 {
		return p, &messages.ArgumentError{Op: "prune", Argument: "config", Problem: "must not be negative"}
	}
	or(&c.Window, DefaultWindow)
	or(&c.SentWindow, 24*time.Hour)
	or(&c.Batch, 1000)
	or(&c.Batches, 1000)
	now := store.Clock().Now()
	for _, of := range []struct {
		removed *int
		remove  func(tx T) (int, error)
	}{
		{&p.Keys, func(tx T) (int, error) { return store.PruneKeys(ctx, tx, now.Add(-c.Window), c.Batch) }},
		{&p.Intents, func(tx T) (int, error) { return store.PruneIntents(ctx, tx, now.Add(-c.SentWindow), c.Batch) }},
	} {
		for {
			if c.Batches == 0 {
				p.More = true
				return p, nil
			}
			c.Batches--
			n := 0
			err := store.Transact(ctx, func(tx T) (err error) {
				n, err = of.remove(tx)
				return err
			})
			if err != nil {
				return p, err
			}
			*of.removed += n
			if n < c.Batch {
				break
			}
		}
	}
	return p, nil
}

func or[V comparable](v *V, fallback V) {
	var zero V
	if *v == zero {
		*v = fallback
	}
}
