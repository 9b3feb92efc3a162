package postroom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/postroom/postroom/messages"
)

// SlogOptions says what a [SlogListener] may write.
type SlogOptions struct {
	// ErrorTexts adds the texts of errors and the values and stacks of panics. They
	// come from handlers and may quote the payload, so they stay out unless asked
	// for (SPEC O3). Bodies and header values are never written.
	ErrorTexts bool
}

// SlogListener returns a listener that writes each notice as one record:
//
//	level  message             attributes besides queue
//	Debug  accepted            id, delayed
//	Debug  delivered           id, consumer, tag, attempt, deadline
//	Debug  settled             tag, verb
//	Info   worker restarted    consumer, after
//	Info   consumer stopped    consumer, reason; Warn when its handler crashes in a loop
//	Warn   refused             id, reason
//	Warn   stale               tag, verb, ended
//	Warn   lease expired       consumer, tag
//	Warn   died                id, reason, attempts, error_bytes
//	Warn   trimmed             id, number
//	Warn   alarm               alarm
//	Warn   handler crashed     consumer, tag
//	Warn   handler stuck       consumer, tag
//	Warn   event dropped       subscription, topic (no queue)
//	Warn   copy refused        topic, reason
//	Error  quarantined         reason
//	Error  actor crashed       actor (no queue)
//
// A reason is the text of one of the Err… values, or a death's [Reason], and never
// that of somebody's own error. [SlogOptions] adds error, and stack where there was
// a panic. A "stale" ack is a late one: the sign of a lease that is too short.
//
// The record is written on the goroutine of the actor concerned, before it goes
// on, so the logger's handler must not wait for the network or for the broker.
//
// It panics with an [*ArgumentError] when logger is nil: there is no default one,
// as two brokers must be able to log to two places.
func SlogListener(logger *slog.Logger, o SlogOptions) Listener {
	if logger == nil {
		panic(&ArgumentError{Op: "slog listener", Argument: "logger", Problem: "must not be nil"})
	}
	l := slogListener{logger, o}
	return l.told
}

type slogListener struct {
	logger  *slog.Logger
	options SlogOptions
}

// told picks the level first: most notices are Debug ones that nobody reads, and
// those must cost nothing.
func (l slogListener) told(n Notice) {
	level, message := slogLevel(n)
	ctx := context.Background()
	if !l.logger.Enabled(ctx, level) {
		return
	}
	l.logger.LogAttrs(ctx, level, message, l.attributes(n)...)
}

// slogLevel is the table in SlogListener's comment.
func slogLevel(n Notice) (slog.Level, string) {
	switch n := n.(type) {
	case messages.Accepted:
		return slog.LevelDebug, "accepted"
	case messages.Delivered:
		return slog.LevelDebug, "delivered"
	case messages.Settled:
		return slog.LevelDebug, "settled"
	case messages.WorkerRestarted:
		return slog.LevelInfo, "worker restarted"
	case messages.ConsumerStopped:
		if errors.Is(n.Reason, ErrCrashLoop) {
			return slog.LevelWarn, "consumer stopped"
		}
		return slog.LevelInfo, "consumer stopped"
	case messages.Refused:
		return slog.LevelWarn, "refused"
	case messages.Stale:
		return slog.LevelWarn, "stale"
	case messages.LeaseRanOut:
		return slog.LevelWarn, "lease expired"
	case messages.Died:
		return slog.LevelWarn, "died"
	case messages.Trimmed:
		return slog.LevelWarn, "trimmed"
	case messages.AlarmRaised:
		return slog.LevelWarn, "alarm"
	case messages.HandlerCrashed:
		return slog.LevelWarn, "handler crashed"
	case messages.HandlerStuck:
		return slog.LevelWarn, "handler stuck"
	case messages.EventDropped:
		return slog.LevelWarn, "event dropped"
	case messages.CopyRefused:
		return slog.LevelWarn, "copy refused"
	case messages.Quarantined:
		return slog.LevelError, "quarantined"
	case messages.ActorCrashed:
		return slog.LevelError, "actor crashed"
	default:
		panic(fmt.Sprintf("postroom: no level for notice %T", n))
	}
}

