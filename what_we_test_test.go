package postroom_test

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
)

// The "What We Test" lists of the two documents that the broker grew from, line by
// line: first of the leases (P1), then of the broker (P2).

// keeper returns a handler that keeps what it gets, and where it keeps it.
func keeper() (postroom.Handler, *[]*postroom.Delivery) {
	var held []*postroom.Delivery
	return func(_ context.Context, d *postroom.Delivery) error {
		held = append(held, d)
		return nil
	}, &held
}

func consume(t require.TestingT, b *postroom.Broker, queue string, h postroom.Handler, c postroom.ConsumerConfig) *postroom.Consumer {
	k, err := b.Consume(context.Background(), queue, h, c)
	require.NoError(t, err, "consume %s", queue)
	return k
}

// "An ack removes the message; a second ack is stale."
func TestP1_AnAckRemovesTheMessage_ASecondAckIsStale(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "library", postroom.QueueConfig{})
		put(t, b, "library", message("book-1"))
		d := get(t, b, "library")
		require.NoError(t, d.Ack(ctx), "first ack")
		s := statsOf(t, b, "library")
		assert.Zero(t, s.Ready+s.Delayed+s.Leased, "messages after the ack")

		err := d.Ack(ctx)
		var stale *postroom.StaleError
		require.ErrorAs(t, err, &stale, "second ack")
		assert.Equal(t, `ack tag 1 of queue "library": stale, over: acked`, err.Error())
		assert.EqualValues(t, 1, statsOf(t, b, "library").Acks, "acks after the stale one")
	})
}

// "A consumer that never answers loses its lease after ack_timeout, another consumer
// gets the message (attempt 2), and the late ack is refused."
func TestP1_AConsumerThatNeverAnswersLosesItsLease(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "library", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		samTakes, sam := keeper()
		kimTakes, kim := keeper()
		consume(t, b, "library", samTakes, postroom.ConsumerConfig{Manual: true})
		consume(t, b, "library", kimTakes, postroom.ConsumerConfig{Manual: true})
		put(t, b, "library", message("book-1"))

		w.Sleep(10*time.Second - time.Nanosecond)
		require.Len(t, *sam, 1, "sam's books")
		require.Empty(t, *kim, "kim's books just before ack_timeout")
		w.Sleep(2 * time.Nanosecond) // past the instant, at which the lease's timer may ring after ours
		w.Idle()
		require.Len(t, *kim, 1, "kim's books after ack_timeout")
		assert.Equal(t, 2, (*kim)[0].Attempt, "attempt of the second delivery")

		require.ErrorIs(t, (*sam)[0].Ack(ctx), postroom.ErrStale, "sam's late ack")
		require.NoError(t, (*kim)[0].Ack(ctx), "kim's ack")
	})
}

// "touch pushes the deadline out by a full ack_timeout."
func TestP1_TouchPushesTheDeadlineOutByAFullAckTimeout(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "library", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		put(t, b, "library", message("book-1"))
		d := get(t, b, "library")
		w.Sleep(7 * time.Second)
		at, err := d.Touch(ctx)
		require.NoError(t, err)
		assert.Equal(t, w.Now().Add(10*time.Second), at, "deadline after a touch at 7 s")
		w.Sleep(10*time.Second - time.Nanosecond)
		require.Equal(t, 1, statsOf(t, b, "library").Leased, "leased just before the new deadline")
		w.Sleep(time.Nanosecond)
		require.ErrorIs(t, d.Ack(ctx), postroom.ErrStale, "an ack at the new deadline")
	})
}

// "A put of an id that is currently leased counts as a duplicate."
func TestP1_APutOfALeasedIDIsADuplicate(t *testing.T) {
	onWorld(t, func(_ context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "library", postroom.QueueConfig{})
		put(t, b, "library", message("book-1"))
		get(t, b, "library")
		assert.True(t, put(t, b, "library", message("book-1")).Duplicate, "put of the leased id")
		s := statsOf(t, b, "library")
		assert.EqualValues(t, 1, s.Duplicates, "duplicates counted")
		assert.Equal(t, 1, s.Ready+s.Delayed+s.Leased, "messages")
	})
}

