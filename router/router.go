package router

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// BufferMax is how many events wait for one subscriber; one more is dropped for
// it and counted (SPEC T2).
const BufferMax = 1024

// Config is what a TopicRouter is given.
type Config struct {
	Runtime  actorkit.Runtime
	Listener messages.Listener // nil: nobody
	// NewID makes the id of a publication that came without one.
	NewID func() string
	// Probe runs before and after each command, by name; nil in production. A test
	// that makes it panic sees what a crash at that point costs.
	Probe func(point string)
	// Lives says whether this is still the queue of that name, so that a Bind that
	// was overtaken by the queue's deletion does not bind a queue that is gone. Nil:
	// it always is.
	Lives func(queue string, at *actorkit.Address) bool
}

// TopicRouter is the notice board: it owns the two tries, of subscriptions and of
// bindings, and copies each publication to those that match. It never blocks and
// never waits for a subscriber (SPEC T5).
//
// A panic costs the command that caused it, see [actorkit.CarryOn]. Should the actor be
// restarted all the same, the value outlives it: New hands out shells.
type TopicRouter struct {
	config Config

	subscribers   Trie[*subscription]
	subscriptions map[string]*subscription
	bindings      Trie[*bound]
	queues        map[string]*bound
	numbered      uint64 // subscriptions made so far

	drops    atomic.Uint64 // binding_drops
	lost     atomic.Uint64 // subscription_drops
	subMatch []*subscription
	qMatch   []*bound
}

// bound is one queue that has bindings.
type bound struct {
	queue string
	to    *actorkit.Address
}

// subscription is one subscriber. waiting is shared with its actor.
type subscription struct {
	name, pattern string
	to            *actorkit.Address
	foreign       *actor.PID
	waiting       atomic.Int64
	handle        func(string, *messages.Event)
}

// NewTopicRouter returns a router without subscriptions or bindings.
func NewTopicRouter(config Config) *TopicRouter {
	return &TopicRouter{config: config, subscriptions: map[string]*subscription{}, queues: map[string]*bound{}}
}

// New returns a shell for the actor; called again after each crash.
func (r *TopicRouter) New() actorkit.Actor { return (*shell)(r) }

// SubscriptionDrops is how many events were dropped for full subscribers.
func (r *TopicRouter) SubscriptionDrops() uint64 { return r.lost.Load() }

// shell is the actor around the router.
type shell TopicRouter

// Started forgets, after a restart, the subscribers that protoactor has stopped for
// it. Only a Goexit in the listener gets here; their owners see it in Done.
func (s *shell) Started(c *actorkit.Context) {
	if c.Restarted() == 0 {
		return
	}
	for name, sub := range s.subscriptions {
		if sub.to != nil {
			s.subscribers.Remove(sub.pattern, sub)
			delete(s.subscriptions, name)
		}
	}
}

// Receive implements [actorkit.Actor].
func (s *shell) Receive(c *actorkit.Context, msg any) {
	r := (*TopicRouter)(s)
	actorkit.AnswerOnce(c, msg)
	survived := actorkit.CarryOn(c, r.config.Listener, msg, func() {
		r.probe("before", msg)
		r.handle(c, msg)
		r.probe("after", msg)
	})
	if ended, ok := msg.(*actorkit.ForeignEnded); ok && !survived {
		c.Self().Send(&subscriberEnded{who: ended.PID}) // nobody else would say so again
	}
}

// subscriberEnded is a *actorkit.ForeignEnded that is handled again.
type subscriberEnded struct{ who *actor.PID }

func (r *TopicRouter) probe(when string, msg any) {
	if r.config.Probe != nil {
		r.config.Probe(fmt.Sprintf("router %s %T", when, msg))
	}
}

