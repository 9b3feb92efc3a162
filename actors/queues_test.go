package actors

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/postroom/postroom/messages"
)

// B1: queues that were declared alike have one configuration in common, which goes
// with the last of them; any other declaration has its own.
func TestB1_QueuesDeclaredAlikeShareTheirConfiguration(t *testing.T) {
	d := &queueDesk{}
	plain := messages.QueueConfig{}.WithDefaults()
	lean := messages.QueueConfig{MaxMessages: 128}.WithDefaults()
	first, second, other := d.share(plain), d.share(plain), d.share(lean)
	assert.Same(t, first, second)
	assert.NotSame(t, first, other)
	assert.Equal(t, plain, *first)
	assert.Equal(t, lean, *other)

	d.unshare(first)
	assert.Same(t, first, d.share(plain), "one queue is left that has it")
	d.unshare(first)
	d.unshare(first)
	d.unshare(other)
	assert.Empty(t, d.configs)
}
