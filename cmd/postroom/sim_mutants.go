package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/internal/mutants"
	"github.com/postroom/postroom/simulation"
)

const simMutantsHelp = `Mutants plants bugs into a copy of the broker, one at a time, and counts how many seeds
the simulation needs to find each: what its silence is worth. Of a bug that it finds it
prints which oracle did, and how small the shrunk plan is: puts, workers and faults.

The bugs are not in this program: it is built once more, with all of them in it, and
each of them is awake in a process of its own. That takes the go command and the source
of Postroom: run it in a checkout, or name one by --source.

--json ends with one line: "total", "killed", "max_seeds_to_kill", and the mutants.

Exit status: 0 all were found, 1 one was not, 2 usage, or the source is not there.`

// simMutantsConfig is what "postroom sim mutants" was told.
type simMutantsConfig struct {
	source string
	only   []string
	seeds  int
	shrink time.Duration
	jobs   int
	json   bool
}

func (a *app) simMutantsCommand() *cobra.Command {
	c := &simMutantsConfig{}
	cmd := &cobra.Command{
		Use:   "mutants [NAME...]",
		Short: "Plant bugs and count the seeds it takes to find each",
		Long:  simMutantsHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.only = args
			zoo, err := c.check()
			if err != nil {
				return err
			}
			a.status, err = a.simMutants(cmd.Context(), c, zoo)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.source, "source", "", "`directory` of Postroom's source; without it that of the current module")
	f.IntVar(&c.seeds, "seeds", 10_000, "seeds each mutant gets at most")
	f.DurationVar(&c.shrink, "shrink", 10*time.Second, "how long to shrink each failing run; 0 does not")
	f.IntVar(&c.jobs, "jobs", runtime.GOMAXPROCS(0), "mutants at once")
	f.BoolVar(&c.json, "json", false, "end with one line of JSON")
	return cmd
}

// check says what is wrong with the command line, and which mutants it is about.
func (c *simMutantsConfig) check() ([]mutants.Mutant, error) {
	switch {
	case c.seeds < 1:
		return nil, simUsage("mutants", "--seeds %d, want at least 1", c.seeds)
	case c.jobs < 1 || c.jobs > simJobsMax:
		return nil, simUsage("mutants", "--jobs %d, want 1 to %d", c.jobs, simJobsMax)
	case c.shrink < 0:
		return nil, simUsage("mutants", "--shrink %s, want 0 or more", c.shrink)
	}
	zoo := mutants.All()
	if len(c.only) == 0 {
		return zoo, nil
	}
	var some []mutants.Mutant
	for _, name := range c.only {
		i := slices.IndexFunc(zoo, func(m mutants.Mutant) bool { return m.Name == name })
		if i < 0 {
			return nil, &usageError{problem: fmt.Sprintf("no mutant is named %q", name), hint: "they are: " + mutantNames(zoo)}
		}
		some = append(some, zoo[i])
	}
	return some, nil
}

