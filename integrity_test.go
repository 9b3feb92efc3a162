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
		"body":                func(d *postroom.Delivery) { d.Body[0] = 'X' },
		"headers":             func(d *postroom.Delivery) { d.Headers["k"] = "w" },
		"length of a header":  func(d *postroom.Delivery) { d.Headers["k"] = "longer" },
		"number of headers":   func(d *postroom.Delivery) { d.Headers["another"] = "" },
		"extra":               func(d *postroom.Delivery) { d.Extra[0] = 'X' },
		"length of the extra": func(d *postroom.Delivery) { d.Extra = append(d.Extra, 'X') },
		"content type":        func(d *postroom.Delivery) { d.ContentType = "text/html" },
		"topic":               func(d *postroom.Delivery) { d.Topic = "b" },
		"priority":            func(d *postroom.Delivery) { d.Priority = 7 },
		"end":                 func(d *postroom.Delivery) { d.ExpiresAt = d.ExpiresAt.Add(time.Hour) },
		"nothing":             func(*postroom.Delivery) {},
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
			e := postroom.Envelope{ID: "m", Body: []byte("body"), Extra: []byte("extra"), Headers: map[string]string{"k": "v"}}
			size := e.Bytes()
			put(t, b, "q", e)
			w.Sleep(2 * time.Second)
			if what == "nothing" {
				assert.Empty(t, crash, "a handler that only reads")
				return
			}
			assert.Contains(t, crash, "ctag-1", "who changed the %s", what)
			s := statsOf(t, b, "q")
			assert.Equal(t, 1, s.DeadLetters, "dead letters: the change of the %s is a crash like any other", what)
			assert.Zero(t, s.Bytes, "bytes of an empty queue after a change of the %s", what)
			letters, err := b.DeadLetters(ctx, "q", 0, 1)
			must(t, err)
			assert.Equal(t, size+int64(len(letters[0].Error)), s.DeadLetterBytes, "bytes of the letter after a change of the %s", what)
		})
	}
}
