package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/simulation"
)

const simExhaustHelp = `Exhaust runs every schedule of a small world, with every set of crashes of a handler up
to --crashes: at its start, after its effect, and at its return, in any delivery. What
it proves, and what not, is printed as the bound. Schedules that only swap
independent steps are left out, and states that were reached before.

--json ends with one line.

Exit status: 0 complete, and nothing was found; 1 a violation; 2 usage; 4 the time ended
before the search did.`

func (a *app) simExhaustCommand() *cobra.Command {
	b := simulation.Bound{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "exhaust",
		Short: "Run every schedule of a small world",
		Long:  simExhaustHelp,
		Args:  noMoreArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if err := checkBound(&b); err != nil {
				return err
			}
			a.status, err = a.simExhaust(b, asJSON)
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&b.Messages, "messages", 2, "messages, 1 or 2")
	f.IntVar(&b.Workers, "workers", 2, "workers, 1 or 2")
	f.IntVar(&b.Crashes, "crashes", 1, "crashes in one run at most")
	f.IntVar(&b.Deliveries, "deliveries", 2, "up to which delivery of a message a crash is tried")
	f.DurationVar(&b.Budget, "for", time.Minute, "how long to search")
	f.BoolVar(&asJSON, "json", false, "end with one line of JSON")
	return cmd
}

// checkBound says what is wrong with the command line. The world has two of each.
func checkBound(b *simulation.Bound) error {
	for _, n := range []struct {
		flag            string
		got, least, top int
	}{{"messages", b.Messages, 1, 2}, {"workers", b.Workers, 1, 2}, {"crashes", b.Crashes, 0, 6}, {"deliveries", b.Deliveries, 1, 2}} {
		if n.got < n.least || n.got > n.top {
			return simUsage("exhaust", "--%s %d, want %d to %d", n.flag, n.got, n.least, n.top)
		}
	}
	if b.Budget <= 0 {
		return simUsage("exhaust", "--for %s, want more than 0", b.Budget)
	}
	if b.Crashes == 0 {
		b.Crashes = -1 // that is how the library says none
	}
	return nil
}

func (a *app) simExhaust(b simulation.Bound, asJSON bool) (int, error) {
	bar := newSimProgress(a.stderr, 0)
	b.Progress = func(x *simulation.Exhaustion) {
		bar.show(x.Schedules, fmt.Sprintf("%d states, %d schedules", x.States, x.Schedules))
	}
	x := simulation.Exhaustive().Exhaust(b)
	bar.wipe()
	fmt.Fprint(a.stdout, x)
	for i := range x.Failures {
		writeResult(a.stdout, &x.Failures[i], true)
	}
	if asJSON {
		text, err := json.Marshal(x)
		if err != nil {
			return exitViolation, err
		}
		fmt.Fprintf(a.stdout, "%s\n", text)
	}
	switch {
	case x.Err != "" || len(x.Failures) > 0:
		return exitViolation, nil
	case !x.Complete:
		return exitVacuous, nil
	}
	return exitDone, nil
}
