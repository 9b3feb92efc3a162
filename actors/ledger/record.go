package ledger

import (
	"time"

	"github.com/postroom/postroom/messages"
)

// RecordKind is which durable change a record tells of.
type RecordKind uint8

// The kinds of record.
const (
	RecordPut          RecordKind = iota + 1 // a message came in, by put or redrive
	RecordLent                               // ready to leased
	RecordAcked                              // leased to gone
	RecordReturned                           // leased to ready, delayed, or waiting for the retry budget
	RecordDue                                // delayed to ready, or to waiting
	RecordRetried                            // waiting to ready
	RecordDied                               // from anywhere to dead
	RecordTrimmed                            // a letter went over a limit
	RecordDiscarded                          // a letter was discarded
	RecordRedrivenOut                        // a letter was taken by another queue
	RecordPurged                             // all ready and delayed messages went
	RecordErrored                            // a handler crashed: its error is kept
	RecordClaimFreed                         // an id's window ended
	RecordClaimDropped                       // an id was forgotten at DedupLimit
	RecordPaused
	RecordResumed
	RecordDraining
	RecordClosed
)

var recordNames = [...]string{
	"no record", "put", "lent", "acked", "returned", "due", "retried", "died", "trimmed", "discarded", "redriven out",
	"purged", "errored", "claim freed", "claim dropped", "paused", "resumed", "draining", "closed",
}

func (k RecordKind) String() string {
	if int(k) < len(recordNames) {
		return recordNames[k]
	}
	return "unknown record"
}

// Record is one durable change. It holds outcomes only, never what they were
// decided from: no clock is read, no number drawn and no address looked up again
// when it is folded (SPEC K4). Which fields are set depends on Kind.
type Record struct {
	Kind RecordKind
	At   time.Time

	Number uint64 // the message's put number
	Tag    uint64 // Lent, and the lease ended: Acked, Returned, Died, Errored
	Letter uint64 // Died: the new letter. Put: the own letter redriven. Trimmed and such: the letter gone

	// Put
	ID                string // also of a claim
	GivenID, Redriven bool
	Body              []byte
	Headers           map[string]string
	Details           *messages.Details
	History           []messages.Death
	Deaths            int
	Expires           time.Time // zero: never
	Due               time.Time // Put, Returned: delayed until then; zero: not delayed
	Consumer          string    // Lent: the holder
	Attempt           int       // Lent
	Deliveries        int       // Lent, Put
	Deadline          time.Time // Lent; zero: none
	Timeout           time.Duration
	NoTimeout         bool
	How               messages.LeaseEnd // Returned, Died
	Interrupted       bool              // Returned, Died: no attempt was spent
	Waits             bool              // Returned, Due: for the retry budget
	Reason            messages.Reason   // Died
	Error             string            // Returned, Died, Errored
}

// record keeps a change. It is called when all is decided and nothing is changed
// yet: a panic before it has changed nothing, one after it is repaired by folding (S3).
func (l *Ledger) record(r Record) {
	r.At = l.time(l.clock)
	l.wake()
	l.records = append(l.records, r)
}

// MoveRecords is TakeRecords that appends to a slice of the caller's and keeps its
// own for what comes.
func (l *Ledger) MoveRecords(to []Record) []Record {
	if len(l.records) == 0 {
		return to
	}
	to = append(to, l.records...)
	clear(l.records)
	l.records = l.records[:0]
	return to
}

// TakeRecords returns the records since it was last called, in order.
func (l *Ledger) TakeRecords() []Record {
	r := l.records
	if r != nil {
		l.records = nil
	}
	return r
}
