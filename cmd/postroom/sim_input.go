package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/simulation"
)

// simInput says which run a command is about: a file, or a seed of a world.
type simInput struct {
	spec string
	seed uint64

	seedSet func() bool
}

const simInputHelp = `
FILE is a capsule or a scenario, - is stdin. Instead of it --seed names a run of
--spec.`

func (in *simInput) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&in.spec, "spec", simWorlds()[0].Name, "with --seed, "+simSpecHelp)
	f.Uint64Var(&in.seed, "seed", 0, "the run of this seed, instead of a FILE")
	in.seedSet = func() bool { return f.Changed("seed") }
}

// simCase is a run to be made.
type simCase struct {
	spec simulation.Spec
	plan *simulation.Plan // nil: that of the seed
	seed uint64

	capsule  *simulation.Capsule
	scenario *simulation.Scenario
}

// run makes it, twice.
func (c *simCase) run() simulation.Result {
	if c.plan == nil {
		return c.spec.RunTwice(c.seed)
	}
	return c.spec.ReplayTwice(*c.plan)
}

// read finds out what the command line names. Errors: [*usageError].
func (in *simInput) read(a *app, verb string, args []string) (*simCase, error) {
	switch {
	case len(args) > 1:
		return nil, simUsage(verb, "%d files, want one", len(args))
	case len(args) == 1 && in.seedSet():
		return nil, simUsage(verb, "both %s and --seed are given", args[0])
	case len(args) == 0 && !in.seedSet():
		return nil, simUsage(verb, "which run? Name a FILE, or give --seed")
	case len(args) == 0:
		world, err := simWorldOf(in.spec)
		return &simCase{spec: world.Spec, seed: in.seed}, err
	}
	text, err := a.readAll(args[0])
	if err != nil {
		return nil, err
	}
	c, err := parseSimFile(text)
	if err != nil {
		return nil, badSimFile(args[0], err)
	}
	if c.spec.Name != "" {
		return c, nil
	}
	world, err := simWorldOf(c.plan.Spec)
	if err != nil {
		return nil, &usageError{problem: fmt.Sprintf("%s is of the spec %q, which this program does not have", args[0], c.plan.Spec),
			hint: "replay it in a test of yours, by Spec.ReplayCapsule"}
	}
	c.spec = world.Spec
	return c, nil
}

// readAll reads a file, or stdin.
func (a *app) readAll(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.stdin)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, &usageError{problem: name, cause: err, hint: "name a capsule or a scenario, or - for stdin"}
	}
	return text, nil
}

// parseSimFile tells the kinds of file apart: capsules and plans are JSON.
func parseSimFile(text []byte) (*simCase, error) {
	c := &simCase{}
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	var head struct{ Capsule, Format int }
	switch {
	case !bytes.HasPrefix(line, []byte("{")):
		scenario, err := simulation.ParseScenario(string(text))
		if err != nil {
			return nil, err
		}
		plan := scenario.FullPlan()
		c.scenario, c.plan = scenario, &plan
		if own := scenario.Spec(); own != nil {
			c.spec = *own
		}
	case json.Unmarshal(line, &head) == nil && head.Capsule != 0:
		capsule, err := simulation.ReadCapsule(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		c.capsule, c.plan = capsule, &capsule.Plan
	default:
		var plan simulation.Plan
		if err := json.Unmarshal(text, &plan); err != nil {
			return nil, fmt.Errorf("it is neither a capsule nor a plan: %w", err)
		}
		if err := plan.Validate(); err != nil {
			return nil, err
		}
		c.plan = &plan
	}
	return c, nil
}

// badSimFile is the usage error for a file that will not do. It keeps the cause's hint.
func badSimFile(name string, err error) error {
	u := &usageError{problem: name, cause: err, hint: "docs/simulation.md has the format"}
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		u.hint = h.Hint()
	}
	return u
}

// command is the line for a shell that names the same run to another verb.
func (in *simInput) command(verb string, args []string) string {
	if len(args) == 1 {
		return "postroom sim " + verb + " " + shellWord(args[0])
	}
	return fmt.Sprintf("postroom sim %s --spec %s --seed %d", verb, in.spec, in.seed)
}

// shellWord quotes what a shell would read as more than a word.
func shellWord(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./+:,", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// exitOf is the exit status for one run.
func exitOf(r *simulation.Result) int {
	switch {
	case r.Replay.Runs > 1 && !r.Replay.Exact && !r.Replay.BestEffort:
		return exitNondeterministic
	case r.Failed():
		return exitViolation
	}
	return exitDone
}

// writeResult prints a run: its events if wanted, and what was found.
func writeResult(w io.Writer, r *simulation.Result, events bool) {
	if events {
		width := len(strconv.Itoa(len(r.Events)))
		for _, e := range r.Events {
			fmt.Fprintf(w, "%*d %v\n", width, e.Number, e)
		}
	}
	fmt.Fprintf(w, "%s, seed %d: %d events, %d steps, %v of virtual time, trace hash %016x\n",
		r.Plan.Spec, r.Plan.Seed, r.EventCount, r.Steps, r.Virtual, r.TraceHash)
	for _, v := range r.Violations {
		fmt.Fprintf(w, "✗ %v\n  %v\n", v.Signature, v)
	}
	for _, a := range r.Alarms {
		fmt.Fprintf(w, "✗ %v\n  %v\n", a.Signature, a)
	}
	if r.Err != "" {
		fmt.Fprintf(w, "✗ error: %s\n", r.Err)
	}
	for _, wait := range r.Waits {
		fmt.Fprintf(w, "  waiting: %s\n", wait)
	}
	if !r.Failed() {
		fmt.Fprintln(w, "passed")
	}
	fmt.Fprintln(w, r.Replay)
}
