package worker

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/messages"
)

// Deliver hands one intent to its receiver. nil: it was taken. An error is tried again
// after a backoff; one that is postroom.Permanent parks the intent at once. It may be
// called twice for one intent, so the receiver must tell a repetition by the ID. A
// panic goes through Dispatch and Run: of its batch nothing is marked, and all of it is
// sent again when the claim has run out.
type Deliver func(ctx context.Context, in Intent) error

// Defaults of [OutboxConfig].
const (
	DefaultBatch          = 100
	DefaultClaim          = 30 * time.Second // a queue's AckTimeout
	DefaultOutboxAttempts = 10               // with the backoff below about six minutes on average
	DefaultOutboxBase     = time.Second      // a queue's
	DefaultOutboxCap      = 5 * time.Minute  // a queue's
	DefaultPoll           = 200 * time.Millisecond
)

// OutboxConfig configures an [Outbox]. A zero field means its default.
type OutboxConfig struct {
	// Name tells the outboxes of one database apart: one for each receiver. Zero:
	// "default".
	Name string
	// Dispatcher names this dispatcher in the claims. It need not be unique. Zero: "d".
	Dispatcher string
	// Batch is how many intents one claim takes, and so how many are sent again at
	// most when a dispatcher dies. Zero: 100.
	Batch int
	// Claim is how long a claim lasts. A batch that is not sent by then is left to
	// another dispatcher. Zero: 30 s.
	Claim time.Duration
	// Attempts is how often an intent is tried before it is parked. Zero: 10.
	// postroom.Unlimited (-1): for ever.
	Attempts int
	// Base and Cap bound the wait after failure k: uniform in [0, min(Cap,
	// Base·2^(k-1))]. Zero: 1 s and 5 min.
	Base, Cap time.Duration
	// Poll is how long Run waits when nothing is due, at least. Zero: 200 ms.
	Poll time.Duration
	// Draw is where the jitter comes from. nil: seeded by the operating system.
	Draw Draw
}

// Outbox keeps intents in the database that made them true, and sends them afterwards:
//
//	Apply ──tx── change + key + Add ──COMMIT──▶ row, pending
//	                                             │ claim: in order, bounded, leased
//	                                             ▼
//	             parked ◀──permanent, last──── Deliver ──taken──▶ (a crash here sends
//	               │                             │                  it again) ──▶ sent
//	               └──Retry──▶ pending ◀─backoff─┘
//
// No committed intent is forgotten, and none is sent that was not committed. It may be
// sent twice: that is for the receiver's own Apply. Any number of dispatchers may run,
// in any number of processes.
type Outbox[T any] struct {
	store   Store[T]
	config  OutboxConfig
	deliver Deliver
	unique  string
	claims  atomic.Uint64
}

// NewOutbox returns an outbox. deliver may be nil where only Add is used.
// Errors: [*postroom.ArgumentError], [*postroom.LimitError].
func NewOutbox[T any](store Store[T], deliver Deliver, c OutboxConfig) (*Outbox[T], error) {
	bad := func(field, problem string) (*Outbox[T], error) {
		return nil, &messages.ArgumentError{Op: "outbox", Argument: field, Problem: problem}
	}
	if isNil(store) {
		return bad("store", "must not be nil")
	}
	or(&c.Name, "default")
	or(&c.Dispatcher, "d")
	for _, text := range []struct{ name, value string }{{"Name", c.Name}, {"Dispatcher", c.Dispatcher}} {
		if err := checkText("outbox", text.name, text.value); err != nil {
			return nil, err
		}
	}
	const batchMax = 10_000 // below SQLite's limit of parameters
	switch {
	case c.Batch < 0 || c.Batch > batchMax:
		return bad("Batch", "must be 1 to 10,000, or 0 for the default")
	case c.Attempts < messages.Unlimited:
		return bad("Attempts", "must be positive, 0 for the default or Unlimited (-1)")
	case c.Claim < 0 || c.Base < 0 || c.Cap < 0 || c.Poll < 0:
		return bad("Claim, Base, Cap and Poll", "must not be negative")
	}
	or(&c.Batch, DefaultBatch)
	or(&c.Claim, DefaultClaim)
	or(&c.Attempts, DefaultOutboxAttempts)
	or(&c.Base, DefaultOutboxBase)
	or(&c.Cap, DefaultOutboxCap)
	or(&c.Poll, DefaultPoll)
	c.Draw = orSystemDraw(c.Draw, "outbox")
	return &Outbox[T]{store: store, config: c, deliver: deliver, unique: strconv.FormatUint(c.Draw(), 36)}, nil
}

