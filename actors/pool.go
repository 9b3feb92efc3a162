package actors

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
)

// pool starts consumers and ends them, and is their supervisor: a consumer that
// panics is restarted at once around its state, which outlives it.
type pool struct {
	broker *Broker
	tags   uint64               // consumer tags given out: unique across all queues (SPEC C1)
	living map[string]*Consumer // by tag; those that are ending are gone for callers
	// left are the cancelled consumers of embedders' actors whose leases last as long
	// as the actor does (SPEC Q17).
	left    []*Consumer
	closing []messages.Ref
	redrive uint64

	reporters uint64
}

// Receive implements [actorkit.Actor].
func (p *pool) Receive(c *actorkit.Context, msg any) {
	p.broker.carryOn(c, "consumers", msg, p.handle)
}

// handle says which method handles which message.
func (p *pool) handle(c *actorkit.Context, msg any) {
	switch msg := msg.(type) {
	case *StartConsumer:
		p.start(c, msg)
	case *consumeNative:
		p.startNative(c, msg)
	case *consumerGone:
		delete(p.living, msg.consumer.Tag)
		if k := msg.consumer; msg.mayHold && (k.Config.NoTimeout || k.Queue.Config.NoTimeout) {
			p.left = append(p.left, k)
		}
		p.allClosed()
	case *actorkit.ForeignEnded:
		p.foreignEnded(c, msg)
	case *messages.Cancel:
		if k := p.find(c, "cancel", msg.Tag, msg); k != nil {
			k.control.Send(&stopConsumer{Asked: messages.Asked{Reply: c.Ref(msg)}, to: k.control, queue: k.attachedTo(), tag: msg.Tag})
		}
	case *messages.SetPrefetch:
		if k := p.find(c, "set prefetch", msg.Tag, msg); k != nil {
			msg.AnswerTo(c.Ref(msg))
			k.control.Send(msg)
		}
	case *messages.Redrive:
		p.startRedrive(c, msg)
	case *StartReporter:
		p.reporters++
		name := fmt.Sprintf("publisher-%d", p.reporters)
		a, err := c.Spawn(actorkit.Spec{Name: name, Blocking: true, UserCode: true, OnPanic: p.broker.onPanic(name),
			New: func() actorkit.Actor { return reporter{msg.Handle} }})
		c.Answer(msg, messages.Answer{Value: a, Err: err})
	case *closeConsumers:
		p.closeAll(c, msg)
	case *livingConsumers:
		tags := []string{}
		for _, k := range p.sorted() {
			tags = append(tags, k.Tag)
		}
		c.Answer(msg, messages.Answer{Value: tags})
	case *abortConsumers:
		for _, k := range p.sorted() {
			if k.inner != nil {
				k.control.Send(&abort{cause: messages.ErrBrokerClosed})
			}
		}
	}
}

// livingConsumers asks for the tags of those that have not ended.
type livingConsumers struct{ messages.Asked }

// abortConsumers cancels the contexts of all handlers: Close has run out of time.
type abortConsumers struct{}

// ChildFailed restarts a consumer at once: leases wait for its heartbeat.
func (p *pool) ChildFailed(c *actorkit.Context, child *actorkit.Address, _, _ any) { c.Restart(child) }

