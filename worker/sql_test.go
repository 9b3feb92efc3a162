package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/worker"
)

// both runs a test on SQLite and, if there is a server, on PostgreSQL. reopen opens one
// more handle on the same database, as another process would.
func both(t *testing.T, test func(t *testing.T, open opener, reopen func() *sql.DB)) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a name with % and ?.db")
		test(t, worker.SQLite, func() *sql.DB { return openSQLite(t, worker.SQLiteDSN(path)) })
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := postgresSchema(t)
		test(t, worker.Postgres, func() *sql.DB { return openPostgres(t, dsn) })
	})
}

func openStore(t *testing.T, open opener, db *sql.DB, c worker.StoreConfig) *worker.SQL {
	t.Helper()
	s, err := open(db, c)
	require.NoError(t, err)
	return s
}

func nothing(*sql.Tx) error { return nil }

func TestMigrateMayBeCalledByManyAtOnceAndAgain(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		var all sync.WaitGroup
		for range 4 {
			s := openStore(t, open, reopen(), worker.StoreConfig{})
			all.Go(func() {
				for range 3 {
					assert.NoError(t, worker.Migrate(t.Context(), s))
				}
			})
		}
		all.Wait()
		s := openStore(t, open, reopen(), worker.StoreConfig{})
		_, err := worker.Apply(t.Context(), s, key("a"), nil, nothing)
		require.NoError(t, err)
		assert.NotEmpty(t, s.Schema())
		require.ErrorIs(t, worker.Migrate(t.Context(), nil), postroom.ErrArgument)
	})
}

func TestMigrateOfADatabaseThatCannotTakeTablesIsATypedError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work.db")
	made := openSQLite(t, worker.SQLiteDSN(path))
	require.NoError(t, made.Ping()) // the file is there
	_, err := made.Exec("CREATE TABLE other (x INTEGER)")
	require.NoError(t, err)
	closed := openSQLite(t, worker.SQLiteDSN(path))
	require.NoError(t, closed.Close())
	for _, row := range []struct {
		db   *sql.DB
		want error
	}{
		{closed, worker.ErrStoreClosed},
		{openSQLite(t, "file:"+path+"?mode=ro"), worker.ErrReadOnly},
	} {
		err := worker.Migrate(t.Context(), openStore(t, worker.SQLite, row.db, worker.StoreConfig{}))
		require.ErrorIs(t, err, row.want)
		assert.NotEmpty(t, postroom.Hint(err))
	}
}

func TestMigrateRefusesTablesFromTheFuture(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		db := reopen()
		s := openStore(t, open, db, worker.StoreConfig{})
		require.NoError(t, worker.Migrate(t.Context(), s))
		_, err := db.Exec("INSERT INTO postroom_schema VALUES (1000)")
		require.NoError(t, err)
		require.ErrorContains(t, worker.Migrate(t.Context(), s), "the tables have version 1000")
	})
}

func TestHashedPayloadsAreComparedAndNotKept(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		db := reopen()
		plain := openStore(t, open, db, worker.StoreConfig{})
		hashing := openStore(t, open, db, worker.StoreConfig{HashPayloads: true})
		require.NoError(t, worker.Migrate(t.Context(), plain))
		for i, s := range []*worker.SQL{plain, hashing} { // each must understand the other's
			k := key(fmt.Sprint(i))
			_, err := worker.Apply(t.Context(), s, k, []byte("secret"), nothing)
			require.NoError(t, err)
			for _, reader := range []*worker.SQL{plain, hashing} {
				again, err := worker.Apply(t.Context(), reader, k, []byte("secret"), nothing)
				require.NoError(t, err)
				assert.False(t, again)
				_, err = worker.Apply(t.Context(), reader, k, []byte("other"), nothing)
				require.ErrorIs(t, err, worker.ErrKeyReused)
			}
		}
		var n int
		require.NoError(t, db.QueryRow("SELECT length(payload) FROM postroom_keys WHERE id = '1'").Scan(&n))
		assert.Equal(t, 32, n)
	})
}

// A function that ends the transaction itself breaks the promise; it is told so, and
// that nobody knows what has happened.
func TestAFunctionThatCommitsByItselfIsATypedError(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		s := openStore(t, open, reopen(), worker.StoreConfig{})
		require.NoError(t, worker.Migrate(t.Context(), s))
		for i, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			_, err := worker.Apply(t.Context(), s, key(fmt.Sprint(i)), nil, end)
			require.ErrorIs(t, err, worker.ErrTxEnded)
			var failed *worker.StoreError
			require.ErrorAs(t, err, &failed)
			assert.True(t, failed.Unknown)
			assert.True(t, worker.IsRetryable(err), "the key makes it safe to ask again")
		}
	})
}

