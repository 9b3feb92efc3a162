package worker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/postroom/postroom/messages"
)

// StoreConfig configures [SQLite] and [Postgres]. The zero value is sensible.
type StoreConfig struct {
	// Clock dates keys and intents. nil: the machine's.
	Clock Clock
	// HashPayloads keeps the SHA-256 of a payload with its key instead of the payload,
	// where payloads are large or must not lie about.
	HashPayloads bool
}

// SQL is a [Store] over database/sql. Its tables begin with postroom_; [Migrate] makes
// them. It may be used from any number of goroutines and processes.
type SQL struct {
	db      *sql.DB
	dialect dialect
	config  StoreConfig
	text    statements
}

var _ Store[*sql.Tx] = (*SQL)(nil)

// SQLite returns the store in a SQLite database, 3.35 or later, of any driver. The
// database must be opened so that a transaction that finds another in its way waits
// for it; [SQLiteDSN] says how. Errors: [*postroom.ArgumentError] for a nil db.
func SQLite(db *sql.DB, config StoreConfig) (*SQL, error) { return newSQL(db, sqlite, config) }

// Postgres returns the store in a PostgreSQL database, of any driver whose errors say
// their SQLState, such as pgx and pq. Errors: [*postroom.ArgumentError] for a nil db.
func Postgres(db *sql.DB, config StoreConfig) (*SQL, error) { return newSQL(db, postgres, config) }

func newSQL(db *sql.DB, d dialect, config StoreConfig) (*SQL, error) {
	if db == nil {
		return nil, &messages.ArgumentError{Op: "store", Argument: "db", Problem: "must not be nil"}
	}
	config.Clock = orSystem(config.Clock)
	return &SQL{db: db, dialect: d, config: config, text: newStatements(d)}, nil
}

// SQLiteDSN is how to open a file with the driver modernc.org/sqlite ("sqlite"):
// transactions begin with BEGIN IMMEDIATE, so that they hold the write lock before they
// read; they wait up to five seconds for one another; readers wait for nobody (WAL).
// Commits survive a loss of power (synchronous FULL, SQLite's own default): an effect
// whose message was acked must not be lost.
func SQLiteDSN(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_txlock=immediate&_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL"
}

// Clock implements [Store].
func (s *SQL) Clock() Clock { return s.config.Clock }

// Transact implements [Store].
func (s *SQL) Transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.transact(ctx, nil, fn)
}

// View implements [Store].
func (s *SQL) View(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.transact(ctx, &sql.TxOptions{ReadOnly: true}, fn)
}

