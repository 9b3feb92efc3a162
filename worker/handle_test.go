package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
	"github.com/postroom/postroom/supervisor"
	"github.com/postroom/postroom/worker"
	"github.com/postroom/postroom/worker/workertest"
)

// world is one simulated run with a queue "jobs" and a store.
type world struct {
	*simulation.World
	t      *testing.T
	ctx    context.Context
	broker *postroom.Broker
	store  *workertest.Memory
}

func inWorld(t *testing.T, queue postroom.QueueConfig, fn func(w *world)) {
	t.Helper()
	require.NoError(t, simulation.Run(1, func(s *simulation.World) {
		// However often a handler crashes here, its worker comes back.
		b := s.MustOpen(postroom.WithRestarts(supervisor.Policy{MaxFailures: postroom.Unlimited, Cap: time.Second}))
		w := &world{s, t, context.Background(), b, workertest.NewMemory(b)}
		require.NoError(t, b.DeclareQueue(w.ctx, "jobs", queue))
		fn(w)
	}))
}

func (w *world) put(id, body string) {
	_, err := w.broker.Put(w.ctx, "jobs", postroom.Envelope{ID: id, Body: []byte(body)})
	require.NoError(w.t, err)
}

func (w *world) handle(work worker.Work[*workertest.Tx], c postroom.ConsumerConfig) *postroom.Consumer {
	k, err := worker.Handle(w.ctx, w.broker, "jobs", w.store, work, c)
	require.NoError(w.t, err)
	return k
}

func (w *world) letters() []postroom.DeadLetter {
	l, err := w.broker.DeadLetters(w.ctx, "jobs", 0, 1000)
	require.NoError(w.t, err)
	return l
}

func (w *world) stats() postroom.QueueStats {
	s, err := w.broker.QueueStats(w.ctx, "jobs")
	require.NoError(w.t, err)
	return s
}

// credit is the document's job: the body is an amount, and a negative one is poison.
func credit() worker.Work[*workertest.Tx] {
	return worker.Work[*workertest.Tx]{
		Operation: "credit",
		Check: func(d *postroom.Delivery) error {
			if n, err := strconv.Atoi(string(d.Body)); err != nil || n < 0 {
				return fmt.Errorf("%w: amount %q", worker.ErrPayload, d.Body)
			}
			return nil
		},
		Do: func(_ context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
			n, err := strconv.Atoi(string(d.Body))
			if err != nil {
				return err
			}
			return tx.Add("account", int64(n))
		},
	}
}

func TestHandleAppliesAndAcks(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		for i := range 5 {
			w.put(fmt.Sprint("credit-", i), "10")
		}
		w.Sleep(time.Second)
		assert.EqualValues(t, 50, w.store.Balance("account"))
		assert.EqualValues(t, 5, w.stats().Acks)
	})
}

// A worker that dies after its commit and before its ack: the message comes back, and
// its key is known.
func TestACrashBetweenCommitAndAckIsAppliedOnce(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: 5 * time.Second}, func(w *world) {
		crashes := 1
		store := workertest.Probe(w.store, func(p workertest.Point) {
			if p == workertest.AfterCommit && crashes > 0 {
				crashes--
				panic("killed")
			}
		})
		again := 0
		work := credit()
		work.Applied = func(_ *postroom.Delivery, known bool) {
			if known {
				again++
			}
		}
		_, err := worker.Handle(w.ctx, w.broker, "jobs", store, work, postroom.ConsumerConfig{})
		require.NoError(t, err)
		w.put("credit-17", "10")
		w.Sleep(time.Minute)
		assert.EqualValues(t, 10, w.store.Balance("account"))
		assert.Equal(t, 1, again)
		assert.EqualValues(t, 2, w.stats().Deliveries)
		assert.EqualValues(t, 1, w.stats().Acks)
	})
}

// Rejecting the first holder's stale ack alone would not help: both of them credit.
func TestTwoHoldersOfOneMessageApplyItOnce(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: 5 * time.Second}, func(w *world) {
		handler, err := worker.Handler(w.store, credit())
		require.NoError(t, err)
		w.put("credit-17", "10")
		first, err := w.broker.Get(w.ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		w.Sleep(5 * time.Second)
		second, err := w.broker.Get(w.ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		require.NoError(t, handler(w.ctx, first))
		require.ErrorIs(t, first.Ack(w.ctx), postroom.ErrStale, "an old token settles nothing")
		require.NoError(t, handler(w.ctx, second))
		require.NoError(t, second.Ack(w.ctx))
		assert.EqualValues(t, 10, w.store.Balance("account"))
	})
}

