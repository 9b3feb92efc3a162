package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// sleepy opens a broker whose queue "slow" takes its time: it sleeps, once, at the
// next point that begins with the given text.
func sleepy(w *simulation.World, point string, d time.Duration) *postroom.Broker {
	slept := false
	return w.MustOpen(postroom.WithProbe(func(at string) {
		if !slept && strings.HasPrefix(at, point) {
			slept = true
			w.Sleep(d)
		}
	}))
}

// outcome checks what an error says of whether the call may have happened.
func outcome(t *testing.T, err error, sent bool, cause error) {
	t.Helper()
	var o *postroom.OutcomeError
	require.ErrorAs(t, err, &o)
	assert.Equal(t, sent, o.Sent, "Sent of %v", err)
	assert.Equal(t, sent, errors.Is(err, postroom.ErrOutcomeUnknown), "%v is ErrOutcomeUnknown", err)
	assert.Equal(t, !sent, errors.Is(err, postroom.ErrNotSent), "%v is ErrNotSent", err)
	assert.ErrorIs(t, err, cause)
	assert.NotEmpty(t, postroom.Hint(err), "hint of %v", err)
}

// The put had left when its context ended, so it may have happened; and it has,
// whether the context ended before the queue took it or after. Repeating it with the
// same id is safe.
func TestG1_APutWhoseContextEndsWhileItWaitsIsUnknown(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		run(t, 1, func(ctx context.Context, w *simulation.World) {
			b := sleepy(w, "queue slow "+when+" *actors.Put", 5*time.Second)
			declare(t, b, "slow", postroom.QueueConfig{})
			brief, cancel := b.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := b.Put(brief, "slow", message("m"))
			outcome(t, err, true, context.DeadlineExceeded)
			assert.Equal(t, time.Second, w.Now().Sub(simulation.Epoch), "how long the put waited")

			again := put(t, b, "slow", message("m"))
			assert.True(t, again.Duplicate, "the same put again, the queue being slow %s it", when)
			assert.EqualValues(t, 1, statsOf(t, b, "slow").Puts, "puts counted")
		})
	}
}

// The same for a caller's own cancel, with its cause.
func TestG1_TheCauseOfTheEndIsTold(t *testing.T) {
	run(t, 1, func(ctx context.Context, w *simulation.World) {
		b := sleepy(w, "queue slow before *actors.Put", 5*time.Second)
		declare(t, b, "slow", postroom.QueueConfig{})
		why := errors.New("user went home")
		cancelled, cancel := context.WithCancelCause(ctx)
		w.Go(func() {
			w.Sleep(time.Second)
			cancel(why)
		})
		_, err := b.Put(cancelled, "slow", message("m"))
		outcome(t, err, true, why)
		assert.Equal(t, "put: outcome unknown: user went home", err.Error())
	})
}

// A publisher that waits for its window has sent nothing yet.
func TestG1_APublishersPutThatWaitsForTheWindowIsNotSent(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		p, err := b.Publisher(ctx, "q", postroom.PublisherConfig{Window: 1, UntilSettled: true})
		require.NoError(t, err)
		_, err = p.Put(ctx, message("first"))
		require.NoError(t, err)
		w.Idle()

		brief, cancel := b.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = p.Put(brief, message("second"))
		outcome(t, err, false, context.DeadlineExceeded)
		require.NoError(t, p.Flush(ctx))
		s := statsOf(t, b, "q")
		assert.EqualValues(t, 1, s.Puts, "puts after the one that was not sent")

		// Its place in the window was not lost: when the first is done, one fits.
		require.NoError(t, get(t, b, "q").Ack(ctx))
		_, err = p.Put(ctx, message("second"))
		require.NoError(t, err)
	})
}

func TestA3_AFullWindowWithNoWaitIsBusyAtOnce(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		p, err := b.Publisher(ctx, "q", postroom.PublisherConfig{Window: 1, UntilSettled: true, NoWait: true})
		require.NoError(t, err)
		_, err = p.Put(ctx, message("first"))
		require.NoError(t, err)
		_, err = p.Put(ctx, message("second"))
		checkError(t, err, postroom.ErrBusy, "busy")
		assert.Equal(t, simulation.Epoch, w.Now(), "time after a refusal at once")
	})
}