// attributes are named as in the vocabulary, so that one search finds a message
// in the log, the events and the metrics.
func (l slogListener) attributes(n Notice) []slog.Attr {
	queue := func(name string) slog.Attr { return slog.String("queue", name) }
	consumer := func(tag string) slog.Attr { return slog.String("consumer", tag) }
	tag := func(t uint64) slog.Attr { return slog.Uint64("tag", t) }
	switch n := n.(type) {
	case messages.Accepted:
		return []slog.Attr{queue(n.Queue), slog.String("id", n.ID), slog.Duration("delayed", n.Delayed)}
	case messages.Delivered:
		return []slog.Attr{queue(n.Queue), slog.String("id", n.ID), consumer(n.Consumer), tag(n.Tag),
			slog.Int("attempt", n.Attempt), slog.Time("deadline", n.Deadline)}
	case messages.Settled:
		return []slog.Attr{queue(n.Queue), tag(n.Tag), slog.String("verb", n.Verb.String())}
	case messages.WorkerRestarted:
		return []slog.Attr{queue(n.Queue), consumer(n.Consumer), slog.Duration("after", n.After)}
	case messages.ConsumerStopped:
		return l.because(n.Reason, queue(n.Queue), consumer(n.Consumer))
	case messages.Refused:
		return l.because(n.Reason, queue(n.Queue), slog.String("id", n.ID))
	case messages.Stale:
		return []slog.Attr{queue(n.Queue), tag(n.Tag), slog.String("verb", n.Verb.String()), slog.String("ended", n.Ended.String())}
	case messages.LeaseRanOut:
		return []slog.Attr{queue(n.Queue), consumer(n.Consumer), tag(n.Tag)}
	case messages.Died:
		return []slog.Attr{queue(n.Queue), slog.String("id", n.ID), slog.String("reason", n.Reason.String()),
			slog.Int("attempts", n.Attempts), slog.Int("error_bytes", n.ErrorBytes)}
	case messages.Trimmed:
		return []slog.Attr{queue(n.Queue), slog.String("id", n.ID), slog.Uint64("number", n.Number)}
	case messages.AlarmRaised:
		return []slog.Attr{queue(n.Queue), slog.String("alarm", n.Alarm.String())}
	case messages.HandlerCrashed:
		return l.panicked(n.Reason, n.Stack, queue(n.Queue), consumer(n.Consumer), tag(n.Tag))
	case messages.HandlerStuck:
		return []slog.Attr{queue(n.Queue), consumer(n.Consumer), tag(n.Tag)}
	case messages.EventDropped:
		return []slog.Attr{slog.String("subscription", n.Subscription), slog.String("topic", n.Topic)}
	case messages.CopyRefused:
		return l.because(n.Reason, queue(n.Queue), slog.String("topic", n.Topic))
	case messages.Quarantined:
		return l.because(n.Reason, queue(n.Queue))
	case messages.ActorCrashed:
		return l.panicked(n.Reason, n.Stack, slog.String("actor", n.Actor))
	default:
		panic(fmt.Sprintf("postroom: no attributes for notice %T", n))
	}
}

// because adds why: one of our own reasons always, its text only when asked for.
func (l slogListener) because(err error, attrs ...slog.Attr) []slog.Attr {
	if err == nil {
		return attrs
	}
	if reason := reasonOf(err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if l.options.ErrorTexts {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	return attrs
}

func (l slogListener) panicked(value any, stack []byte, attrs ...slog.Attr) []slog.Attr {
	if l.options.ErrorTexts {
		attrs = append(attrs, slog.String("error", fmt.Sprint(value)), slog.String("stack", string(stack)))
	}
	return attrs
}

// reasonOf names an error by the Err… value that it wraps, whose text is ours; ""
// when it is somebody else's.
func reasonOf(err error) string {
	for _, reason := range loggedReasons {
		if errors.Is(err, reason) {
			return reason.Error()
		}
	}
	return ""
}

// loggedReasons are the reasons that a notice can carry.
var loggedReasons = []error{
	ErrQueueFull, ErrIDReused, ErrExpired, ErrDraining, ErrBusy, ErrQuarantined, ErrQueueClosed, ErrBrokerClosed,
	ErrCrashLoop, ErrNotFound, ErrLimit, ErrArgument, ErrOutcomeUnknown,
}
