package messages

import (
	"maps"
	"slices"
	"time"
)

// PriorityMax is the highest priority; 0 is the lowest and the default.
const PriorityMax = 9

// Envelope is a message on its way into a queue (SPEC E1).
//
// Put hands Body, Headers and Extra over: the caller must not change them
// afterwards. All deliveries of the message share them read-only.
type Envelope struct {
	// ID names the message for de-duplication. Empty: the broker makes a UUID.
	// At most [Limits.IDBytes] bytes.
	ID string

	// Body is the payload, opaque to the broker. At most [Limits.BodyBytes].
	Body []byte

	// Headers travel with the message. At most [Limits.Headers] of them, and
	// [Limits.HeaderBytes] bytes of keys and values together.
	Headers map[string]string

	// ContentType describes Body; the broker does not look at it.
	ContentType string

	// Extra is carried unchanged everywhere and never looked at: a protocol front
	// keeps its own properties there. It counts as header bytes.
	Extra []byte

	// Topic is where the message was published; empty for a direct put.
	Topic string

	// Priority is 0 to [PriorityMax]; higher first, strictly.
	Priority int

	// ExpiresAt is the business deadline in wall time; zero means none. At that
	// instant the message dies with reason [Expired] unless a lease is running.
	ExpiresAt time.Time

	// Delay is how long the message waits before it is first ready. Zero: none.
	Delay time.Duration
}

// Details are the parts of an envelope that most messages leave empty. They are
// kept apart, and shared by all copies of one publication, so that a ready
// message stays small.
type Details struct {
	ContentType string
	Extra       []byte
	Topic       string
	Priority    int
	ExpiresAt   time.Time
}

// noDetails is shared by every message that has none, so that a Delivery's
// promoted fields can be read without asking first.
var noDetails = &Details{}

// Split returns the seldom used parts of e, or a shared empty value.
func (e *Envelope) Split() *Details {
	if e.ContentType == "" && e.Extra == nil && e.Topic == "" && e.Priority == 0 && e.ExpiresAt.IsZero() {
		return noDetails
	}
	return &Details{
		ContentType: e.ContentType, Extra: e.Extra, Topic: e.Topic,
		Priority: e.Priority, ExpiresAt: e.ExpiresAt,
	}
}

// Bytes is what the envelope counts against [QueueConfig.MaxBytes]: body,
// headers, id and extra (SPEC A1).
func (e *Envelope) Bytes() int64 { return Size(e.ID, e.Body, e.Headers, e.Extra) }

// Size is [Envelope.Bytes] for the parts on their own.
func Size(id string, body []byte, headers map[string]string, extra []byte) int64 {
	n := len(id) + len(body) + len(extra)
	for k, v := range headers {
		n += len(k) + len(v)
	}
	return int64(n)
}

// Clone returns a deep copy, for a caller that wants to go on changing its own.
func (e Envelope) Clone() Envelope {
	e.Body = slices.Clone(e.Body)
	e.Headers = maps.Clone(e.Headers)
	e.Extra = slices.Clone(e.Extra)
	return e
}

// Receipt names one lease for ever: a queue, its incarnation and the delivery
// tag (SPEC Q3). A queue that was deleted and declared again has another
// incarnation, so an old receipt settles nothing there.
type Receipt struct {
	Queue string
	// Incarnation is the queue's; zero means "whichever lives now", which is what
	// the bare Ack(queue, tag) sends and why it is not fenced across a redeclare.
	Incarnation uint64
	// Tag is 1, 2, 3, … within an incarnation and never used twice.
	Tag uint64
}

// Source is what all deliveries of one queue incarnation have in common.
type Source struct {
	Queue       string
	Incarnation uint64
	// Settler carries out the delivery's own verbs; nil where there is no door,
	// and then they answer [ErrNoDoor].
	Settler Settler
}

// Delivery is a message in the hands of one holder, on a lease that ends at
// Deadline (SPEC Q2). Body, Headers and all of Details are shared and must not be
// changed; [Delivery.Envelope] copies them.
type Delivery struct {
	ID      string
	Body    []byte
	Headers map[string]string
	*Details

	// Tag is the delivery tag of this lease.
	Tag uint64
	// Attempt is 1 on the first delivery and counts those that were not
	// interrupted, since the put or the redrive (SPEC Q4).
	Attempt int
	// Deliveries counts every hand-over and never goes down.
	Deliveries int
	// EnqueuedAt is when the put was handled.
	EnqueuedAt time.Time
	// Deadline is when the lease ends unless it is touched; zero for a consumer
	// without timeout (SPEC Q17).
	Deadline time.Time

	// From is the queue that lent the message; nil, as in a handler's own test, is
	// a delivery from nowhere, whose verbs answer [ErrNoDoor].
	From *Source
}

// Queue is the name of the queue that lent the message.
func (d *Delivery) Queue() string { return d.Receipt().Queue }

// Receipt names this lease.
func (d *Delivery) Receipt() Receipt {
	if d.From == nil {
		return Receipt{Tag: d.Tag}
	}
	return Receipt{Queue: d.From.Queue, Incarnation: d.From.Incarnation, Tag: d.Tag}
}

// Redelivered reports whether the message has been handed over before.
func (d *Delivery) Redelivered() bool { return d.Deliveries > 1 }

// Envelope returns a deep copy of the message, ready to be put somewhere else.
func (d *Delivery) Envelope() Envelope {
	e := Envelope{ID: d.ID, Body: d.Body, Headers: d.Headers}
	if x := d.Details; x != nil {
		e.ContentType, e.Extra, e.Topic, e.Priority, e.ExpiresAt = x.ContentType, x.Extra, x.Topic, x.Priority, x.ExpiresAt
	}
	return e.Clone()
}

// Event is what a subscriber receives: one publication on a topic.
type Event struct {
	Envelope
	// At is when the router took it.
	At time.Time
}
