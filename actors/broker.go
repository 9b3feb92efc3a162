package actors

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
	"github.com/postroom/postroom/supervisor"
)

// Config is what a broker is given. Zero values mean the documented defaults.
type Config struct {
	System   *actorkit.System
	Limits   messages.Limits
	Listener messages.Listener // nil: nobody
	// Restart is how long a crashed handler's worker waits for its restart.
	Restart supervisor.Policy
	// CheckBodies has a handler crash that changes a message it shares, or that is about
	// to get one whose producer has changed it after the put; always on in builds with
	// the race detector.
	CheckBodies bool
	// Probe runs before and after each message of the broker's actors; nil in production.
	// The simulation makes it panic to see what a crash there costs (SPEC S3).
	Probe func(point string)
	// NewLedger makes the rules of a queue; nil for [ledger.New]. The simulation wraps
	// them here.
	NewLedger func(source *messages.Source, config *messages.QueueConfig, start time.Time, o ledger.Options) Ledger
}

// Broker is what the actors of one broker share and the door holds on to:
// addresses, limits and the directory of queues.
type Broker struct {
	Config
	runtime actorkit.Runtime
	began   time.Time // when the broker was opened

	integrity integrity
	jitter    func(of *messages.Source, put, failure uint64) uint64 // drawJitter, bound once

	Desk      *actorkit.Address // the front desk: passes an actor's commands on
	Router    *actorkit.Address
	queueDesk *actorkit.Address // declares and deletes queues
	pool      *actorkit.Address // starts and ends consumers

	// queues is the directory: name -> *Queue. Only queueDesk writes it.
	queues sync.Map

	topics  *router.TopicRouter
	closing atomic.Bool

	random      Shelf[byte]
	Puts        Shelf[ledger.Put]
	Settlements Shelf[messages.Settlement]
}

// Start spawns the broker's actors. Errors: the name is taken in a shared system.
func Start(config Config) (*Broker, error) {
	config.Limits = config.Limits.WithDefaults()
	config.Restart = config.Restart.WithDefaults()
	b := &Broker{Config: config, runtime: config.System.Runtime()}
	b.began = b.runtime.Now()
	b.jitter = b.drawJitter
	b.integrity = newIntegrity(config.CheckBodies)
	b.topics = router.NewTopicRouter(router.Config{Runtime: b.runtime, Listener: config.Listener, NewID: b.NewID, Probe: config.Probe, Lives: b.lives})
	ready := b.runtime.NewCell()
	desk := &desk{broker: b, ready: ready.Ref()}
	address, err := config.System.Spawn(b.spec("broker", func() actorkit.Actor { return desk }))
	if err != nil {
		return nil, fmt.Errorf("open broker: %w", err)
	}
	b.Desk = address
	answer, err := ready.Wait(b.background())
	if err != nil {
		return nil, fmt.Errorf("open broker: %w", err)
	}
	return b, answer.Err
}

// spec is how every actor of ours that runs no user code is made.
func (b *Broker) spec(name string, make func() actorkit.Actor) actorkit.Spec {
	return actorkit.Spec{
		Name: name, New: make,
		// A listener is user code: with one, no turn may run on a caller that may
		// hold a lock the listener wants.
		UserCode: b.Listener != nil,
		OnPanic:  b.onPanic(name),
	}
}

func (b *Broker) onPanic(name string) func(any, []byte, any) {
	if b.Listener == nil {
		return nil
	}
	return func(reason any, stack []byte, _ any) {
		b.notify(messages.ActorCrashed{Actor: name, Reason: reason, Stack: stack})
	}
}

// notify tells the listener; callers on a hot path ask b.Listener != nil first.
func (b *Broker) notify(n messages.Notice) { actorkit.Tell(b.Listener, n) }

// Runtime is the broker's clock, executor and randomness.
func (b *Broker) Runtime() actorkit.Runtime { return b.runtime }

// Queue looks a queue up by name. The bool is false when there is none.
func (b *Broker) Queue(name string) (*Queue, bool) {
	q, ok := b.queues.Load(name)
	if !ok {
		return nil, false
	}
	return q.(*Queue), true
}

