package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// lastLine is what --json ends with.
func lastLine(text string) string {
	text = strings.TrimSuffix(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func TestSimRefusesWhatItCannotDoAndSaysWhy(t *testing.T) {
	notThere := inTemp(t, "not-there")
	plain := writeFile(t, "plain.txt", "world queue=mail workers=1\nput m1\nat grant m1#1 worker sing\n")
	broken := writeFile(t, "broken.json", `{"capsule":1,`)
	later := writeFile(t, "later.json", `{"capsule":99,"plan":1}`+"\n")
	strange := writeFile(t, "strange.txt", "spec mine seed=1\nput m1 producer=api queue=mail number=0 at=1s\n")
	passing := writeFile(t, "passing.txt", "world queue=mail workers=1\nput m1\n")
	for _, test := range []struct {
		args string
		says string
	}{
		{"dance", `unknown command "dance"`},
		{"run 7", `postroom sim run takes no "7"`},
		{"run --seeds x", `"x" is no seed: want FIRST..LAST such as 1..1000`},
		{"run --seeds 1..", `"" is no seed`},
		{"run --seeds 9..1", "the last seed, 1, is before the first, 9"},
		{"run --seeds -1", `"-1" is no seed`},
		{"run --seeds 1.5", `"1.5" is no seed`},
		{"run --seeds 99999999999999999999", "is no seed"},
		{"run --for -1s", "--for -1s, want 0 or more"},
		{"run --for never", "invalid argument"},
		{"run --jobs 0", "--jobs 0, want 1 to 1024"},
		{"run --failures 0", "--failures 0, want at least 1"},
		{"run --spec nowhere", `--spec "nowhere" is not there`},
		{"replay", "which run? Name a FILE, or give --seed"},
		{"replay a b", "2 files, want one"},
		{"replay --seed 1 " + plain, "and --seed are given"},
		{"replay --seed x", "invalid argument"},
		{"replay --spec nowhere --seed 1", `--spec "nowhere" is not there`},
		{"replay " + notThere, "no such file"},
		{"replay " + plain, `line 3, column 22: found "sing", expected`},
		{"replay " + broken, "it is neither a capsule nor a plan"},
		{"replay " + later, "capsule format 99, this is format 1"},
		{"replay " + strange, `is of the spec "mine", which this program does not have`},
		{"shrink --for 0s --seed 1", "--for 0s, want more than 0"},
		{"shrink " + passing, "the plan's run passes, so there is nothing to shrink"},
		{"shrink --capsule x " + passing, "--capsule x of a scenario, which is one already"},
		{"run --seeds 1 --capsules " + notThere + "/x", "no such file"},
		{"why " + passing, "the run passes, so there is nothing to explain"},
		{"exhaust --messages 3", "--messages 3, want 1 to 2"},
		{"exhaust --workers 0", "--workers 0, want 1 to 2"},
		{"exhaust --crashes -1", "--crashes -1, want 0 to 6"},
		{"exhaust --for 0s", "--for 0s, want more than 0"},
		{"table --seeds 2..1", "is before the first"},
		{"mutants --seeds 0", "--seeds 0, want at least 1"},
		{"mutants --jobs 0", "--jobs 0, want 1 to 1024"},
		{"mutants --shrink -1s", "--shrink -1s, want 0 or more"},
		{"mutants --source " + notThere, "the mutants cannot be planted into"},
		{"mutants nobody", `no mutant is named "nobody"`},
		{"report --html= --seed 1", "there is nothing to make"},
		{"report --html " + notThere + "/x --seed 1", "no such file"},
	} {
		r := runPostroom(t, "", append([]string{"sim"}, strings.Fields(test.args)...)...)
		assert.Equal(t, exitUsage, r.status, "%s: %s%s", test.args, r.stdout, r.stderr)
		assert.Contains(t, r.stderr, test.says, test.args)
		assert.Contains(t, r.stderr, "hint: ", test.args)
		assert.Less(t, len(r.stderr), 2500, "%s: an error is no manual", test.args)
	}
}

func TestSimRunEndsWithItsFigures(t *testing.T) {
	var hashes []string
	for _, jobs := range []string{"1", "2"} {
		r := runPostroom(t, "", "sim", "run", "--seeds", "1..40", "--jobs", jobs, "--json")
		assert.Empty(t, r.stderr)
		var figures map[string]any
		require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &figures), r.stdout)
		for _, name := range []string{"seeds", "steps", "violations", "nondeterministic", "vacuous", "steps_per_second", "virtual_seconds"} {
			assert.IsType(t, 0.0, figures[name], name)
		}
		assert.EqualValues(t, 40, figures["seeds"])
		assert.Zero(t, figures["violations"])
		assert.Positive(t, figures["vacuous"])
		assert.Equal(t, exitVacuous, r.status, "40 seeds do not see everything")
		assert.Contains(t, r.stdout, "vacuous: never ")
		hashes = append(hashes, figures["trace_hash"].(string))
	}
	assert.Len(t, hashes[0], 16)
	assert.Equal(t, hashes[0], hashes[1], "it does not depend on --jobs")

	r := runPostroom(t, "", "sim", "run", "--seeds", "1")
	assert.Equal(t, exitDone, r.status, "one run is not a campaign")
}

