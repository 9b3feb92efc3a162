package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/messages"
)

// The planted bugs of these tests: each is a ledger with one method that does wrong.
type (
	lateAckTaken    struct{ actors.Ledger }
	nackIsRelease   struct{ actors.Ledger }
	rejectIsNack    struct{ actors.Ledger }
	sleepsTooLong   struct{ actors.Ledger }
	touchAfterEnd   struct{ actors.Ledger }
	forgetsHolder   struct{ actors.Ledger }
	crashIsForgiven struct{ actors.Ledger }
	purgeMiscounts  struct{ actors.Ledger }
	neverPauses     struct{ actors.Ledger }
	releaseIsNack   struct{ actors.Ledger }
	resumeForgotten struct{ actors.Ledger }
	losesEarlierAck struct {
		actors.Ledger
		latest *uint64
	}
)

func (m lateAckTaken) Ack(now time.Time, tag uint64) error {
	err := m.Ledger.Ack(now, tag)
	if errors.Is(err, messages.ErrStale) {
		return nil
	}
	return err
}

func (m nackIsRelease) Nack(now time.Time, tag uint64, _ string) error {
	return m.Release(now, tag)
}

func (m rejectIsNack) Reject(now time.Time, tag uint64, text string) error {
	return m.Nack(now, tag, text)
}

func (m sleepsTooLong) NextDeadline() (time.Time, bool) {
	at, ok := m.Ledger.NextDeadline()
	return at.Add(time.Second), ok
}

func (m touchAfterEnd) Touch(now time.Time, tag uint64) (time.Time, error) {
	at, err := m.Ledger.Touch(now, tag)
	if errors.Is(err, messages.ErrStale) {
		return now.Add(time.Second), nil
	}
	return at, err
}

func (m forgetsHolder) Detach(now time.Time, tag string) bool { return true }

func (m crashIsForgiven) Crashed(now time.Time, tag uint64, text string) {
	_ = m.Release(now, tag)
}

func (m purgeMiscounts) Purge(now time.Time) int { return m.Ledger.Purge(now) + 1 }

func (m neverPauses) Pause(now time.Time) {}

func (m releaseIsNack) Release(now time.Time, tag uint64) error { return m.Nack(now, tag, "") }

func (m resumeForgotten) Resume(now time.Time) {}

// Ack loses the ack of a lease when that of a later one came before.
func (m losesEarlierAck) Ack(now time.Time, tag uint64) error {
	if tag < *m.latest {
		return nil
	}
	*m.latest = tag
	return m.Ledger.Ack(now, tag)
}

var planted = []struct {
	name   string
	mutate func(actors.Ledger) actors.Ledger
}{
	{"late ack taken", func(l actors.Ledger) actors.Ledger { return lateAckTaken{l} }},
	{"nack is a release", func(l actors.Ledger) actors.Ledger { return nackIsRelease{l} }},
	{"reject is a nack", func(l actors.Ledger) actors.Ledger { return rejectIsNack{l} }},
	{"sleeps too long", func(l actors.Ledger) actors.Ledger { return sleepsTooLong{l} }},
	{"touch after the end", func(l actors.Ledger) actors.Ledger { return touchAfterEnd{l} }},
	{"forgets to detach", func(l actors.Ledger) actors.Ledger { return forgetsHolder{l} }},
	{"crash is forgiven", func(l actors.Ledger) actors.Ledger { return crashIsForgiven{l} }},
	{"purge miscounts", func(l actors.Ledger) actors.Ledger { return purgeMiscounts{l} }},
	{"never pauses", func(l actors.Ledger) actors.Ledger { return neverPauses{l} }},
	{"release is a nack", func(l actors.Ledger) actors.Ledger { return releaseIsNack{l} }},
	{"resume forgotten", func(l actors.Ledger) actors.Ledger { return resumeForgotten{l} }},
	{"loses an earlier ack", func(l actors.Ledger) actors.Ledger { return losesEarlierAck{l, new(uint64)} }},
}

// plantedSeeds is how many seeds a planted bug has to show itself in.
const plantedSeeds = 2000

