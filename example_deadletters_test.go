package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// Dead letters are kept with their error and attempts, to be looked at. When the
// cause is mended, Redrive moves them back, at a bounded rate, with all their
// attempts before them again.
func ExampleBroker_Redrive() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "orders", postroom.QueueConfig{MaxAttempts: 2, BackoffBase: time.Second, NoJitter: true})
		mended := false
		broker.Consume(ctx, "orders", func(_ context.Context, d *postroom.Delivery) error {
			if !mended {
				return errors.New("no such table")
			}
			fmt.Println(seconds(w), d.ID, "done, attempt", d.Attempt, "delivery", d.Deliveries)
			return nil
		}, postroom.ConsumerConfig{})
		for i := range 3 {
			broker.Put(ctx, "orders", message(fmt.Sprint("order-", i)))
		}
		w.Sleep(10 * time.Second)

		letters, _ := broker.DeadLetters(ctx, "orders", 0, 10)
		for _, l := range letters {
			fmt.Println(l.Number, l.ID, l.Reason, l.Attempts, l.Error)
		}
		mended = true
		redriven, err := broker.Redrive(ctx, "orders", postroom.RedriveConfig{Rate: 1}) // one a second
		w.Idle()
		fmt.Println("moved", redriven.Moved, "stopped by", redriven.Stopped, "error", err)
	})
	// Output:
	// 1 order-0 max_attempts 2 no such table
	// 2 order-1 max_attempts 2 no such table
	// 3 order-2 max_attempts 2 no such table
	// 10.0s order-0 done, attempt 1 delivery 3
	// 11.0s order-1 done, attempt 1 delivery 3
	// 12.0s order-2 done, attempt 1 delivery 3
	// moved 3 stopped by <nil> error <nil>
}

// A queue raises an alarm when it holds too many dead letters, and another when its
// oldest message is too old: once for each crossing, on a system topic.
func ExampleQueueConfig_alarm() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.Subscribe(ctx, "$sys.alarm.*", func(_ string, e *postroom.Event) {
			fmt.Printf("%s %s %s\n", seconds(w), e.Topic, e.Body)
		})
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{DeadLetterAlarm: 3, MaxAge: time.Minute})

		consumer, _ := broker.Consume(ctx, "jobs", func(context.Context, *postroom.Delivery) error {
			return postroom.Permanent(errors.New("bad file"))
		}, postroom.ConsumerConfig{})
		for i := range 4 {
			broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
		}
		w.Idle()
		consumer.Cancel(ctx)
		broker.Put(ctx, "jobs", message("nobody wants me"))
		w.Sleep(time.Hour)
	})
	// Output:
	//  0.0s $sys.alarm.jobs {"queue":"jobs","alarm":"dead_letters","dead_letters":3,"oldest_age_seconds":0}
	// 60.0s $sys.alarm.jobs {"queue":"jobs","alarm":"oldest_age","dead_letters":4,"oldest_age_seconds":60}
}

// With a DeadLetterTopic a copy of each dead letter is published as well, with its
// deaths as headers, so that another queue can collect them.
func ExampleQueueConfig_deadLetterTopic() {
	virtually(func(ctx context.Context, _ *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{DeadLetterTopic: "dead.jobs"})
		broker.DeclareQueue(ctx, "morgue", postroom.QueueConfig{})
		broker.Bind(ctx, "morgue", "dead.*")

		broker.Put(ctx, "jobs", message("job-1"))
		d, _ := broker.Get(ctx, "jobs", postroom.GetConfig{})
		d.Reject(ctx, errors.New("bad file"))

		dead, _ := broker.Get(ctx, "morgue", postroom.GetConfig{})
		fmt.Println(dead.ID, dead.Headers["postroom-death-queue"], dead.Headers["postroom-death-reason"], dead.Headers["postroom-death-error"])
	})
	// Output:
	// job-1 jobs rejected bad file
}
