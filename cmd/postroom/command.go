package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runner carries out one attempt at one line.
type runner interface {
	// run returns when the attempt is over and nothing of it is left. ctx ends when
	// the attempt's lease is lost, stop is closed when all is to end now.
	run(ctx context.Context, stop <-chan struct{}, t task) outcome
}

// task is one attempt at one line.
type task struct {
	id      string
	attempt int // 1, 2, …
	body    []byte
}

// outcome is how an attempt ended.
type outcome struct {
	kind   ending
	err    error  // nil for done only
	stderr []byte // its tail
}

// ending is what an attempt's end means to the broker.
type ending uint8

// The endings, as "postroom run --help" has them.
const (
	done      ending = iota // exit 0: ack
	failed                  // nack, with backoff
	permanent               // exit 65, or a line that no command can be given: dead
	crashed                 // a signal: the lease runs out
	stopped                 // by us, because of an interruption: untried
)

// placeholder is replaced by the line, inside arguments.
const placeholder = "{}"

// exDataErr is EX_DATAERR of sysexits.h: "the input data was incorrect in some way".
const exDataErr = 65

// commander runs a real process for each attempt, each in a process group of its own:
// so a Ctrl-C on the terminal reaches us and not it, and its children can be ended
// with it.
type commander struct {
	path    string
	argv    []string // with placeholders; argv[0] as it was typed
	env     []string
	timeout time.Duration // 0: none

	// killAfter is from SIGTERM to SIGKILL, and how long output is read after the
	// command's own end.
	killAfter time.Duration
	console   *console
}

func newCommander(c *runConfig, console *console) runner {
	return &commander{path: c.path, argv: c.argv, env: os.Environ(), timeout: c.timeout, killAfter: c.killAfter, console: console}
}

func (c *commander) run(ctx context.Context, stop <-chan struct{}, t task) outcome {
	argv, err := c.arguments(t.body)
	if err != nil {
		return outcome{kind: permanent, err: err}
	}
	cmd := &exec.Cmd{
		Path: c.path, Args: argv,
		// The last of two equal names wins.
		Env:         append(c.env[:len(c.env):len(c.env)], "POSTROOM_ID="+t.id, "POSTROOM_ATTEMPT="+strconv.Itoa(t.attempt)),
		Stdin:       &lineInput{body: t.body},
		SysProcAttr: ownGroup(),
		WaitDelay:   max(c.killAfter, 1), // 0 would mean for ever
	}
	stdout := &lineWriter{to: c.console.writeOut}
	stderr := &lineWriter{to: c.console.writeErr, tailMax: stderrTail}
	cmd.Stdout, cmd.Stderr = stdout, stderr

	if err := cmd.Start(); err != nil {
		return notStarted(err)
	}
	out := c.await(ctx, stop, cmd)
	stdout.Flush()
	stderr.Flush()
	out.stderr = stderr.Tail()
	return out
}

// arguments puts the line into the arguments.
func (c *commander) arguments(body []byte) ([]string, error) {
	argv := make([]string, len(c.argv))
	for i, arg := range c.argv {
		if i > 0 && strings.Contains(arg, placeholder) {
			if bytes.IndexByte(body, 0) >= 0 {
				return nil, errors.New("the line has a NUL byte, which no argument can hold: leave {} out and read it from stdin")
			}
			arg = strings.ReplaceAll(arg, placeholder, string(body))
		}
		argv[i] = arg
	}
	return argv, nil
}

// notStarted tells what another attempt may cure from what it will not.
func notStarted(err error) outcome {
	if errors.Is(err, syscall.E2BIG) {
		return outcome{kind: permanent, err: errors.New("the line is too long for an argument: leave {} out and read it from stdin")}
	}
	return outcome{kind: failed, err: fmt.Errorf("not started: %w", err)}
}

// await waits for the command's end, or brings it about.
func (c *commander) await(ctx context.Context, stop <-chan struct{}, cmd *exec.Cmd) outcome {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var over <-chan time.Time
	if c.timeout > 0 {
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case err := <-ended:
		return verdict(err)
	case <-over:
		c.terminate(stop, cmd, ended)
		return outcome{kind: failed, err: fmt.Errorf("timed out after %s", c.timeout)}
	case <-ctx.Done():
		// Somebody else has the line, or soon will.
		c.terminate(stop, cmd, ended)
		return outcome{kind: failed, err: context.Cause(ctx)}
	case <-stop:
		killGroup(cmd)
		if err := <-ended; err == nil {
			return outcome{kind: done} // it was quicker
		}
		return outcome{kind: stopped, err: errors.New("stopped by an interruption")}
	}
}

// terminate ends the command's group: politely, then for certain. What is left of
// the group when the command itself has gone is not waited for.
func (c *commander) terminate(stop <-chan struct{}, cmd *exec.Cmd, ended <-chan error) {
	terminateGroup(cmd)
	grace := time.NewTimer(c.killAfter)
	defer grace.Stop()
	select {
	case <-ended: //nolint:errcheck // why it ended matters to nobody: it was to end
		killGroup(cmd)
		return
	case <-grace.C:
	case <-stop:
	}
	killGroup(cmd)
	<-ended //nolint:errcheck // as above
}

// verdict is what the end of a process means.
func verdict(err error) outcome {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		// Exit 0; with ErrWaitDelay somebody still has its output open.
		return outcome{kind: done}
	case !errors.As(err, &exit):
		return outcome{kind: failed, err: err}
	}
	if sig, ok := diedBySignal(exit.ProcessState); ok {
		return outcome{kind: crashed, err: &crash{Signal: sig}}
	}
	switch code := exit.ExitCode(); code {
	case exDataErr:
		return outcome{kind: permanent, err: errors.New("exit status 65 (EX_DATAERR)")}
	default:
		return outcome{kind: failed, err: fmt.Errorf("exit status %d", code)}
	}
}

// crash is a command that died by a signal. The handler panics with it, which is how
// the broker is told of a crash.
type crash struct{ Signal syscall.Signal }

func (c *crash) Error() string {
	return fmt.Sprintf("killed by signal %d (%s)", int(c.Signal), c.Signal)
}

// lineInput is a line with a newline behind it, without a copy.
type lineInput struct {
	body []byte
	over bool
}

// Read implements io.Reader.
func (r *lineInput) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n := copy(p, r.body)
	r.body = r.body[n:]
	if len(r.body) == 0 && n < len(p) && !r.over {
		p[n] = '\n'
		n++
		r.over = true
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
