package benchmark

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postroom/postroom"
)

// window is how far a producer may be ahead of its workers.
const window = 4096

// flow is messages that live their whole life: put, lent, handled, acked; with
// leases, attempts and admission on.
type flow struct {
	executor string
	messages int
	queues   int // zero: 1
	burst    int // messages to one queue before the next one's turn. Zero: 1
	prefetch int // zero: 256
	body     int // bytes. Zero: 100

	// batch puts so many in one command; zero puts one by one through a Publisher.
	batch int
	// settle has handlers gather their acks and settle a batch in one command.
	// Otherwise a handler's return acks, and the queue finds many in its mailbox.
	settle bool
	// madeIDs leaves the ids to the broker.
	madeIDs bool
	// standing is how many messages are ready all the time.
	standing int
}

// idsMax is more than can be in a queue at once, so an id is free when it comes again. More
// of them would be most of what the garbage collector has to look at.
const idsMax = 1 << 14

// ids are what a caller would give. They are made once: it is not their making that
// is measured.
var ids = sync.OnceValue(func() []string { return makeIDs(idsMax) })

// idBytes is how long each is.
const idBytes = len("order-0000000000")

// manyIDs is n ids in one string, so that they are one object to the garbage collector
// and not n.
func manyIDs(n int) string {
	var all strings.Builder
	all.Grow(n * idBytes)
	for i := range n {
		fmt.Fprintf(&all, "order-%010d", i)
	}
	return all.String()
}

// makeIDs returns n ids.
func makeIDs(n int) []string {
	all, list := manyIDs(n), make([]string, n)
	for i := range list {
		list[i] = all[i*idBytes : (i+1)*idBytes]
	}
	return list
}

func (f flow) withDefaults() flow {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&f.queues, 1)
	or(&f.burst, 1)
	or(&f.prefetch, 256)
	or(&f.body, bodyBytes)
	if f.settle && f.prefetch <= f.batch {
		f.prefetch += f.batch // or the batch that is gathered takes all of it
	}
	f.messages -= f.messages % f.round()
	return f
}

// round is how many messages the queues get in turn, or come in one command.
func (f flow) round() int { return max(f.queues*f.burst, f.batch) }

// warmUpShare is the part of all that is counted which comes before it.
const warmUpShare = 4

// warmUp is how many messages come before the clock starts: a broker that was just
// opened makes its room then, and the garbage of opening it goes.
func (f flow) warmUp() int {
	n := max(f.messages/warmUpShare, f.round())
	return n - n%f.round()
}

// running is a flow under way.
type running struct {
	flow
	*bench
	gate  *gate
	names []string
	body  []byte
}

// run is one round: nanoseconds a message.
func (f flow) run(ctx context.Context) (sample, error) {
	f = f.withDefaults()
	if f.messages <= 0 {
		return sample{}, fmt.Errorf("too few messages for %d queues and bursts of %d", f.queues, max(f.burst, f.batch))
	}
	return with(f.executor, func(b *bench) (sample, error) {
		r := &running{flow: f, bench: b, gate: newGate(window), body: make([]byte, f.body)}
		return r.run(ctx)
	})
}

func (r *running) run(ctx context.Context) (s sample, err error) {
	for i := range r.queues {
		name := queuePrefix + strconv.Itoa(i)
		r.names = append(r.names, name)
		if err := r.DeclareQueue(ctx, name, deep()); err != nil {
			return s, err
		}
		if err := r.fill(ctx, name, r.standing); err != nil {
			return s, err
		}
	}
	for _, name := range r.names {
		config := postroom.ConsumerConfig{Prefetch: r.prefetch, Manual: r.settle}
		if _, err := r.Consume(ctx, name, r.handler(name), config); err != nil {
			return s, err
		}
	}
	put := r.putBatches
	if r.batch == 0 {
		if put, err = r.publish(ctx); err != nil {
			return s, err
		}
	}
	warmUp := r.warmUp()
	if err := r.through(ctx, put, 0, warmUp); err != nil {
		return s, err
	}
	runtime.GC()
	before, wakeUps := allocated(), r.runtime.wakeUps.Load()
	began := time.Now()
	if err := r.through(ctx, put, warmUp, warmUp+r.messages); err != nil {
		return s, err
	}
	if r.standing == 0 {
		for _, name := range r.names { // until the last ack
			if err := r.Drain(ctx, name); err != nil {
				return s, err
			}
		}
	}
	s.value = perMessage(time.Since(began), r.messages)
	before.since(&s, r.messages)
	r.woken(&s, wakeUps, r.messages)
	s.backlog = r.gate.deepest + int64(r.standing)
	return s, r.check(ctx)
}

// putter puts the messages of these numbers.
type putter func(ctx context.Context, from, to int) error

// through puts messages and waits until they, and those before, are handled.
func (r *running) through(ctx context.Context, put putter, from, to int) error {
	if err := put(ctx, from, to); err != nil {
		return err
	}
	if err := r.gate.await(ctx, int64(to)); err != nil {
		return fmt.Errorf("%d of %d messages handled: %w", r.gate.handled.Load(), to, err)
	}
	return nil
}

// handler handles messages of one queue, and nothing is what it does with them.
func (r *running) handler(queue string) postroom.Handler {
	if !r.settle {
		return func(context.Context, *postroom.Delivery) error {
			r.gate.done()
			return nil
		}
	}
	gathered := make([]postroom.Settlement, 0, r.batch)
	return func(ctx context.Context, d *postroom.Delivery) error {
		gathered = append(gathered, postroom.Settlement{Receipt: d.Receipt(), Verb: postroom.VerbAck})
		r.gate.done()
		if len(gathered) < r.batch {
			return nil
		}
		_, err := r.SettleBatch(ctx, gathered) // what was refused is found by check
		gathered = gathered[:0]
		return err
	}
}