// The same as text instead of by the methods: SQLite says at the commit that there is
// no transaction any more.
func TestAFunctionThatSendsCommitAsTextIsNoticedBySQLite(t *testing.T) {
	s := openStore(t, worker.SQLite, openSQLite(t, worker.SQLiteDSN(filepath.Join(t.TempDir(), "work.db"))), worker.StoreConfig{})
	require.NoError(t, worker.Migrate(t.Context(), s))
	for _, text := range []string{"COMMIT", "ROLLBACK"} {
		_, err := worker.Apply(t.Context(), s, key(text), nil, func(tx *sql.Tx) error {
			_, err := tx.Exec(text)
			return err
		})
		require.ErrorIs(t, err, worker.ErrTxEnded, text)
		var failed *worker.StoreError
		require.ErrorAs(t, err, &failed)
		assert.True(t, failed.Unknown, "after a COMMIT it has happened, after a ROLLBACK it has not")
	}
}

// PostgreSQL answers the commit of a transaction in which a statement failed with a
// rollback. Nothing has happened, whatever the function returned.
func TestAFunctionThatGoesOnAfterAFailedStatementIsATypedError(t *testing.T) {
	s := openStore(t, worker.Postgres, openPostgres(t, postgresSchema(t)), worker.StoreConfig{})
	require.NoError(t, worker.Migrate(t.Context(), s))
	outbox, err := worker.NewOutbox(s, nil, worker.OutboxConfig{})
	require.NoError(t, err)
	fail := func(tx *sql.Tx) {
		_, err := tx.Exec("SELECT 1 / 0")
		require.Error(t, err)
	}
	for what, fn := range map[string]func(tx *sql.Tx) error{
		"returns nil": func(tx *sql.Tx) error { fail(tx); return nil },
		"adds an intent": func(tx *sql.Tx) error {
			fail(tx)
			return outbox.Add(t.Context(), tx, worker.Intent{ID: "a"})
		},
	} {
		applied, err := worker.Apply(t.Context(), s, key("a"), nil, fn)
		assert.False(t, applied, what)
		require.ErrorIs(t, err, worker.ErrTxAborted, what)
		var failed *worker.StoreError
		require.ErrorAs(t, err, &failed, what)
		assert.False(t, failed.Unknown, what)
		assert.NotEmpty(t, postroom.Hint(err), what)
	}
	applied, err := worker.Apply(t.Context(), s, key("a"), nil, nothing)
	require.NoError(t, err)
	assert.True(t, applied, "its key was not kept")
}

// A context that ends while the commit is on its way: the driver gives up, and whether
// its request to cancel reaches the server before the commit is done is a race. So the
// error says that it may have happened, and the key makes it safe to ask again.
func TestACommitThatIsCutOffMayHaveHappened(t *testing.T) {
	dsn := postgresSchema(t)
	db := openPostgres(t, dsn)
	s := openStore(t, worker.Postgres, db, worker.StoreConfig{})
	require.NoError(t, worker.Migrate(t.Context(), s))
	// A deferred trigger runs at the commit, and waits there for a lock.
	pid := os.Getpid()
	for _, statement := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, total BIGINT NOT NULL)",
		"INSERT INTO account VALUES (1, 0)",
		fmt.Sprintf("CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(%d, 5); RETURN NULL; END $$", pid),
		"CREATE CONSTRAINT TRIGGER waits AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()",
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	gate, err := db.Begin()
	require.NoError(t, err)
	defer func() { _ = gate.Rollback() }() // a failure on the way must not leave it shut
	_, err = gate.Exec("SELECT pg_advisory_xact_lock($1, 5)", pid)
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	credit := func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE account SET total = total + 10")
		return err
	}
	result := make(chan error, 1)
	go func() {
		_, err := worker.Apply(ctx, s, key("a"), nil, credit)
		result <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND NOT granted", pid).Scan(&n))
		return n == 1
	}, time.Minute, time.Millisecond, "the commit waits")
	cancel(postroom.ErrLeaseLost)
	err = <-result
	require.ErrorIs(t, err, postroom.ErrLeaseLost)
	var failed *worker.StoreError
	require.ErrorAs(t, err, &failed)
	assert.True(t, failed.Unknown, "%v", err)
	assert.True(t, worker.IsRetryable(err))

	require.NoError(t, gate.Rollback())
	applied, err := worker.Apply(t.Context(), s, key("a"), nil, credit)
	require.NoError(t, err)
	t.Logf("the first was committed: %t", !applied)
	var total int
	require.NoError(t, db.QueryRow("SELECT total FROM account").Scan(&total))
	assert.Equal(t, 10, total)
}

