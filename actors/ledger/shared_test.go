package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// A handler that writes into headers or extra, which deliveries share, must not change
// what the message counts against MaxBytes: a queue that is empty would seem to hold
// bytes, or less than none, for ever, and its self-check would put it in quarantine.
func TestA1_AMessageCountsWhatItWeighedAtItsPut(t *testing.T) {
	changes := map[string]func(d *messages.Delivery){
		"a longer header":   func(d *messages.Delivery) { d.Headers["k"] = "a longer value" },
		"another header":    func(d *messages.Delivery) { d.Headers["another"] = "header" },
		"no headers":        func(d *messages.Delivery) { clear(d.Headers) },
		"a longer extra":    func(d *messages.Delivery) { d.Extra = append(d.Extra, "and more"...) },
		"no extra":          func(d *messages.Delivery) { d.Extra = nil },
		"another priority":  func(d *messages.Delivery) { d.Priority = 9 },
		"nothing (control)": func(*messages.Delivery) {},
	}
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			l := plainLedger(messages.QueueConfig{MaxAttempts: 3, MaxBytes: 1000})
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check := func(when string, bytes, letterBytes int64) {
				t.Helper()
				must(l.CheckInvariants())
				if s := l.Stats(epoch); s.Bytes != bytes || s.DeadLetterBytes != letterBytes {
					t.Fatalf("%s: %d bytes and %d of dead letters, want %d and %d", when, s.Bytes, s.DeadLetterBytes, bytes, letterBytes)
				}
			}
			tag := uint64(0)
			lendAndChange := func() {
				t.Helper()
				l.HandOver(epoch)
				for i := range l.Effects() {
					if f := &l.Effects()[i]; f.Kind == ledger.HandedOver {
						var d messages.Delivery
						l.Fill(f, &d)
						change(&d)
						tag = d.Tag
					}
				}
				l.ClearEffects()
			}
			must(l.Attach(epoch, &ledger.Consumer{Tag: "sam", Prefetch: 1}))
			e := messages.Envelope{ID: "m", Body: []byte("body"), Headers: map[string]string{"k": "v"}, Extra: []byte("extra"), Priority: 1}
			size := e.Bytes()
			put := func() {
				t.Helper()
				again := e.Clone()
				p := ledger.NewPut(&again, true)
				_, err := l.Put(epoch, &p)
				must(err)
			}

			put()
			lendAndChange()
			check("leased", size, 0)
			must(l.NackIn(epoch, tag, 0, ""))
			check("given back", size, 0)
			lendAndChange()
			must(l.Ack(epoch, tag))
			check("acked", 0, 0)

			put()
			lendAndChange()
			must(l.NackIn(epoch, tag, time.Second, ""))
			check("delayed", size, 0)
			l.Purge(epoch)
			check("purged", 0, 0)

			put()
			lendAndChange()
			must(l.Reject(epoch, tag, "no"))
			check("dead", 0, size+int64(len("no")))
			change(&messages.Delivery{Headers: l.DeadLetters(0, 1)[0].Headers, Details: l.DeadLetters(0, 1)[0].Details})
			check("dead, and its letter was changed", 0, size+int64(len("no")))
			if n := l.Discard(epoch, []string{"m"}); n != 1 {
				t.Fatalf("discarded %d letters, want 1", n)
			}
			check("discarded", 0, 0)
		})
	}
}

// B6: what a holder or a reader writes into the details of a message that has none, which
// nobody may, reaches no message of another queue or broker.
func TestB6_WhatAHolderWritesStaysInItsQueue(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	config := messages.QueueConfig{}
	lend := func(queue string) (*ledger.Ledger, messages.Delivery) {
		l := ledger.New(&messages.Source{Queue: queue, Incarnation: 1}, new(config.WithDefaults()), begin, ledger.Options{})
		_, err := l.Put(begin, &ledger.Put{ID: "a", GivenID: true})
		require.NoError(t, err)
		require.NoError(t, l.Attach(begin, &ledger.Consumer{Tag: "c", Prefetch: 1}))
		l.HandOver(begin)
		var d messages.Delivery
		l.Fill(&l.Effects()[0], &d)
		return l, d
	}
	l, d := lend("mine")
	d.ContentType, d.Priority = "changed", 9
	require.NoError(t, l.Reject(begin, d.Tag, ""))
	letter := l.DeadLetters(0, 1)[0]
	assert.Empty(t, letter.ContentType)
	letter.Topic = "changed"
	assert.Empty(t, l.DeadLetters(0, 1)[0].Topic)

	_, other := lend("another broker's")
	assert.Equal(t, messages.Details{}, *other.Details)
	assert.Empty(t, new(messages.Envelope).Split().ContentType)
}
