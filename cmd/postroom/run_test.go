//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinesReachTheCommandWithoutAShell(t *testing.T) {
	input := "a  b\n$HOME `id` \"'\\\n; rm -r .\n-n\n\xff\xfe\n"
	r := runPostroom(t, input, "run", "--workers", "1", "--json", "--", "printf", `%s|x%s.gz|%s\n`, "{}", "{}", "{}{}")
	require.Equal(t, exitDone, r.status, r.stderr)
	f, out := r.figures(t)
	var want strings.Builder
	for l := range strings.Lines(input) {
		l = l[:len(l)-1]
		fmt.Fprintf(&want, "%s|x%s.gz|%s%s\n", l, l, l, l)
	}
	assert.Equal(t, want.String(), out)
	assert.Equal(t, tally{Put: 5, Acked: 5}, f)
}

func TestLinesAreOnStdinWithANewline(t *testing.T) {
	r := runPostroom(t, "one\n\ncr\r\nnul\x00nul\nlast", "run", "--workers", "1", "--", "cat")
	assert.Equal(t, exitDone, r.status, r.stderr)
	assert.Equal(t, "one\n\ncr\r\nnul\x00nul\nlast\n", r.stdout)

	r = runPostroom(t, "one\n\n\nlast", "run", "--workers", "1", "--skip-empty", "--", "cat")
	assert.Equal(t, "one\nlast\n", r.stdout)
}

func TestCommandThatDoesNotReadItsStdinIsNoError(t *testing.T) {
	r := runPostroom(t, strings.Repeat("x", 1<<20-1)+"\n", "run", "--", "true")
	assert.Equal(t, exitDone, r.status, r.stderr)
}

func TestEmptyInputIsAllDone(t *testing.T) {
	r := runPostroom(t, "", "run", "--json", "--", "false")
	assert.Equal(t, exitDone, r.status)
	assert.Equal(t, `{"put":0,"acked":0,"dead":0,"redelivered":0,"stale_acks":0}`+"\n", r.stdout)
}

func TestEqualLinesAreDifferentMessages(t *testing.T) {
	r := runPostroom(t, "same\nsame\nsame\n", "run", "--workers", "3", "--", "sh", "-c", `echo "$POSTROOM_ID $POSTROOM_ATTEMPT"`)
	require.Equal(t, exitDone, r.status, r.stderr)
	lines := strings.Fields(r.stdout)
	require.Len(t, lines, 6)
	var ids []string
	for i := 0; i < 6; i += 2 {
		ids = append(ids, lines[i])
		assert.Equal(t, "1", lines[i+1])
	}
	slices.Sort(ids)
	run, _, _ := strings.Cut(ids[0], "-")
	assert.Len(t, run, 12)
	assert.Equal(t, []string{run + "-1", run + "-2", run + "-3"}, ids)
}

func TestInputFromAFile(t *testing.T) {
	r := runPostroom(t, "not read", "run", "--workers", "1", writeFile(t, "jobs.txt", "a\nb\n"), "--", "cat")
	assert.Equal(t, "a\nb\n", r.stdout)
	r = runPostroom(t, "read\n", "run", "-", "--", "cat")
	assert.Equal(t, "read\n", r.stdout)
}

// ---- what an end means ----

func TestExit65IsDeadAtOnce(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "bad\ngood\n", "run", "--json", "--dead", dead, "--", "sh", "-c", `echo "saw $1" >&2; [ "$1" = good ] || exit 65`, "_", "{}")
	assert.Equal(t, exitDied, r.status)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: 2, Acked: 1, Dead: 1}, f)
	all, bodies := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, "bad", bodies[0])
	assert.Equal(t, "rejected", all[0].Reason)
	assert.Equal(t, 1, all[0].Attempts)
	assert.Equal(t, "exit status 65 (EX_DATAERR)", all[0].Error)
	assert.Equal(t, "saw bad\n", all[0].Stderr)
}

func TestOtherExitsAreTriedAgain(t *testing.T) {
	r := runPostroom(t, "x\n", "run", "--json", "--max-attempts", "4", "--backoff", "1ms", "--",
		"sh", "-c", `echo $POSTROOM_ATTEMPT; [ $POSTROOM_ATTEMPT = 3 ] || exit 7`)
	assert.Equal(t, exitDone, r.status)
	f, out := r.figures(t)
	assert.Equal(t, "1\n2\n3\n", out)
	assert.Equal(t, tally{Put: 1, Acked: 1, Redelivered: 2}, f)
}

