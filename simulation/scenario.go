package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom"
)

// Scenario is a run as people read and write it: the world, what is put, what goes
// wrong, and below a line what then happened. It is what the shrinker emits and what
// testdata holds.
//
//	world  queue=mail lease=30s max=3 workers=2
//	put    m1
//	at     grant m1#1 worker hang 45s    # the 1st lease of m1
//	calm   5m
//	----
//	0s      put      m1
//	0s      grant    m1#1 -> w-1 tag=1 until=30s
//	30s     expire   m1#1 tag=1
//	…
//	ok      drained  violations=0
//
// A scenario either describes its world itself (world lines), or holds the plan of a
// spec written in Go (a spec line):
//
//	spec   mailer seed=7
//	set    lease 1 of 0..2 is 500ms
//	put    m1 producer=api queue=mail number=0 at=120ms
//	at     effect m1 worker crash
//	pick   12=3 40=1
//
// Lines are directives; # begins a comment; a name with odd characters stands in
// quotes. Durations are Go's.
type Scenario struct {
	// Queues is the world. Empty: Plan is of the spec that it names.
	Queues []ScenarioQueue
	// Puts is the workload of such a world; Plan.Items is then empty.
	Puts []ScenarioPut
	// Calm is how long the calm phase of such a world may last. Zero: a day.
	Calm time.Duration
	// Plan is the rest: seed, settings, items of a Go spec, faults, picks.
	Plan Plan
	// Want is what stands below the line, with its line ends.
	Want string
}

// ScenarioQueue is one queue of a scenario's world and who works on it.
type ScenarioQueue struct {
	Name string
	// Workers is how many there are: w-1, w-2, … for the first queue, <queue>-1, … for
	// others. Zero: nobody consumes.
	Workers int
	// Work is how long a handler takes; its effect is in the middle.
	Work time.Duration
	// Heartbeat keeps the leases of running handlers alive, Jitter draws the backoff.
	// Unlike in a broker both are off unless written: a trace is easier to read so.
	Heartbeat, Jitter bool
	// Config and Consumer are the rest; their NoJitter and NoHeartbeat are not looked at.
	Config   postroom.QueueConfig
	Consumer postroom.ConsumerConfig
}

// ScenarioPut is one put of a scenario's world.
type ScenarioPut struct {
	Message string
	// ID is the id that is put. Empty: the message's name.
	ID string
	// Queue is where to. Empty: the first queue.
	Queue string
	// Producer is who puts: each puts one after the other. Empty: one for each queue.
	Producer string
	At       time.Duration
	Priority int
	// Delay keeps it back, Expires is its time to live from the put; Work is how long
	// its handler takes, instead of the queue's.
	Delay, Expires, Work time.Duration
}

// ScenarioSpec is the name of the spec that a scenario with a world of its own is run by.
const ScenarioSpec = "scenario"

// poolOf is the name of the workers of queue i.
func (s *Scenario) poolOf(i int) string {
	if i == 0 {
		return "w"
	}
	return s.Queues[i].Name
}

// items are the puts as a plan has them.
func (s *Scenario) items() []Item {
	items := make([]Item, len(s.Puts))
	for i, p := range s.Puts {
		it := Item{Message: p.Message, Producer: p.Producer, Queue: p.Queue, Number: i, At: p.At}
		if it.Queue == "" {
			it.Queue = s.Queues[0].Name
		}
		if it.Producer == "" {
			it.Producer = "api"
		}
		it.Producer += "/" + it.Queue
		items[i] = it
	}
	return items
}

// Spec is the world of the text as a spec, nil if it has none. Its plan is that of
// [Scenario.FullPlan].
func (s *Scenario) Spec() *Spec {
	if len(s.Queues) == 0 {
		return nil
	}
	return &Spec{Name: ScenarioSpec, Build: s.build}
}

// FullPlan is the plan that [Spec.Replay] takes: with the items of a world of the
// text and the number of its workers.
func (s *Scenario) FullPlan() Plan {
	p := s.Plan.Clone()
	if len(s.Queues) == 0 {
		return p
	}
	p.Spec, p.Items = ScenarioSpec, s.items()
	for i := range s.Queues {
		if n := int64(s.Queues[i].Workers); n > 0 {
			p.Settings = append(p.Settings, Setting{Name: workersSetting(s.poolOf(i)), Value: n, Least: 1, Most: n})
		}
	}
	return p
}

// workersSetting is the setting that says how many workers a pool has.
func workersSetting(pool string) string { return "workers " + pool }

