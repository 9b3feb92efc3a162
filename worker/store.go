package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom/messages"
)

// Store is a database in which keys and intents share a transaction, of type T, with
// the application's own change. [SQLite] and [Postgres] make one over database/sql,
// with T = *sql.Tx; workertest.Memory is one for the simulation. An application calls
// [Apply], [Outbox] and [Prune], seldom the methods themselves.
//
// All of them but Clock, Transact and View run inside a transaction; those that only
// read, in one of either kind.
type Store[T any] interface {
	// Clock is what keys and intents are dated with.
	Clock() Clock

	// Transact runs fn in one transaction that excludes other writers of what it
	// writes. It commits when fn returns nil, and rolls back when fn returns an error
	// or panics, or ctx ends before the commit, whether or not fn returns then.
	// Errors: fn's own, unchanged; [*StoreError].
	Transact(ctx context.Context, fn func(tx T) error) error
	// View is Transact for reading: where the database can, it waits for no writer and
	// lets none wait.
	View(ctx context.Context, fn func(tx T) error) error

	// PutKey records a key, unless it is known: then it returns the row that is there
	// and changes nothing. Of two transactions with one key the second waits here for
	// the first.
	PutKey(ctx context.Context, tx T, row KeyRow) (prior *KeyRow, err error)
	// PruneKeys removes up to limit keys applied before an instant, oldest first.
	PruneKeys(ctx context.Context, tx T, before time.Time, limit int) (int, error)

	// AddIntent records an intent; false when its outbox has one of this ID already.
	AddIntent(ctx context.Context, tx T, row IntentRow) (added bool, err error)
	// ClaimIntents gives up to Limit intents that are due to a claim, in the order in
	// which they were added; see [Claim].
	ClaimIntents(ctx context.Context, tx T, c Claim) ([]IntentRow, error)
	// SettleIntents writes down what became of intents that a claim still holds, and
	// reports how many those were.
	SettleIntents(ctx context.Context, tx T, claim string, now time.Time, results []Settled) (int, error)
	// ListIntents reads up to limit intents of a state with a Seq above after, in order.
	ListIntents(ctx context.Context, tx T, outbox string, state IntentState, after int64, limit int) ([]IntentRow, error)
	// MoveParked makes parked intents pending again, untried, or drops them.
	MoveParked(ctx context.Context, tx T, outbox string, ids []string, drop bool, now time.Time) (int, error)
	// CountIntents counts an outbox.
	CountIntents(ctx context.Context, tx T, outbox string) (OutboxStats, error)
	// PruneIntents removes up to limit sent intents of all outboxes, sent before an
	// instant, oldest first.
	PruneIntents(ctx context.Context, tx T, before time.Time, limit int) (int, error)
}

// Reasons of a [StoreError], for errors.Is. Each of them but ErrTxEnded means that
// nothing has happened.
var (
	// ErrNoTables: Migrate was not called, or for another database.
	ErrNoTables = errors.New("the tables of package worker are missing")
	// ErrReadOnly: the database, its file or its user may not be written.
	ErrReadOnly = errors.New("database is read-only")
	// ErrStoreClosed: the database handle was closed.
	ErrStoreClosed = errors.New("database is closed")
	// ErrConflict: another transaction was in the way for too long, or came first.
	// [Retryable].
	ErrConflict = errors.New("database is busy with another transaction")
	// ErrTxAborted: a statement failed and the function went on. PostgreSQL then takes
	// no other statement and turns the commit into a rollback.
	ErrTxAborted = errors.New("a statement failed and the function went on")
	// ErrTxEnded: the function committed or rolled back by itself, and nobody knows
	// which. It is noticed of tx.Commit and tx.Rollback; of a COMMIT sent as text by
	// SQLite only.
	ErrTxEnded = errors.New("the function ended the transaction itself")
)

// StoreError is a database that did not do what was asked. It unwraps to its Reason,
// if one is known, and to the driver's error.
type StoreError struct {
	Op     string
	Reason error // one of the above, or nil
	// Unknown says that the commit may have happened: repeat the operation with the
	// same key, and it takes effect once. Otherwise nothing has happened.
	Unknown bool
	Cause   error
}

func (e *StoreError) Error() string {
	s := e.Op + ": "
	if e.Unknown {
		s += "outcome unknown: "
	}
	if e.Reason != nil {
		s += e.Reason.Error() + ": "
	}
	return s + fmt.Sprint(e.Cause)
}

// Unwrap returns the reason and the cause.
func (e *StoreError) Unwrap() []error {
	if e.Reason == nil {
		return []error{e.Cause}
	}
	return []error{e.Reason, e.Cause}
}

// Retryable says that another attempt may cure it: a conflict, or an unknown outcome,
// which a key makes safe to repeat.
func (e *StoreError) Retryable() bool { return e.Unknown || e.Reason == ErrConflict }

// Hint says what to do.
func (e *StoreError) Hint() string {
	switch e.Reason {
	case ErrNoTables:
		return "call worker.Migrate once, or run the statements of Schema"
	case ErrReadOnly:
		return "open the database for writing: effects and their keys must be stored"
	case ErrStoreClosed:
		return "close the database after the workers have ended"
	case ErrConflict:
		return "try again; if it is often so, shorten the transactions or raise the busy timeout"
	case ErrTxAborted:
		return "return the error of the statement that failed, or undo it with a savepoint"
	case ErrTxEnded:
		return "return nil or an error instead of calling Commit or Rollback"
	}
	if e.Unknown {
		return "repeat it with the same key: if it was applied it is skipped"
	}
	return "nothing has happened; look at the cause"
}

// lasting reports whether waiting will not cure an error.
func lasting(err error) bool {
	return errors.Is(err, ErrNoTables) || errors.Is(err, ErrReadOnly) || errors.Is(err, ErrStoreClosed) || errors.Is(err, messages.ErrArgument)
}
