package postroom

import (
	"time"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/supervisor"
)

// Option changes one thing about a broker that is being opened.
type Option func(*options) error

type options struct {
	name     string
	limits   Limits
	listener Listener
	executor actorkit.Executor
	restart  supervisor.Policy
	runtime  actorkit.Runtime
	system   *actorkit.System
	probe    func(point string)
	ledger   func(*messages.Source, *messages.QueueConfig, time.Time, ledger.Options) actors.Ledger
}

// WithName puts the broker's actors below this name; "postroom" without it. Two
// brokers mounted in one actor system need two names; [Open] has a system of its
// own, where no name is taken. It must be 1 to 200 printable ASCII
// bytes without a slash.
func WithName(name string) Option {
	return func(o *options) error {
		o.name = name
		return checkName("open", name)
	}
}

// checkName applies the rules of queue names to another name.
func checkName(op, name string) error {
	err := messages.CheckQueueName(op, name)
	switch err := err.(type) {
	case *ArgumentError:
		err.Argument = "name"
	case *LimitError:
		err.What = "name bytes"
	}
	return err
}

// WithLimits bounds ids, headers and bodies; a zero field keeps its default.
func WithLimits(l Limits) Option {
	return func(o *options) error {
		if l.IDBytes < Unlimited || l.Headers < Unlimited || l.HeaderBytes < Unlimited || l.BodyBytes < Unlimited {
			return &ArgumentError{Op: "open", Argument: "Limits", Problem: "must be positive, 0 for the default or Unlimited (-1)"}
		}
		o.limits = l
		return nil
	}
}

// WithListener has l told of what happens inside, see [Listener]. Given twice, both
// are told, in order.
func WithListener(l Listener) Option {
	return func(o *options) error {
		if l == nil {
			return &ArgumentError{Op: "open", Argument: "listener", Problem: "must not be nil"}
		}
		if first := o.listener; first != nil {
			o.listener = func(n Notice) { first(n); l(n) }
			return nil
		}
		o.listener = l
		return nil
	}
}

// WithLanes runs the broker's own actors on GOMAXPROCS goroutines instead of one
// for each active actor: more messages a second through one busy queue, longer
// waits when many are busy. Handlers always have goroutines of their own.
func WithLanes() Option {
	return func(o *options) error {
		o.executor = actorkit.Lanes
		return nil
	}
}

// WithRestarts says how long crashed handlers wait for their worker's restart and
// when a consumer gives up; a zero field keeps its default.
func WithRestarts(p supervisor.Policy) Option {
	return func(o *options) error {
		o.restart = p
		return p.Validate()
	}
}

// WithRuntime runs the broker on a clock, executor and randomness made elsewhere.
// It is for package simulation: the type it takes cannot be named outside this
// module. system may be nil.
func WithRuntime(rt actorkit.Runtime, system *actorkit.System) Option {
	return func(o *options) error {
		o.runtime, o.system = rt, system
		return nil
	}
}

// WithProbe has probe called before and after each message of the broker's actors. It
// is for crash tests: a probe that panics shows what a crash at that point costs.
func WithProbe(probe func(point string)) Option {
	return func(o *options) error {
		o.probe = probe
		return nil
	}
}

// WithLedger has the rules of each queue made by make instead of ledger.New. It is
// for package simulation, which wraps them to compare two of a kind.
func WithLedger(make func(*messages.Source, *messages.QueueConfig, time.Time, ledger.Options) actors.Ledger) Option {
	return func(o *options) error {
		o.ledger = make
		return nil
	}
}

func settings(list []Option) (*options, error) {
	o := &options{name: "postroom"}
	for _, option := range list {
		if option == nil {
			return nil, &ArgumentError{Op: "open", Argument: "option", Problem: "must not be nil"}
		}
		if err := option(o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *options) start(system func(actorkit.Runtime) *actorkit.System) (*Broker, error) {
	b := &Broker{}
	rt := o.runtime
	if rt == nil {
		b.runtime = actorkit.NewReal(actorkit.RealConfig{Executor: o.executor})
		rt = b.runtime
	}
	core, err := actors.Start(actors.Config{
		System: system(rt), Limits: o.limits, Listener: o.listener, Restart: o.restart, Probe: o.probe,
		CheckBodies: !rt.CallerRuns(), // in the simulation; benchmarks bring a runtime too, which only counts
		NewLedger:   o.ledger,
	})
	if err != nil {
		if b.runtime != nil {
			b.runtime.Close()
		}
		return nil, err
	}
	b.core = core
	return b, nil
}
