package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
	"github.com/postroom/postroom/supervisor"
	"github.com/postroom/postroom/worker"
	"github.com/postroom/postroom/worker/workertest"
)

// simClock is a world's clock while the world is still being described.
type simClock struct{ *simulation.World }

func (c simClock) Sleep(ctx context.Context, d time.Duration) error { return c.Broker().Sleep(ctx, d) }

// bankFaults are all but those by which the simulation itself acks what the handler has
// not done: no worker can be safe from that.
var bankFaults = simulation.OnlyFaults(6,
	simulation.FaultCrash, simulation.FaultKill, simulation.FaultHang, simulation.FaultZombie, simulation.FaultSlow, simulation.FaultNack,
	simulation.FaultReject, simulation.FaultExtendLate, simulation.FaultIgnore, simulation.FaultPause, simulation.FaultRestart,
	simulation.FaultRolling, simulation.FaultScaleZero, simulation.FaultNackStorm, simulation.FaultReorder,
	simulation.FaultPutUnknown, simulation.FaultQueuePause, simulation.FaultRedrive, simulation.FaultDuplicate)

// bank is the whole chain in one simulated world: jobs are credited in a bank's store,
// an outbox tells a receiver through a queue, and the receiver credits in its own. Each
// commit and each mark is a point at which the plan's faults strike: crash, kill,
// hang, zombie, slow.
//
// With safe off, credits are made without a key, as in the document's unsafe variant.
func bank(safe bool) simulation.Spec {
	name := "bank"
	if !safe {
		name = "unsafe-bank"
	}
	return simulation.Spec{Name: name, NoEvents: true, Build: func(w *simulation.World) {
		config := postroom.QueueConfig{
			AckTimeout:  simulation.Choose(w, "lease", 5*time.Second, 500*time.Millisecond),
			MaxAttempts: simulation.Choose(w, "attempts", postroom.Unlimited, 3),
			BackoffCap:  10 * time.Second,
		}
		jobs, mail, ticks := w.Queue("jobs", config), w.Queue("mail", config), w.Queue("ticks", config)
		clock := simClock{w}
		ours, theirs := workertest.NewMemory(clock), workertest.NewMemory(clock)
		boundaries := w.External("boundary", nil)
		pace := simulation.Choose(w, "pace", 0, 50*time.Millisecond, 300*time.Millisecond)
		// A lease shorter than the work and no heartbeat would never come to an end.
		noHeartbeat := simulation.Choose(w, "heartbeat off", false, true) && config.AckTimeout > time.Second

		// at crashes, if the plan says so, where the store is at a boundary.
		crashed := map[string]int{}
		at := func(ctx context.Context, who, id string, store *workertest.Memory) worker.Store[*workertest.Tx] {
			return workertest.Probe(store, func(p workertest.Point) {
				defer func() {
					if value := recover(); value != nil {
						crashed[who+" "+string(p)]++
						panic(value)
					}
				}()
				_ = boundaries.Do(ctx, id, string(p))
			})
		}
		outbox := func(ctx context.Context, id string) (*worker.Outbox[*workertest.Tx], error) {
			return worker.NewOutbox(at(ctx, "dispatcher", id, ours), worker.ToQueue(w.Broker(), "mail"),
				worker.OutboxConfig{Claim: 2 * time.Second, Batch: 3, Attempts: postroom.Unlimited, Base: 100 * time.Millisecond, Cap: time.Second, Draw: noDraw})
		}
		apply := func(operation string, store *workertest.Memory, then func(ctx context.Context, tx *workertest.Tx, d *postroom.Delivery) error) postroom.Handler {
			return func(ctx context.Context, d *postroom.Delivery) error {
				store := at(ctx, "worker", d.ID, store)
				change := func(ctx context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
					if err := tx.Add(d.ID, 1); err != nil {
						return err
					}
					if err := w.Broker().Sleep(ctx, pace); err != nil {
						return err
					}
					return then(ctx, tx, d)
				}
				if !safe {
					return store.Transact(ctx, func(tx *workertest.Tx) error { return change(ctx, tx, d) })
				}
				handler, err := worker.Handler(store, worker.Work[*workertest.Tx]{Operation: operation, Do: change})
				if err != nil {
					return err
				}
				return handler(ctx, d)
			}
		}
		tell := func(ctx context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
			o, err := outbox(ctx, d.ID)
			if err != nil {
				return err
			}
			err = o.Add(ctx, tx, worker.Intent{ID: "event-" + d.ID, Order: simOrder(d.ID), Payload: d.Body})
			if !safe && errors.Is(err, worker.ErrIntentExists) {
				return nil
			}
			return err
		}
		last := func(context.Context, *workertest.Tx, *postroom.Delivery) error { return nil }
		w.Workers("teller", 3, jobs, simulation.Inline(apply("credit", ours, tell)), postroom.ConsumerConfig{
			NoHeartbeat: noHeartbeat, HandlerTimeout: time.Minute,
		})
		w.Workers("clerk", 2, mail, simulation.Inline(apply("receive", theirs, last)), postroom.ConsumerConfig{HandlerTimeout: time.Minute})
		// Each tick is one batch of the outbox.
		w.Workers("dispatcher", 2, ticks, simulation.Inline(func(ctx context.Context, d *postroom.Delivery) error {
			o, err := outbox(ctx, d.ID)
			if err == nil {
				_, err = o.Dispatch(ctx)
			}
			return err
		}), postroom.ConsumerConfig{HandlerTimeout: time.Minute})
		items := w.Between("items", 1, 6)
		w.Produce("api", jobs, simulation.Items(items), nil)
		w.Produce("clock", ticks, simulation.Every(2*time.Second, 6), nil)
		w.Options(postroom.WithRestarts(supervisor.Policy{MaxFailures: postroom.Unlimited, Cap: time.Second}))
		w.Faults(bankFaults)

		ids := make([]string, items)
		for i := range ids {
			ids[i] = fmt.Sprintf("m%d", i+1)
		}
		w.Always("credited at most once, and told of nothing that was not", func(v simulation.View) error {
			for _, id := range ids {
				mine, others := ours.Balance(id), theirs.Balance("event-"+id)
				if mine > 1 || others > 1 {
					return fmt.Errorf("%s: %d credits here, %d there", id, mine, others)
				}
				if others > mine {
					return fmt.Errorf("%s: told, and not credited", id)
				}
			}
			return nil
		})
		w.Always("acked only after its commit", func(v simulation.View) error {
			e := v.Event()
			if e.Kind != simulation.KindSettle || e.Verb != "ack" {
				return nil
			}
			switch {
			case e.Queue == "jobs" && ours.Balance(e.Message) != 1, e.Queue == "mail" && theirs.Balance(e.Message) != 1:
				return fmt.Errorf("%s was acked by %s and its effect is not there", e.Message, e.Worker)
			}
			return nil
		})
		w.Sometimes("a crash after the effect, before the ack", func(v simulation.View) bool {
			return v.Hits(simulation.HitCrashAfterEffect) > 0
		})
		for _, where := range []string{
			"worker " + string(workertest.BeforeCommit), "worker " + string(workertest.AfterCommit),
			"dispatcher " + string(workertest.AfterCommit), "dispatcher " + string(workertest.BeforeMark),
		} {
			w.Sometimes("crash: "+where, func(simulation.View) bool { return crashed[where] > 0 })
		}
		w.Sometimes("a receiver was told", func(simulation.View) bool { return theirs.Keys() > 0 || !safe })
		w.Calm(time.Hour, simulation.Drained(jobs, mail, ticks))
	}}
}

// simOrder spreads the messages over two orders.
func simOrder(id string) string { return string("ab"[int(id[len(id)-1])%2]) }

// Crash points at each boundary, and no violation. More seeds: -simulation.seeds=10000.
func TestWorkersKeepTheirPromiseInTheSimulation(t *testing.T) {
	simulation.Check(t, bank(true))
}

// The same world without keys: the simulation must catch what it does, or it would
// prove nothing of the other.
func TestTheSimulationCatchesUnsafeWorkers(t *testing.T) {
	s := bank(false).In(t)
	for seed := range uint64(100) {
		r := s.Run(seed + 1)
		if len(r.Violations) == 0 {
			require.Empty(t, r.Err)
			continue
		}
		t.Logf("seed %d: %v", seed+1, r.Violations[0])
		assert.Contains(t, fmt.Sprint(r.Violations[0]), "2 credits")
		return
	}
	t.Fatal("100 seeds, and no credit was made twice")
}