func TestSimRunStopsWhenItsTimeIsOver(t *testing.T) {
	r := runPostroom(t, "", "sim", "run", "--for", "200ms", "--json")
	assert.Contains(t, []int{exitDone, exitVacuous}, r.status, r.stdout)
	var figures simRunReport
	require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &figures))
	assert.Positive(t, figures.Seeds)
	assert.Less(t, figures.Seconds, 20.0)
}

// sold is a world whose handler sells twice when it crashes behind the sale.
func sold(build func(w *simulation.World)) simulation.Spec {
	return simulation.Spec{Name: "sold", Build: func(w *simulation.World) {
		q := w.Queue("sales", postroom.QueueConfig{AckTimeout: time.Second})
		desk := w.External("desk", nil)
		w.Workers("w", 1, q, simulation.Script(0, desk), postroom.ConsumerConfig{})
		w.Produce("api", q, simulation.Burst(1), nil)
		w.Expect(simulation.EffectAtMostOnceByKey(desk))
		build(w)
	}}
}

func TestSimTellsFindingsApartByItsExitStatus(t *testing.T) {
	runs := 0
	for _, test := range []struct {
		name   string
		build  func(w *simulation.World)
		status int
		says   string
	}{
		{"violation", func(w *simulation.World) {
			w.At(simulation.AfterEffect("m1", 1), simulation.Fault{Kind: simulation.FaultCrash})
		}, exitViolation, `desk was done 2 times under key "m1"`},
		{"not the same twice", func(w *simulation.World) {
			runs++
			for range runs {
				w.At(simulation.OnStart("m1", 1), simulation.Fault{Kind: simulation.FaultIgnore})
			}
		}, exitNondeterministic, "seed 20 is not the same twice"},
		{"vacuous", func(*simulation.World) {}, exitVacuous, "vacuous: never "},
		{"error", func(*simulation.World) { panic("no world") }, exitViolation, "no world"},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out, stderr: &out}
		dir := t.TempDir()
		status, err := a.simRun(&simRunConfig{seeds: seedRange{19, 20, true}, jobs: 1, failures: 1, capsules: dir}, simWorld{sold(test.build), simulation.MustHit})
		require.NoError(t, err)
		assert.Equal(t, test.status, status, "%s: %s", test.name, &out)
		assert.Contains(t, out.String(), test.says)
		capsules, err := filepath.Glob(filepath.Join(dir, "sold-*.json"))
		require.NoError(t, err)
		assert.Len(t, capsules, map[bool]int{true: 1}[test.name == "violation"], test.name)
	}
}

func TestSimReplaysAScenarioAndComparesWhatItSays(t *testing.T) {
	world := "world queue=mail lease=1s workers=1\nput m1\n"
	r := runPostroom(t, world, "sim", "replay", "-", "--events", "--json")
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	assert.Contains(t, r.stdout, "replay: exact")
	assert.Contains(t, r.stdout, " settle ")
	var result simulation.Result
	require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &result))

	scenario, err := simulation.ParseScenario(world)
	require.NoError(t, err)
	scenario.Want = simulation.ShortTrace(&result)
	r = runPostroom(t, scenario.String(), "sim", "replay", "-")
	assert.Equal(t, exitDone, r.status, r.stdout)
	assert.Contains(t, r.stdout, "it does what stands below its line")

	scenario.Want += "5m  dead m1\n"
	r = runPostroom(t, scenario.String(), "sim", "replay", "-")
	assert.Equal(t, exitViolation, r.status)
	assert.Contains(t, r.stdout, "it does not do what stands below its line")
}

// A capsule whose bug is not there, as after a fix, is no pass.
func TestSimDoesNotPassACapsuleThatNoLongerApplies(t *testing.T) {
	r := simulation.Standard().RunTwice(1)
	require.False(t, r.Failed())
	r.Violations = []simulation.Violation{{Signature: simulation.Signature{Kind: "safety", Invariant: "I7", Roles: "grant during a lease"}, Text: "fixed"}}
	var text bytes.Buffer
	require.NoError(t, simulation.CapsuleOf(&r).Write(&text))
	got := runPostroom(t, text.String(), "sim", "replay", "-")
	assert.Equal(t, exitVacuous, got.status, "%s%s", got.stdout, got.stderr)
	assert.Contains(t, got.stdout, "capsule no longer applies")
}

func TestSimRunMakesAPageOfTheCampaign(t *testing.T) {
	page := inTemp(t, "campaign.html")
	r := runPostroom(t, "", "sim", "run", "--seeds", "1..30", "--html", page)
	assert.Contains(t, r.stdout, "30 seeds from 1")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<title>standard: 30 seeds</title>")
	assert.Contains(t, string(text), `<td data-n="`)
}