func mutantNames(zoo []mutants.Mutant) string {
	var names []string
	for _, m := range zoo {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// mutantReport is what became of one mutant.
type mutantReport struct {
	Name   string `json:"name"`
	Breaks string `json:"breaks"`
	About  string `json:"about"`

	Killed bool `json:"killed"`
	// Seeds is how many runs it took, or how many did not find it.
	Seeds int `json:"seeds_to_kill"`
	// Spec and Seed are of the run that found it.
	Spec string `json:"spec,omitempty"`
	Seed uint64 `json:"seed,omitempty"`
	// Oracle is the signature's kind and invariant, such as lockstep/I9.
	Oracle    string `json:"oracle,omitempty"`
	Signature string `json:"signature,omitempty"`
	Text      string `json:"text,omitempty"`
	Replay    string `json:"replay,omitempty"`

	// Elements is the size of the shrunk plan, -1 when it was not shrunk.
	Elements      int     `json:"elements"`
	ElementsFrom  int     `json:"elements_before"`
	ShrinkSeconds float64 `json:"shrink_seconds"`
	Seconds       float64 `json:"seconds"`
	Problem       string  `json:"problem,omitempty"`
}

// simMutantsReport is the last line of --json.
type simMutantsReport struct {
	Total               int            `json:"total"`
	Killed              int            `json:"killed"`
	MaxSeedsToKill      int            `json:"max_seeds_to_kill"`
	MedianElements      int            `json:"median_elements"`
	MedianShrinkSeconds float64        `json:"median_shrink_seconds"`
	Seconds             float64        `json:"seconds"`
	Mutants             []mutantReport `json:"mutants"`
}

func (a *app) simMutants(ctx context.Context, c *simMutantsConfig, zoo []mutants.Mutant) (int, error) {
	began := time.Now()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "postroom-mutants-")
	if err != nil {
		return exitUsage, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory that stays is no harm
	program, err := buildMutants(ctx, c.source, dir)
	if err != nil {
		return exitUsage, err
	}
	r := simMutantsReport{Total: len(zoo), Mutants: make([]mutantReport, len(zoo))}
	bar := newSimProgress(a.stderr, len(zoo))
	var mu sync.Mutex
	var jobs sync.WaitGroup
	next, done := 0, 0
	for range min(c.jobs, len(zoo)) {
		jobs.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				bar.show(done, fmt.Sprintf("%d of %d mutants", done, len(zoo)))
				mu.Unlock()
				if i >= len(zoo) || ctx.Err() != nil {
					return
				}
				report := c.try(ctx, program, &zoo[i])
				mu.Lock()
				r.Mutants[i] = report
				done++
				mu.Unlock()
			}
		})
	}
	jobs.Wait()
	bar.wipe()
	if ctx.Err() != nil {
		fmt.Fprintln(a.stderr, "postroom: interrupted")
		return exitViolation, nil
	}
	r.sum()
	r.Seconds = time.Since(began).Seconds()
	r.write(a.stdout)
	if c.json {
		text, err := json.Marshal(&r)
		if err != nil {
			return exitViolation, err
		}
		fmt.Fprintf(a.stdout, "%s\n", text)
	}
	if r.Killed < r.Total {
		return exitViolation, nil
	}
	return exitDone, nil
}

// buildMutants makes the program with the mutants in it. Errors: [*usageError].
func buildMutants(ctx context.Context, source, dir string) (program string, err error) {
	const module = "github.com/postroom/postroom"
	hint := "the mutants are built from Postroom's source: run this in a checkout, or name one by --source"
	if source == "" {
		list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
		out, err := list.Output()
		if source = strings.TrimSpace(string(out)); err != nil || source == "" {
			return "", &usageError{problem: "Postroom's source is not here", cause: commandError(err), hint: hint}
		}
	}
	if source, err = filepath.Abs(source); err != nil {
		return "", err
	}
	overlay, err := mutants.Overlay(source, dir)
	if err != nil {
		return "", &usageError{problem: "the mutants cannot be planted into " + source, cause: err, hint: hint}
	}
	program = filepath.Join(dir, "postroom")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, module+"/cmd/postroom")
	build.Dir = source
	if _, err := build.Output(); err != nil {
		return "", &usageError{problem: "the mutants cannot be built", cause: commandError(err), hint: hint}
	}
	return program, nil
}

// commandError is a command's failure with what it has said.
func commandError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

// mutantPatience bounds one mutant: a bug may also make the broker hang.
const mutantPatience = 10 * time.Minute

// try runs the mutant in a process of its own.
func (c *simMutantsConfig) try(ctx context.Context, program string, m *mutants.Mutant) mutantReport {
	r := mutantReport{Elements: -1}
	ctx, cancel := context.WithTimeout(ctx, mutantPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "sim", "mutant", "--seeds", fmt.Sprint(c.seeds), "--shrink", c.shrink.String())
	cmd.Env = append(os.Environ(), mutants.Environment+"="+m.Name)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		r.Problem = commandError(err).Error()
	}
	r.Name, r.Breaks, r.About = m.Name, m.Breaks, m.About
	return r
}

