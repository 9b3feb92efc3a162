package worker

import (
	"errors"
	"strconv"
	"strings"
)

// schemaVersion is that of the tables below. A change to them adds one, and Migrate the
// statements that lead there.
const schemaVersion = 1

// dialect is what differs between two databases.
type dialect struct {
	numbered   bool     // parameters are $1, $2, … and not ?
	lockSchema string   // taken by Migrate
	lockOrder  string   // taken with an intent that has an order
	lockClaim  string   // taken with a claim
	schema     []string // makes the tables
	reason     func(err error) error
	refused    func(err error) bool // the database itself said no to a commit
}

// bind writes a statement's parameters as the dialect has them.
func (d *dialect) bind(text string) string {
	if !d.numbered {
		return text
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if r == '?' {
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// in replaces the (…) of a statement that was bound already with n parameters more.
func (d *dialect) in(text string, before, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if d.numbered {
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(before + i + 1))
		} else {
			b.WriteByte('?')
		}
	}
	return strings.Replace(text, "…", b.String(), 1)
}

// sqlite needs no locks of its own: a transaction that writes is alone.
var sqlite = dialect{
	reason:  sqliteReason,
	refused: func(err error) bool { _, ok := sqliteCode(err); return ok },
	schema:  schema("BLOB", "INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT"),
}

var postgres = dialect{
	numbered: true,
	// The numbers are the first bytes of a hash of these names, so that they meet no
	// lock of the application by accident.
	lockSchema: "SELECT pg_advisory_xact_lock(hashtextextended('postroom schema', 0))",
	lockOrder:  "SELECT pg_advisory_xact_lock(hashtextextended('postroom order ' || ?, 0))",
	lockClaim:  "SELECT pg_advisory_xact_lock(hashtextextended('postroom claim ' || ?, 0))",
	reason:     postgresReason,
	refused:    func(err error) bool { _, ok := sqlState(err); return ok },
	schema:     schema("BYTEA", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BIGINT"),
}

// schema makes the tables. Instants are nanoseconds since 1970.
func schema(bytes, number, instant string) []string {
	replace := strings.NewReplacer("BYTES", bytes, "NUMBER", number, "INSTANT", instant)
	list := []string{
		`CREATE TABLE IF NOT EXISTS postroom_schema (version INTEGER PRIMARY KEY)`,
		`INSERT INTO postroom_schema (version) VALUES (` + strconv.Itoa(schemaVersion) + `) ON CONFLICT DO NOTHING`,
		`CREATE TABLE IF NOT EXISTS postroom_keys (
			caller TEXT NOT NULL, operation TEXT NOT NULL, id TEXT NOT NULL,
			payload BYTES NOT NULL, hashed INTEGER NOT NULL, applied_at INSTANT NOT NULL,
			PRIMARY KEY (caller, operation, id))`,
		`CREATE INDEX IF NOT EXISTS postroom_keys_age ON postroom_keys (applied_at)`,
		// state: 0 pending, 1 sent, 2 parked
		`CREATE TABLE IF NOT EXISTS postroom_outbox (
			seq NUMBER,
			outbox TEXT NOT NULL, id TEXT NOT NULL, order_key TEXT NOT NULL,
			payload BYTES NOT NULL, headers TEXT NOT NULL, added_at INSTANT NOT NULL,
			state INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
			due_at INSTANT NOT NULL, claim TEXT NOT NULL DEFAULT '', claimed_until INSTANT NOT NULL DEFAULT 0,
			error TEXT NOT NULL DEFAULT '', done_at INSTANT NOT NULL DEFAULT 0,
			UNIQUE (outbox, id))`,
		`CREATE INDEX IF NOT EXISTS postroom_outbox_pending ON postroom_outbox (outbox, seq) WHERE state = 0`,
		`CREATE INDEX IF NOT EXISTS postroom_outbox_touched ON postroom_outbox (outbox, order_key, seq) WHERE ` + touched,
		`CREATE INDEX IF NOT EXISTS postroom_outbox_sent ON postroom_outbox (done_at) WHERE state = 1`,
	}
	for i := range list {
		list[i] = replace.Replace(list[i])
	}
	return list
}

// touched are the intents that were handed to a dispatcher and are not sent. Only they
// can hold back others, and there are few of them: those under way, those that failed,
// those parked. The planner finds their index by these very words.
const touched = `state <> 1 AND (state = 2 OR claim <> '' OR attempts > 0)`

// statements are the texts of one dialect, bound.
type statements struct {
	putKey, getKey, pruneKeys                string
	lockOrder, addIntent                     string
	lockClaim, claim, sent, free, fail, list string
	unpark, drop, count, pruneIntents        string
}

const intentColumns = "seq, outbox, id, order_key, payload, headers, added_at, due_at, attempts, error"

func newStatements(d dialect) statements {
	s := statements{
		putKey: `INSERT INTO postroom_keys (caller, operation, id, payload, hashed, applied_at)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		getKey: `SELECT payload, hashed, applied_at FROM postroom_keys WHERE caller = ? AND operation = ? AND id = ?`,
		pruneKeys: `DELETE FROM postroom_keys WHERE (caller, operation, id) IN (
			SELECT caller, operation, id FROM postroom_keys WHERE applied_at < ? ORDER BY applied_at LIMIT ?)`,

		lockOrder: d.lockOrder,
		addIntent: `INSERT INTO postroom_outbox (outbox, id, order_key, payload, headers, added_at, due_at)
			VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,

		lockClaim: d.lockClaim,
		// A row with an order waits while an earlier one of that order is not sent and
		// cannot come in the same claim: it is parked, not yet due, or somebody else's.
		// Earlier ones that can come do so, being first in the order of seq.
		//
		// Those that hold back are found once for all rows, and not for each row by a
		// subquery: planners take that for cheap, and then walk through all that was ever
		// sent for each row. What was never tried is due whatever its due_at says, so that
		// a clock that is ahead lets nothing overtake.
		claim: `UPDATE postroom_outbox SET claim = ?, claimed_until = ? WHERE seq IN (
			SELECT o.seq FROM postroom_outbox o
			LEFT JOIN (
				SELECT order_key, min(seq) AS first FROM postroom_outbox
				WHERE outbox = ? AND order_key <> '' AND ` + touched + `
					AND (state = 2 OR (attempts > 0 AND due_at > ?) OR claimed_until > ?)
				GROUP BY order_key) held ON held.order_key = o.order_key AND held.first < o.seq
			WHERE o.outbox = ? AND o.state = 0 AND (o.attempts = 0 OR o.due_at <= ?) AND o.claimed_until <= ?
				AND held.first IS NULL
			ORDER BY o.seq LIMIT ?)
			RETURNING ` + intentColumns,
		sent: `UPDATE postroom_outbox SET state = 1, done_at = ?, claim = '', claimed_until = 0, error = ''
			WHERE claim = ? AND state = 0 AND seq IN (…)`,
		free: `UPDATE postroom_outbox SET claim = '', claimed_until = 0 WHERE claim = ? AND state = 0 AND seq IN (…)`,
		fail: `UPDATE postroom_outbox SET state = ?, attempts = attempts + 1, due_at = ?, error = ?, done_at = ?, claim = '', claimed_until = 0
			WHERE seq = ? AND claim = ? AND state = 0`,

		list: `SELECT ` + intentColumns + ` FROM postroom_outbox WHERE outbox = ? AND state = ? AND seq > ? ORDER BY seq LIMIT ?`,
		unpark: `UPDATE postroom_outbox SET state = 0, attempts = 0, due_at = ?, claim = '', claimed_until = 0
			WHERE outbox = ? AND id = ? AND state = 2`,
		drop: `DELETE FROM postroom_outbox WHERE outbox = ? AND id = ? AND state = 2`,
		count: `SELECT coalesce(sum(CASE WHEN state = 0 THEN 1 ELSE 0 END), 0),
				coalesce(sum(CASE WHEN state = 1 THEN 1 ELSE 0 END), 0),
				coalesce(sum(CASE WHEN state = 2 THEN 1 ELSE 0 END), 0),
				min(CASE WHEN state = 0 THEN added_at END)
			FROM postroom_outbox WHERE outbox = ?`,
		pruneIntents: `DELETE FROM postroom_outbox WHERE seq IN (
			SELECT seq FROM postroom_outbox WHERE state = 1 AND done_at < ? ORDER BY done_at LIMIT ?)`,
	}
	for _, text := range []*string{
		&s.putKey, &s.getKey, &s.pruneKeys, &s.lockOrder, &s.addIntent, &s.lockClaim, &s.claim, &s.sent, &s.free, &s.fail,
		&s.list, &s.unpark, &s.drop, &s.count, &s.pruneIntents,
	} {
		*text = d.bind(*text)
	}
	return s
}

// ---- what a driver's error means ----

// Result codes of SQLite, in the low byte of an extended one.
const (
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadOnly = 8
	sqliteIOErr    = 10
)

// sqliteCode reads the code of modernc.org/sqlite and of drivers like it.
func sqliteCode(err error) (int, bool) {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return 0, false
	}
	code := coded.Code() & 0xff
	return code, code != sqliteIOErr // a disk that fails gives no certainty
}

func sqliteReason(err error) error {
	code, _ := sqliteCode(err)
	text := err.Error()
	switch {
	case strings.Contains(text, "no such table: postroom_"):
		return ErrNoTables
	case code == sqliteBusy || code == sqliteLocked || strings.Contains(text, "database is locked"):
		return ErrConflict
	case code == sqliteReadOnly || strings.Contains(text, "readonly database"):
		return ErrReadOnly
	case strings.Contains(text, "no transaction is active"):
		return ErrTxEnded
	}
	return nil
}

func sqlState(err error) (string, bool) {
	var stated interface{ SQLState() string }
	if !errors.As(err, &stated) {
		return "", false
	}
	state := stated.SQLState()
	// Class 08 is a connection that broke, 57 one that was ended, 40003 says itself that
	// it does not know.
	return state, state != "40003" && !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P")
}

func postgresReason(err error) error {
	switch state, _ := sqlState(err); state {
	case "42P01": // undefined_table
		if strings.Contains(err.Error(), "postroom_") {
			return ErrNoTables
		}
	case "40001", "40P01", "55P03": // serialization_failure, deadlock_detected, lock_not_available
		return ErrConflict
	case "25006", "42501": // read_only_sql_transaction, insufficient_privilege
		return ErrReadOnly
	case "25P02": // in_failed_sql_transaction
		return ErrTxAborted
	}
	// The server answers such a commit with a rollback, without a state; these are the
	// words of pgx and of pq.
	for _, text := range []string{"commit unexpectedly resulted in rollback", "Could not complete operation in a failed transaction"} {
		if strings.Contains(err.Error(), text) {
			return ErrTxAborted
		}
	}
	return nil
}