// The document's first lines, on a queue of one place.
func TestALeaseAndACapacityOfOne(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: 5 * time.Second, MaxMessages: 1}, func(w *world) {
		w.put("credit-17", "10")
		refused := func() {
			_, err := w.broker.Put(w.ctx, "jobs", postroom.Envelope{ID: "credit-18"})
			var full *postroom.QueueFullError
			require.ErrorAs(t, err, &full)
			assert.EqualValues(t, 1, full.Current)
		}
		refused()
		claim := func() *postroom.Delivery {
			d, err := w.broker.Get(w.ctx, "jobs", postroom.GetConfig{NoWait: true})
			if err != nil {
				require.ErrorIs(t, err, postroom.ErrEmpty)
				return nil
			}
			return d
		}
		first := claim()
		require.NotNil(t, first)
		refused() // in flight counts too
		w.Sleep(4 * time.Second)
		assert.Nil(t, claim())
		w.Sleep(time.Second)
		second := claim()
		require.NotNil(t, second)
		require.ErrorIs(t, first.Ack(w.ctx), postroom.ErrStale, "an old delivery token")
		require.NoError(t, second.Ack(w.ctx))
		w.put("credit-18", "10")
	})
}

func TestANegativeCreditIsParkedAtOnceWithTheAccountUnchanged(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		w.put("credit-18", "-10")
		w.Idle()
		letters := w.letters()
		require.Len(t, letters, 1)
		l := letters[0]
		assert.Equal(t, postroom.Rejected, l.Reason)
		assert.Equal(t, 1, l.Attempts)
		assert.Equal(t, "credit-18", l.ID)
		assert.Equal(t, "-10", string(l.Body), "the payload stays to be looked at")
		assert.Equal(t, `invalid payload: amount "-10"`, l.Error)
		assert.Zero(t, w.store.Balance("account"))
		assert.Zero(t, w.store.Keys())
	})
}

func TestTheThirdTransientFailureParks(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		work := credit()
		work.Do = func(_ context.Context, tx *workertest.Tx, _ *postroom.Delivery) error {
			_ = tx.Add("account", 10) // rolled back each time
			return errors.New("ledger service is away")
		}
		w.handle(work, postroom.ConsumerConfig{})
		w.put("credit-19", "10")
		w.Sleep(time.Hour)
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.MaxAttempts, letters[0].Reason)
		assert.Equal(t, 3, letters[0].Deliveries)
		assert.Equal(t, "ledger service is away", letters[0].Error)
		assert.Zero(t, w.store.Balance("account"))
	})
}

// Two queues may use one id for two things, unless the work says whose it is.
func TestTheQueueIsTheCallerUnlessTheWorkNamesOne(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		require.NoError(t, w.broker.DeclareQueue(w.ctx, "other", postroom.QueueConfig{}))
		named := credit()
		named.Caller = "bank"
		for _, q := range []string{"jobs", "other"} {
			for _, work := range []worker.Work[*workertest.Tx]{credit(), named} {
				handler, err := worker.Handler(w.store, work)
				require.NoError(t, err)
				_, err = w.broker.Put(w.ctx, q, postroom.Envelope{ID: "1", Body: []byte("10")})
				require.NoError(t, err)
				d, err := w.broker.Get(w.ctx, q, postroom.GetConfig{})
				require.NoError(t, err)
				require.NoError(t, handler(w.ctx, d))
				require.NoError(t, d.Ack(w.ctx))
			}
		}
		assert.EqualValues(t, 30, w.store.Balance("account"), "jobs/1, other/1 and bank/1")
	})
}

func TestAReusedKeyIsDeadAtOnce(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		w.put("credit-20", "10")
		w.Idle()
		w.put("credit-20", "11") // the queue has forgotten the id, the store has not
		w.Idle()
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.Rejected, letters[0].Reason)
		assert.Contains(t, letters[0].Error, "key reused with another payload")
		assert.EqualValues(t, 10, w.store.Balance("account"))
	})
}

