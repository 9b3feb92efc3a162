package postroom_test

import (
	"context"
	"fmt"

	"github.com/postroom/postroom"
)

// Open a broker, declare a queue, put a message, work on it.
func Example() {
	ctx := context.Background()
	broker, err := postroom.Open()
	if err != nil {
		panic(err)
	}
	defer broker.Close(ctx) // running handlers may finish, everybody who waits is answered
	broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})

	done := make(chan struct{})
	broker.Consume(ctx, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
		defer close(done)
		fmt.Printf("attempt %d: %s\n", d.Attempt, d.Body)
		return nil // nil acks, an error tries again later
	}, postroom.ConsumerConfig{})

	broker.Put(ctx, "jobs", postroom.Envelope{Body: []byte("resize photo")})
	<-done
	// Output:
	// attempt 1: resize photo
}