func TestBackoffOfZeroWaitsForNothing(t *testing.T) {
	began := time.Now()
	r := runPostroom(t, "x\n", "run", "--max-attempts", "40", "--backoff", "0", "--", "false")
	assert.Equal(t, exitDied, r.status)
	// With the broker's default of a second this would be minutes.
	assert.Less(t, time.Since(began), patience)
}

func TestAttemptsEnd(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "x\n", "run", "--json", "--max-attempts", "3", "--backoff", "0", "--dead", dead, "--",
		"sh", "-c", `echo $POSTROOM_ATTEMPT >&2; exit 7`)
	assert.Equal(t, exitDied, r.status)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: 1, Dead: 1, Redelivered: 2}, f)
	all, _ := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, "max_attempts", all[0].Reason)
	assert.Equal(t, 3, all[0].Attempts)
	assert.Equal(t, "exit status 7", all[0].Error)
	assert.Equal(t, "3\n", all[0].Stderr, "of the last attempt")
}

func TestDeathBySignalWaitsForTheLease(t *testing.T) {
	const lease = 300 * time.Millisecond
	began := time.Now()
	r := runPostroom(t, "x\n", "run", "--json", "--lease", lease.String(), "--backoff", "1h", "--",
		"sh", "-c", `[ $POSTROOM_ATTEMPT = 2 ] || kill -SEGV $$`)
	assert.Equal(t, exitDone, r.status, r.stderr)
	assert.GreaterOrEqual(t, time.Since(began), lease, "the lease was not waited for")
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: 1, Acked: 1, Redelivered: 1}, f)
}

func TestCrashesSpendAttempts(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "x\n", "run", "--json", "--lease", "50ms", "--max-attempts", "2", "--dead", dead, "--",
		"sh", "-c", `echo ouch >&2; kill -KILL $$`)
	assert.Equal(t, exitDied, r.status)
	all, _ := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, letter{ID: all[0].ID, Body: all[0].Body, Reason: "max_attempts", Attempts: 2, Error: "killed by signal 9 (killed)", Stderr: "ouch\n"}, *all[0])
}

// With a place less for each lease that a crash leaves behind, two workers would
// stand still after two crashes.
func TestManyCrashesDoNotStopTheOthers(t *testing.T) {
	signals := make(chan os.Signal)
	var stdout safeBuffer
	ended := make(chan result)
	rest := inTemp(t, "rest.txt")
	go func() {
		a := &app{stdin: strings.NewReader(strings.Repeat("crash\n", 20) + "good\n"), stdout: &stdout, signals: signals}
		ended <- a.do(t, "run", "--workers", "2", "--lease", "1h", "--rest", rest, "--",
			"sh", "-c", `[ "$1" = good ] || kill -KILL $$; echo "did $1"`, "_", "{}")
	}()
	stdout.awaitText(t, "did good")
	signals <- os.Interrupt
	r := <-ended
	assert.Equal(t, exitInterrupted, r.status)
	assert.Equal(t, strings.Repeat("crash\n", 20), readFile(t, rest), "crashed lines are unfinished while their lease runs")
	assert.Contains(t, r.stderr, "next input line: none")
}

// held makes a FIFO, and returns its name and what is closed when nobody holds it
// open for writing any more, after somebody has.
func held(t *testing.T) (name string, released <-chan struct{}) {
	t.Helper()
	name = inTemp(t, "held")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = os.ReadFile(name) // returns at the end of the last writer
	}()
	return name, done
}

func TestTimeoutEndsTheWholeGroup(t *testing.T) {
	fifo, released := held(t)
	dead := inTemp(t, "dead.jsonl")
	// The grandchild ignores SIGTERM and holds the FIFO and our pipes open.
	r := runPostroom(t, fifo+"\n", "run", "--json", "--timeout", "150ms", "--kill-after", "100ms", "--max-attempts", "1", "--dead", dead, "--",
		"sh", "-c", `exec 3>"$1"; (trap "" TERM; sleep 1000) & wait`, "_", "{}")
	await(t, released, "the end of the grandchild")
	assert.Equal(t, exitDied, r.status)
	all, _ := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, "timed out after 150ms", all[0].Error)
	assert.Equal(t, "max_attempts", all[0].Reason)
}

