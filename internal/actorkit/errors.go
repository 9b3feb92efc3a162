package actorkit

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Reasons, for errors.Is. The circumstances are in the struct that wraps them.
var (
	// ErrCrashed: the actor panicked over the message. What it had done by then is
	// not known.
	ErrCrashed = errors.New("actor crashed")
	// ErrStopped: the actor stopped before it looked at the message. Nothing
	// happened.
	ErrStopped = errors.New("actor stopped")
	// ErrGoexit is the reason of a crash by runtime.Goexit, as t.FailNow does it.
	ErrGoexit = errors.New("runtime.Goexit in an actor")
	// ErrNameTaken: an actor of this name is still there.
	ErrNameTaken = actor.ErrNameExists
	// ErrForeignDeadline: see [ForeignDeadlineError].
	ErrForeignDeadline = errors.New("deadline is not on the runtime's clock")
)

// CrashError answers the message over which an actor panicked. It wraps
// [ErrCrashed]; whether the message took effect is not known.
type CrashError struct {
	Actor  string // its path, such as "orders/broker/queue-a"
	Reason any    // the value of the panic
}

func (e *CrashError) Error() string {
	return fmt.Sprintf("%s: %v: %v", e.Actor, ErrCrashed, e.Reason)
}

// Unwrap returns [ErrCrashed]. The value of the panic is not unwrapped: that an
// actor panicked with some error does not make that error the outcome.
func (e *CrashError) Unwrap() error { return ErrCrashed }

// Hint says what the caller can do about it.
func (e *CrashError) Hint() string {
	return "the command may have happened: look before repeating it, or repeat it with the same id"
}

// StoppedError answers a message that reached an actor too late. It wraps
// [ErrStopped]; the message took no effect.
type StoppedError struct {
	Actor string // its path
}

func (e *StoppedError) Error() string { return fmt.Sprintf("%s: %v", e.Actor, ErrStopped) }

// Unwrap returns [ErrStopped].
func (e *StoppedError) Unwrap() error { return ErrStopped }

// Hint says what the caller can do about it.
func (e *StoppedError) Hint() string {
	return "the command did not happen; its queue or broker is closed or was deleted"
}

// ForeignDeadlineError refuses a context whose deadline is on another clock than
// the runtime's: the wait would never end. It wraps [ErrForeignDeadline].
type ForeignDeadlineError struct {
	Deadline time.Time
}

func (e *ForeignDeadlineError) Error() string {
	return fmt.Sprintf("context with deadline %v: %v", e.Deadline.UTC().Format(time.RFC3339Nano), ErrForeignDeadline)
}

// Unwrap returns [ErrForeignDeadline].
func (e *ForeignDeadlineError) Unwrap() error { return ErrForeignDeadline }

// Hint says what the caller can do about it.
func (e *ForeignDeadlineError) Hint() string { return "use World.WithTimeout / Broker.WithTimeout" }

// SpawnError says why an actor could not be started. It wraps [ErrNameTaken].
type SpawnError struct {
	Name   string
	Reason error
}

func (e *SpawnError) Error() string { return fmt.Sprintf("spawn %q: %v", e.Name, e.Reason) }

// Unwrap returns the reason.
func (e *SpawnError) Unwrap() error { return e.Reason }
