package worker

import (
	"math"
	"sync"
	"time"

	"github.com/postroom/postroom/messages"
)

// None switches a refill off where its zero value means the default.
const None = -1

// Defaults of [BudgetConfig]: the shape of Finagle's RetryBudget, one retry for ten
// successes and a floor for callers that are rarely called at all.
const (
	DefaultBudgetTokens     = 10
	DefaultBudgetPerSuccess = 0.1
	DefaultBudgetPerSecond  = 0.1
)

// BudgetConfig says how many extra calls callers may make together. A zero field
// means its default; [None] (-1) switches a refill off and must be written.
type BudgetConfig struct {
	// Tokens is how many the budget holds at most, and at the beginning. One token
	// is one extra call. Zero: 10.
	Tokens int
	// PerSuccess is the share of a token that a success puts back. Zero: 0.1, one
	// extra call for ten successes. None: successes put nothing back.
	PerSuccess float64
	// PerSecond is the floor: tokens that time puts back, whatever succeeds, so that
	// a budget spent in an outage does not stay so. Zero: 0.1. None: time puts
	// nothing back.
	PerSecond float64
}

// Budget bounds extra calls across operations (L: otherwise many small retry loops
// exhaust a struggling dependency). Give one to everything that calls the same
// dependency. It may be used from any number of goroutines.
type Budget struct {
	max, perSuccess int64         // in parts, as held
	perToken        time.Duration // what time puts back; 0: nothing

	mu               sync.Mutex
	held             int64
	refilled         time.Time // the floor was paid until here; zero before the first Spend
	spent, exhausted uint64
}

// part is what a token is counted in, so that shares of one add up exactly.
const part = 1_000_000

// NewBudget returns a full budget. Errors: [*postroom.ArgumentError].
func NewBudget(c BudgetConfig) (*Budget, error) {
	bad := func(field, problem string) error {
		return &messages.ArgumentError{Op: "retry budget", Argument: field, Problem: problem}
	}
	if c.Tokens == 0 {
		c.Tokens = DefaultBudgetTokens
	}
	if c.Tokens < 1 || c.Tokens > math.MaxInt32 {
		return nil, bad("Tokens", "must be positive and below 2^31")
	}
	share := func(v *float64, fallback, most float64) bool {
		or(v, fallback)
		return *v == None || *v > 0 && *v <= most
	}
	if !share(&c.PerSuccess, DefaultBudgetPerSuccess, math.MaxInt32) {
		return nil, bad("PerSuccess", "must be positive, 0 for the default or None (-1)")
	}
	if !share(&c.PerSecond, DefaultBudgetPerSecond, 1e9) {
		return nil, bad("PerSecond", "must be positive and at most 1e9, 0 for the default or None (-1)")
	}
	b := &Budget{max: int64(c.Tokens) * part, held: int64(c.Tokens) * part}
	if c.PerSuccess != None {
		b.perSuccess = int64(math.Round(c.PerSuccess * part))
	}
	if c.PerSecond != None {
		b.perToken = time.Duration(min(math.Ceil(float64(time.Second)/c.PerSecond), float64(100*365*24*time.Hour)))
	}
	return b, nil
}

// Spend takes a token for one extra call, and reports whether there was one. now is
// the caller's time, which has just been read to know what is left of a deadline, and
// reading it costs more than all else here. Callers share a clock; a now before an
// earlier one pays no floor.
func (b *Budget) Spend(now time.Time) bool {
	b.mu.Lock()
	if b.perToken > 0 {
		b.refill(now)
	}
	ok := b.held >= part
	if ok {
		b.held -= part
		b.spent++
	} else {
		b.exhausted++
	}
	b.mu.Unlock()
	return ok
}

// Success puts back what a success is worth.
func (b *Budget) Success() {
	if b.perSuccess == 0 {
		return
	}
	b.mu.Lock()
	b.held = min(b.held+b.perSuccess, b.max)
	b.mu.Unlock()
}

// BudgetStats counts a budget at one instant.
type BudgetStats struct {
	Tokens           float64 // held now
	Spent, Exhausted uint64  // calls of Spend that got one, and that got none
}

// Stats counts the budget at an instant.
func (b *Budget) Stats(now time.Time) BudgetStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.perToken > 0 {
		b.refill(now)
	}
	return BudgetStats{Tokens: float64(b.held) / part, Spent: b.spent, Exhausted: b.exhausted}
}

// refill pays the floor in whole tokens; time that is worth less than one stays owed.
// It is done before every Spend and not only when the tokens run out: paid late, a long
// calm would fill the budget twice in one burst.
func (b *Budget) refill(now time.Time) {
	elapsed := now.Sub(b.refilled)
	switch {
	case elapsed <= 0:
	case b.held == b.max || b.refilled.IsZero():
		b.refilled = now // there was nothing to pay
	case elapsed < b.perToken:
	default:
		whole := elapsed / b.perToken
		if missing := (b.max - b.held) / part; int64(whole) > missing {
			b.held, b.refilled = b.max, now
			return
		}
		b.held += int64(whole) * part
		b.refilled = b.refilled.Add(whole * b.perToken)
	}
}
