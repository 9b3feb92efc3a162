package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
)

// checkShort is how many seeds are tried with -short.
const checkShort = 20

// Check tries a spec in a test. First it replays the plans in
// testdata/simulation/<name of the spec>/*.json, which are bugs of the past. Then it
// runs 200 seeds, or -simulation.seeds, or as many as -simulation.for has time for;
// every failing seed runs twice and becomes a subtest, named seed-N, which prints what
// happened and how to run it again. It fails as vacuous when something the spec says
// happens sometimes never did.
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
		tell(t, s, &r)
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
	for i := range sum.Failures {
		r := &sum.Failures[i]
		subtest(t, fmt.Sprintf("seed-%d", r.Plan.Seed), func(t testing.TB) { tell(t, s, r) })
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
func tell(t testing.TB, s Spec, r *Result) {
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
	t.Errorf("%s, seed %d: %v\n%s%v\nagain: go test -run '%s' -simulation.seed=%d", s.Name, r.Plan.Seed, r.Signature(), text.String(), r.Replay, testOf(t.Name()), r.Plan.Seed)
}

// testOf is the test that a subtest belongs to.
func testOf(name string) string {
	if i := strings.LastIndex(name, "/seed-"); i > 0 {
		name = name[:i]
	}
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}

// checkCorpus replays the plans that are kept for this spec.
func checkCorpus(t testing.TB, s Spec) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("testdata", "simulation", s.Name, "*.json"))
	slices.Sort(files)
	for _, file := range files {
		subtest(t, filepath.Base(file), func(t testing.TB) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var p Plan
			if err := json.Unmarshal(text, &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			r := s.ReplayTwice(p)
			tell(t, s, &r)
		})
	}
}
