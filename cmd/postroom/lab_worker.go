package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	_ "modernc.org/sqlite" // the driver "sqlite", without cgo

	"github.com/postroom/postroom/worker"
	"github.com/postroom/postroom/worker/workertest"
)

// A worker process of the lab reads one order after the other from stdin, as JSON
// lines, and answers each on stdout. It ends when stdin does, so none outlives its
// parent.

// labOrder is what a worker process is told to do.
type labOrder struct {
	Do labTask `json:"do"`
	// Job and Amount are the credit; its id is the key.
	Job    string `json:"job,omitempty"`
	Amount int64  `json:"amount,omitempty"`
	// Work is how long the credit takes: a third before the transaction, a third inside
	// it, and a third after its commit and before the answer.
	Work time.Duration `json:"work,omitempty"`
	// Dedupe has the receiver apply by key.
	Dedupe bool `json:"dedupe,omitempty"`
	// DieAt kills the process at a boundary, with SIGKILL: nothing is flushed, closed or
	// rolled back by it.
	DieAt workertest.Point `json:"die_at,omitempty"`
}

// labTask is a kind of order.
type labTask string

const (
	creditUnsafely labTask = "credit unsafely" // an update and nothing else
	creditSafely   labTask = "credit safely"   // by worker.Apply, with an intent for the receiver
	dispatchOnce   labTask = "dispatch"        // one batch of the outbox
)

// labReply is its answer.
type labReply struct {
	Again bool   `json:"again,omitempty"` // it had been applied before
	Sent  int    `json:"sent,omitempty"`
	Error string `json:"error,omitempty"`
}

// labFiles are the two databases: the bank's own, and that of the other system.
type labFiles struct{ bank, receiver string }

// labBank is an open database with an account per job and the tables of package worker.
type labBank struct {
	db    *sql.DB
	store *worker.SQL
}

func openBank(ctx context.Context, path string) (*labBank, error) {
	db, err := sql.Open("sqlite", worker.SQLiteDSN(path))
	if err != nil {
		return nil, err
	}
	store, err := worker.SQLite(db, worker.StoreConfig{})
	if err == nil {
		err = worker.Migrate(ctx, store)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS account (job TEXT PRIMARY KEY, total BIGINT NOT NULL, credits BIGINT NOT NULL)`)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &labBank{db, store}, nil
}

func (b *labBank) close() error { return b.db.Close() }

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// credit is the change: it adds, so that a second one shows.
func credit(ctx context.Context, to execer, job string, amount int64) error {
	_, err := to.ExecContext(ctx, `INSERT INTO account (job, total, credits) VALUES (?1, ?2, 1)
		ON CONFLICT (job) DO UPDATE SET total = total + ?2, credits = credits + 1`, job, amount)
	return err
}

// labWorkerCommand is not for users: "postroom lab" starts it.
func (a *app) labWorkerCommand() *cobra.Command {
	var files labFiles
	cmd := &cobra.Command{
		Use:    "lab-worker",
		Short:  "A worker process of the lab",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return a.labWork(cmd.Context(), files) },
	}
	cmd.Flags().StringVar(&files.bank, "bank", "", "database of the bank")
	cmd.Flags().StringVar(&files.receiver, "receiver", "", "database of the receiver")
	return cmd
}

func (a *app) labWork(ctx context.Context, files labFiles) (err error) {
	bank, err := openBank(ctx, files.bank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.close()) }()
	receiver, err := openBank(ctx, files.receiver)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receiver.close()) }()

	orders := bufio.NewScanner(a.stdin)
	replies := json.NewEncoder(a.stdout)
	for orders.Scan() {
		var order labOrder
		if err := json.Unmarshal(orders.Bytes(), &order); err != nil {
			return err
		}
		reply, err := carryOut(ctx, bank, receiver, order)
		if err != nil {
			reply.Error = err.Error()
		}
		if err := replies.Encode(reply); err != nil {
			return err
		}
	}
	return orders.Err()
}

func carryOut(ctx context.Context, bank, receiver *labBank, order labOrder) (reply labReply, err error) {
	die := func(at workertest.Point) {
		if at == order.DieAt {
			dieNow()
		}
	}
	switch order.Do {
	case creditUnsafely:
		err = credit(ctx, bank.db, order.Job, order.Amount)
		die(workertest.AfterCommit)

	case creditSafely:
		time.Sleep(order.Work / 3)
		store := workertest.Probe(bank.store, die)
		outbox, err := worker.NewOutbox(store, nil, worker.OutboxConfig{Name: "receiver"})
		if err != nil {
			return reply, err
		}
		payload := fmt.Appendf(nil, `{"amount":%d}`, order.Amount)
		key := worker.Key{Caller: "lab", Operation: "credit", ID: order.Job}
		applied, err := worker.Apply(ctx, store, key, payload, func(tx *sql.Tx) error {
			if err := credit(ctx, tx, order.Job, order.Amount); err != nil {
				return err
			}
			time.Sleep(order.Work / 3)
			return outbox.Add(ctx, tx, worker.Intent{ID: order.Job, Order: order.Job, Payload: payload})
		})
		time.Sleep(order.Work / 3)
		reply.Again = !applied && err == nil
		return reply, err

	case dispatchOnce:
		deliver := func(ctx context.Context, in worker.Intent) error { return receive(ctx, receiver, in, order.Dedupe) }
		// The killed dispatcher's claim must run out soon: its successor waits for that.
		outbox, err := worker.NewOutbox(workertest.Probe(bank.store, die), deliver, worker.OutboxConfig{Name: "receiver", Claim: labClaim})
		if err != nil {
			return reply, err
		}
		d, err := outbox.Dispatch(ctx)
		reply.Sent = d.Sent
		return reply, err

	default:
		err = fmt.Errorf("unknown order %q", order.Do)
	}
	return reply, err
}

// receive is the other system: an effect of its own, in a database of its own.
func receive(ctx context.Context, receiver *labBank, in worker.Intent, dedupe bool) error {
	var event struct {
		Amount int64 `json:"amount"`
	}
	if err := json.Unmarshal(in.Payload, &event); err != nil {
		return err
	}
	if !dedupe {
		return credit(ctx, receiver.db, in.ID, event.Amount)
	}
	key := worker.Key{Caller: "bank", Operation: "receive", ID: in.ID}
	_, err := worker.Apply(ctx, receiver.store, key, in.Payload, func(tx *sql.Tx) error {
		return credit(ctx, tx, in.ID, event.Amount)
	})
	return err
}

// dieNow ends this process as a power cut would: SIGKILL cannot be caught.
func dieNow() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // the signal is on its way
}

// labEnviron is the environment of a worker process: the parent's, but without a
// tracing or coverage directory that hundreds of killed processes would fill.
func labEnviron() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GOCOVERDIR=") {
			env = append(env, e)
		}
	}
	return env
}
