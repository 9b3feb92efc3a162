package actorkit

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/messages"
)

// Context is what an actor knows during its turn. It is the same object in every
// turn and may be used only in one: never from another goroutine, never from a
// timer.
type Context struct {
	self  *Address
	actor actor.Context // protoactor's, the same for the whole life

	now     time.Time
	nowRead bool // in this turn

	handling any // the message in Receive, unwrapped
	sender   *actor.PID
	answered bool // the message in Receive got its answer
	again    bool // see Again
}

// begin starts a turn.
func (c *Context) begin() {
	c.nowRead = false
	c.handling, c.sender, c.answered, c.again = nil, nil, false, false
}

// Now is the time of this turn: read once, at the first call, and never before an
// earlier turn's.
func (c *Context) Now() time.Time {
	if !c.nowRead {
		c.nowRead = true
		if now := c.self.system.runtime.Now(); now.After(c.now) {
			c.now = now
		}
	}
	return c.now
}

// Self returns the actor's own address.
func (c *Context) Self() *Address { return c.self }

// System returns the system the actor lives in.
func (c *Context) System() *System { return c.self.system }

// Restarted returns how often the actor was restarted.
func (c *Context) Restarted() int { return int(max(0, c.self.restarts)) }

// Sender returns who sent the message being handled: an actor that used
// protoactor's Request, or nil for the door and for plain sends.
func (c *Context) Sender() *actor.PID { return c.sender }

// Answer answers a command: through its reference if it has one, else, if cmd is
// the message being handled, with a *messages.Answer to its sender. With neither
// there is nobody to answer. To answer after the turn keep [Context.Ref].
func (c *Context) Answer(cmd messages.Command, answer messages.Answer) {
	c.answered = c.answered || c.handling == any(cmd)
	if ref := cmd.ReplyRef(); !ref.IsZero() {
		ref.Resolve(answer)
		return
	}
	if c.handling == any(cmd) && c.sender != nil {
		reply := answer // a copy, so that only this way costs an allocation
		c.self.system.Send(c.sender, &reply)
	}
}

// Again ends the turn with the message being handled, which comes again at the start of the
// next: for a message that is more work than a turn should hold.
func (c *Context) Again() { c.again = true }

// Ref returns where a command will be answered, for an answer that comes later:
// its own reference, or one that sends a *messages.Answer to the sender of the
// message being handled, or the zero Ref.
func (c *Context) Ref(cmd messages.Command) messages.Ref {
	if ref := cmd.ReplyRef(); !ref.IsZero() || c.sender == nil || c.handling != any(cmd) {
		return ref
	}
	return messages.Ref{To: &senderReply{system: c.self.system, sender: c.sender}}
}

// senderReply is a resolver that answers one message of an actor, once.
type senderReply struct {
	system *System
	sender *actor.PID // nil once answered
}

func (r *senderReply) Resolve(_ uint64, answer messages.Answer) bool {
	if r.sender == nil {
		return false
	}
	r.system.Send(r.sender, &answer)
	r.sender = nil
	return true
}

func (r *senderReply) Waiting(uint64) bool { return r.sender != nil }

// Spawn starts a child, under the name self/Name. Errors: [*SpawnError].
func (c *Context) Spawn(spec Spec) (*Address, error) {
	child := newAddress(c.self.system, spec)
	pid, err := child.spawn(c.actor, c.self.system.child, spec.Name)
	if err != nil {
		return nil, &SpawnError{Name: spec.Name, Reason: err}
	}
	if c.self.children == nil {
		c.self.children = make(map[*actor.PID]*Address)
	}
	c.self.children[pid] = child
	return child, nil
}

// Restart gives a child a new instance; its mailbox stays. For one that is no
// longer a child, or is stopping, it does nothing, so a delayed restart needs no
// further care.
func (c *Context) Restart(child *Address) {
	if c.isChild(child) {
		child.mailbox.PostSystemMessage(restart)
	}
}

// StopChild stops a child; ChildEnded tells when it has ended.
func (c *Context) StopChild(child *Address) {
	if c.isChild(child) {
		child.mailbox.PostSystemMessage(stop)
	}
}

// Children returns how many children are left.
func (c *Context) Children() int { return len(c.self.children) }

func (c *Context) isChild(child *Address) bool {
	return child != nil && child.pid != nil && c.self.children[child.pid] == child
}

// StopSelf ends the actor after this message. What waits behind it is failed.
func (c *Context) StopSelf() { c.self.mailbox.PostSystemMessage(stop) }

// WatchForeign has the actor told, by a [*ForeignEnded] message, when a foreign
// actor ends; at once when it does not exist. It holds until this actor is
// stopped, also over restarts. Children need no watch.
func (c *Context) WatchForeign(pid *actor.PID) { c.actor.Watch(pid) }

// UnwatchForeign takes WatchForeign back. A *ForeignEnded that is under way still
// comes.
func (c *Context) UnwatchForeign(pid *actor.PID) { c.actor.Unwatch(pid) }

// ForeignEnded tells an actor that one it watches has ended.
type ForeignEnded struct {
	PID *actor.PID
}

// System messages of protoactor carry nothing and are shared.
var (
	stop    = &actor.Stop{}
	restart = &actor.Restart{}
)
