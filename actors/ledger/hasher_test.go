package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/postroom/postroom/messages"
)

// Those who put make the hashes of their ids while the ledger works, and also while it
// closes, which lets go of nearly all that it has (the race detector looks on).
func TestQ13_AHashDoesNotLookAtTheLedger(t *testing.T) {
	start := time.Unix(0, 0)
	config := messages.QueueConfig{}.WithDefaults()
	l := New(&messages.Source{Queue: "jobs", Incarnation: 1}, &config, start, Options{})
	hash, want := l.Hasher(), l.hash("a")
	over := make(chan uint32)
	go func() { over <- hash("a") }()
	l.Close(start)
	assert.Equal(t, want, <-over)
}
