package simulation

import (
	"fmt"
	"strings"
	"time"
)

// Kind is what an event tells of. The set is closed; its names are those of the
// scenario text, the report and the anchors of faults.
type Kind uint8

// The kinds of event, in the order of a message's life.
const (
	noEvent Kind = iota

	KindPut       // a producer calls put
	KindAccepted  // the queue took it; Reason redriven for a redrive, Deadline when delayed
	KindDuplicate // the queue had it already; nothing changed
	KindRefused   // the queue did not take it: Reason
	KindUnknown   // the producer does not know: Reason

	KindGrant   // lent: Tag, Attempt, Deliveries, Deadline, Consumer
	KindStart   // a handler began to work on it
	KindEffect  // a handler did something outside: Detail is "external key"
	KindReturn  // a handler returned: Reason is its error, empty for nil
	KindTouch   // a lease runs on: Deadline
	KindSettle  // a lease ended by its holder's word: Verb
	KindStale   // a settle came for a lease that was not running: Verb, Reason is how it had ended
	KindExpire  // a lease ran out
	KindTaken   // a lease was taken back with its holder
	KindReady   // a delay is over, or the retry budget let it go
	KindDead    // became a dead letter: Reason
	KindPurged  // removed by a purge
	KindDropped // went with its queue
	KindRedrive // a dead letter left for a queue
	KindTrimmed // a dead letter is gone: Reason is over a limit, discarded, or with its queue

	KindCrash    // a worker's handler panicked, or was killed: Reason
	KindRestart  // a worker runs again, Incarnation is the new one
	KindHang     // a handler hangs: Detail says how long
	KindPause    // a worker, or a queue, does nothing more for a while
	KindResume   // it goes on
	KindAttach   // a worker's consumer competes
	KindDetach   // a worker's consumer was cancelled
	KindStopped  // a consumer ended: Reason
	KindActor    // one of the broker's own actors crashed: Detail is its name and the point
	KindQueue    // declared, closed, deleted, drained, quarantined: Detail
	KindAnnounce // a death was heard of on $sys.dead
	KindAlarm    // an alarm of the broker: Detail

	KindFault     // a fault of the plan struck: Detail is its text
	KindCalm      // no more faults: from here on everything must come to its end
	KindEnd       // the run is over
	KindViolation // an oracle objects: Reason is the invariant, Detail what it saw
	kinds
)

var kindNames = [kinds]string{
	"none", "put", "accepted", "duplicate", "refused", "unknown",
	"grant", "start", "effect", "return", "touch", "settle", "stale", "expire", "taken", "ready",
	"dead", "purged", "dropped", "redrive", "trimmed",
	"crash", "restart", "hang", "pause", "resume", "attach", "detach", "stopped", "actor", "queue", "announce", "alarm",
	"fault", "calm", "end", "violation",
}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Kinds lists all kinds of event, for tables and legends.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds-1)
	for k := KindPut; k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// ParseKind is the reverse of String. Errors: the name is not one of a kind.
func ParseKind(name string) (Kind, error) {
	for k := KindPut; k < kinds; k++ {
		if kindNames[k] == name {
			return k, nil
		}
	}
	return noEvent, fmt.Errorf("%q is no kind of event; they are %s", name, strings.Join(kindNames[1:], ", "))
}

// MarshalText implements [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Kind) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKind(string(text))
	return err
}

// Event is one thing that happened in a run: plain data, with nothing in it that
// differs between two runs of one plan. Which fields are set depends on Kind; the
// zero value of a field means that it says nothing.
type Event struct {
	// Number is 1, 2, 3, … without a gap, in the order of the run.
	Number int `json:"n"`
	// Cause is the number of the event without which this one would not be, always
	// smaller; 0 is the beginning of the run.
	Cause int `json:"cause,omitempty"`
	// At is the virtual time since [Epoch]. It never goes back.
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`

	Queue string `json:"queue,omitempty"`
	// Message is the name of the message: m1, m2, … for the items of a plan, its id
	// for all others.
	Message string `json:"message,omitempty"`
	// Put is the put number within the queue's incarnation, Generation how often the
	// name was accepted before, by another put or a redrive.
	Put        uint64 `json:"put,omitempty"`
	Generation int    `json:"generation,omitempty"`

	// Worker is who works, by the name of [World.Workers]: mailer-1. Incarnation counts
	// its starts, from 1. Consumer is the consumer tag it works under.
	Worker      string `json:"worker,omitempty"`
	Incarnation int    `json:"incarnation,omitempty"`
	Consumer    string `json:"consumer,omitempty"`

	// Tag is the delivery tag of the lease, Attempt and Deliveries are the message's
	// counts as the lease began.
	Tag        uint64 `json:"tag,omitempty"`
	Attempt    int    `json:"attempt,omitempty"`
	Deliveries int    `json:"deliveries,omitempty"`
	// Deadline is when the lease ends (grant, touch), or a delay does (settle, expire),
	// since [Epoch]. 0: never, or not delayed.
	Deadline time.Duration `json:"deadline,omitempty"`

	// Verb is that of a settle: ack, nack, nack_in, reject, release.
	Verb string `json:"verb,omitempty"`
	// Reason says why, in a few fixed words: part of a violation's signature.
	Reason string `json:"reason,omitempty"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
}

// String is the event in one line that is stable across runs: instant, kind,
// message#delivery, worker and what else is set.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10v %-9s", e.At, e.Kind)
	if e.Message != "" {
		b.WriteByte(' ')
		b.WriteString(e.Message)
		if e.Generation > 0 {
			fmt.Fprintf(&b, "+%d", e.Generation)
		}
		if e.Deliveries > 0 {
			fmt.Fprintf(&b, "#%d", e.Deliveries)
		}
	}
	if e.Worker != "" {
		b.WriteString(" -> ")
		b.WriteString(e.Worker)
		if e.Incarnation > 1 {
			fmt.Fprintf(&b, "'%d", e.Incarnation)
		}
	} else if e.Consumer != "" {
		b.WriteString(" -> ")
		b.WriteString(e.Consumer)
	}
	if e.Queue != "" {
		fmt.Fprintf(&b, " queue=%s", e.Queue)
	}
	if e.Tag != 0 {
		fmt.Fprintf(&b, " tag=%d", e.Tag)
	}
	if e.Attempt > 0 {
		fmt.Fprintf(&b, " attempt=%d", e.Attempt)
	}
	if e.Deadline != 0 {
		fmt.Fprintf(&b, " until=%v", e.Deadline)
	}
	if e.Verb != "" {
		fmt.Fprintf(&b, " verb=%s", e.Verb)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " reason=%q", e.Reason)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, " (%s)", e.Detail)
	}
	return b.String()
}

// Terminal reports whether the event ends a message's generation.
func (e Event) Terminal() bool {
	switch e.Kind {
	case KindDead, KindPurged, KindDropped:
		return true
	case KindSettle:
		return e.Verb == "ack"
	}
	return false
}
