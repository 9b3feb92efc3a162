package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// Sam borrows a book and forgets to bring it back: when the lease is over the book
// goes to Kim, and Sam's late ack is refused. Twelve virtual seconds take no time.
func Example_lease() {
	err := simulation.Run(1, func(w *simulation.World) {
		ctx := context.Background()
		broker := w.MustOpen()
		broker.DeclareQueue(ctx, "library", postroom.QueueConfig{AckTimeout: 10 * time.Second})

		borrow := func(held *[]*postroom.Delivery) postroom.Handler {
			return func(_ context.Context, d *postroom.Delivery) error {
				*held = append(*held, d)
				return nil
			}
		}
		var sam, kim []*postroom.Delivery
		manual := postroom.ConsumerConfig{Manual: true}
		broker.Consume(ctx, "library", borrow(&sam), manual)
		broker.Consume(ctx, "library", borrow(&kim), manual)
		broker.Put(ctx, "library", postroom.Envelope{ID: "book-1", Body: []byte("Dragon Book")})
		w.Idle()

		fmt.Printf("sam holds: [%s] attempt %d\n", sam[0].Body, sam[0].Attempt)
		w.Sleep(12 * time.Second) // Sam forgets to hand the book back
		fmt.Printf("kim holds: [%s] attempt %d\n", kim[0].Body, kim[0].Attempt)
		fmt.Println("sam's late ack accepted?", sam[0].Ack(ctx) == nil)
		fmt.Println("kim's ack accepted?", kim[0].Ack(ctx) == nil)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// sam holds: [Dragon Book] attempt 1
	// kim holds: [Dragon Book] attempt 2
	// sam's late ack accepted? false
	// kim's ack accepted? true
}

// The sorting room: a queue, a subscriber to deaths, and a message that is nacked
// for good. The announcement is on its way before the nack returns.
func Example_broker() {
	err := simulation.Run(1, func(w *simulation.World) {
		ctx := context.Background()
		broker := w.MustOpen()
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		broker.Subscribe(ctx, "$sys.dead.*", func(sub string, e *postroom.Event) {
			fmt.Println(sub, e.Topic, reason(e))
		})
		var got []*postroom.Delivery
		consumer, _ := broker.Consume(ctx, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			got = append(got, d)
			return nil
		}, postroom.ConsumerConfig{Manual: true})
		fmt.Println("consumer:", consumer.Tag)
		broker.Put(ctx, "jobs", postroom.Envelope{ID: "job-1", Body: []byte("resize photo")})
		w.Idle()

		err := broker.Reject(ctx, "jobs", got[0].Tag, errors.New("bad file"))
		w.Idle() // let the subscriber run, which nobody waits for
		fmt.Println("nack accepted:", err == nil)
		letters, _ := broker.DeadLetters(ctx, "jobs", 0, 10)
		fmt.Println("dead letters:", len(letters))
		stats, _ := broker.Stats(ctx)
		fmt.Printf("stats: BrokerStats(queues=%d, subscriptions=%d, bindings=%d, binding_drops=%d)\n",
			stats.Queues, stats.Subscriptions, stats.Bindings, stats.BindingDrops)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// consumer: ctag-1
	// sub-1 $sys.dead.jobs rejected
	// nack accepted: true
	// dead letters: 1
	// stats: BrokerStats(queues=1, subscriptions=1, bindings=0, binding_drops=0)
}
