package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// printer returns a handler that prints what it gets, and when.
func printer(w *simulation.World) postroom.Handler {
	return func(_ context.Context, d *postroom.Delivery) error {
		fmt.Println(seconds(w), d.ID)
		return nil
	}
}

// A message with a Delay is first ready when that has passed.
func ExampleBroker_Put_delayed() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "reminders", postroom.QueueConfig{})
		broker.Consume(ctx, "reminders", printer(w), postroom.ConsumerConfig{})

		broker.Put(ctx, "reminders", postroom.Envelope{ID: "tea is ready", Delay: 4 * time.Minute})
		broker.Put(ctx, "reminders", postroom.Envelope{ID: "put the kettle on"})
		w.Sleep(time.Hour)
	})
	// Output:
	//  0.0s put the kettle on
	// 240.0s tea is ready
}

// Priorities go from 0, the default, to 9. A higher one goes first, strictly.
func ExampleBroker_Put_priority() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "calls", postroom.QueueConfig{})
		broker.Put(ctx, "calls", postroom.Envelope{ID: "newsletter"})
		broker.Put(ctx, "calls", postroom.Envelope{ID: "invoice", Priority: 5})
		broker.Put(ctx, "calls", postroom.Envelope{ID: "fire", Priority: 9})
		broker.Put(ctx, "calls", postroom.Envelope{ID: "second newsletter"})

		broker.Consume(ctx, "calls", printer(w), postroom.ConsumerConfig{})
		w.Idle()
	})
	// Output:
	//  0.0s fire
	//  0.0s invoice
	//  0.0s newsletter
	//  0.0s second newsletter
}

// A put with an id that is in the queue already changes nothing: a caller who does
// not know whether its put arrived repeats it with the same id.
func ExampleBroker_Put_duplicate() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "orders", postroom.QueueConfig{})
		for range 2 {
			result, err := broker.Put(ctx, "orders", message("order-7"))
			fmt.Println(result.ID, "duplicate:", result.Duplicate, err)
		}
		stats, _ := broker.QueueStats(ctx, "orders")
		fmt.Println(stats.Ready, "in the queue")
	})
	// Output:
	// order-7 duplicate: false <nil>
	// order-7 duplicate: true <nil>
	// 1 in the queue
}

// With a DedupWindow an id stays taken for that long after its put, even when the
// message was acked meanwhile.
func ExampleBroker_Put_dedupWindow() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "orders", postroom.QueueConfig{DedupWindow: time.Minute})
		broker.Consume(ctx, "orders", printer(w), postroom.ConsumerConfig{})

		broker.Put(ctx, "orders", message("order-7"))
		w.Sleep(30 * time.Second) // handled and acked long ago
		late, _ := broker.Put(ctx, "orders", message("order-7"))
		fmt.Println(seconds(w), "duplicate:", late.Duplicate)

		w.Sleep(30 * time.Second)
		later, _ := broker.Put(ctx, "orders", message("order-7"))
		w.Idle()
		fmt.Println(seconds(w), "duplicate:", later.Duplicate)
	})
	// Output:
	//  0.0s order-7
	// 30.0s duplicate: true
	// 60.0s order-7
	// 60.0s duplicate: false
}

// One id means one message. With another body it is a mistake of the caller, which
// a Duplicate would hide.
func ExampleBroker_Put_idReused() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "orders", postroom.QueueConfig{})
		broker.Put(ctx, "orders", postroom.Envelope{ID: "order-7", Body: []byte("two pizzas")})
		_, err := broker.Put(ctx, "orders", postroom.Envelope{ID: "order-7", Body: []byte("three pizzas")})
		fmt.Println(err)
		fmt.Println("hint:", postroom.Hint(err))
		fmt.Println("id reused:", errors.Is(err, postroom.ErrIDReused))
	})
	// Output:
	// put "order-7" into queue "orders": id reused for another body
	// hint: one id means one message: give another body another id
	// id reused: true
}

