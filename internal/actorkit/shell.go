package actorkit

import "github.com/asynkron/protoactor-go/actor"

// shell is the actor that protoactor sees: the address itself, under another name,
// so that it costs nothing and survives restarts. It hears of the life cycle only;
// user messages go past it.
type shell Address

var (
	_ actor.Actor              = (*shell)(nil)
	_ actor.SupervisorStrategy = (*shell)(nil)
)

// props makes what protoactor spawns the actor from. Every option is set on every
// Props, because the library's defaults are a goroutine per message and a strategy
// that silently stops an actor at its eleventh crash in ten seconds.
func (a *Address) props(isRoot bool) *actor.Props {
	options := [4]actor.PropsOption{
		actor.WithMailbox(func() actor.Mailbox { return &a.mailbox }),
		actor.WithDispatcher(dispatcher{a}),
		actor.WithSupervisor(restartAtOnce),
		actor.WithOnInit(func(c actor.Context) { a.pid, a.context.actor = c.Self(), c }),
	}
	props := actor.PropsFromProducer(a.incarnate, options[:]...)
	if isRoot {
		// Only on roots: the library panics at children that carry a guardian.
		props = props.Configure(actor.WithGuardian(restartAtOnce))
	}
	return props
}

// incarnate makes the instance for the spawn or for a restart.
func (a *Address) incarnate() actor.Actor {
	instance := a.spec.New()
	a.actor = instance
	a.ender, _ = instance.(TurnEnder)
	a.restarts++
	return (*shell)(a)
}

// Receive hears what protoactor says about the actor's life.
func (s *shell) Receive(pc actor.Context) {
	a := (*Address)(s)
	switch msg := pc.Message().(type) {
	case *actor.Started:
		a.started()
	case *actor.Terminated:
		a.terminated(msg.Who)
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
	child, isChild := a.children[who.Id]
	if isChild {
		delete(a.children, who.Id)
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
	child, ok := a.children[pid.Id]
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
type dispatcher struct{ address *Address }

func (d dispatcher) Schedule(fn func()) {
	d.address.system.schedule(d.address.spec.Blocking, fn)
}

func (dispatcher) Throughput() int { return turnMessagesMax }
