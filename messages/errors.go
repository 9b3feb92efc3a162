package messages

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Reasons, for errors.Is. Each typed error below unwraps to one of them.
//
// Errors by the moment in which they can occur:
//
//   - before anything was sent: [ErrArgument], [ErrLimit], [ErrBrokerClosed],
//     [ErrNotFound], [ErrBusy]; nothing has happened.
//   - answered by the queue: [ErrQueueFull], [ErrIDReused], [ErrExpired],
//     [ErrDraining], [ErrQueueClosed], [ErrStale], [ErrEmpty], [ErrInUse],
//     [ErrConfigConflict], [ErrQuarantined]; nothing has happened.
//   - while waiting: [*OutcomeError] says whether it may have happened.
var (
	ErrArgument       = errors.New("bad argument")
	ErrLimit          = errors.New("over a limit")
	ErrNotFound       = errors.New("not found")
	ErrBrokerClosed   = errors.New("broker closed")
	ErrQueueClosed    = errors.New("queue closed")
	ErrQueueFull      = errors.New("queue full")
	ErrBusy           = errors.New("busy")
	ErrDraining       = errors.New("queue draining")
	ErrQuarantined    = errors.New("queue quarantined")
	ErrResumed        = errors.New("resumed before it was empty")
	ErrIDReused       = errors.New("id reused for another body")
	ErrExpired        = errors.New("expired before it was put")
	ErrEmpty          = errors.New("queue empty")
	ErrStale          = errors.New("stale lease")
	ErrInUse          = errors.New("queue in use")
	ErrConfigConflict = errors.New("queue declared with other settings")
	ErrOutcomeUnknown = errors.New("outcome unknown")
	ErrNotSent        = errors.New("not sent")
	ErrNoDoor         = errors.New("delivery has no door: settle it by message")
)

// ErrLeaseLost is the cause of a handler's cancelled context when its lease ran
// out (SPEC Q10, C4).
var ErrLeaseLost = errors.New("lease lost")

// ErrHandlerTimeout is the cause of a handler's cancelled context when its
// HandlerTimeout passed (SPEC C5).
var ErrHandlerTimeout = errors.New("handler timeout")

// Hinter is implemented by every typed error: one sentence that says what to do.
type Hinter interface{ Hint() string }

