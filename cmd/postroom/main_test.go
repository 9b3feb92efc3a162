package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asPostroom makes the test binary be the program: what is tested with real signals
// is then built as the tests are, with -race when they are.
const asPostroom = "POSTROOM_TEST_IS_POSTROOM"

func TestMain(m *testing.M) {
	if os.Getenv(asPostroom) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for an event that is sure to come.
const patience = 30 * time.Second

// result is what a run left behind.
type result struct {
	status         int
	stdout, stderr string
}

// figures returns the JSON of the last line of stdout, and what stands before it.
func (r result) figures(t *testing.T) (tally, string) {
	t.Helper()
	text := strings.TrimSuffix(r.stdout, "\n")
	i := strings.LastIndexByte(text, '\n') + 1
	var f tally
	require.NoError(t, json.Unmarshal([]byte(text[i:]), &f), "last line of stdout: %q", text[i:])
	return f, r.stdout[:i]
}

// runPostroom runs the program in this process.
func runPostroom(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return (&app{stdin: strings.NewReader(stdin)}).do(t, args...)
}

// do runs a prepared app with its output gathered.
func (a *app) do(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr safeBuffer
	if a.stdout == nil {
		a.stdout = &stdout
	}
	a.stderr = &stderr
	status := a.run(context.Background(), args)
	return result{status, stdout.String(), stderr.String()}
}

// safeBuffer is a bytes.Buffer that a run may write while a test reads.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// awaitText waits until the buffer holds a text.
func (b *safeBuffer) awaitText(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(b.String(), text) }, patience, time.Millisecond,
		"%q in %q", text, b)
}

// child is the program in a process of its own.
type child struct {
	*exec.Cmd
	out, err safeBuffer
}

func startChild(t *testing.T, stdin string, args ...string) *child {
	t.Helper()
	return startChildWith(t, nil, stdin, args...)
}

// startChildWith is startChild with stdout going elsewhere, if it is not nil.
func startChildWith(t *testing.T, stdout *os.File, stdin string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &child{Cmd: exec.Command(self, args...)}
	c.Env = append(os.Environ(), asPostroom+"=1")
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &c.out, &c.err
	if stdout != nil {
		c.Stdout = stdout
	}
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() }) // it has ended, or the test has failed
	return c
}

func (c *child) finish(t *testing.T) result {
	t.Helper()
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	await(t, ended, "the program's end")
	return result{c.ProcessState.ExitCode(), c.out.String(), c.err.String()}
}

func await(t *testing.T, event <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		require.FailNow(t, "waited too long for "+what)
	}
}

func inTemp(t *testing.T, name string) string { return filepath.Join(t.TempDir(), name) }

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	name = inTemp(t, name)
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	return name
}

// letters reads a dead file.
func letters(t *testing.T, name string) (all []*letter, bodies []string) {
	t.Helper()
	for text := range strings.Lines(readFile(t, name)) {
		l, body, err := parseLetter([]byte(text))
		require.NoError(t, err, "%s", text)
		all, bodies = append(all, l), append(bodies, string(body))
	}
	return all, bodies
}