// "Closing the queue drops consumers and leases without requeueing."
func TestP1_ClosingTheQueueDropsConsumersAndLeases(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "library", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		takes, held := keeper()
		consumer := consume(t, b, "library", takes, postroom.ConsumerConfig{Manual: true})
		put(t, b, "library", message("book-1"))
		w.Idle()
		require.Len(t, *held, 1)

		deleted, err := b.DeleteQueue(ctx, "library")
		require.NoError(t, err)
		assert.Equal(t, postroom.Deleted{Messages: 1}, deleted, "what went with the queue")
		w.Idle()
		<-consumer.Done()
		require.ErrorIs(t, consumer.Err(), postroom.ErrQueueClosed, "why the consumer ended")

		// A queue of the same name begins empty, and the old lease means nothing there.
		declare(t, b, "library", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		w.Sleep(time.Minute)
		s := statsOf(t, b, "library")
		assert.Zero(t, s.Ready+s.Delayed+s.Leased+s.Consumers, "messages and consumers of the new queue")
		require.Error(t, (*held)[0].Ack(ctx), "an ack with the old receipt")
		require.Len(t, *held, 1, "deliveries to the dropped consumer")
	})
}

// "Redeclaring a queue and conflicting settings."
func TestP2_RedeclaringAQueue(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		config := postroom.QueueConfig{AckTimeout: 30 * time.Second, MaxAttempts: 3}
		declare(t, b, "jobs", postroom.QueueConfig{})
		put(t, b, "jobs", message("job-1"))
		declare(t, b, "jobs", config) // the defaults, written out
		require.Equal(t, 1, statsOf(t, b, "jobs").Ready, "messages after the same declaration")

		config.MaxAttempts, config.TTL = 4, time.Hour
		err := b.DeclareQueue(ctx, "jobs", config)
		var conflict *postroom.QueueConfigConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, []string{"MaxAttempts", "TTL"}, conflict.Fields, "fields named")
		assert.Equal(t, 1, statsOf(t, b, "jobs").Ready, "messages after the refused declaration")
	})
}

// "Every queue method raises for an unknown queue."
func TestP2_EveryQueueMethodRefusesAnUnknownQueue(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		const unknown = "nowhere"
		calls := map[string]func() error{
			"DeleteQueue": func() error { _, err := b.DeleteQueue(ctx, unknown); return err },
			"Pause":       func() error { return b.Pause(ctx, unknown) },
			"Resume":      func() error { return b.Resume(ctx, unknown) },
			"Purge":       func() error { _, err := b.Purge(ctx, unknown); return err },
			"Peek":        func() error { _, err := b.Peek(ctx, unknown, 1); return err },
			"Drain":       func() error { return b.Drain(ctx, unknown) },
			"QueueStats":  func() error { _, err := b.QueueStats(ctx, unknown); return err },
			"QueuePID":    func() error { _, err := b.QueuePID(unknown); return err },
			"Put":         func() error { _, err := b.Put(ctx, unknown, message("m")); return err },
			"PutBatch":    func() error { _, err := b.PutBatch(ctx, unknown, []postroom.Envelope{message("m")}); return err },
			"Publisher":   func() error { _, err := b.Publisher(ctx, unknown, postroom.PublisherConfig{}); return err },
			"Consume": func() error {
				takes, _ := keeper()
				_, err := b.Consume(ctx, unknown, takes, postroom.ConsumerConfig{})
				return err
			},
			"Get":         func() error { _, err := b.Get(ctx, unknown, postroom.GetConfig{}); return err },
			"Ack":         func() error { return b.Ack(ctx, unknown, 1) },
			"Nack":        func() error { return b.Nack(ctx, unknown, 1, nil) },
			"Reject":      func() error { return b.Reject(ctx, unknown, 1, nil) },
			"Touch":       func() error { _, err := b.Touch(ctx, unknown, 1); return err },
			"Bind":        func() error { return b.Bind(ctx, unknown, "#") },
			"Unbind":      func() error { return b.Unbind(ctx, unknown, "#") },
			"DeadLetters": func() error { _, err := b.DeadLetters(ctx, unknown, 0, 1); return err },
			"Discard":     func() error { _, err := b.Discard(ctx, unknown, "m"); return err },
			"Redrive":     func() error { _, err := b.Redrive(ctx, unknown, postroom.RedriveConfig{}); return err },
			"NewTyped":    func() error { _, err := postroom.NewTyped[int](b, unknown, nil); return err },
		}
		for name, call := range calls {
			err := call()
			var missing *postroom.QueueNotFoundError
			if assert.ErrorAs(t, err, &missing, "%s of an unknown queue", name) {
				assert.Equal(t, unknown, missing.Queue, "%s: the queue named", name)
				assert.ErrorIs(t, err, postroom.ErrNotFound, name)
			}
		}
		assert.Empty(t, b.Queues(), "queues afterwards")
	})
}