// lives reports whether the queue of that name is the one at this address.
func (b *Broker) lives(name string, at *actorkit.Address) bool {
	q, ok := b.Queue(name)
	return ok && q.Address == at
}

// Closing reports whether Close has begun.
func (b *Broker) Closing() bool { return b.closing.Load() }

// Queue is where one queue is reached.
type Queue struct {
	*messages.Source
	Config  *messages.QueueConfig // with defaults; shared, never written
	Address *actorkit.Address

	returns *returns // of all its consumers, made for the first
	work    *workQueue
	hash    func(id string) uint32 // of the ids that its ledger keeps
}

// desk is the root of the tree and the address for an embedder's actors: it
// passes each command on to the actor that answers it.
type desk struct {
	broker *Broker
	ready  messages.Ref
}

// Started spawns the three rooms, once.
func (d *desk) Started(c *actorkit.Context) {
	if c.Restarted() > 0 {
		return
	}
	b := d.broker
	var err error
	spawn := func(name string, make func() actorkit.Actor) *actorkit.Address {
		a, e := c.Spawn(b.spec(name, make))
		if e != nil && err == nil {
			err = e
		}
		return a
	}
	b.Router = spawn("topic-router", b.topics.New)
	queues := &queueDesk{broker: b}
	b.queueDesk = spawn("queues", func() actorkit.Actor { return queues })
	pool := &pool{broker: b}
	b.pool = spawn("consumers", func() actorkit.Actor { return pool })
	d.ready.Resolve(messages.Answer{Err: err})
}

// ChildFailed restarts a room at once: its state outlives its actor.
func (d *desk) ChildFailed(c *actorkit.Context, child *actorkit.Address, _, _ any) { c.Restart(child) }

// Receive passes commands on. The answer goes straight from there to the sender.
func (d *desk) Receive(c *actorkit.Context, msg any) {
	actorkit.AnswerOnce(c, msg)
	d.broker.carryOn(c, "desk", msg, d.pass)
}

func (d *desk) pass(c *actorkit.Context, msg any) {
	b := d.broker
	if cmd, ok := msg.(messages.Command); ok {
		if b.Closing() {
			c.Answer(cmd, messages.Answer{Err: messages.ErrBrokerClosed})
			return
		}
	}
	switch msg := msg.(type) {
	case *messages.DeclareQueue, *messages.DeleteQueue, *messages.BrokerStatsQuery:
		b.queueDesk.Send(msg)
	case *messages.Consume:
		b.pool.Send(&consumeNative{Consume: *msg, to: c.Sender()})
	case *messages.Cancel, *messages.SetPrefetch, *messages.Redrive:
		b.pool.Send(msg)
	case *messages.Publish:
		if err := b.CheckPublish(&msg.Envelope); err != nil {
			c.Answer(msg, messages.Answer{Err: err})
			return
		}
		b.Router.Send(msg)
	case *messages.Unsubscribe:
		b.Router.Send(msg)
	case *messages.Subscribe:
		b.Router.Send(&router.Subscribe{Asked: msg.Asked, Pattern: msg.Pattern, To: c.Sender()})
	case *messages.Bind:
		if q, ok := b.Queue(msg.Queue); ok {
			b.Router.Send(&router.Bind{Asked: msg.Asked, Queue: msg.Queue, To: q.Address, Pattern: msg.Pattern})
			return
		}
		c.Answer(msg, messages.Answer{Err: &messages.QueueNotFoundError{Op: "bind", Queue: msg.Queue}})
	case *messages.Unbind:
		b.Router.Send(&router.Unbind{Asked: msg.Asked, Queue: msg.Queue, Pattern: msg.Pattern})
	case messages.Command:
		c.Answer(msg, messages.Answer{Err: &messages.ArgumentError{Op: "broker", Argument: fmt.Sprintf("%T", msg), Problem: "is not for the broker's actor; queues take it"}})
	}
}

// CheckPublish says what is wrong with a publication, or nil.
func (b *Broker) CheckPublish(e *messages.Envelope) error {
	if err := messages.CheckTopic("publish", e.Topic); err != nil {
		return err
	}
	return b.Limits.Check("publish", e)
}
