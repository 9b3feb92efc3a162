package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// Wide is the world of what [Standard] leaves out: handlers that settle by themselves
// and then work on, acks that come when all is over, a queue that catches copies of dead letters and every announcement
// of the broker, and dies of them.
func Wide() Spec {
	return Spec{Name: "wide", Build: func(w *World) {
		jobs := w.Queue("jobs", postroom.QueueConfig{
			AckTimeout:      Choose(w, "lease", 2*time.Second, 500*time.Millisecond),
			MaxAttempts:     Choose(w, "attempts", 3, 1, 2),
			MaxLease:        Choose(w, "max lease", 0, 3*time.Second),
			BackoffBase:     Choose(w, "backoff", time.Second, 100*time.Millisecond),
			TTL:             Choose(w, "ttl", 0, 0, 5*time.Second),
			DeadLetterTopic: Choose(w, "dead letter topic", "", "dead.jobs"),
			DeadLetterAlarm: Choose(w, "letter alarm", 0, 1),
			MaxMessages:     Choose(w, "messages", 0, 0, 3),
			Overflow:        Choose(w, "overflow", postroom.Refuse, postroom.DropOldest),
			SingleActive:    Choose(w, "single active", false, false, true),
		})
		news := w.Queue("news", postroom.QueueConfig{
			AckTimeout: time.Second, MaxAttempts: Choose(w, "news attempts", 1, 2), BackoffBase: time.Second,
		})
		desk := w.External("desk", nil)
		manual := Choose(w, "manual", false, true)
		w.Workers("w", 2, jobs, Inline(byHand(w, desk)), postroom.ConsumerConfig{
			Manual: manual, Concurrency: Choose(w, "concurrency", 1, 2), NoHeartbeat: Choose(w, "heartbeat", false, true),
		})
		w.Workers("n", 2, news, Inline(weary), postroom.ConsumerConfig{})
		w.Produce("api", jobs, Over(8*time.Second, w.Between("items", 1, 12)), func(d Draw, _ int) postroom.Envelope {
			return postroom.Envelope{Priority: d.N("priority", 3)}
		})
		w.Go(func() {
			for w.Broker() == nil || w.lab.byQueue["news"] == nil {
				w.Sleep(time.Millisecond)
			}
			for _, pattern := range []string{"$sys.#", "dead.#"} {
				if err := insist(func() error { return w.Broker().Bind(context.Background(), "news", pattern) }); err != nil {
					w.lab.fail(err)
				}
			}
		})
		w.Faults(AnyFault())
		w.Calm(time.Hour, Drained(jobs, news))
	}}
}

// byHand settles by one of the verbs and does not stop there: its lease is over, and
// heartbeats may still be on their way.
func byHand(w *World, desk *External) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		of := func(purpose string, n uint64) uint64 { return Rand(ctx, purpose) % n }
		wait, longest := ctx, uint64(20)
		if of("deaf", 3) == 0 { // it hears of nothing, and for long
			wait, longest = context.WithoutCancel(ctx), 60
		}
		_ = Sleep(wait, time.Duration(of("before", longest))*100*time.Millisecond)
		if of("later", 3) == 0 { // somebody it has told of the delivery acks it too, much later
			Go(context.WithoutCancel(ctx), func(ctx context.Context) {
				_ = Sleep(ctx, time.Duration(1+of("much later", 80))*100*time.Millisecond)
				_ = d.Ack(ctx)
			})
		}
		if err := desk.Do(ctx, d.ID, ""); err != nil {
			return err
		}
		verb := of("verb", 10)
		if w.lab.calm {
			verb = 9
		}
		why := errors.New("by hand")
		switch verb { // an error is a late settle, and an event of its own
		case 0:
			_ = d.Nack(ctx, why)
		case 1, 2:
			_ = d.NackIn(ctx, 5*time.Second, why)
		case 3:
			_ = d.Release(ctx)
		case 4:
			_, _ = d.TouchFor(ctx, time.Duration(1+of("extension", 4))*time.Second)
			_ = Sleep(wait, 2*time.Second)
			_ = d.Ack(ctx)
		case 5:
			_ = d.Reject(ctx, why)
		case 6:
			return &messages.RetryInError{Delay: 3 * time.Second, Cause: why}
		case 7: // settles nothing; with Manual its lease runs out
		default:
			_ = d.Ack(ctx)
		}
		if of("on", 2) == 0 {
			_ = Sleep(context.WithoutCancel(ctx), time.Duration(of("after", 30))*100*time.Millisecond)
		}
		return nil
	}
}

// weary cannot do half of what it gets.
func weary(ctx context.Context, d *postroom.Delivery) error {
	if err := Sleep(ctx, 50*time.Millisecond); err != nil {
		return err
	}
	if Rand(ctx, "weary")%2 == 0 {
		return errors.New("weary")
	}
	return nil
}
