package postroom

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// Broker is an open broker. Its methods may be called from any goroutine, also
// from inside handlers; many brokers live in one process and share nothing.
//
// Every method that waits takes a context. When that ends first, the error is an
// [*OutcomeError] which says whether the call may have taken effect.
type Broker struct {
	core *actors.Broker
	// runtime is ours to close; nil when it was given.
	runtime *actorkit.Real
}

// Open starts a broker with an actor system of its own. Close it when done.
// Without options every documented default applies.
func Open(options ...Option) (*Broker, error) {
	o, err := settings(options)
	if err != nil {
		return nil, err
	}
	return o.start(func(rt actorkit.Runtime) *actorkit.System {
		if o.system != nil {
			return o.system
		}
		return actorkit.NewSystem(rt, nil)
	})
}

// Mount starts a broker inside an embedder's own actor system, below the name
// given by [WithName] ("postroom"). The system's event stream, logging and
// supervision are left alone; Close ends the broker and not the system.
// Errors: [*ArgumentError] for a nil system, or a name that is taken there.
func Mount(system *actor.ActorSystem, options ...Option) (*Broker, error) {
	if system == nil {
		return nil, &ArgumentError{Op: "mount", Argument: "system", Problem: "must not be nil"}
	}
	o, err := settings(options)
	if err != nil {
		return nil, err
	}
	b, err := o.start(func(rt actorkit.Runtime) *actorkit.System {
		return actorkit.MountSystem(rt, system, o.name+"/")
	})
	if errors.Is(err, actorkit.ErrNameTaken) {
		return nil, &ArgumentError{Op: "mount", Argument: "name", Problem: fmt.Sprintf("%q is taken in this system: see WithName", o.name)}
	}
	return b, err
}

// Close ends the broker (SPEC B5). Hand-overs end at once; running handlers may
// finish until ctx ends, then their contexts are cancelled with cause
// [ErrBrokerClosed]; what was not worked on goes back, interrupted; every waiter is
// answered. In memory the queues and all that is in them are then gone. Twice is
// harmless.
//
// Errors: [*StuckError] names the consumers whose handlers did not return even
// then; nothing else is left behind.
func (b *Broker) Close(ctx context.Context) error {
	err := b.core.Close(ctx)
	if b.runtime == nil {
		return err
	}
	if err != nil {
		// Waiting for a stuck handler would be for ever. When it returns after all, its
		// consumer ends, and then the goroutines that were kept for it.
		b.core.WhenEnded(func() {
			now, cancel := context.WithCancel(context.Background())
			cancel()
			_ = b.runtime.Shutdown(now) // ends them without waiting for itself, which runs on one
		})
		return err
	}
	b.runtime.Close()
	return nil
}

// PID is the address of the broker's front desk, for an embedder's own actors: it
// takes DeclareQueue, DeleteQueue, Consume, Cancel, Publish, Subscribe, Bind and
// the like of package messages, by ctx.Request.
func (b *Broker) PID() *actor.PID { return b.core.Desk.PID() }

// QueuePID is the address of one queue, for an embedder's own actors: it takes Put,
// Get, Ack, Nack, Touch and the like. Errors: [*QueueNotFoundError].
func (b *Broker) QueuePID(queue string) (*actor.PID, error) {
	q, err := b.core.Find("queue pid", queue)
	if err != nil {
		return nil, err
	}
	return q.Address.PID(), nil
}

// ActorSystem is the system that the broker's actors live in.
func (b *Broker) ActorSystem() *actor.ActorSystem { return b.core.System.ActorSystem() }

// Now is the time on the broker's clock.
func (b *Broker) Now() time.Time { return b.core.Runtime().Now() }

// Sleep waits on the broker's clock. It returns nil, or the cause when ctx ends
// first. Handlers that wait through it run on virtual time in the simulation.
func (b *Broker) Sleep(ctx context.Context, d time.Duration) error {
	return b.core.Runtime().Sleep(ctx, d)
}

// WithTimeout is context.WithTimeout on the broker's clock. Use it for every
// deadline given to the broker: in the simulation one on the wall clock would
// never come, and is refused (SPEC K2).
func (b *Broker) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return b.core.Runtime().WithTimeout(ctx, d)
}

// ---- queues ----

