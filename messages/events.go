package messages

import (
	"fmt"
	"time"
)

// Listener is told of what happens inside a broker (SPEC O1). It is called on the
// goroutine of the actor concerned, so it must be quick, must not block and must
// not wait for the broker. With a listener set, no call runs on its caller's
// goroutine, so a listener never meets a lock that the caller holds.
type Listener func(Notice)

// Notice is one thing that happened: a closed set, below. Its String holds no
// body, header value or error text (SPEC O3).
type Notice interface {
	fmt.Stringer
	isNotice()
}

// The notices. Consumer is a consumer tag; empty where nobody in particular held
// the message.
type (
	// Accepted: a put was taken.
	Accepted struct {
		Queue, ID string
		Delayed   time.Duration
	}
	// Refused: a put was not. Reason is one of the Err… values.
	Refused struct {
		Queue, ID string
		Reason    error
	}
	// Delivered: a message was lent.
	Delivered struct {
		Queue, ID, Consumer string
		Tag                 uint64
		Attempt             int
		Deadline            time.Time
	}
	// Settled: a lease ended, or ran on (VerbTouch), by its holder's word.
	Settled struct {
		Queue string
		Tag   uint64
		Verb  Verb
	}
	// Stale: a settle came for a lease that was not running. A stale ack is a late
	// ack: the sign of a lease that is too short (SPEC O2).
	Stale struct {
		Queue string
		Tag   uint64
		Verb  Verb
		Ended LeaseEnd
	}
	// LeaseRanOut: a lease ran out.
	LeaseRanOut struct {
		Queue, Consumer string
		Tag             uint64
	}
	// Died: a message became a dead letter.
	Died struct {
		Queue, ID  string
		Reason     Reason
		Attempts   int
		ErrorBytes int // the text itself is in the letter
	}
	// Trimmed: a dead letter went because of a limit.
	Trimmed struct {
		Queue, ID string
		Number    uint64
	}
	// AlarmRaised: a threshold was crossed.
	AlarmRaised struct {
		Queue string
		Alarm Alarm
	}
	// HandlerCrashed: a handler panicked. Reason and Stack are for a debugger; they
	// may hold payload, so String leaves them out.
	HandlerCrashed struct {
		Queue, Consumer string
		Tag             uint64
		Reason          any
		Stack           []byte
	}
	// HandlerStuck: a handler went on after its timeout.
	HandlerStuck struct {
		Queue, Consumer string
		Tag             uint64
	}
	// WorkerRestarted: a crashed worker runs again.
	WorkerRestarted struct {
		Queue, Consumer string
		After           time.Duration
	}
	// ConsumerStopped: a consumer ended; Reason is nil after Cancel.
	ConsumerStopped struct {
		Queue, Consumer string
		Reason          error
	}
	// ActorCrashed: one of the broker's own actors, or a subscriber, panicked.
	ActorCrashed struct {
		Actor  string
		Reason any
		Stack  []byte
	}
	// Quarantined: a queue failed its own checks and refuses work.
	Quarantined struct {
		Queue  string
		Reason error
	}
	// EventDropped: a subscriber's buffer was full.
	EventDropped struct{ Subscription, Topic string }
	// CopyRefused: a bound queue did not take a publication (SPEC T4).
	CopyRefused struct {
		Queue, Topic string
		Reason       error
	}
)

// Alarm is a threshold of a queue.
type Alarm uint8

// The alarms.
const (
	DeadLetterCount Alarm = iota + 1 // DeadLetterAlarm letters are held
	OldestAge                        // the oldest message is older than MaxAge
)

func (a Alarm) String() string {
	switch a {
	case DeadLetterCount:
		return "dead_letters"
	case OldestAge:
		return "oldest_age"
	}
	return "unknown alarm"
}

func (Accepted) isNotice()        {}
func (Refused) isNotice()         {}
func (Delivered) isNotice()       {}
func (Settled) isNotice()         {}
func (Stale) isNotice()           {}
func (LeaseRanOut) isNotice()     {}
func (Died) isNotice()            {}
func (Trimmed) isNotice()         {}
func (AlarmRaised) isNotice()     {}
func (HandlerCrashed) isNotice()  {}
func (HandlerStuck) isNotice()    {}
func (WorkerRestarted) isNotice() {}
func (ConsumerStopped) isNotice() {}
func (ActorCrashed) isNotice()    {}
func (Quarantined) isNotice()     {}
func (EventDropped) isNotice()    {}
func (CopyRefused) isNotice()     {}

func (n Accepted) String() string { return fmt.Sprintf("accepted %s in %s", n.ID, n.Queue) }
func (n Refused) String() string  { return fmt.Sprintf("refused %s for %s", n.ID, n.Queue) }
func (n Delivered) String() string {
	return fmt.Sprintf("delivered %s of %s to %s, tag %d, attempt %d", n.ID, n.Queue, n.Consumer, n.Tag, n.Attempt)
}
func (n Settled) String() string { return fmt.Sprintf("%s tag %d of %s", n.Verb, n.Tag, n.Queue) }
func (n Stale) String() string {
	return fmt.Sprintf("stale %s tag %d of %s: lease %s", n.Verb, n.Tag, n.Queue, n.Ended)
}
func (n LeaseRanOut) String() string {
	return fmt.Sprintf("lease expired tag %d of %s, held by %s", n.Tag, n.Queue, n.Consumer)
}
func (n Died) String() string {
	return fmt.Sprintf("died %s of %s: %s after %d attempts", n.ID, n.Queue, n.Reason, n.Attempts)
}
func (n Trimmed) String() string {
	return fmt.Sprintf("trimmed dead letter %d of %s", n.Number, n.Queue)
}
func (n AlarmRaised) String() string { return fmt.Sprintf("alarm %s of %s", n.Alarm, n.Queue) }
func (n HandlerCrashed) String() string {
	return fmt.Sprintf("handler crashed: %s on tag %d of %s", n.Consumer, n.Tag, n.Queue)
}
func (n HandlerStuck) String() string {
	return fmt.Sprintf("handler stuck: %s on tag %d of %s", n.Consumer, n.Tag, n.Queue)
}
func (n WorkerRestarted) String() string {
	return fmt.Sprintf("worker restarted: %s of %s after %s", n.Consumer, n.Queue, n.After)
}
func (n ConsumerStopped) String() string {
	return fmt.Sprintf("consumer stopped: %s of %s", n.Consumer, n.Queue)
}
func (n ActorCrashed) String() string { return fmt.Sprintf("actor crashed: %s", n.Actor) }
func (n Quarantined) String() string  { return fmt.Sprintf("quarantined %s", n.Queue) }
func (n EventDropped) String() string {
	return fmt.Sprintf("event dropped for %s on %s", n.Subscription, n.Topic)
}
func (n CopyRefused) String() string {
	return fmt.Sprintf("copy refused by %s on %s", n.Queue, n.Topic)
}
