package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadingWaitsOnTheWindow(t *testing.T) {
	const window, lines = 10, 5000
	in, feed := io.Pipe() // without a buffer: what was written was read
	var written atomic.Int64
	go func() {
		for i := range lines {
			// Long, so that the reader's own buffer holds few.
			fmt.Fprintf(feed, "%d %s\n", i, strings.Repeat("x", 32<<10))
			written.Add(1)
		}
		feed.Close()
	}()
	begun, gate := make(chan struct{}, lines), make(chan struct{})
	var open, most atomic.Int64
	a := &app{stdin: in, runner: fakeRunner(func(_ context.Context, _ <-chan struct{}, t task) outcome {
		begun <- struct{}{}
		<-gate
		n := written.Load() - open.Add(1) // read and not yet done
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		return outcome{kind: done}
	}).make}
	ended := make(chan result)
	go func() {
		ended <- a.do(t, "run", "--workers", "2", "--window", fmt.Sprint(window), "--json", "--", "true")
	}()
	<-begun
	<-begun
	close(gate)
	r := <-ended
	require.Equal(t, exitDone, r.status, r.stderr)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: lines, Acked: lines}, f)
	// The window, the two that run, one line in the reader's hand and some in its buffer.
	assert.LessOrEqual(t, most.Load(), int64(window+8))
}

func TestInputLargerThanMemory(t *testing.T) {
	const lineBytes, lines = 16 << 10, 32 << 10 // 512 MiB
	if testing.Short() {
		t.Skip("reads half a gigabyte")
	}
	text := strings.Repeat("x", lineBytes-1) + "\n"
	var runs, mostHeap atomic.Int64
	a := &app{
		stdin: &generator{n: lines, line: func(int) string { return text }},
		runner: fakeRunner(func(_ context.Context, _ <-chan struct{}, t task) outcome {
			if runs.Add(1)%2048 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				mostHeap.Store(max(mostHeap.Load(), int64(m.HeapAlloc)))
			}
			return outcome{kind: done}
		}).make,
	}
	r := a.do(t, "run", "--workers", "4", "--json", "--", "true")
	require.Equal(t, exitDone, r.status, r.stderr)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: lines, Acked: lines}, f)
	t.Logf("most heap seen: %d MiB", mostHeap.Load()>>20)
	assert.Less(t, mostHeap.Load(), int64(160<<20), "16 MiB of lines in the window")
}
