package actorkit

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/eventstream"

	"github.com/postroom/postroom/messages"
)

// System is an actor system with our rules: every actor spawned through it gets
// our mailbox, executor and supervision. It keeps no goroutine and needs no close:
// stop its actors, then close the runtime.
type System struct {
	runtime Runtime
	actors  *actor.ActorSystem
	root    *actor.RootContext
	prefix  string

	callerRuns bool
	closable   closable           // runtime, if it may refuse to schedule
	announce   func(actor string) // see [Announcer]; nil where nobody listens
	watcher    Watcher            // see [Watched]; nil where nobody watches
	named      NamedScheduler     // runtime, if it is one

	slabs slabs

	births     births
	top, child *actor.Props // of all root actors, and of all others
}

// Announcer is a Runtime that wants to know which actor the activation under way
// belongs to, as the simulation does for its trace.
type Announcer interface {
	Announce(actor string)
}

// NamedScheduler is a Runtime that wants to know whose activation it schedules, as the
// simulation does to give actors priorities.
type NamedScheduler interface {
	ScheduleNamed(actor string, fn func())
}

// Watched is a Runtime with somebody who sees every message come and go, as an
// exhaustive search does: to whom a step has sent says with which other steps it may
// change places. nil: nobody.
type Watched interface {
	Watcher() Watcher
}

// Watcher is told of the messages of all mailboxes, in the sender's and in the
// receiver's turn. It must not block. system messages overtake the others.
type Watcher interface {
	Posted(to *Address, system bool)
	Taken(by *Address, system bool)
}

// NewSystem makes an actor system of our own. logger gets what protoactor logs,
// mostly panics; nil discards it.
//
// This costs 10 to 16 ms, nearly all for protoactor's registry, most of which is not kept.
func NewSystem(rt Runtime, logger *slog.Logger) *System {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	actors := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }))
	replaceEventStream(actors)
	shrinkRegistry(actors)
	if _, real := rt.(closable); real {
		_ = ballast()
	}
	return MountSystem(rt, actors, "")
}

// MountSystem puts our rules on an embedder's system, whose event stream it leaves
// alone. prefix is put before the names of root actors, such as "postroom/".
func MountSystem(rt Runtime, actors *actor.ActorSystem, prefix string) *System {
	s := &System{
		runtime: rt,
		actors:  actors,
		// A root of our own: a spawn middleware on the embedder's would make the
		// library ignore the guardian without a word.
		root:       actor.NewRootContext(actors, nil),
		prefix:     prefix,
		callerRuns: rt.CallerRuns(),
	}
	s.closable, _ = rt.(closable)
	if announcer, ok := rt.(Announcer); ok {
		s.announce = announcer.Announce
	}
	if watched, ok := rt.(Watched); ok {
		s.watcher = watched.Watcher()
	}
	s.named, _ = rt.(NamedScheduler)
	// Only on roots a guardian: the library panics at children that carry one.
	s.top, s.child = s.props().Configure(actor.WithGuardian(restartAtOnce)), s.props()
	return s
}

// closable is a runtime that says when it is closed and will not run fn.
type closable interface {
	trySchedule(blocking bool, fn func()) bool
}

// schedule runs fn on one of the two lanes, or reports that it never will.
func (s *System) schedule(blocking bool, fn func()) bool {
	switch {
	case s.closable != nil:
		return s.closable.trySchedule(blocking, fn)
	case blocking:
		s.runtime.ScheduleBlocking(fn)
	default:
		s.runtime.Schedule(fn)
	}
	return true
}

// replaceEventStream drops what protoactor subscribed at birth: its dead-letter
// log starts a goroutine with a one-second ticker. The two answers that other
// parts of the library rely on are put back, and commands are failed.
func replaceEventStream(actors *actor.ActorSystem) {
	actors.EventStream = eventstream.NewEventStream()
	actors.EventStream.Subscribe(func(event any) {
		letter, ok := event.(*actor.DeadLetterEvent)
		if !ok {
			return
		}
		if failer, ok := letter.Message.(messages.Failer); ok {
			failer.Fail(&StoppedError{Actor: letter.PID.GetId()}) // a command sent to a PID that is gone
		}
		if letter.Sender != nil {
			actors.Root.Send(letter.Sender, &actor.DeadLetterResponse{Target: letter.PID})
		}
		if watch, ok := letter.Message.(*actor.Watch); ok {
			if watcher, ok := actors.ProcessRegistry.Get(watch.Watcher); ok {
				watcher.SendSystemMessage(watch.Watcher, &actor.Terminated{
					Who: letter.PID,
					Why: actor.TerminatedReason_NotFound,
				})
			}
		}
	})
}

// registryMaps is how many of the registry's maps are kept. Each has 32 locks.
const registryMaps = 8

// ballast is memory that nobody touches, once in a process and for good: see
// shrinkRegistry.
var ballast = sync.OnceValue(func() []byte { return make([]byte, 4<<20) })

// shrinkRegistry keeps 8 maps of the 1,024 that protoactor's registry is born with. They
// have 32 parts each: with all of them the garbage collector looks at 65,000 objects, 2.8 MB
// of empty maps, in each of its cycles.
//
// Alone that made everything slower: in a program with a small heap there were twice as
// many cycles, since one begins when the heap has doubled. So a process with a system on the
// real runtime holds as much memory that is never touched, and that has no pointers to look
// at. Both together are a sixth of what a message costs there (decision 17).
func shrinkRegistry(actors *actor.ActorSystem) {
	registry := actors.ProcessRegistry
	born := registry.LocalPIDs.LocalPIDs
	registry.LocalPIDs = &actor.SliceMap{LocalPIDs: slices.Clone(born[:registryMaps])}
	for _, processes := range born {
		if processes.IsEmpty() {
			continue
		}
		for name, process := range processes.Items() { // of the library's own
			processes.Remove(name)
			registry.LocalPIDs.GetBucket(name).Set(name, process)
		}
	}
}

// ActorSystem returns protoactor's system.
func (s *System) ActorSystem() *actor.ActorSystem { return s.actors }

// Runtime returns what the actors run on.
func (s *System) Runtime() Runtime { return s.runtime }

// Spawn starts a root actor under prefix + spec.Name. When it panics it is
// restarted at once, however often; an owner that wants it otherwise stops it from
// OnPanic. Errors: [*SpawnError].
func (s *System) Spawn(spec Spec) (*Address, error) {
	a := newAddress(s, spec)
	name := s.prefix + spec.Name
	if _, err := a.spawn(s.root, s.top, name); err != nil {
		return nil, &SpawnError{Name: name, Reason: err}
	}
	return a, nil
}

// Send posts a message to any actor, ours or not. To nobody (nil) it does nothing.
// One of ours is better reached through its Address: on an embedder's system, a
// message to a PID that is gone is not failed.
func (s *System) Send(to *actor.PID, msg any) {
	if to != nil {
		s.root.Send(to, msg)
	}
}

// Stop stops an actor after the message it is handling; a.Done() tells when it has
// ended. What waits in its mailbox is failed.
func (s *System) Stop(a *Address) { a.mailbox.PostSystemMessage(stop) }
