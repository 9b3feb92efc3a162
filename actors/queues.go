package actors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
)

// queueDesk declares and deletes queues, and is their supervisor: a queue that
// panics is restarted at once around its ledger, which outlives it.
type queueDesk struct {
	broker       *Broker
	incarnations uint64
	count        int
	// configs are those in force, each of them once however many queues have it.
	configs map[messages.QueueConfig]*sharedConfig
	// leaving holds the declarations and deletions that came while a queue of that
	// name was on its way out: they are handled when it has gone.
	leaving map[string][]messages.Command
	closing []messages.Ref
}

// sharedConfig is what queues that were declared alike have in common.
type sharedConfig struct {
	messages.QueueConfig // never written
	queues               int
}

// queueClosed is a queue's last answer, on its way to whoever asked for the end.
type queueClosed struct {
	queue   *Queue
	command *closeQueue
	asker   messages.Ref
	answer  messages.Answer
	tries   int // that crashed
}

// Receive implements [actorkit.Actor].
func (d *queueDesk) Receive(c *actorkit.Context, msg any) {
	d.broker.carryOn(c, "queues", msg, d.handle)
}

// handle says which method handles which message.
func (d *queueDesk) handle(c *actorkit.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.DeclareQueue:
		d.declare(c, msg)
	case *messages.DeleteQueue:
		d.delete(c, msg)
	case *queueClosed:
		d.closed(c, msg)
	case *messages.BrokerStatsQuery:
		d.broker.Router.Send(&router.Stats{Asked: messages.Asked{Reply: c.Ref(msg)}, Partial: messages.BrokerStats{Queues: d.count}})
	case *closeQueues:
		d.closeAll(c, msg)
	}
}

// ChildFailed restarts a queue at once: its callers are waiting.
func (d *queueDesk) ChildFailed(c *actorkit.Context, child *actorkit.Address, _, _ any) {
	c.Restart(child)
}

func (d *queueDesk) declare(c *actorkit.Context, m *messages.DeclareQueue) {
	m.AnswerTo(c.Ref(m)) // it may be held, and its sender would be forgotten
	if d.held(m.Queue, m) {
		return
	}
	a := messages.Answer{}
	switch q, ok := d.broker.Queue(m.Queue); {
	case d.broker.Closing():
		a.Err = messages.ErrBrokerClosed
	case ok:
		if fields := q.Config.Conflicts(m.Config); len(fields) > 0 {
			a.Err = &messages.QueueConfigConflictError{Queue: m.Queue, Fields: fields}
		}
		a.Value = q
	default:
		a.Value, a.Err = d.make(c, m)
	}
	c.Answer(m, a)
}

func (d *queueDesk) make(c *actorkit.Context, m *messages.DeclareQueue) (*Queue, error) {
	if err := messages.CheckQueueName("declare queue", m.Queue); err != nil {
		return nil, err
	}
	if err := m.Config.Validate(); err != nil {
		return nil, err
	}
	b := d.broker
	d.incarnations++
	q := &Queue{
		Source: &messages.Source{Queue: m.Queue, Incarnation: d.incarnations, Settler: b},
		Config: d.share(m.Config.WithDefaults()),
	}
	work := newWorkQueue(b, q, c.Now())
	q.work, q.hash = work, work.ledger.Hasher()
	// The name carries the incarnation, so that an actor that is still stopping
	// cannot be mistaken for its successor.
	name := fmt.Sprintf("%s#%d", m.Queue, d.incarnations)
	address, err := c.Spawn(b.spec(name, work.new))
	if err != nil {
		d.unshare(q.Config)
		return nil, fmt.Errorf("declare queue %q: %w", m.Queue, err)
	}
	q.Address = address
	b.queues.Store(m.Queue, q)
	d.count++
	return q, nil
}

// share returns the one copy of a configuration, for one more queue.
func (d *queueDesk) share(config messages.QueueConfig) *messages.QueueConfig {
	s := d.configs[config]
	if s == nil {
		if d.configs == nil {
			d.configs = map[messages.QueueConfig]*sharedConfig{}
		}
		s = &sharedConfig{QueueConfig: config}
		d.configs[config] = s
	}
	s.queues++
	return &s.QueueConfig
}

// unshare forgets a configuration with the last queue that has it.
func (d *queueDesk) unshare(config *messages.QueueConfig) {
	s := d.configs[*config]
	if s.queues--; s.queues == 0 {
		delete(d.configs, *config)
	}
}

