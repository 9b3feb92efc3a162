package simulation

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Reasons why a run ends before everything is quiet, for errors.Is.
var (
	// ErrStepLimit: the number of steps is used up.
	ErrStepLimit = errors.New("step limit reached")
	// ErrTimeLimit: the next thing to happen lies behind the bound of the clock.
	ErrTimeLimit = errors.New("time limit reached")
	// ErrStuck: somebody waits, and nothing is left that could end the wait.
	ErrStuck = errors.New("stuck")
	// ErrClosed: the runtime is closed.
	ErrClosed = errors.New("simulation closed")
)

// Wait is one wait under way.
type Wait struct {
	Who   string // the name given to Go, or the path of the actor
	What  string
	Since time.Time
}

func (w Wait) String() string {
	return fmt.Sprintf("%s waits for %s since +%v", w.Who, w.What, w.Since.Sub(Epoch))
}

// LimitError says that a run was ended by one of its bounds. It wraps
// [ErrStepLimit] or [ErrTimeLimit].
type LimitError struct {
	Reached error
	Steps   int
	At      time.Time
	Waits   []Wait
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("simulation: %v at step %d, +%v%s", e.Reached, e.Steps, e.At.Sub(Epoch), list(e.Waits))
}

// Unwrap returns which bound it was.
func (e *LimitError) Unwrap() error { return e.Reached }

// StuckError says that nothing moves although somebody waits. It wraps [ErrStuck].
type StuckError struct {
	At    time.Time
	Waits []Wait
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("simulation: %v at +%v%s", ErrStuck, e.At.Sub(Epoch), list(e.Waits))
}

// Unwrap returns [ErrStuck].
func (e *StuckError) Unwrap() error { return ErrStuck }

// Hint says what it usually comes from.
func (e *StuckError) Hint() string {
	return "an answer was lost, or a wait has no deadline; cancel its context, or let the run end before"
}

// waitsMax is how many waits an error text lists.
const waitsMax = 20

func list(waits []Wait) string {
	if len(waits) == 0 {
		return ""
	}
	var text strings.Builder
	for i, w := range waits {
		if i == waitsMax {
			fmt.Fprintf(&text, "; and %d more", len(waits)-i)
			break
		}
		text.WriteString("; ")
		text.WriteString(w.String())
	}
	return text.String()
}

// PanicError is the panic with which a coroutine ended, and where.
type PanicError struct {
	Who   string
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("simulation: panic in %s: %v\n\n%s", e.Who, e.Value, e.Stack)
}

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
