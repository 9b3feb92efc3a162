package messages

import (
	"time"
)

// Unlimited switches a bound off where its zero value means the default. It must
// be written: no bound is lifted by forgetting it (SPEC Q19).
const Unlimited = -1

// Defaults of QueueConfig and ConsumerConfig (SPEC Q19, C5; V where marked).
const (
	DefaultAckTimeout      = 30 * time.Second // JetStream's AckWait, SQS's visibility timeout
	DefaultMaxAttempts     = 3                // V
	DefaultBackoffBase     = time.Second
	DefaultBackoffCap      = 5 * time.Minute
	DefaultMaxMessages     = 1_000_000
	DefaultMaxBytes        = 1 << 30
	DefaultDeadLetterLimit = 10_000
	DefaultDeadLetterBytes = 256 << 20
	DefaultDedupLimit      = 1_000_000
	DefaultInboxLimit      = 65_536
	DefaultHandlerTimeout  = 10 * time.Minute
	DefaultRedriveRate     = 100.0 // letters a second
	DefaultRetryWindow     = 10 * time.Second
)

// Overflow says what a full queue does with a new message.
type Overflow uint8

const (
	// Refuse answers [*QueueFullError]; nothing is lost. The default.
	Refuse Overflow = iota
	// DropOldest kills the head of the lowest non-empty priority, fresh first,
	// never above the newcomer's, with reason [Overflowed] (SPEC A1).
	DropOldest
)

func (o Overflow) String() string {
	if o == DropOldest {
		return "drop oldest"
	}
	return "refuse"
}

// RetryBudget bounds the retries of a queue to a share of its successes (SPEC R9).
// The zero value is off.
type RetryBudget struct {
	// Ratio is how many retries each success in the window allows: 0.1 is one
	// retry for ten acks. Must be at least 0.
	Ratio float64
	// Floor is how many retries a window allows whatever succeeded. At least 1
	// when the budget is on, else a queue of failures could never move again.
	Floor int
	// Window is the time over which both are counted. Zero: 10 s.
	Window time.Duration
}

// On reports whether the budget limits anything.
func (b RetryBudget) On() bool { return b != RetryBudget{} }

// QueueConfig says how a queue lends, retries, buries and refuses. The zero value
// is safe (SPEC Q19). A bound of 0 means its default and [Unlimited] means none.
type QueueConfig struct {
	// AckTimeout is how long a lease lasts without a touch. Zero: 30 s.
	AckTimeout time.Duration
	// NoTimeout makes a lease last as long as its holder (SPEC Q17).
	NoTimeout bool
	// MaxLease bounds a lease from its hand-over, whatever is touched. Zero: none.
	MaxLease time.Duration

	// MaxAttempts is how many attempts a message gets before it dies. Zero: 3.
	MaxAttempts int
	// BackoffBase and BackoffCap bound the delay after failure k: uniform in
	// [0, min(Cap, Base*2^(k-1))], full jitter. Zero: 1 s and 5 min.
	BackoffBase, BackoffCap time.Duration
	// NoJitter waits the bound itself.
	NoJitter bool
	// RetryExpired gives an expired lease's message the same delay; without it the
	// message is ready again at once.
	RetryExpired bool
	// RetryBudget bounds retries to a share of successes. Zero: off.
	RetryBudget RetryBudget

	// MaxMessages and MaxBytes bound ready + delayed + leased. Zero: 1,000,000 and
	// 1 GiB.
	MaxMessages int
	MaxBytes    int64
	// Overflow says what happens at that bound.
	Overflow Overflow
	// InboxLimit bounds the puts of actors that wait in the queue's mailbox; one
	// more is answered [ErrBusy]. Zero: 65,536.
	InboxLimit int

	// TTL is how long a message may wait before it dies, from its put or redrive.
	// Zero: for ever.
	TTL time.Duration
	// DedupWindow is how long after its put a caller's id stays taken once the
	// message was acked or purged. Zero: it is free at once.
	DedupWindow time.Duration
	// DedupLimit bounds the ids kept for that; the oldest go first. Zero: 1,000,000.
	DedupLimit int

	// DeadLetterLimit and DeadLetterBytes bound the dead letters kept; the oldest
	// is trimmed. Zero: 10,000 and 256 MiB.
	DeadLetterLimit int
	DeadLetterBytes int64
	// DeadLetterTopic is where a copy of each dead letter is published. Empty: nowhere.
	DeadLetterTopic string
	// DeadLetterAlarm raises an alarm when this many letters are held. Zero: off.
	DeadLetterAlarm int

	// MaxAge raises an alarm when the oldest message is older. Zero: off.
	MaxAge time.Duration
	// SingleActive lets one consumer at a time receive (SPEC C8).
	SingleActive bool
}