func (r *running) envelope(i int) postroom.Envelope {
	e := postroom.Envelope{Body: r.body}
	if !r.madeIDs {
		e.ID = ids()[i%idsMax]
	}
	return e
}

// publish returns what puts the messages one by one, through a publisher a queue.
func (r *running) publish(ctx context.Context) (putter, error) {
	publishers := make([]*postroom.Publisher, len(r.names))
	for i, name := range r.names {
		var err error
		// A message counts until it is settled, but for those that stand in front of it.
		config := postroom.PublisherConfig{Window: window, UntilSettled: r.standing == 0}
		if publishers[i], err = r.Publisher(ctx, name, config); err != nil {
			return nil, err
		}
	}
	r.envelope(0) // the ids are there before the clock starts
	return func(ctx context.Context, from, to int) error {
		for i := from; i < to; i++ {
			if err := r.gate.enter(ctx, int64(i)); err != nil {
				return err
			}
			if _, err := publishers[i/r.burst%len(publishers)].Put(ctx, r.envelope(i)); err != nil {
				return err
			}
		}
		for _, p := range publishers {
			if err := p.Flush(ctx); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// putBatches puts the messages in batches, each confirmed.
func (r *running) putBatches(ctx context.Context, from, to int) error {
	batch := make([]postroom.Envelope, r.batch)
	for i := from; i < to; i += r.batch {
		if err := r.gate.enter(ctx, int64(i)); err != nil {
			return err
		}
		for n := range batch {
			batch[n] = r.envelope(i + n)
		}
		results, err := r.PutBatch(ctx, r.names[i/r.batch%len(r.names)], batch)
		if err != nil {
			return err
		}
		for i := range results {
			if results[i].Err != nil || results[i].Duplicate {
				return fmt.Errorf("put of %s: duplicate %t, %w", results[i].ID, results[i].Duplicate, results[i].Err)
			}
		}
	}
	return nil
}

// check counts what the queues say was done.
func (r *running) check(ctx context.Context) error {
	var acks, again, late, dead uint64
	left, messages := 0, r.warmUp()+r.messages
	for _, name := range r.names {
		if r.standing > 0 {
			if err := r.Pause(ctx, name); err != nil {
				return err
			}
		}
		s, err := r.QueueStats(ctx, name)
		if err != nil {
			return err
		}
		acks, again, dead = acks+s.Acks, again+s.Redelivered, dead+s.Dead()
		late += s.StaleBy[postroom.VerbAck]
		left += s.Ready + s.Leased
	}
	if r.standing > 0 {
		// More may have been handled than was put meanwhile.
		if int(acks)+left != messages+r.standing || int(acks) < messages-r.prefetch || again+late+dead > 0 {
			return fmt.Errorf("%d messages through %d: %d acked, %d left, %d redelivered, %d late, %d dead",
				messages, r.standing, acks, left, again, late, dead)
		}
		return nil
	}
	if acks != uint64(messages) || left != 0 || again+late+dead > 0 {
		return fmt.Errorf("%d messages: %d acked, %d left, %d redelivered, %d late, %d dead", messages, acks, left, again, late, dead)
	}
	return nil
}

// confirmed is puts each waiting for its answer, on a queue that is idle otherwise.
type confirmed struct {
	executor string
	messages int
}

func (f confirmed) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue, backlogMax = queuePrefix, 1024
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		body := make([]byte, bodyBytes)
		list := ids()
		before, wakeUps := allocated(), b.runtime.wakeUps.Load()
		var took time.Duration
		purged := 0
		for i := 0; i < f.messages; {
			began := time.Now()
			for range min(backlogMax, f.messages-i) {
				if _, err := b.Put(ctx, queue, postroom.Envelope{ID: list[i%idsMax], Body: body}); err != nil {
					return s, err
				}
				i++
			}
			took += time.Since(began)
			// Off the clock: what a deep backlog costs is another question.
			n, err := b.Purge(ctx, queue)
			if err != nil {
				return s, err
			}
			purged += n
		}
		s.value = perMessage(took, f.messages)
		before.since(&s, f.messages)
		b.woken(&s, wakeUps, f.messages)
		s.backlog = min(backlogMax, int64(f.messages))
		if purged != f.messages {
			return s, fmt.Errorf("%d messages were there to be purged, want %d", purged, f.messages)
		}
		return s, nil
	})
}

// drain is a backlog of so many, worked off: nanoseconds a message from the moment the
// consumer starts.
type drain struct {
	executor string
	backlog  int
}

func (f drain) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue = queuePrefix
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		if err := b.fill(ctx, queue, f.backlog); err != nil {
			return s, err
		}
		g := newGate(window)
		runtime.GC()
		before, wakeUps := allocated(), b.runtime.wakeUps.Load()
		began := time.Now()
		_, err = b.Consume(ctx, queue, func(context.Context, *postroom.Delivery) error {
			g.done()
			return nil
		}, postroom.ConsumerConfig{Prefetch: 256})
		if err != nil {
			return s, err
		}
		if err := b.Drain(ctx, queue); err != nil {
			return s, err
		}
		s.value = perMessage(time.Since(began), f.backlog)
		before.since(&s, f.backlog)
		b.woken(&s, wakeUps, f.backlog)
		s.backlog = int64(f.backlog)
		stats, err := b.QueueStats(ctx, queue)
		if err == nil && (stats.Acks != uint64(f.backlog) || g.handled.Load() != int64(f.backlog)) {
			err = fmt.Errorf("%d of %d messages acked, %d handled", stats.Acks, f.backlog, g.handled.Load())
		}
		return s, err
	})
}
