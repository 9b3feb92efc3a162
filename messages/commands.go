package messages

import "time"

// Commands to the broker's own actor, which passes them on to the room that
// answers. The sender of Consume and Subscribe is who receives.
type (
	// DeclareQueue makes a queue, or confirms one with the same settings.
	// Errors: [*ArgumentError], [*LimitError], [*QueueConfigConflictError].
	DeclareQueue struct {
		Asked
		Queue  string
		Config QueueConfig
	}

	// DeleteQueue drops a queue with all that is in it (SPEC Q14); Answer.Value is a
	// [Deleted]. Errors: [*QueueNotFoundError], [*InUseError].
	DeleteQueue struct {
		Asked
		Queue string
		// IfEmpty refuses while messages or dead letters are in it, IfUnused while
		// consumers are attached.
		IfEmpty, IfUnused bool
	}

	// Consume attaches the sender to a queue: it then receives [*Deliver] and once
	// [*ConsumerEnded]. Answer.Value is the consumer tag, a string.
	// Errors: [*QueueNotFoundError], [*ArgumentError].
	Consume struct {
		Asked
		Queue    string
		Consumer ConsumerConfig
	}

	// Cancel ends a consumer (SPEC C1). Errors: [*NotFoundError].
	Cancel struct {
		Asked
		Tag string
	}

	// SetPrefetch changes how many leases a consumer may hold; 0 halts it.
	// Errors: [*NotFoundError], [*ArgumentError].
	SetPrefetch struct {
		Asked
		Tag      string
		Prefetch int
	}

	// Publish hands an event to every matching subscriber and bound queue;
	// Answer.Value is a [PublishResult]. Errors: [*ArgumentError], [*LimitError].
	Publish struct {
		Asked
		Envelope Envelope
	}

	// Subscribe sends matching events to the sender, as [*Event]. Answer.Value is the
	// subscription's name, a string.
	Subscribe struct {
		Asked
		Pattern string
	}

	// Unsubscribe undoes a Subscribe. Errors: [*NotFoundError].
	Unsubscribe struct {
		Asked
		Subscription string
	}

	// Bind copies matching publications into a queue; the same binding twice is one.
	// Errors: [*QueueNotFoundError], [*ArgumentError].
	Bind struct {
		Asked
		Queue, Pattern string
	}

	// Unbind undoes a Bind. Errors: [*NotFoundError], [*QueueNotFoundError].
	Unbind struct {
		Asked
		Queue, Pattern string
	}

	// BrokerStatsQuery asks for [BrokerStats] in Answer.Value.
	BrokerStatsQuery struct{ Asked }
)

// Commands to a queue.
type (
	// Put adds a message. Answer.N is 1 for a duplicate.
	// Errors: [*QueueFullError], [*PutError], [*LimitError], [*ArgumentError].
	Put struct {
		Asked
		Envelope Envelope
	}

	// PutBatch adds messages in order, each on its own; Answer.Value is []PutResult.
	PutBatch struct {
		Asked
		Envelopes []Envelope
	}

	// Get asks for one message; Answer.Value is a *Delivery. Errors: [ErrEmpty] with
	// NoWait, [*QueueStateError].
	Get struct {
		Asked
		GetConfig
	}

	// Settle carries out one verb on a lease. Answer.At is the new deadline of a
	// touch. Errors: [*StaleError], [*ArgumentError].
	Settle struct {
		Asked
		Settlement
	}

	// SettleBatch settles many leases of one queue, each on its own; Answer.Value is
	// []SettleResult.
	SettleBatch struct {
		Asked
		Settlements []Settlement
	}

	// Pause ends hand-overs until Resume; settles go on.
	Pause struct{ Asked }
	// Resume ends Pause and Drain.
	Resume struct{ Asked }
	// Purge removes what is ready or delayed; Answer.N says how many.
	Purge struct{ Asked }
	// Peek looks at up to N ready messages; Answer.Value is []Delivery with Tag 0.
	Peek struct {
		Asked
		N int
	}
	// Drain refuses puts and is answered when nothing is left in the queue.
	Drain struct{ Asked }
	// DeadLettersQuery reads up to N letters with a Number above After; Answer.Value
	// is []DeadLetter and Answer.N the number of the newest letter there ever was.
	DeadLettersQuery struct {
		Asked
		After uint64
		N     int
	}
	// Discard removes dead letters by message id; Answer.N says how many.
	Discard struct {
		Asked
		IDs []string
	}
	// QueueStatsQuery asks for [QueueStats] in Answer.Value.
	QueueStatsQuery struct{ Asked }
)

// The single verbs, for actors: Settle by a shorter name.
type (
	// Ack is a Settle with VerbAck.
	Ack struct {
		Asked
		Receipt Receipt
	}
	// Nack is a Settle with VerbNack.
	Nack struct {
		Asked
		Receipt Receipt
		Error   string
	}
	// Reject is a Settle with VerbReject.
	Reject struct {
		Asked
		Receipt Receipt
		Error   string
	}
	// Touch is a Settle with VerbTouch; For of 0 means AckTimeout.
	Touch struct {
		Asked
		Receipt Receipt
		For     time.Duration
	}
)

// settlement is what the verbs have in common.
type settlement interface {
	Command
	Settled() Settlement
}

var _ = []settlement{(*Ack)(nil), (*Nack)(nil), (*Reject)(nil), (*Touch)(nil), (*Settle)(nil)}