// Even if the embedder's DSN asks for deferred transactions, Apply's first statement
// is a write: it takes the lock before anything was read.
func TestApplyIsSafeWithDeferredTransactionsToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work.db")
	dsn := "file:" + path + "?_busy_timeout=10000&_journal_mode=WAL"
	db := openSQLite(t, dsn)
	require.NoError(t, worker.Migrate(t.Context(), openStore(t, worker.SQLite, db, worker.StoreConfig{})))
	_, err := db.Exec("CREATE TABLE account (total INTEGER); INSERT INTO account VALUES (0)")
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		s := openStore(t, worker.SQLite, openSQLite(t, dsn), worker.StoreConfig{})
		all.Go(func() {
			for i := range 25 {
				_, err := worker.Apply(t.Context(), s, key(fmt.Sprint(i)), nil, func(tx *sql.Tx) error {
					var total int // read, then write: what a deferred transaction may not
					if err := tx.QueryRow("SELECT total FROM account").Scan(&total); err != nil {
						return err
					}
					_, err := tx.Exec("UPDATE account SET total = ?", total+1)
					return err
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	var total int
	require.NoError(t, db.QueryRow("SELECT total FROM account").Scan(&total))
	assert.Equal(t, 25, total)
}

func TestATransactionThatIsInTheWayForTooLongIsAConflict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work.db")
	db := openSQLite(t, worker.SQLiteDSN(path))
	require.NoError(t, worker.Migrate(t.Context(), openStore(t, worker.SQLite, db, worker.StoreConfig{})))
	tx, err := db.Begin() // BEGIN IMMEDIATE: it holds the write lock
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	hasty := openStore(t, worker.SQLite, openSQLite(t, "file:"+path+"?_txlock=immediate&_busy_timeout=1"), worker.StoreConfig{})
	_, err = worker.Apply(t.Context(), hasty, key("a"), nil, nothing)
	require.ErrorIs(t, err, worker.ErrConflict)
	assert.True(t, worker.IsRetryable(err))

	calls := 0
	err = worker.Retry(t.Context(), worker.Policy{Clock: newStepClock()}, nil, func(ctx context.Context, attempt int) error {
		if calls = attempt; attempt == 2 {
			require.NoError(t, tx.Rollback())
		}
		_, err := worker.Apply(ctx, hasty, key("a"), nil, nothing)
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, 2, calls, "a conflict is Retryable as it is")
}

// Watching an outbox must not stop the work.
func TestReadersWaitForNoWriter(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		s := openStore(t, open, reopen(), worker.StoreConfig{})
		require.NoError(t, worker.Migrate(t.Context(), s))
		o, err := worker.NewOutbox(s, nil, worker.OutboxConfig{})
		require.NoError(t, err)
		require.NoError(t, s.Transact(t.Context(), func(tx *sql.Tx) error {
			require.NoError(t, o.Add(t.Context(), tx, worker.Intent{ID: "a"}))
			stats, err := o.Stats(t.Context())
			assert.Zero(t, stats.Pending, "not committed yet")
			return err
		}))
		stats, err := o.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, stats.Pending)
	})
}

func TestSQLiteDSNBeginsImmediatelyInWAL(t *testing.T) {
	db := openSQLite(t, worker.SQLiteDSN(filepath.Join(t.TempDir(), "ä b?c%d.db")))
	var mode string
	require.NoError(t, db.QueryRow("PRAGMA journal_mode").Scan(&mode))
	assert.Equal(t, "wal", mode)
	var synchronous, timeout int
	require.NoError(t, db.QueryRow("PRAGMA synchronous").Scan(&synchronous))
	assert.Equal(t, 2, synchronous, "FULL")
	require.NoError(t, db.QueryRow("PRAGMA busy_timeout").Scan(&timeout))
	assert.Equal(t, 5000, timeout)
	// Two transactions that have done nothing yet: the second waits already.
	tx, err := db.Begin()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = db.BeginTx(ctx, nil)
	require.Error(t, err)
}

// PostgreSQL draws numbers before a commit makes rows seen. Of two transactions for one
// order the second must not be seen, and sent, before the first.
func TestAnOrderIsKeptAcrossTransactionsThatOverlap(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		s := openStore(t, open, reopen(), worker.StoreConfig{})
		require.NoError(t, worker.Migrate(t.Context(), s))
		var got []string
		o, err := worker.NewOutbox(s, func(_ context.Context, in worker.Intent) error {
			got = append(got, in.ID)
			return nil
		}, worker.OutboxConfig{})
		require.NoError(t, err)
		added, commit := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			assert.NoError(t, s.Transact(t.Context(), func(tx *sql.Tx) error {
				err := o.Add(t.Context(), tx, worker.Intent{ID: "first", Order: "x"})
				close(added)
				<-commit
				return err
			}))
		})
		<-added
		second := make(chan struct{})
		all.Go(func() {
			defer close(second)
			assert.NoError(t, s.Transact(t.Context(), func(tx *sql.Tx) error {
				return o.Add(t.Context(), tx, worker.Intent{ID: "second", Order: "x"})
			}))
		})
		select {
		case <-second:
			t.Error("the second transaction did not wait for the first")
		case <-time.After(50 * time.Millisecond): // it can only be shown that it is not there yet
		}
		close(commit)
		all.Wait()
		_, err = o.Dispatch(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "first second", lines(got))
	})
}