func TestJSONThatMeansTheSameIsTheSamePayload(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		work := credit()
		work.Check = nil
		work.Do = func(_ context.Context, tx *workertest.Tx, _ *postroom.Delivery) error { return tx.Add("account", 10) }
		w.handle(work, postroom.ConsumerConfig{})
		for _, body := range []string{`{"amount": 10, "to": "ann"}`, `{"to":"ann","amount":10}`, `{"amount": 10`} {
			_, err := w.broker.Put(w.ctx, "jobs", postroom.Envelope{ID: "credit-21", Body: []byte(body), ContentType: "application/json; charset=utf-8"})
			require.NoError(t, err)
			w.Idle()
		}
		assert.EqualValues(t, 10, w.store.Balance("account"))
		letters := w.letters()
		require.Len(t, letters, 1, "what is not JSON is dead at once")
		assert.Contains(t, letters[0].Error, "invalid payload: not JSON")
	})
}

func TestABusinessDeadlineThatPassedBeforeTheWorkIsDeadAsExpired(t *testing.T) {
	// The queue itself: nobody was there in time.
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		_, err := w.broker.Put(w.ctx, "jobs", postroom.Envelope{ID: "a", Body: []byte("10"), ExpiresAt: w.Now().Add(time.Minute)})
		require.NoError(t, err)
		w.Sleep(time.Minute)
		w.handle(credit(), postroom.ConsumerConfig{})
		w.Sleep(time.Minute)
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.Expired, letters[0].Reason)
		assert.Zero(t, w.store.Balance("account"))
	})
	// The worker: it waited behind another message in the consumer's buffer, leased, so
	// the queue could not cut it.
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		work := credit()
		do := work.Do
		work.Do = func(ctx context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
			if d.ID == "slow" {
				require.NoError(t, w.broker.Sleep(ctx, time.Minute))
			}
			return do(ctx, tx, d)
		}
		w.handle(work, postroom.ConsumerConfig{Prefetch: 2})
		w.put("slow", "1")
		_, err := w.broker.Put(w.ctx, "jobs", postroom.Envelope{ID: "b", Body: []byte("10"), ExpiresAt: w.Now().Add(time.Minute)})
		require.NoError(t, err)
		w.Sleep(2 * time.Minute)
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.Expired, letters[0].Reason)
		assert.Contains(t, letters[0].Error, "expired at")
		assert.EqualValues(t, 1, w.store.Balance("account"), "it was not begun")
	})
	// On its last attempt a message dies of that first (SPEC Q15); the error still says why.
	inWorld(t, postroom.QueueConfig{MaxAttempts: 1}, func(w *world) {
		handler, err := worker.Handler(w.store, credit())
		require.NoError(t, err)
		_, err = w.broker.Put(w.ctx, "jobs", postroom.Envelope{ID: "d", Body: []byte("10"), ExpiresAt: w.Now().Add(time.Second)})
		require.NoError(t, err)
		d, err := w.broker.Get(w.ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		w.Sleep(time.Second)
		err = handler(w.ctx, d)
		require.ErrorIs(t, err, worker.ErrTooLate)
		require.NoError(t, d.Nack(w.ctx, err))
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.MaxAttempts, letters[0].Reason)
		assert.Contains(t, letters[0].Error, "expired at")
		assert.Zero(t, w.store.Balance("account"))
	})
	// The payload's own deadline, which only the worker can read.
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		work := credit()
		work.Deadline = func(*postroom.Delivery) (time.Time, error) { return simulation.Epoch.Add(time.Second), nil }
		w.put("c", "10")
		w.Sleep(time.Second) // at the deadline exactly it is too late
		w.handle(work, postroom.ConsumerConfig{})
		w.Idle()
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.Rejected, letters[0].Reason, "the queue cannot know")
		assert.Contains(t, letters[0].Error, "expired at")
		assert.Equal(t, 1, letters[0].Attempts)
		assert.Zero(t, w.store.Balance("account"))
	})
}

// A handler that never returns: its transaction is rolled back at HandlerTimeout and the
// message goes to another consumer.
func TestAHandlerThatNeverReturnsLeavesNoHalfDoneEffect(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: 10 * time.Second}, func(w *world) {
		stuck := credit()
		stuck.Do = func(_ context.Context, tx *workertest.Tx, _ *postroom.Delivery) error {
			require.NoError(t, tx.Add("account", 1000))
			w.World.Sleep(12 * time.Hour) // whatever happens to its context
			return tx.Add("account", 1000)
		}
		k := w.handle(stuck, postroom.ConsumerConfig{Name: "stuck", HandlerTimeout: time.Minute})
		w.put("credit-22", "10")
		w.Sleep(time.Second)
		w.handle(credit(), postroom.ConsumerConfig{Name: "good"})
		w.Sleep(5 * time.Minute)
		assert.EqualValues(t, 10, w.store.Balance("account"))
		require.NoError(t, k.Cancel(w.ctx))
		w.Sleep(24 * time.Hour)
		assert.EqualValues(t, 10, w.store.Balance("account"))
		assert.EqualValues(t, 1, w.stats().Acks)
		assert.Empty(t, w.letters())
	})
}

