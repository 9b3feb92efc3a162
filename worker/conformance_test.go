package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/worker"
)

// suite is what every store must do. open makes an empty one on the clock given.
func suite[T any](t *testing.T, open func(*testing.T, worker.Clock) bench[T]) {
	run := func(name string, test func(t *testing.T, b bench[T], clock *stepClock)) {
		t.Run(name, func(t *testing.T) {
			clock := newStepClock()
			test(t, open(t, clock), clock)
		})
	}
	// together is for tests whose goroutines wait for one another in real time.
	together := func(name string, test func(t *testing.T, b bench[T])) {
		t.Run(name, func(t *testing.T) { test(t, open(t, nil)) })
	}

	// ---- Apply ----

	run("AKeyIsAppliedOnceAndThenSkipped", func(t *testing.T, b bench[T], _ *stepClock) {
		for i, want := range []bool{true, false, false} {
			applied, err := worker.Apply(t.Context(), b.store, key("a"), []byte("10"), func(tx T) error { return b.add(tx, 10) })
			require.NoError(t, err)
			assert.Equal(t, want, applied, "call %d", i+1)
		}
		assert.EqualValues(t, 10, b.balance())
		assert.EqualValues(t, 1, b.keys())
	})

	run("AReusedKeyWithAnotherPayloadIsRefused", func(t *testing.T, b bench[T], clock *stepClock) {
		add := func(tx T) error { return b.add(tx, 10) }
		_, err := worker.Apply(t.Context(), b.store, key("a"), []byte("10"), add)
		require.NoError(t, err)
		first := clock.Now()
		clock.Step(time.Hour)
		applied, err := worker.Apply(t.Context(), b.store, key("a"), []byte("11"), add)
		assert.False(t, applied)
		require.ErrorIs(t, err, worker.ErrKeyReused)
		var reused *worker.KeyReusedError
		require.ErrorAs(t, err, &reused)
		assert.True(t, reused.AppliedAt.Equal(first), "applied at %s", reused.AppliedAt)
		assert.True(t, messages.IsPermanent(err), "no retry cures it")
		assert.NotEmpty(t, postroom.Hint(err))
		assert.EqualValues(t, 10, b.balance())
	})

	run("KeysAreScopedByCallerAndOperation", func(t *testing.T, b bench[T], _ *stepClock) {
		for _, k := range []worker.Key{
			{Caller: "x", Operation: "credit", ID: "1"}, {Caller: "y", Operation: "credit", ID: "1"},
			{Caller: "x", Operation: "debit", ID: "1"}, {Operation: "credit", ID: "1"},
		} {
			applied, err := worker.Apply(t.Context(), b.store, k, []byte(k.String()), func(tx T) error { return b.add(tx, 1) })
			require.NoError(t, err)
			assert.True(t, applied, k)
		}
		assert.EqualValues(t, 4, b.balance())
	})

	run("AnyBytesArePayload", func(t *testing.T, b bench[T], _ *stepClock) {
		for i, payload := range [][]byte{nil, {}, {0}, {0xff, 0, 0xfe}, bytes.Repeat([]byte("long "), 100_000)} {
			k := key(fmt.Sprint("payload-", i))
			for range 2 {
				_, err := worker.Apply(t.Context(), b.store, k, payload, func(tx T) error { return b.add(tx, 1) })
				require.NoError(t, err)
			}
			_, err := worker.Apply(t.Context(), b.store, k, append([]byte("x"), payload...), func(tx T) error { return b.add(tx, 1) })
			require.ErrorIs(t, err, worker.ErrKeyReused)
		}
		assert.EqualValues(t, 5, b.balance())
	})

	// "none or all three rows" at the commit's two sides, without a crash: those with
	// one are in cmd/postroom, where processes are killed.
	run("AFailureLeavesNoneOfKeyChangeAndIntentAndASuccessAllThree", func(t *testing.T, b bench[T], _ *stepClock) {
		outbox, err := worker.NewOutbox(b.store, nil, worker.OutboxConfig{})
		require.NoError(t, err)
		all := func(tx T) error {
			if err := b.add(tx, 10); err != nil {
				return err
			}
			return outbox.Add(t.Context(), tx, worker.Intent{ID: "a", Payload: []byte("10")})
		}
		fail := errors.New("after all three")
		applied, err := worker.Apply(t.Context(), b.store, key("a"), []byte("10"), func(tx T) error {
			require.NoError(t, all(tx))
			return fail
		})
		assert.False(t, applied)
		assert.Equal(t, fail, err, "the function's own error, unchanged")
		assert.Equal(t, [3]int64{0, 0, 0}, [3]int64{b.keys(), b.balance(), b.intents()})

		assert.PanicsWithValue(t, "crash", func() {
			_, _ = worker.Apply(t.Context(), b.store, key("a"), []byte("10"), func(tx T) error {
				require.NoError(t, all(tx))
				panic("crash")
			})
		})
		assert.Equal(t, [3]int64{0, 0, 0}, [3]int64{b.keys(), b.balance(), b.intents()})

		applied, err = worker.Apply(t.Context(), b.store, key("a"), []byte("10"), all)
		require.NoError(t, err)
		assert.True(t, applied)
		assert.Equal(t, [3]int64{1, 10, 1}, [3]int64{b.keys(), b.balance(), b.intents()})
	})

	together("AFunctionThatNeverReturnsIsRolledBackWhenItsContextEnds", func(t *testing.T, b bench[T]) {
		ctx, cancel := context.WithCancelCause(t.Context())
		inside, leave := make(chan struct{}), make(chan struct{})
		result := make(chan error, 1)
		go func() {
			_, err := worker.Apply(ctx, b.store, key("a"), []byte("10"), func(tx T) error {
				err := b.add(tx, 10)
				close(inside)
				<-leave // whatever happens to ctx
				return err
			})
			result <- err
		}()
		<-inside
		cancel(postroom.ErrLeaseLost)
		// Another worker has the message now, and the first one still has not returned.
		applied, err := worker.Apply(t.Context(), b.store, key("a"), []byte("10"), func(tx T) error { return b.add(tx, 10) })
		require.NoError(t, err)
		assert.True(t, applied)
		close(leave)
		err = <-result
		require.ErrorIs(t, err, postroom.ErrLeaseLost)
		var failed *worker.StoreError
		require.ErrorAs(t, err, &failed)
		assert.False(t, failed.Unknown)
		assert.EqualValues(t, 10, b.balance())
	})

	run("AnEndedContextBeginsNothing", func(t *testing.T, b bench[T], _ *stepClock) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(postroom.ErrHandlerTimeout)
		_, err := worker.Apply(ctx, b.store, key("a"), nil, func(T) error {
			t.Error("called")
			return nil
		})
		require.ErrorIs(t, err, postroom.ErrHandlerTimeout)
	})

	together("OfManyAtOnceWithOneKeyOneIsApplied", func(t *testing.T, b bench[T]) {
		var applied atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				ok, err := worker.Apply(t.Context(), b.store, key("a"), []byte("10"), func(tx T) error { return b.add(tx, 10) })
				if assert.NoError(t, err) && ok {
					applied.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, applied.Load())
		assert.EqualValues(t, 10, b.balance())
	})

	together("ManyAtOnceWithManyKeysAreAllApplied", func(t *testing.T, b bench[T]) {
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for i := range 20 {
					_, err := worker.Apply(t.Context(), b.store, key(fmt.Sprint((i+5*w)%20)), nil, func(tx T) error { return b.add(tx, 1) })
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 20, b.balance())
	})

	run("NilsAndBadKeysAreTypedErrors", func(t *testing.T, b bench[T], _ *stepClock) {
		ok := func(T) error {
			t.Error("called")
			return nil
		}
		for what, call := range map[string]func() error{
			"nil function": func() error { _, err := worker.Apply(t.Context(), b.store, key("a"), nil, nil); return err },
			"nil store":    func() error { _, err := worker.Apply[T](t.Context(), nil, key("a"), nil, ok); return err },
			"no id":        func() error { _, err := worker.Apply(t.Context(), b.store, key(""), nil, ok); return err },
			"no operation": func() error { _, err := worker.Apply(t.Context(), b.store, worker.Key{ID: "a"}, nil, ok); return err },
			"NUL":          func() error { _, err := worker.Apply(t.Context(), b.store, key("a\x00b"), nil, ok); return err },
			"not UTF-8":    func() error { _, err := worker.Apply(t.Context(), b.store, key("\xff"), nil, ok); return err },
			"prune":        func() error { _, err := worker.Prune[T](t.Context(), nil, worker.PruneConfig{}); return err },
			"window":       func() error { _, err := worker.Prune(t.Context(), b.store, worker.PruneConfig{Window: -1}); return err },
			"no deliver": func() error {
				o, err := worker.NewOutbox(b.store, nil, worker.OutboxConfig{})
				require.NoError(t, err)
				_, err = o.Dispatch(t.Context())
				return err
			},
			"outbox": func() error { _, err := worker.NewOutbox[T](nil, nil, worker.OutboxConfig{}); return err },
			"batch":  func() error { _, err := worker.NewOutbox(b.store, nil, worker.OutboxConfig{Batch: -1}); return err },
			"no event key": func() error {
				o, err := worker.NewOutbox(b.store, nil, worker.OutboxConfig{})
				require.NoError(t, err)
				return b.store.Transact(t.Context(), func(tx T) error { return o.Add(t.Context(), tx, worker.Intent{}) })
			},
		} {
			err := call()
			require.ErrorIs(t, err, postroom.ErrArgument, what)
			assert.NotEmpty(t, postroom.Hint(err), what)
		}
		long := key(string(bytes.Repeat([]byte("x"), worker.KeyBytesMax+1)))
		_, err := worker.Apply(t.Context(), b.store, long, nil, ok)
		require.ErrorIs(t, err, postroom.ErrLimit)
		_, err = worker.Apply(t.Context(), b.store, key("a"), make([]byte, worker.PayloadBytesMax+1), ok)
		require.ErrorIs(t, err, postroom.ErrLimit)
	})

	for name, broken := range map[string]struct {
		store func(bench[T]) func(*testing.T) worker.Store[T]
		want  error
	}{
		"AClosedDatabaseIsATypedError":        {func(b bench[T]) func(*testing.T) worker.Store[T] { return b.closed }, worker.ErrStoreClosed},
		"AReadOnlyDatabaseIsATypedError":      {func(b bench[T]) func(*testing.T) worker.Store[T] { return b.readOnly }, worker.ErrReadOnly},
		"ADatabaseWithoutTablesIsATypedError": {func(b bench[T]) func(*testing.T) worker.Store[T] { return b.noTables }, worker.ErrNoTables},
	} {
		run(name, func(t *testing.T, b bench[T], _ *stepClock) {
			if broken.store(b) == nil {
				t.Skip("this store cannot be in that state")
			}
			store := broken.store(b)(t)
			outbox, err := worker.NewOutbox(store, func(context.Context, worker.Intent) error { return nil }, worker.OutboxConfig{})
			require.NoError(t, err)
			for what, call := range map[string]func() error{
				"apply": func() error {
					_, err := worker.Apply(t.Context(), store, key("a"), nil, func(tx T) error { return b.add(tx, 10) })
					return err
				},
				"prune":    func() error { _, err := worker.Prune(t.Context(), store, worker.PruneConfig{}); return err },
				"dispatch": func() error { _, err := outbox.Dispatch(t.Context()); return err },
				"run":      func() error { return outbox.Run(t.Context()) },
				"add": func() error {
					return store.Transact(t.Context(), func(tx T) error { return outbox.Add(t.Context(), tx, worker.Intent{ID: "a"}) })
				},
			} {
				err := call()
				require.ErrorIs(t, err, broken.want, what)
				var failed *worker.StoreError
				require.ErrorAs(t, err, &failed, what)
				assert.False(t, failed.Unknown, what)
				assert.False(t, worker.IsRetryable(err), what)
				assert.NotEmpty(t, postroom.Hint(err), what)
			}

			letter := buried(t, store, func(tx T) error { return b.add(tx, 10) })
			assert.Equal(t, postroom.MaxAttempts, letter.Reason, "it might have passed")
			assert.Contains(t, letter.Error, broken.want.Error())
			assert.Equal(t, [3]int64{0, 0, 0}, [3]int64{b.keys(), b.balance(), b.intents()}, "no half-done effect")
		})
	}

	// ---- Prune ----

	run("PruneRemovesKeysPastTheirWindowInBoundedBatches", func(t *testing.T, b bench[T], clock *stepClock) {
		apply := func(id string) bool {
			ok, err := worker.Apply(t.Context(), b.store, key(id), nil, func(tx T) error { return b.add(tx, 1) })
			require.NoError(t, err)
			return ok
		}
		for i := range 7 {
			apply(fmt.Sprint("old-", i))
		}
		clock.Step(time.Hour)
		apply("new")

		clock.Step(time.Hour)
		window := worker.PruneConfig{Window: 2 * time.Hour, Batch: 3}
		p, err := worker.Prune(t.Context(), b.store, window)
		require.NoError(t, err)
		assert.Equal(t, worker.Pruned{}, p, "at the window exactly a key is still kept")
		assert.False(t, apply("old-0"))

		clock.Step(time.Nanosecond)
		window.Batches = 2
		p, err = worker.Prune(t.Context(), b.store, window)
		require.NoError(t, err)
		assert.Equal(t, worker.Pruned{Keys: 6, More: true}, p, "two batches of three")
		window.Batches = 0
		p, err = worker.Prune(t.Context(), b.store, window)
		require.NoError(t, err)
		assert.Equal(t, worker.Pruned{Keys: 1}, p)
		assert.EqualValues(t, 1, b.keys())
		assert.False(t, apply("new"))
		assert.True(t, apply("old-0"), "without its key it is a new operation")
	})

	together("PrunesAtOnceDoNotGetInEachOthersWay", func(t *testing.T, b bench[T]) {
		const keys = 300
		for i := range keys {
			_, err := worker.Apply(t.Context(), b.store, key(fmt.Sprint(i)), nil, func(T) error { return nil })
			require.NoError(t, err)
		}
		time.Sleep(time.Microsecond) // the last key is older than a nanosecond
		var removed atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				p, err := worker.Prune(t.Context(), b.store, worker.PruneConfig{Window: time.Nanosecond, Batch: 7})
				assert.NoError(t, err)
				removed.Add(int64(p.Keys))
			})
		}
		all.Wait()
		assert.EqualValues(t, keys, removed.Load())
		assert.Zero(t, b.keys())
	})

	// ---- Outbox ----

	outbox := func(t *testing.T, b bench[T], deliver worker.Deliver, c worker.OutboxConfig) *worker.Outbox[T] {
		if c.Draw == nil {
			c.Draw = mostDraw
		}
		o, err := worker.NewOutbox(b.store, deliver, c)
		require.NoError(t, err)
		return o
	}
	add := func(t *testing.T, b bench[T], o *worker.Outbox[T], intents ...worker.Intent) {
		require.NoError(t, b.store.Transact(t.Context(), func(tx T) error { return o.Add(t.Context(), tx, intents...) }))
	}
	dispatch := func(t *testing.T, o *worker.Outbox[T]) worker.Dispatched {
		d, err := o.Dispatch(t.Context())
		require.NoError(t, err)
		return d
	}

	run("CommittedIntentsAreSentInOrderInBoundedBatches", func(t *testing.T, b bench[T], _ *stepClock) {
		var got []string
		o := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			got = append(got, in.ID)
			if in.ID == "1" {
				assert.Equal(t, worker.Intent{ID: "1", Order: "x", Payload: []byte{0, 0xff}, Headers: map[string]string{"a": "ü"}}, in)
			}
			return nil
		}, worker.OutboxConfig{Batch: 3})
		add(t, b, o, worker.Intent{ID: "1", Order: "x", Payload: []byte{0, 0xff}, Headers: map[string]string{"a": "ü"}})
		for _, id := range []string{"2", "3", "4"} {
			add(t, b, o, worker.Intent{ID: id})
		}
		rolledBack := errors.New("no")
		require.ErrorIs(t, b.store.Transact(t.Context(), func(tx T) error {
			require.NoError(t, o.Add(t.Context(), tx, worker.Intent{ID: "never"}))
			return rolledBack
		}), rolledBack)

		assert.Equal(t, worker.Dispatched{Claimed: 3, Sent: 3}, dispatch(t, o))
		assert.Equal(t, worker.Dispatched{Claimed: 1, Sent: 1}, dispatch(t, o))
		assert.Equal(t, worker.Dispatched{}, dispatch(t, o))
		assert.Equal(t, "1 2 3 4", lines(got))
		s, err := o.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, worker.OutboxStats{Sent: 4}, s)
	})

	run("AnIntentThatFailsWaitsAndHoldsBackItsOrderOnly", func(t *testing.T, b bench[T], clock *stepClock) {
		var got []string
		down := true
		o := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			if in.Order == "x" && down {
				return errors.New("away")
			}
			got = append(got, in.ID)
			return nil
		}, worker.OutboxConfig{Base: time.Second})
		add(t, b, o, worker.Intent{ID: "x1", Order: "x"}, worker.Intent{ID: "x2", Order: "x"},
			worker.Intent{ID: "y1", Order: "y"}, worker.Intent{ID: "free"})
		assert.Equal(t, worker.Dispatched{Claimed: 4, Sent: 2, Failed: 1, Freed: 1}, dispatch(t, o))
		assert.Equal(t, "y1 free", lines(got))
		add(t, b, o, worker.Intent{ID: "x3", Order: "x"})
		down = false
		assert.Equal(t, worker.Dispatched{}, dispatch(t, o), "x1 is not due, and the others wait for it")
		clock.Step(time.Second)
		assert.Equal(t, worker.Dispatched{Claimed: 3, Sent: 3}, dispatch(t, o))
		assert.Equal(t, "y1 free x1 x2 x3", lines(got))
	})

	run("AnIntentFromAClockThatIsAheadIsSentAndNotOvertaken", func(t *testing.T, b bench[T], clock *stepClock) {
		var got []string
		o := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			got = append(got, in.ID)
			return nil
		}, worker.OutboxConfig{})
		clock.Step(time.Hour)
		add(t, b, o, worker.Intent{ID: "x1", Order: "x"})
		clock.Step(-time.Hour)
		add(t, b, o, worker.Intent{ID: "x2", Order: "x"})
		assert.Equal(t, worker.Dispatched{Claimed: 2, Sent: 2}, dispatch(t, o))
		assert.Equal(t, "x1 x2", lines(got))
	})

	run("AnIntentStuckBeyondItsAttemptsIsParkedWithItsError", func(t *testing.T, b bench[T], clock *stepClock) {
		var got []string
		calls := 0
		broken := map[string]error{"x1": errors.New("away"), "y1": postroom.Permanent(errors.New("not an address"))}
		o := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			calls++
			if err := broken[in.ID]; err != nil {
				return err
			}
			got = append(got, in.ID)
			return nil
		}, worker.OutboxConfig{Attempts: 3, Base: time.Second, Cap: time.Minute})
		add(t, b, o, worker.Intent{ID: "x1", Order: "x"}, worker.Intent{ID: "x2", Order: "x"}, worker.Intent{ID: "y1", Order: "y"}, worker.Intent{ID: "y2", Order: "y"})
		assert.Equal(t, worker.Dispatched{Claimed: 4, Failed: 1, Parked: 1, Freed: 2}, dispatch(t, o), "what is permanent is parked at once")
		for _, d := range []worker.Dispatched{{Claimed: 2, Failed: 1, Freed: 1}, {Claimed: 2, Parked: 1, Freed: 1}, {}} {
			clock.Step(time.Minute)
			assert.Equal(t, d, dispatch(t, o))
		}
		assert.Equal(t, 4, calls)
		parked, err := o.Parked(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Len(t, parked, 2)
		assert.Equal(t, "x1", parked[0].ID)
		assert.Equal(t, "away", parked[0].Error)
		assert.Equal(t, 3, parked[0].Attempts)
		assert.Equal(t, "not an address", parked[1].Error)
		after, err := o.Parked(t.Context(), parked[0].Seq, 10)
		require.NoError(t, err)
		assert.Len(t, after, 1)

		// Dropped, it lets what is behind it go on; retried, it goes first, with all its
		// attempts.
		n, err := o.Drop(t.Context(), "y1", "unknown", "x2")
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		n, err = o.Retry(t.Context(), "x1")
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, worker.Dispatched{Claimed: 3, Sent: 1, Failed: 1, Freed: 1}, dispatch(t, o))
		delete(broken, "x1")
		clock.Step(time.Minute)
		assert.Equal(t, worker.Dispatched{Claimed: 2, Sent: 2}, dispatch(t, o))
		assert.Equal(t, "y2 x1 x2", lines(got))
	})

	run("FewerAttemptsThanAnIntentHasHadParkItAtItsNext", func(t *testing.T, b bench[T], clock *stepClock) {
		away := func(context.Context, worker.Intent) error { return errors.New("away") }
		patient := outbox(t, b, away, worker.OutboxConfig{Attempts: postroom.Unlimited, Cap: time.Second})
		add(t, b, patient, worker.Intent{ID: "a"})
		for range 5 {
			assert.Equal(t, worker.Dispatched{Claimed: 1, Failed: 1}, dispatch(t, patient))
			clock.Step(time.Second)
		}
		hasty := outbox(t, b, away, worker.OutboxConfig{Attempts: 3})
		assert.Equal(t, worker.Dispatched{Claimed: 1, Parked: 1}, dispatch(t, hasty))
	})

	run("ADispatcherThatDiesBeforeTheMarkSendsAgain", func(t *testing.T, b bench[T], clock *stepClock) {
		sent := 0
		die := true
		o := outbox(t, b, func(context.Context, worker.Intent) error {
			if sent++; die {
				panic("killed")
			}
			return nil
		}, worker.OutboxConfig{Claim: 30 * time.Second})
		add(t, b, o, worker.Intent{ID: "a"})
		assert.Panics(t, func() { _, _ = o.Dispatch(t.Context()) })
		die = false
		clock.Step(30*time.Second - time.Nanosecond)
		assert.Equal(t, worker.Dispatched{}, dispatch(t, o), "its claim still runs")
		clock.Step(time.Nanosecond)
		assert.Equal(t, worker.Dispatched{Claimed: 1, Sent: 1}, dispatch(t, o))
		assert.Equal(t, 2, sent)
	})

	run("AClaimThatRanOutIsNotMarkedAndItsRestNotTried", func(t *testing.T, b bench[T], clock *stepClock) {
		var got []string
		var second *worker.Outbox[T]
		slow := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			got = append(got, "slow "+in.ID)
			clock.Step(time.Minute)
			assert.Equal(t, worker.Dispatched{Claimed: 2, Sent: 2}, dispatch(t, second))
			return nil
		}, worker.OutboxConfig{Dispatcher: "slow"})
		second = outbox(t, b, func(_ context.Context, in worker.Intent) error {
			got = append(got, "second "+in.ID)
			return nil
		}, worker.OutboxConfig{Dispatcher: "second"})
		add(t, b, slow, worker.Intent{ID: "1", Order: "x"}, worker.Intent{ID: "2", Order: "x"})
		d := dispatch(t, slow)
		assert.Equal(t, 2, d.Lost, "%+v", d)
		assert.Equal(t, "slow 1 second 1 second 2", lines(got))
		assert.Equal(t, worker.Dispatched{}, dispatch(t, slow))
	})

	run("AClaimThatAnotherHasTakenOverMarksNothing", func(t *testing.T, b bench[T], clock *stepClock) {
		o := outbox(t, b, nil, worker.OutboxConfig{})
		add(t, b, o, worker.Intent{ID: "a"}, worker.Intent{ID: "b"}, worker.Intent{ID: "c"})
		claim := func(name string) []worker.IntentRow {
			var rows []worker.IntentRow
			now := clock.Now()
			require.NoError(t, b.store.Transact(t.Context(), func(tx T) (err error) {
				rows, err = b.store.ClaimIntents(t.Context(), tx, worker.Claim{Outbox: "default", Name: name, Now: now, Until: now.Add(time.Minute), Limit: 10})
				return err
			}))
			return rows
		}
		settle := func(claim string, rows []worker.IntentRow) (n int) {
			require.NoError(t, b.store.Transact(t.Context(), func(tx T) (err error) {
				n, err = b.store.SettleIntents(t.Context(), tx, claim, clock.Now(), []worker.Settled{
					{Seq: rows[0].Seq, To: worker.SettledSent}, {Seq: rows[1].Seq, To: worker.SettledFailed, DueAt: clock.Now()}, {Seq: rows[2].Seq, To: worker.SettledFreed},
				})
				return err
			}))
			return n
		}
		first := claim("first")
		require.Len(t, first, 3)
		assert.Empty(t, claim("early"))
		clock.Step(time.Minute)
		second := claim("second")
		require.Len(t, second, 3)
		assert.Zero(t, settle("first", first))
		assert.Equal(t, 3, settle("second", second))
		assert.Zero(t, settle("second", second), "once")
		assert.Len(t, claim("third"), 2, "the failed and the freed one")
	})

	run("AnIntentWithoutAnOrderHoldsBackNothing", func(t *testing.T, b bench[T], _ *stepClock) {
		o := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			if in.ID == "1" {
				return errors.New("away")
			}
			return nil
		}, worker.OutboxConfig{})
		add(t, b, o, worker.Intent{ID: "1"}, worker.Intent{ID: "2"})
		assert.Equal(t, worker.Dispatched{Claimed: 2, Sent: 1, Failed: 1}, dispatch(t, o))
		add(t, b, o, worker.Intent{ID: "3"})
		assert.Equal(t, worker.Dispatched{Claimed: 1, Sent: 1}, dispatch(t, o))
	})

	run("ADispatcherThatIsToldToStopSpendsNoAttempt", func(t *testing.T, b bench[T], _ *stepClock) {
		ctx, cancel := context.WithCancel(t.Context())
		o := outbox(t, b, func(ctx context.Context, _ worker.Intent) error {
			cancel()
			return ctx.Err()
		}, worker.OutboxConfig{Attempts: 1})
		add(t, b, o, worker.Intent{ID: "1"})
		d, err := o.Dispatch(ctx)
		require.NoError(t, err)
		assert.Equal(t, worker.Dispatched{Claimed: 1, Freed: 1}, d)
	})

	run("AnEventKeyIsUniqueInItsOutbox", func(t *testing.T, b bench[T], _ *stepClock) {
		o := outbox(t, b, nil, worker.OutboxConfig{})
		other := outbox(t, b, nil, worker.OutboxConfig{Name: "other"})
		add(t, b, o, worker.Intent{ID: "a"})
		add(t, b, other, worker.Intent{ID: "a"})
		err := b.store.Transact(t.Context(), func(tx T) error { return o.Add(t.Context(), tx, worker.Intent{ID: "a"}) })
		require.ErrorIs(t, err, worker.ErrIntentExists)
		assert.True(t, messages.IsPermanent(err))
		s, err := o.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, s.Pending, "outboxes are counted apart")
	})

	run("SentIntentsAreForgottenAfterAWhile", func(t *testing.T, b bench[T], clock *stepClock) {
		o := outbox(t, b, func(_ context.Context, in worker.Intent) error {
			if in.ID == "bad" {
				return postroom.Permanent(errors.New("bad"))
			}
			return nil
		}, worker.OutboxConfig{})
		add(t, b, o, worker.Intent{ID: "a"}, worker.Intent{ID: "b"}, worker.Intent{ID: "bad"})
		dispatch(t, o)
		add(t, b, o, worker.Intent{ID: "late"})
		clock.Step(24*time.Hour + time.Nanosecond)
		p, err := worker.Prune(t.Context(), b.store, worker.PruneConfig{Batch: 1})
		require.NoError(t, err)
		assert.Equal(t, worker.Pruned{Intents: 2}, p)
		s, err := o.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, worker.OutboxStats{Pending: 1, Parked: 1, OldestAge: 24*time.Hour + time.Nanosecond}, s)
	})

	together("SeveralDispatchersSendEachIntentOnceAndKeepOrder", func(t *testing.T, b bench[T]) {
		const orders, each = 5, 12
		var mu sync.Mutex
		got := map[string][]int{}
		deliver := func(_ context.Context, in worker.Intent) error {
			mu.Lock()
			defer mu.Unlock()
			got[in.Order] = append(got[in.Order], int(in.Payload[0]))
			return nil
		}
		adder := outbox(t, b, nil, worker.OutboxConfig{})
		var adding, sending sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for w := range orders {
			adding.Go(func() {
				for i := range each {
					add(t, b, adder, worker.Intent{ID: fmt.Sprint(w, "/", i), Order: fmt.Sprint(w), Payload: []byte{byte(i)}})
				}
			})
		}
		for w := range 3 {
			o := outbox(t, b, deliver, worker.OutboxConfig{Dispatcher: fmt.Sprint(w), Batch: 4, Poll: time.Millisecond, Draw: rand.New(rand.NewPCG(1, uint64(w))).Uint64})
			sending.Go(func() { assert.NoError(t, o.Run(ctx)) })
		}
		adding.Wait()
		require.Eventually(t, func() bool {
			s, err := adder.Stats(t.Context())
			require.NoError(t, err)
			return s.Sent == orders*each
		}, time.Minute, 5*time.Millisecond)
		cancel()
		sending.Wait()
		for w := range orders {
			want := make([]int, each)
			for i := range want {
				want[i] = i
			}
			assert.Equal(t, want, got[fmt.Sprint(w)], "order %d", w)
		}
	})

	run("RunEndsWithItsContext", func(t *testing.T, b bench[T], _ *stepClock) {
		ctx, cancel := context.WithCancel(t.Context())
		o := outbox(t, b, func(context.Context, worker.Intent) error {
			cancel()
			return nil
		}, worker.OutboxConfig{})
		add(t, b, o, worker.Intent{ID: "a"}, worker.Intent{ID: "b"})
		require.NoError(t, o.Run(ctx))
		s, err := o.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, s.Sent, "what was delivered is marked although ctx has ended")
		assert.Equal(t, 1, s.Pending)
	})
}

// buried gives one message to a consumer on a store, and returns the dead letter that it
// becomes.
func buried[T any](t *testing.T, store worker.Store[T], do func(tx T) error) postroom.DeadLetter {
	t.Helper()
	ctx := t.Context()
	broker, err := postroom.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, broker.Close(context.Background())) }()
	require.NoError(t, broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{BackoffBase: time.Millisecond, BackoffCap: time.Millisecond}))
	died := make(chan struct{})
	_, err = broker.Subscribe(ctx, "$sys.dead.jobs", func(string, *postroom.Event) { close(died) })
	require.NoError(t, err)
	_, err = worker.Handle(ctx, broker, "jobs", store, worker.Work[T]{
		Operation: "credit",
		Do:        func(_ context.Context, tx T, _ *postroom.Delivery) error { return do(tx) },
	}, postroom.ConsumerConfig{})
	require.NoError(t, err)
	_, err = broker.Put(ctx, "jobs", postroom.Envelope{ID: "credit-17"})
	require.NoError(t, err)
	<-died
	letters, err := broker.DeadLetters(ctx, "jobs", 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	return letters[0]
}
