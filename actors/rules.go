package actors

import (
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// Ledger is what a queue's actor asks of its rules. [*ledger.Ledger] is the one
// there is; the simulation puts a wrapper around it that asks a second, naive one
// the same and compares the answers. The methods are documented there.
type Ledger interface {
	Put(now time.Time, p *ledger.Put) (ledger.PutResult, error)
	Hasher() func(id string) uint32
	HandOver(now time.Time)

	Ack(now time.Time, tag uint64) error
	AckReturned(now time.Time, consumer string, tag uint64) bool
	Nack(now time.Time, tag uint64, errText string) error
	NackIn(now time.Time, tag uint64, d time.Duration, errText string) error
	Reject(now time.Time, tag uint64, errText string) error
	Release(now time.Time, tag uint64) error
	Touch(now time.Time, tag uint64) (time.Time, error)
	TouchFor(now time.Time, tag uint64, d time.Duration) (time.Time, error)
	LeaseEnd(tag uint64) (issued bool, end messages.LeaseEnd)
	RefuseForeign(verb messages.Verb, r messages.Receipt) error

	Attach(now time.Time, c *ledger.Consumer) error
	Detach(now time.Time, tag string) bool
	HolderEnded(now time.Time, holder string)
	SetPrefetch(now time.Time, tag string, n int) bool
	Started(now time.Time, tag uint64)
	Returned(now time.Time, consumer string, tag uint64)
	Crashed(now time.Time, tag uint64, errText string)
	Want(now time.Time, w *ledger.Waiter)
	Unwant(w *ledger.Waiter) bool

	Pause(now time.Time)
	Resume(now time.Time)
	Drain(now time.Time)
	Purge(now time.Time) int
	Peek(n int) []messages.Delivery
	Close(now time.Time) (messagesDropped, lettersDropped int)
	Quarantine()

	DeadLetters(after uint64, n int) []messages.DeadLetter
	LastLetter() uint64
	Discard(now time.Time, ids []string) int
	RemoveLetter(now time.Time, number uint64) bool
	Redrive(now time.Time, number uint64) (ledger.PutResult, error)

	Tick(now time.Time)
	NextDeadline() (time.Time, bool)
	Behind() bool
	Stats(now time.Time) messages.QueueStats
	Trim()

	Effects() []ledger.Effect
	ClearEffects()
	Fill(e *ledger.Effect, d *messages.Delivery)
	CountBusy()
	CountLostNotice()
	CheckInvariants() error
}

var _ Ledger = (*ledger.Ledger)(nil)

// newLedger makes the rules of one queue incarnation.
func (c *Config) newLedger(source *messages.Source, config *messages.QueueConfig, start time.Time, o ledger.Options) Ledger {
	if c.NewLedger != nil {
		return c.NewLedger(source, config, start, o)
	}
	return ledger.New(source, config, start, o)
}
