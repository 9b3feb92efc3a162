package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/simulation/visibility"
)

const simTableHelp = `Table runs an experiment in virtual time: 500 items, 10 workers, 10 items that hang
until a timeout of 2 s, a tenth of the others slow; a plain channel, leases of 0.5 s,
and leases with a heartbeat. It prints what became of the items after 10 s, and when
nothing was left to do.

With one seed it prints that run, with many the least, the median and the most. Over
all of them must hold: the plain channel loses every item that hangs, leases lose
none, a heartbeat brings duplicates and late acks to 0, and in the end every item that
hangs is a dead letter. --json ends with one line.

Exit status: 0 all of it holds, 1 some of it does not, 2 usage.`

func (a *app) simTableCommand() *cobra.Command {
	seeds := seedRange{first: 1, last: 100}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Measure what a lease is worth",
		Long:  simTableHelp,
		Args:  noMoreArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			a.status, err = a.simTable(seeds, asJSON)
			return err
		},
	}
	cmd.Flags().Var(&seeds, "seeds", "FIRST..LAST, or one seed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with one line of JSON")
	return cmd
}

// simTableReport is the last line of --json.
type simTableReport struct {
	Seeds  int                `json:"seeds"`
	Broken int                `json:"broken"` // seeds in which a finding does not hold
	Tables []visibility.Table `json:"tables"`
}

func (a *app) simTable(seeds seedRange, asJSON bool) (int, error) {
	size := int(seeds.last - seeds.first + 1)
	bar := newSimProgress(a.stderr, size)
	r := simTableReport{Seeds: size}
	var broken []error
	for seed := seeds.first; ; seed++ {
		t, err := visibility.Run(seed)
		if err != nil {
			return exitViolation, err
		}
		r.Tables = append(r.Tables, t)
		if err := visibility.Facts(t); err != nil {
			r.Broken++
			broken = append(broken, err)
		}
		bar.show(len(r.Tables), fmt.Sprintf("%d seeds", len(r.Tables)))
		if seed == seeds.last {
			break
		}
	}
	bar.wipe()
	var err error
	if size == 1 {
		err = r.Tables[0].WriteText(a.stdout)
	} else {
		err = visibility.WriteRanges(a.stdout, r.Tables)
	}
	if err == nil && asJSON {
		var text []byte
		if text, err = json.Marshal(r); err == nil {
			_, err = fmt.Fprintf(a.stdout, "%s\n", text)
		}
	}
	if err != nil {
		return exitViolation, err
	}
	if len(broken) > 0 {
		fmt.Fprintf(a.stderr, "postroom: %v\n", errors.Join(broken...))
		return exitViolation, nil
	}
	return exitDone, nil
}
