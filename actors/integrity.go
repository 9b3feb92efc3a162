package actors

import (
	"fmt"
	"hash/maphash"

	"github.com/postroom/postroom/messages"
)

// integrity notices a handler that writes into a message it only shares (SPEC E2).
// It costs a hash over the body before and after each handler, so it is on in
// builds with the race detector, and in the simulation, and off elsewhere.
type integrity struct {
	on   bool
	seed maphash.Seed
}

func newIntegrity(asked bool) integrity {
	return integrity{on: asked || raceEnabled, seed: maphash.MakeSeed()}
}

// of is a hash over what deliveries of a message share.
func (i *integrity) of(d *messages.Delivery) uint64 {
	h := maphash.Bytes(i.seed, d.Body)
	if x := d.Details; x != nil {
		h += 31*maphash.Bytes(i.seed, x.Extra) + 37*maphash.String(i.seed, x.ContentType) +
			41*maphash.String(i.seed, x.Topic) + 43*maphash.Comparable(i.seed, x.Priority) + 47*uint64(x.ExpiresAt.UnixNano())
	}
	for k, v := range d.Headers { // a sum, so in any order
		h += maphash.String(i.seed, k) ^ 3*maphash.String(i.seed, v)
	}
	return h
}

// blame panics, as the handler's crash, when it has changed the message.
func (i *integrity) blame(before uint64, s *slot) {
	if i.of(&s.Delivery) != before {
		panic(fmt.Sprintf("the handler of %s changed message %q of queue %q, which all deliveries share; "+
			"work on a copy, see Delivery.Envelope", s.consumer.tag, s.ID, s.Queue()))
	}
}