// Add records intents in the transaction that makes them true.
// Errors: [*IntentExistsError], [*StoreError], [*postroom.ArgumentError],
// [*postroom.LimitError]. After an error the transaction must be rolled back, as
// [Apply] does when its function returns it.
func (o *Outbox[T]) Add(ctx context.Context, tx T, intents ...Intent) error {
	now := o.store.Clock().Now()
	for _, in := range intents {
		if in.ID == "" {
			return &messages.ArgumentError{Op: "add intent", Argument: "ID", Problem: "must not be empty"}
		}
		if err := checkText("add intent", "ID", in.ID); err != nil {
			return err
		}
		if err := checkText("add intent", "Order", in.Order); err != nil {
			return err
		}
		if n := len(in.Payload); n > PayloadBytesMax {
			return &messages.LimitError{Op: "add intent", What: "payload bytes", Limit: PayloadBytesMax, Got: int64(n)}
		}
		added, err := o.store.AddIntent(ctx, tx, IntentRow{Intent: in, Outbox: o.config.Name, AddedAt: now, DueAt: now})
		if err != nil {
			return err
		}
		if !added {
			return &IntentExistsError{Outbox: o.config.Name, ID: in.ID}
		}
	}
	return nil
}

// Dispatched is what one batch came to.
type Dispatched struct {
	Claimed int
	Sent    int // delivered
	Failed  int // to be tried again
	Parked  int
	Freed   int // not tried: an earlier one of their order failed, or the claim ran out
	// Lost is how many of all these could not be marked, because their claim had run
	// out: another dispatcher has them, or will, and may send them again.
	Lost int
}

// Dispatch claims one batch, sends it and marks what was sent. With nothing due it
// returns at once, with Claimed 0.
//
// Errors: [*StoreError], of the claim or of the mark; after the latter what was sent
// will be sent again. A failed delivery is no error but written to its row.
// [*postroom.ArgumentError] without a Deliver.
func (o *Outbox[T]) Dispatch(ctx context.Context) (d Dispatched, err error) {
	if o.deliver == nil {
		return d, &messages.ArgumentError{Op: "dispatch", Argument: "deliver", Problem: "must not be nil"}
	}
	clock := o.store.Clock()
	now := clock.Now()
	claim := Claim{
		Outbox: o.config.Name, Name: fmt.Sprintf("%s/%s/%d", o.config.Dispatcher, o.unique, o.claims.Add(1)),
		Now: now, Until: now.Add(o.config.Claim), Limit: o.config.Batch,
	}
	var rows []IntentRow
	err = o.store.Transact(ctx, func(tx T) (err error) {
		rows, err = o.store.ClaimIntents(ctx, tx, claim)
		return err
	})
	if d.Claimed = len(rows); err != nil || len(rows) == 0 {
		return d, err
	}
	// One context for the batch: each delivery may take what is left of the claim.
	sending, cancelSending := clock.WithTimeout(ctx, claim.Until.Sub(clock.Now()))
	defer cancelSending()
	results := make([]Settled, len(rows))
	behind := map[string]bool{} // orders of which one was not sent
	for i, row := range rows {
		results[i] = o.send(ctx, sending, clock, claim.Until, row, behind)
		if results[i].To != SettledSent && row.Order != "" {
			behind[row.Order] = true
		}
	}

	// What was delivered must be marked even if ctx has ended meanwhile, or all of it
	// is sent again; the mark has the rest of the claim for that, at least a second.
	mark, cancel := clock.WithTimeout(context.WithoutCancel(ctx), max(claim.Until.Sub(clock.Now()), time.Second))
	defer cancel()
	settled := 0
	err = o.store.Transact(mark, func(tx T) (err error) {
		settled, err = o.store.SettleIntents(mark, tx, claim.Name, clock.Now(), results)
		return err
	})
	if err != nil {
		return d, err
	}
	d.Lost = len(rows) - settled
	for _, r := range results {
		switch r.To {
		case SettledSent:
			d.Sent++
		case SettledFailed:
			d.Failed++
		case SettledParked:
			d.Parked++
		case SettledFreed:
			d.Freed++
		}
	}
	return d, nil
}

