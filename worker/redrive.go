package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// RedriveConfig says which dead letters [Redrive] moves, and how fast. A zero field
// means its default.
type RedriveConfig struct {
	postroom.RedriveConfig
	// SharedKeys says that the workers of To name the same Caller and Operation as those
	// of the queue. It must be written where To is another queue: the Caller of a key is
	// the queue unless Work.Caller names one, and then what was applied under the one
	// would be applied again under the other.
	SharedKeys bool
	// Window is how long keys are kept: that of [PruneConfig]. Zero: 14 days.
	Window time.Duration
	// Retention is how long after its first death a letter may be redriven without
	// Force. It must be shorter than Window: an earlier attempt may have been applied
	// before that death, and its key must still be there. Zero: 7 days.
	Retention time.Duration
	// Force moves older letters too. Whoever sets it has made sure that no earlier
	// attempt of them was applied, or that a second effect does no harm.
	Force bool
}

// ErrTooOld is a redrive of letters whose keys may be gone; see [TooOldError].
var ErrTooOld = errors.New("dead letters are older than the keys that guard them")

// TooOldError is a redrive that was refused, as a whole: nothing was moved. Unwraps to
// [ErrTooOld].
type TooOldError struct {
	Queue string
	// Letters is how many are too old, IDs the first ten of them.
	Letters int
	IDs     []string
	// Oldest is the earliest death among them.
	Oldest time.Time
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("redrive %q: %d dead letters are older than the keys that guard them, the oldest from %s",
		e.Queue, e.Letters, e.Oldest.UTC().Format(time.RFC3339))
}

func (e *TooOldError) Unwrap() error { return ErrTooOld }

// Hint says what to do.
func (e *TooOldError) Hint() string {
	return "find out whether they were applied, then Discard them or redrive with Force; and keep keys longer than letters"
}

// Redrive moves dead letters back to work at a bounded rate (100/s unless set), with
// their identity, so that what an earlier attempt applied is skipped. It refuses when
// the keys may be gone that would do so, until the last letter has moved. It moves what
// was dead when it looked, and without any letter it does nothing.
//
// clock dates "now"; nil is the machine's.
//
// Errors: [*TooOldError]; [*postroom.ArgumentError] if Retention is not shorter than
// Window, or To is another queue and SharedKeys is not set; as for Broker.Redrive.
func Redrive(ctx context.Context, b *postroom.Broker, queue string, clock Clock, c RedriveConfig) (postroom.Redriven, error) {
	bad := func(field, problem string) (postroom.Redriven, error) {
		return postroom.Redriven{}, &postroom.ArgumentError{Op: "redrive", Argument: field, Problem: problem}
	}
	if b == nil {
		return bad("broker", "must not be nil")
	}
	or(&c.Window, DefaultWindow)
	or(&c.Retention, DefaultRetention)
	if c.Retention < 0 || c.Retention >= c.Window {
		return bad("Retention", "must be shorter than Window: keys outlive dead letters")
	}
	if c.Max < 0 || c.Rate < 0 {
		return bad("Max and Rate", "must not be negative")
	}
	if c.To != "" && c.To != queue && !c.SharedKeys {
		return bad("To", "must be the queue itself, unless SharedKeys says that its workers know the same keys")
	}
	if !c.Force {
		seen, err := c.refuseOld(ctx, b, queue, orSystem(clock).Now())
		if err != nil || seen == 0 {
			return postroom.Redriven{}, err
		}
		// Oldest first, so that what has died meanwhile, and was not looked at, stays.
		c.Max = seen
	}
	return b.Redrive(ctx, queue, c.RedriveConfig)
}

// refuseOld looks at the letters that the redrive would move, and counts them.
func (c *RedriveConfig) refuseOld(ctx context.Context, b *postroom.Broker, queue string, now time.Time) (seen int, err error) {
	const page = 500
	rate := c.Rate
	or(&rate, messages.DefaultRedriveRate)
	old := &TooOldError{Queue: queue}
	after := uint64(0)
	for {
		letters, err := b.DeadLetters(ctx, queue, after, page)
		if err != nil {
			return seen, err
		}
		for i := range letters {
			if c.Max > 0 && seen == c.Max {
				break
			}
			// The rate makes the last letter move later than the first.
			moves := now.Add(time.Duration(float64(seen) / rate * float64(time.Second)))
			seen++
			if died, tooOld := c.tooOld(&letters[i], moves); tooOld {
				old.Letters++
				if len(old.IDs) < 10 {
					old.IDs = append(old.IDs, letters[i].ID)
				}
				if old.Oldest.IsZero() || died.Before(old.Oldest) {
					old.Oldest = died
				}
			}
		}
		if len(letters) < page || c.Max > 0 && seen >= c.Max {
			break
		}
		after = letters[len(letters)-1].Number
	}
	if old.Letters > 0 {
		return seen, old
	}
	return seen, nil
}

// tooOld reports whether a letter's key may be gone when it moves, and when it first died.
func (c *RedriveConfig) tooOld(l *postroom.DeadLetter, moves time.Time) (time.Time, bool) {
	first := l.DiedAt
	if len(l.History) > 0 && l.History[0].At.Before(first) {
		first = l.History[0].At
	}
	return first, moves.Sub(first) >= c.Retention || // its key may date from before that death
		l.Deaths <= 1 && moves.Sub(l.EnqueuedAt) >= c.Window || // it was long in its queue
		l.Deaths > len(l.History) // when it first died is no longer known
}