// Results come in put order, refusals too, and Flush joins the refusals.
func TestA3_APublishersResultsComeInPutOrder(t *testing.T) {
	for seed := range uint64(5) {
		run(t, seed, func(ctx context.Context, w *simulation.World) {
			b := w.MustOpen()
			declare(t, b, "q", postroom.QueueConfig{MaxMessages: 3})
			var told []string
			p, err := b.Publisher(ctx, "q", postroom.PublisherConfig{OnResult: func(r postroom.PutResult) {
				told = append(told, fmt.Sprint(r.ID, " ", r.Duplicate, " ", r.Err != nil))
			}})
			require.NoError(t, err)
			var want []string
			for i := range 5 {
				_, err := p.Put(ctx, message(fmt.Sprint(i)))
				require.NoError(t, err)
				want = append(want, fmt.Sprint(i, " ", false, " ", i >= 3))
			}
			_, err = p.Put(ctx, message("0"))
			require.NoError(t, err)
			want = append(want, "0 true false")

			err = p.Flush(ctx)
			require.ErrorIs(t, err, postroom.ErrQueueFull, "Flush")
			assert.Equal(t, 2, strings.Count(err.Error(), "is full"), "refusals joined in %q", err)
			w.Idle()
			assert.Equal(t, want, told, "results with seed %d", seed)
			assert.NoError(t, p.Flush(ctx), "a second Flush")
		})
	}
}

// A publisher whose queue or broker is gone says so by a reason that can be matched.
func TestA3_APublisherHearsThatItsQueueIsGone(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		p, err := b.Publisher(ctx, "q", postroom.PublisherConfig{})
		require.NoError(t, err)
		_, err = b.DeleteQueue(ctx, "q")
		require.NoError(t, err)
		_, err = p.Put(ctx, message("late"))
		require.NoError(t, err, "a publisher's put is only sent")
		err = p.Flush(ctx)
		require.ErrorIs(t, err, postroom.ErrQueueClosed, "Flush after the queue was deleted: %v", err)
	})
}

// A put that still waits for its place when the broker closes was not sent, and must
// not say that it was.
func TestA3_APublisherThatWaitsForItsWindowHearsOfTheEnd(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		p, err := b.Publisher(ctx, "q", postroom.PublisherConfig{Window: 1, UntilSettled: true})
		require.NoError(t, err)
		_, err = p.Put(ctx, message("first"))
		require.NoError(t, err)
		var second error
		returned := false
		w.Go(func() {
			_, second = p.Put(ctx, message("second"))
			returned = true
		})
		w.Idle()
		require.False(t, returned, "the second put waits behind a window of one")
		require.NoError(t, b.Close(ctx))
		w.Idle()
		require.True(t, returned, "the second put returned when the broker closed")
		assert.ErrorIs(t, second, postroom.ErrBrokerClosed)
	})
}

// A handler that outlived Close still ends its consumer when it returns.
func TestC9_AStuckConsumerIsDoneWhenItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		b, err := postroom.Open()
		require.NoError(t, err)
		declare(t, b, "q", postroom.QueueConfig{})
		release := make(chan struct{})
		c, err := b.Consume(ctx, "q", func(context.Context, *postroom.Delivery) error {
			<-release
			return nil
		}, postroom.ConsumerConfig{})
		require.NoError(t, err)
		put(t, b, "q", message("m"))
		synctest.Wait()
		gone, cancel := context.WithCancel(ctx)
		cancel()
		var stuck *postroom.StuckError
		require.ErrorAs(t, b.Close(gone), &stuck)
		close(release)
		<-c.Done()
		assert.ErrorIs(t, c.Err(), postroom.ErrBrokerClosed)
	}) // the bubble itself fails when a goroutine is left
}

// A Get that waits leaves no lease behind, so nothing has happened.
func TestC6_AGetWhoseContextEndsHasNotHappened(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		brief, cancel := b.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := b.Get(brief, "q", postroom.GetConfig{})
		outcome(t, err, false, context.DeadlineExceeded)
		put(t, b, "q", message("m"))
		s := statsOf(t, b, "q")
		assert.Equal(t, []int{1, 0}, []int{s.Ready, s.Leased}, "ready and leased after a put behind the ended Get")
	})
}

