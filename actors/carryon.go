package actors

import (
	"fmt"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// repeated is a message that crashed its actor and is handled once more.
type repeated struct {
	msg   any
	tries uint8
}

// carryOn handles one message of an actor that goes on as it is after a panic, see
// [actorkit.CarryOn], between its two probes. name is what they call the actor.
//
// A message with a Fail looks after itself: its sender is told, or it is sent again. Of
// all others nobody would say so a second time. Without the end of a consumer Close
// would wait for ever, without the restart of a worker nobody would work; so the actor
// tells itself again, up to triesMax times, unless all was done when it crashed.
func (b *Broker) carryOn(c *actorkit.Context, name string, msg any, handle func(*actorkit.Context, any)) {
	tries := uint8(0)
	if again, ok := msg.(*repeated); ok {
		msg, tries = again.msg, again.tries
	}
	handled := false
	actorkit.CarryOn(c, b.Listener, msg, func() {
		b.probe(name, "before", msg)
		handle(c, msg)
		handled = true
		b.probe(name, "after", msg)
	})
	if _, fails := msg.(messages.Failer); handled || fails || tries >= triesMax {
		return
	}
	c.Self().Send(&repeated{msg, tries + 1})
}

// probe lets a test crash an actor at a named point.
func (b *Broker) probe(name, when string, msg any) {
	if b.Probe != nil {
		b.Probe(fmt.Sprintf("%s %s %T", name, when, msg))
	}
}
