package ledger

import (
	"fmt"
	"time"

	"github.com/postroom/postroom/messages"
)

// EffectKind is what there is to do.
type EffectKind uint8

// The kinds of effect.
const (
	HandedOver  EffectKind = iota + 1 // deliver the message: [Ledger.Fill]
	LeaseLost                         // cancel the handler's context: its lease ran out
	Died                              // tell the listener, announce, copy to the dead letter topic
	Trimmed                           // tell the listener: a letter over a limit is gone
	AlarmRaised                       // publish the alarm
	Settled                           // tell the publisher whose window the message was in
	Drained                           // answer those who wait for the queue to be empty
)

var effectNames = [...]string{"no effect", "handed over", "lease lost", "died", "trimmed", "alarm raised", "settled", "drained"}

func (k EffectKind) String() string {
	if int(k) < len(effectNames) {
		return effectNames[k]
	}
	return "unknown effect"
}

// Effect is one thing to do outside. Which fields are set depends on Kind.
type Effect struct {
	Kind     EffectKind
	Announce bool                 // Died: to be announced; not when its topic begins with $sys. (SPEC T6)
	Alarm    messages.Alarm       // AlarmRaised
	Consumer *Consumer            // HandedOver to it, LeaseLost by it
	Waiter   *Waiter              // HandedOver to a Get, LeaseLost by whoever has it
	Tag      uint64               // HandedOver, LeaseLost
	Letter   *messages.DeadLetter // Died, Trimmed; not to be changed
	Owner    *Owner               // Settled
	Count    int                  // Settled: how many of his messages; whoever performs it sets it to zero

	entry *entry // HandedOver, for Fill
}

// Effects returns what to do, in the order to do it; valid until ClearEffects.
// They survive a panic in whoever performs them: the shell keeps its own cursor.
func (l *Ledger) Effects() []Effect { return l.effects }

// effect appends one, to be filled in.
func (l *Ledger) effect(k EffectKind) *Effect {
	if n := len(l.effects); n < cap(l.effects) {
		l.effects = l.effects[:n+1] // zero: see ClearEffects
	} else {
		l.effects = append(l.effects, Effect{})
	}
	f := &l.effects[len(l.effects)-1]
	f.Kind = k
	return f
}

// tellOwner has the message's owner told of its end. Those of a burst are one effect.
func (l *Ledger) tellOwner(e *entry) {
	o := l.owners.remove(e.owner)
	e.owner = 0
	if n := len(l.effects); n > 0 {
		if f := &l.effects[n-1]; f.Owner == o && f.Count > 0 {
			f.Count++
			return
		}
	}
	f := l.effect(Settled)
	f.Owner, f.Count = o, 1
}

// leaseLost has t told that its lease ran out.
func (l *Ledger) leaseLost(t *taker, tag uint64) {
	f := l.effect(LeaseLost)
	f.Consumer, f.Waiter, f.Tag = t.consumer, t.waiter, tag
}

// ClearEffects forgets the effects, which have been performed.
func (l *Ledger) ClearEffects() {
	clear(l.effects) // nothing gone stays reachable through the array, and effect finds it zero
	l.effects = l.effects[:0]
}

// Fill writes the delivery of a HandedOver effect. It must be called before the
// next method that takes a time, and panics when that lease is over already: what
// it would write could be another message.
func (l *Ledger) Fill(f *Effect, d *messages.Delivery) {
	e := f.entry
	if e == nil || e.lease == nil || e.lease.tag != f.Tag {
		panic(fmt.Sprintf("ledger: Fill of tag %d after its lease was over", f.Tag))
	}
	l.fill(e, d)
	d.Tag = f.Tag
	d.Deadline = l.filled.deadline.of(l, e.lease.deadline)
}

func (l *Ledger) fill(e *entry, d *messages.Delivery) {
	// Field by field: a literal would be built elsewhere first and then copied.
	d.ID, d.Body, d.Headers, d.Details = e.id, e.bytesOf(), nil, e.details
	d.Attempt, d.Deliveries = int(e.attempt), e.deliveries()
	if l.filled == nil {
		l.filled = new(filled)
	}
	if d.Details == noDetails {
		d.Details = &l.filled.plain
	}
	d.EnqueuedAt, d.Deadline = l.filled.enqueued.of(l, e.enqueued), time.Time{}
	d.Tag, d.From = 0, l.source
	if e.rare != nil {
		d.Headers = e.rare.headers
	}
}
