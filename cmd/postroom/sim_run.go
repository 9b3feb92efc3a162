package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/simulation"
	"github.com/postroom/postroom/simulation/report"
)

const simRunHelp = `Run runs a world with many seeds. Each seed draws its own configuration, workload,
faults and schedule; after every step a reference model and the invariants are asked.
Failing seeds run twice, and of the others one in twenty, to see that one seed is one
run.

The figures do not depend on --jobs. --json ends with one line of them; "vacuous" is
how many items of the list of what must come up never did, "trace_hash" a hash over
the hashes of all seeds in order: equal for equal code and seeds.

Exit status: 0 all is well, 1 a violation or an alarm, 2 usage, 3 two runs of one seed
differ (whatever else was found), 4 nothing was found but something never came up.`

// simRunConfig is what "postroom sim run" was told.
type simRunConfig struct {
	spec     string
	seeds    seedRange
	limit    time.Duration
	jobs     int
	failures int
	capsules string
	page     string
	json     bool
}

func (a *app) simRunCommand() *cobra.Command {
	c := &simRunConfig{seeds: seedRange{first: 1, last: 2000}}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run many seeds and check every invariant after every step",
		Long:  simRunHelp,
		Args:  noMoreArgs,
		RunE: func(*cobra.Command, []string) error {
			world, err := c.check()
			if err != nil {
				return err
			}
			a.status, err = a.simRun(c, world)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.spec, "spec", simWorlds()[0].Name, simSpecHelp)
	f.Var(&c.seeds, "seeds", "FIRST..LAST, or one seed")
	f.DurationVar(&c.limit, "for", 0, "stop after so long; without --seeds as many seeds as there is time for")
	f.IntVar(&c.jobs, "jobs", runtime.GOMAXPROCS(0), "runs at once, each on a thread of its own")
	f.IntVar(&c.failures, "failures", 10, "stop after so many failing seeds")
	f.StringVar(&c.capsules, "capsules", "", "`directory`, which is made, for a capsule of each failing run")
	f.StringVar(&c.page, "html", "", "`file` for a page about the campaign: coverage, what came up, what was new; - is stdout")
	f.BoolVar(&c.json, "json", false, "end with one line of JSON")
	return cmd
}

// check says what is wrong with the command line.
func (c *simRunConfig) check() (simWorld, error) {
	switch {
	case c.limit < 0:
		return simWorld{}, simUsage("run", "--for %s, want 0 or more", c.limit)
	case c.jobs < 1 || c.jobs > simJobsMax:
		return simWorld{}, simUsage("run", "--jobs %d, want 1 to %d", c.jobs, simJobsMax)
	case c.failures < 1:
		return simWorld{}, simUsage("run", "--failures %d, want at least 1", c.failures)
	}
	return simWorldOf(c.spec)
}

// simJobsMax is far outside of what serves anybody.
const simJobsMax = 1024

// simRunReport is the last line of --json.
type simRunReport struct {
	Spec             string         `json:"spec"`
	FirstSeed        uint64         `json:"first_seed"`
	Seeds            int            `json:"seeds"`
	Steps            int            `json:"steps"`
	Events           int            `json:"events"`
	Violations       int            `json:"violations"`
	Alarms           int            `json:"alarms"`
	Errors           int            `json:"errors"`
	Rechecked        int            `json:"rechecked"`
	Nondeterministic int            `json:"nondeterministic"`
	Vacuous          int            `json:"vacuous"`
	NeverHit         []string       `json:"never_hit"`
	Hits             map[string]int `json:"hits"`
	StepsPerSecond   float64        `json:"steps_per_second"`
	EventsPerSecond  float64        `json:"events_per_second"`
	SeedsPerSecond   float64        `json:"seeds_per_second"`
	Seconds          float64        `json:"seconds"`
	VirtualSeconds   float64        `json:"virtual_seconds"`
	// The same for each second that a processor worked on it, however busy the machine
	// was with other things. 0 where the system does not say.
	CPUSeconds         float64 `json:"cpu_seconds"`
	EventsPerCPUSecond float64 `json:"events_per_cpu_second"`
	SeedsPerCPUSecond  float64 `json:"seeds_per_cpu_second"`

	TraceHash string       `json:"trace_hash"`
	Failures  []simFailure `json:"failures"`
}

// simFailure is one failing seed of it.
type simFailure struct {
	Seed      uint64 `json:"seed"`
	Signature string `json:"signature"`
	Text      string `json:"text"`
	Replay    string `json:"replay"`
}