// Whenever the context of a Get ends, even in the instant of the hand-over: either it
// has the message, or the message is back and no attempt was spent.
func TestC6_AGetThatEndsDuringItsHandOverLosesNothing(t *testing.T) {
	for seed := range uint64(40) {
		run(t, seed, func(ctx context.Context, w *simulation.World) {
			b := w.MustOpen()
			declare(t, b, "q", postroom.QueueConfig{})
			waits, cancel := context.WithCancel(ctx)
			var got *postroom.Delivery
			w.Go(func() { got, _ = b.Get(waits, "q", postroom.GetConfig{}) })
			w.Idle()
			w.Go(func() { put(t, b, "q", message("m")) })
			w.Go(cancel)
			w.Idle()
			s := statsOf(t, b, "q")
			conserved(t, s, "after the race")
			if got != nil {
				assert.Equal(t, 1, s.Leased, "seed %d: leased, the Get having the message", seed)
				return
			}
			assert.Equal(t, 1, s.Ready, "seed %d: ready, the Get having ended", seed)
			assert.Equal(t, 1, get(t, b, "q").Attempt, "seed %d: attempt of the next delivery", seed)
		})
	}
}

func TestQ16_ADrainWhoseContextEndsGoesOnUntilResume(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		put(t, b, "q", message("m"))
		brief, cancel := b.WithTimeout(ctx, time.Second)
		defer cancel()
		outcome(t, b.Drain(brief, "q"), true, context.DeadlineExceeded)
		_, err := b.Put(ctx, "q", message("more"))
		require.ErrorIs(t, err, postroom.ErrDraining, "a put after the Drain's context ended")
		require.NoError(t, b.Resume(ctx, "q"))
		put(t, b, "q", message("more"))
	})
}

func TestR8_EndingItsContextStopsARedrive(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		for i := range 10 {
			put(t, b, "q", message(fmt.Sprint(i)))
			require.NoError(t, get(t, b, "q").Reject(ctx, nil))
		}
		brief, cancel := b.WithTimeout(ctx, 2500*time.Millisecond)
		defer cancel()
		_, err := b.Redrive(brief, "q", postroom.RedriveConfig{Rate: 1})
		outcome(t, err, true, context.DeadlineExceeded)
		moved := statsOf(t, b, "q").RedrivenIn
		assert.EqualValues(t, 3, moved, "letters moved in 2.5 s at one a second")
		w.Sleep(time.Minute)
		assert.Equal(t, moved, statsOf(t, b, "q").RedrivenIn, "letters moved a minute after the end")
	})
}

// A deadline on the wall clock would never come here: it is refused, and says what
// to use instead.
func TestK2_ADeadlineOfAnotherClockIsRefused(t *testing.T) {
	onWorld(t, func(_ context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		wall, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		_, err := b.Put(wall, "q", message("m"))
		require.Error(t, err)
		assert.Contains(t, err.Error(), "not on the runtime's clock")
		assert.Contains(t, postroom.Hint(err), "Broker.WithTimeout")
		assert.Zero(t, statsOf(t, b, "q").Puts, "puts")

		p, err := b.Publisher(wall, "q", postroom.PublisherConfig{Window: 1, UntilSettled: true})
		require.NoError(t, err)
		_, err = p.Put(context.Background(), message("first"))
		require.NoError(t, err)
		_, err = p.Put(wall, message("second"))
		require.ErrorContains(t, err, "not on the runtime's clock", "a put that waits for the window")
	})
}