// build describes the world of the text.
func (s *Scenario) build(w *World) {
	effect := w.External("effect", nil)
	queues := map[string]*Queue{}
	for i := range s.Queues {
		q := s.Queues[i]
		q.Config.NoJitter, q.Consumer.NoHeartbeat = !q.Jitter, !q.Heartbeat
		queues[q.Name] = w.Queue(q.Name, q.Config)
		if q.Workers > 0 {
			w.Workers(s.poolOf(i), q.Workers, queues[q.Name], Inline(s.handler(q, effect)), q.Consumer)
		}
	}
	made := map[string]bool{}
	for _, it := range s.items() {
		if !made[it.Producer] {
			made[it.Producer] = true
			w.Produce(it.Producer, queues[it.Queue], Load{}, s.generate)
		}
	}
	if s.Calm != 0 {
		w.Calm(s.Calm)
	}
}

// handler works half of its time, has its effect, and works the rest.
func (s *Scenario) handler(q ScenarioQueue, effect *External) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		work := q.Work
		for _, p := range s.Puts {
			if p.Work > 0 && (p.Message == d.ID || p.ID == d.ID) {
				work = p.Work
			}
		}
		if work == 0 { // it never looks at its context
			return effect.Do(ctx, d.ID, "")
		}
		if err := Sleep(ctx, work/2); err != nil {
			return err
		}
		if err := effect.Do(ctx, d.ID, ""); err != nil {
			return err
		}
		return Sleep(ctx, work-work/2)
	}
}

// generate makes the envelope of the put with this number.
func (s *Scenario) generate(_ Draw, number int) postroom.Envelope {
	p := s.Puts[number]
	e := postroom.Envelope{ID: p.ID, Priority: p.Priority, Delay: p.Delay}
	if p.Expires > 0 {
		e.ExpiresAt = Epoch.Add(p.At + p.Expires)
	}
	return e
}

// Run runs the scenario: its own world, or the spec of its name among specs. Errors:
// none of them has that name.
func (s *Scenario) Run(specs ...Spec) (Result, error) {
	if own := s.Spec(); own != nil {
		return own.Replay(s.FullPlan()), nil
	}
	for _, spec := range specs {
		if spec.Name == s.Plan.Spec {
			return spec.Replay(s.FullPlan()), nil
		}
	}
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = spec.Name
	}
	return Result{}, fmt.Errorf("scenario: no spec is named %q; there are %v", s.Plan.Spec, names)
}

// With is the scenario with a plan that was made from its own, such as a shrunk one:
// puts and workers that the plan has not are gone.
func (s *Scenario) With(p Plan) *Scenario {
	made := *s
	made.Plan = p.Clone()
	if len(s.Queues) == 0 {
		return &made
	}
	made.Plan.Items, made.Plan.Settings, made.Plan.Faults = nil, nil, nil
	made.Queues, made.Puts = slices.Clone(s.Queues), nil
	for i := range made.Queues {
		if made.Queues[i].Workers == 0 {
			continue
		}
		made.Queues[i].Workers = 1 // what a plan leaves out is the least
		for _, set := range p.Settings {
			if set.Name == workersSetting(s.poolOf(i)) {
				made.Queues[i].Workers = int(set.Value)
			}
		}
	}
	for _, it := range p.Items {
		put := s.Puts[it.Number]
		put.At = it.At
		made.Puts = append(made.Puts, put)
	}
	for _, f := range p.Faults {
		if _, expected := made.unknown(&f); expected == "" { // one about nobody cannot strike
			made.Plan.Faults = append(made.Plan.Faults, f)
		}
	}
	return &made
}

// unknown returns a name in a fault that nobody in the scenario's own world has, and
// what could stand there. Such a fault would never strike, without a word.
func (s *Scenario) unknown(f *Fault) (name, expected string) {
	var workers, queues, puts []string
	for i, q := range s.Queues {
		queues = append(queues, q.Name)
		for n := range q.Workers {
			workers = append(workers, fmt.Sprintf("%s-%d", s.poolOf(i), n+1))
		}
	}
	for _, p := range s.Puts {
		puts = append(puts, p.Message)
	}
	for _, c := range []struct {
		name, what string
		known      []string
	}{
		{f.Anchor.Message, "message that is put", puts},
		{f.Anchor.Worker, "worker", workers}, {f.Worker, "worker", workers},
		{f.Anchor.Queue, "queue", queues}, {f.Queue, "queue", queues},
	} {
		if c.name != "" && !slices.Contains(c.known, c.name) {
			return c.name, fmt.Sprintf("a %s: %s", c.what, strings.Join(c.known, ", "))
		}
	}
	return "", ""
}

// ScenarioOf is the scenario of a run of a spec written in Go, with what happened. For a
// run of a scenario's own world take its [Scenario.With].
func ScenarioOf(r *Result) *Scenario {
	return &Scenario{Plan: r.Plan.Clone(), Want: ShortTrace(r)}
}
