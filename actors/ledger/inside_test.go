package ledger

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A million messages wait in a full queue: their entry is two cache lines, and what only
// leased ones have is another.
func TestAMessageIsTwoCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 {
		t.Skip("smaller where pointers are")
	}
	assert.EqualValues(t, 128, unsafe.Sizeof(entry{}))
	assert.LessOrEqual(t, int(unsafe.Sizeof(lease{})), 64)
}

// A queue that fails its own check is quarantined and can still be closed, whatever is
// broken: also when that is who is told of what.
func TestS3_ALedgerWithoutItsOwnersCanBeClosed(t *testing.T) {
	start := time.Unix(0, 0)
	config := messages.QueueConfig{}.WithDefaults()
	l := New(&messages.Source{Queue: "jobs", Incarnation: 1}, &config, start, Options{})
	owner, gone := &Owner{}, &Owner{}
	for i, o := range []*Owner{owner, gone} {
		_, err := l.Put(start, &Put{ID: string(rune('a' + i)), GivenID: true, Owner: o})
		require.NoError(t, err)
	}
	require.NoError(t, l.CheckInvariants())
	l.owners.row = l.owners.row[:1]
	require.Error(t, l.CheckInvariants())
	l.Quarantine()
	dropped, _ := l.Close(start)
	assert.Equal(t, 2, dropped)
	require.Len(t, l.Effects(), 1)
	assert.Same(t, owner, l.Effects()[0].Owner)
	assert.Equal(t, 1, l.Effects()[0].Count)
}