// held keeps a command for a queue that is leaving, and reports whether it did.
func (d *queueDesk) held(queue string, cmd messages.Command) bool {
	waiting, leaving := d.leaving[queue]
	if leaving {
		d.leaving[queue] = append(waiting, cmd)
	}
	return leaving
}

func (d *queueDesk) delete(c *actorkit.Context, m *messages.DeleteQueue) {
	m.AnswerTo(c.Ref(m))
	if d.held(m.Queue, m) {
		return
	}
	q, ok := d.broker.Queue(m.Queue)
	if !ok {
		c.Answer(m, messages.Answer{Err: &messages.QueueNotFoundError{Op: "delete queue", Queue: m.Queue}})
		return
	}
	d.end(c, q, &closeQueue{ifEmpty: m.IfEmpty, ifUnused: m.IfUnused, reason: messages.ErrQueueClosed}, c.Ref(m))
}

// end asks a queue to close; its answer comes back as *queueClosed.
func (d *queueDesk) end(c *actorkit.Context, q *Queue, m *closeQueue, asker messages.Ref) {
	if d.leaving == nil {
		d.leaving = map[string][]messages.Command{}
	}
	d.leaving[q.Queue] = nil
	d.sendClose(c, &queueClosed{queue: q, command: m, asker: asker})
}

func (d *queueDesk) sendClose(c *actorkit.Context, m *queueClosed) {
	self := c.Self()
	m.command.Reply = answerWith(func(a messages.Answer) {
		m.answer = a
		self.Send(m)
	})
	m.queue.Address.Send(m.command)
}

// closed forgets a queue that has ended, lets the router forget its bindings, and
// then answers, so that nobody sees the half of it (SPEC T7).
func (d *queueDesk) closed(c *actorkit.Context, m *queueClosed) {
	crashed := errors.Is(m.answer.Err, actorkit.ErrCrashed)
	if crashed && m.tries < triesMax {
		// It has restarted around its ledger; closing twice is harmless, and a half
		// closed queue would keep its waiters for ever.
		m.tries++
		d.sendClose(c, m)
		return
	}
	name := m.queue.Queue
	held := d.leaving[name]
	delete(d.leaving, name)
	if m.answer.Err == nil || crashed { // or it cannot close: its end dismisses whoever waits
		m.answer.Err = actorkit.Outcome("delete queue", m.answer.Err)
		d.broker.queues.Delete(name)
		d.count--
		d.unshare(m.queue.Config)
		c.StopChild(m.queue.Address)
		d.broker.Router.Send(&router.Forget{Asked: messages.Asked{Reply: m.asker},
			Queue: name, To: m.queue.Address, Answer: m.answer, Router: d.broker.Router})
	} else {
		m.asker.Resolve(m.answer)
	}
	for _, cmd := range held {
		c.Self().Send(cmd)
	}
	d.allClosed()
}

func (d *queueDesk) closeAll(c *actorkit.Context, m *closeQueues) {
	d.closing = append(d.closing, c.Ref(m))
	for _, q := range d.sorted() {
		if _, leaving := d.leaving[q.Queue]; !leaving {
			d.end(c, q, &closeQueue{reason: messages.ErrBrokerClosed}, messages.Ref{})
		}
	}
	d.allClosed()
}

func (d *queueDesk) allClosed() {
	if d.count > 0 {
		return
	}
	for _, ref := range d.closing {
		ref.Resolve(messages.Answer{})
	}
	d.closing = nil
}

// sorted lists the queues by name, so that a simulation meets them in one order.
func (d *queueDesk) sorted() []*Queue {
	var all []*Queue
	d.broker.queues.Range(func(_, q any) bool {
		all = append(all, q.(*Queue))
		return true
	})
	slices.SortFunc(all, func(a, b *Queue) int { return strings.Compare(a.Queue, b.Queue) })
	return all
}

// QueueNames lists the queues in order.
func (b *Broker) QueueNames() []string {
	names := []string{}
	for _, q := range (&queueDesk{broker: b}).sorted() {
		names = append(names, q.Queue)
	}
	return names
}

func sortedByTag(m map[string]*attached) []*attached {
	all := make([]*attached, 0, len(m))
	for _, a := range m {
		all = append(all, a)
	}
	slices.SortFunc(all, func(x, y *attached) int {
		return cmp.Or(cmp.Compare(len(x.Tag), len(y.Tag)), strings.Compare(x.Tag, y.Tag))
	})
	return all
}