// A queue's TTL and a message's own ExpiresAt end its wait: it dies at that instant,
// whether or not anybody looks, and is never delivered after it.
func ExampleBroker_Put_ttl() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "offers", postroom.QueueConfig{TTL: 24 * time.Hour})
		broker.Put(ctx, "offers", postroom.Envelope{ID: "until noon", ExpiresAt: noon})
		broker.Put(ctx, "offers", postroom.Envelope{ID: "until tomorrow"})
		w.Sleep(48 * time.Hour)

		letters, _ := broker.DeadLetters(ctx, "offers", 0, 10)
		for _, l := range letters {
			fmt.Println(l.DiedAt.Sub(simulation.Epoch), l.ID, l.Reason)
		}
	})
	// Output:
	// 12h0m0s until noon expired
	// 24h0m0s until tomorrow expired
}

// A full queue refuses, and says what to do: nothing that was accepted is lost.
func ExampleQueueFullError() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{MaxMessages: 2})
		var err error
		for i := range 3 {
			_, err = broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
		}
		var full *postroom.QueueFullError
		if errors.As(err, &full) {
			fmt.Println(full.Current, "of", full.Max, full.Limit)
		}
		fmt.Println(postroom.Hint(err))
	})
	// Output:
	// 2 of 2 messages
	// slow the producer down, add consumers, or raise MaxMessages
}

// With DropOldest a full queue makes room for the newcomer. What it drops is not
// gone without a word: it is a dead letter with reason overflow.
func ExampleQueueConfig_dropOldest() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "readings", postroom.QueueConfig{MaxMessages: 2, Overflow: postroom.DropOldest})
		for i := range 3 {
			broker.Put(ctx, "readings", message(fmt.Sprint("reading-", i)))
		}
		letters, _ := broker.DeadLetters(ctx, "readings", 0, 10)
		fmt.Println("dropped:", letters[0].ID, letters[0].Reason)
		broker.Consume(ctx, "readings", printer(w), postroom.ConsumerConfig{})
		w.Idle()
	})
	// Output:
	// dropped: reading-0 overflow
	//  0.0s reading-1
	//  0.0s reading-2
}

// A batch is put in order with one command, and each message has its own result.
func ExampleBroker_PutBatch() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{MaxMessages: 2})
		results, err := broker.PutBatch(ctx, "jobs", []postroom.Envelope{
			message("a"), message("a"), message("b"), message("c"),
		})
		fmt.Println("batch:", err)
		for _, r := range results {
			fmt.Println(r.ID, "duplicate:", r.Duplicate, "error:", r.Err)
		}
	})
	// Output:
	// batch: <nil>
	// a duplicate: false error: <nil>
	// a duplicate: true error: <nil>
	// b duplicate: false error: <nil>
	// c duplicate: false error: put: queue "jobs" is full: 2 of 2 messages
}

// A Publisher puts without waiting for each answer. Its window bounds how many puts
// may be on their way: the producer waits when it is full. Flush waits for the last
// answer and returns what was refused.
func ExamplePublisher() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "lines", postroom.QueueConfig{MaxMessages: 1000})
		publisher, _ := broker.Publisher(ctx, "lines", postroom.PublisherConfig{Window: 100})
		for i := range 1001 {
			publisher.Put(ctx, message(fmt.Sprint("line-", i)))
		}
		fmt.Println(publisher.Flush(ctx))
		stats, _ := broker.QueueStats(ctx, "lines")
		fmt.Println(stats.Ready, "lines in the queue")
	})
	// Output:
	// put: queue "lines" is full: 1000 of 1000 messages
	// 1000 lines in the queue
}

// With UntilSettled the window counts messages until they are acked or dead, so that
// a fast producer goes at the pace of its workers and the queue stays short.
func ExamplePublisher_untilSettled() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "lines", postroom.QueueConfig{})
		broker.Consume(ctx, "lines", func(ctx context.Context, _ *postroom.Delivery) error {
			return broker.Sleep(ctx, time.Second)
		}, postroom.ConsumerConfig{})
		publisher, _ := broker.Publisher(ctx, "lines", postroom.PublisherConfig{Window: 10, UntilSettled: true})
		longest := 0
		for i := range 100 {
			publisher.Put(ctx, message(fmt.Sprint("line-", i)))
			stats, _ := broker.QueueStats(ctx, "lines")
			longest = max(longest, stats.Ready+stats.Leased)
		}
		fmt.Println("at most", longest, "lines in the queue")
	})
	// Output:
	// at most 10 lines in the queue
}