// The command itself goes at the SIGTERM and its output is closed: a child of it that
// stays would go unnoticed.
func TestTimeoutEndsChildrenThatOutliveTheCommand(t *testing.T) {
	fifo, released := held(t)
	r := runPostroom(t, fifo+"\n", "run", "--timeout", "150ms", "--kill-after", "1h", "--max-attempts", "1", "--",
		"sh", "-c", `exec 3>"$1"; (trap "" TERM; exec sleep 1000) </dev/null >/dev/null 2>&1 & wait`, "_", "{}")
	assert.Equal(t, exitDied, r.status)
	await(t, released, "the end of the child")
}

func TestTimeoutIsAFailedAttemptWhateverTheExit(t *testing.T) {
	for _, exit := range []string{"0", "65"} {
		// While sleep runs in the foreground, sh would only see the TERM after it.
		r := runPostroom(t, "x\n", "run", "--json", "--timeout", "150ms", "--backoff", "0", "--max-attempts", "2", "--",
			"sh", "-c", `trap "exit `+exit+`" TERM; sleep 1000 & wait`)
		assert.Equal(t, exitDied, r.status)
		f, _ := r.figures(t)
		assert.Equal(t, tally{Put: 1, Dead: 1, Redelivered: 1}, f, "exit %s after SIGTERM", exit)
	}
}

func TestHeartbeatOutlivesAShortLease(t *testing.T) {
	r := runPostroom(t, "x\n", "run", "--json", "--lease", "400ms", "--", "sh", "-c", "echo begun; sleep 1")
	assert.Equal(t, exitDone, r.status, r.stderr)
	f, out := r.figures(t)
	assert.Equal(t, "begun\n", out, "one run")
	assert.Equal(t, tally{Put: 1, Acked: 1}, f)
}

// A command that is being ended is alive too: its failure must not become a crash
// because the grace is longer than a lease.
func TestHeartbeatGoesOnWhileACommandIsEnded(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "x\n", "run", "--json", "--lease", "400ms", "--timeout", "50ms", "--kill-after", "1500ms", "--max-attempts", "1", "--dead", dead, "--",
		"sh", "-c", `trap "" TERM; sleep 1000 & wait; wait`)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: 1, Dead: 1}, f)
	all, _ := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, "timed out after 50ms", all[0].Error)
}

func TestOutputLeftOpenByAnotherProcessIsNotWaitedForForEver(t *testing.T) {
	fifo, released := held(t)
	began := time.Now()
	r := runPostroom(t, fifo+"\n", "run", "--kill-after", "100ms", "--", "sh", "-c", `sleep 3 3>"$1" & echo done`, "_", "{}")
	assert.Equal(t, exitDone, r.status, r.stderr)
	assert.Equal(t, "done\n", r.stdout)
	assert.Less(t, time.Since(began), 3*time.Second)
	await(t, released, "the end of what was left running")
}

func TestLineWithANULCannotBeAnArgument(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "a\x00b\n", "run", "--dead", dead, "--", "echo", "{}")
	assert.Equal(t, exitDied, r.status)
	assert.Empty(t, r.stdout)
	all, bodies := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, "a\x00b", bodies[0])
	assert.Equal(t, 1, all[0].Attempts)
	assert.Contains(t, all[0].Error, "NUL")
}

func TestLineTooLongForAnArgumentIsPermanent(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, strings.Repeat("x", 1<<20)+"\n", "run", "--dead", dead, "--", "echo", strings.Repeat("{}", 4))
	assert.Equal(t, exitDied, r.status)
	all, _ := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, 1, all[0].Attempts)
	assert.Contains(t, all[0].Error, "too long for an argument")
}

// ---- output ----

func TestWholeLinesOfOutput(t *testing.T) {
	const lines, each = 40, 25
	var input strings.Builder
	for i := range lines {
		fmt.Fprintln(&input, i)
	}
	r := runPostroom(t, input.String(), "run", "--workers", "4", "--", "sh", "-c",
		`i=0; while [ $i -lt 25 ]; do printf "%s" "$1"; printf -- "-%s\n" "$i"; i=$((i+1)); done`, "_", "{}")
	require.Equal(t, exitDone, r.status, r.stderr)
	got := strings.Split(strings.TrimSpace(r.stdout), "\n")
	var want []string
	for i := range lines {
		for j := range each {
			want = append(want, fmt.Sprintf("%d-%d", i, j))
		}
	}
	assert.ElementsMatch(t, want, got)
}

