package postroom_test

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// A short lease finds a dead worker soon; the heartbeat, which is on by default,
// keeps it from being too short for slow work. Twenty jobs of 0.6 s on leases of
// 0.5 s: without a heartbeat each is handed out again while its first handler still
// works, and every ack comes late. Late acks in the stats are the sign of it.
func ExampleConsumerConfig_heartbeat() {
	run := func(noHeartbeat bool) {
		virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
			broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{AckTimeout: 500 * time.Millisecond})
			runs := 0
			broker.Consume(ctx, "jobs", func(context.Context, *postroom.Delivery) error {
				runs++
				w.Sleep(600 * time.Millisecond)
				return nil
			}, postroom.ConsumerConfig{Concurrency: 10, NoHeartbeat: noHeartbeat})
			for i := range 20 {
				broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
			}
			w.Sleep(10 * time.Second)
			s, _ := broker.QueueStats(ctx, "jobs")
			fmt.Printf("acked once: %d, late acks: %d, handler ran: %d times\n", s.Acks, s.StaleBy[postroom.VerbAck], runs)
		})
	}
	run(false)
	run(true)
	// Output:
	// acked once: 20, late acks: 0, handler ran: 20 times
	// acked once: 0, late acks: 60, handler ran: 60 times
}

// HandlerTimeout bounds one attempt: the handler's context ends, and when it returns
// an error the message is tried again.
func ExampleConsumerConfig_handlerTimeout() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "pages", postroom.QueueConfig{BackoffBase: time.Second, NoJitter: true})
		broker.Consume(ctx, "pages", func(ctx context.Context, d *postroom.Delivery) error {
			if d.Attempt == 1 {
				err := broker.Sleep(ctx, time.Hour) // a server that never answers
				fmt.Println(seconds(w), "gave up:", err)
				return err
			}
			fmt.Println(seconds(w), "fetched")
			return nil
		}, postroom.ConsumerConfig{HandlerTimeout: 2 * time.Second})
		broker.Put(ctx, "pages", message("page-1"))
		w.Sleep(time.Minute)
	})
	// Output:
	//  2.0s gave up: handler timeout
	//  3.0s fetched
}

// Cancel ends hand-overs before it returns. What no handler had begun is back in the
// queue by then, untried; what runs may finish, and Done tells when it has.
func ExampleBroker_Cancel() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		consumer, _ := broker.Consume(ctx, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			w.Sleep(10 * time.Second)
			fmt.Println(seconds(w), d.ID, "finished")
			return nil
		}, postroom.ConsumerConfig{Prefetch: 3})
		for i := range 3 {
			broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
		}
		w.Sleep(time.Second)

		fmt.Println(consumer.Tag, "cancelled:", broker.Cancel(ctx, consumer.Tag))
		s, _ := broker.QueueStats(ctx, "jobs")
		fmt.Println(s.Leased, "leased,", s.Ready, "ready,", s.Interruptions, "interrupted")
		w.Sleep(time.Minute)
		<-consumer.Done()
		fmt.Println("ended:", consumer.Err())
	})
	// Output:
	// ctag-1 cancelled: <nil>
	// 1 leased, 2 ready, 2 interrupted
	// 10.0s job-0 finished
	// ended: <nil>
}

// Prefetch is how many leases a consumer may hold; 0 halts it, as when what it works
// for is down.
func ExampleBroker_SetPrefetch() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "mail", postroom.QueueConfig{})
		consumer, _ := broker.Consume(ctx, "mail", printer(w), postroom.ConsumerConfig{})

		broker.SetPrefetch(ctx, consumer.Tag, 0)
		broker.Put(ctx, "mail", message("m-1"))
		w.Sleep(time.Minute)
		broker.SetPrefetch(ctx, consumer.Tag, 1)
		w.Idle()
	})
	// Output:
	// 60.0s m-1
}

// With SingleActive one consumer at a time receives, so that messages are worked on
// one after the other; the next takes over when it ends.
func ExampleQueueConfig_singleActive() {
	virtually(func(ctx context.Context, w *simulation.World, broker *postroom.Broker) {
		broker.DeclareQueue(ctx, "ledger", postroom.QueueConfig{SingleActive: true})
		consume := func(name string) *postroom.Consumer {
			c, _ := broker.Consume(ctx, "ledger", func(_ context.Context, d *postroom.Delivery) error {
				fmt.Println(name, "books", d.ID)
				return nil
			}, postroom.ConsumerConfig{Name: name})
			return c
		}
		first, _ := consume("first"), consume("second")

		broker.Put(ctx, "ledger", message("entry-1"))
		broker.Put(ctx, "ledger", message("entry-2"))
		w.Idle()
		first.Cancel(ctx)
		broker.Put(ctx, "ledger", message("entry-3"))
		w.Idle()
	})
	// Output:
	// first books entry-1
	// first books entry-2
	// second books entry-3
}
