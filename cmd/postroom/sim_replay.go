package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/simulation"
)

const simReplayHelp = `Replay makes one run again, twice, and says whether it was the same. Of a capsule it
says what is left of it: "exact" is the same trace; "same signature" is the same
violation on another way, as after a change of the code; and when neither the plan
nor the seed shows it, "capsule no longer applies", which is never a pass.
` + simInputHelp + `

Exit status: 0 it passes (and, for a scenario, does what stands below its line),
1 a violation, 2 usage, 3 the two runs differ, 4 the capsule no longer applies.`

func (a *app) simReplayCommand() *cobra.Command {
	var in simInput
	var events, asJSON bool
	cmd := &cobra.Command{
		Use:   "replay [FILE]",
		Short: "Make one run again, twice",
		Long:  simReplayHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := in.read(a, "replay", args)
			if err != nil {
				return err
			}
			a.status, err = a.simReplay(c, events, asJSON)
			return err
		},
	}
	in.flags(cmd)
	cmd.Flags().BoolVar(&events, "events", false, "print every event")
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with one line of JSON: the whole result")
	return cmd
}

func (a *app) simReplay(c *simCase, events, asJSON bool) (status int, err error) {
	var r simulation.Result
	if c.capsule != nil {
		replay := c.spec.ReplayCapsule(c.capsule)
		r = replay.Result
		writeResult(a.stdout, &r, events)
		fmt.Fprintf(a.stdout, "capsule: %v\n", replay)
		if status = exitOf(&r); status != exitNondeterministic && replay.Outcome == simulation.NoLongerApplies {
			status = exitVacuous
		}
	} else {
		r = c.run()
		status = exitOf(&r)
		writeResult(a.stdout, &r, events)
		if c.scenario != nil && c.scenario.Want != "" {
			if got := simulation.ShortTrace(&r); got != c.scenario.Want {
				fmt.Fprintf(a.stdout, "✗ it does not do what stands below its line, but:\n%s", got)
				status = max(status, exitViolation)
			} else {
				fmt.Fprintln(a.stdout, "it does what stands below its line")
			}
		}
	}
	if asJSON {
		text, err := json.Marshal(r)
		if err != nil {
			return exitViolation, err
		}
		fmt.Fprintf(a.stdout, "%s\n", text)
	}
	return status, nil
}

const simShrinkHelp = `Shrink looks for the smallest plan whose run fails in the same way: fewer puts, workers
and faults, simpler settings, a plainer schedule. It prints the plan as a scenario, with
what happens below a line. That text can be replayed, and kept as a test.
` + simInputHelp + `

Exit status: 0 it was shrunk (the run fails, of course), 2 usage or the run passes, 3 two
runs of it differ.`

func (a *app) simShrinkCommand() *cobra.Command {
	var in simInput
	var budget time.Duration
	var scenario, capsule string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "shrink [FILE]",
		Short: "Find the smallest plan that fails in the same way",
		Long:  simShrinkHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if budget <= 0 {
				return simUsage("shrink", "--for %s, want more than 0", budget)
			}
			c, err := in.read(a, "shrink", args)
			if err != nil {
				return err
			}
			if capsule != "" && c.scenario != nil {
				return simUsage("shrink", "--capsule %s of a scenario, which is one already: keep the text", capsule)
			}
			shrunk, err := a.simShrink(c, budget)
			switch {
			case errors.Is(err, simulation.ErrNotTheSame):
				fmt.Fprintf(a.stderr, "postroom: %v\n", err)
				a.status = exitNondeterministic
				return nil
			case err != nil:
				return &usageError{problem: "shrink", cause: err, hint: "shrink a run that fails: postroom sim run finds some"}
			}
			if err := a.writeTo("--out", scenario, func(w io.Writer) error {
				_, err := io.WriteString(w, c.scenarioOf(shrunk).String())
				return err
			}); err != nil {
				return err
			}
			if capsule != "" {
				if err := a.writeTo("--capsule", capsule, simulation.CapsuleOf(&shrunk.Result).Write); err != nil {
					return err
				}
			}
			fmt.Fprintf(a.stderr, "postroom: %v\npostroom: %v\n", shrunk.Signature, shrunk)
			if asJSON {
				text, err := json.Marshal(shrunk)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "%s\n", text)
			}
			return nil
		},
	}
	in.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&budget, "for", simulation.ShrinkBudget, "how long to try")
	f.StringVar(&scenario, "out", "-", "`file` for the scenario; - is stdout")
	f.StringVar(&capsule, "capsule", "", "`file` for a capsule besides it")
	f.BoolVar(&asJSON, "json", false, "end with one line of JSON")
	return cmd
}

func (a *app) simShrink(c *simCase, budget time.Duration) (*simulation.Shrunk, error) {
	plan := c.plan
	if plan == nil {
		r := c.spec.Run(c.seed)
		plan = &r.Plan
	}
	bar := newSimProgress(a.stderr, 0)
	defer bar.wipe()
	return c.spec.Shrink(*plan, simulation.Shrink{Budget: budget, Progress: func(k *simulation.Shrunk) {
		bar.show(k.Replays, fmt.Sprintf("%v", k.After))
	}})
}

// scenarioOf is the shrunk plan as text, in the world that it came from.
func (c *simCase) scenarioOf(k *simulation.Shrunk) *simulation.Scenario {
	if c.scenario == nil {
		return k.Scenario()
	}
	s := c.scenario.With(k.Plan)
	s.Want = simulation.ShortTrace(&k.Result)
	return s
}

const simWhyHelp = `Why makes a run that fails and prints the events that what it shows depends on: the
chain of causes, what else became of its messages and leases, and what struck their
holders.
` + simInputHelp + `

Exit status: 0 it was explained, 2 usage or the run passes, 3 two runs of it differ.`

func (a *app) simWhyCommand() *cobra.Command {
	var in simInput
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why [FILE]",
		Short: "Print the events that a violation depends on",
		Long:  simWhyHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := in.result(a, "why", args)
			if err != nil {
				return err
			}
			why := simulation.Explain(&r)
			if why == nil {
				return &usageError{problem: "the run passes, so there is nothing to explain", hint: "postroom sim run finds runs that fail"}
			}
			fmt.Fprint(a.stdout, why)
			fmt.Fprintln(a.stdout, r.Replay)
			if asJSON {
				text, err := json.Marshal(why)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "%s\n", text)
			}
			if exitOf(&r) == exitNondeterministic {
				a.status = exitNondeterministic
			}
			return nil
		},
	}
	in.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with one line of JSON")
	return cmd
}

// result makes the run that the command line names, twice. Errors: [*usageError].
func (in *simInput) result(a *app, verb string, args []string) (simulation.Result, error) {
	c, err := in.read(a, verb, args)
	if err != nil {
		return simulation.Result{}, err
	}
	return c.run(), nil
}
