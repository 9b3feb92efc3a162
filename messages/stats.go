package messages

import "time"

// Counters only grow. Always (SPEC R10):
//
//	Puts + RedrivenIn = Ready + Delayed + Leased + Acks + dead + Purged + Dropped
//
// where dead is the sum over DeadBy.
type Counters struct {
	Puts        uint64 // accepted
	RedrivenIn  uint64 // accepted from a redrive
	Deliveries  uint64 // hand-overs
	Redelivered uint64 // hand-overs after the first of their message
	Acks        uint64
	Nacks       uint64 // nacks and nack-ins
	Expiries    uint64 // leases that ran out
	Rejections  uint64
	// DeadBy counts deaths by reason.
	DeadBy        [Reasons]uint64
	Purged        uint64
	Dropped       uint64 // went with the queue
	RedrivenOut   uint64 // dead letters that another queue, or this one, took
	Discarded     uint64 // dead letters discarded
	Trimmed       uint64 // dead letters over a limit
	Touches       uint64
	StaleBy       [Verbs]uint64 // late settles; StaleBy[VerbAck] are V's late acks
	Duplicates    uint64
	Refusals      uint64 // puts refused: full, expired, id reused, draining, closed
	Interruptions uint64 // leases that ended without spending an attempt
	ClaimsDropped uint64 // ids forgotten before their window ended, at DedupLimit
	LostNotices   uint64 // announcements lost to a crash
}

// Dead is the number of deaths whatever the reason.
func (c *Counters) Dead() uint64 {
	var n uint64
	for _, d := range c.DeadBy {
		n += d
	}
	return n
}

// QueueStats is one queue at one instant; every figure equals a recount.
type QueueStats struct {
	Queue       string
	Incarnation uint64

	Ready, Delayed, Leased int
	DeadLetters            int
	Consumers              int
	// Bytes is what MaxBytes bounds; DeadLetterBytes what its own limit does.
	Bytes, DeadLetterBytes int64
	// OldestAge is how long the oldest message has been in the queue since it was
	// first ready; 0 when there is none, and a first delay has none.
	OldestAge time.Duration

	Paused, Draining, Quarantined bool
	Counters
}

// BrokerStats counts what a broker holds (P2).
type BrokerStats struct {
	Queues, Subscriptions, Bindings int
	// BindingDrops are copies that a bound queue refused (SPEC T4).
	BindingDrops uint64
	// SubscriptionDrops are events dropped for a subscriber whose buffer was full.
	SubscriptionDrops uint64
}