// sum adds up.
func (r *simMutantsReport) sum() {
	var elements []int
	var seconds []float64
	for _, m := range r.Mutants {
		if m.Killed {
			r.Killed++
			r.MaxSeedsToKill = max(r.MaxSeedsToKill, m.Seeds)
		}
		if m.Elements >= 0 {
			elements, seconds = append(elements, m.Elements), append(seconds, m.ShrinkSeconds)
		}
	}
	if n := len(elements); n > 0 {
		slices.Sort(elements)
		slices.Sort(seconds)
		r.MedianElements, r.MedianShrinkSeconds = elements[n/2], seconds[n/2]
	}
}

// write is the report for people.
func (r *simMutantsReport) write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "mutant\tbreaks\tseeds\tfound by\tshrunk\twhat was seen")
	for _, m := range r.Mutants {
		shrunk := "-"
		if m.Elements >= 0 {
			shrunk = fmt.Sprintf("%d", m.Elements)
		}
		switch {
		case m.Problem != "":
			fmt.Fprintf(tw, "%s\t%s\t✗\t-\t-\t%s\n", m.Name, m.Breaks, firstLine(m.Problem))
		case !m.Killed:
			fmt.Fprintf(tw, "%s\t%s\t✗ %d\t-\t-\tlives\n", m.Name, m.Breaks, m.Seeds)
		default:
			fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\n", m.Name, m.Breaks, m.Seeds, m.Oracle, shrunk, strings.TrimPrefix(m.Signature, m.Oracle+"/"))
		}
	}
	_ = tw.Flush() // the exit status stands anyway
	fmt.Fprintf(w, "\n%d of %d found, with at most %d seeds", r.Killed, r.Total, r.MaxSeedsToKill)
	if r.MedianElements > 0 {
		fmt.Fprintf(w, "; shrunk to %d elements in %.2f s in the middle", r.MedianElements, r.MedianShrinkSeconds)
	}
	fmt.Fprintf(w, "; %.0f s in all\n", r.Seconds)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// simMutantCommand is what simMutants runs in a program that has a mutant awake: seeds
// of every world in turn, until one fails.
func (a *app) simMutantCommand() *cobra.Command {
	c := &simMutantsConfig{}
	cmd := &cobra.Command{
		Use:    "mutant",
		Hidden: true,
		Args:   noMoreArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := json.Marshal(c.kill([]simulation.Spec{simulation.Standard(), simulation.Wide()}))
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "%s\n", text)
			return nil
		},
	}
	cmd.Flags().IntVar(&c.seeds, "seeds", 10_000, "")
	cmd.Flags().DurationVar(&c.shrink, "shrink", 0, "")
	return cmd
}

// kill runs seeds until one fails, in each world by turns.
func (c *simMutantsConfig) kill(specs []simulation.Spec) mutantReport {
	began := time.Now()
	m := mutantReport{Elements: -1}
	for m.Seeds = 1; m.Seeds <= c.seeds; m.Seeds++ {
		spec := specs[(m.Seeds-1)%len(specs)]
		spec.NoEvents = true
		seed := uint64((m.Seeds-1)/len(specs) + 1)
		r := spec.Run(seed)
		if !r.Failed() {
			continue
		}
		again := spec.Run(seed)
		m.Killed, m.Spec, m.Seed = true, spec.Name, seed
		s := r.Signature()
		m.Oracle, m.Signature, m.Text = s.Kind+"/"+s.Invariant, s.String(), whatFailed(&r)
		m.Replay = simulation.Verdict{Runs: 2, Exact: r.TraceHash == again.TraceHash}.String()
		if c.shrink > 0 {
			k, err := spec.Shrink(r.Plan, simulation.Shrink{Budget: c.shrink})
			if err != nil {
				m.Problem = "shrink: " + err.Error()
			} else {
				m.Elements, m.ElementsFrom, m.ShrinkSeconds = k.After.Total(), k.Before.Total(), k.Elapsed.Seconds()
			}
		}
		m.Seconds = time.Since(began).Seconds()
		return m
	}
	m.Seeds = c.seeds
	m.Seconds = time.Since(began).Seconds()
	return m
}
