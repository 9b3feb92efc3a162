//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var nextLine = regexp.MustCompile(`next input line: (\d+)`)

// assertNothingLost holds the promise of an interruption: lines that were done, the
// rest file and what is read next are the whole input, each line once.
func assertNothingLost(t *testing.T, input, done []string, rest string, stderr string) {
	t.Helper()
	all := append(append([]string{}, done...), strings.Fields(rest)...)
	if m := nextLine.FindStringSubmatch(stderr); m != nil {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		all = append(all, input[n-1:]...)
	} else {
		require.Contains(t, stderr, "next input line: none")
	}
	assert.ElementsMatch(t, input, all)
}

func words(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("line-%d", i+1)
	}
	return all
}

func TestInterruptedOnceFinishesWhatRuns(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("ignored here, as a hangup is under nohup: who starts so wants the run to go on")
			}
			input := words(30)
			file := writeFile(t, "jobs.txt", strings.Join(input, "\n"))
			rest, gate := inTemp(t, "rest.txt"), inTemp(t, "gate")
			require.NoError(t, syscall.Mkfifo(gate, 0o600))
			c := startChild(t, "", "run", "--workers", "2", "--window", "5", "--json", "--rest", rest, file, "--",
				"sh", "-c", `echo "begun $1"; read -r _ < "$2"; echo "done $1"`, "_", "{}", gate)
			c.out.awaitText(t, "begun line-2\n")
			c.out.awaitText(t, "begun line-1\n")
			require.NoError(t, c.Process.Signal(sig))
			c.err.awaitText(t, "waiting for 2 running commands; again kills them")
			open, err := os.OpenFile(gate, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = open.WriteString("\n\n")
			require.NoError(t, err)
			r := c.finish(t)
			require.NoError(t, open.Close())

			assert.Equal(t, exitInterrupted, r.status)
			f, out := r.figures(t)
			assert.Equal(t, uint64(2), f.Acked)
			assert.Equal(t, 2, strings.Count(out, "done "), "both were finished, and no other was begun")
			assertNothingLost(t, input, []string{"line-1", "line-2"}, readFile(t, rest), r.stderr)
			info, err := os.Stat(rest)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), info.Mode())

			m := nextLine.FindStringSubmatch(r.stderr)
			require.NotNil(t, m)
			assert.Contains(t, r.stderr, fmt.Sprintf("(tail -n +%s %s)", m[1], file))
			// And the rest is input again.
			r = runPostroom(t, "", "run", "--quiet", "--workers", "1", rest, "--", "cat")
			assert.Equal(t, readFile(t, rest), r.stdout)
		})
	}
}

func TestInterruptedTwiceStopsNow(t *testing.T) {
	fifo, released := held(t)
	input := words(10)
	rest := inTemp(t, "rest.txt")
	// The last of three attempts, so that a kill that counted as a failure would be
	// the line's death.
	c := startChild(t, strings.Join(input, "\n"), "run", "--workers", "1", "--window", "4", "--backoff", "0", "--json", "--kill-after", "1h", "--rest", rest, "--",
		"sh", "-c", `[ $POSTROOM_ATTEMPT = 3 ] || exit 1; exec 3>"$1"; trap "" TERM; sleep 1000 & echo begun; wait; wait`, "_", fifo)
	c.out.awaitText(t, "begun")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	c.err.awaitText(t, "again kills them")
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	r := c.finish(t)
	await(t, released, "the end of the group")

	assert.Equal(t, exitInterrupted, r.status)
	f, _ := r.figures(t)
	assert.Zero(t, f.Acked+f.Dead)
	assertNothingLost(t, input, nil, readFile(t, rest), r.stderr)
	assert.Contains(t, strings.Fields(readFile(t, rest)), "line-1")
}

func TestInterruptWhileNothingIsThereToRead(t *testing.T) {
	in, typed := io.Pipe()
	defer typed.Close()
	signals := make(chan os.Signal, 1)
	var stdout safeBuffer
	ended := make(chan result)
	go func() {
		ended <- (&app{stdin: in, stdout: &stdout, signals: signals}).do(t, "run", "--rest", inTemp(t, "rest.txt"), "--", "cat")
	}()
	_, err := typed.Write([]byte("one\n"))
	require.NoError(t, err)
	stdout.awaitText(t, "one\n")
	signals <- os.Interrupt
	r := <-ended
	assert.Equal(t, exitInterrupted, r.status)
	assert.Contains(t, r.stderr, "next input line: 2\n")
}

