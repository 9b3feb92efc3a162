package actorkit

// Actor is the shell of one actor: it translates messages into calls on its pure
// core and carries the effects out. Receive should read like a table of contents,
// one line per message.
//
// All methods of an actor, those of the optional interfaces included, are called
// one at a time. A panic in any of them but Ended is a crash: the actor is
// suspended, its supervisor decides, and on a restart Spec.New makes a new one.
type Actor interface {
	Receive(c *Context, msg any)
}

// Starter is an Actor that has something to do before its first message.
type Starter interface {
	// Started is called after the spawn and after each restart, on the new
	// instance; c.Restarted() tells the two apart.
	Started(c *Context)
}

// Ender is an Actor that has something to do at its end.
type Ender interface {
	// Ended is called once, when the actor has stopped for good: its children are
	// gone and its messages failed. A panic here is reported and changes nothing.
	Ended(c *Context)
}

// TurnEnder is an Actor that gathers effects during a turn and carries them out
// together.
type TurnEnder interface {
	// EndTurn is called after the messages of one turn, and after Started,
	// ChildFailed and ChildEnded. After a panic in between it is not: the new
	// instance gets its own.
	EndTurn(c *Context)
}

// Supervisor is an Actor that decides what becomes of a crashed child. A parent
// that is none has its children restarted at once.
type Supervisor interface {
	// ChildFailed is called in the parent's own turn. The child handles no message
	// until c.Restart(child) or c.StopChild(child), now or later. msg is what it
	// panicked over, nil when that was no message.
	ChildFailed(c *Context, child *Address, reason, msg any)
}

// ChildWatcher is an Actor that wants to know when a child has ended.
type ChildWatcher interface {
	// ChildEnded is called once for each child, when it has stopped for good.
	ChildEnded(c *Context, child *Address)
}

// Spec describes an actor to be spawned.
type Spec struct {
	// Name is unique among its siblings, and always given: a name made by a counter
	// would depend on the order of spawns.
	Name string
	// New makes the actor, and is called again for every restart. It captures the
	// state that must survive a crash; the rest starts afresh. The first call is
	// made by the spawner, later ones in the actor's turn.
	New func() Actor
	// Blocking puts the actor on the lane of handlers.
	Blocking bool
	// UserCode says that Receive may call code of the embedder. [Address.Call] then
	// never runs a turn on its caller's goroutine: a caller that holds a mutex which
	// that code wants too would deadlock with itself.
	UserCode bool
	// OnPanic is told of every panic of this actor, before its supervisor decides.
	// It must not block; it may be nil. msg is what the actor panicked over, nil
	// when that was no message.
	OnPanic func(reason any, stack []byte, msg any)
}