// make checks what Consume was given and registers the consumer.
func (p *pool) make(queue string, config messages.ConsumerConfig) (*Consumer, error) {
	b := p.broker
	if b.Closing() {
		return nil, messages.ErrBrokerClosed
	}
	q, ok := b.Queue(queue)
	if !ok {
		return nil, &messages.QueueNotFoundError{Op: "consume", Queue: queue}
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	p.tags++
	k := &Consumer{Tag: "ctag-" + strconv.FormatUint(p.tags, 10), Config: config.WithDefaults(), Queue: q, done: make(chan struct{})}
	if p.living == nil {
		p.living = map[string]*Consumer{}
	}
	p.living[k.Tag] = k
	return k, nil
}

// find returns a consumer that is not ending, or answers that there is none.
func (p *pool) find(c *actorkit.Context, op, tag string, cmd messages.Command) *Consumer {
	if k := p.living[tag]; k != nil && !k.gone.Load() {
		return k
	}
	c.Answer(cmd, messages.Answer{Err: &messages.NotFoundError{Op: op, What: "consumer", Name: tag}})
	return nil
}

func (p *pool) start(c *actorkit.Context, m *StartConsumer) {
	k, err := p.make(m.Queue, m.Config)
	if err != nil {
		c.Answer(m, messages.Answer{Err: err})
		return
	}
	inner := newConsumer(p.broker, k, m.Handler)
	inner.started = c.Ref(m)
	k.inner = inner
	address, err := c.Spawn(p.broker.spec(k.Tag, inner.new))
	if err != nil {
		delete(p.living, k.Tag)
		c.Answer(m, messages.Answer{Err: fmt.Errorf("consume: %w", err)})
		return
	}
	k.control = address
}

func (p *pool) startNative(c *actorkit.Context, m *consumeNative) {
	if m.to == nil {
		c.Answer(m, messages.Answer{Err: &messages.ArgumentError{Op: "consume", Argument: "sender", Problem: "is missing: send it with Request, so that deliveries have somewhere to go"}})
		return
	}
	k, err := p.make(m.Queue, m.Consumer)
	if err != nil {
		c.Answer(m, messages.Answer{Err: err})
		return
	}
	k.foreign = m.to
	k.control = k.Queue.Address // its queue ends it: there is no actor of ours
	c.WatchForeign(m.to)
	asker, self := c.Ref(m), c.Self()
	answer := answerWith(func(a messages.Answer) {
		if a.Err != nil {
			k.Queue.Address.Send(&holderEnded{queue: k.Queue, tag: k.Tag}) // a crash may have come after it was attached
			self.Send(&consumerGone{consumer: k})
			asker.Resolve(messages.Answer{Err: a.Err})
			return
		}
		asker.Resolve(messages.Answer{Value: k.Tag})
	})
	k.Queue.Address.Send(&attach{Asked: messages.Asked{Reply: answer}, consumer: k})
}

// foreignEnded lets go of what an embedder's actor that ended was holding (C7).
func (p *pool) foreignEnded(_ *actorkit.Context, m *actorkit.ForeignEnded) {
	for _, k := range p.sorted() {
		if k.foreign != nil && k.foreign.Equal(m.PID) {
			k.control.Send(&stopConsumer{to: k.control, queue: k.Queue, tag: k.Tag, holderGone: true})
		}
	}
	p.left = slices.DeleteFunc(p.left, func(k *Consumer) bool {
		gone := k.foreign.Equal(m.PID)
		if gone {
			k.control.Send(&holderEnded{queue: k.Queue, tag: k.Tag})
		}
		return gone || !p.broker.lives(k.Queue.Queue, k.Queue.Address)
	})
}

func (p *pool) closeAll(c *actorkit.Context, m *closeConsumers) {
	p.closing = append(p.closing, c.Ref(m))
	for _, k := range p.sorted() {
		k.control.Send(&stopConsumer{to: k.control, queue: k.attachedTo(), tag: k.Tag, reason: messages.ErrBrokerClosed})
	}
	p.allClosed()
}

func (p *pool) allClosed() {
	if len(p.living) > 0 {
		return
	}
	for _, ref := range p.closing {
		ref.Resolve(messages.Answer{})
	}
	p.closing = nil
}

// sorted lists the living consumers in the order of their tags, so that a
// simulation meets them in one order.
func (p *pool) sorted() []*Consumer {
	all := make([]*Consumer, 0, len(p.living))
	for _, k := range p.living {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(len(a.Tag), len(b.Tag)), strings.Compare(a.Tag, b.Tag))
	})
	return all
}

// attachedTo is where an embedder's actor is stopped; nil for one of ours.
func (c *Consumer) attachedTo() *Queue {
	if c.foreign == nil {
		return nil
	}
	return c.Queue
}

// stoppedNotice announces a consumer that gave up (SPEC S2).
func stoppedNotice(k *consumer, why error) *router.Announce {
	b := k.broker
	queue := k.queue.Address
	return &router.Announce{Lost: func() { queue.Send(&lostNotice{}) }, Envelope: messages.Envelope{
		ID: b.NewID(), ContentType: "application/json",
		Topic: messages.SystemTopics + "consumer.stopped." + messages.TopicWord(k.queue.Queue),
		Body: marshal(struct {
			Queue    string `json:"queue"`
			Consumer string `json:"consumer"`
			Name     string `json:"name,omitempty"`
			Error    string `json:"error"`
		}{k.queue.Queue, k.tag, k.config.Name, messages.CutError(why.Error())}),
	}}
}
