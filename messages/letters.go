package messages

import "time"

// Reason is why a message died.
type Reason uint8

// The reasons, in the order in which the first that applies is taken (SPEC Q15).
const (
	Rejected    Reason = iota + 1 // a holder said never again
	MaxAttempts                   // its last allowed attempt failed
	Expired                       // its TTL or ExpiresAt came
	Overflowed                    // DropOldest made room
	reasons
)

// Reasons is one more than the last Reason, for tables indexed by it.
const Reasons = int(reasons)

var reasonNames = [Reasons]string{"", "rejected", "max_attempts", "expired", "overflow"}

func (r Reason) String() string {
	if r > 0 && int(r) < Reasons {
		return reasonNames[r]
	}
	return "unknown reason"
}

// Death is one line of a message's history.
type Death struct {
	Queue    string
	Reason   Reason
	Attempts int
	Error    string
	At       time.Time
}

// HistoryMax is how many deaths a message's history keeps; the oldest go first,
// and the count goes on (SPEC R7).
const HistoryMax = 10

// DeadLetter is a message that died, kept until it is redriven, discarded or
// trimmed (SPEC R4).
type DeadLetter struct {
	// Number orders the letters of a queue, oldest first; DeadLetters pages by it.
	Number uint64

	ID      string
	Body    []byte
	Headers map[string]string
	*Details

	// Queue is where it died, and Reason, Error and DiedAt say why and when.
	Queue  string
	Reason Reason
	Error  string
	DiedAt time.Time

	// Attempts and Deliveries are the message's last counts.
	Attempts, Deliveries int
	EnqueuedAt           time.Time

	// History holds the last deaths, this one included; Deaths is their exact count.
	History []Death
	Deaths  int
}

// Bytes is what the letter counts against DeadLetterBytes.
func (l *DeadLetter) Bytes() int64 {
	n := Size(l.ID, l.Body, l.Headers, nil) + int64(len(l.Error))
	if l.Details != nil {
		n += int64(len(l.Extra))
	}
	return n
}

// Envelope returns a deep copy of the message as it was put.
func (l *DeadLetter) Envelope() Envelope {
	d := Delivery{ID: l.ID, Body: l.Body, Headers: l.Headers, Details: l.Details}
	return d.Envelope()
}
