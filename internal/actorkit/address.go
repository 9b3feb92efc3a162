package actorkit

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/messages"
)

// Address is where one actor of ours is reached, for as long as it lives and
// after. It stays the same over restarts, and a later actor of the same name has
// another one, so a message can never reach the wrong incarnation.
//
// Its methods may be called from any goroutine.
type Address struct {
	system  *System
	pid     *actor.PID
	newOne  func() Actor // Spec.New and OnPanic
	onPanic func(reason any, stack []byte, msg any)
	run     func() // activate, bound once: a method value made at each wake-up would allocate
	mailbox mailbox
	ended   atomic.Bool

	nameBytes int32 // the end of the path
	blocking  bool
	userCode  bool

	awaited *awaited // under mailbox.mu; nil: nobody waits for the end

	// What follows belongs to the actor's turns.
	handed   bool  // see births
	restarts int32 // -1 before the first instance
	context  Context
	actor    Actor
	ender    TurnEnder               // actor as a TurnEnder, or nil
	children map[*actor.PID]*Address // by their own PID, not a copy
}

// awaited is who waits for an actor's end.
type awaited struct {
	done chan struct{} // nil: nobody through Done
	refs []messages.Ref
}

func newAddress(s *System, spec Spec) *Address {
	if spec.Name == "" || spec.New == nil {
		panic(fmt.Sprintf("actorkit: a Spec needs a Name and New: %+v", spec))
	}
	a := &Address{
		system: s, newOne: spec.New, onPanic: spec.OnPanic, blocking: spec.Blocking, userCode: spec.UserCode,
		nameBytes: int32(len(spec.Name)), restarts: -1,
	}
	a.run = a.activate
	a.context.self = a
	a.mailbox.init(a)
	return a
}

// PID returns the protoactor address, for actors that are not ours. Keep the
// pointer: a PID that is made anew for every send is looked up every time.
func (a *Address) PID() *actor.PID { return a.pid }

// Name returns the name the actor was spawned under; its path is PID().Id.
func (a *Address) Name() string { return a.pid.Id[len(a.pid.Id)-int(a.nameBytes):] }

// Send posts a message. After the actor's end a message that is a
// messages.Failer is failed at once with a [*StoppedError]; others are dropped.
func (a *Address) Send(msg any) { a.mailbox.PostUserMessage(msg) }

// Call is Send for a command whose answer the caller is about to wait for. When
// the actor is idle, the runtime allows it and the Spec is neither UserCode nor
// Blocking, one turn runs on the caller's goroutine, which spares two switches.
// What came in meanwhile is then scheduled.
func (a *Address) Call(msg any) {
	if a.userCode || a.blocking || !a.system.callerRuns || !a.mailbox.claim(msg) {
		a.mailbox.PostUserMessage(msg)
		return
	}
	a.userTurn(1)
	a.mailbox.handOver()
}

// PutBack puts the message that has just crashed the actor back to where it was,
// ahead of all that waits, for one that has more to do than what it crashed on. Only
// its Fail may call it, and only when the error is [ErrCrashed].
func (a *Address) PutBack(msg any) { a.mailbox.putBack(msg) }

// Pending returns about how many messages wait, those of the turn under way
// included.
func (a *Address) Pending() int { return a.mailbox.UserMessageCount() }

// Done is closed once the actor has stopped and its mailbox is drained. In the
// simulation receiving from it would stop the world: use [Address.TellEnd].
func (a *Address) Done() <-chan struct{} {
	a.mailbox.mu.Lock()
	defer a.mailbox.mu.Unlock()
	w := a.await()
	if w.done == nil {
		w.done = make(chan struct{})
		if a.ended.Load() {
			close(w.done)
		}
	}
	return w.done
}

// await is called under mailbox.mu.
func (a *Address) await() *awaited {
	if a.awaited == nil {
		a.awaited = &awaited{}
	}
	return a.awaited
}

// Ended reports whether Done is closed.
func (a *Address) Ended() bool { return a.ended.Load() }

