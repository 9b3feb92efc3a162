package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitDone        = 0 // every line was acked
	exitDied        = 1 // some line died, or a fact of the demo was off
	exitUsage       = 2 // nothing was begun: the command line or a file is wrong
	exitInterrupted = 3 // stopped with lines unfinished or unread
)

// app is the program with its surroundings passed in, so that a test can be them.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	// signals replaces those of the process; nil: the real ones.
	signals <-chan os.Signal
	// runner replaces the commands; nil: real ones.
	runner func(*runConfig, *console) runner

	status int
	after  func() // undoes what a command has set for the whole process; nil: nothing
}

// Run is the whole program. It returns the exit status and leaves no process behind.
// The end of ctx is an interruption that does not wait, like a second Ctrl-C.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&app{stdin: stdin, stdout: stdout, stderr: stderr}).run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use:   "postroom",
		Short: "Work through lines with a command for each: retries, leases, dead letters",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
		// One line says what is wrong; the help is there for who asks.
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(a.runCommand(), a.demoCommand(), a.simCommand(), a.labCommand(), a.labWorkerCommand(), newBenchCommand(a), a.versionCommand())

	defer func() {
		if a.after != nil {
			a.after()
		}
	}()
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(a.stderr, "postroom: %v\n", err)
		if hint := hint(err); hint != "" {
			fmt.Fprintf(a.stderr, "hint: %s\n", hint)
		}
		return exitUsage
	}
	return a.status
}

// usageError is a command line that cannot be carried out; nothing was begun.
type usageError struct {
	problem string
	hint    string // what to do, in one sentence; may be empty
	cause   error  // may be nil
}

func (e *usageError) Error() string {
	if e.cause != nil {
		return e.problem + ": " + e.cause.Error()
	}
	return e.problem
}

// Unwrap returns the cause.
func (e *usageError) Unwrap() error { return e.cause }

// Hint says what to do.
func (e *usageError) Hint() string {
	if e.hint == "" {
		return `see "postroom run --help"`
	}
	return e.hint
}

func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return `see "postroom --help"`
}
