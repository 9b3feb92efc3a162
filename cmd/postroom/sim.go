package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// Exit statuses of "postroom sim", which tell what was found from what was not.
const (
	exitViolation        = 1 // an oracle objects, or something does not get on
	exitNondeterministic = 3 // one seed, two runs, and they differ
	exitVacuous          = 4 // nothing found, and not everything seen that was to be
)

const simHelp = `Sim runs the unchanged broker, workers that crash included, on one thread and in
virtual time. One seed is one run: the same trace, however often it is run.

  run      many seeds, every invariant checked after every step
  replay   one run again, from its seed, capsule or scenario
  shrink   the shortest plan that still shows what a failing run shows
  why      the events that a violation depends on
  exhaust  every schedule of a small world
  table    what a lease is worth: the experiment with 500 items
  mutants  planted bugs, and how many seeds it takes to find each
  report   a run as a page to look at, or as a picture

Exit status: 0 all is well, 1 a violation, 2 usage, 3 two runs of one seed differ,
4 nothing was found, but something that had to come up never did.`

func (a *app) simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Crash workers in virtual time, and replay exactly what that did",
		Long:  simHelp,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRun: func(*cobra.Command, []string) { a.after = collectLess() },
	}
	cmd.AddCommand(a.simRunCommand(), a.simReplayCommand(), a.simShrinkCommand(), a.simWhyCommand(), a.simExhaustCommand(),
		a.simTableCommand(), a.simMutantsCommand(), a.simMutantCommand(), a.simReportCommand())
	return cmd
}

// simGCPercent is how much garbage a simulation lets come together. What lives is a few
// megabytes at any time and what dies is a gigabyte a second, so that 400 takes a tenth of
// the processor time away for some tens of megabytes more.
const simGCPercent = 400

// collectLess sets it, unless GOGC or GOMEMLIMIT say that somebody has thought about it,
// and returns what sets it back.
func collectLess() (undo func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(simGCPercent)
	return func() { debug.SetGCPercent(before) }
}

// simWorld is a world that the commands know by name.
type simWorld struct {
	simulation.Spec
	must []string // what a campaign over it has to have seen
}

// simWorlds are all of them, the default first.
func simWorlds() []simWorld {
	return []simWorld{
		{simulation.Standard(), simulation.MustHit},
		{simulation.Wide(), simulation.MustHit},
		{plainWorld(), nil},
	}
}

// plainWorld has no faults and about 1,000 events in a run, so that opening and closing
// a broker does not count: it is there for figures.
func plainWorld() simulation.Spec {
	return simulation.Spec{Name: "plain", Build: func(w *simulation.World) {
		q := w.Queue("mail", postroom.QueueConfig{})
		w.Workers("w", 3, q, simulation.Script(20*time.Millisecond, nil), postroom.ConsumerConfig{Concurrency: 2})
		w.Produce("api", q, simulation.Over(10*time.Second, 140), nil)
	}}
}

const simSpecHelp = "which world: standard, wide (handlers that settle by hand, topics) or plain (no faults, for figures)"

// simWorldOf finds one. Errors: [*usageError].
func simWorldOf(name string) (simWorld, error) {
	var names []string
	for _, w := range simWorlds() {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return simWorld{}, &usageError{
		problem: fmt.Sprintf("--spec %q is not there", name),
		hint:    "it is one of: " + strings.Join(names, ", ") + "; specs of your own are run by simulation.Check in a test",
	}
}

// seedRange is a flag for seeds: one, or the first and the last.
type seedRange struct {
	first, last uint64
	set         bool
}

// Set implements pflag.Value.
func (r *seedRange) Set(text string) error {
	from, to, isRange := strings.Cut(text, "..")
	first, err := parseSeed(from)
	if err != nil {
		return err
	}
	last := first
	if isRange {
		if last, err = parseSeed(to); err != nil {
			return err
		}
	}
	if last < first {
		return fmt.Errorf("the last seed, %d, is before the first, %d", last, first)
	}
	*r = seedRange{first, last, true}
	return nil
}

// parseSeed takes 1000000, 1_000_000 and 1e6.
func parseSeed(text string) (uint64, error) {
	if n, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64); err == nil {
		return n, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f < 1<<53 && f == math.Trunc(f) {
		return uint64(f), nil
	}
	return 0, fmt.Errorf("%q is no seed: want FIRST..LAST such as 1..1000, or one whole number", text)
}

// String implements pflag.Value.
func (r *seedRange) String() string {
	if r.first == r.last {
		return strconv.FormatUint(r.first, 10)
	}
	return fmt.Sprintf("%d..%d", r.first, r.last)
}

// Type implements pflag.Value.
func (*seedRange) Type() string { return "seeds" }

// noMoreArgs is cobra.NoArgs in our words.
func noMoreArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{problem: fmt.Sprintf("%s takes no %q", cmd.CommandPath(), args[0]), hint: fmt.Sprintf("see %q", cmd.CommandPath()+" --help")}
	}
	return nil
}

// simUsage is a usage error of a sim command.
func simUsage(verb, format string, args ...any) error {
	return &usageError{problem: fmt.Sprintf(format, args...), hint: fmt.Sprintf("see \"postroom sim %s --help\"", verb)}
}

// simProgress draws a bar on a terminal, and on anything else nothing: the summary
// comes soon enough.
type simProgress struct {
	bar  *progressbar.ProgressBar
	next time.Time
}

// newSimProgress makes one for so many things to do; 0: nobody knows how many.
func newSimProgress(stderr io.Writer, size int) *simProgress {
	p := &simProgress{}
	if isTerminal(stderr) {
		p.bar = newBar(stderr, int64(size))
	}
	return p
}

// show draws how far it is, if it is time to.
func (p *simProgress) show(done int, text string) {
	if now := time.Now(); p.bar != nil && now.After(p.next) {
		p.next = now.Add(barEvery)
		p.bar.Describe(text)
		_ = p.bar.Set(done) // a terminal that is gone is no reason to stop
	}
}

// wipe takes the bar away.
func (p *simProgress) wipe() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