// "Publishing reaches two subscribers and a bound queue."
func TestP2_PublishingReachesTwoSubscribersAndABoundQueue(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "jobs", "news.*"))
		heard := map[string]string{}
		for range 2 {
			_, err := b.Subscribe(ctx, "news.#", func(sub string, e *postroom.Event) { heard[sub] = string(e.Body) })
			require.NoError(t, err)
		}
		result, err := b.Publish(ctx, "news.today", postroom.Envelope{Body: []byte("rain")})
		require.NoError(t, err)
		assert.Equal(t, postroom.PublishResult{Subscribers: 2, Accepted: 1}, result)
		w.Idle()
		assert.Equal(t, map[string]string{"sub-1": "rain", "sub-2": "rain"}, heard)
		d := get(t, b, "jobs")
		assert.Equal(t, "rain", string(d.Body))
		assert.Equal(t, "news.today", d.Topic)
	})
}

// "A raising subscriber does not stop the rest."
func TestP2_APanickingSubscriberDoesNotStopTheRest(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		calls, heard := 0, 0
		_, err := b.Subscribe(ctx, "#", func(string, *postroom.Event) {
			if calls++; calls == 1 {
				panic("cannot read")
			}
		})
		require.NoError(t, err)
		_, err = b.Subscribe(ctx, "#", func(string, *postroom.Event) { heard++ })
		require.NoError(t, err)
		for range 2 {
			_, err := b.Publish(ctx, "news", postroom.Envelope{})
			require.NoError(t, err)
			w.Idle()
		}
		assert.Equal(t, 2, heard, "events of the other subscriber")
		assert.Equal(t, 2, calls, "events of the one that panicked on its first")
	})
}

// "A rejected nack publishes $sys.dead.jobs with the reason."
func TestP2_ARejectedNackPublishesItsDeath(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{})
		var events []string
		_, err := b.Subscribe(ctx, "$sys.dead.jobs", func(_ string, e *postroom.Event) { events = append(events, string(e.Body)) })
		require.NoError(t, err)
		put(t, b, "jobs", message("job-1"))
		require.NoError(t, get(t, b, "jobs").Reject(ctx, errors.New("bad file")))
		w.Idle()
		assert.Equal(t, []string{`{"queue":"jobs","id":"job-1","reason":"rejected","attempts":1,"error":"bad file"}`}, events)
	})
}

// "A queue bound to # gets exactly one copy of its own death event, and when that
// copy dies too (nack, TTL or a raising consumer) nothing new is announced; …"
func TestP2_ACatchAllQueueGetsItsOwnDeathOnce(t *testing.T) {
	for _, row := range []struct {
		how    string
		config postroom.QueueConfig
		die    func(t *testing.T, ctx context.Context, w *simulation.World, b *postroom.Broker)
	}{
		{"nack", postroom.QueueConfig{}, func(t *testing.T, ctx context.Context, _ *simulation.World, b *postroom.Broker) {
			require.NoError(t, get(t, b, "jobs").Reject(ctx, errors.New("no")))
		}},
		{"TTL", postroom.QueueConfig{TTL: time.Minute}, func(_ *testing.T, _ context.Context, w *simulation.World, _ *postroom.Broker) {
			w.Sleep(time.Minute + 1)
		}},
		{"attempts", postroom.QueueConfig{MaxAttempts: 1}, func(t *testing.T, ctx context.Context, _ *simulation.World, b *postroom.Broker) {
			require.NoError(t, get(t, b, "jobs").Nack(ctx, errors.New("no")))
		}},
		{"panicking consumer", postroom.QueueConfig{MaxAttempts: 1, AckTimeout: time.Second}, func(t *testing.T, ctx context.Context, w *simulation.World, b *postroom.Broker) {
			k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { panic("boom") }, postroom.ConsumerConfig{})
			for statsOf(t, b, "jobs").Leased == 0 {
				w.Sleep(time.Millisecond)
			}
			require.NoError(t, k.Cancel(ctx))
			w.Sleep(2 * time.Second)
		}},
	} {
		t.Run(row.how, func(t *testing.T) {
			onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
				declare(t, b, "jobs", row.config)
				require.NoError(t, b.Bind(ctx, "jobs", "#"))
				announced := 0
				_, err := b.Subscribe(ctx, "$sys.dead.#", func(string, *postroom.Event) { announced++ })
				require.NoError(t, err)

				put(t, b, "jobs", message("job-1"))
				row.die(t, ctx, w, b)
				w.Idle()
				require.Equal(t, 1, announced, "deaths announced after the first, by %s", row.how)
				s := statsOf(t, b, "jobs")
				require.Equal(t, 1, s.Ready+s.Delayed+s.Leased, "copies of its own death event")

				row.die(t, ctx, w, b)
				w.Sleep(time.Hour)
				assert.Equal(t, 1, announced, "deaths announced after the copy died, by %s", row.how)
				s = statsOf(t, b, "jobs")
				assert.Zero(t, s.Ready+s.Delayed+s.Leased, "messages after the copy died")
				assert.Equal(t, 2, s.DeadLetters, "dead letters")
				conserved(t, s, "after both deaths")
			})
		})
	}
}