// Where no consumer's handler returns, the message does not go round for ever.
func TestAHandlerThatNeverReturnsEndsAsADeadLetterWithTheReason(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: 10 * time.Second}, func(w *world) {
		stuck := credit()
		stuck.Do = func(_ context.Context, tx *workertest.Tx, _ *postroom.Delivery) error {
			require.NoError(t, tx.Add("account", 1000))
			w.World.Sleep(12 * time.Hour) // whatever happens to its context
			return nil
		}
		for i := range 3 { // each gets nothing more until its handler returns
			w.handle(stuck, postroom.ConsumerConfig{Name: fmt.Sprint("stuck-", i), HandlerTimeout: time.Minute})
		}
		w.put("credit-26", "10")
		w.Sleep(time.Hour)
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.MaxAttempts, letters[0].Reason)
		assert.Equal(t, 3, letters[0].Deliveries)
		assert.EqualValues(t, 3, w.stats().Expiries, "by leases that ran out: a handler that is silent gives no error")
		w.Sleep(24 * time.Hour)
		assert.Zero(t, w.store.Balance("account"))
		assert.Zero(t, w.store.Keys())
	})
}

// The heartbeat keeps the lease of a long transaction.
func TestALongTransactionKeepsItsLease(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: 5 * time.Second}, func(w *world) {
		work := credit()
		do := work.Do
		work.Do = func(ctx context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
			require.NoError(t, w.broker.Sleep(ctx, 5*time.Minute))
			return do(ctx, tx, d)
		}
		w.handle(work, postroom.ConsumerConfig{})
		w.put("credit-23", "10")
		w.Sleep(6 * time.Minute)
		assert.EqualValues(t, 1, w.stats().Deliveries)
		assert.EqualValues(t, 10, w.store.Balance("account"))
	})
}

// A store that is away is no fault of the message's: it is tried again, and parked with
// the reason after the cap.
func TestAStoreThatFailsParksAfterTheCapWithTheReason(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.store.SetReadOnly(true)
		w.handle(credit(), postroom.ConsumerConfig{})
		w.put("credit-24", "10")
		w.Sleep(time.Hour)
		letters := w.letters()
		require.Len(t, letters, 1)
		assert.Equal(t, postroom.MaxAttempts, letters[0].Reason)
		assert.Contains(t, letters[0].Error, "database is read-only")
		assert.Zero(t, w.store.Balance("account"))
	})
}

func TestHandleRefusesWhatItCannotKeep(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		ok := credit()
		for what, call := range map[string]func() error{
			"nil Do": func() error {
				_, err := worker.Handler(w.store, worker.Work[*workertest.Tx]{Operation: "x"})
				return err
			},
			"no operation": func() error { _, err := worker.Handler(w.store, worker.Work[*workertest.Tx]{Do: ok.Do}); return err },
			"nil store":    func() error { _, err := worker.Handler[*workertest.Tx](nil, ok); return err },
			"nil pointer":  func() error { _, err := worker.Handler((*workertest.Memory)(nil), ok); return err },
			"nil broker": func() error {
				_, err := worker.Handle(w.ctx, nil, "jobs", w.store, ok, postroom.ConsumerConfig{})
				return err
			},
			"manual": func() error {
				_, err := worker.Handle(w.ctx, w.broker, "jobs", w.store, ok, postroom.ConsumerConfig{Manual: true})
				return err
			},
			"redrive": func() error { _, err := worker.Redrive(w.ctx, nil, "jobs", nil, worker.RedriveConfig{}); return err },
			"redrive max": func() error {
				_, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{RedriveConfig: postroom.RedriveConfig{Max: -1}})
				return err
			},
			"retention": func() error {
				_, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{Window: time.Hour, Retention: time.Hour})
				return err
			},
		} {
			require.ErrorIs(t, call(), postroom.ErrArgument, what)
		}
		_, err := worker.Handle(w.ctx, w.broker, "none", w.store, ok, postroom.ConsumerConfig{})
		require.ErrorIs(t, err, postroom.ErrNotFound)
		w.handle(ok, postroom.ConsumerConfig{})
		w.put("no\xffkey", "10")
		w.Idle()
		require.Len(t, w.letters(), 1, "an id that no key can hold is dead at once")
	})
}