// A claim may look at what is not sent, and not at all that ever was for each of them:
// with 100,000 sent rows and statistics from before, that took seconds.
func TestAClaimFindsWhatHoldsBackOnce(t *testing.T) {
	for _, row := range []struct {
		explain, bad string
		open         opener
		db           func(t *testing.T) *sql.DB
	}{
		{"EXPLAIN QUERY PLAN ", "CORRELATED", worker.SQLite, func(t *testing.T) *sql.DB {
			return openSQLite(t, worker.SQLiteDSN(filepath.Join(t.TempDir(), "work.db")))
		}},
		{"EXPLAIN ", "SubPlan", worker.Postgres, func(t *testing.T) *sql.DB { return openPostgres(t, postgresSchema(t)) }},
	} {
		t.Run(row.bad, func(t *testing.T) {
			db := row.db(t)
			s := openStore(t, row.open, db, worker.StoreConfig{})
			require.NoError(t, worker.Migrate(t.Context(), s))
			claim, _, _ := worker.OutboxStatements(s, 1)
			rows, err := db.Query(row.explain+claim, "name", 1, "default", 1, 1, "default", 1, 1, 100)
			require.NoError(t, err)
			defer rows.Close()
			columns, err := rows.Columns()
			require.NoError(t, err)
			var plan []string
			for rows.Next() {
				cells := make([]any, len(columns))
				for i := range cells {
					cells[i] = new(any)
				}
				require.NoError(t, rows.Scan(cells...))
				plan = append(plan, fmt.Sprint(*cells[len(cells)-1].(*any)))
			}
			require.NoError(t, rows.Err())
			assert.Contains(t, lines(plan), "postroom_outbox_touched")
			assert.NotContains(t, lines(plan), row.bad)
		})
	}
}

func TestStoresRefuseNil(t *testing.T) {
	for _, open := range []opener{worker.SQLite, worker.Postgres} {
		_, err := open(nil, worker.StoreConfig{})
		require.ErrorIs(t, err, postroom.ErrArgument)
	}
	s := openStore(t, worker.SQLite, openSQLite(t, ":memory:"), worker.StoreConfig{})
	require.ErrorIs(t, s.Transact(t.Context(), nil), postroom.ErrArgument)
}

// The application's own missing table is its own affair.
func TestAnErrorOfTheFunctionIsNotTakenForOneOfTheStore(t *testing.T) {
	both(t, func(t *testing.T, open opener, reopen func() *sql.DB) {
		s := openStore(t, open, reopen(), worker.StoreConfig{})
		require.NoError(t, worker.Migrate(t.Context(), s))
		_, err := worker.Apply(t.Context(), s, key("a"), nil, func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE no_such_table SET x = 1")
			return err
		})
		require.Error(t, err)
		var ours *worker.StoreError
		assert.NotErrorAs(t, err, &ours)
	})
}

func TestCanonicalTextsAreTheSameBytes(t *testing.T) {
	for _, row := range [][2]string{
		{`{"b": 1, "a": [1, 2.50, "x"]}`, `{"a":[1,2.50,"x"],"b":1}`},
		{` "\u0061<\u00e9" `, `"a<é"`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`12345678901234567890123`, `12345678901234567890123`},
		{`null`, `null`},
	} {
		got, err := worker.Canonical([]byte(row[0]))
		require.NoError(t, err)
		assert.Equal(t, row[1], string(got))
		again, err := worker.Canonical(got)
		require.NoError(t, err)
		assert.Equal(t, got, again)
	}
	for _, bad := range []string{``, `{`, `{} {}`, `{"a":1}x`, `nul`, "\"\xff\""} {
		_, err := worker.Canonical([]byte(bad))
		require.ErrorIs(t, err, worker.ErrPayload, bad)
	}
}
