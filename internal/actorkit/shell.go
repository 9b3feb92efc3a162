package actorkit

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// shell is the actor that protoactor sees: the address itself, under another name,
// so that it costs nothing and survives restarts. It hears of the life cycle only;
// user messages go past it.
type shell Address

var (
	_ actor.Actor              = (*shell)(nil)
	_ actor.SupervisorStrategy = (*shell)(nil)
)

// props makes what protoactor spawns actors from. Every option is set on every
// Props, because the library's defaults are a goroutine per message and a strategy
// that silently stops an actor at its eleventh crash in ten seconds. None of it is of
// one actor alone, so that all share it: see births.
func (s *System) props() *actor.Props {
	return actor.PropsFromProducer(s.births.instance,
		actor.WithMailbox(s.births.mailbox),
		actor.WithDispatcher(dispatcher{s}),
		actor.WithSupervisor(restartAtOnce),
		actor.WithOnInit(func(c actor.Context) {
			a := (*Address)(c.Actor().(*shell))
			a.pid, a.context.actor = c.Self(), c
		}))
}

// spawn brings the actor to life, under a name in the spawner's place. The birth is over
// when the library has asked for the mailbox, which it does in every spawn. What comes
// after that is the actor's own, which may be in the middle of a restart already when
// the library returns.
func (a *Address) spawn(from interface {
	SpawnNamed(props *actor.Props, name string) (*actor.PID, error)
}, props *actor.Props, name string) (*actor.PID, error) {
	a.incarnate()
	a.system.births.begin(a)
	return from.SpawnNamed(props, name)
}

// births says whose instance and mailbox protoactor wants when it asks the Props that
// all actors share: it asks in the middle of a spawn or a restart, and does not say.
// Props of its own would cost each actor 300 bytes. One at a time is born; no code but
// the library's runs between begin and what it asks.
type births struct {
	mu sync.Mutex
	of *Address
}

// begin is called when the next thing that protoactor may ask about is a.
func (b *births) begin(a *Address) {
	b.mu.Lock()
	b.of, a.handed = a, true
}

// end is called when it has asked, or did not: a restart may have to wait for children.
func (b *births) end(a *Address) {
	if a.handed {
		b.of, a.handed = nil, false
		b.mu.Unlock()
	}
}

// instance is what protoactor calls an actor. That of a spawn is there already, and the
// mailbox is asked for next; for a restart it is made.
func (b *births) instance() actor.Actor {
	a := b.of
	if a.pid != nil {
		b.end(a)
		a.incarnate()
	}
	return (*shell)(a)
}

func (b *births) mailbox() actor.Mailbox {
	a := b.of
	b.end(a)
	return &a.mailbox
}

// incarnate makes the instance for the spawn or for a restart.
func (a *Address) incarnate() {
	instance := a.newOne()
	a.actor = instance
	a.ender, _ = instance.(TurnEnder)
	a.restarts++
}

// Receive hears what protoactor says about the actor's life.
func (s *shell) Receive(pc actor.Context) {
	a := (*Address)(s)
	a.system.births.end(a) // what follows may spawn others
	switch msg := pc.Message().(type) {
	case *actor.Started:
		a.started()
	case *actor.Restarting:
		a.system.births.begin(a)
	case *actor.Terminated:
		a.terminated(msg.Who)
		a.system.births.begin(a) // it may be the last child that a restart has waited for
	case *actor.Stopped:
		a.stopped()
	}
	// Stopping and Restarting are not passed on: a panic in a hook for them would
	// restart an actor that was told to stop.
}

func (a *Address) started() {
	if starter, ok := a.actor.(Starter); ok {
		starter.Started(&a.context)
	}
	a.endTurn()
}

// terminated also comes twice, to a parent that watches its child: the second one
// finds no child.
func (a *Address) terminated(who *actor.PID) {
	child, isChild := a.children[who]
	if isChild {
		delete(a.children, who)
	}
	tell := func() {
		if !isChild {
			a.actor.Receive(&a.context, &ForeignEnded{PID: who})
		} else if watcher, ok := a.actor.(ChildWatcher); ok {
			watcher.ChildEnded(&a.context, child)
		}
		a.endTurn()
	}
	if a.mailbox.refuses() {
		// A panic now would keep the library from finishing the stop, which waits for
		// the last child.
		a.guarded(tell)
		return
	}
	tell()
}

func (a *Address) stopped() {
	defer a.end() // also after a Goexit in the hook
	if ender, ok := a.actor.(Ender); ok {
		a.guarded(func() { ender.Ended(&a.context) })
	}
}

func (a *Address) endTurn() {
	if a.ender != nil {
		a.ender.EndTurn(&a.context)
	}
}

// HandleFailure implements [actor.SupervisorStrategy] for the children. It runs in
// the parent's turn.
func (s *shell) HandleFailure(_ *actor.ActorSystem, _ actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, msg any) {
	a := (*Address)(s)
	child, ok := a.children[pid]
	if !ok || a.mailbox.refuses() {
		return // stopping, and its children with it
	}
	supervisor, ok := a.actor.(Supervisor)
	if !ok {
		a.context.Restart(child)
		return
	}
	supervisor.ChildFailed(&a.context, child, reason, msg)
	a.endTurn()
}

// restartAtOnce is the strategy of root actors. There is one for the whole
// process, and it has no state: the library keeps a guardian process for each
// strategy it ever saw, so one per broker would leak with every broker opened.
// It is a pointer to something with a size because the library uses it as a map
// key, and pointers to empty structs may be equal.
var restartAtOnce = &guardian{name: "restart at once"}

type guardian struct{ name string }

func (*guardian) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, _ any) {
	supervisor.RestartChildren(child)
}

// dispatcher is for whatever protoactor might want to run for an actor. Our
// mailbox schedules by itself.
type dispatcher struct{ system *System }

func (d dispatcher) Schedule(fn func()) { d.system.schedule(false, fn) }

func (dispatcher) Throughput() int { return turnMessagesMax }
