package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/worker"
)

// dialects are the databases that benchmarks run on; PostgreSQL is skipped without a server.
func dialects(b *testing.B, run func(b *testing.B, db *sql.DB, store *worker.SQL, bind func(string) string)) {
	b.Run("sqlite", func(b *testing.B) {
		db := openSQLite(b, worker.SQLiteDSN(filepath.Join(b.TempDir(), "work.db")))
		store, err := worker.SQLite(db, worker.StoreConfig{})
		require.NoError(b, err)
		run(b, db, store, func(s string) string { return s })
	})
	b.Run("postgres", func(b *testing.B) {
		db := openPostgres(b, postgresSchema(b))
		store, err := worker.Postgres(db, worker.StoreConfig{})
		require.NoError(b, err)
		run(b, db, store, numbered)
	})
}

// numbered writes ? as $1, $2, …
func numbered(s string) string {
	for i := 1; strings.Contains(s, "?"); i++ {
		s = strings.Replace(s, "?", fmt.Sprint("$", i), 1)
	}
	return s
}

func mustExec(b *testing.B, db *sql.DB, statements ...string) {
	b.Helper()
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(b, err)
	}
}

// BenchmarkApply compares Apply with the document's transaction written by hand: look
// for the key, record it with its payload, credit. The two take turns, so that a busy
// machine is equally unkind to both, and the ratio is reported: at most 1.3.
func BenchmarkApply(b *testing.B) {
	dialects(b, func(b *testing.B, db *sql.DB, store *worker.SQL, bind func(string) string) {
		ctx := b.Context()
		require.NoError(b, worker.Migrate(ctx, store))
		mustExec(b, db,
			"CREATE TABLE account (id INTEGER PRIMARY KEY, total BIGINT NOT NULL)", "INSERT INTO account VALUES (1, 0), (2, 0)",
			bind("CREATE TABLE processed (id TEXT PRIMARY KEY, payload "+map[bool]string{true: "BYTEA", false: "BLOB"}[bind("?") != "?"]+" NOT NULL, at BIGINT NOT NULL)"))
		payload := []byte(`{"amount":10}`)
		prior := bind("SELECT payload FROM processed WHERE id = ?")
		record := bind("INSERT INTO processed VALUES (?, ?, ?)")
		credit := func(tx *sql.Tx, account int) error {
			_, err := tx.ExecContext(ctx, bind("UPDATE account SET total = total + ? WHERE id = ?"), 10, account)
			return err
		}
		byHand := func(id string) (err error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() {
				if err != nil {
					err = errors.Join(err, tx.Rollback())
				}
			}()
			var known []byte
			if err := tx.QueryRowContext(ctx, prior, id).Scan(&known); err == nil {
				return errors.New("known")
			} else if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if _, err := tx.ExecContext(ctx, record, id, payload, time.Now().UnixNano()); err != nil {
				return err
			}
			if err := credit(tx, 1); err != nil {
				return err
			}
			return tx.Commit()
		}
		byApply := func(id string) error {
			applied, err := worker.Apply(ctx, store, key(id), payload, func(tx *sql.Tx) error { return credit(tx, 2) })
			if err == nil && !applied {
				err = errors.New("known")
			}
			return err
		}
		var hand, apply time.Duration
		n := 0
		for b.Loop() {
			n++
			id := fmt.Sprint("credit-", n)
			took := func(fn func(string) error) time.Duration {
				began := time.Now()
				if err := fn(id); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			}
			if n%2 == 0 { // who is second finds warmer caches
				hand += took(byHand)
				apply += took(byApply)
			} else {
				apply += took(byApply)
				hand += took(byHand)
			}
		}
		b.ReportMetric(float64(hand.Microseconds())/float64(n), "µs/byhand")
		b.ReportMetric(float64(apply.Microseconds())/float64(n), "µs/apply")
		b.ReportMetric(float64(apply)/float64(hand), "ratio")
		var one, two, keys int
		require.NoError(b, db.QueryRow("SELECT (SELECT total FROM account WHERE id = 1), (SELECT total FROM account WHERE id = 2), (SELECT count(*) FROM postroom_keys)").Scan(&one, &two, &keys))
		if one != 10*n || two != 10*n || keys != n {
			b.Fatalf("%d by hand, %d by Apply, %d keys after %d each", one, two, keys, n)
		}
	})
}