func TestFiguresStandAloneOnTheLastLine(t *testing.T) {
	r := runPostroom(t, "a\n", "run", "--json", "--", "printf", "no newline")
	assert.Equal(t, "no newline\n"+`{"put":1,"acked":1,"dead":0,"redelivered":0,"stale_acks":0}`+"\n", r.stdout)
	r = runPostroom(t, "a\nb\n", "run", "--workers", "1", "--", "printf", "%s", "{}")
	assert.Equal(t, "ab", r.stdout, "bytes pass unchanged")
}

func TestQuietSaysNothing(t *testing.T) {
	r := runPostroom(t, "a\n", "run", "--quiet", "--", "true")
	assert.Empty(t, r.stderr)
	r = runPostroom(t, "a\n", "run", "--", "true")
	assert.Regexp(t, `^postroom: 1 put, 1 acked, 0 dead, 0 redelivered, 0 stale acks in .*s\n$`, r.stderr)
}

func TestDeathsAreSummarisedWithoutADeadFile(t *testing.T) {
	r := runPostroom(t, strings.Repeat("secret\n", 12), "run", "--workers", "1", "--", "sh", "-c", "exit 65")
	assert.Equal(t, exitDied, r.status)
	assert.Contains(t, r.stderr, "12 lines died:\npostroom:   line 1: rejected, attempts 1: exit status 65 (EX_DATAERR)\n")
	assert.Contains(t, r.stderr, "and 2 more\n")
	assert.NotContains(t, r.stderr, "secret")
	r = runPostroom(t, "a\n", "run", "--", "sh", "-c", "exit 65")
	assert.Contains(t, r.stderr, "postroom: 1 line died:\n")
}

func TestShellThatReadsTheLineIsWarnedOf(t *testing.T) {
	const warning = "lines run as programs"
	r := runPostroom(t, "a\n", "run", "--", "sh", "-c", "echo {}")
	assert.Contains(t, r.stderr, warning)
	for _, argv := range [][]string{{"sh", "-c", `echo "$1"`, "_", "{}"}, {"echo", "-c", "{}"}, {"sh", "{}", "-c"}} {
		c := &runConfig{argv: argv}
		assert.False(t, c.shellReadsLine(), "%q", argv)
	}
	for _, argv := range [][]string{{"/bin/bash", "--norc", "-ec", "{}"}, {"dash", "-e", "-c", "gzip {}"}} {
		c := &runConfig{argv: argv}
		assert.True(t, c.shellReadsLine(), "%q", argv)
	}
}

// ---- limits ----

func TestOverlongLineIsADeadLetter(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "fits\n12345678901\nfits too\n", "run", "--json", "--workers", "1", "--max-line", "10", "--dead", dead, "--", "cat")
	assert.Equal(t, exitDied, r.status)
	f, out := r.figures(t)
	assert.Equal(t, tally{Put: 3, Acked: 2, Dead: 1}, f)
	assert.Equal(t, "fits\nfits too\n", out)
	const why = "line 2 has 11 bytes, --max-line is 10"
	assert.Contains(t, r.stderr, why)
	all, bodies := letters(t, dead)
	require.Len(t, all, 1)
	assert.Equal(t, letter{ID: all[0].ID, Body: all[0].Body, Truncated: true, Reason: "too_long", Error: why}, *all[0])
	assert.Equal(t, "1234567890", bodies[0])

	again := inTemp(t, "again.jsonl")
	r = runPostroom(t, "", "run", "--json", "--from-dead", dead, "--dead", again, "--", "cat")
	assert.Equal(t, exitDied, r.status)
	f, out = r.figures(t)
	assert.Equal(t, tally{Put: 1, Dead: 1}, f)
	assert.Empty(t, out, "part of a line was run")
	assert.Equal(t, readFile(t, dead), readFile(t, again))
}

func TestHugeLineIsNotHeldInMemory(t *testing.T) {
	r := runPostroom(t, strings.Repeat("x", 8<<20)+"\nnext", "run", "--json", "--max-line", "1KiB", "--", "cat")
	assert.Equal(t, exitDied, r.status)
	_, out := r.figures(t)
	assert.Equal(t, "next\n", out)
}

// ---- usage ----

