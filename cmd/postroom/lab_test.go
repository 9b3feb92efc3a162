package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// labIn runs the lab as a process, whose worker processes are this test binary too, and
// returns what it left in its temporary directory.
func labIn(t *testing.T, args ...string) (r result, left []string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r = startChild(t, "", append([]string{"lab"}, args...)...).finish(t)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	return r, left
}

func TestLabKillsItsWorkersAndEveryCreditIsAppliedOnce(t *testing.T) {
	jobs, kills := "100", "20"
	if os.Getenv("POSTROOM_LAB_FULL") != "" {
		jobs, kills = "1000", "200"
	}
	r, left := labIn(t, "--json", "--jobs", jobs, "--kills", kills)
	require.Equal(t, exitDone, r.status, "%s%s", r.stdout, r.stderr)
	assert.Empty(t, r.stderr)
	assert.Empty(t, left, "it cleans up")
	text := strings.TrimSuffix(r.stdout, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	want := `{"unsafe":20,"safe":10,"receiver_nodedup":20,"receiver_dedup":10,"kills":25,"lost":0}`
	if kills == "200" {
		want = strings.Replace(want, "25", "205", 1)
	}
	assert.Equal(t, want, last)
	assert.NotContains(t, r.stdout, "✗")
	assert.Contains(t, r.stdout, "every figure as it should be")
}

// The oracle is worth something: workers without keys do credit twice under fire.
func TestLabFindsWhatUnsafeWorkersDo(t *testing.T) {
	dir := t.TempDir()
	files := labFiles{filepath.Join(dir, "bank.db"), filepath.Join(dir, "receiver.db")}
	ctx := context.Background()
	bank, err := openBank(ctx, files.bank)
	require.NoError(t, err)
	for range 2 { // a redelivery
		_, err := carryOut(ctx, bank, bank, labOrder{Do: creditUnsafely, Job: "credit-1", Amount: 10})
		require.NoError(t, err)
	}
	require.NoError(t, bank.close())
	l := &lab{config: &labConfig{json: true}, dir: dir, out: &safeBuffer{}}
	require.NoError(t, l.look(ctx, files.bank, func(b *bankFigures) {
		assert.EqualValues(t, 1, b.twice)
		assert.EqualValues(t, 20, b.total)
		l.fact("credits applied more than once", b.twice, 0)
	}))
	assert.Equal(t, 1, l.wrong, "a figure that is off is counted")
	status, err := l.verdict(time.Second)
	require.NoError(t, err)
	assert.Equal(t, exitDied, status, "and decides about the exit status")
	text := l.out.(*safeBuffer).String()
	assert.Contains(t, text, "✗ should be 0")
	assert.Contains(t, text, "1 figures are off")
	assert.True(t, strings.HasSuffix(text, "}\n"), "the line of JSON is still the last")
}

func TestAnExperimentThatFailsDecidesAboutTheExitStatusAndNotAboutTheOthers(t *testing.T) {
	l := &lab{config: &labConfig{json: true}, out: &safeBuffer{}}
	status, err := l.run(context.Background(),
		func(context.Context) error { return errors.New("no bank") },
		func(context.Context) error { l.report.Safe = 10; return nil })
	require.NoError(t, err)
	assert.Equal(t, exitDied, status)
	text := l.out.(*safeBuffer).String()
	assert.Contains(t, text, "✗ no bank")
	assert.True(t, strings.HasSuffix(text, `{"unsafe":0,"safe":10,"receiver_nodedup":0,"receiver_dedup":0,"kills":0,"lost":0}`+"\n"), text)
}

func TestLabStopsAtASignalAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c := startChild(t, "", "lab", "--jobs", "100000", "--kills", "0")
	c.out.awaitText(t, "under fire")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	r := c.finish(t)
	assert.Equal(t, exitInterrupted, r.status, "%s%s", r.stdout, r.stderr)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestLabRefusesFiguresThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{{"--jobs", "0"}, {"--workers", "0"}, {"--kills", "-1"}} {
		r := runPostroom(t, "", append([]string{"lab"}, args...)...)
		assert.Equal(t, exitUsage, r.status)
		assert.Contains(t, r.stderr, "must be at least")
	}
}

func TestLabWorkerAnswersWhatItDoesNotUnderstand(t *testing.T) {
	dir := t.TempDir()
	args := []string{"lab-worker", "--bank", filepath.Join(dir, "a.db"), "--receiver", filepath.Join(dir, "b.db")}
	r := runPostroom(t, `{"do":"dance"}`+"\n", args...)
	assert.Equal(t, exitDone, r.status, r.stderr)
	var reply labReply
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &reply))
	assert.Equal(t, `unknown order "dance"`, reply.Error)
	r = runPostroom(t, "no JSON\n", args...)
	assert.Equal(t, exitUsage, r.status)
}

// 120 arrivals a second against work for 100: the queue grows by 20 a second until its
// bound refuses, and is never faster for being longer.
func TestArrivalsAboveCapacityFillTheQueueToItsBound(t *testing.T) {
	rows, err := admissionStory()
	require.NoError(t, err)
	full := 0
	for i, r := range rows {
		if i > 0 { // in the first second the first jobs are under way
			assert.InDelta(t, workPerSecond, r.completed, 2, "second %d", r.second)
		}
		assert.LessOrEqual(t, r.depth, admissionBound)
		if r.refused == 0 {
			assert.InDelta(t, 20*r.second, r.depth, 15, "second %d", r.second)
			continue
		}
		if full == 0 {
			full = i
		}
		assert.GreaterOrEqual(t, r.depth, admissionBound-1)
	}
	assert.InDelta(t, 20, full, 1, "400 places at 20 a second")
	last := rows[len(rows)-1]
	assert.InDelta(t, 20, last.refused, 1)
	assert.InDelta(t, 4, last.oldest.Seconds(), 0.1, "400 jobs at 100 a second")
	again, err := admissionStory()
	require.NoError(t, err)
	assert.Equal(t, rows, again)
}
