package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// putTriesMax is how often a producer puts an item whose outcome it does not know.
const putTriesMax = 4

// retryPutAfter is how long it waits before it does.
const retryPutAfter = 50 * time.Millisecond

func sortItems(items []Item) {
	slices.SortStableFunc(items, func(a, b Item) int { return int(a.At - b.At) })
}

func (p *producer) run() {
	for i := range p.items {
		it := &p.items[i]
		if d := it.At - p.lab.now(); d > 0 {
			p.lab.sleep(d)
		}
		p.put(it, true)
	}
}

// envelope is the item's message, the same each time.
func (p *producer) envelope(it *Item) postroom.Envelope {
	var e postroom.Envelope
	if p.generate != nil {
		e = p.generate(Draw{p.lab.plan.Seed, fmt.Sprintf("%s/%d", p.name, it.Number)}, it.Number)
	}
	switch e.ID {
	case "":
		e.ID = it.Message
	case MadeIDs:
		e.ID = ""
	}
	if len(e.Body) == 0 {
		e.Body = []byte(it.Message)
	}
	return e
}

// put puts one item, again while its outcome is unknown.
func (p *producer) put(it *Item, again bool) {
	l := p.lab
	for try := 1; ; try++ {
		e := p.envelope(it)
		l.begins(it, &e)
		ctx, cancel := l.mayLose()
		s := l.story(it.Message)
		n := l.emitOf(s, Event{Kind: KindPut, Queue: it.Queue, Message: it.Message, Cause: s.last})
		if f := l.lostAnswer(n); f != nil {
			l.rt.Go("lost answer of "+it.Message, func() { cancel(); l.poke() })
		}
		r, err := l.broker.Put(ctx, it.Queue, e)
		cancel()
		if l.over {
			return
		}
		if l.answered(it, &r, err) || !again || try == putTriesMax {
			return
		}
		l.sleep(retryPutAfter)
	}
}

// mayLose is the context of a put: one that ends before its time if a fault of the plan
// takes an answer away.
func (l *lab) mayLose() (context.Context, context.CancelFunc) {
	for i := range l.plan.Faults {
		if l.plan.Faults[i].Kind == FaultPutUnknown {
			return context.WithCancel(context.Background())
		}
	}
	return context.Background(), func() {}
}

// begins notes that an item is put, by this envelope.
func (l *lab) begins(it *Item, e *postroom.Envelope) {
	s := l.story(it.Message)
	s.sum, s.summed = l.sum(e.Body, e.Headers, e.ContentType, e.Extra), true
	if e.ID != "" {
		l.byID[e.ID] = s
	} else {
		l.bodies[&e.Body[0]] = s
	}
	s.attempts++
	l.ops = append(l.ops, QueueOp{Type: EnqueueInvoke, Value: it.Message})
}

// answered notes how a put ended, and reports whether that is known.
func (l *lab) answered(it *Item, r *postroom.PutResult, err error) bool {
	name := it.Message
	s := l.story(name)
	if err != nil {
		return l.unanswered(it, s, err)
	}
	switch {
	case !r.Duplicate:
		s.confirmed++
		if s.accepted == 0 {
			l.object("safety", "I5", "put confirmed and not accepted", name+" is confirmed and no queue has accepted it")
		}
	default:
		s.confirmed++ // maybe of one of which nobody knew
		if s.accepted == 0 {
			l.object("safety", "I22", "duplicate of nothing", name+" is called a duplicate and was never accepted")
		}
	}
	return true
}

// unanswered notes how a put failed, and reports whether what became of it is known.
func (l *lab) unanswered(it *Item, s *story, err error) bool {
	name := it.Message
	var outcome *postroom.OutcomeError
	switch {
	case errors.As(err, &outcome) && outcome.Sent:
		l.hit(HitUnknownPut)
		l.ops = append(l.ops, QueueOp{Type: EnqueueInfo, Value: name})
		l.emit(Event{Kind: KindUnknown, Queue: it.Queue, Message: name, Reason: "outcome unknown", Cause: s.last})
		return false
	default:
		l.ops = append(l.ops, QueueOp{Type: EnqueueFail, Value: name})
		if errors.Is(err, postroom.ErrNotFound) || errors.As(err, &outcome) {
			// No ledger has seen it.
			l.emit(Event{Kind: KindRefused, Queue: it.Queue, Message: name, Reason: verdict(err), Cause: s.last})
		}
	}
	return true
}

// arriving is told of a put that reaches a ledger.
func (l *lab) arriving(p *ledger.Put) {
	if l.byID[p.ID] != nil {
		return
	}
	if len(p.Body) > 0 {
		if s := l.bodies[&p.Body[0]]; s != nil {
			l.byID[p.ID] = s
			return
		}
	}
	// Somebody else's: a handler's own put, a copy of a publication.
	l.story(p.ID).attempts++
	l.ops = append(l.ops, QueueOp{Type: EnqueueInvoke, Value: p.ID})
}

// arrived is told of the verdict.
func (l *lab) arrived(t *twin, p *ledger.Put, r ledger.PutResult, err error) {
	if err == nil && !r.Duplicate {
		return // its record has told of it
	}
	s := l.storyOf(p.ID)
	name := s.name
	switch {
	case err != nil:
		l.emitOf(s, Event{Kind: KindRefused, Queue: t.source.Queue, Message: name, Reason: verdict(err), Cause: s.last})
		if errors.Is(err, messages.ErrQueueFull) {
			l.hit(HitOverflow)
		}
	case r.Duplicate:
		l.hit(HitDedup)
		l.emit(Event{Kind: KindDuplicate, Queue: t.source.Queue, Message: name, Put: r.Number, Cause: s.last})
		if c, ok := t.book.claims[p.ID]; !ok || c.put != r.Number {
			l.object("safety", "I22", "duplicate of another", fmt.Sprintf("%s is called a duplicate of put %d, its id is put %d's", name, r.Number, c.put))
		} else if c.dead && !l.rt.now.Before(c.at.Add(t.config.DedupWindow)) {
			l.object("safety", "I22", "duplicate outside the window", fmt.Sprintf("%s was put at %v and is gone, the window is %v", name, since(c.at), t.config.DedupWindow))
		}
	}
}
