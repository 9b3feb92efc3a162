package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/messages"
)

// Intent is something to be told to another system once a transaction has committed.
type Intent struct {
	// ID is the event key: the receiver's own [Apply] takes it as its identity. Unique
	// within its outbox, as long as the row is kept.
	ID string
	// Order names what the intent is about. Intents with one Order are sent in the
	// order in which they were added, and a parked one holds back those behind it.
	// Empty: in no particular order.
	Order   string
	Payload []byte
	Headers map[string]string
}

// IntentState is where an intent is.
type IntentState int

// The states. Seen from the database: pending ──▶ sent, or pending ──▶ parked ──▶
// pending or dropped.
const (
	IntentPending IntentState = iota
	IntentSent
	IntentParked
)

var intentStateNames = [...]string{"pending", "sent", "parked"}

func (s IntentState) String() string {
	if s >= 0 && int(s) < len(intentStateNames) {
		return intentStateNames[s]
	}
	return "unknown state"
}

// IntentRow is an intent as a [Store] keeps it.
type IntentRow struct {
	Intent
	Seq      int64 // the order in which they were added
	Outbox   string
	AddedAt  time.Time
	DueAt    time.Time // not to be tried again before
	Attempts int       // failed ones
	Error    string    // of the last
}

// Claim gives intents to one dispatcher until an instant, like a lease: who does not
// mark them in time loses them. An intent is free when it was never tried, or its due
// instant has come, and no claim on it runs. One with an Order is given only if everything added before it with
// that Order is sent, or given by the same claim.
type Claim struct {
	Outbox     string
	Name       string // never used twice
	Now, Until time.Time
	Limit      int
}

// Settled is what became of one claimed intent.
type Settled struct {
	Seq   int64
	To    SettledTo
	DueAt time.Time // of the next attempt, with SettledFailed
	Error string    // with SettledFailed and SettledParked
}

// SettledTo is what becomes of an intent.
type SettledTo uint8

// The ends of a claim on an intent.
const (
	SettledSent   SettledTo = iota + 1 // delivered
	SettledFailed                      // an attempt more, due again at DueAt
	SettledParked                      // an attempt more, the last
	SettledFreed                       // not tried
)

// OutboxStats counts an outbox at one instant.
type OutboxStats struct {
	Pending, Sent, Parked int
	// OldestAge is how long the oldest pending intent has waited. Watch it: it grows
	// when no dispatcher runs, and when the receiver is away.
	OldestAge time.Duration
}

func sortIntents(rows []IntentRow) {
	slices.SortFunc(rows, func(a, b IntentRow) int { return cmp.Compare(a.Seq, b.Seq) })
}

func encodeHeaders(h map[string]string) (string, error) {
	if len(h) == 0 {
		return "", nil
	}
	text, err := json.Marshal(h)
	return string(text), err
}

func decodeHeaders(text string) (h map[string]string, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	return h, nil
}

// storable makes an error's text one that every database can keep.
func storable(text string) string {
	return messages.CutError(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD"))
}

// ErrIntentExists is an intent whose ID its outbox has already; see [IntentExistsError].
var ErrIntentExists = errors.New("intent exists")

// IntentExistsError is an Add of an ID that is in the outbox. Inside [Apply] it cannot
// be, unless two operations use one event key. Unwraps to [ErrIntentExists]; permanent.
type IntentExistsError struct{ Outbox, ID string }

func (e *IntentExistsError) Error() string {
	return fmt.Sprintf("add intent %q to outbox %q: it is there already", e.ID, e.Outbox)
}

// Unwrap makes it permanent.
func (e *IntentExistsError) Unwrap() error { return messages.Permanent(ErrIntentExists) }

// Hint says what to do.
func (e *IntentExistsError) Hint() string {
	return "add intents inside Apply, and give each event a key of its own"
}
