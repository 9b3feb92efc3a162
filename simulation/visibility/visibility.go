package visibility

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

// The document's figures.
const (
	Items       = 500
	Workers     = 10
	HungItems   = 10 // 2 %
	SlowPercent = 10 // of the items that do not hang
	MaxAttempts = 3

	ItemTimeout = 2 * time.Second
	SlowWork    = 600 * time.Millisecond
	Lease       = 500 * time.Millisecond
	RunFor      = 10 * time.Second
)

// quickMillisMax bounds the work of the items that are neither hung nor slow. The
// document does not give it; it must be small, or 500 items would not fit into 10 s.
const quickMillisMax = 9

// Row is what one set-up came to. The counts are of items unless they say otherwise.
type Row struct {
	Setup string

	// After RunFor:

	// Processed were worked on to the end at least once, Twice more than once.
	Processed, Twice int
	// Lost are neither processed nor dead, and no place holds them.
	Lost int
	// Dead are dead letters; Underway are still in the queue or with a worker.
	Dead, Underway int
	// LateAcks is how many acks came after their lease, which is no count of items.
	LateAcks int
	// Letters says whether the set-up has dead letters, and acks that may be late.
	Letters bool

	// Once nothing was left to do:

	// Drained is when the last item or ack was over.
	Drained time.Duration
	// HungLost and HungDead say what became of the items that hang.
	HungLost, HungDead int
	// OtherLost and OtherDead are those that do not hang and were not processed.
	OtherLost, OtherDead int
	// These are as the ones without Drained.
	DrainedProcessed, DrainedTwice, DrainedLateAcks int
}

// Table is the experiment for one seed, in the order of the document's table.
type Table struct {
	Seed uint64
	// Slow is how many items the seed has made slow.
	Slow int
	Rows []Row
}

// The rows of a [Table].
const (
	Plain = iota
	Leases
	Heartbeats
	setups
)

// Run makes the three set-ups for one seed, each in a world of its own; which items
// hang and which are slow is the same in all of them. Equal seeds give equal tables.
//
// Errors: those of [simulation.Run] and of the door; none is expected.
func Run(seed uint64) (Table, error) {
	load := drawLoad(seed)
	t := Table{Seed: seed, Slow: load.slow(), Rows: make([]Row, setups)}
	t.Rows[Plain] = Row{Setup: "plain channel"}
	t.Rows[Leases] = Row{Setup: "0.5 s leases", Letters: true}
	t.Rows[Heartbeats] = Row{Setup: "0.5 s leases + heartbeat", Letters: true}

	if err := runPlain(seed, load, &t.Rows[Plain]); err != nil {
		return Table{}, fmt.Errorf("visibility: seed %d, plain channel: %w", seed, err)
	}
	if err := runLeases(seed, load, &t.Rows[Leases], leaseSetup{}); err != nil {
		return Table{}, fmt.Errorf("visibility: seed %d, leases: %w", seed, err)
	}
	if err := runLeases(seed, load, &t.Rows[Heartbeats], leaseSetup{heartbeat: true}); err != nil {
		return Table{}, fmt.Errorf("visibility: seed %d, heartbeats: %w", seed, err)
	}
	return t, nil
}

// item is how one item behaves.
type item struct {
	hangs, isSlow bool
	quick         time.Duration
}

// load is the items of one seed.
type load []item

// drawLoad decides by keyed draws, so each item is what it is whatever is done with
// the others.
func drawLoad(seed uint64) load {
	items := make(load, Items)
	for i := range items {
		draw := func(purpose string) uint64 { return actorkit.Mix(seed, purpose, "item", uint64(i)) }
		items[i].isSlow = draw("slow")%100 < SlowPercent
		items[i].quick = time.Duration(1+draw("quick")%quickMillisMax) * time.Millisecond
	}
	for hung, n := 0, uint64(0); hung < HungItems; n++ {
		it := &items[actorkit.Mix(seed, "hangs", "", n)%Items]
		if !it.hangs {
			it.hangs, it.isSlow = true, false
			hung++
		}
	}
	return items
}

func (l load) slow() int {
	n := 0
	for _, it := range l {
		if it.isSlow {
			n++
		}
	}
	return n
}

// errTimeout is what a worker says that has given up on an item.
var errTimeout = errors.New("the item's own timeout of 2 s is over")

// work is what all workers do with an item, with time passing on the given clock.
func (it item) work(sleep func(time.Duration), delivery int) error {
	switch {
	case it.hangs:
		sleep(ItemTimeout)
		return errTimeout
	case it.isSlow && delivery == 1:
		sleep(SlowWork)
	default:
		sleep(it.quick)
	}
	return nil
}

// log is what the workers of one run have done.
type log struct {
	runs []int // to their end, by item
	last time.Time
}

func (l *log) ran(w *simulation.World, i int) {
	l.runs[i]++
	l.last = w.Now()
}

// tally counts the items that were worked on to the end, and those more than once.
func (l *log) tally() (processed, twice int) {
	for _, n := range l.runs {
		if n > 0 {
			processed++
		}
		if n > 1 {
			twice++
		}
	}
	return processed, twice
}

