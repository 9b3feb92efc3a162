package actorkit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/messages"
)

// A listener is told, and is not trusted.
func TestO1_TellSurvivesItsListener(t *testing.T) {
	Tell(nil, messages.Quarantined{})
	var told []messages.Notice
	Tell(func(n messages.Notice) {
		told = append(told, n)
		panic("cannot log")
	}, messages.Quarantined{Queue: "q"})
	require.Len(t, told, 2)
	assert.Equal(t, messages.Quarantined{Queue: "q"}, told[0])
	assert.Equal(t, "listener", told[1].(messages.ActorCrashed).Actor)
}
