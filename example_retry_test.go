package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

// A handler that returns an error gets the message again, after a delay that
// doubles. Delays are random below that bound unless NoJitter is set, so that
// consumers felled by one cause do not come back in step.
func ExampleBroker_Consume_retry() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "mail", postroom.QueueConfig{
			MaxAttempts: 5, BackoffBase: time.Second, NoJitter: true,
		})
		broker.Consume(ctx, "mail", func(_ context.Context, d *postroom.Delivery) error {
			if d.Attempt < 4 {
				fmt.Println(seconds(w), "attempt", d.Attempt, "failed")
				return errors.New("server is down")
			}
			fmt.Println(seconds(w), "attempt", d.Attempt, "sent")
			return nil
		}, postroom.ConsumerConfig{})
		broker.Put(ctx, "mail", message("m-1"))
		w.Sleep(time.Minute)
	})
	// Output:
	//  0.0s attempt 1 failed
	//  1.0s attempt 2 failed
	//  3.0s attempt 3 failed
	//  7.0s attempt 4 sent
}

// A handler that knows when the next attempt makes sense says so.
func ExampleBroker_Consume_retryIn() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "api", postroom.QueueConfig{})
		broker.Consume(ctx, "api", func(_ context.Context, d *postroom.Delivery) error {
			fmt.Println(seconds(w), "attempt", d.Attempt)
			if d.Attempt == 1 {
				return &messages.RetryInError{Delay: 90 * time.Second, Cause: errors.New("429 Too Many Requests")}
			}
			return nil
		}, postroom.ConsumerConfig{})
		broker.Put(ctx, "api", message("call-1"))
		w.Sleep(time.Hour)
	})
	// Output:
	//  0.0s attempt 1
	// 90.0s attempt 2
}

// An error that no retry will cure is marked Permanent: the message dies at once
// and is kept as a dead letter, with the error.
func ExamplePermanent() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "photos", postroom.QueueConfig{})
		broker.Consume(ctx, "photos", func(context.Context, *postroom.Delivery) error {
			return postroom.Permanent(errors.New("not a picture"))
		}, postroom.ConsumerConfig{})
		broker.Put(ctx, "photos", message("photo-1"))
		w.Idle()

		letters, _ := broker.DeadLetters(ctx, "photos", 0, 10)
		for _, l := range letters {
			fmt.Printf("%s: %s after %d attempt: %s\n", l.ID, l.Reason, l.Attempts, l.Error)
		}
	})
	// Output:
	// photo-1: rejected after 1 attempt: not a picture
}

// A handler that panics is a crash: the lease in its hands runs out, and another
// consumer gets the message. The crashed one is restarted. What a message costs its
// consumers is bounded, since each crash spends one of its attempts.
func ExampleBroker_Consume_crash() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		broker.Consume(ctx, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			fmt.Println(seconds(w), "sam crashes on attempt", d.Attempt)
			panic("out of memory")
		}, postroom.ConsumerConfig{Name: "sam"})
		broker.Consume(ctx, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			fmt.Println(seconds(w), "kim works on attempt", d.Attempt)
			return nil
		}, postroom.ConsumerConfig{Name: "kim"})
		broker.Put(ctx, "jobs", message("job-1"))
		w.Sleep(time.Minute)
	})
	// Output:
	//  0.0s sam crashes on attempt 1
	// 10.0s kim works on attempt 2
}

// When everything fails, retries multiply the load on what is broken. A budget
// bounds them to a share of the successes, plus a floor; failed messages wait, and
// do not die of it.
func ExampleRetryBudget() {
	attempts := func(budget postroom.RetryBudget) (n int) {
		virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
			broker.DeclareQueue(ctx, "api", postroom.QueueConfig{
				MaxAttempts: postroom.Unlimited, BackoffBase: time.Second, BackoffCap: time.Second, RetryBudget: budget,
			})
			broker.Consume(ctx, "api", func(context.Context, *postroom.Delivery) error {
				n++
				return errors.New("service unavailable")
			}, postroom.ConsumerConfig{})
			for i := range 100 {
				broker.Put(ctx, "api", message(fmt.Sprint("call-", i)))
			}
			w.Sleep(55 * time.Second) // six windows
		})
		return n
	}
	without := attempts(postroom.RetryBudget{})
	with := attempts(postroom.RetryBudget{Ratio: 0.1, Floor: 10, Window: 10 * time.Second})
	fmt.Println("100 calls without a budget: more than ten attempts each?", without > 1000)
	fmt.Println("100 calls with a budget:", with, "attempts")
	// Output:
	// 100 calls without a budget: more than ten attempts each? true
	// 100 calls with a budget: 160 attempts
}
