package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

// A listener is told of everything that happens inside, as typed notices. It is
// called by the broker's own actors, so it must be quick.
func ExampleWithListener() {
	err := simulation.Run(1, func(w *simulation.World) {
		ctx := context.Background()
		late := 0
		broker := w.MustOpen(postroom.WithListener(func(n postroom.Notice) {
			switch n := n.(type) {
			case messages.LeaseRanOut:
				fmt.Println(n)
			case messages.Stale:
				late++
			}
		}))
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{AckTimeout: time.Second})
		broker.Consume(ctx, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			if d.Attempt == 1 {
				w.Sleep(2 * time.Second)
			}
			return nil
		}, postroom.ConsumerConfig{NoHeartbeat: true})
		broker.Put(ctx, "jobs", message("job-1"))
		w.Sleep(time.Minute)
		fmt.Println("late acks:", late)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// lease expired tag 1 of jobs, held by ctag-1
	// late acks: 1
}

// SlogListener writes the notices to a log. Bodies, header values and error texts
// stay out of it.
func ExampleSlogListener() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // the log's own time is the wall clock's
			}
			return a
		},
	}))
	err := simulation.Run(1, func(w *simulation.World) {
		ctx := context.Background()
		broker := w.MustOpen(postroom.WithListener(postroom.SlogListener(logger, postroom.SlogOptions{})))
		broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{MaxAttempts: 1})
		broker.Consume(ctx, "jobs", func(context.Context, *postroom.Delivery) error {
			return errors.New("card 4711 was declined") // stays in the dead letter
		}, postroom.ConsumerConfig{})
		broker.Put(ctx, "jobs", message("job-1"))
		w.Idle()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// level=DEBUG msg=accepted queue=jobs id=job-1 delayed=0s
	// level=DEBUG msg=delivered queue=jobs id=job-1 consumer=ctag-1 tag=1 attempt=1 deadline=2026-01-01T00:00:30.000Z
	// level=DEBUG msg=settled queue=jobs tag=1 verb=nack
	// level=WARN msg=died queue=jobs id=job-1 reason=max_attempts attempts=1 error_bytes=22
	// level=INFO msg="consumer stopped" queue=jobs consumer=ctag-1 reason="broker closed"
}

// NewCollector reports every queue's figures to a Prometheus registry.
func ExampleNewCollector() {
	ctx := context.Background()
	broker, err := postroom.Open()
	if err != nil {
		panic(err)
	}
	defer broker.Close(ctx)
	registry := prometheus.NewRegistry()
	registry.MustRegister(postroom.NewCollector(broker, postroom.CollectorOptions{}))

	broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
	for i := range 3 {
		broker.Put(ctx, "jobs", message(fmt.Sprint("job-", i)))
	}
	broker.Get(ctx, "jobs", postroom.GetConfig{})

	fmt.Println(testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP postroom_inflight Messages leased to somebody.
		# TYPE postroom_inflight gauge
		postroom_inflight{queue="jobs"} 1
		# HELP postroom_puts_total Messages accepted.
		# TYPE postroom_puts_total counter
		postroom_puts_total{queue="jobs"} 3
	`), "postroom_inflight", "postroom_puts_total"))
	// Output:
	// <nil>
}
