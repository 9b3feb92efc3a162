package messages

import "time"

// Answer is the reply to a command. Which fields mean something depends on the
// command and is said there; Err is nil on success.
type Answer struct {
	Err error
	// N is a count, or the outcome of a put (1 = duplicate).
	N int64
	// At is an instant, such as the new deadline of a touched lease.
	At time.Time
	// Value is a larger result, such as a *Delivery or QueueStats.
	Value any
}

// Resolver is a place where somebody waits for an Answer. Reply cells implement it.
type Resolver interface {
	// Resolve hands the answer over, once: later calls for the same generation
	// change nothing. It reports whether somebody was still waiting.
	Resolve(generation uint64, a Answer) bool
	// Waiting reports whether the one who asked is still there.
	Waiting(generation uint64) bool
}

// Ref is one use of a Resolver. Cells are recycled, so a reference carries the
// generation it was made for and is dead afterwards. The zero Ref is nobody.
type Ref struct {
	To         Resolver
	Generation uint64
}

// IsZero reports whether there is nobody to answer.
func (r Ref) IsZero() bool { return r.To == nil }

// Resolve answers, and reports whether somebody was still waiting for it.
func (r Ref) Resolve(a Answer) bool { return r.To != nil && r.To.Resolve(r.Generation, a) }

// Waiting reports whether an answer is still wanted.
func (r Ref) Waiting() bool { return r.To != nil && r.To.Waiting(r.Generation) }

// Asked is embedded in every command: it is where the answer goes.
type Asked struct {
	// Reply is the door's reply cell; the zero Ref means that the sender, if there
	// is one, gets the *Answer as a message.
	Reply Ref
}

// ReplyRef returns where the answer goes.
func (a *Asked) ReplyRef() Ref { return a.Reply }

// AnswerTo changes where the answer goes, for whoever passes a command on.
func (a *Asked) AnswerTo(r Ref) { a.Reply = r }

// Fail answers the command with err. The mailbox calls it for a command that its
// actor will never handle, so that nobody waits for ever (SPEC S3, B5).
func (a *Asked) Fail(err error) { a.Reply.Resolve(Answer{Err: err}) }

// Failer is a message whose sender must be told when it will not be handled.
type Failer interface{ Fail(error) }

// Command is a message that is answered: everything in commands.go.
type Command interface {
	Failer
	ReplyRef() Ref
	AnswerTo(Ref)
}