// send delivers one intent and says what is to become of its row. sending is ctx until
// the end of the claim.
func (o *Outbox[T]) send(ctx, sending context.Context, clock Clock, until time.Time, row IntentRow, behind map[string]bool) Settled {
	if ctx.Err() != nil || behind[row.Order] || !clock.Now().Before(until) {
		return Settled{Seq: row.Seq, To: SettledFreed}
	}
	err := o.deliver(sending, row.Intent)
	switch {
	case err == nil:
		return Settled{Seq: row.Seq, To: SettledSent}
	case ctx.Err() != nil:
		return Settled{Seq: row.Seq, To: SettledFreed} // it was told to stop: no attempt is spent
	case messages.IsPermanent(err), o.config.Attempts != messages.Unlimited && row.Attempts+1 >= o.config.Attempts:
		// Not ==: the row may have been tried more often already, under another configuration.
		return Settled{Seq: row.Seq, To: SettledParked, DueAt: row.DueAt, Error: storable(err.Error())}
	}
	wait := backoff(o.config.Base, o.config.Cap, row.Attempts+1, o.config.Draw())
	return Settled{Seq: row.Seq, To: SettledFailed, DueAt: clock.Now().Add(wait), Error: storable(err.Error())}
}

// Run dispatches until ctx ends, and waits Poll whenever nothing is due, or four times
// as long as it took to find that out, if that is longer. A database
// that fails is tried again: with a doubling wait, up to Cap, for what may pass. It
// returns nil when ctx ends. Errors: a [*StoreError] that no waiting will cure: missing
// tables, a closed or read-only database; [*postroom.ArgumentError].
func (o *Outbox[T]) Run(ctx context.Context) error {
	clock := o.store.Clock()
	failures := 0
	for ctx.Err() == nil {
		began := clock.Now()
		d, err := o.Dispatch(ctx)
		wait := time.Duration(0)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
			if d.Sent == 0 {
				wait = o.config.Poll // nothing was due, or nobody takes it
			}
			if d.Claimed == 0 {
				// Looking at many that wait behind a parked one takes long, and a database
				// with one writer should not spend its time on that.
				wait = max(wait, 4*clock.Now().Sub(began))
			}
		case lasting(err):
			return err
		default:
			failures++
			wait = o.config.Poll + backoff(o.config.Base, o.config.Cap, failures, o.config.Draw())
		}
		if wait > 0 && clock.Sleep(ctx, wait) != nil {
			return nil
		}
	}
	return nil
}

// Parked reads up to n parked intents with a Seq above after, with their last error.
// Errors: [*StoreError].
func (o *Outbox[T]) Parked(ctx context.Context, after int64, n int) (rows []IntentRow, err error) {
	if n < 0 {
		return nil, &messages.ArgumentError{Op: "parked intents", Argument: "n", Problem: "must not be negative"}
	}
	err = o.store.View(ctx, func(tx T) (err error) {
		rows, err = o.store.ListIntents(ctx, tx, o.config.Name, IntentParked, after, n)
		return err
	})
	return rows, err
}

// Retry makes parked intents pending again, with all their attempts, and says how many
// there were. Repair the cause first. Errors: [*StoreError].
func (o *Outbox[T]) Retry(ctx context.Context, ids ...string) (int, error) {
	return o.move(ctx, ids, false)
}

// Drop removes parked intents: they are never sent, and what waits behind them goes on.
// Errors: [*StoreError].
func (o *Outbox[T]) Drop(ctx context.Context, ids ...string) (int, error) {
	return o.move(ctx, ids, true)
}

func (o *Outbox[T]) move(ctx context.Context, ids []string, drop bool) (n int, err error) {
	err = o.store.Transact(ctx, func(tx T) (err error) {
		n, err = o.store.MoveParked(ctx, tx, o.config.Name, ids, drop, o.store.Clock().Now())
		return err
	})
	return n, err
}

// Stats counts the outbox. Errors: [*StoreError].
func (o *Outbox[T]) Stats(ctx context.Context) (s OutboxStats, err error) {
	err = o.store.View(ctx, func(tx T) (err error) {
		s, err = o.store.CountIntents(ctx, tx, o.config.Name)
		return err
	})
	return s, err
}
