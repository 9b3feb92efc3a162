package supervisor

import (
	"math"
	"time"

	"github.com/postroom/postroom/messages"
)

// Defaults of [Policy].
//
// Together they give an actor that fails at once, each time, 10 restarts in about
// 40 s on average, 81 s at most: long enough for a dependency to come back after its own
// restart, short enough for the owner to hear of a bug within minutes. An actor
// that runs for more than about 9 s between failures, on average, is never stopped:
// HalfLife·log2(10/9).
const (
	// DefaultBase is ten times shorter than a queue's own backoff, because a restart
	// repeats nothing: the message that caused the crash stays leased meanwhile.
	DefaultBase = 100 * time.Millisecond
	// DefaultCap is the default lease (messages.DefaultAckTimeout): a worker that
	// waits longer would find its lost message back in the queue before itself.
	DefaultCap = 30 * time.Second
	// DefaultMaxFailures lets the waits reach their cap (100 ms · 2^9 > 30 s) before
	// the policy gives up, so that stopping is the last answer and not an early one.
	DefaultMaxFailures = 10
	// DefaultHalfLife is twice DefaultCap: one run as long as the longest wait
	// forgives less than half.
	DefaultHalfLife = time.Minute
)

// Policy says whether and when an actor that failed is restarted (SPEC S2): after
// waits that grow exponentially up to a cap, with full jitter, until there are too
// many failures for the calm between them. A zero field means its default. It is
// plain data and holds no state; that is the [History].
type Policy struct {
	// Base and Cap bound the wait after failure k: uniform in [0, min(Cap,
	// Base·2^(k-1))], full jitter as in a queue's retries (SPEC R1), so that workers
	// felled by one cause do not come back in step. Zero: 100 ms and 30 s. A Base
	// above Cap means Cap.
	Base, Cap time.Duration

	// MaxFailures is how high the count of failures may be, decayed, for a restart
	// to follow; at least 1. Failures that come right after each other get exactly so
	// many restarts, and the next one stops the actor. Zero: 10. [messages.Unlimited]:
	// it is never stopped.
	MaxFailures int

	// HalfLife is the time of calm in which the count falls by half. The decay is
	// suture's (thejerf/suture v4, FailureDecay): exponential, so that there is no
	// window at whose edge many failures are forgiven at once. Zero: 1 min.
	HalfLife time.Duration
}

// WithDefaults returns p with every zero field replaced by its default.
func (p Policy) WithDefaults() Policy {
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	or(&p.Base, DefaultBase)
	or(&p.Cap, DefaultCap)
	or(&p.HalfLife, DefaultHalfLife)
	if p.MaxFailures == 0 {
		p.MaxFailures = DefaultMaxFailures
	}
	return p
}

// Validate says what is wrong with p, or nil. Errors: [*messages.ArgumentError].
func (p Policy) Validate() error {
	bad := func(field, problem string) error {
		return &messages.ArgumentError{Op: "restart policy", Argument: field, Problem: problem}
	}
	switch {
	case p.Base < 0:
		return bad("Base", "must not be negative")
	case p.Cap < 0:
		return bad("Cap", "must not be negative")
	case p.HalfLife < 0:
		return bad("HalfLife", "must not be negative")
	case p.MaxFailures < messages.Unlimited:
		return bad("MaxFailures", "must be positive, 0 for the default or Unlimited (-1)")
	}
	return nil
}

// History is the failures of one actor that still count. The zero value is none.
type History struct {
	failures float64   // as of calmFrom
	calmFrom time.Time // when the last decided restart is due: decay begins here
}

// Decision is what the supervisor must do about a failure.
type Decision struct {
	// Restart says that the actor is to be started again, After this time, which
	// may be 0. If it is false the actor stops for good and After is 0.
	Restart bool
	After   time.Duration

	// Failures is the decayed count that led to this, with this failure in it: 1 for
	// a first one. It is for logs and events.
	Failures float64
}

// Decide records a failure at now and says what to do about it. draw is a random
// number, uniform over all of uint64; the wait grows with it.
//
// p must have passed Validate; zero fields have their defaults here too. A now
// before an earlier one counts as no calm, and what follows counts from it, so a
// clock that was set back costs neither a long wait nor a stop. A failure after a stop
// is counted like any other: the answer is a stop again until it was calm.
func (p Policy) Decide(h *History, now time.Time, draw uint64) Decision {
	p = p.WithDefaults()
	// The conversion forbids the compiler to fuse the sum into a multiplication
	// before it, which would make the last bit depend on the processor.
	failures := float64(p.Failures(*h, now)) + 1
	d := Decision{Failures: failures}
	if p.MaxFailures == messages.Unlimited || failures <= float64(p.MaxFailures) {
		d.Restart, d.After = true, messages.FullJitter(p.bound(failures), draw)
	}
	*h = History{failures: failures, calmFrom: now.Add(d.After)}
	return d
}

// Failures is the count in h, decayed until now: 0 when there never was a failure,
// or none for 64 half-lives.
func (p Policy) Failures(h History, now time.Time) float64 {
	return decay(h.failures, now.Sub(h.calmFrom), p.WithDefaults().HalfLife)
}

// bound is the longest wait at a count of failures: Base, doubled for each one after
// the first, up to Cap.
//
// The count is rounded, so that an old failure lengthens the wait until half of it
// is forgiven. Rounding down would drop it after a nanosecond of calm, and rounding
// up would still feel it after an hour.
func (p Policy) bound(failures float64) time.Duration {
	doublings := uint(math.Round(failures)) - 1
	// The cap is halved instead of the base doubled, which overflows; after 63
	// halvings it is 0, and every base is above that.
	if p.Base > p.Cap>>doublings {
		return p.Cap
	}
	return p.Base << doublings
}

// decay is n·½^(calm/halfLife); n itself when there was no calm.
//
// It takes square roots and products and not math.Exp2, which is not the same to the
// last bit on every processor: one seed must give one simulation everywhere.
func decay(n float64, calm, halfLife time.Duration) float64 {
	if calm <= 0 {
		return n
	}
	whole, rest := calm/halfLife, calm%halfLife
	if whole >= 64 {
		return 0 // and never a count that is too small for a float to hold
	}
	n = math.Ldexp(n, -int(whole))

	// rest/halfLife in binary, a digit at a time: the first is worth a factor of
	// ½^½, the root of ½, the next ½^¼, the root of that, and so on. 30 digits make a
	// half-life of a minute exact to 0.1 µs.
	root := 0.5
	for range 30 {
		root = math.Sqrt(root)
		if missing := halfLife - rest; rest >= missing { // 2·rest ≥ halfLife, without overflow
			n *= root
			rest -= missing
		} else {
			rest += rest
		}
	}
	return n
}
