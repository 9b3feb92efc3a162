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

// Put hands body, headers and extra over. A producer that goes on writing into them
// changes what consumers get, so the first handler is not run: what crashes instead
// names the message and says what was done to it. Each way into a queue is looked at.
func TestE2_AProducerThatChangesItsMessageAfterThePutIsNamed(t *testing.T) {
	changes := map[string]func(e postroom.Envelope){
		"body":    func(e postroom.Envelope) { e.Body[0] = 'X' },
		"headers": func(e postroom.Envelope) { e.Headers["k"] = "longer" },
		"extra":   func(e postroom.Envelope) { e.Extra[0] = 'X' },
		"nothing": func(postroom.Envelope) {},
	}
	ways := map[string]func(ctx context.Context, b *postroom.Broker, e postroom.Envelope) error{
		"put": func(ctx context.Context, b *postroom.Broker, e postroom.Envelope) error {
			_, err := b.Put(ctx, "q", e)
			return err
		},
		"batch": func(ctx context.Context, b *postroom.Broker, e postroom.Envelope) error {
			_, err := b.PutBatch(ctx, "q", []postroom.Envelope{e})
			return err
		},
		"publisher": func(ctx context.Context, b *postroom.Broker, e postroom.Envelope) error {
			p, err := b.Publisher(ctx, "q", postroom.PublisherConfig{})
			if err != nil {
				return err
			}
			if _, err := p.Put(ctx, e); err != nil {
				return err
			}
			return p.Flush(ctx)
		},
		"publication": func(ctx context.Context, b *postroom.Broker, e postroom.Envelope) error {
			if err := b.Bind(ctx, "q", "#"); err != nil {
				return err
			}
			_, err := b.Publish(ctx, "t", e)
			return err
		},
	}
	for what, change := range changes {
		for way, give := range ways {
			run(t, 1, func(ctx context.Context, w *simulation.World) {
				var crash string
				b := w.MustOpen(postroom.WithListener(func(n postroom.Notice) {
					if c, ok := n.(messages.HandlerCrashed); ok && crash == "" {
						crash = fmt.Sprint(c.Reason)
					}
				}))
				declare(t, b, "q", postroom.QueueConfig{MaxAttempts: 2, AckTimeout: time.Second, NoJitter: true})
				e := postroom.Envelope{ID: "m", Body: []byte("body"), Extra: []byte("extra"), Headers: map[string]string{"k": "v"}}
				must(t, give(ctx, b, e))
				change(e)
				handled := 0
				_, err := b.Consume(ctx, "q", func(context.Context, *postroom.Delivery) error {
					handled++
					return nil
				}, postroom.ConsumerConfig{})
				must(t, err)
				w.Sleep(time.Minute)
				assert.Equal(t, 1, handled, "%s after a %s: handled once, in the second attempt when the first was stopped", what, way)
				if what == "nothing" {
					assert.Empty(t, crash, "a producer that lets go, after a %s", way)
					return
				}
				assert.Contains(t, crash, `message "m" of queue "q" was changed after its put`, "%s after a %s", what, way)
			})
		}
	}
}
