package actorkit

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/messages"
)

// CarryOn handles one message of an actor that has children. A panic costs that
// message and nothing else: it is reported, its sender is answered, and the actor
// goes on as it is (SPEC S3). It reports whether there was none.
//
// A restart would cost more. protoactor stops the children of an actor that
// restarts and waits for them: one bad publication would take all subscribers with
// it, and a subscriber that blocks would hold the router up for as long.
//
// A runtime.Goexit cannot be caught, so that one does restart the actor.
func CarryOn(c *Context, l messages.Listener, msg any, handle func()) (survived bool) {
	defer func() {
		if survived {
			return
		}
		reason := recover()
		if reason == nil {
			return // Goexit
		}
		Tell(l, messages.ActorCrashed{Actor: c.Self().Name(), Reason: reason, Stack: debug.Stack()})
		if failer, ok := msg.(messages.Failer); ok {
			failer.Fail(&CrashError{Actor: c.Self().PID().GetId(), Reason: reason})
		}
	}()
	handle()
	return true
}

// Tell tells the listener, if there is one. It is user code that only looks on, so
// its panic must not cost the command it was told of: it is told of that instead.
func Tell(l messages.Listener, n messages.Notice) {
	if l == nil {
		return
	}
	defer func() {
		if reason := recover(); reason != nil {
			defer func() { _ = recover() }() // it panics at everything
			l(messages.ActorCrashed{Actor: "listener", Reason: reason, Stack: debug.Stack()})
		}
	}()
	l(n)
}

// AnswerOnce gives a command of an embedder's actor a place for its answer that
// takes only the first one. Without it a crash behind the answer would answer
// again, by message, and so would two actors that both know the sender.
func AnswerOnce(c *Context, msg any) {
	if c.Sender() == nil {
		return // the door's commands have theirs
	}
	if cmd, ok := msg.(messages.Command); ok && cmd.ReplyRef().IsZero() {
		cmd.AnswerTo(messages.Ref{To: &onceBySender{system: c.System(), sender: c.Sender(), op: CommandName(msg)}})
	}
}

// onceBySender answers the sender of a command by message, once.
type onceBySender struct {
	system *System
	sender *actor.PID
	op     string
	done   atomic.Bool
}

// Resolve implements [messages.Resolver].
func (r *onceBySender) Resolve(_ uint64, a messages.Answer) bool {
	if r.done.Swap(true) {
		return false
	}
	a.Err = Outcome(r.op, a.Err)
	r.system.Send(r.sender, &a)
	return true
}

// Waiting implements [messages.Resolver].
func (r *onceBySender) Waiting(uint64) bool { return !r.done.Load() }

// Outcome turns an actor's crash into what a caller can act on: that nobody knows
// what became of the command. Other errors it returns as they are.
func Outcome(op string, err error) error {
	var known *messages.OutcomeError
	if errors.Is(err, ErrCrashed) && !errors.As(err, &known) {
		return &messages.OutcomeError{Op: op, Sent: true, Cause: err}
	}
	return err
}

// CommandName is a command's name for an error: that of its type, in small letters
// and without the package.
func CommandName(msg any) string {
	name := fmt.Sprintf("%T", msg)
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}