// Hint returns what to do about err, or "" where nothing better is known.
func Hint(err error) string {
	var h Hinter
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// ArgumentError is a bad argument; nothing was changed. Wraps [ErrArgument].
type ArgumentError struct {
	Op, Argument, Problem string
}

func (e *ArgumentError) Error() string { return fmt.Sprintf("%s: %s %s", e.Op, e.Argument, e.Problem) }
func (e *ArgumentError) Unwrap() error { return ErrArgument }

// Hint says what to do.
func (e *ArgumentError) Hint() string { return "correct the argument; nothing was changed" }

// LimitError is an argument over a limit; nothing was changed. Wraps [ErrLimit].
type LimitError struct {
	Op, What   string
	Limit, Got int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %s %d, limit %d", e.Op, e.What, e.Got, e.Limit)
}
func (e *LimitError) Unwrap() error { return ErrLimit }

// Hint says what to do.
func (e *LimitError) Hint() string {
	return "make it smaller, keep the payload elsewhere and send a reference, or raise Limits"
}

// QueueNotFoundError is an operation on a queue that was not declared, or was
// deleted (SPEC B2). Wraps [ErrNotFound].
type QueueNotFoundError struct{ Op, Queue string }

func (e *QueueNotFoundError) Error() string {
	return fmt.Sprintf("%s: no queue %q", e.Op, e.Queue)
}
func (e *QueueNotFoundError) Unwrap() error { return ErrNotFound }

// Hint says what to do.
func (e *QueueNotFoundError) Hint() string {
	return "declare the queue first; the broker forgets its queues at restart"
}

// NotFoundError is the undoing of a consumer, subscription, binding, dead letter
// or redrive that does not exist (SPEC T7). Wraps [ErrNotFound].
type NotFoundError struct{ Op, What, Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s: no %s %q", e.Op, e.What, e.Name) }
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// Hint says what to do.
func (e *NotFoundError) Hint() string { return "it is gone already, so there is nothing left to undo" }

// QueueConfigConflictError is a declaration that differs from the one in force
// (SPEC B1). Wraps [ErrConfigConflict].
type QueueConfigConflictError struct {
	Queue  string
	Fields []string
}

func (e *QueueConfigConflictError) Error() string {
	return fmt.Sprintf("declare queue %q: other settings in %s", e.Queue, strings.Join(e.Fields, ", "))
}
func (e *QueueConfigConflictError) Unwrap() error { return ErrConfigConflict }

// Hint says what to do.
func (e *QueueConfigConflictError) Hint() string {
	return "use the settings in force, another name, or delete the queue first"
}

// QueueFullError is a put beyond MaxMessages or MaxBytes (SPEC A1); the message
// was not taken. Wraps [ErrQueueFull].
type QueueFullError struct {
	Queue string
	// Limit is "messages" or "bytes", Max its value and Current the use of it.
	Limit        string
	Max, Current int64
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("put: queue %q is full: %d of %d %s", e.Queue, e.Current, e.Max, e.Limit)
}
func (e *QueueFullError) Unwrap() error { return ErrQueueFull }

// Hint says what to do.
func (e *QueueFullError) Hint() string {
	field := "MaxMessages"
	if e.Limit == "bytes" {
		field = "MaxBytes"
	}
	return "slow the producer down, add consumers, or raise " + field
}

// PutError is a put that the queue refused. It wraps [ErrIDReused], [ErrExpired],
// [ErrDraining], [ErrBusy], [ErrQuarantined] or [ErrQueueClosed].
type PutError struct {
	Queue, ID string
	Reason    error
}

func (e *PutError) Error() string {
	return fmt.Sprintf("put %q into queue %q: %v", e.ID, e.Queue, e.Reason)
}
func (e *PutError) Unwrap() error { return e.Reason }

// Hint says what to do.
func (e *PutError) Hint() string {
	switch e.Reason {
	case ErrIDReused:
		return "one id means one message: give another body another id"
	case ErrExpired:
		return "the deadline had passed when the put arrived; drop it or give it more time"
	case ErrDraining:
		return "the queue is emptying on purpose; put elsewhere or call Resume"
	case ErrBusy:
		return "the queue's inbox is full; try again later, or put through a Publisher"
	}
	return closedHint
}

const closedHint = "the queue takes no more commands; look at the log for why, or declare it again"

// QueueStateError is a command, other than a put, that a closed, deleted or
// quarantined queue refused. Wraps [ErrQueueClosed] or [ErrQuarantined].
type QueueStateError struct {
	Op, Queue string
	Reason    error
}

func (e *QueueStateError) Error() string {
	return fmt.Sprintf("%s: queue %q: %v", e.Op, e.Queue, e.Reason)
}
func (e *QueueStateError) Unwrap() error { return e.Reason }

// Hint says what to do.
func (e *QueueStateError) Hint() string { return closedHint }

// StaleError is a settle for a lease that is not running (SPEC Q8); nothing
// changed but the stale counter. Wraps [ErrStale].
type StaleError struct {
	Verb    Verb
	Receipt Receipt
	// Issued is false when the queue never gave this tag out.
	Issued bool
	// Ended is how the lease ended, or LeaseRunning when that is no longer known
	// (the queue remembers its last 4,096 ended leases).
	Ended LeaseEnd
}

func (e *StaleError) Error() string {
	cause := "never issued"
	if e.Issued {
		cause = "over"
		if e.Ended != LeaseRunning {
			cause += ": " + e.Ended.String()
		}
	}
	return fmt.Sprintf("%s tag %d of queue %q: stale, %s", e.Verb, e.Receipt.Tag, e.Receipt.Queue, cause)
}
func (e *StaleError) Unwrap() error { return ErrStale }

// Hint says what to do.
func (e *StaleError) Hint() string {
	switch {
	case !e.Issued:
		return "settle with the receipt of a delivery from this queue"
	case e.Ended == LeaseExpired:
		return "the work outlived its lease and may run twice: raise AckTimeout, keep the heartbeat on, or make the handler idempotent"
	case e.Ended == LeaseReturned:
		return "the lease was taken back before this answer, so the work may run twice: make the handler idempotent"
	case e.Ended == LeaseRunning:
		return "how the lease ended is no longer known, so the work may run twice: make the handler idempotent"
	default:
		return "the delivery is settled already; a second answer is harmless"
	}
}

// LeaseEnd is how a lease ended.
type LeaseEnd uint8

// The ends of a lease.
const (
	LeaseRunning  LeaseEnd = iota // not ended, or not known any more
	LeaseAcked                    // the message is gone
	LeaseNacked                   // given back, or rejected, by its holder
	LeaseExpired                  // the deadline came first
	LeaseReturned                 // interrupted, or taken back with its holder
)

var leaseEndNames = [...]string{"running", "acked", "nacked", "expired", "returned"}

func (l LeaseEnd) String() string {
	if int(l) < len(leaseEndNames) {
		return leaseEndNames[l]
	}
	return "unknown end"
}

// InUseError is a delete refused because of IfEmpty or IfUnused (SPEC Q14). Wraps
// [ErrInUse].
type InUseError struct {
	Queue               string
	Messages, Consumers int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("delete queue %q: in use: %d messages, %d consumers", e.Queue, e.Messages, e.Consumers)
}
func (e *InUseError) Unwrap() error { return ErrInUse }

// Hint says what to do.
func (e *InUseError) Hint() string {
	return "drain the queue and cancel its consumers first, or delete without the condition"
}

// OutcomeError is a call that ended before its answer came (SPEC G1). Unwraps to
// both its cause and [ErrNotSent] or [ErrOutcomeUnknown].
type OutcomeError struct {
	Op string
	// Sent tells the two apart: false, and the command never left; true, and it
	// may have taken effect.
	Sent bool
	// Cause is why the wait ended, usually context.Cause.
	Cause error
}

func (e *OutcomeError) Error() string { return fmt.Sprintf("%s: %v: %v", e.Op, e.kind(), e.Cause) }

func (e *OutcomeError) kind() error {
	if e.Sent {
		return ErrOutcomeUnknown
	}
	return ErrNotSent
}

// Unwrap returns the kind and the cause.
func (e *OutcomeError) Unwrap() []error { return []error{e.kind(), e.Cause} }

// Hint says what to do.
func (e *OutcomeError) Hint() string {
	if e.Sent {
		return "it may have happened: repeat it with the same id, and a second one counts as a duplicate"
	}
	return "nothing happened; repeat it when there is time"
}

// permanent marks an error that no retry will cure.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks err so that a handler that returns it rejects the message: dead
// at once, reason [Rejected], without further attempts (SPEC C2). Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or an error it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

// RetryInError asks, as a handler's error, for the next attempt after exactly Delay
// instead of the queue's own retry delay.
type RetryInError struct {
	Delay time.Duration // a negative one counts as 0: now
	Cause error
}

func (e *RetryInError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("retry in %s", e.Delay)
	}
	return fmt.Sprintf("retry in %s: %v", e.Delay, e.Cause)
}
func (e *RetryInError) Unwrap() error { return e.Cause }