// "… two catch-all queues do not ping-pong announcements."
func TestP2_TwoCatchAllQueuesDoNotPingPong(t *testing.T) {
	onWorld(t, func(ctx context.Context, w *simulation.World, b *postroom.Broker) {
		announced := 0
		_, err := b.Subscribe(ctx, "$sys.dead.#", func(string, *postroom.Event) { announced++ })
		require.NoError(t, err)
		for _, queue := range []string{"ping", "pong"} {
			declare(t, b, queue, postroom.QueueConfig{MaxAttempts: 1})
			require.NoError(t, b.Bind(ctx, queue, "#"))
			consume(t, b, queue, func(context.Context, *postroom.Delivery) error { return errors.New("no") }, postroom.ConsumerConfig{})
		}
		put(t, b, "ping", message("ball"))
		w.Sleep(time.Hour)
		assert.Equal(t, 1, announced, "deaths announced")
		assert.Equal(t, 2, statsOf(t, b, "ping").DeadLetters, "dead letters of ping: the ball and the announcement")
		assert.Equal(t, 1, statsOf(t, b, "pong").DeadLetters, "dead letters of pong: the announcement")
	})
}

// "Deleting a queue forgets its bindings and consumer tags."
func TestP2_DeletingAQueueForgetsItsBindingsAndConsumerTags(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		declare(t, b, "jobs", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "jobs", "a.*"))
		require.NoError(t, b.Bind(ctx, "jobs", "#"))
		takes, _ := keeper()
		consumer := consume(t, b, "jobs", takes, postroom.ConsumerConfig{})
		_, err := b.DeleteQueue(ctx, "jobs")
		require.NoError(t, err)

		stats, err := b.Stats(ctx)
		require.NoError(t, err)
		assert.Equal(t, postroom.BrokerStats{}, stats, "what the broker holds after the delete")
		var missing *postroom.NotFoundError
		assert.ErrorAs(t, b.Cancel(ctx, consumer.Tag), &missing, "cancel of the forgotten tag")

		declare(t, b, "jobs", postroom.QueueConfig{})
		result, err := b.Publish(ctx, "a.b", postroom.Envelope{})
		require.NoError(t, err)
		assert.Equal(t, postroom.PublishResult{}, result, "a publication to the new queue of that name")
		again := consume(t, b, "jobs", takes, postroom.ConsumerConfig{})
		assert.Equal(t, "ctag-2", again.Tag, "the next consumer tag")
	})
}

// "Consumer tags are ctag-1, ctag-2, ... and unique across all queues, so cancel(tag)
// needs no queue name."
func TestP2_ConsumerTagsAreUniqueAcrossQueues(t *testing.T) {
	onWorld(t, func(ctx context.Context, _ *simulation.World, b *postroom.Broker) {
		takes, _ := keeper()
		for i := range 4 {
			queue := fmt.Sprint("queue-", i%2)
			declare(t, b, queue, postroom.QueueConfig{})
			k := consume(t, b, queue, takes, postroom.ConsumerConfig{})
			require.Equal(t, fmt.Sprint("ctag-", i+1), k.Tag)
		}
		for i := range 4 {
			require.NoError(t, b.Cancel(ctx, fmt.Sprint("ctag-", i+1)))
		}
		assert.Zero(t, statsOf(t, b, "queue-0").Consumers+statsOf(t, b, "queue-1").Consumers, "consumers left")
	})
}