// simRun runs the campaign and returns the exit status.
func (a *app) simRun(c *simRunConfig, world simWorld) (int, error) {
	if c.capsules != "" {
		if err := os.Mkdir(c.capsules, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return exitUsage, &usageError{problem: "--capsules", cause: err, hint: "name a directory that can be made"}
		}
	}
	campaign := simulation.Campaign{First: c.seeds.first, Last: c.seeds.last, For: c.limit, Jobs: c.jobs, FailuresMax: c.failures, Cover: c.page != ""}
	size := 0
	if c.limit > 0 && !c.seeds.set {
		campaign.Last = 0 // as many as there is time for
	} else {
		size = int(c.seeds.last - c.seeds.first + 1)
	}
	bar := newSimProgress(a.stderr, size)
	campaign.Progress = func(sum *simulation.CampaignResult) {
		bar.show(sum.Seeds, fmt.Sprintf("%d seeds, %d failed", sum.Seeds, len(sum.Failures)+sum.Nondeterministic))
	}
	began := processorTime()
	sum := world.Campaign(campaign)
	spent := processorTime() - began
	bar.wipe()

	never := sum.Vacuous(world.must...)
	if size == 1 {
		never = []string{} // one run is not a campaign
	}
	if c.capsules != "" {
		for i := range sum.Failures {
			if err := a.writeCapsule(c.capsules, &sum.Failures[i]); err != nil {
				return exitViolation, err
			}
		}
	}
	if c.page != "" {
		if err := a.writeTo("--html", c.page, func(w io.Writer) error { return report.Campaign(w, sum, world.must, report.Options{}) }); err != nil {
			return exitUsage, err
		}
	}
	r := reportOf(c, sum, never, spent)
	writeSimRun(a.stdout, &r, sum, world.must)
	if c.json {
		text, err := json.Marshal(r)
		if err != nil {
			return exitViolation, err
		}
		fmt.Fprintf(a.stdout, "%s\n", text)
	}
	switch {
	case sum.Nondeterministic > 0:
		return exitNondeterministic, nil
	case sum.Failed():
		return exitViolation, nil
	case len(never) > 0:
		return exitVacuous, nil
	}
	return exitDone, nil
}

// writeCapsule keeps a failing run; one that could not even begin has nothing to keep.
func (a *app) writeCapsule(dir string, r *simulation.Result) error {
	if r.EventCount == 0 {
		return nil
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-%d.json", r.Plan.Spec, r.Plan.Seed))
	return a.writeTo("--capsules", name, simulation.CapsuleOf(r).Write)
}

func reportOf(c *simRunConfig, sum *simulation.CampaignResult, never []string, spent time.Duration) simRunReport {
	seconds := sum.Elapsed.Seconds()
	r := simRunReport{
		Spec: sum.Spec, FirstSeed: c.seeds.first, Seeds: sum.Seeds, Steps: sum.Steps, Events: sum.Events,
		Violations: sum.Violations, Alarms: sum.Alarms, Errors: sum.Errors,
		Rechecked: sum.Rechecked, Nondeterministic: sum.Nondeterministic,
		Vacuous: len(never), NeverHit: never, Hits: sum.Hits,
		StepsPerSecond: sum.StepsPerSecond(), EventsPerSecond: sum.EventsPerSecond(), Seconds: seconds,
		VirtualSeconds: sum.Virtual.Seconds(), TraceHash: fmt.Sprintf("%016x", sum.TraceHash), Failures: []simFailure{},
	}
	if seconds > 0 {
		r.SeedsPerSecond = float64(sum.Seeds) / seconds
	}
	if r.CPUSeconds = spent.Seconds(); r.CPUSeconds > 0 {
		r.EventsPerCPUSecond = float64(sum.Events) / r.CPUSeconds
		r.SeedsPerCPUSecond = float64(sum.Seeds) / r.CPUSeconds
	}
	for i := range sum.Failures {
		f := &sum.Failures[i]
		r.Failures = append(r.Failures, simFailure{Seed: f.Plan.Seed, Signature: f.Signature().String(), Text: whatFailed(f), Replay: f.Replay.String()})
	}
	return r
}

// whatFailed is the first thing that is wrong with a run, in words.
func whatFailed(r *simulation.Result) string {
	switch {
	case len(r.Violations) > 0:
		return r.Violations[0].String()
	case len(r.Alarms) > 0:
		return r.Alarms[0].String()
	}
	return r.Err
}

// writeSimRun is the report for people.
func writeSimRun(w io.Writer, r *simRunReport, sum *simulation.CampaignResult, must []string) {
	fmt.Fprintf(w, "%s: %d seeds from %d, %d steps, %d events, %s of virtual time in %s\n", r.Spec, r.Seeds, r.FirstSeed,
		r.Steps, r.Events, sum.Virtual.Round(time.Second), sum.Elapsed.Round(time.Millisecond))
	fmt.Fprintf(w, "%.0f steps, %.0f events and %.0f seeds a second; trace hash %s\n", r.StepsPerSecond, r.EventsPerSecond, r.SeedsPerSecond, r.TraceHash)
	if r.CPUSeconds > 0 {
		fmt.Fprintf(w, "%.1f s of processor time: %.0f events and %.0f seeds in each\n", r.CPUSeconds, r.EventsPerCPUSecond, r.SeedsPerCPUSecond)
	}
	if len(must) > 0 {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "\ncame up\tin seeds")
		for _, name := range must {
			fmt.Fprintf(tw, "%s\t%d\n", name, r.Hits[name])
		}
		_ = tw.Flush() // the exit status stands anyway
	}
	for _, f := range r.Failures {
		fmt.Fprintf(w, "\n✗ seed %d: %s\n  %s\n  %s\n  again: postroom sim replay --spec %s --seed %d\n", f.Seed, f.Signature, f.Text, f.Replay, r.Spec, f.Seed)
	}
	for seed, verdict := range sum.Differences {
		fmt.Fprintf(w, "\n✗ seed %d is not the same twice: %v\n", seed, verdict)
	}
	fmt.Fprintf(w, "\n%d violations, %d alarms, %d errors; %d seeds run twice, %d differ", r.Violations, r.Alarms, r.Errors, r.Rechecked, r.Nondeterministic)
	if r.Vacuous > 0 {
		fmt.Fprintf(w, "; vacuous: never %s", strings.Join(r.NeverHit, ", "))
	}
	fmt.Fprintln(w)
}
