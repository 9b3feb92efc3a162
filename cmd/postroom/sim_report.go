package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/simulation"
	"github.com/postroom/postroom/simulation/report"
)

const simReportHelp = `Report makes a page of one run: lanes of workers and messages, leases as bars, crashes,
late acks and dead letters as marks, the states over time, and a slider that shows the
ledger at each event. The page is one file that loads nothing. --svg makes a picture
for a README besides it or, with --html "", instead.

Exit status: 0 the files are written, whatever the run has found; 2 usage.`

func (a *app) simReportCommand() *cobra.Command {
	var in simInput
	var page, picture string
	cmd := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Make a page or a picture of one run",
		Long:  simReportHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if page == "" && picture == "" {
				return simUsage("report", "both --html and --svg are empty: there is nothing to make")
			}
			r, err := in.result(a, "report", args)
			if err != nil {
				return err
			}
			return a.simReport(r, in.command("replay", args), page, picture)
		},
	}
	in.flags(cmd)
	cmd.Flags().StringVar(&page, "html", "report.html", "`file` for the page; - is stdout")
	cmd.Flags().StringVar(&picture, "svg", "", "`file` for the picture; - is stdout")
	return cmd
}

func (a *app) simReport(r simulation.Result, command, page, picture string) error {
	o := report.Options{Command: command}
	for _, out := range []struct {
		flag, name string
		write      func(io.Writer) error
	}{
		{"--html", page, func(w io.Writer) error { return report.HTML(w, r, o) }},
		{"--svg", picture, func(w io.Writer) error { return report.SVG(w, r) }},
	} {
		if out.name == "" {
			continue
		}
		if err := a.writeTo(out.flag, out.name, out.write); err != nil {
			return err
		}
	}
	return nil
}

// writeTo lets write fill a file, which it makes anew; - is stdout.
func (a *app) writeTo(flag, name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(a.stdout)
	}
	file, err := os.Create(name)
	if err != nil {
		return &usageError{problem: flag + " " + name, cause: err, hint: "name a file that can be made"}
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("%s %s: %w", flag, name, err)
	}
	fmt.Fprintf(a.stderr, "postroom: wrote %s\n", name)
	return nil
}