// ---- dead letters ----

// A message that was applied, and then died because its acks were lost, is redriven
// with its identity: nothing happens twice.
func TestRedriveKeepsTheIdentitySoNothingIsAppliedAgain(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: time.Second}, func(w *world) {
		dying := true
		store := workertest.Probe(w.store, func(p workertest.Point) {
			if dying && p == workertest.AfterCommit {
				panic("killed")
			}
		})
		_, err := worker.Handle(w.ctx, w.broker, "jobs", store, credit(), postroom.ConsumerConfig{Concurrency: 4})
		require.NoError(t, err)
		for i := range 20 {
			w.put(fmt.Sprint("credit-", i), "10")
		}
		w.Sleep(10 * time.Minute)
		require.Len(t, w.letters(), 20)
		require.EqualValues(t, 200, w.store.Balance("account"))

		dying = false
		start := w.Now()
		moved, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{RedriveConfig: postroom.RedriveConfig{Rate: 10}})
		require.NoError(t, err)
		assert.Equal(t, 20, moved.Moved)
		assert.GreaterOrEqual(t, w.Now().Sub(start), 1900*time.Millisecond, "at ten a second")
		w.Sleep(10 * time.Minute)
		assert.Empty(t, w.letters())
		assert.EqualValues(t, 200, w.store.Balance("account"))
		assert.Equal(t, 20, w.store.Keys())
	})
}

// The queue is the caller of a key, so another queue's workers would not know it.
func TestARedriveToAnotherQueueNeedsKeysThatAreShared(t *testing.T) {
	inWorld(t, postroom.QueueConfig{AckTimeout: time.Second}, func(w *world) {
		require.NoError(t, w.broker.DeclareQueue(w.ctx, "repair", postroom.QueueConfig{}))
		dying := workertest.Probe(w.store, func(p workertest.Point) {
			if p == workertest.AfterCommit {
				panic("killed")
			}
		})
		work := credit()
		work.Caller = "bank"
		_, err := worker.Handle(w.ctx, w.broker, "jobs", dying, work, postroom.ConsumerConfig{})
		require.NoError(t, err)
		w.put("credit-27", "10")
		w.Sleep(time.Hour)
		require.Len(t, w.letters(), 1, "applied, and dead because its acks were lost")

		c := worker.RedriveConfig{RedriveConfig: postroom.RedriveConfig{To: "repair"}}
		_, err = worker.Redrive(w.ctx, w.broker, "jobs", w.broker, c)
		require.ErrorIs(t, err, postroom.ErrArgument)
		require.ErrorContains(t, err, "SharedKeys")
		require.Len(t, w.letters(), 1, "nothing was moved")

		c.SharedKeys = true
		moved, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, c)
		require.NoError(t, err)
		assert.Equal(t, 1, moved.Moved)
		_, err = worker.Handle(w.ctx, w.broker, "repair", w.store, work, postroom.ConsumerConfig{})
		require.NoError(t, err)
		w.Idle()
		s, err := w.broker.QueueStats(w.ctx, "repair")
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.Acks)
		assert.EqualValues(t, 10, w.store.Balance("account"))

		c = worker.RedriveConfig{RedriveConfig: postroom.RedriveConfig{To: "jobs"}}
		_, err = worker.Redrive(w.ctx, w.broker, "jobs", w.broker, c)
		require.NoError(t, err, "its own queue by name is no other")
	})
}

func TestKeysOutliveDeadLettersAndAnOlderRedriveNeedsForce(t *testing.T) {
	const day = 24 * time.Hour
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		w.put("old", "-1")
		w.Sleep(day)
		w.put("new", "-1")
		w.Sleep(6*day - time.Nanosecond)
		redrive := func(c worker.RedriveConfig) (postroom.Redriven, error) {
			return worker.Redrive(w.ctx, w.broker, "jobs", w.broker, c)
		}
		w.Sleep(time.Nanosecond)
		_, err := redrive(worker.RedriveConfig{})
		require.ErrorIs(t, err, worker.ErrTooOld)
		var old *worker.TooOldError
		require.ErrorAs(t, err, &old)
		assert.Equal(t, []string{"old"}, old.IDs)
		assert.Equal(t, 1, old.Letters)
		assert.NotEmpty(t, postroom.Hint(err))
		require.Len(t, w.letters(), 2, "nothing was moved")

		moved, err := redrive(worker.RedriveConfig{Force: true})
		require.NoError(t, err)
		assert.Equal(t, 2, moved.Moved)
		w.Sleep(time.Second)
		require.Len(t, w.letters(), 2, "they died again")
		_, err = redrive(worker.RedriveConfig{})
		require.ErrorIs(t, err, worker.ErrTooOld, "their first death counts")
		_, err = w.broker.Discard(w.ctx, "jobs", "old")
		require.NoError(t, err)
		moved, err = redrive(worker.RedriveConfig{})
		require.NoError(t, err)
		assert.Equal(t, 1, moved.Moved)
	})
}

