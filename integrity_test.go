package postroom_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

// Deliveries share body, headers and extra. A handler that writes into one is found
// out at once, and named, instead of corrupting what the next one sees.
func TestE2_AHandlerThatChangesASharedMessageIsNamed(t *testing.T) {
	changes := map[string]func(d *postroom.Delivery){
		"body":    func(d *postroom.Delivery) { d.Body[0] = 'X' },
		"headers": func(d *postroom.Delivery) { d.Headers["k"] = "w" }, // of one length: another would skew MaxBytes too, and race builds quarantine the queue for it
		"extra":   func(d *postroom.Delivery) { d.Extra[0] = 'X' },
		"nothing": func(*postroom.Delivery) {},
	}
	for what, change := range changes {
		run(t, 1, func(ctx context.Context, w *simulation.World) {
			var crash string
			b := w.MustOpen(postroom.WithListener(func(n postroom.Notice) {
				if c, ok := n.(messages.HandlerCrashed); ok {
					crash = fmt.Sprint(c.Reason)
				}
			}))
			declare(t, b, "q", postroom.QueueConfig{MaxAttempts: 1, AckTimeout: time.Second})
			_, err := b.Consume(ctx, "q", func(_ context.Context, d *postroom.Delivery) error {
				change(d)
				return nil
			}, postroom.ConsumerConfig{})
			must(t, err)
			put(t, b, "q", postroom.Envelope{ID: "m", Body: []byte("body"), Extra: []byte("extra"), Headers: map[string]string{"k": "v"}})
			w.Sleep(2 * time.Second)
			if what == "nothing" {
				assert.Empty(t, crash, "a handler that only reads")
				return
			}
			assert.Contains(t, crash, "ctag-1", "who changed the %s", what)
			assert.Equal(t, 1, statsOf(t, b, "q").DeadLetters, "dead letters: the change is a crash like any other")
		})
	}
}
