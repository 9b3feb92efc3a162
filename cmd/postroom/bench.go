package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/benchmark"
)

const benchHelp = `Bench measures what a message costs on this machine: its life through one queue and
through a thousand, confirmed puts, batches, deep backlogs, timers, topics, latency
under an even load, and memory; with a goroutine for each active queue and on lanes.

A time alone says little. Beside each stands the floor, three bare channel hops or one
bare round trip, measured around it; read the ratio, and only from one run. Each case
checks that nothing was lost, and one that fails leaves the others alone.

The table ends with what was asked for and how far it is met. --json ends with one line
of figures, --html writes one page with charts that needs no network.

Exit status: 0 measured, 1 a part failed, 2 usage, 3 interrupted.`

// benchConfig is what "postroom bench" was told.
type benchConfig struct {
	benchmark.Config
	json bool
	html string
}

func newBenchCommand(a *app) *cobra.Command {
	c := &benchConfig{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a message costs on this machine, beside bare channels",
		Long:  benchHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd); err != nil {
				return err
			}
			status, err := a.bench(cmd.Context(), c)
			a.status = status
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.Quick, "quick", false, "end within 40 s: fewer and smaller rounds")
	f.IntVar(&c.Rounds, "rounds", 5, "how often each case is measured; 3 with --quick")
	f.IntVar(&c.Messages, "messages", 200_000, "messages through one round of a case; half of that with --quick")
	f.StringSliceVar(&c.Only, "only", nil, "measure only these parts: "+strings.Join(benchmark.GroupNames(), ", "))
	f.BoolVar(&c.json, "json", false, "end with one line of JSON")
	f.StringVar(&c.html, "html", "", "also write a page with charts to this file")
	return cmd
}

// check says what is wrong with the flags.
func (c *benchConfig) check(cmd *cobra.Command) error {
	wrong := func(format string, args ...any) error {
		return &usageError{problem: fmt.Sprintf(format, args...), hint: `see "postroom bench --help"`}
	}
	switch {
	case c.Rounds < 1:
		return wrong("--rounds must be at least 1, not %d", c.Rounds)
	case c.Messages < benchmark.MessagesMin:
		return wrong("--messages must be at least %d, not %d: with fewer the beginning is all", benchmark.MessagesMin, c.Messages)
	}
	for _, name := range c.Only {
		if !slices.Contains(benchmark.GroupNames(), name) {
			return wrong("--only: there is no part %q; there are %s", name, strings.Join(benchmark.GroupNames(), ", "))
		}
	}
	flags := cmd.Flags()
	if flags.Changed("only") && len(c.Only) == 0 {
		return wrong("--only names no part; there are %s", strings.Join(benchmark.GroupNames(), ", "))
	}
	if flags.Changed("html") && c.html == "" {
		return wrong("--html needs the name of a file")
	}
	// What was not given is up to the benchmark: it depends on --quick.
	if !flags.Changed("rounds") {
		c.Rounds = 0
	}
	if !flags.Changed("messages") {
		c.Messages = 0
	}
	return nil
}

// errBenchInterrupted is the cause of the end by a signal.
var errBenchInterrupted = errors.New("interrupted")

// bench measures and returns the exit status.
func (a *app) bench(ctx context.Context, c *benchConfig) (status int, err error) {
	var page *os.File
	if c.html != "" { // before the work: a name that cannot be written is a usage error
		if page, err = os.Create(c.html); err != nil {
			return exitUsage, &usageError{problem: "--html", cause: err, hint: "name a file in a directory that can be written"}
		}
		defer page.Close()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals, stop := a.benchSignals()
	defer stop()
	go func() {
		select {
		case <-signals:
			cancel(errBenchInterrupted)
		case <-ctx.Done():
		}
	}()

	if isTerminal(a.stderr) {
		c.Progress = func(text string) { fmt.Fprintf(a.stderr, "\r\x1b[K%s", text) }
	}
	report, err := benchmark.Run(ctx, c.Config)
	if c.Progress != nil {
		c.Progress("")
	}
	if wrote := a.writeBench(c, report, page); wrote != nil {
		fmt.Fprintf(a.stderr, "postroom: bench: %v\n", wrote)
		return exitDied, nil
	}
	switch {
	case err != nil:
		return exitInterrupted, nil
	case len(report.Failed) > 0:
		return exitDied, nil
	}
	return exitDone, nil
}

// writeBench writes the table, then the page, then the line of JSON, which is to be the last.
func (a *app) writeBench(c *benchConfig, report *benchmark.Report, page *os.File) error {
	if err := report.WriteTable(a.stdout); err != nil {
		return err
	}
	for _, key := range report.Failed {
		fmt.Fprintf(a.stderr, "postroom: bench: %s failed\n", key)
	}
	if page != nil {
		var text bytes.Buffer
		err := report.WriteHTML(&text)
		if err == nil {
			_, err = page.Write(text.Bytes())
		}
		if err == nil {
			err = page.Sync()
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", c.html, err)
		}
		fmt.Fprintf(a.stdout, "\nwrote %s\n", c.html)
	}
	if c.json {
		return report.WriteJSON(a.stdout)
	}
	return nil
}

func (a *app) benchSignals() (<-chan os.Signal, func()) {
	if a.signals != nil {
		return a.signals, func() {}
	}
	return notifySignals()
}