func TestSimReportWritesFilesThatOpenFromDisk(t *testing.T) {
	page, picture := inTemp(t, "run.html"), inTemp(t, "run.svg")
	r := runPostroom(t, "", "sim", "report", "--seed", "3", "--html", page, "--svg", picture)
	require.Equal(t, exitDone, r.status, r.stderr)
	assert.Contains(t, readFile(t, page), "postroom sim replay --spec standard --seed 3")
	assert.Contains(t, readFile(t, picture), "<svg")
	r = runPostroom(t, "", "sim", "report", "--seed", "3", "--html", "-")
	assert.True(t, strings.HasPrefix(r.stdout, "<!"), "%.40q", r.stdout)
}

func TestSimTablePrintsTheExperiment(t *testing.T) {
	r := runPostroom(t, "", "sim", "table", "--seeds", "7", "--json")
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	assert.Contains(t, r.stdout, "0.5 s leases + heartbeat  490        0")
	var figures simTableReport
	require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &figures))
	assert.Equal(t, 1, figures.Seeds)
	assert.Zero(t, figures.Broken)
}

func TestSimExhaustSaysWhetherItCameToTheEnd(t *testing.T) {
	r := runPostroom(t, "", "sim", "exhaust", "--messages", "1", "--workers", "1", "--crashes", "0", "--json")
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	var figures simulation.Exhaustion
	require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &figures))
	assert.True(t, figures.Complete)
	assert.Positive(t, figures.States)
	r = runPostroom(t, "", "sim", "exhaust", "--for", "1ms")
	assert.Equal(t, exitVacuous, r.status, r.stdout)
	assert.Contains(t, r.stdout, "not complete: out of time")
}

// The mutants are tried where there is time for it: `make mutants` and the CI. Here is
// what one of them comes to, without one awake.
func TestAProgramWithoutMutantsKillsNone(t *testing.T) {
	r := runPostroom(t, "", "sim", "mutant", "--seeds", "6")
	require.Equal(t, exitDone, r.status, r.stderr)
	var m mutantReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &m))
	assert.False(t, m.Killed)
	assert.Equal(t, 6, m.Seeds)
}

func TestMutantsAreCountedAndThoseThatLiveAreShown(t *testing.T) {
	r := simMutantsReport{Total: 3, Mutants: []mutantReport{
		{Name: "a", Breaks: "I1", Killed: true, Seeds: 7, Oracle: "safety/I1", Signature: "safety/I1/lost", Elements: 3},
		{Name: "b", Breaks: "I2", Seeds: 10_000, Elements: -1},
		{Name: "c", Breaks: "I3", Elements: -1, Problem: "killed\nstack"},
	}}
	r.sum()
	assert.Equal(t, 1, r.Killed)
	assert.Equal(t, 7, r.MaxSeedsToKill)
	assert.Equal(t, 3, r.MedianElements)
	var out bytes.Buffer
	r.write(&out)
	assert.Contains(t, out.String(), "lives")
	assert.Contains(t, out.String(), "1 of 3 found, with at most 7 seeds")
	assert.NotContains(t, out.String(), "stack")
}

func TestOneMutantIsPlantedFoundAndShrunk(t *testing.T) {
	if testing.Short() || os.Getenv("POSTROOM_MUTANTS") == "" {
		t.Skip("it builds the program anew; POSTROOM_MUTANTS=1 does it, as make mutants does for all")
	}
	r := runPostroom(t, "", "sim", "mutants", "--json", "lent-twice")
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	var figures simMutantsReport
	require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &figures))
	assert.Equal(t, 1, figures.Killed)
}

// Nobody works on the queue, so its messages never end: a run that fails.
const nobodyWorks = "world queue=mail\nput m1\nput m2 at=1s\nput m3 at=2s\ncalm 1m\n"

func TestSimReplaysShrinksAndExplainsAFailingScenario(t *testing.T) {
	r := runPostroom(t, nobodyWorks, "sim", "replay", "-")
	assert.Equal(t, exitViolation, r.status, r.stdout)
	assert.Contains(t, r.stdout, "liveness/L1/message does not end: ready")

	r = runPostroom(t, nobodyWorks, "sim", "shrink", "-", "--json")
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	text, _, _ := strings.Cut(r.stdout, "{")
	assert.Equal(t, 1, strings.Count(text, "\nput"), "one message is enough:\n%s", text)
	assert.Contains(t, r.stderr, "shrunk from 3 elements")

	r = runPostroom(t, text, "sim", "replay", "-")
	assert.Equal(t, exitViolation, r.status, r.stdout)
	assert.Contains(t, r.stdout, "it does what stands below its line")

	r = runPostroom(t, text, "sim", "why", "-", "--json")
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	assert.Contains(t, r.stdout, "the queue has no workers")
	var why simulation.Explanation
	require.NoError(t, json.Unmarshal([]byte(lastLine(r.stdout)), &why))
	assert.Equal(t, "L1", why.Signature.Invariant)
}
