package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
	"github.com/postroom/postroom/worker"
	"github.com/postroom/postroom/worker/workertest"
)

// Two retry tokens, a deadline of a second, 0.2 s for each attempt: the third attempt
// succeeds. Each attempt takes 50 ms; the rest is two random waits.
func ExampleRetry() {
	err := simulation.Run(1, func(w *simulation.World) {
		broker := w.MustOpen() // for its clock, which is virtual here
		budget, err := worker.NewBudget(worker.BudgetConfig{Tokens: 2, PerSuccess: worker.None, PerSecond: worker.None})
		if err != nil {
			log.Fatal(err)
		}
		policy := worker.Policy{
			Attempts: 5, Deadline: time.Second, AttemptTimeout: 200 * time.Millisecond, Base: 100 * time.Millisecond,
			Clock: broker, Draw: dice(0.32383276483316237, 0.15084917392450192),
		}
		start := w.Now()
		err = worker.Retry(context.Background(), policy, budget, func(ctx context.Context, attempt int) error {
			ends, _ := ctx.Deadline()
			fmt.Printf("%.3fs attempt %d has %s\n", w.Now().Sub(start).Seconds(), attempt, ends.Sub(w.Now()))
			if err := broker.Sleep(ctx, 50*time.Millisecond); err != nil {
				return worker.Retryable(err)
			}
			if attempt < 3 {
				return worker.Retryable(errors.New("503 Service Unavailable"))
			}
			return nil
		})
		fmt.Printf("%.3fs error: %v, tokens left: %.0f\n", w.Now().Sub(start).Seconds(), err, budget.Stats(w.Now()).Tokens)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0.000s attempt 1 has 200ms
	// 0.082s attempt 2 has 200ms
	// 0.163s attempt 3 has 200ms
	// 0.213s error: <nil>, tokens left: 0
}

// dice draws these shares of the whole, one after the other.
func dice(shares ...float64) worker.Draw {
	return func() uint64 {
		share := shares[0]
		shares = shares[1:]
		return uint64(share * (1 << 63) * 2)
	}
}

// Callers of one dependency share a budget. It bounds their extra calls together, so
// that an outage is not met with a multiple of the load; first calls cost nothing.
func ExampleBudget() {
	err := simulation.Run(1, func(w *simulation.World) {
		broker := w.MustOpen()
		budget, err := worker.NewBudget(worker.BudgetConfig{Tokens: 10, PerSuccess: 0.1, PerSecond: worker.None})
		if err != nil {
			log.Fatal(err)
		}
		calls := 0
		for range 100 {
			err = worker.Retry(context.Background(), worker.Policy{Clock: broker, Draw: noDraw}, budget, func(context.Context, int) error {
				calls++
				return worker.Retryable(errors.New("away"))
			})
		}
		fmt.Println("100 operations,", calls, "calls; the last:", err)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 100 operations, 110 calls; the last: stopped after attempt 1, 0s: retry budget spent: away
}

// check is for what cannot go wrong in an example.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The effect and its key are one transaction. The second time the key is known.
func ExampleApply() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "postroom-example-")
	check(err)
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", worker.SQLiteDSN(filepath.Join(dir, "bank.db"))) // import _ "modernc.org/sqlite"
	check(err)
	defer db.Close()
	store, err := worker.SQLite(db, worker.StoreConfig{})
	check(err)
	check(worker.Migrate(ctx, store))
	_, err = db.ExecContext(ctx, "CREATE TABLE account (id INTEGER PRIMARY KEY, total INTEGER); INSERT INTO account VALUES (1, 0)")
	check(err)

	key := worker.Key{Caller: "web", Operation: "credit", ID: "credit-17"}
	credit := func(amount int) {
		payload := fmt.Appendf(nil, `{"amount":%d}`, amount)
		applied, err := worker.Apply(ctx, store, key, payload, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE account SET total = total + ? WHERE id = 1", amount)
			return err
		})
		fmt.Println(amount, "applied:", applied, "reused:", errors.Is(err, worker.ErrKeyReused))
	}
	credit(10)
	credit(10) // redelivered
	credit(11) // something else under the same key
	var total int
	check(db.QueryRowContext(ctx, "SELECT total FROM account").Scan(&total))
	fmt.Println("balance:", total)
	// Output:
	// 10 applied: true reused: false
	// 10 applied: false reused: false
	// 11 applied: false reused: true
	// balance: 10
}

// A handler for a queue of credits: bad payloads are parked at once, good ones credited
// once, however often they come.
func ExampleHandle() {
	err := simulation.Run(1, func(w *simulation.World) {
		ctx, broker := context.Background(), w.MustOpen()
		store := workertest.NewMemory(broker) // or worker.SQLite, worker.Postgres
		_ = broker.DeclareQueue(ctx, "credits", postroom.QueueConfig{MaxAttempts: 3, DeadLetterAlarm: 10})
		_, err := worker.Handle(ctx, broker, "credits", store, worker.Work[*workertest.Tx]{
			Operation: "credit",
			Check: func(d *postroom.Delivery) error {
				if n, err := strconv.Atoi(string(d.Body)); err != nil || n < 0 {
					return fmt.Errorf("no amount: %q", d.Body)
				}
				return nil
			},
			Do: func(_ context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
				n, _ := strconv.Atoi(string(d.Body))
				return tx.Add("account", int64(n))
			},
		}, postroom.ConsumerConfig{})
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range [][2]string{{"credit-17", "10"}, {"credit-17", "10"}, {"credit-18", "-5"}} {
			_, _ = broker.Put(ctx, "credits", postroom.Envelope{ID: m[0], Body: []byte(m[1])})
			w.Idle() // until it is worked off: the second is no duplicate for the queue
		}
		fmt.Println("balance:", store.Balance("account"))
		letters, _ := broker.DeadLetters(ctx, "credits", 0, 10)
		for _, l := range letters {
			fmt.Printf("dead: %s, %s: %s\n", l.ID, l.Reason, l.Error)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// balance: 10
	// dead: credit-18, rejected: no amount: "-5"
}

// An intent is a row of the transaction that makes it true; a dispatcher sends it
// afterwards, again after a failure, in order.
func ExampleOutbox() {
	err := simulation.Run(1, func(w *simulation.World) {
		ctx, broker := context.Background(), w.MustOpen()
		store := workertest.NewMemory(broker)
		_ = broker.DeclareQueue(ctx, "mail", postroom.QueueConfig{})
		_ = broker.Pause(ctx, "mail")
		outbox, err := worker.NewOutbox(store, worker.ToQueue(broker, "mail"), worker.OutboxConfig{})
		if err != nil {
			log.Fatal(err)
		}
		for i := range 3 {
			id := fmt.Sprint("credit-", i)
			_, err := worker.Apply(ctx, store, worker.Key{Operation: "credit", ID: id}, []byte("10"), func(tx *workertest.Tx) error {
				if err := tx.Add("account", 10); err != nil {
					return err
				}
				if err := outbox.Add(ctx, tx, worker.Intent{ID: id, Order: "account", Payload: []byte("you got 10")}); err != nil {
					return err
				}
				if i == 1 {
					return errors.New("rolled back: no credit, no mail")
				}
				return nil
			})
			fmt.Println(id, err)
		}
		d, err := outbox.Dispatch(ctx) // outbox.Run(ctx) goes on until ctx ends
		fmt.Println("sent:", d.Sent, err)
		waiting, _ := broker.Peek(ctx, "mail", 10)
		for _, m := range waiting {
			fmt.Println(m.ID, string(m.Body))
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// credit-0 <nil>
	// credit-1 rolled back: no credit, no mail
	// credit-2 <nil>
	// sent: 2 <nil>
	// credit-0 you got 10
	// credit-2 you got 10
}

// Dead letters come back with their identity, at a bounded rate. Those that may be older
// than the keys that guard them are refused.
func ExampleRedrive() {
	err := simulation.Run(1, func(w *simulation.World) {
		ctx, broker := context.Background(), w.MustOpen()
		_ = broker.DeclareQueue(ctx, "credits", postroom.QueueConfig{})
		bug := true
		_, _ = broker.Consume(ctx, "credits", func(context.Context, *postroom.Delivery) error {
			if bug {
				return postroom.Permanent(errors.New("bug"))
			}
			return nil
		}, postroom.ConsumerConfig{})
		_, _ = broker.Put(ctx, "credits", postroom.Envelope{ID: "credit-17"})
		w.Sleep(8 * 24 * time.Hour)
		bug = false

		_, err := worker.Redrive(ctx, broker, "credits", broker, worker.RedriveConfig{})
		fmt.Println(err)
		fmt.Println("hint:", postroom.Hint(err))
		moved, err := worker.Redrive(ctx, broker, "credits", broker, worker.RedriveConfig{Force: true})
		fmt.Println("moved:", moved.Moved, err)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// redrive "credits": 1 dead letters are older than the keys that guard them, the oldest from 2026-01-01T00:00:00Z
	// hint: find out whether they were applied, then Discard them or redrive with Force; and keep keys longer than letters
	// moved: 1 <nil>
}