// Settled returns the general form.
func (m *Ack) Settled() Settlement { return Settlement{Receipt: m.Receipt, Verb: VerbAck} }

// Settled returns the general form.
func (m *Nack) Settled() Settlement {
	return Settlement{Receipt: m.Receipt, Verb: VerbNack, Error: m.Error}
}

// Settled returns the general form.
func (m *Reject) Settled() Settlement {
	return Settlement{Receipt: m.Receipt, Verb: VerbReject, Error: m.Error}
}

// Settled returns the general form.
func (m *Touch) Settled() Settlement {
	return Settlement{Receipt: m.Receipt, Verb: VerbTouch, Delay: m.For}
}

// Settled returns the general form.
func (m *Settle) Settled() Settlement { return m.Settlement }

// Deliver hands a message to an actor that consumes (SPEC C7).
type Deliver struct {
	// Consumer is the consumer tag it was lent to.
	Consumer string
	Delivery Delivery
}

// ConsumerEnded tells an actor, once, that it consumes no longer.
type ConsumerEnded struct {
	Tag string
	// Reason is nil after Cancel, else why: it wraps [ErrQueueClosed] or
	// [ErrBrokerClosed].
	Reason error
}

// ConsumerConfig says how one consumer receives.
type ConsumerConfig struct {
	// Name is a label for people; the consumer tag identifies.
	Name string
	// Concurrency is how many handlers run at once. Zero: 1. Actors that consume by
	// message have no handlers and ignore it.
	Concurrency int
	// Prefetch is how many leases the consumer holds at most, waiting ones included.
	// At least Concurrency. Zero: Concurrency, so that nothing waits behind a busy
	// handler while another consumer is free.
	Prefetch int
	// NoHeartbeat stops touching the leases of running handlers. Messages that wait
	// in the consumer are kept alive all the same (SPEC C3).
	NoHeartbeat bool
	// HandlerTimeout cancels a handler's context and ends its heartbeat. Zero:
	// 10 min; [Unlimited] must be written.
	HandlerTimeout time.Duration
	// Manual leaves the settling to the handler: its return settles nothing.
	Manual bool
	// AckTimeout overrides the queue's, NoTimeout switches it off (SPEC Q17).
	AckTimeout time.Duration
	NoTimeout  bool
}

// WithDefaults returns c with its defaults in place.
func (c ConsumerConfig) WithDefaults() ConsumerConfig {
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.Prefetch == 0 {
		c.Prefetch = c.Concurrency
	}
	if c.HandlerTimeout == 0 {
		c.HandlerTimeout = DefaultHandlerTimeout
	}
	return c
}

// Validate says what is wrong with c, or nil. Errors: [*ArgumentError].
func (c ConsumerConfig) Validate() error {
	bad := func(field, problem string) error {
		return &ArgumentError{Op: "consume", Argument: field, Problem: problem}
	}
	d := c.WithDefaults()
	switch {
	case c.Concurrency < 0:
		return bad("Concurrency", "must not be negative")
	case c.Prefetch < 0:
		return bad("Prefetch", "must not be negative")
	case d.Prefetch < d.Concurrency:
		return bad("Prefetch", "must be at least Concurrency")
	case c.AckTimeout < 0:
		return bad("AckTimeout", "must not be negative")
	case c.HandlerTimeout < Unlimited:
		return bad("HandlerTimeout", "must be positive, 0 for the default or Unlimited (-1)")
	}
	return nil
}

// GetConfig says how one Get receives.
type GetConfig struct {
	// NoWait answers [ErrEmpty] at once instead of waiting.
	NoWait bool
	// AckTimeout overrides the queue's for this lease; NoTimeout ties it to the
	// session, which must then be given.
	AckTimeout time.Duration
	NoTimeout  bool
	// Session is the holder; empty for nobody in particular. It is the raw name: the
	// door's Broker.Session("laptop") is the holder "session laptop", so that no session
	// is taken for a consumer, whose name is its tag.
	Session string
}

// PutResult is the outcome of one put of a batch.
type PutResult struct {
	ID        string
	Duplicate bool
	Err       error
}

// SettleResult is the outcome of one settlement of a batch.
type SettleResult struct {
	// Deadline is the new one, after a touch.
	Deadline time.Time
	Err      error
}

// PublishResult says where a publication went (SPEC T5).
type PublishResult struct {
	// Subscribers is how many were sent the event.
	Subscribers int
	// Accepted, Duplicate and Refused count the bound queues by their answer.
	Accepted, Duplicate, Refused int
}

// Deleted says what went with a queue (SPEC Q14).
type Deleted struct{ Messages, DeadLetters int }

// Redrive moves dead letters back into a queue (SPEC R8); it goes to the broker's
// actor and is answered with [Redriven] in Answer.Value when it has ended.
type Redrive struct {
	Asked
	// Queue holds the letters; To is where they go, empty for the same queue.
	Queue, To string
	// Rate is letters a second. Zero: 100.
	Rate float64
	// Max ends it after that many letters were tried. Zero: all that were dead at its start.
	Max int
}

// Redriven is how a redrive ended.
type Redriven struct {
	// Moved letters are in the target, Skipped stayed because their id was taken.
	Moved, Skipped int
	// Stopped is why it ended early: the target's refusal or the caller's cause; nil
	// when it went through.
	Stopped error
}
