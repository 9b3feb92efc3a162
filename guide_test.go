package postroom_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// The tests that docs/embedding.md shows as patterns for an embedder's own.

// resize is an embedder's handler: it fails now and then.
func resize(ctx context.Context, broker *postroom.Broker, d *postroom.Delivery) error {
	if err := broker.Sleep(ctx, 3*time.Second); err != nil {
		return err
	}
	if d.Attempt == 1 {
		return errors.New("disk is full")
	}
	return nil
}

func TestGuideEveryPhotoIsResizedWhateverTheSeed(t *testing.T) {
	for seed := range uint64(50) {
		err := simulation.Run(seed, func(w *simulation.World) {
			ctx := context.Background()
			broker := w.MustOpen()
			broker.DeclareQueue(ctx, "photos", postroom.QueueConfig{})
			broker.Consume(ctx, "photos", func(ctx context.Context, d *postroom.Delivery) error {
				return resize(ctx, broker, d)
			}, postroom.ConsumerConfig{Concurrency: 2})
			for range 10 {
				broker.Put(ctx, "photos", postroom.Envelope{Body: []byte("photo")})
			}
			w.Sleep(time.Hour) // virtual: it takes no time

			s, err := broker.QueueStats(ctx, "photos")
			if err != nil || s.Acks != 10 || s.Nacks != 10 {
				t.Errorf("seed %d: %d acks, %d nacks, %v; want 10 and 10", seed, s.Acks, s.Nacks, err)
			}
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestGuideALeaseRunsOutInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		broker, err := postroom.Open() // inside the bubble, and closed inside it
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close(context.Background())
		broker.DeclareQueue(ctx, "photos", postroom.QueueConfig{AckTimeout: time.Minute})
		broker.Put(ctx, "photos", postroom.Envelope{Body: []byte("photo")})
		first, err := broker.Get(ctx, "photos", postroom.GetConfig{})
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute) // the bubble's clock, and so the broker's
		synctest.Wait()
		if err := first.Ack(ctx); !errors.Is(err, postroom.ErrStale) {
			t.Errorf("ack at the deadline: %v, want a stale lease", err)
		}
	})
}
