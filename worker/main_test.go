package worker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An embedder compiles the driver that it uses, and no other.
func TestPackageWorkerImportsNoDriver(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go tool")
	}
	for _, dir := range []string{".", "./workertest"} {
		out, err := exec.Command("go", "list", "-deps", dir).Output()
		require.NoError(t, err)
		assert.Contains(t, string(out), "database/sql\n")
		for path := range strings.Lines(string(out)) {
			for _, driver := range []string{"modernc.org/", "github.com/jackc/", "testing"} {
				if driver = strings.TrimSuffix(driver, "/"); strings.TrimSpace(path) == driver || strings.HasPrefix(path, driver+"/") {
					t.Errorf("%s depends on %s", dir, path)
				}
			}
		}
	}
}

// ---- a database that goes away during a commit ----

// failingDriver is a driver whose transactions end in an error.
type failingDriver struct {
	commit error
	during func() // if set, called while a commit is on its way
}

func (f failingDriver) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f failingDriver) Driver() driver.Driver                        { return nil }
func (f failingDriver) Prepare(string) (driver.Stmt, error)          { return f, nil }
func (f failingDriver) Begin() (driver.Tx, error)                    { return f, nil }
func (f failingDriver) Close() error                                 { return nil }
func (f failingDriver) NumInput() int                                { return -1 }
func (f failingDriver) Exec([]driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}
func (f failingDriver) Query([]driver.Value) (driver.Rows, error) { return nil, errors.ErrUnsupported }
func (f failingDriver) Rollback() error                           { return nil }
func (f failingDriver) Commit() error {
	if f.during != nil {
		f.during()
	}
	return f.commit
}

type codedError struct {
	code  int
	state string
}

func (e codedError) Error() string    { return "coded" }
func (e codedError) Code() int        { return e.code }
func (e codedError) SQLState() string { return e.state }

func TestACommitWhoseAnswerIsLostIsUnknownAndOneThatWasRefusedIsNot(t *testing.T) {
	for _, row := range []struct {
		open    opener
		commit  error
		unknown bool
		reason  error
	}{
		{worker.SQLite, errors.New("connection reset"), true, nil},
		{worker.Postgres, errors.New("unexpected EOF"), true, nil},
		{worker.SQLite, codedError{code: 5}, false, worker.ErrConflict},
		{worker.SQLite, codedError{code: 10}, true, nil},                         // SQLITE_IOERR
		{worker.SQLite, codedError{code: 13}, false, nil},                        // SQLITE_FULL
		{worker.Postgres, codedError{state: "40001"}, false, worker.ErrConflict}, // serialization_failure
		{worker.Postgres, codedError{state: "23505"}, false, nil},                // a deferred constraint
		{worker.Postgres, codedError{state: "08006"}, true, nil},                 // connection_failure
		{worker.Postgres, codedError{state: "57P01"}, true, nil},                 // admin_shutdown
		{worker.Postgres, codedError{state: "40003"}, true, nil},                 // statement_completion_unknown
		{worker.Postgres, codedError{state: "25006"}, false, worker.ErrReadOnly}, // read_only_sql_transaction
		{worker.Postgres, errors.New("commit unexpectedly resulted in rollback"), false, worker.ErrTxAborted},
		{worker.Postgres, errors.New("pq: Could not complete operation in a failed transaction"), false, worker.ErrTxAborted},
	} {
		db := sql.OpenDB(failingDriver{commit: row.commit})
		store := openStore(t, row.open, db, worker.StoreConfig{})
		applied, err := worker.Apply(t.Context(), store, key("a"), nil, nothing)
		assert.False(t, applied)
		var failed *worker.StoreError
		require.ErrorAs(t, err, &failed, "%v", row.commit)
		assert.Equal(t, "commit", failed.Op)
		assert.Equal(t, row.unknown, failed.Unknown, "%v: %v", row.commit, err)
		assert.Equal(t, row.unknown || row.reason == worker.ErrConflict, worker.IsRetryable(err), "%v", err)
		if row.reason != nil {
			require.ErrorIs(t, err, row.reason)
		}
		require.ErrorIs(t, err, row.commit)
		require.NoError(t, db.Close())
	}
}

// pgx sends the commit with the transaction's context, and returns that context's own
// error when it ends before the answer.
func TestAContextThatEndsDuringTheCommitLeavesTheOutcomeUnknown(t *testing.T) {
	for _, row := range []struct {
		commit  error
		unknown bool
	}{
		{context.Canceled, true},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), true},
		{codedError{state: "23505"}, false}, // the server's answer came first
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		db := sql.OpenDB(failingDriver{commit: row.commit, during: func() { cancel(postroom.ErrLeaseLost) }})
		_, err := worker.Apply(ctx, openStore(t, worker.Postgres, db, worker.StoreConfig{}), key("a"), nil, nothing)
		var failed *worker.StoreError
		require.ErrorAs(t, err, &failed, "%v", row.commit)
		assert.Equal(t, row.unknown, failed.Unknown, "%v", row.commit)
		require.ErrorIs(t, err, postroom.ErrLeaseLost)
		require.NoError(t, db.Close())
	}

	// One that ended before the commit was sent leaves nothing.
	ctx, cancel := context.WithCancelCause(t.Context())
	db := sql.OpenDB(failingDriver{during: func() { t.Error("committed") }})
	_, err := worker.Apply(ctx, openStore(t, worker.Postgres, db, worker.StoreConfig{}), key("a"), nil, func(*sql.Tx) error {
		cancel(postroom.ErrLeaseLost)
		return nil
	})
	var failed *worker.StoreError
	require.ErrorAs(t, err, &failed)
	assert.False(t, failed.Unknown)
	require.ErrorIs(t, err, postroom.ErrLeaseLost)
	require.NoError(t, db.Close())
}
