package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func boardLine(n int) *line {
	return &line{number: n, id: fmt.Sprintf("id-%d", n), body: []byte("body")}
}

// blocked starts an add and returns its answer, once it is sure to wait.
func blocked(t *testing.T, b *board, l *line) <-chan bool {
	t.Helper()
	b.mu.Lock()
	require.False(t, b.hasRoom(l))
	b.mu.Unlock()
	answer := make(chan bool, 1)
	go func() { answer <- b.add(l) }()
	return answer
}

func answered(t *testing.T, answer <-chan bool) bool {
	t.Helper()
	select {
	case ok := <-answer:
		return ok
	case <-time.After(patience):
		require.FailNow(t, "add did not return")
		return false
	}
}

func TestBoardIsFullUntilALineIsAcked(t *testing.T) {
	b := newBoard(2, 1<<20)
	one, two := boardLine(1), boardLine(2)
	require.True(t, b.add(one))
	require.True(t, b.add(two))
	three := blocked(t, b, boardLine(3))
	b.acked(two)
	assert.True(t, answered(t, three))
	f, open := b.look()
	assert.Equal(t, figures{read: 3, acked: 1, bytes: 5}, f)
	assert.Equal(t, 2, open)
}

// A death leaves the broker's window at once. Were its place on the board free as
// well, letters would gather in memory behind a slow disk.
func TestBoardKeepsTheDeadUntilTheyAreWritten(t *testing.T) {
	b := newBoard(1, 1<<20)
	require.True(t, b.add(boardLine(1)))
	b.start("id-1", 7, 1)
	b.end(7, outcome{kind: permanent, err: errHopeless, stderr: []byte("why")})
	b.died("id-1", "rejected", 1)
	b.died("id-1", "rejected", 1) // twice is once
	two := blocked(t, b, boardLine(2))

	l := b.nextDeath()
	assert.Equal(t, letter{ID: "id-1", Body: l.death.Body, Reason: "rejected", Attempts: 1, Error: "hopeless", Stderr: "why"}, *l.death)
	assert.Same(t, l, b.nextDeath(), "taken off by buried only")
	b.buried()
	assert.True(t, answered(t, two))
	b.close()
	assert.Nil(t, b.nextDeath())
}

func TestBoardBoundsBytesButTakesOneLineOfAnySize(t *testing.T) {
	b := newBoard(10, 20)
	huge := boardLine(1)
	huge.body = make([]byte, 1000)
	require.True(t, b.add(huge))
	small := blocked(t, b, boardLine(2))
	b.acked(huge)
	assert.True(t, answered(t, small))
	three := boardLine(3) // 8 of 20 bytes are taken, 8 more fit
	require.True(t, b.add(three))
	blockedFourth := blocked(t, b, boardLine(4))
	b.stop()
	assert.False(t, answered(t, blockedFourth), "stopped: not taken on")
	assert.Len(t, b.open(), 2)
}

func TestBoardForgetsWhatWasNotPut(t *testing.T) {
	b := newBoard(1, 1<<20)
	l := boardLine(1)
	require.True(t, b.add(l))
	b.forget(l)
	f, open := b.look()
	assert.Equal(t, figures{}, f)
	assert.Zero(t, open)
	assert.True(t, b.waitEmpty())
}

func TestBoardCountsCrashedLeasesUntilTheyRunOut(t *testing.T) {
	b := newBoard(10, 1<<20)
	told := 0
	b.onCrashes = func() { told++ }
	require.True(t, b.add(boardLine(1)))
	b.start("id-1", 1, 1)
	b.end(1, outcome{kind: crashed, err: &crash{9}})
	assert.Equal(t, 1, b.crashedLeases())
	b.ranOut(1)
	assert.Equal(t, 0, b.crashedLeases())
	assert.Equal(t, 2, told)
	b.ranOut(1)
	b.ranOut(99)
	assert.Equal(t, 2, told)

	b.died("id-1", "max_attempts", 1)
	assert.Equal(t, "killed by signal 9 (killed)", b.nextDeath().death.Error)
}

