package postroom_test

import (
	"context"
	"fmt"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// A publication reaches every subscriber whose pattern matches its topic. The
// publisher waits for none of them to run.
func ExampleBroker_Subscribe() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		sub, _ := broker.Subscribe(ctx, "weather.*", func(sub string, e *postroom.Event) {
			fmt.Printf("%s: %s %s\n", sub, e.Topic, e.Body)
		})
		result, _ := broker.Publish(ctx, "weather.oslo", postroom.Envelope{Body: []byte("rain")})
		w.Idle()
		fmt.Println(result.Subscribers, "subscriber")

		sub.Unsubscribe(ctx)
		result, _ = broker.Publish(ctx, "weather.oslo", postroom.Envelope{Body: []byte("sun")})
		fmt.Println(result.Subscribers, "subscribers")
	})
	// Output:
	// sub-1: weather.oslo rain
	// 1 subscriber
	// 0 subscribers
}

// A binding copies matching publications into a queue, where they wait for a worker,
// on leases, like any other message. In a pattern * is one word, and # any number.
func ExampleBroker_Bind() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "invoices", postroom.QueueConfig{})
		broker.DeclareQueue(ctx, "audit", postroom.QueueConfig{})
		broker.Bind(ctx, "invoices", "order.*.paid")
		broker.Bind(ctx, "audit", "order.#")

		for _, topic := range []string{"order.7.placed", "order.7.paid", "order"} {
			r, _ := broker.Publish(ctx, topic, postroom.Envelope{ID: topic})
			fmt.Println(topic, "accepted by", r.Accepted)
		}
		for _, queue := range broker.Queues() {
			s, _ := broker.QueueStats(ctx, queue)
			fmt.Println(queue, s.Ready)
		}
	})
	// Output:
	// order.7.placed accepted by 1
	// order.7.paid accepted by 2
	// order accepted by 1
	// audit 3
	// invoices 1
}
