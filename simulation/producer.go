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
		l.sums[it.Message] = l.sum(e.Body, e.Headers, e.ContentType, e.Extra)
		if e.ID != "" {
			l.names[e.ID] = it.Message
		} else {
			l.bodies[&e.Body[0]] = it.Message
		}
		l.attempts[it.Message]++
		l.ops = append(l.ops, QueueOp{Type: EnqueueInvoke, Value: it.Message})
		ctx, cancel := context.WithCancel(context.Background())
		n := l.emit(Event{Kind: KindPut, Queue: it.Queue, Message: it.Message, Cause: l.last[it.Message]})
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

// answered notes how a put ended, and reports whether that is known.
func (l *lab) answered(it *Item, r *postroom.PutResult, err error) bool {
	name := it.Message
	var outcome *postroom.OutcomeError
	switch {
	case err == nil && !r.Duplicate:
		l.confirm[name]++
		if l.accepted[name] == 0 {
			l.object("safety", "I5", "put confirmed and not accepted", name+" is confirmed and no queue has accepted it")
		}
	case err == nil:
		l.confirm[name]++ // maybe of one of which nobody knew
		if l.accepted[name] == 0 {
			l.object("safety", "I22", "duplicate of nothing", name+" is called a duplicate and was never accepted")
		}
	case errors.As(err, &outcome) && outcome.Sent:
		l.hit(HitUnknownPut)
		l.ops = append(l.ops, QueueOp{Type: EnqueueInfo, Value: name})
		l.emit(Event{Kind: KindUnknown, Queue: it.Queue, Message: name, Reason: "outcome unknown", Cause: l.last[name]})
		return false
	default:
		l.refused[name]++
		l.ops = append(l.ops, QueueOp{Type: EnqueueFail, Value: name})
		if errors.Is(err, postroom.ErrNotFound) || errors.As(err, &outcome) {
			// No ledger has seen it.
			l.emit(Event{Kind: KindRefused, Queue: it.Queue, Message: name, Reason: verdict(err), Cause: l.last[name]})
		}
	}
	return true
}

// nameOf is the name of a message by its id.
func (l *lab) nameOf(id string) string {
	if name, ok := l.names[id]; ok {
		return name
	}
	return id
}

// arriving is told of a put that reaches a ledger.
func (l *lab) arriving(p *ledger.Put) {
	if _, known := l.names[p.ID]; known {
		return
	}
	if len(p.Body) > 0 {
		if name, ours := l.bodies[&p.Body[0]]; ours {
			l.names[p.ID] = name
			return
		}
	}
	// Somebody else's: a handler's own put, a copy of a publication.
	l.attempts[p.ID]++
	l.ops = append(l.ops, QueueOp{Type: EnqueueInvoke, Value: p.ID})
}

// arrived is told of the verdict.
func (l *lab) arrived(t *twin, p *ledger.Put, r ledger.PutResult, err error) {
	name := l.nameOf(p.ID)
	switch {
	case err != nil:
		l.emit(Event{Kind: KindRefused, Queue: t.source.Queue, Message: name, Reason: verdict(err), Cause: l.last[name]})
		if errors.Is(err, messages.ErrQueueFull) {
			l.hit(HitOverflow)
		}
	case r.Duplicate:
		l.hit(HitDedup)
		l.emit(Event{Kind: KindDuplicate, Queue: t.source.Queue, Message: name, Put: r.Number, Cause: l.last[name]})
		if c, ok := t.book.claims[p.ID]; !ok || c.put != r.Number {
			l.object("safety", "I22", "duplicate of another", fmt.Sprintf("%s is called a duplicate of put %d, its id is put %d's", name, r.Number, c.put))
		} else if c.dead && !l.rt.now.Before(c.at.Add(t.config.DedupWindow)) {
			l.object("safety", "I22", "duplicate outside the window", fmt.Sprintf("%s was put at %v and is gone, the window is %v", name, since(c.at), t.config.DedupWindow))
		}
	}
}