// Close answers everybody who waits, with a reason that can be matched.
func TestB5_CloseAnswersEveryWaiter(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		declare(t, b, "empty", postroom.QueueConfig{})
		put(t, b, "q", message("m"))
		put(t, b, "q", message("dead"))
		first := get(t, b, "q")
		require.NoError(t, get(t, b, "q").Reject(ctx, nil))
		full, err := b.Publisher(ctx, "q", postroom.PublisherConfig{Window: 1, UntilSettled: true})
		require.NoError(t, err)
		_, err = full.Put(ctx, message("fills the window"))
		require.NoError(t, err)
		waits := map[string]func() error{
			"get":             func() error { _, err := b.Get(ctx, "empty", postroom.GetConfig{}); return err },
			"drain":           func() error { return b.Drain(ctx, "q") },
			"redrive":         func() error { _, err := b.Redrive(ctx, "q", postroom.RedriveConfig{Rate: 1e-3}); return err },
			"publisher's put": func() error { _, err := full.Put(ctx, message("waits")); return err },
		}
		answers := map[string]error{}
		for name, wait := range waits {
			w.Go(func() { answers[name] = wait() })
		}
		w.Idle()
		require.NoError(t, b.Close(ctx))
		w.Idle()
		for name := range waits {
			if name == "redrive" || name == "publisher's put" {
				assert.Contains(t, answers, name, "%s is still waiting", name)
				continue // a redrive may have ended; a put waiting for the window may have been sent
			}
			assert.ErrorIs(t, answers[name], postroom.ErrBrokerClosed, "%s that waited when the broker closed", name)
		}
		assert.ErrorIs(t, first.Ack(ctx), postroom.ErrBrokerClosed, "an ack after Close")
		require.NoError(t, b.Close(ctx), "a second Close")
	})
}

// A batch whose caller's context ended is still the queue's: neither the next batch nor
// what the caller does with its slice changes a message of it.
func TestG1_ABatchThatIsWaitedForNoLongerIsLeftAlone(t *testing.T) {
	run(t, 1, func(ctx context.Context, w *simulation.World) {
		b := sleepy(w, "queue slow before *actors.PutBatch", 5*time.Second)
		declare(t, b, "slow", postroom.QueueConfig{})
		declare(t, b, "other", postroom.QueueConfig{})
		batch := func(name string) []postroom.Envelope {
			return []postroom.Envelope{message(name + "-1"), message(name + "-2"), {Body: []byte("of " + name)}}
		}
		brief, cancel := b.WithTimeout(ctx, time.Second)
		defer cancel()
		left := batch("left")
		_, err := b.PutBatch(brief, "slow", left)
		outcome(t, err, true, context.DeadlineExceeded)
		clear(left)
		for _, name := range []string{"next", "last"} {
			_, err := b.PutBatch(ctx, "other", batch(name))
			require.NoError(t, err)
		}
		var got []string
		for range 3 {
			d := get(t, b, "slow")
			got = append(got, string(d.Body))
		}
		assert.Equal(t, []string{"body of left-1", "body of left-2", "of left"}, got)
	})
}

func TestC10_ABatchOfSettlesThatIsWaitedForNoLongerIsLeftAlone(t *testing.T) {
	run(t, 1, func(ctx context.Context, w *simulation.World) {
		b := sleepy(w, "queue slow before *messages.SettleBatch", 5*time.Second)
		for _, queue := range []string{"slow", "other"} {
			declare(t, b, queue, postroom.QueueConfig{})
			for n := range 4 {
				put(t, b, queue, message(fmt.Sprint(queue, "-", n)))
			}
		}
		acks := func(queue string) []postroom.Settlement {
			return []postroom.Settlement{
				{Receipt: get(t, b, queue).Receipt(), Verb: postroom.VerbAck},
				{Receipt: get(t, b, queue).Receipt(), Verb: postroom.VerbAck},
			}
		}
		brief, cancel := b.WithTimeout(ctx, time.Second)
		defer cancel()
		left := acks("slow")
		results, err := b.SettleBatch(brief, left)
		require.NoError(t, err)
		for _, r := range results {
			outcome(t, r.Err, true, context.DeadlineExceeded)
		}
		clear(left)
		for range 2 {
			results, err := b.SettleBatch(ctx, acks("other"))
			require.NoError(t, err)
			for _, r := range results {
				require.NoError(t, r.Err)
			}
		}
		s := statsOf(t, b, "slow")
		assert.Equal(t, []any{uint64(2), uint64(0), 2}, []any{s.Acks, s.StaleBy[postroom.VerbAck], s.Ready}, "acks, stale ones and ready")
	})
}