// DeclareQueue makes a queue. Repeating it with the same settings (after defaults)
// is safe. Errors: [*QueueConfigConflictError], [*ArgumentError], [*LimitError].
func (b *Broker) DeclareQueue(ctx context.Context, queue string, config QueueConfig) error {
	if err := messages.CheckQueueName("declare queue", queue); err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return err
	}
	_, err := b.core.AskDesk(ctx, "declare queue", &messages.DeclareQueue{Queue: queue, Config: config})
	return err
}

// DeleteQueue drops a queue with its messages and dead letters, forgets its
// bindings and ends its consumers (SPEC Q14, T7). IfEmpty and IfUnused refuse.
// Errors: [*QueueNotFoundError], [*InUseError].
func (b *Broker) DeleteQueue(ctx context.Context, queue string, conditions ...DeleteCondition) (Deleted, error) {
	m := &messages.DeleteQueue{Queue: queue}
	for _, c := range conditions {
		switch c {
		case IfEmpty:
			m.IfEmpty = true
		case IfUnused:
			m.IfUnused = true
		default:
			return Deleted{}, &ArgumentError{Op: "delete queue", Argument: "condition", Problem: "must be IfEmpty or IfUnused"}
		}
	}
	if _, err := b.core.Find("delete queue", queue); err != nil {
		return Deleted{}, err
	}
	a, err := b.core.AskDesk(ctx, "delete queue", m)
	if err != nil {
		return Deleted{}, err
	}
	return a.Value.(Deleted), nil
}

// DeleteCondition makes DeleteQueue refuse.
type DeleteCondition uint8

const (
	// IfEmpty refuses while messages or dead letters are in the queue.
	IfEmpty DeleteCondition = iota + 1
	// IfUnused refuses while consumers are attached.
	IfUnused
)

// Queues lists the names of the queues, in order.
func (b *Broker) Queues() []string { return b.core.QueueNames() }

// Pause ends hand-overs until Resume; settles go on. Errors: [*QueueNotFoundError].
func (b *Broker) Pause(ctx context.Context, queue string) error {
	_, err := b.core.AskQueue(ctx, "pause", queue, &messages.Pause{})
	return err
}

// Resume ends Pause and Drain. Errors: [*QueueNotFoundError].
func (b *Broker) Resume(ctx context.Context, queue string) error {
	_, err := b.core.AskQueue(ctx, "resume", queue, &messages.Resume{})
	return err
}

// Purge removes what is ready or delayed and says how many; leases are left alone.
// Errors: [*QueueNotFoundError].
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	a, err := b.core.AskQueue(ctx, "purge", queue, &messages.Purge{})
	return int(a.N), err
}

// Peek looks at up to n ready messages, in the order in which they would be handed
// over. They have no tag: looking is no lease. Errors: [*QueueNotFoundError],
// [*ArgumentError] for a negative n.
func (b *Broker) Peek(ctx context.Context, queue string, n int) ([]Delivery, error) {
	if n < 0 {
		return nil, &ArgumentError{Op: "peek", Argument: "n", Problem: "must not be negative"}
	}
	a, err := b.core.AskQueue(ctx, "peek", queue, &messages.Peek{N: n})
	if err != nil {
		return nil, err
	}
	return a.Value.([]Delivery), nil
}

// Drain refuses new messages and returns when nothing is left: ready + delayed +
// leased is 0. When ctx ends first the queue stays draining until Resume, and so it
// does after Drain has returned. Errors: [*QueueNotFoundError], [*QueueStateError]
// when Resume or the queue's end came first.
func (b *Broker) Drain(ctx context.Context, queue string) error {
	_, err := b.core.AskQueue(ctx, "drain", queue, &messages.Drain{})
	return err
}

// QueueStats counts one queue at one instant. Errors: [*QueueNotFoundError].
func (b *Broker) QueueStats(ctx context.Context, queue string) (QueueStats, error) {
	a, err := b.core.AskQueue(ctx, "queue stats", queue, &messages.QueueStatsQuery{})
	if err != nil {
		return QueueStats{}, err
	}
	return a.Value.(QueueStats), nil
}

// Stats counts what the broker holds.
func (b *Broker) Stats(ctx context.Context) (BrokerStats, error) {
	a, err := b.core.AskDesk(ctx, "broker stats", &messages.BrokerStatsQuery{})
	if err != nil {
		return BrokerStats{}, err
	}
	return a.Value.(BrokerStats), nil
}
