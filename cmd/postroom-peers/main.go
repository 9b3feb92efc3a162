// Command postroom-peers runs the same work through Postroom and through other message
// brokers and queues, one after the other in one process, and prints what a message
// costs in each.
//
//	          put           lease            ack
//	producer ─────▶ peer ────────▶ worker ────────▶ peer
//	    ▲                            │
//	    └──── at most 4,096 ahead ───┘
//
// The work is one queue and bodies of 100 bytes, each message put, leased and acked on
// its own; then a backlog of 1,000 and one of 200,000, worked off. Each peer has the
// settings that its own documents call fastest for this; they stand with it in code.
// They do different things for their price: what each does that Postroom does not is
// printed beside its figure, and is to be read with it.
//
// It is a module of its own, so that nobody who embeds Postroom downloads the peers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Exit statuses.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitInterrupted
)

func main() {
	log.SetOutput(io.Discard) // some of the clients write to it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

type config struct {
	rounds, messages int
	only             []string
	json             bool
}

// parse reads the command line. The error is for the user.
func parse(args []string, stderr io.Writer) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("postroom-peers", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&c.rounds, "rounds", 3, "how often each peer is measured, in turn")
	f.IntVar(&c.messages, "messages", 100_000, "messages in a round; slow peers get fewer, fast ones more")
	only := f.String("only", "", "measure only these peers, with commas: "+strings.Join(names(), ", "))
	f.BoolVar(&c.json, "json", false, "end with one line of JSON")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case c.rounds < 1:
		return nil, fmt.Errorf("--rounds must be at least 1, not %d", c.rounds)
	case c.messages < 1000:
		return nil, fmt.Errorf("--messages must be at least 1000, not %d", c.messages)
	case *only != "":
		c.only = strings.Split(*only, ",")
	}
	for _, name := range c.only {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("--only: there is no peer %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	return c, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		fmt.Fprintf(stderr, "postroom-peers: %v\nhint: see postroom-peers --help\n", err)
		return exitUsage
	}
	results := measureAll(ctx, c, stderr)
	failed := false
	for _, r := range results {
		failed = failed || r.Error != ""
	}
	if err := write(stdout, results); err == nil && c.json {
		err = json.NewEncoder(stdout).Encode(struct {
			Machine string    `json:"machine"`
			Peers   []*result `json:"peers"`
			Quoted  []quoted  `json:"quoted"`
		}{machine(), results, quotes})
		failed = failed || err != nil
	}
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case failed:
		return exitFailed
	}
	return exitDone
}

// quoted is a figure that somebody else has published. It says nothing about this
// machine and stands here for what it is.
type quoted struct {
	Name      string `json:"name"`
	Published string `json:"published"`
}

var quotes = []quoted{{
	"ElasticMQ", "21,000 to 26,000 msg/s in process, about 2,500 over REST: its README; MacBook Pro of 2012, in memory, 1 to 10 threads, small messages",
}}

// times says how many times what ours takes.
func (r *result) times(ours *result) string {
	if ours == nil || ours == r || ours.NS.Median == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", r.NS.Median/ours.NS.Median)
}

func write(w io.Writer, results []*result) error {
	fmt.Fprintln(w, machine())
	var ours *result
	for _, r := range results {
		if r.Name == ourName && r.Rounds > 0 {
			ours = r
		}
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "peer\tns/msg\tmin\tmax\tmsg/s\tx ours\tdrain 1,000\tdrain 200,000\tslower")
	for _, r := range results {
		switch {
		case r.Skipped != "":
			fmt.Fprintf(t, "%s\tskipped: %s\n", r.Name, r.Skipped)
		case r.Rounds == 0:
			fmt.Fprintf(t, "%s\tfailed: %s\n", r.Name, r.Error)
		default:
			fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%s\t%s\t%s\n", r.Name, r.NS.Median, r.NS.Min, r.NS.Max, 1e9/r.NS.Median,
				r.times(ours), perMessage(r.Shallow), perMessage(r.Deep), r.slower())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, r := range results {
		fmt.Fprintf(w, "%s %s\n   %s\n", r.Name, r.Version, r.Settings)
		if r.Beyond != "" {
			fmt.Fprintf(w, "   what it does that we do not: %s\n", r.Beyond)
		}
		if r.Lacks != "" {
			fmt.Fprintf(w, "   what it does not do: %s\n", r.Lacks)
		}
		if r.Error != "" && r.Rounds > 0 {
			fmt.Fprintf(w, "   ✗ %s\n", r.Error)
		}
	}
	for _, q := range quotes {
		fmt.Fprintf(w, "%s, as published and not measured here: %s\n", q.Name, q.Published)
	}
	return nil
}

func perMessage(d *spread) string {
	if d == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", d.Median)
}

// slower says what a deep backlog does to the cost of a message.
func (r *result) slower() string {
	if r.Shallow == nil || r.Deep == nil {
		return "-"
	}
	return fmt.Sprintf("x %.2f", r.Deep.Median/r.Shallow.Median)
}

// settle waits a moment so that what one peer leaves running is over.
func settle() { time.Sleep(200 * time.Millisecond) }