// handle says which method handles which message.
func (r *TopicRouter) handle(c *actorkit.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Publish:
		r.publish(c, msg)
	case *Announce:
		r.announce(c, msg)
	case *Subscribe:
		r.subscribe(c, msg)
	case *messages.Unsubscribe:
		r.unsubscribe(c, msg)
	case *Bind:
		r.bind(c, msg)
	case *Unbind:
		r.unbind(c, msg)
	case *Forget:
		r.forget(c, msg)
	case *Stats:
		r.stats(c, msg)
	case *actorkit.ForeignEnded:
		r.subscriberGone(msg.PID)
	case *subscriberEnded:
		r.subscriberGone(msg.who)
	case messages.Command:
		c.Answer(msg, messages.Answer{Err: &messages.ArgumentError{Op: "router", Argument: fmt.Sprintf("%T", msg), Problem: "is not for the router"}})
	}
}

// ChildFailed lets a subscriber that panicked go on with its next event (T2).
func (s *shell) ChildFailed(c *actorkit.Context, child *actorkit.Address, _, _ any) { c.Restart(child) }

func (r *TopicRouter) publish(c *actorkit.Context, m *messages.Publish) {
	given := m.Envelope.ID != ""
	if !given {
		m.Envelope.ID = r.config.NewID()
	}
	r.route(c, Copy{Envelope: &m.Envelope, Given: given, pub: &publication{reply: c.Ref(m), drops: &r.drops}})
}

func (r *TopicRouter) announce(c *actorkit.Context, m *Announce) {
	r.route(c, Copy{Envelope: &m.Envelope, Given: m.Given, History: m.History, Deaths: m.Deaths, pub: &publication{drops: &r.drops}})
	m.done()
}

// route sends a publication to every match; of is what each queue gets. The queues'
// count starts at one, for the router itself, so that a quick queue cannot answer the
// publisher before the last copy has left.
func (r *TopicRouter) route(c *actorkit.Context, of Copy) {
	e, pub := of.Envelope, of.pub
	r.subMatch = r.subscribers.Match(e.Topic, r.subMatch[:0])
	r.qMatch = r.bindings.Match(e.Topic, r.qMatch[:0])
	pub.waiting.Store(1)
	if len(r.subMatch) > 0 {
		ev := event(e, c.Now())
		for _, sub := range r.subMatch {
			if r.offer(c, sub, ev) {
				pub.subscribers++
			}
		}
	}
	if len(r.qMatch) > 0 {
		of.Details = e.Split()
		copies := pub.copiesFor(len(r.qMatch), &of)
		for i, q := range r.qMatch {
			if slices.ContainsFunc(of.History, func(d messages.Death) bool { return d.Queue == q.queue }) {
				continue // it died there before (R7)
			}
			pub.waiting.Add(1)
			q.to.Send(&copies[i])
		}
	}
	clear(r.subMatch)
	clear(r.qMatch)
	pub.answered()
}

// offer puts the event into the subscriber's buffer, or drops it for that one.
func (r *TopicRouter) offer(c *actorkit.Context, sub *subscription, ev *messages.Event) bool {
	if sub.foreign != nil {
		c.System().Send(sub.foreign, ev)
		return true
	}
	if sub.waiting.Add(1) > BufferMax {
		sub.waiting.Add(-1)
		r.lost.Add(1)
		actorkit.Tell(r.config.Listener, messages.EventDropped{Subscription: sub.name, Topic: ev.Topic})
		return false
	}
	sub.to.Send(ev)
	return true
}

func (r *TopicRouter) subscribe(c *actorkit.Context, m *Subscribe) {
	if err := messages.CheckPattern("subscribe", "pattern", m.Pattern); err != nil {
		c.Answer(m, messages.Answer{Err: err})
		return
	}
	r.numbered++ // first: a number that a crash has used is not used again
	sub := &subscription{name: "sub-" + strconv.FormatUint(r.numbered, 10), pattern: m.Pattern, foreign: m.To, handle: m.Handle}
	if m.To == nil {
		to, err := c.Spawn(actorkit.Spec{Name: sub.name, Blocking: true, UserCode: true,
			New: func() actorkit.Actor { return subscriber{sub} }, OnPanic: r.onPanic(sub.name)})
		if err != nil {
			c.Answer(m, messages.Answer{Err: err})
			return
		}
		sub.to = to
	} else {
		c.WatchForeign(m.To)
	}
	r.subscribers.Add(sub.pattern, sub)
	r.subscriptions[sub.name] = sub
	var handle any = sub.name
	if sub.to != nil {
		handle = Subscribed{Name: sub.name, Actor: sub.to}
	}
	c.Answer(m, messages.Answer{Value: handle})
}

