package messages

import "strings"

// Fixed limits (SPEC E4, T1, R4).
const (
	QueueNameBytesMax = 200
	TopicBytesMax     = 255
	ErrorBytesMax     = 1 << 10
	// SystemTopics is the root of the topics that only the broker publishes to.
	SystemTopics = "$sys."
)

// Limits bound one message. A field of 0 means its default and [Unlimited] none.
type Limits struct {
	IDBytes     int   // 0: 255
	Headers     int   // 0: 64
	HeaderBytes int   // keys, values, content type and Extra together; 0: 64 KiB
	BodyBytes   int64 // 0: 16 MiB
}

// WithDefaults returns l with each 0 replaced by its default.
func (l Limits) WithDefaults() Limits {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&l.IDBytes, 255)
	or(&l.Headers, 64)
	or(&l.HeaderBytes, 64<<10)
	if l.BodyBytes == 0 {
		l.BodyBytes = 16 << 20
	}
	return l
}

// Check says which limit e exceeds, or what else is wrong with it. Call it on
// limits with their defaults in place. Errors: [*LimitError], [*ArgumentError].
func (l *Limits) Check(op string, e *Envelope) error {
	over := func(what string, limit, got int64) error {
		return &LimitError{Op: op, What: what, Limit: limit, Got: got}
	}
	if l.IDBytes >= 0 && len(e.ID) > l.IDBytes {
		return over("id bytes", int64(l.IDBytes), int64(len(e.ID)))
	}
	if l.BodyBytes >= 0 && int64(len(e.Body)) > l.BodyBytes {
		return over("body bytes", l.BodyBytes, int64(len(e.Body)))
	}
	if len(e.Headers) > 0 || e.Extra != nil || e.ContentType != "" {
		if l.Headers >= 0 && len(e.Headers) > l.Headers {
			return over("headers", int64(l.Headers), int64(len(e.Headers)))
		}
		n := len(e.Extra) + len(e.ContentType)
		for k, v := range e.Headers {
			n += len(k) + len(v)
		}
		if l.HeaderBytes >= 0 && n > l.HeaderBytes {
			return over("header bytes", int64(l.HeaderBytes), int64(n))
		}
	}
	if e.Priority < 0 || e.Priority > PriorityMax {
		return &ArgumentError{Op: op, Argument: "Priority", Problem: "must be 0 to 9"}
	}
	if e.Delay < 0 {
		return &ArgumentError{Op: op, Argument: "Delay", Problem: "must not be negative"}
	}
	return nil
}

// CheckQueueName says what is wrong with a queue's name: it must be 1 to 200
// printable ASCII bytes without a slash. Errors: [*ArgumentError], [*LimitError].
func CheckQueueName(op, name string) error {
	if name == "" {
		return &ArgumentError{Op: op, Argument: "queue", Problem: "must not be empty"}
	}
	if len(name) > QueueNameBytesMax {
		return &LimitError{Op: op, What: "queue name bytes", Limit: QueueNameBytesMax, Got: int64(len(name))}
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] < ' ' || name[i] > '~' {
			return &ArgumentError{Op: op, Argument: "queue", Problem: "must be printable ASCII without a slash"}
		}
	}
	return nil
}

// CheckTopic says what is wrong with a topic to publish to: it must be 1 to 255
// bytes and not begin with $sys. (SPEC T1, T6). Errors: [*ArgumentError], [*LimitError].
func CheckTopic(op, topic string) error {
	if err := CheckPattern(op, "topic", topic); err != nil {
		return err
	}
	if strings.HasPrefix(topic, SystemTopics) {
		return &ArgumentError{Op: op, Argument: "topic", Problem: "must not begin with $sys., which is the broker's own"}
	}
	return nil
}

// CheckPattern says what is wrong with a binding or subscription pattern: it must
// be 1 to 255 bytes. Errors: [*ArgumentError], [*LimitError].
func CheckPattern(op, argument, pattern string) error {
	if pattern == "" {
		return &ArgumentError{Op: op, Argument: argument, Problem: "must not be empty"}
	}
	if len(pattern) > TopicBytesMax {
		return &LimitError{Op: op, What: argument + " bytes", Limit: TopicBytesMax, Got: int64(len(pattern))}
	}
	return nil
}

// TopicWord is a queue's name as one word of a system topic: a dot would make it
// two, so it becomes an underscore (SPEC T6). The event's body has the real name.
func TopicWord(queue string) string { return strings.ReplaceAll(queue, ".", "_") }