func TestLinesThatWaitForTheirNextAttemptAreUnfinished(t *testing.T) {
	signals := make(chan os.Signal, 1)
	var stdout safeBuffer
	rest := inTemp(t, "rest.jsonl")
	ended := make(chan result)
	records := `{"id":"keep me","body":"fail","note":"as it was read"}` + "\n" + `{"id":"2","body":"work"}` + "\n"
	go func() {
		a := &app{stdin: strings.NewReader(records), stdout: &stdout, signals: signals}
		ended <- a.do(t, "run", "--workers", "1", "--backoff", "1000h", "--backoff-cap", "1000h", "--from-dead", "-", "--rest", rest, "--",
			"sh", "-c", `[ "$1" = work ] || exit 1; echo done`, "_", "{}")
	}()
	stdout.awaitText(t, "done")
	signals <- os.Interrupt
	r := <-ended
	assert.Equal(t, exitInterrupted, r.status)
	first, _, _ := strings.Cut(records, "\n")
	assert.Equal(t, first+"\n", readFile(t, rest), "letters go on as letters")
	assert.Contains(t, r.stderr, "next input line: none, all were read")
}

func TestUnfinishedLinesAreNamedWithoutARestFile(t *testing.T) {
	signals := make(chan os.Signal, 2)
	begun := make(chan struct{}, 1)
	in := &endTold{strings.NewReader("a\nb\nc\n"), make(chan struct{})}
	ended := make(chan result)
	go func() {
		a := &app{stdin: in, signals: signals, runner: stuckRunner(begun).make}
		ended <- a.do(t, "run", "--workers", "1", "--", "true")
	}()
	<-begun
	<-in.end // or there may be one line so far
	signals <- os.Interrupt
	signals <- os.Interrupt
	r := <-ended
	assert.Equal(t, exitInterrupted, r.status)
	assert.Regexp(t, `unfinished lines: 1.*; --rest FILE would keep them`, r.stderr)
}

// stuckRunner runs until it is stopped.
func stuckRunner(begun chan<- struct{}) fakeRunner {
	return func(_ context.Context, stop <-chan struct{}, _ task) outcome {
		begun <- struct{}{}
		<-stop
		return outcome{kind: stopped, err: errHopeless}
	}
}

// endTold is an input that tells when its end was read.
type endTold struct {
	io.Reader
	end chan struct{}
}

func (r *endTold) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		defer close(r.end)
	}
	return n, err
}

// A signal that comes when all is as good as done changes nothing.
func TestInterruptedRunThatWasDoneAllTheSame(t *testing.T) {
	signals := make(chan os.Signal, 1)
	begun, gate := make(chan struct{}, 1), make(chan struct{})
	in := &endTold{strings.NewReader("a\n"), make(chan struct{})}
	stderr := &safeBuffer{}
	ended := make(chan int)
	go func() {
		a := &app{stdin: in, signals: signals, stdout: io.Discard, stderr: stderr, runner: fakeRunner(func(context.Context, <-chan struct{}, task) outcome {
			begun <- struct{}{}
			<-gate
			return outcome{kind: done}
		}).make}
		ended <- a.run(context.Background(), []string{"run", "--workers", "1", "--", "true"})
	}()
	<-begun
	await(t, in.end, "the end of the input")
	signals <- os.Interrupt
	stderr.awaitText(t, "waiting for 1 running command;")
	close(gate)
	assert.Equal(t, exitDone, <-ended)
}

func TestEndOfTheContextStopsNow(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	begun := make(chan struct{}, 1)
	ended := make(chan int)
	rest := inTemp(t, "rest.txt")
	go func() {
		a := &app{stdin: strings.NewReader("a\n"), stdout: io.Discard, stderr: io.Discard, runner: stuckRunner(begun).make}
		ended <- a.run(ctx, []string{"run", "--rest", rest, "--", "true"})
	}()
	<-begun
	cancel()
	assert.Equal(t, exitInterrupted, <-ended)
	assert.Equal(t, "a\n", readFile(t, rest))
}

func TestClosedStdoutInterrupts(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	input := words(100)
	rest := inTemp(t, "rest.txt")
	c := startChildWith(t, write, strings.Join(input, "\n"), "run", "--workers", "1", "--window", "2", "--rest", rest, "--",
		"sh", "-c", `echo "did $1"`, "_", "{}")
	require.NoError(t, write.Close())
	buf := make([]byte, 1)
	_, err = io.ReadFull(read, buf)
	require.NoError(t, err)
	require.NoError(t, read.Close())
	r := c.finish(t)
	// It may have been quick enough to fill the pipe with all it had to say.
	if r.status != exitDone {
		assert.Equal(t, exitInterrupted, r.status, r.stderr)
		assert.Contains(t, r.stderr, "stdout: ")
		assert.Contains(t, r.stderr, "next input line: ")
	}
}