// failing is the first run in which a spec fails.
func failing(t testing.TB, s Spec) Result {
	t.Helper()
	s.NoEvents = true
	for seed := range uint64(plantedSeeds) {
		if r := s.Run(seed); r.Failed() {
			return r
		}
	}
	t.Fatalf("no seed below %d fails", plantedSeeds)
	return Result{}
}

func TestPlantedBugsShrinkToAFewElements(t *testing.T) {
	var sizes []int
	var times []time.Duration
	for _, bug := range planted {
		t.Run(bug.name, func(t *testing.T) {
			s := Standard()
			s.Mutate = bug.mutate
			r := failing(t, s)
			began := cpu()
			k, err := s.Shrink(r.Plan, Shrink{})
			require.NoError(t, err, "seed %d", r.Plan.Seed)
			spent := cpu() - began
			t.Logf("seed %d, %v: %v (processor %v)\n%s", r.Plan.Seed, k.Signature, k, spent.Round(time.Millisecond), k.Scenario())
			require.Equal(t, r.Signature(), k.Signature)
			require.LessOrEqual(t, k.After.Total(), k.Before.Total())

			// What was found is a test that fails by itself.
			again, err := ParseScenario(FormatScenario(k.Scenario()))
			require.NoError(t, err)
			replayed, err := again.Run(s)
			require.NoError(t, err)
			require.Equal(t, k.Signature, replayed.Signature())
			require.Equal(t, again.Want, ShortTrace(&replayed))
			if *update {
				keepShrunk(t, bug.name, r.Plan.Seed, k)
			}
			sizes, times = append(sizes, k.After.Total()), append(times, spent)
		})
	}
	slices.Sort(sizes)
	slices.Sort(times)
	t.Logf("elements %v, processor time %v", sizes, times)
	assert.LessOrEqual(t, sizes[len(sizes)/2], 5, "median elements")
	assert.LessOrEqual(t, times[len(times)/2], 5*time.Second, "median time")
}