// Subscribed answers a Subscribe with a Handle: the name, and the actor whose end
// is the subscription's.
type Subscribed struct {
	Name  string
	Actor *actorkit.Address
}

func (r *TopicRouter) onPanic(name string) func(any, []byte, any) {
	return func(reason any, stack []byte, _ any) {
		actorkit.Tell(r.config.Listener, messages.ActorCrashed{Actor: name, Reason: reason, Stack: stack})
	}
}

func (r *TopicRouter) unsubscribe(c *actorkit.Context, m *messages.Unsubscribe) {
	sub := r.subscriptions[m.Subscription]
	if sub == nil {
		c.Answer(m, messages.Answer{Err: &messages.NotFoundError{Op: "unsubscribe", What: "subscription", Name: m.Subscription}})
		return
	}
	r.drop(c, sub)
	c.Answer(m, messages.Answer{})
}

func (r *TopicRouter) drop(c *actorkit.Context, sub *subscription) {
	r.subscribers.Remove(sub.pattern, sub)
	delete(r.subscriptions, sub.name)
	if sub.to != nil {
		c.StopChild(sub.to)
	}
}

// subscriberGone forgets the subscriptions of an embedder's actor that ended.
func (r *TopicRouter) subscriberGone(pid *actor.PID) {
	for name, sub := range r.subscriptions {
		if sub.foreign != nil && sub.foreign.Equal(pid) {
			r.subscribers.Remove(sub.pattern, sub)
			delete(r.subscriptions, name)
		}
	}
}

func (r *TopicRouter) bind(c *actorkit.Context, m *Bind) {
	if err := messages.CheckPattern("bind", "pattern", m.Pattern); err != nil {
		c.Answer(m, messages.Answer{Err: err})
		return
	}
	if lives := r.config.Lives; lives != nil && !lives(m.Queue, m.To) {
		c.Answer(m, messages.Answer{Err: &messages.QueueNotFoundError{Op: "bind", Queue: m.Queue}})
		return
	}
	q := r.queues[m.Queue]
	if q != nil && q.to != m.To { // of an incarnation that is gone; its Forget is still to come
		r.bindings.RemoveValue(q)
		q = nil
	}
	if q == nil {
		q = &bound{queue: m.Queue, to: m.To}
		r.queues[m.Queue] = q
	}
	r.bindings.Add(m.Pattern, q)
	c.Answer(m, messages.Answer{})
}

func (r *TopicRouter) unbind(c *actorkit.Context, m *Unbind) {
	q := r.queues[m.Queue]
	if q == nil || !r.bindings.Remove(m.Pattern, q) {
		c.Answer(m, messages.Answer{Err: &messages.NotFoundError{Op: "unbind", What: "binding", Name: m.Queue + " " + m.Pattern}})
		return
	}
	if len(r.bindings.Patterns(q)) == 0 {
		delete(r.queues, m.Queue)
	}
	c.Answer(m, messages.Answer{})
}

func (r *TopicRouter) forget(c *actorkit.Context, m *Forget) {
	if q := r.queues[m.Queue]; q != nil && q.to == m.To {
		r.bindings.RemoveValue(q)
		delete(r.queues, m.Queue)
	}
	c.Answer(m, m.Answer)
}

func (r *TopicRouter) stats(c *actorkit.Context, m *Stats) {
	s := m.Partial
	s.Subscriptions = len(r.subscriptions)
	s.Bindings = r.bindings.Len()
	s.BindingDrops = r.drops.Load()
	s.SubscriptionDrops = r.lost.Load()
	c.Answer(m, messages.Answer{Value: s})
}

// subscriber runs one subscription's function, event by event. It may block; its
// panic costs it one event.
type subscriber struct{ *subscription }

// Receive hands the event to the function.
func (s subscriber) Receive(_ *actorkit.Context, msg any) {
	if e, ok := msg.(*messages.Event); ok {
		s.waiting.Add(-1) // before the handler: its panic must not leak a place
		s.handle(s.name, e)
	}
}
