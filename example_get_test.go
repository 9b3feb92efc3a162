package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// Get takes one message without a consumer, for programs that decide themselves
// when they want more. It waits its turn; NoWait answers at once.
func ExampleBroker_Get() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		_, err := broker.Get(ctx, "jobs", postroom.GetConfig{NoWait: true})
		fmt.Println(err, errors.Is(err, postroom.ErrEmpty))

		broker.Put(ctx, "jobs", postroom.Envelope{ID: "job-1", Delay: time.Minute})
		d, _ := broker.Get(ctx, "jobs", postroom.GetConfig{}) // wakes up when it is due
		fmt.Println(seconds(w), d.ID, "tag", d.Tag)
		fmt.Println("ack:", d.Ack(ctx))
	})
	// Output:
	// queue empty true
	// 60.0s job-1 tag 1
	// ack: <nil>
}

// A wait with an end: the context is made on the broker's clock, and a Get that
// ends without a message leaves no lease behind.
func ExampleBroker_WithTimeout() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		brief, cancel := broker.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := broker.Get(brief, "jobs", postroom.GetConfig{})
		fmt.Println(seconds(w), err)

		var outcome *postroom.OutcomeError
		fmt.Println(errors.As(err, &outcome), "may have happened:", outcome.Sent)
		fmt.Println("hint:", postroom.Hint(err))
	})
	// Output:
	//  5.0s get: not sent: context deadline exceeded
	// true may have happened: false
	// hint: nothing happened; repeat it when there is time
}

// Many leases are settled with one command for each queue. One that is stale fails
// alone, and its error says how its lease ended.
func ExampleBroker_SettleBatch() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		var settlements []postroom.Settlement
		for _, id := range []string{"a", "b", "c"} {
			broker.Put(ctx, "jobs", message(id))
			d, _ := broker.Get(ctx, "jobs", postroom.GetConfig{})
			settlements = append(settlements, postroom.Settlement{Receipt: d.Receipt(), Verb: postroom.VerbAck})
			if id == "b" {
				d.Ack(ctx) // so that the batch comes too late for it
			}
		}
		results, err := broker.SettleBatch(ctx, settlements)
		fmt.Println("batch:", err)
		for i, r := range results {
			fmt.Println("tag", settlements[i].Receipt.Tag, r.Err)
		}
	})
	// Output:
	// batch: <nil>
	// tag 1 <nil>
	// tag 2 ack tag 2 of queue "jobs": stale, over: acked
	// tag 3 <nil>
}

// Work that takes longer than the lease touches it on the way. A consumer's
// heartbeat does the same by itself; after a Get, or with NoHeartbeat, it is the
// holder's own.
func ExampleDelivery_touch() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "films", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		broker.Put(ctx, "films", message("film-1"))
		d, _ := broker.Get(ctx, "films", postroom.GetConfig{})
		for range 4 {
			w.Sleep(8 * time.Second) // a part of the work
			deadline, err := d.Touch(ctx)
			fmt.Println(seconds(w), "lease ends at", deadline.Sub(simulation.Epoch), err)
		}
		fmt.Println("ack:", d.Ack(ctx), "attempt:", d.Attempt)
	})
	// Output:
	//  8.0s lease ends at 18s <nil>
	// 16.0s lease ends at 26s <nil>
	// 24.0s lease ends at 34s <nil>
	// 32.0s lease ends at 42s <nil>
	// ack: <nil> attempt: 1
}

// A session holds leases as a connection would: with NoTimeout they last as long as
// it does, and its end gives them back at once.
func ExampleBroker_Session() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{BackoffBase: time.Second, NoJitter: true})
		broker.Put(ctx, "jobs", message("job-1"))

		connection, _ := broker.Session("connection-1")
		d, _ := connection.Get(ctx, "jobs", postroom.GetConfig{NoTimeout: true})
		w.Sleep(24 * time.Hour)
		stats, _ := broker.QueueStats(ctx, "jobs")
		fmt.Println("after a day:", stats.Leased, "leased, deadline:", d.Deadline.IsZero())

		connection.Close(ctx)
		again, _ := broker.Get(ctx, "jobs", postroom.GetConfig{})
		fmt.Println("after its end:", again.ID, "attempt", again.Attempt)
	})
	// Output:
	// after a day: 1 leased, deadline: true
	// after its end: job-1 attempt 2
}