// TellEnd answers ref, with an empty answer, when the actor has ended; at once if
// it has already.
func (a *Address) TellEnd(ref messages.Ref) {
	m := &a.mailbox
	m.mu.Lock()
	if !a.ended.Load() {
		w := a.await()
		w.refs = append(w.refs, ref)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	ref.Resolve(messages.Answer{})
}

func (a *Address) String() string {
	if a == nil || a.pid == nil {
		return "nobody"
	}
	return a.pid.Id
}

// schedule is called by whoever made the mailbox busy. On a runtime that is closed
// nobody will ever look at what is in there, so it is failed now.
func (a *Address) schedule() {
	if n := a.system.named; n != nil {
		n.ScheduleNamed(a.String(), a.run)
		return
	}
	if a.system.schedule(a.blocking, a.run) {
		return
	}
	for _, left := range a.mailbox.shut() {
		a.refuse(left)
	}
}

// activate runs turns until the mailbox is empty, or for one turn where the
// runtime wants it back.
func (a *Address) activate() {
	if a.system.announce != nil {
		a.system.announce(a.pid.Id)
	}
	for {
		messagesMax, handBack := a.system.runtime.Turn()
		switch job, msg := a.mailbox.take(); job {
		case nothing:
			return
		case systemMessage:
			a.systemTurn(msg)
		case userBatch:
			a.userTurn(messagesMax)
		}
		if handBack {
			a.mailbox.handOver()
			return
		}
	}
}

// userTurn handles up to messagesMax messages of the batch and ends the turn. It
// calls the actor directly and not through protoactor: the context's frames there
// are large enough to make a fresh goroutine grow its stack on every wake-up.
func (a *Address) userTurn(messagesMax int) {
	c := &a.context
	c.begin()
	finished := false
	defer func() {
		if !finished {
			a.crashed(recover())
		}
	}()
	handled := 0
	for ; handled < messagesMax; handled++ {
		msg, ok := a.mailbox.next()
		if !ok {
			break
		}
		switch m := msg.(type) {
		case *actor.MessageEnvelope:
			c.handling, c.sender = m.Message, m.Sender
		default:
			c.handling, c.sender = m, nil
		}
		c.answered = false
		if _, ok := c.handling.(*actor.PoisonPill); ok {
			c.StopSelf() // the stop is a system message now, so next ends the turn
			continue
		}
		a.actor.Receive(c, c.handling)
		if c.again {
			a.mailbox.putBack(msg)
			handled++
			break
		}
	}
	c.handling, c.sender = nil, nil
	if handled > 0 && a.ender != nil {
		a.ender.EndTurn(c)
	}
	finished = true
}

// systemTurn has protoactor carry out one message of its own. What that means for
// the actor comes back through [shell].
func (a *Address) systemTurn(msg any) {
	a.context.begin()
	finished := false
	defer func() {
		a.system.births.end(a)
		if !finished {
			a.crashed(recover())
		}
	}()
	if _, ok := msg.(*actor.Stop); ok {
		// Nothing behind a stop will be handled. The library would drop it without a
		// word, and whoever waits for an answer would wait for ever.
		for _, left := range a.mailbox.drain() {
			a.refuse(left)
		}
	}
	a.invoker().InvokeSystemMessage(msg)
	finished = true
}

// invoker is the other face of protoactor's context.
func (a *Address) invoker() actor.MessageInvoker { return a.context.actor.(actor.MessageInvoker) }

// crashed is what a turn that did not finish comes to: the culprit's caller is
// answered, and the actor suspended until its supervisor has decided. A nil reason
// is runtime.Goexit; such a goroutine is lost, so what is left goes to another,
// where the stock library would stay wedged for good.
func (a *Address) crashed(reason any) {
	goexit := reason == nil
	if goexit {
		if a.system.runtime.Closing() {
			return // the runtime is unwinding its waits; that is not the actor's fault
		}
		reason = ErrGoexit
	}
	c := &a.context
	msg, sender, answered := c.handling, c.sender, c.answered
	c.handling, c.sender = nil, nil
	a.report(reason, msg)
	if msg != nil && !answered {
		a.fail(msg, sender, &CrashError{Actor: a.pid.Id, Reason: reason})
	}
	a.invoker().EscalateFailure(reason, msg)
	if goexit {
		a.schedule()
	}
}

// report tells OnPanic. That is the embedder's code, and its own panic must not
// take the process down from inside a deferred call.
func (a *Address) report(reason, msg any) {
	if a.onPanic == nil {
		return
	}
	defer func() { _ = recover() }()
	a.onPanic(reason, debug.Stack(), msg)
}

// guarded runs a hook whose panic is reported but is no crash.
func (a *Address) guarded(hook func()) {
	finished := false
	defer func() {
		if finished {
			return
		}
		reason := recover()
		if reason == nil {
			reason = ErrGoexit
		}
		a.report(reason, nil)
	}()
	hook()
	finished = true
}

// refuse fails a message that came too late.
func (a *Address) refuse(msg any) {
	var sender *actor.PID
	if envelope, ok := msg.(*actor.MessageEnvelope); ok {
		msg, sender = envelope.Message, envelope.Sender
	}
	a.fail(msg, sender, &StoppedError{Actor: a.pid.Id})
}

// fail tells whoever sent msg that it will not be handled: through its own Fail,
// or by message where only the sender is known.
func (a *Address) fail(msg any, sender *actor.PID, err error) {
	defer func() { _ = recover() }() // a Fail that panics must not take the process down
	if failer, ok := msg.(messages.Failer); ok {
		failer.Fail(err)
	}
	if sender == nil {
		return
	}
	if command, ok := msg.(messages.Command); ok && !command.ReplyRef().IsZero() {
		return // answered through its reference
	}
	if _, ok := msg.(*messages.Answer); ok {
		return // an answer to an answer could go on for ever
	}
	a.system.Send(sender, &messages.Answer{Err: err})
}

// end is called when the actor has stopped for good.
func (a *Address) end() {
	m := &a.mailbox
	m.mu.Lock()
	a.ended.Store(true)
	var refs []messages.Ref
	if w := a.awaited; w != nil {
		refs, w.refs = w.refs, nil
		if w.done != nil {
			close(w.done)
		}
	}
	m.mu.Unlock()
	for _, ref := range refs {
		ref.Resolve(messages.Answer{})
	}
}