// A machine that slept: the lease is over while the command runs on.
func TestBoardTakesNothingFromAnAttemptWhoseLeaseIsOver(t *testing.T) {
	b := newBoard(10, 1<<20)
	require.True(t, b.add(boardLine(1)))
	b.start("id-1", 1, 1)
	b.ranOut(1)
	b.start("id-1", 2, 2)
	b.end(1, outcome{kind: failed, err: errHopeless})
	f, _ := b.look()
	assert.Equal(t, figures{read: 1, running: 1, again: 1}, f)
	b.died("id-1", "max_attempts", 2)
	assert.Equal(t, "the lease ran out before the command ended", b.nextDeath().death.Error)
}

func TestOpenLinesComeInInputOrder(t *testing.T) {
	b := newBoard(10, 1<<20)
	for _, n := range []int{3, 1, 2, 9, 5, 7} {
		require.True(t, b.add(boardLine(n)))
	}
	assert.Equal(t, "1-3, 5, 7, 9", numbers(b.open()))
}

func TestNumbersAreCutShort(t *testing.T) {
	var lines []*line
	for n := 1; n < 50; n += 2 {
		lines = append(lines, boardLine(n))
	}
	assert.Equal(t, "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, and 15 more", numbers(lines))
	assert.Empty(t, numbers(nil))
}

// ---- what is told ----

func TestPlainProgressSaysOnlyWhatHasChanged(t *testing.T) {
	var out strings.Builder
	b := newBoard(10, 1<<20)
	p := newProgress(&console{stderr: &out}, b, 0)
	assert.Equal(t, plainEvery, p.every)
	now := p.began
	p.now = func() time.Time { return now }
	p.show()
	assert.Empty(t, out.String())
	l := boardLine(1)
	require.True(t, b.add(l))
	require.True(t, b.add(boardLine(2)))
	b.start("id-1", 1, 1)
	now = now.Add(5 * time.Second)
	p.show()
	p.show()
	b.end(1, outcome{kind: done})
	b.acked(l)
	now = now.Add(5 * time.Second)
	p.show()
	assert.Equal(t, "postroom: 5s: 0 acked 0 dead 1 running 1 waiting\npostroom: 10s: 1 acked 0 dead 0 running 1 waiting\n", out.String())
}

func TestBarIsTakenAwayForEveryOtherLine(t *testing.T) {
	var out strings.Builder
	c := &console{stdout: &out, stderr: &out}
	b := newBoard(10, 1<<20)
	p := newProgress(c, b, 100)
	p.bar = newBar(&out, 100)
	c.clear = p.wipe
	p.show()
	assert.Contains(t, out.String(), "0 acked 0 dead 0 running 0 waiting")
	drawn := out.Len()
	c.writeOut([]byte("hello\n"))
	assert.Regexp(t, "^(\x1b\\[2K|\r).*hello\n$", out.String()[drawn:])
	drawn = out.Len()
	c.writeOut([]byte("again\n"))
	assert.Equal(t, "again\n", out.String()[drawn:], "there was no bar to take away")
}

func TestLineWriter(t *testing.T) {
	var got []string
	w := &lineWriter{to: func(p []byte) {
		if len(p) > 0 {
			got = append(got, string(p))
		}
	}, tailMax: 8}
	for _, s := range []string{"a", "b\nc", "\n\nd\ne", ""} {
		n, err := w.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
	}
	assert.Equal(t, []string{"ab\n", "c\n\nd\n"}, got)
	w.Flush()
	assert.Equal(t, []string{"ab\n", "c\n\nd\n", "e"}, got)
	assert.Equal(t, "b\nc\n\nd\ne", string(w.Tail()))
	long := strings.Repeat("x", lineMax+1)
	_, _ = w.Write([]byte(long))
	assert.Equal(t, long, got[3], "too long to be held")
	assert.Equal(t, "xxxxxxxx", string(w.Tail()))
}

func TestTailTextBeginsAtARune(t *testing.T) {
	cutInARune := append([]byte("é")[1:], "x"+strings.Repeat("é", stderrTail/2-1)...)
	require.Len(t, cutInARune, stderrTail)
	assert.Equal(t, string(cutInARune[1:]), tailText(cutInARune))
	assert.Equal(t, "\uFFFDx", tailText([]byte("\xffx")))
	assert.Empty(t, tailText(nil))
}

func TestCutKeepsRunesWhole(t *testing.T) {
	assert.Equal(t, "short", cut("short"))
	assert.Equal(t, strings.Repeat("é", errorMax/2), cut(strings.Repeat("é", errorMax)))
	assert.Equal(t, "x"+strings.Repeat("é", errorMax/2-1), cut("x"+strings.Repeat("é", errorMax)))
}