func TestALetterWhoseLifeIsNotKnownNeedsForce(t *testing.T) {
	const day = 24 * time.Hour
	redrive := func(w *world) error {
		_, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{})
		return err
	}
	// It waited so long that an early attempt's key may be gone, and died only now.
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.put("a", "-1")
		w.Sleep(14 * day)
		w.handle(credit(), postroom.ConsumerConfig{})
		w.Idle()
		require.Len(t, w.letters(), 1)
		require.ErrorIs(t, redrive(w), worker.ErrTooOld)
	})
	// It died more often than its history tells.
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		w.put("a", "-1")
		for range messages.HistoryMax {
			w.Sleep(time.Minute)
			require.NoError(t, redrive(w))
		}
		w.Sleep(time.Minute)
		require.ErrorIs(t, redrive(w), worker.ErrTooOld)
	})
}

// What dies while Redrive looks at the letters was not looked at, so it is not moved.
func TestRedriveMovesOnlyWhatItHasLookedAt(t *testing.T) {
	between := 0
	for seed := range uint64(50) {
		require.NoError(t, simulation.Run(seed+1, func(s *simulation.World) {
			w := &world{s, t, context.Background(), s.MustOpen(), nil}
			require.NoError(t, w.broker.DeclareQueue(w.ctx, "jobs", postroom.QueueConfig{}))
			get := func() *postroom.Delivery {
				d, err := w.broker.Get(w.ctx, "jobs", postroom.GetConfig{})
				require.NoError(t, err)
				return d
			}
			w.put("old", "")
			require.NoError(t, get().Reject(w.ctx, errAway))
			w.Sleep(8 * 24 * time.Hour)
			_, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{Force: true})
			require.NoError(t, err)
			old := get()
			w.put("new", "")
			require.NoError(t, get().Reject(w.ctx, errAway))

			w.Go(func() { assert.NoError(t, old.Reject(w.ctx, errAway)) })
			moved, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{})
			w.Idle()
			if err == nil {
				between++
				assert.Equal(t, 1, moved.Moved, "seed %d", seed+1)
			} else {
				require.ErrorIs(t, err, worker.ErrTooOld, "seed %d", seed+1)
			}
			for _, l := range w.letters() {
				if l.ID == "old" {
					return
				}
			}
			t.Errorf("seed %d: the old letter was moved", seed+1)
		}))
	}
	assert.NotZero(t, between, "else it has shown nothing")
}

// Letters are read in pages; the last of many counts as the first does.
func TestRedriveLooksAtEveryLetter(t *testing.T) {
	const letters = 501
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		for i := range letters {
			w.put(fmt.Sprint(i), "-1")
		}
		w.Sleep(7 * 24 * time.Hour)
		_, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, worker.RedriveConfig{})
		var old *worker.TooOldError
		require.ErrorAs(t, err, &old)
		assert.Equal(t, letters, old.Letters)
		assert.Len(t, old.IDs, 10)
	})
}

// A slow redrive must not reach a letter when it has become too old.
func TestRedriveCountsTheTimeThatItsRateTakes(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.handle(credit(), postroom.ConsumerConfig{})
		for i := range 3 {
			w.put(fmt.Sprint(i), "-1")
		}
		w.Sleep(7*24*time.Hour - 1500*time.Millisecond)
		slow := worker.RedriveConfig{RedriveConfig: postroom.RedriveConfig{Rate: 1}}
		_, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, slow)
		var old *worker.TooOldError
		require.ErrorAs(t, err, &old)
		assert.Equal(t, []string{"2"}, old.IDs, "it would move two seconds from now")
		slow.Max = 2
		moved, err := worker.Redrive(w.ctx, w.broker, "jobs", w.broker, slow)
		require.NoError(t, err)
		assert.Equal(t, 2, moved.Moved)
	})
}

