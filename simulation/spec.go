package simulation

import (
	"testing"
	"time"

	"github.com/postroom/postroom/actors"
)

// Spec is a world to be tried with many seeds: a queue or two, workers, a workload,
// what goes wrong, and what must hold.
//
//	simulation.Check(t, simulation.Spec{
//		Name: "mailer",
//		Build: func(w *simulation.World) {
//			mail := w.Queue("mail", postroom.QueueConfig{MaxAttempts: 4})
//			smtp := w.External("smtp", nil)
//			w.Workers("mailer", 3, mail, simulation.Inline(func(ctx context.Context, d *postroom.Delivery) error {
//				return smtp.Do(ctx, d.ID, "send")
//			}), postroom.ConsumerConfig{})
//			w.Produce("api", mail, simulation.Items(20), nil)
//			w.Faults(simulation.AnyWorkerFault())
//			w.Expect(simulation.EffectAtLeastOnce(smtp))
//			w.Calm(10*time.Minute, simulation.Drained(mail))
//		},
//	})
type Spec struct {
	// Name stands in capsules and reports. One word.
	Name string
	// Build describes the world: it is called once for every run, before anything
	// happens, and must depend on nothing but w.
	Build func(w *World)

	// Strategy is how the scheduler decides in Run; the zero value draws one for each
	// seed. PCT uses Depth points of change, 3 if zero.
	Strategy Strategy
	Depth    int
	// Decider makes the decisions with strategy Given.
	Decider Decider

	// Virtual and Steps bound a run. Zero: [DefaultVirtualTime], [DefaultStepsMax].
	Virtual time.Duration
	Steps   int

	// NoEvents leaves Result.Events empty, for a campaign of many runs.
	NoEvents bool

	// Mutate puts something in front of every queue's rules, such as a planted bug that
	// the oracles are to find. nil: nothing.
	Mutate func(actors.Ledger) actors.Ledger

	host      *testing.T // what a bubble runs in
	hostedNow bool       // this run is in one
	fresh     bool       // an actor system of its own
	search    *explorer  // of an exhaustive search
	room      *room      // of a campaign; nil: everything is new
	livelock  int        // events at one instant that are called a livelock; 0: livelockEvents

	// late, if set, is asked now and then, and ends the run with errCut when it says yes.
	late func() bool
	// probed, for a test, is told of every point that an actor comes to.
	probed func(point string)
	cover  bool // Result.cover is wanted
}

// Run makes one run whose every choice is drawn from the seed: configuration,
// workload, faults and schedule. The result's Plan says what was drawn, so that
// [Spec.Replay] of it is the same run. It never fails by itself: what is wrong with
// the spec is in Result.Err.
func (s Spec) Run(seed uint64) Result {
	return s.run(Plan{Format: PlanFormat, Spec: s.Name, Seed: seed, Strategy: s.Strategy}, true)
}

// Replay runs exactly this plan: its settings, items, faults and decisions and no
// others. A plan that the spec has no use for (an item of a queue that it does not
// declare, another format) is refused with Result.Err, which then begins with the
// text of [ErrPlan].
func (s Spec) Replay(p Plan) Result {
	return s.run(p.Clone(), false)
}
