package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// tagKey is a tag of a queue of that name, whichever incarnation.
type tagKey struct {
	queue string
	tag   uint64
}

// overheard is the door of a handler's own verbs, with the laboratory listening: whose
// receipts are on their way is otherwise known to nobody but the queue, which may be
// wrong about it.
type overheard struct {
	lab   *lab
	inner messages.Settler
}

// overhear returns the delivery with such a door.
func (l *lab) overhear(d *postroom.Delivery) *postroom.Delivery {
	heard, source := *d, *d.From
	source.Settler = overheard{l, source.Settler}
	heard.From = &source
	return &heard
}

// SettleDelivery implements [messages.Settler].
func (o overheard) SettleDelivery(ctx context.Context, m messages.Settlement) (time.Time, error) {
	key, l := tagKey{m.Receipt.Queue, m.Receipt.Tag}, o.lab
	if l.onTheirWay == nil {
		l.onTheirWay = map[tagKey][]uint64{}
	}
	l.onTheirWay[key] = append(l.onTheirWay[key], m.Receipt.Incarnation)
	defer func() {
		left := l.onTheirWay[key]
		i := slices.Index(left, m.Receipt.Incarnation)
		l.onTheirWay[key] = slices.Delete(left, i, i+1)
	}()
	return o.inner.SettleDelivery(ctx, m)
}

// checkReceipt objects to a settle of a running lease that can only have come by the
// receipt of another incarnation (I10): its own handler still works and has not spoken,
// and one of a queue that was deleted has.
func (l *lab) checkReceipt(t *twin, verb messages.Verb, tag uint64) {
	if len(l.onTheirWay) == 0 || verb == messages.VerbTouch || verb == messages.VerbRelease || t.book.byTag[tag] == nil {
		return
	}
	own := leaseKey{t.source.Queue, t.source.Incarnation, tag}
	j, speaking := l.jobs[own], l.onTheirWay[tagKey{t.source.Queue, tag}]
	if j == nil || len(speaking) == 0 || slices.Contains(speaking, t.source.Incarnation) {
		return
	}
	l.object("safety", "I10", verb.String()+" by the receipt of another incarnation",
		fmt.Sprintf("tag %d of %s, incarnation %d, is settled while %s works on it; the receipt is of incarnation %d", tag, t.source.Queue, t.source.Incarnation, j.worker.name, speaking[0]))
}

// failed notes what a handler of ours has failed with, until its lease is settled.
func (l *lab) failed(j *job, err error) {
	if err == nil || j.worker.pool.config.Manual || j.worker.pool.pull != nil {
		return // a consumer settles by what the handler returns, nobody else
	}
	if l.failures == nil {
		l.failures = map[leaseKey]error{}
	}
	l.failures[j.key] = err
}

// checkAnswer objects when a handler's failure reaches the ledger as something else: as
// an ack (I4), or without what it said (I17). A handler that speaks for itself is free.
func (l *lab) checkAnswer(t *twin, verb messages.Verb, tag uint64, text string) {
	key := leaseKey{t.source.Queue, t.source.Incarnation, tag}
	err := l.failures[key]
	if err == nil {
		return
	}
	delete(l.failures, key)
	if len(l.onTheirWay[tagKey{t.source.Queue, tag}]) > 0 || t.book.byTag[tag] == nil {
		return
	}
	switch {
	case verb == messages.VerbAck:
		l.object("safety", "I4", "ack of a failure", fmt.Sprintf("the handler of tag %d failed with %q, and the ledger is told that it is done", tag, err))
	case text != messages.CutError(err.Error()):
		l.object("safety", "I17", "failure without its error", fmt.Sprintf("the handler of tag %d failed with %q, and the ledger is told %q", tag, err, text))
	}
}