// drained writes down what is left when nothing is left to do.
func (row *Row) drained(items load, l *log, isDead func(i int) bool) {
	row.Drained = l.last.Sub(simulation.Epoch)
	row.DrainedProcessed, row.DrainedTwice = l.tally()
	for i, it := range items {
		switch dead := isDead(i); {
		case it.hangs && dead:
			row.HungDead++
		case it.hangs:
			row.HungLost++
		case dead && l.runs[i] == 0:
			row.OtherDead++
		case l.runs[i] == 0:
			row.OtherLost++
		}
	}
}

// runPlain hands the items out of a plain FIFO: taken is gone, as with a Go channel or
// an asyncio.Queue. A real channel would park the one thread of the simulation, so it
// is a slice here; nobody has to wait for it, since all items are there from the
// beginning.
func runPlain(seed uint64, items load, row *Row) error {
	return simulation.Run(seed, func(w *simulation.World) {
		l := &log{runs: make([]int, len(items))}
		next, busy := 0, 0
		for range Workers {
			w.Go(func() {
				for next < len(items) {
					i := next
					next++
					busy++
					if items[i].work(w.Sleep, 1) == nil {
						l.ran(w, i)
					}
					busy-- // after an error too: the item is in nobody's hands any more
					l.last = w.Now()
				}
			})
		}
		w.Sleep(RunFor)
		row.Processed, row.Twice = l.tally()
		row.Underway = len(items) - next + busy
		row.Lost = len(items) - row.Processed - row.Underway
		for next < len(items) || busy > 0 {
			w.Sleep(time.Second)
		}
		row.drained(items, l, func(int) bool { return false })
	})
}

// leaseSetup is what differs between the set-ups with a broker.
type leaseSetup struct {
	heartbeat bool
	// heeds has the worker's timeout end with the lease too, as the context of a handler
	// does. The document's workers are deaf to it.
	heeds bool
}

const queueName = "items"

// runLeases has a queue lend the items.
func runLeases(seed uint64, items load, row *Row, s leaseSetup) error {
	var failed error
	err := simulation.Run(seed, func(w *simulation.World) {
		failed = lend(w, items, row, s)
	})
	return errors.Join(failed, err)
}

func lend(w *simulation.World, items load, row *Row, s leaseSetup) error {
	ctx := context.Background()
	l := &log{runs: make([]int, len(items))}
	broker, err := w.Open(postroom.WithListener(func(n postroom.Notice) {
		switch n.(type) {
		case messages.Settled, messages.Died, messages.Stale:
			l.last = w.Now()
		}
	}))
	if err != nil {
		return err
	}
	if err := broker.DeclareQueue(ctx, queueName, postroom.QueueConfig{AckTimeout: Lease, MaxAttempts: MaxAttempts}); err != nil {
		return err
	}
	for i := range items {
		if _, err := broker.Put(ctx, queueName, postroom.Envelope{ID: name(i)}); err != nil {
			return err
		}
	}
	handler := func(ctx context.Context, d *postroom.Delivery) error {
		i, err := strconv.Atoi(d.ID)
		if err != nil {
			return postroom.Permanent(err)
		}
		if !s.heeds {
			ctx = context.WithoutCancel(ctx)
		}
		var cut error
		sleep := func(d time.Duration) { cut = broker.Sleep(ctx, d) }
		if err := errors.Join(items[i].work(sleep, d.Deliveries), cut); err != nil {
			return err
		}
		l.ran(w, i)
		return nil
	}
	workers := postroom.ConsumerConfig{Concurrency: Workers, NoHeartbeat: !s.heartbeat}
	if _, err := broker.Consume(ctx, queueName, handler, workers); err != nil {
		return err
	}

	w.Sleep(RunFor)
	stats, err := broker.QueueStats(ctx, queueName)
	if err != nil {
		return err
	}
	held := func() int { return stats.Ready + stats.Delayed + stats.Leased }
	row.Processed, row.Twice = l.tally()
	row.Dead, row.Underway = stats.DeadLetters, held()
	row.Lost = len(items) - int(stats.Acks) - row.Dead - row.Underway
	row.LateAcks = int(stats.StaleBy[postroom.VerbAck])

	for held() > 0 {
		w.Sleep(time.Second)
		if stats, err = broker.QueueStats(ctx, queueName); err != nil {
			return err
		}
	}
	w.Sleep(ItemTimeout) // for those who still work on what they have lost
	if stats, err = broker.QueueStats(ctx, queueName); err != nil {
		return err
	}
	row.DrainedLateAcks = int(stats.StaleBy[postroom.VerbAck])
	letters, err := broker.DeadLetters(ctx, queueName, 0, len(items))
	if err != nil {
		return err
	}
	dead := map[string]bool{}
	for _, letter := range letters {
		dead[letter.ID] = true
	}
	row.drained(items, l, func(i int) bool { return dead[name(i)] })
	return nil
}

func name(i int) string { return strconv.Itoa(i) }