func TestDeadLetterGrowthRaisesAnAlarm(t *testing.T) {
	inWorld(t, postroom.QueueConfig{DeadLetterAlarm: 3}, func(w *world) {
		var alarms []string
		_, err := w.broker.Subscribe(w.ctx, "$sys.alarm.jobs", func(_ string, e *postroom.Event) {
			var what map[string]any
			require.NoError(t, json.Unmarshal(e.Body, &what))
			alarms = append(alarms, fmt.Sprint(what["alarm"]))
		})
		require.NoError(t, err)
		w.handle(credit(), postroom.ConsumerConfig{})
		for i := range 2 {
			w.put(fmt.Sprint(i), "-1")
		}
		w.Idle()
		assert.Empty(t, alarms)
		for i := range 3 {
			w.put(fmt.Sprint("more-", i), "-1")
		}
		w.Idle()
		assert.Equal(t, []string{"dead_letters"}, alarms, "once per crossing")
	})
}

// ---- the outbox and a broker ----

func TestAnOutboxFeedsAQueueAndTheReceiverAppliesOnce(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		require.NoError(t, w.broker.DeclareQueue(w.ctx, "mail", postroom.QueueConfig{}))
		crash := true
		store := workertest.Probe(w.store, func(p workertest.Point) {
			if p == workertest.BeforeMark && crash {
				panic("killed")
			}
		})
		outbox, err := worker.NewOutbox(store, worker.ToQueue(w.broker, "mail"), worker.OutboxConfig{Draw: noDraw})
		require.NoError(t, err)
		work := credit()
		do := work.Do
		work.Do = func(ctx context.Context, tx *workertest.Tx, d *postroom.Delivery) error {
			if err := do(ctx, tx, d); err != nil {
				return err
			}
			return outbox.Add(ctx, tx, worker.Intent{ID: d.ID, Order: "account", Payload: d.Body})
		}
		w.handle(work, postroom.ConsumerConfig{})

		receiver := workertest.NewMemory(w.broker)
		receive := credit()
		receive.Operation = "receive"
		_, err = worker.Handle(w.ctx, w.broker, "mail", receiver, receive, postroom.ConsumerConfig{})
		require.NoError(t, err)

		w.put("credit-25", "10")
		w.Idle()
		assert.Panics(t, func() { _, _ = outbox.Dispatch(w.ctx) })
		w.Sleep(time.Minute) // the receiver has taken it; the sender does not know
		assert.EqualValues(t, 10, receiver.Balance("account"))
		crash = false
		d, err := outbox.Dispatch(w.ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, d.Sent)
		w.Sleep(time.Minute)
		assert.EqualValues(t, 10, receiver.Balance("account"))
		s, err := w.broker.QueueStats(w.ctx, "mail")
		require.NoError(t, err)
		assert.EqualValues(t, 2, s.Acks, "it came twice")
	})
}

func TestAFullQueueMakesTheOutboxWaitAndAReusedKeyParks(t *testing.T) {
	inWorld(t, postroom.QueueConfig{MaxMessages: 1}, func(w *world) {
		outbox, err := worker.NewOutbox(w.store, worker.ToQueue(w.broker, "jobs"), worker.OutboxConfig{Draw: noDraw})
		require.NoError(t, err)
		add := func(in worker.Intent) {
			require.NoError(t, w.store.Transact(w.ctx, func(tx *workertest.Tx) error { return outbox.Add(w.ctx, tx, in) }))
		}
		add(worker.Intent{ID: "a", Payload: []byte("1")})
		add(worker.Intent{ID: "b", Payload: []byte("2")})
		d, err := outbox.Dispatch(w.ctx)
		require.NoError(t, err)
		assert.Equal(t, worker.Dispatched{Claimed: 2, Sent: 1, Failed: 1}, d)
		w.handle(credit(), postroom.ConsumerConfig{})
		w.Idle()
		d, err = outbox.Dispatch(w.ctx)
		require.NoError(t, err)
		assert.Equal(t, worker.Dispatched{Claimed: 1, Sent: 1}, d)
	})
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		w.put("a", "1")
		outbox, err := worker.NewOutbox(w.store, worker.ToQueue(w.broker, "jobs"), worker.OutboxConfig{})
		require.NoError(t, err)
		require.NoError(t, w.store.Transact(w.ctx, func(tx *workertest.Tx) error {
			return outbox.Add(w.ctx, tx, worker.Intent{ID: "a", Payload: []byte("2")})
		}))
		d, err := outbox.Dispatch(w.ctx)
		require.NoError(t, err)
		assert.Equal(t, worker.Dispatched{Claimed: 1, Parked: 1}, d)
		parked, err := outbox.Parked(w.ctx, 0, 10)
		require.NoError(t, err)
		assert.Contains(t, parked[0].Error, "id reused")
	})
}

