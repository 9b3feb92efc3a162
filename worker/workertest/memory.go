// Package workertest tries workers without a database: [Memory] is a transactional
// store for the simulation, and [Probe] crashes any store at its boundaries.
package workertest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/worker"
)

// Memory is a [worker.Store] in memory, with accounts for the change that a test makes.
// It has what the promise of package worker rests on: transactions that happen wholly
// or not at all, one writer at a time, rollback when a function fails, panics, or is
// still busy when its context has ended. It passes the same conformance suite as the
// real databases, and unlike their drivers it starts no goroutine, so that a simulated
// run replays exactly.
type Memory struct {
	clock worker.Clock
	busy  time.Duration

	mu       sync.Mutex
	running  *Tx
	closed   bool
	readOnly bool

	keys     map[worker.Key]worker.KeyRow
	intents  []*intent // in the order of Seq
	lastSeq  int64
	accounts map[string]int64
}

var _ worker.Store[*Tx] = (*Memory)(nil)

// intent is a row of the outbox with the columns that only a store knows.
type intent struct {
	worker.IntentRow
	state        worker.IntentState
	claim        string
	claimedUntil time.Time
	doneAt       time.Time
}

// BusyTimeout is how long a transaction waits for another one, as in
// [worker.SQLiteDSN].
const BusyTimeout = 5 * time.Second

// NewMemory returns an empty store. clock nil is the machine's.
func NewMemory(clock worker.Clock) *Memory {
	if clock == nil {
		clock = worker.SystemClock()
	}
	return &Memory{clock: clock, busy: BusyTimeout, keys: map[worker.Key]worker.KeyRow{}, accounts: map[string]int64{}}
}

// Tx is a transaction of a Memory. Its methods fail once it is over.
type Tx struct {
	store *Memory
	ctx   context.Context
	undo  []func() // what takes each change back, in the order of the changes
	added map[string]int64
	over  error
}

// errOver is a transaction used after its end.
var errOver = errors.New("the transaction is over")

// Clock implements [worker.Store].
func (m *Memory) Clock() worker.Clock { return m.clock }

// Close makes every later transaction fail.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// SetReadOnly makes writes fail, or allows them again.
func (m *Memory) SetReadOnly(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readOnly = on
}

// Transact implements [worker.Store].
func (m *Memory) Transact(ctx context.Context, fn func(tx *Tx) error) error {
	tx, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.end(false) }() // fn failed or panicked; after a commit it is nothing
	if err := fn(tx); err != nil {
		return err
	}
	return tx.end(true)
}

// View implements [worker.Store]. It waits for writers, as the simplest database does.
func (m *Memory) View(ctx context.Context, fn func(tx *Tx) error) error { return m.Transact(ctx, fn) }

// begin waits until no other transaction runs.
func (m *Memory) begin(ctx context.Context) (*Tx, error) {
	// Pauses grow, as those of SQLite's busy handler do: a simulated transaction may last
	// for minutes, and each look costs a step.
	pause, waited := time.Millisecond, time.Duration(0)
	for ; ; waited, pause = waited+pause, min(2*pause, 128*time.Millisecond) {
		if ctx.Err() != nil {
			return nil, &worker.StoreError{Op: "begin", Cause: context.Cause(ctx)}
		}
		tx, err := m.tryBegin(ctx)
		if tx != nil || err != nil {
			return tx, err
		}
		if waited >= m.busy {
			return nil, &worker.StoreError{Op: "begin", Reason: worker.ErrConflict, Cause: errors.New("another transaction runs")}
		}
		if err := m.clock.Sleep(ctx, pause); err != nil {
			return nil, &worker.StoreError{Op: "begin", Cause: err}
		}
	}
}

func (m *Memory) tryBegin(ctx context.Context) (*Tx, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, &worker.StoreError{Op: "begin", Reason: worker.ErrStoreClosed, Cause: errors.New("closed")}
	}
	m.reap()
	if m.running != nil {
		return nil, nil
	}
	m.running = &Tx{store: m, ctx: ctx, added: map[string]int64{}}
	return m.running, nil
}

// reap rolls back a transaction whose context has ended: its function may never
// return. Nobody watches contexts here, so it is done before anybody could notice.
func (m *Memory) reap() {
	if tx := m.running; tx != nil && tx.ctx.Err() != nil {
		tx.rollback(context.Cause(tx.ctx))
	}
}

