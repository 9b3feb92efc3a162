package postroom_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// quietSystem is an embedder's own actor system.
func quietSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
}

// Mount puts a broker into a program's own actor system, below a name. Closing it
// leaves the system alone.
func ExampleMount() {
	ctx := context.Background()
	system := quietSystem()
	defer system.Shutdown()
	mail, err := postroom.Mount(system, postroom.WithName("mail"))
	if err != nil {
		panic(err)
	}
	jobs, _ := postroom.Mount(system, postroom.WithName("jobs")) // a second broker, with another name
	fmt.Println("one system:", mail.ActorSystem() == system && jobs.ActorSystem() == system)
	_, err = postroom.Mount(system, postroom.WithName("mail"))
	fmt.Println("the same name again:", err != nil)
	fmt.Println(mail.Close(ctx), jobs.Close(ctx))
	// Output:
	// one system: true
	// the same name again: true
	// <nil> <nil>
}

// clerk is an embedder's own actor that consumes a queue by message, without the
// door: it asks the broker's actor for work and settles with the queue itself.
type clerk struct {
	broker, queue *actor.PID
	done          chan string
}

// Receive implements actor.Actor.
func (c *clerk) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		ctx.Request(c.broker, &messages.Consume{Queue: "letters", Consumer: messages.ConsumerConfig{Prefetch: 10}})
	case *messages.Answer: // to each command sent with Request
		if tag, ok := m.Value.(string); ok {
			c.done <- "consuming as " + tag
		}
	case *messages.Deliver:
		c.done <- fmt.Sprintf("got %s on tag %d", m.Delivery.Body, m.Delivery.Tag)
		ctx.Request(c.queue, &messages.Ack{Receipt: m.Delivery.Receipt()})
	case *messages.ConsumerEnded: // told once, whatever the reason
		c.done <- fmt.Sprintf("%s ended: %v", m.Tag, m.Reason)
	}
}

// A program's own actors speak to the broker by message. Commands for the broker go
// to its PID, and those for a queue to the queue's.
func ExampleBroker_PID() {
	ctx := context.Background()
	system := quietSystem()
	defer system.Shutdown()
	broker, err := postroom.Mount(system)
	if err != nil {
		panic(err)
	}
	broker.DeclareQueue(ctx, "letters", postroom.QueueConfig{})
	queue, _ := broker.QueuePID("letters")
	done := make(chan string)
	system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &clerk{broker: broker.PID(), queue: queue, done: done}
	}))
	fmt.Println(<-done)

	broker.Put(ctx, "letters", postroom.Envelope{Body: []byte("dear Kim")})
	fmt.Println(<-done)
	fmt.Println("drained:", broker.Drain(ctx, "letters")) // returns when the clerk's ack has come

	go broker.Close(ctx)
	fmt.Println(<-done)
	// Output:
	// consuming as ctag-1
	// got dear Kim on tag 1
	// drained: <nil>
	// ctag-1 ended: broker closed
}