func TestATopicIsDeliveredWhenEveryBoundQueueHasIt(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		require.NoError(t, w.broker.DeclareQueue(w.ctx, "audit", postroom.QueueConfig{MaxMessages: 1}))
		for _, q := range []string{"jobs", "audit"} {
			require.NoError(t, w.broker.Bind(w.ctx, q, "credit.#"))
		}
		_, err := w.broker.Put(w.ctx, "audit", postroom.Envelope{ID: "in the way"})
		require.NoError(t, err)
		outbox, err := worker.NewOutbox(w.store, worker.ToTopic(w.broker, "credit.made"), worker.OutboxConfig{Draw: noDraw})
		require.NoError(t, err)
		require.NoError(t, w.store.Transact(w.ctx, func(tx *workertest.Tx) error {
			return outbox.Add(w.ctx, tx, worker.Intent{ID: "a", Payload: []byte("2")})
		}))
		d, err := outbox.Dispatch(w.ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, d.Failed)
		_, err = w.broker.Purge(w.ctx, "audit")
		require.NoError(t, err)
		d, err = outbox.Dispatch(w.ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, d.Sent)
		assert.Equal(t, 1, w.stats().Ready, "one copy: the second is a duplicate")
	})
}

// slowClaims is a store in which it takes a while to find out that nothing is due.
type slowClaims struct {
	worker.Store[*workertest.Tx]
	clock *stepClock
	took  time.Duration
	at    []time.Time
	ends  func()
}

func (s *slowClaims) ClaimIntents(context.Context, *workertest.Tx, worker.Claim) ([]worker.IntentRow, error) {
	s.at = append(s.at, s.clock.Now())
	s.clock.Step(s.took)
	if len(s.at) == 3 {
		s.ends()
	}
	return nil, nil
}

// Thousands of intents behind a parked one make every look at them long, and with SQLite
// nobody else writes meanwhile.
func TestADispatcherThatFindsNothingTakesAFifthOfTheTime(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{
		0: 200 * time.Millisecond, 10 * time.Millisecond: 200 * time.Millisecond, time.Second: 4 * time.Second,
	} {
		clock := newStepClock()
		ctx, cancel := context.WithCancel(t.Context())
		s := &slowClaims{Store: workertest.NewMemory(clock), clock: clock, took: took, ends: cancel}
		o, err := worker.NewOutbox(s, func(context.Context, worker.Intent) error { return nil }, worker.OutboxConfig{})
		require.NoError(t, err)
		require.NoError(t, o.Run(ctx))
		require.Len(t, s.at, 3)
		assert.Equal(t, took+pause, s.at[1].Sub(s.at[0]), "looks that take %s", took)
		assert.Equal(t, took+pause, s.at[2].Sub(s.at[1]), "looks that take %s", took)
	}
}

func TestAnOutboxRunsInVirtualTime(t *testing.T) {
	inWorld(t, postroom.QueueConfig{}, func(w *world) {
		var sent []time.Duration
		calls := 0
		outbox, err := worker.NewOutbox(w.store, func(context.Context, worker.Intent) error {
			if calls++; calls < 3 {
				return errors.New("away")
			}
			sent = append(sent, w.Now().Sub(simulation.Epoch))
			return nil
		}, worker.OutboxConfig{Base: time.Second, Draw: mostDraw})
		require.NoError(t, err)
		ctx, cancel := w.WithTimeout(w.ctx, time.Hour)
		defer cancel()
		w.Go(func() { assert.NoError(t, outbox.Run(ctx)) })
		require.NoError(t, w.store.Transact(w.ctx, func(tx *workertest.Tx) error {
			return outbox.Add(w.ctx, tx, worker.Intent{ID: "a"})
		}))
		w.Sleep(2 * time.Hour)
		require.Len(t, sent, 1)
		assert.InDelta(t, 3, sent[0].Seconds(), 0.5, "after one and two seconds, and what is left of a poll")
	})
}