// rollback ends a transaction without its changes. m.mu is held.
func (t *Tx) rollback(why error) {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
	t.undo, t.over = nil, why
	t.store.running = nil
}

// end ends a transaction that is not over yet.
func (t *Tx) end(commit bool) error {
	m := t.store
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reap()
	switch {
	case t.over != nil:
		return &worker.StoreError{Op: "commit", Cause: t.over}
	case !commit:
		t.rollback(errOver)
		return nil
	}
	t.undo, t.over = nil, errOver
	m.running = nil
	return nil
}

// use locks the store for one statement of the transaction.
func (t *Tx) use(op string, write bool) (unlock func(), err error) {
	m := t.store
	m.mu.Lock()
	m.reap()
	switch {
	case t.over != nil:
		err = &worker.StoreError{Op: op, Cause: t.over}
	case m.closed:
		err = &worker.StoreError{Op: op, Reason: worker.ErrStoreClosed, Cause: errors.New("closed")}
	case write && m.readOnly:
		err = &worker.StoreError{Op: op, Reason: worker.ErrReadOnly, Cause: errors.New("read-only")}
	}
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	return m.mu.Unlock, nil
}

// Add changes an account: the effect that a test makes. Errors: [*worker.StoreError].
func (t *Tx) Add(account string, amount int64) error {
	unlock, err := t.use("add", true)
	if err != nil {
		return err
	}
	defer unlock()
	t.store.accounts[account] += amount
	t.added[account] += amount
	t.undo = append(t.undo, func() { t.store.accounts[account] -= amount })
	return nil
}

// Balance reads an account, outside of any transaction.
func (m *Memory) Balance(account string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reap()
	balance := m.accounts[account]
	if tx := m.running; tx != nil {
		balance -= tx.added[account] // what is not committed is not there
	}
	return balance
}

// Keys counts the keys.
func (m *Memory) Keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.keys)
}

