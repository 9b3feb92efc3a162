package simulation

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// How long Check searches. A nightly run raises it: -simulation.for=10m.
var (
	seedsFlag = flag.Int("simulation.seeds", 200, "seeds that simulation.Check tries; without a deadline")
	firstFlag = flag.Uint64("simulation.first", 1, "the first of them")
	forFlag   = flag.Duration("simulation.for", 0, "real time that simulation.Check searches, instead of a number of seeds")
	seedFlag  = flag.Int64("simulation.seed", -1, "the one seed that simulation.Check runs, and tells of")

	shrinkFlag = flag.Duration("simulation.shrink", 10*time.Second, "real time for looking for the smallest plan that fails as a seed does, once for each way to fail; 0 for none")
	keepFlag   = flag.Bool("simulation.keep", false, "keep each way to fail as a capsule in testdata/simulation")
	updateFlag = flag.Bool("simulation.update", false, "write what happens into testdata/simulation/*/*.txt, and make scenarios of capsules whose bug is mended")
)

// checkShort is how many seeds are tried with -short.
const checkShort = 20

// Check tries a spec in a test. First it replays the corpus in
// testdata/simulation/<name of the spec>: scenarios (*.txt) must do what stands below
// their line, plans (*.json) must pass, and capsules (*.json) fail as long as they are
// there, with what is left of them: "exact", "same signature", or "capsule no longer
// applies", which is no pass.
//
// Then it runs 200 seeds, or -simulation.seeds, or as many as -simulation.for has time
// for; every failing seed runs twice and becomes a subtest, named seed-N, which prints
// what happened and how to run it again. The first seed of each signature is shrunk and
// printed as a scenario, and -simulation.keep writes it into the corpus as a capsule. It
// fails as vacuous when something the spec says happens sometimes never did.
//
// A run whose handlers are all Script or Inline is the same in every environment; with
// Bubble handlers t must be a [*testing.T].
func Check(t testing.TB, s Spec) {
	t.Helper()
	if host, ok := t.(*testing.T); ok {
		s = s.In(host)
	}
	checkCorpus(t, s)
	if *seedFlag >= 0 {
		r := s.RunTwice(uint64(*seedFlag))
		for _, e := range r.Events {
			t.Log(e)
		}
		tell(t, &r)
		if r.Failed() {
			s.shrinkAndKeep(t, &r)
		}
		return
	}
	c := Campaign{First: *firstFlag, Last: *firstFlag + uint64(max(1, *seedsFlag)) - 1}
	if testing.Short() {
		c.Last = c.First + checkShort - 1
	}
	if *forFlag > 0 {
		c.For, c.Last = *forFlag, 0
	}
	sum := s.Campaign(c)
	known := map[Signature]bool{}
	for i := range sum.Failures {
		r := &sum.Failures[i]
		subtest(t, fmt.Sprintf("seed-%d", r.Plan.Seed), func(t testing.TB) {
			tell(t, r)
			if !known[r.Signature()] {
				known[r.Signature()] = true
				s.shrinkAndKeep(t, r)
			}
		})
	}
	for _, seed := range sortedKeys(sum.Differences) {
		t.Errorf("seed %d is not the same twice; %v", seed, sum.Differences[seed])
	}
	if missing := sum.Vacuous(); len(missing) > 0 && !sum.Failed() && !testing.Short() {
		t.Errorf("vacuous: %d seeds, and never %s", sum.Seeds, strings.Join(missing, ", "))
	}
	t.Logf("%s: %d seeds, %d events, %v of virtual time in %v (%.0f events/s), %d of %d rechecked",
		s.Name, sum.Seeds, sum.Events, sum.Virtual.Round(time.Second), sum.Elapsed.Round(time.Millisecond), sum.EventsPerSecond(), sum.Rechecked, sum.Seeds)
}

// In lets handlers of mode Bubble run inside of t.
func (s Spec) In(t *testing.T) Spec {
	s.host = t
	return s
}

// subtest is t.Run where there is one.
func subtest(t testing.TB, name string, fn func(testing.TB)) {
	if real, ok := t.(*testing.T); ok {
		real.Run(name, func(t *testing.T) { fn(t) })
		return
	}
	fn(t)
}

// tellEvents is how many of the last events a failing seed prints.
const tellEvents = 40

// tell reports a failing run.
func tell(t testing.TB, r *Result) {
	t.Helper()
	if !r.Failed() && (r.Replay.Exact || r.Replay.BestEffort || r.Replay.Runs < 2) {
		return
	}
	var text strings.Builder
	if skipped := len(r.Events) - tellEvents; skipped > 0 {
		fmt.Fprintf(&text, "… %d events before\n", skipped)
	}
	for _, e := range r.Events[max(0, len(r.Events)-tellEvents):] {
		fmt.Fprintln(&text, e)
	}
	for _, set := range r.Plan.Settings {
		fmt.Fprintf(&text, "setting %s = %s\n", set.Name, set.Text)
	}
	for _, f := range r.Plan.Faults {
		fmt.Fprintln(&text, "fault", f)
	}
	for _, v := range r.Violations {
		fmt.Fprintln(&text, "VIOLATION", v)
	}
	for _, a := range r.Alarms {
		fmt.Fprintln(&text, "ALARM", a)
	}
	if r.Err != "" {
		fmt.Fprintln(&text, "ERROR", r.Err)
	}
	for _, w := range r.Waits {
		fmt.Fprintln(&text, "waiting:", w)
	}
	t.Errorf("%s, seed %d: %v\n%s%v\nagain: go test -run '%s' -simulation.seed=%d", r.Plan.Spec, r.Plan.Seed, r.Signature(), text.String(), r.Replay, testOf(t.Name()), r.Plan.Seed)
}

// testOf is the test that a subtest belongs to.
func testOf(name string) string {
	if i := strings.LastIndex(name, "/seed-"); i > 0 {
		name = name[:i]
	}
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}

// shrinkAndKeep looks for the smallest plan that fails as r does, prints it, and keeps
// it, or r itself if there is none.
func (s Spec) shrinkAndKeep(t testing.TB, r *Result) {
	t.Helper()
	if host, ok := t.(*testing.T); ok {
		s = s.In(host)
	}
	if *shrinkFlag > 0 && r.Err == "" && !r.Replay.BestEffort {
		k, err := s.Shrink(r.Plan, Shrink{Budget: *shrinkFlag})
		if err != nil {
			t.Logf("not shrunk: %v", err)
		} else {
			t.Logf("%v\n%v", k, k.Scenario())
			r = &k.Result
		}
	}
	if !*keepFlag || r.EventCount == 0 { // one that could not even begin has nothing to keep
		return
	}
	file, err := keep(r)
	if err != nil {
		t.Errorf("-simulation.keep: %v", err)
		return
	}
	t.Logf("kept as %s", file)
}
