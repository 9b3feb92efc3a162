package actors

import (
	"fmt"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// redriver moves the dead letters of one queue, one at a time and no faster than
// its rate (SPEC R8). A letter leaves its queue only when the target has taken it.
type redriver struct {
	broker   *Broker
	from, to *Queue
	asker    messages.Ref
	self     *actorkit.Address

	began  time.Time
	every  time.Duration // 1/rate
	last   uint64        // the newest letter when it began; younger ones are not touched
	after  uint64
	left   int // of Max; negative: no such limit
	tried  int
	result messages.Redriven
	timer  actorkit.Timer
	over   bool
}

// everyMax is the slowest pace, as a float: a year a letter. Rates near zero would
// overflow a duration and turn into a flood.
const everyMax = float64(365 * 24 * time.Hour)

// lookEvery is how often a redriver that waits for a letter's turn looks whether
// anybody still waits for it and its queues still stand.
const lookEvery = time.Second

// What a redriver tells itself, from answers and its timer.
type (
	nextLetter  struct{}
	lettersRead struct{ messages.Answer }
	letterMoved struct {
		messages.Answer
		number uint64
	}
)

func (p *pool) startRedrive(c *actorkit.Context, m *messages.Redrive) {
	refuse := func(err error) { c.Answer(m, messages.Answer{Err: err}) }
	bad := func(argument, problem string) {
		refuse(&messages.ArgumentError{Op: "redrive", Argument: argument, Problem: problem})
	}
	to := m.To
	if to == "" {
		to = m.Queue
	}
	from, ok := p.broker.Queue(m.Queue)
	target, ok2 := p.broker.Queue(to)
	switch {
	case !ok:
		refuse(&messages.QueueNotFoundError{Op: "redrive", Queue: m.Queue})
		return
	case !ok2:
		refuse(&messages.QueueNotFoundError{Op: "redrive", Queue: to})
		return
	case m.Rate < 0 || m.Rate != m.Rate:
		bad("rate", "must not be negative")
		return
	case m.Max < 0:
		bad("max", "must not be negative")
		return
	}
	rate := m.Rate
	if rate == 0 {
		rate = messages.DefaultRedriveRate
	}
	r := &redriver{broker: p.broker, from: from, to: target, asker: c.Ref(m), left: -1,
		every: time.Duration(min(max(float64(time.Second)/rate, 1), everyMax))}
	if m.Max > 0 {
		r.left = m.Max
	}
	p.redrive++
	if _, err := c.Spawn(p.broker.spec(fmt.Sprintf("redrive-%d", p.redrive), func() actorkit.Actor { return r })); err != nil {
		refuse(fmt.Errorf("redrive: %w", err))
	}
}

// Started asks how far to go, and begins.
func (r *redriver) Started(c *actorkit.Context) {
	r.self = c.Self()
	if c.Restarted() > 0 {
		r.stop(c, messages.ErrOutcomeUnknown)
		return
	}
	r.began = c.Now()
	r.read(&messages.DeadLettersQuery{N: 0})
}

// Receive implements [actorkit.Actor].
func (r *redriver) Receive(c *actorkit.Context, msg any) {
	if r.over {
		return
	}
	r.broker.probe("redrive", "before", msg)
	switch msg := msg.(type) {
	case *lettersRead:
		r.letters(c, msg.Answer)
	case *nextLetter:
		r.next(c)
	case *letterMoved:
		r.moved(c, msg)
	}
	r.broker.probe("redrive", "after", msg)
}

// Ended answers whoever still waits.
func (r *redriver) Ended(*actorkit.Context) {
	if !r.over {
		r.asker.Resolve(messages.Answer{Value: r.result, Err: messages.ErrBrokerClosed})
	}
}

func (r *redriver) ask(to *actorkit.Address, cmd messages.Command, wrap func(messages.Answer) any) {
	self := r.self
	cmd.AnswerTo(answerWith(func(a messages.Answer) { self.Send(wrap(a)) }))
	to.Send(cmd)
}

func (r *redriver) read(m *messages.DeadLettersQuery) {
	r.ask(r.from.Address, m, func(a messages.Answer) any { return &lettersRead{a} })
}

// next reads the next letter when its time has come. The n-th leaves no earlier
// than n/rate after the start, so a window w sees at most rate*w + 1.
func (r *redriver) next(c *actorkit.Context) {
	if !r.asker.Waiting() {
		r.stop(c, nil) // cancelled: nobody waits for the answer any more
		return
	}
	if r.left == 0 || r.after >= r.last {
		r.stop(c, nil)
		return
	}
	for _, q := range []*Queue{r.from, r.to} {
		if !r.broker.lives(q.Queue, q.Address) {
			r.stop(c, &messages.QueueStateError{Op: "redrive", Queue: q.Queue, Reason: messages.ErrQueueClosed})
			return
		}
	}
	if wait := r.began.Add(time.Duration(r.tried) * r.every).Sub(c.Now()); wait > 0 {
		wait = min(wait, lookEvery)
		self := r.self
		if r.timer == nil {
			r.timer = r.broker.runtime.AfterFunc(wait, func() { self.Send(&nextLetter{}) })
		} else {
			r.timer.Reset(wait)
		}
		return
	}
	r.read(&messages.DeadLettersQuery{After: r.after, N: 1})
}

func (r *redriver) letters(c *actorkit.Context, a messages.Answer) {
	if a.Err != nil {
		r.stop(c, a.Err)
		return
	}
	if r.last == 0 { // the first answer says how far to go
		if r.last = uint64(a.N); r.last == 0 {
			r.stop(c, nil)
			return
		}
		r.next(c)
		return
	}
	found := a.Value.([]messages.DeadLetter)
	if len(found) == 0 || found[0].Number > r.last {
		r.stop(c, nil)
		return
	}
	r.tried++
	if r.left > 0 {
		r.left--
	}
	r.move(&found[0])
}

func (r *redriver) move(l *messages.DeadLetter) {
	r.after = l.Number
	wrap := func(a messages.Answer) any { return &letterMoved{a, l.Number} }
	if r.from == r.to {
		r.ask(r.to.Address, &redriveLetter{number: l.Number}, wrap)
		return
	}
	e := messages.Envelope{ID: l.ID, Body: l.Body, Headers: l.Headers, ContentType: l.ContentType,
		Extra: l.Extra, Topic: l.Topic, Priority: l.Priority} // ExpiresAt and Delay are dropped (R8)
	r.ask(r.to.Address, &Put{Put: messages.Put{Envelope: e}, Given: true,
		past: &ledger.Past{Redriven: true, Deliveries: l.Deliveries, Deaths: l.Deaths, History: l.History}}, wrap)
}

func (r *redriver) moved(c *actorkit.Context, m *letterMoved) {
	switch {
	case m.Err != nil:
		r.stop(c, m.Err)
		return
	case m.N == 1:
		r.result.Skipped++ // its id is taken: the letter stays
	default:
		r.result.Moved++
		if r.from != r.to {
			r.from.Address.Send(&removeLetter{queue: r.from, number: m.number})
		}
	}
	r.next(c)
}

func (r *redriver) stop(c *actorkit.Context, why error) {
	r.over = true
	r.result.Stopped = r.broker.explain("redrive", r.from.Queue, why)
	if r.timer != nil {
		r.timer.Stop()
	}
	r.asker.Resolve(messages.Answer{Value: r.result})
	c.StopSelf()
}
