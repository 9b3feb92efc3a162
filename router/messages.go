package router

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// What the router is told, besides *messages.Publish, *messages.Unsubscribe and
// *messages.BrokerStatsQuery.
type (
	// Subscribe makes a subscription. Exactly one of Handle and To is set.
	Subscribe struct {
		messages.Asked
		Pattern string
		// Handle runs on an actor of its own and may block.
		Handle func(subscription string, e *messages.Event)
		// To receives *messages.Event, and its end takes the subscription with it.
		To *actor.PID
	}

	// Bind makes a binding of a queue that exists. The same one twice is one.
	Bind struct {
		messages.Asked
		Queue   string
		To      *actorkit.Address
		Pattern string
	}

	// Unbind undoes a Bind.
	Unbind struct {
		messages.Asked
		Queue, Pattern string
	}

	// Forget drops every binding of a queue that is gone and then gives Answer to
	// whoever asked, so that a caller never sees the half of a deletion (SPEC T7).
	Forget struct {
		messages.Asked
		Queue  string
		To     *actorkit.Address // a successor of that name keeps its bindings
		Answer messages.Answer
		// Router is where it is sent again when it crashes: bindings of a queue that is
		// gone would stay for ever.
		Router *actorkit.Address
		tries  int
	}

	// Stats completes the figures with the router's own and answers.
	Stats struct {
		messages.Asked
		Partial messages.BrokerStats
	}

	// Announce publishes a system event, at most once (SPEC S3).
	Announce struct {
		Envelope messages.Envelope
		// Given says that the id is a caller's.
		Given bool
		// History and Deaths are those of a dead letter whose copy this is: it never
		// enters a queue that is named in it (SPEC R7).
		History []messages.Death
		Deaths  int
		// Then runs when the event is on its way to everybody, and also when it was
		// lost: whoever waits for it must be answered (SPEC T6).
		Then []func()
		// Lost runs when the router crashed on it.
		Lost func()
	}

	// Copy is one publication on its way into one bound queue. The queue answers
	// with Accept or Refuse, once.
	Copy struct {
		Envelope *messages.Envelope
		Details  *messages.Details
		// Given says that the publisher chose the id (SPEC E3).
		Given bool
		// History and Deaths are those of a dead letter's copy (SPEC R7).
		History []messages.Death
		Deaths  int
		pub     *publication
		done    bool // answered; the queue that crashes after that must not answer again
	}
)

const triesMax = 3

// Fail tries again, a few times.
func (m *Forget) Fail(err error) {
	if m.Router != nil && m.tries < triesMax && errors.Is(err, actorkit.ErrCrashed) {
		m.tries++
		m.Router.Send(m)
		return
	}
	m.Asked.Fail(err)
}

// Fail counts the announcement as lost and answers whoever waits for it.
func (a *Announce) Fail(error) {
	if a.Lost != nil {
		a.Lost()
	}
	a.done()
}

func (a *Announce) done() {
	a.Lost = nil // it is on its way: a crash from here on loses nothing
	for _, then := range a.Then {
		then()
	}
	a.Then = nil
}

// publication gathers the answers of the bound queues. They come from the queues'
// own goroutines, so it counts with atomics; the last one answers the publisher.
type publication struct {
	reply       messages.Ref
	subscribers int
	waiting     atomic.Int32
	accepted    atomic.Int32
	duplicate   atomic.Int32
	refused     atomic.Int32
	drops       *atomic.Uint64
	copies      [1]Copy // most publications reach one queue: theirs costs no allocation of its own
}

// copiesFor returns one copy of of for each of n queues.
func (p *publication) copiesFor(n int, of *Copy) []Copy {
	copies := p.copies[:]
	if n != len(copies) {
		copies = make([]Copy, n)
	}
	for i := range copies {
		copies[i] = *of
	}
	return copies
}

// Accept says that the queue took the copy, or had its id already.
func (c *Copy) Accept(duplicate bool) {
	if c.done {
		return
	}
	c.done = true
	if duplicate {
		c.pub.duplicate.Add(1)
		c.pub.drops.Add(1)
	} else {
		c.pub.accepted.Add(1)
	}
	c.pub.answered()
}

// Refuse says that the queue did not take the copy (SPEC T4).
func (c *Copy) Refuse() {
	if c.done {
		return
	}
	c.done = true
	c.pub.refused.Add(1)
	c.pub.drops.Add(1)
	c.pub.answered()
}

// Fail is Refuse for a queue that ended or crashed on the copy.
func (c *Copy) Fail(error) { c.Refuse() }

func (p *publication) answered() {
	if p.waiting.Add(-1) == 0 {
		p.reply.Resolve(messages.Answer{Value: messages.PublishResult{
			Subscribers: p.subscribers,
			Accepted:    int(p.accepted.Load()),
			Duplicate:   int(p.duplicate.Load()),
			Refused:     int(p.refused.Load()),
		}})
	}
}

// event is what subscribers share of one publication.
func event(e *messages.Envelope, at time.Time) *messages.Event {
	return &messages.Event{Envelope: *e, At: at}
}
