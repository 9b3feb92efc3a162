package postroom_test

import (
	"context"
	"fmt"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// A Typed queue carries values instead of bytes, as JSON unless it is given another
// codec. A body that does not decode is rejected: no retry would cure it.
func ExampleTyped() {
	type order struct {
		Item  string
		Count int
	}
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "orders", postroom.QueueConfig{})
		orders, _ := postroom.NewTyped[order](broker, "orders", nil)
		orders.Consume(ctx, func(_ context.Context, o order, d *postroom.Delivery) error {
			fmt.Println(d.ID, o.Count, o.Item)
			return nil
		}, postroom.ConsumerConfig{})

		orders.Put(ctx, "order-1", order{"pizza", 2})
		broker.Put(ctx, "orders", postroom.Envelope{ID: "order-2", Body: []byte("three pizzas, please")})
		w.Idle()
		letters, _ := broker.DeadLetters(ctx, "orders", 0, 10)
		fmt.Println(letters[0].ID, letters[0].Reason)
	})
	// Output:
	// order-1 2 pizza
	// order-2 rejected
}
