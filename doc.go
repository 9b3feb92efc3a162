// Package postroom is an actor-model message broker for Go programs: queues with
// leases, retries and dead letters, and topics with wildcard bindings, embedded in
// the process that uses them.
//
//	put ──▶ ready ──lend──▶ leased ──ack──▶ gone
//	          ▲               │
//	          │ nack, expiry  │ reject, last attempt failed, TTL
//	       delayed ◀──────────┴──────────────▶ dead ──redrive──▶ ready
//
// Each queue is an actor that owns its state without locks. A delivery is a lease:
// who does not settle it in time loses it, and the message goes to somebody else.
// So every accepted message is delivered at least once, or ends dead, purged or
// dropped with its queue, and each of those is counted. A handler may run twice for
// one message, even at the same time: make handlers safe to repeat.
//
// In memory the broker forgets everything when it is closed.
package postroom
