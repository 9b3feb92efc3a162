package benchmark

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRunner is a run of one round with a report.
func newRunner(rounds int) *runner {
	return &runner{
		config: Config{Rounds: rounds, Messages: MessagesMin}.withDefaults(),
		report: &Report{Began: time.Now(), Rounds: rounds, Messages: MessagesMin},
	}
}

func TestAPartThatFailsLeavesTheOthersAlone(t *testing.T) {
	r := newRunner(3)
	runs := 0
	fails := errors.New("a message is missing")
	r.group(context.Background(), group{name: "g", cases: []benchCase{
		{name: "fails", executor: goroutines, run: func(context.Context) (sample, error) { return sample{}, fails }},
		{name: "panics", executor: goroutines, run: func(context.Context) (sample, error) { panic("no such map") }},
		{name: "works", executor: goroutines, run: func(context.Context) (sample, error) { runs++; return sample{value: float64(runs)}, nil }},
	}})
	assert.Equal(t, []string{"g/fails/goroutines", "g/panics/goroutines"}, r.report.Failed)
	assert.Equal(t, Range{Median: 2, Min: 1, Max: 3}, r.report.figure("g/works/goroutines").Value)
	assert.Equal(t, "a message is missing", r.report.figure("g/fails/goroutines").Error)
	assert.Equal(t, "panic: no such map", r.report.figure("g/panics/goroutines").Error)

	var table bytes.Buffer
	require.NoError(t, r.report.WriteTable(&table))
	assert.Contains(t, table.String(), "✗ fails, goroutines: a message is missing")
	assert.Contains(t, table.String(), "failed: g/fails/goroutines, g/panics/goroutines")
}

// A quick run that has no time left still has what is watched by name.
func TestWhatIsWatchedHasItsFirstRoundInAnyCase(t *testing.T) {
	r := newRunner(3)
	r.config.Quick = true
	r.report.Began = time.Now().Add(-time.Minute)
	runs := 0
	one := []benchCase{{name: "c", executor: goroutines, run: func(context.Context) (sample, error) { runs++; return sample{}, nil }}}
	r.group(context.Background(), group{name: "watched", watched: true, again: time.Second, cases: one})
	assert.Equal(t, 1, runs)
	assert.Empty(t, r.report.Skipped)
	r.group(context.Background(), group{name: "other", again: quickBudget, cases: one})
	assert.Equal(t, 1, runs)
	assert.Equal(t, []string{"other"}, r.report.Skipped)
}

// A run that was not asked for everything has null where it has no figure, and not 0.
func TestEveryWatchedFigureHasItsName(t *testing.T) {
	var line bytes.Buffer
	require.NoError(t, (&Report{}).WriteJSON(&line))
	var figures map[string]any
	require.NoError(t, json.Unmarshal(line.Bytes(), &figures))
	for _, name := range strings.Fields(`floor_ns lifecycle_ns lifecycle_ratio lanes_ratio batch64_ratio put_ratio put_floor_ns
		allocs_per_msg depth_ratio bytes_per_ready bytes_per_lease bytes_per_idle_queue`) {
		value, ok := figures[name]
		assert.True(t, ok, name)
		assert.Nil(t, value, name)
	}
}

// The keys that are picked out by name are those of cases that exist, also in a quick
// run, and every case has a key of its own.
func TestWatchedFiguresAreMeasured(t *testing.T) {
	for _, quick := range []bool{false, true} {
		keys := map[string]bool{}
		for _, g := range groups(size{quick, 100_000}, nil) {
			for _, c := range g.cases {
				key := g.name + "/" + c.name + "/" + c.executor
				assert.False(t, keys[key], "%s is there twice", key)
				keys[key] = true
			}
		}
		const one = lifecycleGroup + "/" + oneByOne + "/"
		for _, key := range []string{one + goroutines, one + lanes, batch64, "put/confirmed/" + goroutines, depthZero, depthMillion, readyCaller, idleUsed} {
			assert.True(t, keys[key], "%s, quick %t", key, quick)
		}
	}
}

// Each kind of case runs once, small, on both executors, and checks itself.
func TestEveryCaseAddsUp(t *testing.T) {
	ctx := context.Background()
	const n = 6_400
	for _, executor := range executors {
		for name, run := range map[string]func(context.Context) (sample, error){
			"one by one":      flow{executor: executor, messages: n}.run,
			"prefetch 1":      flow{executor: executor, messages: n / 10, prefetch: 1}.run,
			"many queues":     flow{executor: executor, messages: n, queues: 100}.run,
			"bursts":          flow{executor: executor, messages: n, queues: 10, burst: 64}.run,
			"batches":         flow{executor: executor, messages: n, batch: 64, madeIDs: true}.run,
			"SettleBatch":     flow{executor: executor, messages: n, batch: 256, settle: true}.run,
			"standing":        flow{executor: executor, messages: n, madeIDs: true, standing: n}.run,
			"confirmed":       confirmed{executor, n}.run,
			"drain":           drain{executor, n}.run,
			"expiry":          expiry{executor, n}.run,
			"touch":           held{executor: executor, leases: n, calls: n}.run,
			"touch in batch":  held{executor: executor, leases: n, calls: n, batch: 64}.run,
			"nack":            held{executor: executor, leases: 1000, calls: n, nack: true}.run,
			"delayed":         delayed{executor, n}.run,
			"topics":          topics{executor, 100, n}.run,
			"ready, caller":   readyMemory{executor, n, false}.run,
			"ready, broker":   readyMemory{executor, n, true}.run,
			"open loop":       openLoop{executor, 2_000, 200 * time.Millisecond}.run,
			"idle queues":     idleQueues{executor: executor, queues: 10, used: 10}.run,
			"floor, 256 out":  func(context.Context) (sample, error) { v, err := hops.measure(n); return sample{value: v}, err },
			"floor, 1 out":    func(context.Context) (sample, error) { v, err := hops1.measure(n); return sample{value: v}, err },
			"floor, question": func(context.Context) (sample, error) { v, err := roundTrip.measure(n); return sample{value: v}, err },
		} {
			t.Run(executor+"/"+name, func(t *testing.T) {
				s, err := run(ctx)
				if raceEnabled && err != nil && strings.Contains(err.Error(), "machine") {
					t.Skip(err) // too slow for its own bound
				}
				require.NoError(t, err)
				assert.Positive(t, s.value)
			})
		}
	}
}

func TestQuantitiesAreReadable(t *testing.T) {
	for _, row := range []struct {
		value float64
		unit  string
		want  string
	}{
		{412.4, "ns", "412 ns"}, {9_999, "ns", "9,999 ns"}, {12_345, "ns", "12.3 µs"}, {12_345_678, "ns", "12.3 ms"},
		{0.5, "ns", "0.50 ns"}, {4096, "B", "4,096 B"}, {3, "", "3"}, {1_000_000, "", "1,000,000"},
	} {
		assert.Equal(t, row.want, quantity(row.value, row.unit))
	}
	assert.Equal(t, Range{Median: 2.5, Min: 1, Max: 4}, rangeOf([]float64{4, 1, 3, 2}))
	assert.Equal(t, Range{Median: 2, Min: 0.5, Max: 3}, divide([]float64{2, 1, 9}, []float64{1, 2, 3}))
}