// keepShrunk makes a test of a plan that has shown a planted bug: what happens in it
// without the bug.
func keepShrunk(t *testing.T, bug string, seed uint64, k *Shrunk) {
	t.Helper()
	s := k.Scenario()
	healthy, err := s.Run(Standard())
	require.NoError(t, err)
	s.Want = ShortTrace(&healthy)
	text := fmt.Sprintf("# Shrunk from seed %d with a ledger that does wrong (%s), from %d elements to %d:\n# %v. This is what happens with the one that does not.\n%s",
		seed, bug, k.Before.Total(), k.After.Total(), k.Signature, FormatScenario(s))
	name := "testdata/shrunk_" + strings.ReplaceAll(bug, " ", "_") + ".txt"
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func TestWhatPassesIsNotShrunk(t *testing.T) {
	s := small(Catalogue{})
	r := s.Run(1)
	_, err := s.Shrink(r.Plan, Shrink{})
	require.ErrorIs(t, err, ErrPasses)
	r.Plan.Format = 7
	_, err = s.Shrink(r.Plan, Shrink{})
	require.ErrorIs(t, err, ErrPlan)
}

func TestAShrinkEndsWithItsBudget(t *testing.T) {
	s := Standard()
	s.Mutate = planted[0].mutate
	r := failing(t, s)
	k, err := s.Shrink(r.Plan, Shrink{Budget: 1})
	require.NoError(t, err)
	require.True(t, k.OutOfTime)
	require.Equal(t, k.Before, k.After)
	require.Equal(t, 2, k.Replays)
}

// spinning is a world whose handler gives everything back at once, for ever (L5).
func spinning(build func(w *World)) Spec {
	return Spec{Name: "spinning", livelock: 30_000, Build: func(w *World) {
		build(w)
		q := w.Queue("mail", postroom.QueueConfig{})
		w.Workers("w", 3, q, Inline(func(ctx context.Context, d *postroom.Delivery) error {
			return d.Release(ctx)
		}), postroom.ConsumerConfig{Manual: true})
		w.Produce("api", q, Items(8), nil)
		w.Faults(OnlyFaults(3, FaultPause, FaultDuplicate))
	}}
}

// Shrinking a livelock ends with a plan that has stood the full number of events, and
// takes a fraction of the runs' time on the way.
func TestALivelockIsShrunk(t *testing.T) {
	s := spinning(func(*World) {})
	r := s.Run(1)
	require.Equal(t, "liveness/L5/livelock", r.Signature().String())
	most := 0
	k, err := s.Shrink(r.Plan, Shrink{Progress: func(k *Shrunk) { most = max(most, k.Result.EventCount) }})
	require.NoError(t, err)
	t.Log(k)
	require.False(t, k.OutOfTime)
	require.Equal(t, Elements{Puts: 1, Workers: 1}, k.After)
	require.Less(t, most, 10_000, "events of a candidate")
	require.Greater(t, k.Result.EventCount, s.livelock)
	again := s.Replay(k.Plan)
	require.Equal(t, k.Result.TraceHash, again.TraceHash)
	require.Equal(t, k.Signature, again.Signature())
}

// What looks like a livelock early on, and is none, is not what a shrink comes to.
func TestAShrunkLivelockStandsTheFullNumberOfEvents(t *testing.T) {
	s := spinning(func(w *World) {
		w.Always("ends", func(v View) error {
			if len(v.lab.plan.Items) < 8 && v.Count(KindGrant) > 4_000 {
				return errors.New("it was none")
			}
			return nil
		})
	})
	r := s.Run(1)
	require.Equal(t, "liveness/L5/livelock", r.Signature().String())
	k, err := s.Shrink(r.Plan, Shrink{})
	require.NoError(t, err)
	require.Equal(t, k.Before, k.After)
	require.Equal(t, r.TraceHash, k.Result.TraceHash)
	require.Equal(t, r.Signature(), k.Result.Signature())
}

// A run for which there is no more time ends where it is, and is no run of its plan.
func TestARunIsCutWhenItsTimeIsOver(t *testing.T) {
	s := spinning(func(*World) {})
	asked := 0
	s.late = func() bool { asked++; return asked%4 == 0 }
	r := s.Run(1)
	require.Equal(t, errCut.Error(), r.Err)
	require.Equal(t, 3*lateSteps, r.Steps)
	require.Equal(t, Signature{Kind: "error"}, r.Signature())

	// Not even when two runs are cut at one place, and the plan's own run ends with an
	// error as they do.
	k := &shrinker{spec: s, began: stopwatch(), budget: time.Hour, out: &Shrunk{Signature: r.Signature()}}
	require.False(t, k.tryOnce("cut", r.Plan))
}

func TestAShrunkScenarioKeepsItsWorld(t *testing.T) {
	s, err := ParseScenario(`world  queue=mail lease=10s workers=3 work=1s
world  queue=audit workers=1
put    m1
put    a1 queue=audit
put    m2 at=500ms
put    m3 at=2s
at     start m1#1 worker pause 1s
at     start m2#1 worker reject
`)
	require.NoError(t, err)
	spec := *s.Spec()
	spec.Mutate = func(l actors.Ledger) actors.Ledger { return rejectIsNack{l} }
	k, err := spec.Shrink(s.FullPlan(), Shrink{})
	require.NoError(t, err)
	small := s.With(k.Plan)
	small.Want = ShortTrace(&k.Result)
	t.Logf("%v\n%v", k, small)
	require.Len(t, small.Puts, 1)
	require.Equal(t, 1, small.Queues[0].Workers)
	require.Len(t, small.Plan.Faults, 1)

	again, err := ParseScenario(FormatScenario(small))
	require.NoError(t, err)
	spec = *again.Spec()
	spec.Mutate = func(l actors.Ledger) actors.Ledger { return rejectIsNack{l} }
	r := spec.Replay(again.FullPlan())
	require.Equal(t, k.Signature, r.Signature())
	require.Equal(t, again.Want, ShortTrace(&r))
}

func TestDdminFindsTheElementsThatMatter(t *testing.T) {
	left := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	tries := 0
	ddmin(len(left), func(from, to int) bool {
		tries++
		rest := slices.Delete(slices.Clone(left), from, to)
		if !slices.Contains(rest, 3) || !slices.Contains(rest, 11) {
			return false
		}
		left = rest
		return true
	})
	require.Equal(t, []int{3, 11}, left)
	require.Less(t, tries, 40)
}
