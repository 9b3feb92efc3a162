package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// told is a test that notes what is said to it.
type told struct {
	testing.TB
	errors, logs strings.Builder
}

func (t *told) Helper() {}

func (t *told) Name() string { return "TestTold" }

func (t *told) Errorf(format string, args ...any) { fmt.Fprintf(&t.errors, format+"\n", args...) }

func (t *told) Logf(format string, args ...any) { fmt.Fprintf(&t.logs, format+"\n", args...) }

func (t *told) Log(args ...any) { fmt.Fprintln(&t.logs, args...) }

// inCorpus changes to an empty directory that holds these files of a spec's corpus.
func inCorpus(t *testing.T, spec string, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(corpusDir(spec), 0o750))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(corpusDir(spec), name), []byte(text), 0o600))
	}
}

// corpusOf checks a spec's corpus and returns what the test was told.
func corpusOf(t *testing.T, s Spec) *told {
	t.Helper()
	said := &told{TB: t}
	checkCorpus(said, s)
	return said
}

// set sets a flag of the package for one test.
func set[T any](t *testing.T, flag *T, value T) {
	t.Helper()
	before := *flag
	*flag = value
	t.Cleanup(func() { *flag = before })
}

// Issue 3: capsules replay after refactoring as exact, as the same signature, or as "no
// longer applies", and none of them is a pass.
func TestACapsuleInTheCorpusIsNoSilentPass(t *testing.T) {
	s, r := plantedRun(t)
	capsule := written(t, CapsuleOf(&r))
	inCorpus(t, s.Name, map[string]string{"bug.json": capsule})

	said := corpusOf(t, s)
	assert.Contains(t, said.errors.String(), "bug.json: replay: exact\n")
	assert.Contains(t, said.errors.String(), r.Signature().String())

	other := s
	other.Build = func(w *World) { // a refactoring: one more queue, that nobody uses
		s.Build(w)
		w.Queue("audit", postroom.QueueConfig{})
	}
	said = corpusOf(t, other)
	assert.Contains(t, said.errors.String(), "bug.json: replay: same signature")

	s.Mutate = nil
	said = corpusOf(t, s)
	assert.Contains(t, said.errors.String(), "bug.json: replay: capsule no longer applies")
	assert.Contains(t, said.errors.String(), "-simulation.update makes a scenario of it")
	assert.FileExists(t, filepath.Join(corpusDir(s.Name), "bug.json"))
}

// A mended bug's capsule becomes a scenario by -simulation.update, and that holds the
// test to the run it is of.
func TestACapsuleOfAMendedBugBecomesAScenario(t *testing.T) {
	s, r := plantedRun(t)
	broken := s
	inCorpus(t, s.Name, map[string]string{"bug.json": written(t, CapsuleOf(&r))})
	set(t, updateFlag, true)
	assert.NotEmpty(t, corpusOf(t, broken).errors.String(), "the bug is there")
	assert.FileExists(t, filepath.Join(corpusDir(s.Name), "bug.json"), "no update accepts a bug")

	s.Mutate = nil
	said := corpusOf(t, s)
	require.Empty(t, said.errors.String())
	require.NoFileExists(t, filepath.Join(corpusDir(s.Name), "bug.json"))
	text, err := os.ReadFile(filepath.Join(corpusDir(s.Name), "bug.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "ok      drained  violations=0")

	*updateFlag = false
	assert.Empty(t, corpusOf(t, s).errors.String())
	assert.Contains(t, corpusOf(t, broken).errors.String(), "does not do what stands below its line")
}

// Plans must pass, and files that are none of the three are named with what is wrong.
func TestTheCorpusHoldsPlansAndRefusesTheRest(t *testing.T) {
	s, r := plantedRun(t)
	plan, err := json.MarshalIndent(r.Plan, "", "\t")
	require.NoError(t, err)
	capsule := written(t, CapsuleOf(&r))

	inCorpus(t, s.Name, map[string]string{"plan.json": string(plan)})
	assert.Contains(t, corpusOf(t, s).errors.String(), r.Signature().String())
	mended := s
	mended.Mutate = nil
	assert.Empty(t, corpusOf(t, mended).errors.String())

	for name, c := range map[string]struct{ text, want string }{
		"later.json":   {strings.Replace(capsule, `"capsule":1`, `"capsule":2`, 1), "capsule format 2, this is format 1"},
		"cut.json":     {capsule[:len(capsule)/2], "capsule: line"},
		"nothing.json": {"{]", "neither a scenario, a capsule nor a plan"},
		"old.json":     {strings.Replace(string(plan), `"format": 1`, `"format": 7`, 1), "it is of format 7"},
		"other.txt":    {"spec other\n", `it is of spec "other" and kept with those of "standard"`},
		"bad.txt":      {"spec standard\nput\n", "line 2"},
	} {
		inCorpus(t, s.Name, map[string]string{name: c.text})
		said := corpusOf(t, mended)
		assert.Contains(t, said.errors.String(), name)
		assert.Contains(t, said.errors.String(), c.want, name)
	}
}

// A scenario that says what a failing run does is a test of that failure; one that says
// nothing must pass.
func TestScenariosOfTheCorpus(t *testing.T) {
	s, r := plantedRun(t)
	failing := ScenarioOf(&r)
	inCorpus(t, s.Name, map[string]string{"shown.txt": FormatScenario(failing)})
	assert.Empty(t, corpusOf(t, s).errors.String())

	failing.Want = ""
	inCorpus(t, s.Name, map[string]string{"quiet.txt": FormatScenario(failing)})
	assert.Contains(t, corpusOf(t, s).errors.String(), r.Signature().String())
	s.Mutate = nil
	assert.Empty(t, corpusOf(t, s).errors.String())
}

// SIMULATION 2.2: Check shrinks what it finds, and writes a capsule.
func TestCheckShrinksAndKeepsWhatItFinds(t *testing.T) {
	s := Standard()
	s.Mutate = planted[3].mutate // shows itself soon
	inCorpus(t, s.Name, nil)
	set(t, keepFlag, true)
	said := &told{TB: t}
	Check(said, s)
	require.NotEmpty(t, said.errors.String())
	assert.Contains(t, said.logs.String(), "shrunk from ")
	assert.Contains(t, said.logs.String(), "spec   standard")
	files, err := filepath.Glob(filepath.Join(corpusDir(s.Name), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	signatures := map[Signature]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		c, err := ReadCapsule(strings.NewReader(string(text)))
		require.NoError(t, err)
		assert.False(t, signatures[c.Signature], "%s: one for each way to fail", file)
		signatures[c.Signature] = true
		assert.Less(t, len(c.Plan.Items), 4, file)
	}
	assert.Contains(t, corpusOf(t, s).errors.String(), "replay: exact")
}