func (s *SQL) transact(ctx context.Context, options *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	if fn == nil {
		return &messages.ArgumentError{Op: "transaction", Argument: "fn", Problem: "must not be nil"}
	}
	tx, err := s.db.BeginTx(ctx, options)
	if err != nil {
		return s.wrap(ctx, "begin", err)
	}
	committing := false
	defer func() {
		if !committing { // fn failed or panicked, or its context has ended
			_ = tx.Rollback() // if that fails the connection is gone, and the transaction with it
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return s.wrap(ctx, "commit", context.Cause(ctx)) // nothing was sent yet
	}
	committing = true
	err = tx.Commit()
	if err == nil {
		return nil
	}
	failed := s.wrap(ctx, "commit", err)
	switch {
	case !errors.Is(err, sql.ErrTxDone):
		// A server that gives a reason has rolled back. Without one nobody knows; nor if
		// the context ended now: the driver may have sent the commit before it gave up.
		failed.Unknown = failed.Reason == nil && !s.dialect.refused(err)
	case ctx.Err() == nil:
		failed.Reason = ErrTxEnded
	}
	if failed.Reason == ErrTxEnded {
		failed.Unknown = true
	}
	return failed
}

// wrap makes a driver's error one of ours.
func (s *SQL) wrap(ctx context.Context, op string, err error) *StoreError {
	e := &StoreError{Op: op, Cause: err}
	switch {
	case strings.HasSuffix(err.Error(), "sql: database is closed"):
		e.Reason = ErrStoreClosed
	case ctx.Err() != nil:
		e.Cause = context.Cause(ctx) // why it ended says more than that it did
	default:
		e.Reason = s.dialect.reason(err)
	}
	return e
}

func (s *SQL) exec(ctx context.Context, tx *sql.Tx, op, text string, args ...any) (int, error) {
	result, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, s.wrap(ctx, op, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, s.wrap(ctx, op, err)
	}
	return int(n), nil
}

// PutKey implements [Store].
func (s *SQL) PutKey(ctx context.Context, tx *sql.Tx, row KeyRow) (*KeyRow, error) {
	if s.config.HashPayloads {
		row = row.Hash()
	}
	payload := row.Payload
	if payload == nil {
		payload = []byte{} // NULL is no payload
	}
	n, err := s.exec(ctx, tx, "record key", s.text.putKey,
		row.Key.Caller, row.Key.Operation, row.Key.ID, payload, toInt(row.Hashed), row.AppliedAt.UnixNano())
	if err != nil || n == 1 {
		return nil, err
	}
	prior := &KeyRow{Key: row.Key}
	var hashed int
	var at int64
	err = tx.QueryRowContext(ctx, s.text.getKey, row.Key.Caller, row.Key.Operation, row.Key.ID).Scan(&prior.Payload, &hashed, &at)
	if errors.Is(err, sql.ErrNoRows) {
		// It was pruned between the two statements; the next attempt finds it free.
		return nil, &StoreError{Op: "read key", Reason: ErrConflict, Cause: err}
	}
	if err != nil {
		return nil, s.wrap(ctx, "read key", err)
	}
	prior.Hashed, prior.AppliedAt = hashed != 0, time.Unix(0, at)
	return prior, nil
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// PruneKeys implements [Store].
func (s *SQL) PruneKeys(ctx context.Context, tx *sql.Tx, before time.Time, limit int) (int, error) {
	return s.exec(ctx, tx, "prune keys", s.text.pruneKeys, before.UnixNano(), limit)
}

// AddIntent implements [Store].
func (s *SQL) AddIntent(ctx context.Context, tx *sql.Tx, row IntentRow) (bool, error) {
	if s.text.lockOrder != "" && row.Order != "" {
		// Numbers are drawn before a commit makes them seen. Of two transactions the
		// later number could be seen, and sent, first.
		if _, err := s.exec(ctx, tx, "add intent", s.text.lockOrder, row.Outbox+"\x1f"+row.Order); err != nil {
			return false, err
		}
	}
	payload := row.Payload
	if payload == nil {
		payload = []byte{}
	}
	headers, err := encodeHeaders(row.Headers)
	if err != nil {
		return false, err
	}
	n, err := s.exec(ctx, tx, "add intent", s.text.addIntent,
		row.Outbox, row.ID, row.Order, payload, headers, row.AddedAt.UnixNano(), row.DueAt.UnixNano())
	return n == 1, err
}

// ClaimIntents implements [Store].
func (s *SQL) ClaimIntents(ctx context.Context, tx *sql.Tx, c Claim) ([]IntentRow, error) {
	if s.text.lockClaim != "" {
		// Two claims at once would each see the other's rows as free, and one of them
		// could take a later row of an order whose earlier ones the other takes.
		if _, err := s.exec(ctx, tx, "claim intents", s.text.lockClaim, c.Outbox); err != nil {
			return nil, err
		}
	}
	now := c.Now.UnixNano()
	rows, err := tx.QueryContext(ctx, s.text.claim,
		c.Name, c.Until.UnixNano(), c.Outbox, now, now, c.Outbox, now, now, c.Limit)
	if err != nil {
		return nil, s.wrap(ctx, "claim intents", err)
	}
	claimed, err := s.scan(ctx, rows, "claim intents")
	sortIntents(claimed) // RETURNING has no order
	return claimed, err
}

func (s *SQL) scan(ctx context.Context, rows *sql.Rows, op string) (list []IntentRow, err error) {
	defer func() { _ = rows.Close() }() // its error is that of Err
	for rows.Next() {
		var r IntentRow
		var headers string
		var added, due int64
		if err := rows.Scan(&r.Seq, &r.Outbox, &r.ID, &r.Order, &r.Payload, &headers, &added, &due, &r.Attempts, &r.Error); err != nil {
			return nil, s.wrap(ctx, op, err)
		}
		if r.Headers, err = decodeHeaders(headers); err != nil {
			return nil, s.wrap(ctx, op, err)
		}
		r.AddedAt, r.DueAt = time.Unix(0, added), time.Unix(0, due)
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, s.wrap(ctx, op, err)
	}
	return list, nil
}

// SettleIntents implements [Store].
func (s *SQL) SettleIntents(ctx context.Context, tx *sql.Tx, claim string, now time.Time, results []Settled) (int, error) {
	var sent, freed []any
	settled := 0
	for _, r := range results {
		switch r.To {
		case SettledSent:
			sent = append(sent, r.Seq)
		case SettledFreed:
			freed = append(freed, r.Seq)
		case SettledFailed, SettledParked:
			state := IntentPending
			if r.To == SettledParked {
				state = IntentParked
			}
			n, err := s.exec(ctx, tx, "mark intents", s.text.fail, int(state), r.DueAt.UnixNano(), storable(r.Error), now.UnixNano(), r.Seq, claim)
			if err != nil {
				return 0, err
			}
			settled += n
		}
	}
	for _, part := range []struct {
		text string
		seqs []any
		args []any
	}{
		{s.text.sent, sent, []any{now.UnixNano(), claim}},
		{s.text.free, freed, []any{claim}},
	} {
		if len(part.seqs) == 0 {
			continue
		}
		n, err := s.exec(ctx, tx, "mark intents", s.dialect.in(part.text, len(part.args), len(part.seqs)), append(part.args, part.seqs...)...)
		if err != nil {
			return 0, err
		}
		settled += n
	}
	return settled, nil
}

// ListIntents implements [Store].
func (s *SQL) ListIntents(ctx context.Context, tx *sql.Tx, outbox string, state IntentState, after int64, limit int) ([]IntentRow, error) {
	rows, err := tx.QueryContext(ctx, s.text.list, outbox, int(state), after, limit)
	if err != nil {
		return nil, s.wrap(ctx, "list intents", err)
	}
	return s.scan(ctx, rows, "list intents")
}

// MoveParked implements [Store].
func (s *SQL) MoveParked(ctx context.Context, tx *sql.Tx, outbox string, ids []string, drop bool, now time.Time) (int, error) {
	moved := 0
	for _, id := range ids {
		var n int
		var err error
		if drop {
			n, err = s.exec(ctx, tx, "drop intent", s.text.drop, outbox, id)
		} else {
			n, err = s.exec(ctx, tx, "retry intent", s.text.unpark, now.UnixNano(), outbox, id)
		}
		if err != nil {
			return 0, err
		}
		moved += n
	}
	return moved, nil
}

// CountIntents implements [Store].
func (s *SQL) CountIntents(ctx context.Context, tx *sql.Tx, outbox string) (OutboxStats, error) {
	var c OutboxStats
	var oldest sql.NullInt64
	err := tx.QueryRowContext(ctx, s.text.count, outbox).Scan(&c.Pending, &c.Sent, &c.Parked, &oldest)
	if err != nil {
		return c, s.wrap(ctx, "count intents", err)
	}
	if oldest.Valid {
		c.OldestAge = s.config.Clock.Now().Sub(time.Unix(0, oldest.Int64))
	}
	return c, nil
}

// PruneIntents implements [Store].
func (s *SQL) PruneIntents(ctx context.Context, tx *sql.Tx, before time.Time, limit int) (int, error) {
	return s.exec(ctx, tx, "prune intents", s.text.pruneIntents, before.UnixNano(), limit)
}

// Schema is the statements that Migrate runs, for those who run their own migrations.
func (s *SQL) Schema() []string { return s.dialect.schema }

// Migrate makes the tables of this package that are missing. It may be called at every
// start, also by several processes at once. Errors: [*StoreError].
func Migrate(ctx context.Context, s *SQL) error {
	if s == nil {
		return &messages.ArgumentError{Op: "migrate", Argument: "store", Problem: "must not be nil"}
	}
	// The first connections to a new SQLite file race for its change to WAL, and those
	// that lose are told at once, whatever their busy timeout.
	policy := Policy{Attempts: messages.Unlimited, Deadline: 10 * time.Second, Base: 5 * time.Millisecond, Cap: 100 * time.Millisecond, Clock: s.config.Clock}
	err := Retry(ctx, policy, nil, func(ctx context.Context, _ int) error { return s.migrate(ctx) })
	var stopped *StoppedError
	if errors.As(err, &stopped) && stopped.Last != nil {
		return stopped.Last
	}
	return err
}

func (s *SQL) migrate(ctx context.Context) error {
	return s.Transact(ctx, func(tx *sql.Tx) error {
		for _, statement := range append([]string{s.dialect.lockSchema}, s.dialect.schema...) {
			if statement == "" {
				continue
			}
			if _, err := s.exec(ctx, tx, "migrate", statement); err != nil {
				return err
			}
		}
		var version int
		if err := tx.QueryRowContext(ctx, s.dialect.bind("SELECT max(version) FROM postroom_schema")).Scan(&version); err != nil {
			return s.wrap(ctx, "migrate", err)
		}
		if version > schemaVersion {
			return &StoreError{Op: "migrate", Cause: fmt.Errorf("the tables have version %d, this package knows %d: update it", version, schemaVersion)}
		}
		return nil
	})
}
