package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
)

// What follows describes a world inside of [Spec.Build]. Nothing happens there yet;
// a mistake panics, and the run ends with it in Result.Err.

// Queue is a queue of a spec.
type Queue struct {
	lab    *lab
	name   string
	config postroom.QueueConfig
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// describing returns the laboratory that Build describes.
func (w *World) describing(method string) *lab {
	switch {
	case w.lab == nil:
		panic("simulation: World." + method + " is for Spec.Build; in Run open a broker with World.Open")
	case w.lab.rt.running:
		panic("simulation: World." + method + " called while the run is under way; describe the world in Spec.Build")
	}
	return w.lab
}

// Queue declares a queue when the run begins.
func (w *World) Queue(name string, config postroom.QueueConfig) *Queue {
	l := w.describing("Queue")
	if err := config.Validate(); err != nil {
		panic(err)
	}
	for _, q := range l.queues {
		if q.name == name {
			panic(fmt.Sprintf("simulation: queue %q is declared twice", name))
		}
	}
	q := &Queue{lab: l, name: name, config: config}
	l.queues = append(l.queues, q)
	return q
}

// Broker is the run's broker, for handlers and oracles that use the door. It is nil
// in Build.
func (w *World) Broker() *postroom.Broker {
	if w.lab == nil {
		return nil
	}
	return w.lab.broker
}

// Options adds options to those that the broker is opened with, such as
// [postroom.WithRestarts].
func (w *World) Options(options ...postroom.Option) {
	l := w.describing("Options")
	l.policy = append(l.policy, options...)
}

// Calm says how long the world may take to come to its end once nothing goes wrong
// any more, and what that end is. Without it: a day, and all queues drained.
func (w *World) Calm(d time.Duration, until ...Condition) {
	l := w.describing("Calm")
	l.calmFor, l.calmUntil = d, until
}

// Condition is an end that the calm phase waits for.
type Condition struct {
	name  string
	holds func(l *lab) bool
}

// Drained holds when nothing is ready, delayed or leased in these queues.
func Drained(queues ...*Queue) Condition {
	return Condition{"drained", func(l *lab) bool { return l.drained(queues) }}
}

// ---- draws ----

// setting draws one part of the configuration, or takes it from the plan.
func (l *lab) setting(name string, least, most int64, text func(int64) string) int64 {
	for i := range l.plan.Settings {
		s := &l.plan.Settings[i]
		if s.Name != name {
			continue
		}
		v := max(least, min(most, s.Value))
		s.Value, s.Least, s.Most, s.Text = v, least, most, text(v)
		return v
	}
	v := least
	if l.drawn && most > least {
		v += int64(actorkit.Mix(l.plan.Seed, "setting", name, 0) % uint64(most-least+1))
	}
	l.plan.Settings = append(l.plan.Settings, Setting{Name: name, Value: v, Least: least, Most: most, Text: text(v)})
	return v
}

// Choose draws one of the values for this seed, and writes it into the plan. List
// the simplest first: a shrinker goes there.
func Choose[T any](w *World, name string, values ...T) T {
	l := w.describing("Choose")
	if len(values) == 0 {
		panic("simulation: Choose of nothing")
	}
	i := l.setting(name, 0, int64(len(values)-1), func(i int64) string { return fmt.Sprint(values[i]) })
	return values[i]
}

// Between draws a whole number from least to most for this seed.
func (w *World) Between(name string, least, most int) int {
	return int(w.describing("Between").setting(name, int64(least), int64(most), func(i int64) string { return fmt.Sprint(i) }))
}

// Draw is a source of numbers that depend on nothing but the seed, whose they are
// and what they are for.
type Draw struct {
	seed   uint64
	entity string
}

// Uint64 returns the number for this purpose, the same each time.
func (d Draw) Uint64(purpose string) uint64 { return actorkit.Mix(d.seed, purpose, d.entity, 0) }

// N returns a number from 0 to n-1.
func (d Draw) N(purpose string, n int) int { return int(d.Uint64(purpose) % uint64(n)) }

// Duration returns a whole number of microseconds up to most.
func (d Draw) Duration(purpose string, most time.Duration) time.Duration {
	return time.Duration(d.Uint64(purpose)%uint64(most/time.Microsecond+1)) * time.Microsecond
}

// ---- workload ----

// Load is how many items a producer puts, and when.
type Load struct {
	n      int
	over   time.Duration
	spread bool
}

// Items is n items at drawn instants of the first second.
func Items(n int) Load { return Load{n: n, over: time.Second, spread: true} }

// Burst is n items at once.
func Burst(n int) Load { return Load{n: n} }

// Every is n items, one each d.
func Every(d time.Duration, n int) Load { return Load{n: n, over: d * time.Duration(n)} }

// Over is n items at drawn instants of the time d.
func Over(d time.Duration, n int) Load { return Load{n: n, over: d, spread: true} }

// Generate makes the envelope of a producer's item. It must depend on nothing but
// d; without an ID the item's name is it, and without a Body the name is that.
type Generate func(d Draw, number int) postroom.Envelope

// MadeIDs is what a [Generate] puts into ID to leave the id to the broker.
const MadeIDs = "\x00made"

type producer struct {
	lab      *lab
	name     string
	queue    *Queue
	load     Load
	generate Generate
	items    []Item
}

// Produce adds a producer that puts its items one after the other, each again with
// the same id as long as its outcome is unknown. generate may be nil.
func (w *World) Produce(name string, q *Queue, load Load, generate Generate) {
	l := w.describing("Produce")
	for _, p := range l.producers {
		if p.name == name {
			panic(fmt.Sprintf("simulation: producer %q is there twice", name))
		}
	}
	l.producers = append(l.producers, &producer{lab: l, name: name, queue: q, load: load, generate: generate})
}

// drawItems writes out what the producers put and when.
func (l *lab) drawItems() {
	all := 0
	for _, p := range l.producers {
		all += p.load.n
	}
	l.plan.Items = slices.Grow(l.plan.Items, all)
	count := 0
	for _, p := range l.producers {
		for i := range p.load.n {
			count++
			it := Item{Message: "m" + strconv.Itoa(count), Producer: p.name, Queue: p.queue.name, Number: i}
			switch {
			case p.load.spread:
				it.At = time.Duration(actorkit.Mix(l.plan.Seed, "item", p.name, uint64(i))%uint64(p.load.over/time.Millisecond+1)) * time.Millisecond
			case p.load.n > 0:
				it.At = p.load.over / time.Duration(p.load.n) * time.Duration(i)
			}
			l.plan.Items = append(l.plan.Items, it)
		}
	}
}

// adoptPlan hands the plan's parts to who carries them out, and refuses a plan of
// another world.
func (l *lab) adoptPlan() error {
	for _, it := range l.plan.Items {
		p := l.producer(it.Producer)
		if p == nil {
			return fmt.Errorf("%w: it has an item of producer %q, which the spec does not have", ErrPlan, it.Producer)
		}
		if p.queue.name != it.Queue {
			return fmt.Errorf("%w: producer %q puts into %q, not %q", ErrPlan, it.Producer, p.queue.name, it.Queue)
		}
		if p.items == nil {
			p.items = make([]Item, 0, max(p.load.n, 1))
		}
		p.items = append(p.items, it)
	}
	for _, p := range l.producers {
		sortItems(p.items)
	}
	for i := range l.plan.Faults {
		f := &l.plan.Faults[i]
		l.kills = l.kills || f.Kind == FaultKill || f.Kind == FaultCrash
		if f.Worker != "" && l.worker(f.Worker) == nil {
			// Fewer workers than the plan was made for is no error: a shrinker takes them away.
			if !l.knowsPool(f.Worker) {
				return fmt.Errorf("%w: fault %v is about worker %q, which the spec does not have", ErrPlan, *f, f.Worker)
			}
			continue
		}
		if f.Queue != "" && l.queue(f.Queue) == nil {
			return fmt.Errorf("%w: fault %v is about queue %q, which the spec does not have", ErrPlan, *f, f.Queue)
		}
		l.arm(f)
	}
	return nil
}

func (l *lab) producer(name string) *producer {
	for _, p := range l.producers {
		if p.name == name {
			return p
		}
	}
	return nil
}

func (l *lab) queue(name string) *Queue {
	for _, q := range l.queues {
		if q.name == name {
			return q
		}
	}
	return nil
}

func (l *lab) worker(name string) *worker {
	for _, p := range l.pools {
		for _, k := range p.workers {
			if k.name == name {
				return k
			}
		}
	}
	return nil
}

func (l *lab) knowsPool(worker string) bool {
	i := strings.LastIndexByte(worker, '-')
	for _, p := range l.pools {
		if i > 0 && p.name == worker[:i] {
			return true
		}
	}
	return false
}