// WithDefaults returns c with every zero bound replaced by its documented default.
// Two declarations are the same when their results are (SPEC B1).
func (c QueueConfig) WithDefaults() QueueConfig {
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.AckTimeout, DefaultAckTimeout)
	or(&c.BackoffBase, DefaultBackoffBase)
	or(&c.BackoffCap, DefaultBackoffCap)
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&c.MaxAttempts, DefaultMaxAttempts)
	orInt(&c.MaxMessages, DefaultMaxMessages)
	orInt(&c.DedupLimit, DefaultDedupLimit)
	orInt(&c.DeadLetterLimit, DefaultDeadLetterLimit)
	orInt(&c.InboxLimit, DefaultInboxLimit)
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.DeadLetterBytes == 0 {
		c.DeadLetterBytes = DefaultDeadLetterBytes
	}
	if c.RetryBudget.On() {
		or(&c.RetryBudget.Window, DefaultRetryWindow)
		orInt(&c.RetryBudget.Floor, 1)
	}
	return c
}

// Validate says what is wrong with c, or nil. It is to be called before
// WithDefaults. Errors: [*ArgumentError].
func (c QueueConfig) Validate() error {
	bad := func(field, problem string) error {
		return &ArgumentError{Op: "declare queue", Argument: field, Problem: problem}
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"AckTimeout", c.AckTimeout}, {"MaxLease", c.MaxLease}, {"BackoffBase", c.BackoffBase},
		{"BackoffCap", c.BackoffCap}, {"TTL", c.TTL}, {"DedupWindow", c.DedupWindow}, {"MaxAge", c.MaxAge},
		{"RetryBudget.Window", c.RetryBudget.Window},
	} {
		if d.v < 0 {
			return bad(d.name, "must not be negative")
		}
	}
	for _, n := range []struct {
		name string
		v    int64
	}{
		{"MaxAttempts", int64(c.MaxAttempts)}, {"MaxMessages", int64(c.MaxMessages)}, {"MaxBytes", c.MaxBytes},
		{"InboxLimit", int64(c.InboxLimit)}, {"DedupLimit", int64(c.DedupLimit)},
		{"DeadLetterLimit", int64(c.DeadLetterLimit)}, {"DeadLetterBytes", c.DeadLetterBytes},
	} {
		if n.v < Unlimited {
			return bad(n.name, "must be positive, 0 for the default or Unlimited (-1)")
		}
	}
	switch {
	case c.DeadLetterAlarm < 0:
		return bad("DeadLetterAlarm", "must not be negative")
	case c.Overflow > DropOldest:
		return bad("Overflow", "must be Refuse or DropOldest")
	case c.RetryBudget.Ratio < 0 || c.RetryBudget.Ratio != c.RetryBudget.Ratio || c.RetryBudget.Floor < 0:
		return bad("RetryBudget", "must not be negative")
	case c.DeadLetterTopic != "":
		if err := CheckTopic("declare queue", c.DeadLetterTopic); err != nil {
			return bad("DeadLetterTopic", "must be a topic that users may publish to")
		}
	}
	return nil
}

// Conflicts names the fields in which two configurations differ after defaults.
func (c QueueConfig) Conflicts(other QueueConfig) []string {
	a, b := c.WithDefaults(), other.WithDefaults()
	var fields []string
	differ := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	differ("AckTimeout", a.AckTimeout == b.AckTimeout)
	differ("NoTimeout", a.NoTimeout == b.NoTimeout)
	differ("MaxLease", a.MaxLease == b.MaxLease)
	differ("MaxAttempts", a.MaxAttempts == b.MaxAttempts)
	differ("BackoffBase", a.BackoffBase == b.BackoffBase)
	differ("BackoffCap", a.BackoffCap == b.BackoffCap)
	differ("NoJitter", a.NoJitter == b.NoJitter)
	differ("RetryExpired", a.RetryExpired == b.RetryExpired)
	differ("RetryBudget", a.RetryBudget == b.RetryBudget)
	differ("MaxMessages", a.MaxMessages == b.MaxMessages)
	differ("MaxBytes", a.MaxBytes == b.MaxBytes)
	differ("Overflow", a.Overflow == b.Overflow)
	differ("InboxLimit", a.InboxLimit == b.InboxLimit)
	differ("TTL", a.TTL == b.TTL)
	differ("DedupWindow", a.DedupWindow == b.DedupWindow)
	differ("DedupLimit", a.DedupLimit == b.DedupLimit)
	differ("DeadLetterLimit", a.DeadLetterLimit == b.DeadLetterLimit)
	differ("DeadLetterBytes", a.DeadLetterBytes == b.DeadLetterBytes)
	differ("DeadLetterTopic", a.DeadLetterTopic == b.DeadLetterTopic)
	differ("DeadLetterAlarm", a.DeadLetterAlarm == b.DeadLetterAlarm)
	differ("MaxAge", a.MaxAge == b.MaxAge)
	differ("SingleActive", a.SingleActive == b.SingleActive)
	return fields
}
