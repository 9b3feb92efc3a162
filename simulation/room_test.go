package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestAUsedRoomChangesNothing: a run in the room that many others have used, cut ones
// and failing ones among them, is the run in a new one.
func TestAUsedRoomChangesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	shared := &room{}
	defer shared.close()
	cut := Standard()
	cut.Steps = 60 // ends in the middle
	lying := Standard()
	for _, bug := range planted {
		if bug.name == "crash is forgiven" {
			lying.Mutate = bug.mutate
		}
	}
	require.NotNil(t, lying.Mutate)
	for seed := range uint64(60) {
		for _, s := range []Spec{Standard(), cut, Wide(), lying} {
			inRoom := s
			inRoom.room, inRoom.NoEvents = shared, true
			want, got := s.Run(seed), inRoom.Run(seed)
			require.Equal(t, want.TraceHash, got.TraceHash, "%s, seed %d: %v", s.Name, seed, compareRuns(&want, &got))
			require.Equal(t, want.Signature(), got.Signature(), "seed %d", seed)
			require.Equal(t, want.Hits, got.Hits, "seed %d", seed)
			require.Equal(t, want.Jepsen, got.Jepsen, "seed %d", seed)
		}
	}
	require.NotEmpty(t, shared.idle, "coroutines are used again")
	require.Len(t, shared.notes, 1, "one run has them at a time")
}
