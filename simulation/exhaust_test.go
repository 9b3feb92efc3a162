package simulation

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// tiny is a world that can be searched without any reduction.
func tiny(workers, messages int) Spec {
	return Spec{Name: "tiny", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 2 * time.Second, MaxAttempts: 2, NoJitter: true})
		effect := w.External("effect", nil)
		w.Workers("w", workers, q, Inline(func(ctx context.Context, d *postroom.Delivery) error {
			return effect.Do(ctx, d.ID, "") // all in one step: without any reduction each other one costs a lot
		}), postroom.ConsumerConfig{NoHeartbeat: true})
		w.Produce("api", q, Burst(messages), nil)
	}}
}

func TestTwoWorkersTwoMessagesOneCrashAreSearchedToTheEnd(t *testing.T) {
	b := Bound{}
	states := 1000
	switch {
	case raceOn:
		b.Messages, states = 1, 100 // ten times slower, and one thread has no races to show
	case testing.Short():
		b.Turn = 1 // a quarter of the time
	}
	began := cpu()
	x := Exhaustive().Exhaust(b)
	spent := cpu() - began
	t.Logf("processor %v\n%v", spent.Round(time.Millisecond), x)
	require.Empty(t, x.Err)
	require.Empty(t, x.Failures)
	require.True(t, x.Complete)
	require.Equal(t, 1, x.Faults)
	require.Greater(t, x.States, states)
	require.Less(t, spent, time.Minute, "the bound of the issue")
}

// TestACrashOfTheBrokersOwnIsSearchedToTheEnd crashes queue and router before and after
// each message that changes something, and each kind of actor at whatever it is told
// next, in every schedule.
func TestACrashOfTheBrokersOwnIsSearchedToTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("several seconds")
	}
	var faults []Fault
	for _, point := range slices.Concat(decidingPoints, pointActors) {
		for _, k := range []Kind{KindAccepted, KindStart} {
			faults = append(faults, Fault{Kind: FaultActor, Anchor: Anchor{Event: k, Message: "m1"}, Point: point})
		}
	}
	x := tiny(2, 1).Exhaust(Bound{Messages: 1, Faults: faults, Turn: 2}) // with two messages a minute is not enough
	t.Log(x)
	require.Empty(t, x.Failures)
	require.Empty(t, x.Err)
	require.True(t, x.Complete)
	require.Equal(t, len(faults)+1, x.Searches)
}

// TestReductionsLoseNoHistory compares with a search that tries every order of steps:
// what happens to the messages must come to the same set of histories.
func TestReductionsLoseNoHistory(t *testing.T) {
	for _, c := range []struct {
		name              string
		workers, messages int
		crashes           int
		faults            []Fault
		long              bool
	}{
		{"a crash", 1, 1, 1, []Fault{{Kind: FaultCrash, Anchor: AfterEffect("m1", 1)}}, true},
		{"1 worker, 2 messages", 1, 2, -1, nil, false},
		{"settles at the deadline", 1, 1, 1, []Fault{{Kind: FaultAckLate, Anchor: OnStart("m1", 1)}, {Kind: FaultExtendLate, Anchor: OnStart("m1", 1)}}, true},
		{"a zombie", 1, 1, 1, []Fault{{Kind: FaultZombie, Anchor: OnStart("m1", 1)}}, true},
		{"an unknown put", 2, 1, 1, []Fault{{Kind: FaultPutUnknown, Anchor: OnPut("m1", 1)}}, false},
		{"a crash of the queue", 1, 1, 1, []Fault{{Kind: FaultActor, Anchor: Anchor{Event: KindStart, Message: "m1"}, Point: "after *actors.Put"},
			{Kind: FaultActor, Anchor: Anchor{Event: KindAccepted, Message: "m1"}, Point: "after *actors.Put"}}, true},
		{"queue commands", 1, 1, 1, []Fault{{Kind: FaultPurge, Anchor: OnStart("m1", 1)}, {Kind: FaultDrain, Anchor: OnStart("m1", 1), For: time.Second}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if (raceOn || testing.Short()) && c.long {
				t.Skip("minutes with the race detector, seconds without")
			}
			b := Bound{Messages: c.messages, Workers: c.workers, Crashes: c.crashes, Faults: c.faults, Turn: 1, naive: true}
			if c.messages > 1 {
				b.Turn = 2
			}
			all := tiny(c.workers, c.messages).Exhaust(b)
			require.True(t, all.Complete, all)
			b.naive = false
			reduced := tiny(c.workers, c.messages).Exhaust(b)
			require.True(t, reduced.Complete, reduced)
			t.Logf("every order: %d schedules; reduced: %d, %d states; %d outcomes", all.Schedules, reduced.Schedules, reduced.States, reduced.Outcomes)
			require.Less(t, reduced.Schedules, all.Schedules)
			require.Equal(t, slices.Sorted(maps.Keys(all.outcomes)), slices.Sorted(maps.Keys(reduced.outcomes)))
			again := tiny(c.workers, c.messages).Exhaust(b)
			require.Equal(t, [4]int{reduced.States, reduced.Schedules, reduced.Steps, reduced.Pruned},
				[4]int{again.States, again.Schedules, again.Steps, again.Pruned}, "a search is the same each time")
		})
	}
}

func TestASearchFindsPlantedBugsAndItsPlansReplay(t *testing.T) {
	for _, c := range []struct {
		bug    string
		faults []Fault
	}{
		{"sleeps too long", nil},
		{"crash is forgiven", nil},
		{"late ack taken", []Fault{{Kind: FaultZombie, Anchor: OnStart("m1", 1)}, {Kind: FaultAckLate, Anchor: OnStart("m1", 1)}}},
		{"reject is a nack", []Fault{{Kind: FaultReject, Anchor: OnStart("m2", 1)}}},
	} {
		t.Run(c.bug, func(t *testing.T) {
			s := tiny(2, 2)
			for _, bug := range planted {
				if bug.name == c.bug {
					s.Mutate = bug.mutate
				}
			}
			x := s.Exhaust(Bound{Faults: c.faults})
			require.Len(t, x.Failures, 1, x)
			require.False(t, x.Complete)
			require.Contains(t, x.String(), "found: ")
			found := x.Failures[0]
			replayed := s.Replay(found.Plan)
			require.Equal(t, found.TraceHash, replayed.TraceHash)
			require.Equal(t, found.Signature(), replayed.Signature())
			k, err := s.Shrink(found.Plan, Shrink{})
			require.NoError(t, err)
			t.Logf("after %d schedules: %v\n%v", x.Schedules, k, k.Scenario())
		})
	}
}

func TestASearchOutOfTimeSaysHowFarItCame(t *testing.T) {
	x := Exhaustive().Exhaust(Bound{Budget: 1})
	require.False(t, x.Complete)
	require.Equal(t, -1, x.Faults)
	require.Contains(t, x.String(), "not complete: out of time\n")
}

func TestASearchOfABrokenSpecSaysSo(t *testing.T) {
	x := Spec{Name: "empty"}.Exhaust(Bound{})
	require.NotEmpty(t, x.Err)
	require.False(t, x.Complete)
	require.Contains(t, x.String(), "given up")
}