func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	full := writeFile(t, "full.jsonl", "{}\n")
	noExec := writeFile(t, "script", "#!/bin/sh\n")
	empty := writeFile(t, "empty", "")
	input := writeFile(t, "jobs.txt", "a\n")
	for _, c := range []struct {
		name string
		args string
		want string
	}{
		{"no dash", "run jobs.txt true", "no command: -- is missing"},
		{"nothing after dash", "run jobs.txt --", "no command after --"},
		{"two inputs", "run a b -- true", "2 input files"},
		{"file and from-dead", "run --from-dead d a -- true", "both a and --from-dead"},
		{"unknown flag", "run --wrokers 3 -- true", "unknown flag"},
		{"flag without number", "run --workers many -- true", "invalid argument"},
		{"no workers", "run --workers 0 -- true", "--workers 0"},
		{"too many workers", "run --workers 10001 --window 20000 -- true", "--workers 10001"},
		{"window", "run --workers 4 --window 3 -- true", "--window 3"},
		{"no attempts", "run --max-attempts 0 -- true", "--max-attempts 0"},
		{"negative attempts", "run --max-attempts -1 -- true", "--max-attempts -1"},
		{"lease", "run --lease 9ms -- true", "--lease 9ms"},
		{"negative backoff", "run --backoff -1s -- true", "--backoff -1s"},
		{"negative cap", "run --backoff-cap -1s -- true", "--backoff-cap -1s"},
		{"negative timeout", "run --timeout -1s -- true", "--timeout -1s"},
		{"negative kill-after", "run --kill-after -1s -- true", "--kill-after -1s"},
		{"no line at all", "run --max-line 0 -- true", "--max-line 0"},
		{"max-line", "run --max-line 2GiB -- true", "--max-line 2GiB"},
		{"max-line unit", "run --max-line 1mb -- true", "such as 65536"},
		{"command not found", "run -- no-such-command-anywhere {}", `command "no-such-command-anywhere": executable file not found`},
		{"command not executable", "run -- " + noExec, "permission denied"},
		{"line as command", "run -- {}", "{} stands in the command's own name"},
		{"no such input", "run " + dir + "/none -- true", "no such file"},
		{"input is a directory", "run " + dir + " -- true", "is a directory"},
		{"no such dead letters", "run --from-dead " + dir + "/none -- true", "no such file"},
		{"dead file not empty", "run --dead " + full + " -- true", "is not empty"},
		{"dead file nowhere", "run --dead " + dir + "/none/dead -- true", "no such file"},
		{"dead file is a directory", "run --dead " + dir + " -- true", "is a directory"},
		{"rest file not empty", "run --rest " + full + " -- true", "is not empty"},
		{"dead file is the input", "run --dead " + input + " " + input + " -- true", "is the input"},
		{"rest file is the input", "run --rest " + input + " " + input + " -- true", "is the input"},
		{"dead file is what it reads", "run --from-dead " + full + " --dead " + full + " -- true", "is the input"},
		{"dead file is the rest file", "run --dead " + empty + " --rest " + empty + " -- true", "is --rest"},
		{"rest file made for nothing", "run --rest " + dir + "/rest --dead " + full + " -- true", "is not empty"},
		{"unknown command", "walk", "unknown command"},
		{"demo takes nothing", "demo please", "unknown command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runPostroom(t, "would be run\n", strings.Fields(c.args)...)
			assert.Equal(t, exitUsage, r.status)
			assert.Empty(t, r.stdout)
			assert.Contains(t, r.stderr, c.want)
			assert.Contains(t, r.stderr, "hint: ")
		})
	}
	assert.Equal(t, "{}\n", readFile(t, full))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestStdinThatIsTheDeadFile(t *testing.T) {
	name := writeFile(t, "dead.jsonl", "")
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	r := (&app{stdin: file}).do(t, "run", "--from-dead", "-", "--dead", name, "--", "true")
	assert.Equal(t, exitUsage, r.status)
	assert.Contains(t, r.stderr, "is the input")
}

func TestHelp(t *testing.T) {
	r := runPostroom(t, "", "run", "--help")
	assert.Equal(t, exitDone, r.status)
	for _, text := range []string{"Do not write sh -c 'gzip {}'", "POSTROOM_ID", "--kill-after", "Exit status"} {
		assert.Contains(t, r.stdout, text)
	}
	assert.Equal(t, exitDone, runPostroom(t, "").status)
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "10K": 10 << 10, "3KiB": 3 << 10, "1MiB": 1 << 20, "2 GiB": 2 << 30, "1G": 1 << 30} {
		var b byteSize
		require.NoError(t, b.Set(text), text)
		assert.Equal(t, want, int64(b), text)
		var again byteSize
		require.NoError(t, again.Set(b.String()))
		assert.Equal(t, b, again, "%s prints as %s", text, &b)
	}
	for _, text := range []string{"", "-1", "x", "1.5M", "KiB", strconv.Itoa(1<<62) + "K"} {
		var b byteSize
		assert.Error(t, b.Set(text), text)
	}
}
