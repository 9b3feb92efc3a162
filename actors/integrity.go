package actors

import (
	"fmt"
	"hash/maphash"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// integrity notices who writes into a message that is not theirs alone any more
// (SPEC E2): a producer between the put and the first delivery, and a handler while it
// runs. It costs a hash over the body at the put and before and after each handler, so
// it is on in builds with the race detector, and in the simulation, and off elsewhere.
type integrity struct {
	on   bool
	seed maphash.Seed
}

func newIntegrity(asked bool) integrity {
	return integrity{on: asked || raceEnabled, seed: maphash.MakeSeed()}
}

// of is a hash over what deliveries of a message share.
func (i *integrity) of(d *messages.Delivery) uint64 { return i.sum(d.Body, d.Headers, d.Details) }

func (i *integrity) sum(body []byte, headers map[string]string, x *messages.Details) uint64 {
	h := maphash.Bytes(i.seed, body)
	if x == nil {
		x = &messages.Details{}
	}
	h += 31*maphash.Bytes(i.seed, x.Extra) + 37*maphash.String(i.seed, x.ContentType) +
		41*maphash.String(i.seed, x.Topic) + 43*maphash.Comparable(i.seed, x.Priority) + 47*uint64(x.ExpiresAt.UnixNano())
	for k, v := range headers { // a sum, so in any order
		h += maphash.String(i.seed, k) ^ 3*maphash.String(i.seed, v)
	}
	return h
}

// blame panics, as the handler's crash, when it has changed the message.
func (i *integrity) blame(before uint64, s *slot) {
	if i.of(&s.Delivery) != before {
		panic(fmt.Sprintf("the handler of %s changed message %q of queue %q, which all deliveries share; "+
			"work on a copy, see Delivery.Envelope", s.worker.consumer.tag, s.ID, s.Queue()))
	}
}

// blameProducer panics, before the handler of the first delivery, when the message is
// not what was put.
func (s *slot) blameProducer() {
	if s.altered {
		panic(fmt.Sprintf("message %q of queue %q was changed after its put, by its producer or who else has its bytes; "+
			"Put hands them over, see Envelope.Clone", s.ID, s.Queue()))
	}
}

// sums are the hashes of messages that were put and not delivered yet, by id. A message
// with a past has none: its bytes have been in the hands of handlers.
type sums map[string]uint64

// sumsMax bounds the sums, since a message may leave without a word, as by a purge. At
// the bound all are forgotten: who waits then is not checked.
const sumsMax = 100_000

// remember notes at its put what a message is.
func (q *workQueue) remember(p *ledger.Put, result ledger.PutResult, err error) {
	switch {
	case err != nil || result.Duplicate:
		return
	case p.Past != nil:
		delete(q.sums, p.ID)
		return
	case q.sums == nil:
		q.sums = make(sums)
	case len(q.sums) >= sumsMax:
		clear(q.sums)
	}
	q.sums[p.ID] = q.broker.integrity.sum(p.Body, p.Headers, p.Details)
}

// altered reports at its first hand-over that a message is not what was put.
func (q *workQueue) altered(d *messages.Delivery) bool {
	sum, known := q.sums[d.ID]
	delete(q.sums, d.ID)
	return known && sum != q.broker.integrity.of(d)
}
