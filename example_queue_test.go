package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// Declaring a queue again with the same settings is safe; with others it is refused,
// and the error names the settings that differ.
func ExampleBroker_DeclareQueue() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		fmt.Println(broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{}))
		fmt.Println(broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{AckTimeout: 30 * time.Second})) // the default
		fmt.Println(broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{AckTimeout: time.Minute, MaxAttempts: 7}))
	})
	// Output:
	// <nil>
	// <nil>
	// declare queue "jobs": other settings in AckTimeout, MaxAttempts
}

// Drain is the clean shutdown of a queue: it refuses new messages and returns when
// the last one is done. Closing the broker then loses nothing.
func ExampleBroker_Drain() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		broker.Consume(ctx, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
			return broker.Sleep(ctx, 10*time.Second)
		}, postroom.ConsumerConfig{})
		for i := range 3 {
			broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
		}
		w.Go(func() { // somebody who has not heard of it
			w.Sleep(time.Second)
			_, err := broker.Put(ctx, "jobs", message("late"))
			fmt.Println(seconds(w), err, errors.Is(err, postroom.ErrDraining))
		})
		err := broker.Drain(ctx, "jobs")
		fmt.Println(seconds(w), "drained:", err)
		fmt.Println("closed:", broker.Close(ctx))
	})
	// Output:
	//  1.0s put "late" into queue "jobs": queue draining true
	// 30.0s drained: <nil>
	// closed: <nil>
}

// Pause ends hand-overs and nothing else: puts are accepted, and what is leased can
// be settled.
func ExampleBroker_Pause() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		broker.Consume(ctx, "jobs", printer(w), postroom.ConsumerConfig{})

		broker.Pause(ctx, "jobs")
		broker.Put(ctx, "jobs", message("job-1"))
		w.Sleep(time.Minute)
		broker.Resume(ctx, "jobs")
		w.Idle()
	})
	// Output:
	// 60.0s job-1
}

// Purge removes what waits, and leaves what is being worked on alone.
func ExampleBroker_Purge() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		for i := range 5 {
			broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
		}
		d, _ := broker.Get(ctx, "jobs", postroom.GetConfig{})
		purged, _ := broker.Purge(ctx, "jobs")
		fmt.Println(purged, "purged; ack of the lease:", d.Ack(ctx))
	})
	// Output:
	// 4 purged; ack of the lease: <nil>
}

// Peek looks at what would be handed over next, without taking it.
func ExampleBroker_Peek() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		for i := range 5 {
			broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
		}
		next, _ := broker.Peek(ctx, "jobs", 2)
		for _, d := range next {
			fmt.Println(d.ID, "tag", d.Tag)
		}
		s, _ := broker.QueueStats(ctx, "jobs")
		fmt.Println(s.Ready, "ready")
	})
	// Output:
	// job-0 tag 0
	// job-1 tag 0
	// 5 ready
}

// A delete says what went with the queue; its conditions make it refuse instead.
func ExampleBroker_DeleteQueue() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		broker.Put(ctx, "jobs", message("job-1"))
		_, err := broker.DeleteQueue(ctx, "jobs", postroom.IfEmpty, postroom.IfUnused)
		fmt.Println(err)
		deleted, _ := broker.DeleteQueue(ctx, "jobs")
		fmt.Println("deleted with", deleted.Messages, "message and", deleted.DeadLetters, "dead letters")
	})
	// Output:
	// delete queue "jobs": in use: 1 messages, 0 consumers
	// deleted with 1 message and 0 dead letters
}
