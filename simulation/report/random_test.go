package report

import (
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/postroom/postroom/simulation"
)

// randomRun is events of all kinds in any order, sensible or not: a picture of a run that
// a bug has spoiled must still be drawn.
func randomRun(seed uint64) simulation.Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := simulation.Kinds()
	name := func(prefix string, n int) string {
		if i := rng.IntN(n + 1); i > 0 {
			return prefix + strconv.Itoa(i)
		}
		return ""
	}
	var r simulation.Result
	at := time.Duration(0)
	for n, last := 1, 2+rng.IntN(150); n <= last; n++ {
		at += time.Duration(rng.IntN(3)) * 100 * time.Millisecond
		e := simulation.Event{
			Number: n, Cause: rng.IntN(n), At: at, Kind: kinds[rng.IntN(len(kinds))],
			Queue: name("q", 2), Message: name("m", 4), Generation: rng.IntN(2),
			Worker: name("w-", 3), Consumer: name("ctag-", 3), Incarnation: rng.IntN(3),
			Tag: uint64(rng.IntN(6)), Attempt: rng.IntN(4), Deliveries: rng.IntN(4),
			Deadline: time.Duration(rng.IntN(20_000)) * time.Millisecond,
		}
		if e.Kind == simulation.KindSettle {
			e.Verb = []string{"ack", "nack", "nack_in", "reject", "release"}[rng.IntN(5)]
		}
		r.Events = append(r.Events, e)
	}
	return r
}

func TestAnyEventsCanBeDrawn(t *testing.T) {
	for seed := range uint64(500) {
		r := randomRun(seed)
		if err := HTML(io.Discard, r, Options{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := SVG(io.Discard, r); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		p := draw(&r)
		for _, c := range p.Counts {
			for s, n := range c.In {
				if n < 0 {
					t.Fatalf("seed %d, event %d: %d messages are %v", seed, c.Event, n, state(s))
				}
			}
		}
		over := map[[2]int]int{}
		for i := range p.Bars {
			b := &p.Bars[i]
			if b.To < b.From || b.Zombie != 0 && b.Zombie < b.To {
				t.Fatalf("seed %d: the bar of tag %d goes from %v to %v, zombie until %v", seed, b.Tag, b.From, b.To, b.Zombie)
			}
			for _, row := range [][2]int{{b.Place.Worker, b.Place.WorkerRow}, {-b.Place.Message - 1, b.Place.MessageRow}} {
				if b.Grant < over[row] {
					t.Fatalf("seed %d: the bar of event %d begins before the one before it in its row ends", seed, b.Grant)
				}
				over[row] = b.lastEvent(len(r.Events))
			}
		}
	}
}

// A browser must cope with them, too.
func TestAnyEventsCanBeOpened(t *testing.T) {
	t.Parallel()
	r := randomRun(4)
	if s := open(t, htmlOf(t, r, Options{})); len(s.Errors)+len(s.console) > 0 || s.Overlaps > 0 {
		t.Errorf("errors %q, console %q, %d bars overlap", s.Errors, s.console, s.Overlaps)
	}
}
