package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/postroom/postroom/worker"
	"github.com/postroom/postroom/worker/workertest"
)

// bench is a store with an account to change, for the tests that every store passes.
type bench[T any] struct {
	store worker.Store[T]
	// add is the change of an application.
	add func(tx T, amount int64) error
	// balance reads the account outside of any transaction, keys and intents count
	// rows in the same way.
	balance, keys, intents func() int64

	// Each makes the store one that fails, and returns it; nil where it cannot be.
	closed, readOnly, noTables func(t *testing.T) worker.Store[T]
}

// TestMemory, TestSQLite and TestPostgres run the same suite.
func TestMemory(t *testing.T) {
	suite(t, func(_ *testing.T, clock worker.Clock) bench[*workertest.Tx] {
		m := workertest.NewMemory(clock)
		return bench[*workertest.Tx]{
			store:   m,
			add:     func(tx *workertest.Tx, n int64) error { return tx.Add("account", n) },
			balance: func() int64 { return m.Balance("account") },
			keys:    func() int64 { return int64(m.Keys()) },
			intents: func() int64 { return int64(m.Intents()) },
			closed: func(*testing.T) worker.Store[*workertest.Tx] {
				m.Close()
				return m
			},
			readOnly: func(*testing.T) worker.Store[*workertest.Tx] {
				m.SetReadOnly(true)
				return m
			},
		}
	})
}

func TestSQLite(t *testing.T) {
	suite(t, func(t *testing.T, clock worker.Clock) bench[*sql.Tx] {
		path := filepath.Join(t.TempDir(), "work.db")
		db := openSQLite(t, worker.SQLiteDSN(path))
		return sqlBench(t, db, clock, worker.SQLite, func(t *testing.T) *sql.DB {
			return openSQLite(t, "file:"+path+"?mode=ro")
		}, func(t *testing.T) *sql.DB {
			return openSQLite(t, worker.SQLiteDSN(filepath.Join(t.TempDir(), "empty.db")))
		})
	})
}

func TestPostgres(t *testing.T) {
	suite(t, func(t *testing.T, clock worker.Clock) bench[*sql.Tx] {
		dsn := postgresSchema(t)
		return sqlBench(t, openPostgres(t, dsn), clock, worker.Postgres, func(t *testing.T) *sql.DB {
			return openPostgres(t, dsn+"&default_transaction_read_only=on")
		}, func(t *testing.T) *sql.DB {
			return openPostgres(t, postgresSchema(t))
		})
	})
}

func openSQLite(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func openPostgres(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

var schemas atomic.Int64

// postgresSchema makes an empty schema, dropped after the test, and returns how to open
// it. Without a server the test is skipped.
func postgresSchema(t testing.TB) string {
	t.Helper()
	server := os.Getenv("POSTROOM_TEST_POSTGRES")
	if server == "" {
		t.Skip("no PostgreSQL: set POSTROOM_TEST_POSTGRES to what `bash .ci/postgres` prints")
	}
	admin := openPostgres(t, server)
	name := fmt.Sprintf("postroom_%d_%d", os.Getpid(), schemas.Add(1))
	_, err := admin.Exec("CREATE SCHEMA " + name)
	require.NoError(t, err, "POSTROOM_TEST_POSTGRES names a server that is not there")
	t.Cleanup(func() {
		_, err := admin.Exec("DROP SCHEMA " + name + " CASCADE")
		require.NoError(t, err)
	})
	u, err := url.Parse(server)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

type opener func(*sql.DB, worker.StoreConfig) (*worker.SQL, error)

func sqlBench(t *testing.T, db *sql.DB, clock worker.Clock, open opener, readOnly, empty func(*testing.T) *sql.DB) bench[*sql.Tx] {
	store, err := open(db, worker.StoreConfig{Clock: clock})
	require.NoError(t, err)
	require.NoError(t, worker.Migrate(t.Context(), store))
	for _, s := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, total BIGINT NOT NULL)",
		"INSERT INTO account VALUES (1, 0)",
	} {
		_, err := db.Exec(s)
		require.NoError(t, err)
	}
	number := func(query string) func() int64 {
		return func() (n int64) {
			require.NoError(t, db.QueryRow(query).Scan(&n))
			return n
		}
	}
	other := func(db *sql.DB) worker.Store[*sql.Tx] {
		s, err := open(db, worker.StoreConfig{Clock: clock})
		require.NoError(t, err)
		return s
	}
	return bench[*sql.Tx]{
		store: store,
		add: func(tx *sql.Tx, n int64) error {
			_, err := tx.Exec(fmt.Sprintf("UPDATE account SET total = total + (%d) WHERE id = 1", n))
			return err
		},
		balance: number("SELECT total FROM account"),
		keys:    number("SELECT count(*) FROM postroom_keys"),
		intents: number("SELECT count(*) FROM postroom_outbox"),
		closed: func(t *testing.T) worker.Store[*sql.Tx] {
			db := empty(t)
			require.NoError(t, db.Close())
			return other(db)
		},
		readOnly: func(t *testing.T) worker.Store[*sql.Tx] { return other(readOnly(t)) },
		noTables: func(t *testing.T) worker.Store[*sql.Tx] { return other(empty(t)) },
	}
}

// stepClock stands still until it is moved; a Sleep moves it.
type stepClock struct {
	mu  sync.Mutex
	now time.Time
}

func newStepClock() *stepClock {
	return &stepClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stepClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *stepClock) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.Step(d)
	return nil
}

func (c *stepClock) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// noDraw waits for no time at all, and mostDraw for as long as a backoff may.
func noDraw() uint64   { return 0 }
func mostDraw() uint64 { return ^uint64(0) }

func key(id string) worker.Key {
	return worker.Key{Caller: "test", Operation: "credit", ID: id}
}

// lines joins what a test has seen.
func lines(s []string) string { return strings.Join(s, " ") }