// PutKey implements [worker.Store].
func (m *Memory) PutKey(_ context.Context, tx *Tx, row worker.KeyRow) (*worker.KeyRow, error) {
	unlock, err := tx.use("record key", true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if prior, known := m.keys[row.Key]; known {
		return &prior, nil
	}
	row.Payload = slices.Clone(row.Payload)
	m.keys[row.Key] = row
	tx.undo = append(tx.undo, func() { delete(m.keys, row.Key) })
	return nil, nil
}

// PruneKeys implements [worker.Store].
func (m *Memory) PruneKeys(_ context.Context, tx *Tx, before time.Time, limit int) (int, error) {
	unlock, err := tx.use("prune keys", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	var old []worker.KeyRow
	for _, row := range m.keys {
		if row.AppliedAt.Before(before) {
			old = append(old, row)
		}
	}
	slices.SortFunc(old, func(a, b worker.KeyRow) int {
		return cmp.Or(a.AppliedAt.Compare(b.AppliedAt), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	old = old[:min(limit, len(old))]
	for _, row := range old {
		delete(m.keys, row.Key)
		tx.undo = append(tx.undo, func() { m.keys[row.Key] = row })
	}
	return len(old), nil
}

// ---- the outbox ----

// AddIntent implements [worker.Store].
func (m *Memory) AddIntent(_ context.Context, tx *Tx, row worker.IntentRow) (bool, error) {
	unlock, err := tx.use("add intent", true)
	if err != nil {
		return false, err
	}
	defer unlock()
	if m.find(row.Outbox, row.ID) >= 0 {
		return false, nil
	}
	m.lastSeq++
	row.Seq = m.lastSeq
	row.Payload = slices.Clone(row.Payload)
	m.insert(tx, len(m.intents), &intent{IntentRow: row})
	return true, nil
}

func (m *Memory) find(outbox, id string) int {
	return slices.IndexFunc(m.intents, func(in *intent) bool { return in.Outbox == outbox && in.ID == id })
}

func (m *Memory) insert(tx *Tx, at int, in *intent) {
	m.intents = slices.Insert(m.intents, at, in)
	tx.undo = append(tx.undo, func() {
		at := slices.Index(m.intents, in)
		m.intents = slices.Delete(m.intents, at, at+1)
	})
}

func (m *Memory) remove(tx *Tx, at int) {
	in := m.intents[at]
	m.intents = slices.Delete(m.intents, at, at+1)
	tx.undo = append(tx.undo, func() { m.intents = slices.Insert(m.intents, at, in) })
}

// change notes a row's value before it is changed.
func (t *Tx) change(in *intent) {
	was := *in
	t.undo = append(t.undo, func() { *in = was })
}

// ClaimIntents implements [worker.Store].
func (m *Memory) ClaimIntents(_ context.Context, tx *Tx, c worker.Claim) ([]worker.IntentRow, error) {
	unlock, err := tx.use("claim intents", true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var claimed []worker.IntentRow
	behind := map[string]bool{} // orders of which an earlier one cannot come
	for _, in := range m.intents {
		if len(claimed) == c.Limit {
			break
		}
		if in.Outbox != c.Outbox || in.state == worker.IntentSent {
			continue
		}
		free := in.state == worker.IntentPending && (in.Attempts == 0 || !in.DueAt.After(c.Now)) && !in.claimedUntil.After(c.Now)
		if !free || behind[in.Order] {
			behind[in.Order] = in.Order != ""
			continue
		}
		tx.change(in)
		in.claim, in.claimedUntil = c.Name, c.Until
		claimed = append(claimed, in.IntentRow)
	}
	return claimed, nil
}

// SettleIntents implements [worker.Store].
func (m *Memory) SettleIntents(_ context.Context, tx *Tx, claim string, now time.Time, results []worker.Settled) (int, error) {
	unlock, err := tx.use("mark intents", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	settled := 0
	for _, r := range results {
		at := slices.IndexFunc(m.intents, func(in *intent) bool { return in.Seq == r.Seq })
		if at < 0 || m.intents[at].claim != claim || m.intents[at].state != worker.IntentPending {
			continue
		}
		in := m.intents[at]
		tx.change(in)
		in.claim, in.claimedUntil = "", time.Time{}
		switch r.To {
		case worker.SettledSent:
			in.state, in.doneAt, in.Error = worker.IntentSent, now, ""
		case worker.SettledFailed, worker.SettledParked:
			in.Attempts, in.DueAt, in.Error = in.Attempts+1, r.DueAt, r.Error
			if r.To == worker.SettledParked {
				in.state, in.doneAt = worker.IntentParked, now
			}
		case worker.SettledFreed:
		}
		settled++
	}
	return settled, nil
}

// ListIntents implements [worker.Store].
func (m *Memory) ListIntents(_ context.Context, tx *Tx, outbox string, state worker.IntentState, after int64, limit int) ([]worker.IntentRow, error) {
	unlock, err := tx.use("list intents", false)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []worker.IntentRow
	for _, in := range m.intents {
		if len(list) < limit && in.Outbox == outbox && in.state == state && in.Seq > after {
			list = append(list, in.IntentRow)
		}
	}
	return list, nil
}

// MoveParked implements [worker.Store].
func (m *Memory) MoveParked(_ context.Context, tx *Tx, outbox string, ids []string, drop bool, now time.Time) (int, error) {
	unlock, err := tx.use("move intents", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	moved := 0
	for _, id := range ids {
		at := m.find(outbox, id)
		if at < 0 || m.intents[at].state != worker.IntentParked {
			continue
		}
		moved++
		if drop {
			m.remove(tx, at)
			continue
		}
		in := m.intents[at]
		tx.change(in)
		in.state, in.Attempts, in.DueAt = worker.IntentPending, 0, now
	}
	return moved, nil
}

// CountIntents implements [worker.Store].
func (m *Memory) CountIntents(_ context.Context, tx *Tx, outbox string) (worker.OutboxStats, error) {
	var s worker.OutboxStats
	unlock, err := tx.use("count intents", false)
	if err != nil {
		return s, err
	}
	defer unlock()
	for _, in := range m.intents {
		if in.Outbox != outbox {
			continue
		}
		switch in.state {
		case worker.IntentPending:
			s.Pending++
			s.OldestAge = max(s.OldestAge, m.clock.Now().Sub(in.AddedAt))
		case worker.IntentSent:
			s.Sent++
		case worker.IntentParked:
			s.Parked++
		}
	}
	return s, nil
}

// PruneIntents implements [worker.Store].
func (m *Memory) PruneIntents(_ context.Context, tx *Tx, before time.Time, limit int) (int, error) {
	unlock, err := tx.use("prune intents", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	removed := 0
	for at := 0; at < len(m.intents) && removed < limit; {
		if in := m.intents[at]; in.state == worker.IntentSent && in.doneAt.Before(before) {
			m.remove(tx, at)
			removed++
			continue
		}
		at++
	}
	return removed, nil
}

// Intents counts the intents of all outboxes.
func (m *Memory) Intents() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.intents)
}