// BenchmarkOutbox compares the dispatcher with a bare loop of the same statements, for
// batches of 100: claim them in one transaction, send each, mark them in another. At
// least 0.8 of its rate.
func BenchmarkOutbox(b *testing.B) {
	const batch = 100
	dialects(b, func(b *testing.B, db *sql.DB, store *worker.SQL, bind func(string) string) {
		ctx := b.Context()
		require.NoError(b, worker.Migrate(ctx, store))
		sent := map[string]int{}
		send := func(name string) worker.Deliver {
			return func(context.Context, worker.Intent) error {
				sent[name]++
				return nil
			}
		}
		outbox := func(name string) *worker.Outbox[*sql.Tx] {
			o, err := worker.NewOutbox(store, send(name), worker.OutboxConfig{Name: name, Batch: batch})
			require.NoError(b, err)
			return o
		}
		ours, theirs := outbox("ours"), outbox("theirs")
		added := 0
		fill := func(o *worker.Outbox[*sql.Tx]) {
			require.NoError(b, store.Transact(ctx, func(tx *sql.Tx) error {
				for range batch {
					added++
					if err := o.Add(ctx, tx, worker.Intent{ID: fmt.Sprint("event-", added), Order: fmt.Sprint(added % 10), Payload: []byte(`{"amount":10}`)}); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		claim, mark, lock := worker.OutboxStatements(store, batch)
		deliver := send("theirs")
		round := 0
		loop := func() error {
			round++
			name, now := fmt.Sprint("loop-", round), time.Now()
			type row struct {
				seq                        int64
				outbox, id, order, headers string
				payload                    []byte
				added, due                 int64
				attempts                   int
				err                        string
			}
			var rows []row
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if lock != "" {
				if _, err := tx.ExecContext(ctx, lock, "theirs"); err != nil {
					return err
				}
			}
			at := now.UnixNano()
			read := func() error {
				found, err := tx.QueryContext(ctx, claim, name, now.Add(time.Minute).UnixNano(), "theirs", at, at, "theirs", at, at, batch)
				if err != nil {
					return err
				}
				defer found.Close()
				for found.Next() {
					var r row
					if err := found.Scan(&r.seq, &r.outbox, &r.id, &r.order, &r.payload, &r.headers, &r.added, &r.due, &r.attempts, &r.err); err != nil {
						return err
					}
					rows = append(rows, r)
				}
				return found.Err()
			}
			if err := errors.Join(read(), tx.Commit()); err != nil {
				return err
			}
			args := []any{time.Now().UnixNano(), name}
			for _, r := range rows {
				if err := deliver(ctx, worker.Intent{ID: r.id, Order: r.order, Payload: r.payload}); err != nil {
					return err
				}
				args = append(args, r.seq)
			}
			if tx, err = db.BeginTx(ctx, nil); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, mark, args...); err != nil {
				return err
			}
			return tx.Commit()
		}
		var bare, dispatcher time.Duration
		n := 0
		for b.Loop() {
			n++
			fill(theirs)
			fill(ours)
			took := func(fn func() error) time.Duration {
				began := time.Now()
				if err := fn(); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			}
			dispatch := func() error {
				_, err := ours.Dispatch(ctx)
				return err
			}
			if n%2 == 0 { // who is second finds warmer caches
				bare += took(loop)
				dispatcher += took(dispatch)
			} else {
				dispatcher += took(dispatch)
				bare += took(loop)
			}
		}
		b.ReportMetric(float64(n*batch)/bare.Seconds(), "bare/s")
		b.ReportMetric(float64(n*batch)/dispatcher.Seconds(), "dispatcher/s")
		b.ReportMetric(float64(bare)/float64(dispatcher), "ratio")
		if sent["ours"] != n*batch || sent["theirs"] != n*batch {
			b.Fatalf("sent %v, want %d each", sent, n*batch)
		}
		for _, o := range []*worker.Outbox[*sql.Tx]{ours, theirs} {
			s, err := o.Stats(ctx)
			require.NoError(b, err)
			if s.Sent != n*batch || s.Pending != 0 {
				b.Fatalf("%+v, want %d sent", s, n*batch)
			}
		}
	})
}

// BenchmarkClaimBehindParked measures a claim that finds nothing, because 10,000 intents
// wait behind a parked one of their order: it has to look at each.
func BenchmarkClaimBehindParked(b *testing.B) {
	const behind = 10_000
	dialects(b, func(b *testing.B, _ *sql.DB, store *worker.SQL, _ func(string) string) {
		ctx := b.Context()
		require.NoError(b, worker.Migrate(ctx, store))
		o, err := worker.NewOutbox(store, func(context.Context, worker.Intent) error { return errors.New("away") }, worker.OutboxConfig{Attempts: 1})
		require.NoError(b, err)
		require.NoError(b, store.Transact(ctx, func(tx *sql.Tx) error {
			for i := range behind + 1 {
				if err := o.Add(ctx, tx, worker.Intent{ID: fmt.Sprint("event-", i), Order: "x"}); err != nil {
					return err
				}
			}
			return nil
		}))
		first, err := o.Dispatch(ctx)
		require.NoError(b, err)
		require.Equal(b, 1, first.Parked)
		n := 0
		for b.Loop() {
			n++
			d, err := o.Dispatch(ctx)
			if err != nil || d.Claimed != 0 {
				b.Fatalf("%+v, %v, want nothing claimed", d, err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/behind, "ns/row")
	})
}
