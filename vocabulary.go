package postroom

import (
	"errors"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/messages"
)

// The vocabulary of package messages, under the door's name.
type (
	Envelope       = messages.Envelope
	Delivery       = messages.Delivery
	Receipt        = messages.Receipt
	Event          = messages.Event
	DeadLetter     = messages.DeadLetter
	Death          = messages.Death
	Reason         = messages.Reason
	Limits         = messages.Limits
	QueueConfig    = messages.QueueConfig
	RetryBudget    = messages.RetryBudget
	Overflow       = messages.Overflow
	ConsumerConfig = messages.ConsumerConfig
	GetConfig      = messages.GetConfig
	QueueStats     = messages.QueueStats
	BrokerStats    = messages.BrokerStats
	PublishResult  = messages.PublishResult
	SettleResult   = messages.SettleResult
	PutResult      = messages.PutResult
	Deleted        = messages.Deleted
	Redriven       = messages.Redriven
	Listener       = messages.Listener
	Notice         = messages.Notice
	Verb           = messages.Verb
	DeathNotice    = actors.DeathNotice
	Handler        = actors.Handler
)

// The typed errors. Each unwraps to one of the Err… values and has a Hint.
type (
	ArgumentError            = messages.ArgumentError
	LimitError               = messages.LimitError
	QueueNotFoundError       = messages.QueueNotFoundError
	NotFoundError            = messages.NotFoundError
	QueueConfigConflictError = messages.QueueConfigConflictError
	QueueFullError           = messages.QueueFullError
	PutError                 = messages.PutError
	QueueStateError          = messages.QueueStateError
	StaleError               = messages.StaleError
	InUseError               = messages.InUseError
	OutcomeError             = messages.OutcomeError
	StuckError               = actors.StuckError
)

// Reasons to look for with errors.Is; see package messages for when each occurs.
var (
	ErrArgument       = messages.ErrArgument
	ErrLimit          = messages.ErrLimit
	ErrNotFound       = messages.ErrNotFound
	ErrBrokerClosed   = messages.ErrBrokerClosed
	ErrQueueClosed    = messages.ErrQueueClosed
	ErrQueueFull      = messages.ErrQueueFull
	ErrBusy           = messages.ErrBusy
	ErrDraining       = messages.ErrDraining
	ErrQuarantined    = messages.ErrQuarantined
	ErrResumed        = messages.ErrResumed
	ErrIDReused       = messages.ErrIDReused
	ErrExpired        = messages.ErrExpired
	ErrEmpty          = messages.ErrEmpty
	ErrStale          = messages.ErrStale
	ErrInUse          = messages.ErrInUse
	ErrConfigConflict = messages.ErrConfigConflict
	ErrOutcomeUnknown = messages.ErrOutcomeUnknown
	ErrNotSent        = messages.ErrNotSent
	ErrLeaseLost      = messages.ErrLeaseLost
	ErrHandlerTimeout = messages.ErrHandlerTimeout
	ErrCrashLoop      = actors.ErrCrashLoop
)

// Unlimited switches a bound off where its zero value means the default.
const Unlimited = messages.Unlimited

// What a full queue does, and the verbs of a settle.
const (
	Refuse     = messages.Refuse
	DropOldest = messages.DropOldest

	VerbAck     = messages.VerbAck
	VerbNack    = messages.VerbNack
	VerbNackIn  = messages.VerbNackIn
	VerbReject  = messages.VerbReject
	VerbRelease = messages.VerbRelease
	VerbTouch   = messages.VerbTouch
)

// Why a message died.
const (
	Rejected    = messages.Rejected
	MaxAttempts = messages.MaxAttempts
	Expired     = messages.Expired
	Overflowed  = messages.Overflowed
)

// Hint returns one sentence on what to do about err, or "" where nothing better is
// known, as for an error that is not the broker's.
func Hint(err error) string {
	if hint := messages.Hint(err); hint != "" {
		return hint
	}
	for _, h := range bareHints {
		if errors.Is(err, h.reason) {
			return h.hint
		}
	}
	return ""
}

// bareHints are for the reasons that come without a struct around them.
var bareHints = []struct {
	reason error
	hint   string
}{
	{ErrBrokerClosed, "nothing happened, and in memory the queues are gone; open a broker and declare them again"},
	{ErrQueueClosed, "the queue is gone, and nothing happened; declare it again"},
	{ErrEmpty, "ask again later, or without NoWait to wait for a message"},
	{ErrBusy, "nothing happened; try again when earlier puts are done, or without NoWait to wait for it"},
	{messages.ErrNoDoor, "send the queue an Ack, Nack, Reject or Touch message with the delivery's Receipt"},
}

// Permanent marks an error that no retry will cure: a handler that returns it
// rejects the message.
func Permanent(err error) error { return messages.Permanent(err) }
