package simulation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A corpus is what a spec keeps of its past, in testdata/simulation/<name of the spec>:
//
//	*.txt    a scenario: what happens must be what stands below its line
//	*.json   a capsule: a failing run, which fails the test until it is made a scenario
//	*.json   a plan: a run that must pass
//
// A capsule is evidence and a scenario is a test. While the bug is there its capsule
// shows it; once it is mended the capsule no longer applies, and that alone proves
// nothing: the change may as well have hidden the bug. So that is no pass either, until
// somebody has looked and -simulation.update has made a scenario of it.

// corpusDir is where the corpus of a spec is.
func corpusDir(spec string) string { return filepath.Join("testdata", "simulation", spec) }

// checkCorpus replays what is kept for this spec.
func checkCorpus(t testing.TB, s Spec) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.json", "*.txt"} {
		found, _ := filepath.Glob(filepath.Join(corpusDir(s.Name), pattern)) // the pattern is well formed
		files = append(files, found...)
	}
	slices.Sort(files)
	for _, file := range files {
		subtest(t, filepath.Base(file), func(t testing.TB) {
			if host, ok := t.(*testing.T); ok {
				s = s.In(host)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s.checkKept(t, file, text)
		})
	}
}

// checkKept replays one file of a corpus.
func (s Spec) checkKept(t testing.TB, file string, text []byte) {
	t.Helper()
	kept, err := readKept(text)
	if err == nil && kept.plan.Spec != s.Name {
		err = fmt.Errorf("it is of spec %q and kept with those of %q", kept.plan.Spec, s.Name)
	}
	switch {
	case err != nil:
		t.Errorf("%s: %v", file, err)
	case kept.capsule != nil:
		s.checkCapsule(t, file, kept.capsule)
	case kept.scenario != nil:
		s.checkScenario(t, file, string(text), kept.scenario)
	default:
		r := s.ReplayTwice(kept.plan)
		tell(t, &r)
	}
}

// kept is a file of a corpus.
type kept struct {
	plan     Plan
	capsule  *Capsule  // if it is one
	scenario *Scenario // if it is one
}

// readKept tells the kinds of file apart as postroom sim does: capsules and plans are
// JSON, a capsule says so in its first line.
func readKept(text []byte) (k kept, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		if k.scenario, err = ParseScenario(string(text)); err != nil {
			return k, err
		}
		k.plan = k.scenario.FullPlan()
		return k, nil
	}
	first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	var head struct{ Capsule int }
	if json.Unmarshal(first, &head) == nil && head.Capsule != 0 {
		if k.capsule, err = ReadCapsule(bytes.NewReader(text)); err != nil {
			return k, err
		}
		k.plan = k.capsule.Plan
		return k, nil
	}
	if err := json.Unmarshal(text, &k.plan); err != nil {
		return k, fmt.Errorf("it is neither a scenario, a capsule nor a plan: %w", err)
	}
	return k, k.plan.Validate()
}

// checkCapsule replays a capsule. Whatever comes of it, it is no pass.
func (s Spec) checkCapsule(t testing.TB, file string, c *Capsule) {
	t.Helper()
	replay := s.ReplayCapsule(c)
	r := &replay.Result
	if replay.Outcome != NoLongerApplies {
		t.Errorf("%s: %v", file, replay)
		tell(t, r)
		return
	}
	if r.Failed() || !*updateFlag {
		t.Errorf("%s: %v\n"+
			"If the bug is mended, -simulation.update makes a scenario of it, which is then a test that passes; "+
			"if the change has hidden it, look for it with -simulation.for=10m.", file, replay)
		return
	}
	scenario := strings.TrimSuffix(file, filepath.Ext(file)) + ".txt"
	if _, err := os.Stat(scenario); err == nil {
		t.Errorf("%s: %s is there already", file, scenario)
		return
	}
	if err := os.WriteFile(scenario, []byte(FormatScenario(ScenarioOf(r))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is %s now: the run passes, and the test holds it to that", file, scenario)
}

// checkScenario replays a scenario and compares what happens with what stands below its
// line. What stands there may be a failure: of a spec that is to show one.
func (s Spec) checkScenario(t testing.TB, file, text string, c *Scenario) {
	t.Helper()
	r := s.ReplayTwice(c.FullPlan())
	got := ShortTrace(&r)
	switch {
	case r.Err != "" || !r.Replay.Exact && !r.Replay.BestEffort || c.Want == "" && r.Failed():
		tell(t, &r)
	case c.Want == got || c.Want == "" && !*updateFlag:
	case *updateFlag:
		above, _, _ := cutLine(text)
		if err := os.WriteFile(file, []byte(above+scenarioLine+"\n"+got), 0o600); err != nil { //nolint:gosec // a file of the test's own testdata
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not do what stands below its line; it does\n%s-simulation.update writes that there, after a change that is meant", file, got)
	}
}

// keep writes a failing run into the corpus and returns the file.
func keep(r *Result) (string, error) {
	dir := corpusDir(r.Plan.Spec)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := CapsuleOf(r).Write(&b); err != nil {
		return "", err
	}
	file := filepath.Join(dir, fmt.Sprintf("seed-%d.json", r.Plan.Seed))
	return file, os.WriteFile(file, b.Bytes(), 0o600)
}
