package supervisor

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/messages"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// longest is the draw that gives the bound of the wait itself.
const longest = math.MaxUint64

func TestS2_Decide(t *testing.T) {
	p := Policy{Base: time.Second, Cap: 10 * time.Second, MaxFailures: 5, HalfLife: time.Minute}
	tests := []struct {
		name string
		// runs is how long the actor ran before each failure, from the instant at which
		// its restart was due.
		runs []time.Duration
		want Decision // on the last failure
	}{
		{"the first failure waits the base", runs(0), Decision{true, 1 * time.Second, 1}},
		{"the second waits twice as long", runs(0, 0), Decision{true, 2 * time.Second, 2}},
		{"the fourth eight times", runs(0, 0, 0, 0), Decision{true, 8 * time.Second, 4}},
		{"the fifth waits the cap", runs(0, 0, 0, 0, 0), Decision{true, 10 * time.Second, 5}},
		{"the sixth stops it", runs(0, 0, 0, 0, 0, 0), Decision{false, 0, 6}},
		{"the seventh too", runs(0, 0, 0, 0, 0, 0, 0), Decision{false, 0, 7}},
		{"a half-life of calm halves the count", runs(0, 0, 60), Decision{true, 2 * time.Second, 2}},
		{"two quarter it", runs(0, 0, 0, 0, 120), Decision{true, 2 * time.Second, 2}},
		{"half of one still counts", runs(0, 60), Decision{true, 2 * time.Second, 1.5}},
		{"less than half does not", runs(0, 120), Decision{true, 1 * time.Second, 1.25}},
		{"calm saves from the stop", runs(0, 0, 0, 0, 0, 60), Decision{true, 8 * time.Second, 3.5}},
		{"a very long calm forgives all", runs(0, 0, 0, 0, 0, 64*60), Decision{true, 1 * time.Second, 1}},
		{"after a stop it counts on", runs(0, 0, 0, 0, 0, 0, 60), Decision{true, 8 * time.Second, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h History
			var got Decision
			now := noon
			for _, run := range tt.runs {
				now = now.Add(got.After + run)
				got = p.Decide(&h, now, longest)
			}
			if got != tt.want {
				t.Errorf("after runs of %v: %+v, want %+v", tt.runs, got, tt.want)
			}
		})
	}
}

func runs(seconds ...int) (ds []time.Duration) {
	for _, s := range seconds {
		ds = append(ds, time.Duration(s)*time.Second)
	}
	return ds
}

func TestS2_TheDrawSpreadsTheWaitOverAllOfItsRange(t *testing.T) {
	p := Policy{Base: time.Second, Cap: time.Minute}
	tests := []struct {
		draw uint64
		want time.Duration
	}{
		{0, 0},
		{1 << 62, 250 * time.Millisecond},
		{1 << 63, 500 * time.Millisecond},
		{3 << 62, 750 * time.Millisecond},
		{longest, time.Second},
	}
	for _, tt := range tests {
		if got := p.Decide(new(History), noon, tt.draw).After; got != tt.want {
			t.Errorf("first failure with draw %#x waits %v, want %v", tt.draw, got, tt.want)
		}
	}
}

// The defaults' doc promises these figures.
func TestS2_TheDefaultsGiveTenRestartsAndAbout40Seconds(t *testing.T) {
	wait := func(draw uint64) (total time.Duration, restarts int) {
		var h History
		now := noon
		for {
			d := Policy{}.Decide(&h, now, draw)
			if !d.Restart {
				return total, restarts
			}
			total += d.After
			restarts++
			now = now.Add(d.After)
		}
	}
	for _, draw := range []uint64{0, 1 << 63, longest} {
		if _, n := wait(draw); n != DefaultMaxFailures {
			t.Errorf("with draw %#x: %d restarts, want %d whatever the waits", draw, n, DefaultMaxFailures)
		}
	}
	if mean, _ := wait(1 << 63); mean.Round(time.Second) != 41*time.Second {
		t.Errorf("the mean waits add up to %v, want about 41 s", mean)
	}
	if most, _ := wait(longest); most.Round(time.Second) != 81*time.Second {
		t.Errorf("the longest waits add up to %v, want about 81 s", most)
	}

	for run, want := range map[time.Duration]bool{8 * time.Second: false, 10 * time.Second: true} {
		var h History
		now, d := noon, Decision{Restart: true}
		for i := 0; i < 10_000 && d.Restart; i++ {
			now = now.Add(d.After + run)
			d = Policy{}.Decide(&h, now, longest)
		}
		if d.Restart != want {
			t.Errorf("failing every %v of running: restarted for ever is %t, want %t", run, d.Restart, want)
		}
	}
}

func TestS2_UnlimitedNeverStopsAndNeverOverflows(t *testing.T) {
	for _, p := range []Policy{
		{MaxFailures: messages.Unlimited},
		{MaxFailures: messages.Unlimited, Base: 1, Cap: math.MaxInt64},
		{MaxFailures: messages.Unlimited, Base: math.MaxInt64, Cap: math.MaxInt64, HalfLife: math.MaxInt64},
		{MaxFailures: messages.Unlimited, Base: math.MaxInt64, Cap: 1, HalfLife: 1},
	} {
		var h History
		full := p.WithDefaults()
		last := time.Duration(0)
		for k := 1; k <= 200; k++ {
			d := p.Decide(&h, noon, longest)
			if !d.Restart || d.After < last || d.After > full.Cap || d.Failures != float64(k) {
				t.Fatalf("%+v, failure %d after a wait of %v: %+v", p, k, last, d)
			}
			last = d.After
		}
		if last != full.Cap {
			t.Errorf("%+v: the wait ends at %v, want the cap", p, last)
		}
	}
}

// Halving the cap rounds down, which must not let the wait jump to the cap too soon.
func TestS2_TheWaitIsExactJustBelowTheCap(t *testing.T) {
	p := Policy{Base: 3, Cap: 7}
	var h History
	for k, want := range []time.Duration{3, 6, 7, 7} {
		if got := p.Decide(&h, noon, longest).After; got != want {
			t.Errorf("failure %d with base 3 ns and cap 7 ns waits %d ns, want %d", k+1, got, want)
		}
	}
}

func TestS2_AClockThatRunsBackDoesNoHarm(t *testing.T) {
	p := Policy{Base: time.Second, Cap: time.Minute, MaxFailures: 5, HalfLife: time.Minute}
	var h History
	p.Decide(&h, noon, longest)
	if got, want := p.Decide(&h, noon.Add(-24*time.Hour), longest), (Decision{true, 2 * time.Second, 2}); got != want {
		t.Errorf("a failure a day before the first: %+v, want %+v, like one at the same instant", got, want)
	}
	// Calm counts from the new instant at once, and not when the old one has come back.
	if got := p.Failures(h, noon.Add(-24*time.Hour+2*time.Second+time.Minute)); got != 1 {
		t.Errorf("a half-life later %v failures count, want 1 of 2", got)
	}
	if got := p.Failures(h, time.Time{}); got != 2 {
		t.Errorf("at the zero time %v failures count, want 2", got)
	}
	if got := p.Failures(h, time.Unix(1<<40, 0)); got != 0 {
		t.Errorf("in the far future %v failures count, want 0", got)
	}
}

func TestS2_TheZeroHistoryHasNoFailures(t *testing.T) {
	var h History
	for _, now := range []time.Time{{}, noon, time.Unix(-1<<40, 0)} {
		if got := (Policy{}).Failures(h, now); got != 0 {
			t.Errorf("at %v the zero history has %v failures, want 0", now, got)
		}
	}
}

func TestS2_DecayIsExponential(t *testing.T) {
	for _, halfLife := range []time.Duration{1, 3, time.Microsecond, time.Minute, 300 * time.Hour, math.MaxInt64} {
		for _, share := range []float64{0.001, 0.1, 0.25, 0.5, 0.7, 0.999, 1, 1.3, 2, 17.17, 63.9} {
			calm := time.Duration(share * float64(halfLife))
			if float64(calm) != math.Trunc(share*float64(halfLife)) {
				continue // longer than a Duration can say
			}
			got := decay(8, calm, halfLife)
			want := 8 * math.Exp2(-float64(calm)/float64(halfLife))
			if math.Abs(got-want) > want*1e-8 {
				t.Errorf("8 after %v with half-life %v: %v, want %v", calm, halfLife, got, want)
			}
		}
	}
	if got := decay(8, math.MaxInt64, 1); got != 0 {
		t.Errorf("after the longest calm: %v, want 0", got)
	}
}

// Any processor must give these very bits: one seed, one simulation.
func TestK1_DecayIsTheSameToTheLastBitEverywhere(t *testing.T) {
	if got, want := math.Float64bits(decay(10, 7919*time.Millisecond, time.Minute)), uint64(0x40224063a7c68c92); got != want {
		t.Errorf("bits %#x, want %#x", got, want)
	}
}

func TestS2_Validate(t *testing.T) {
	for _, p := range []Policy{
		{}, Policy{}.WithDefaults(), {MaxFailures: messages.Unlimited}, {MaxFailures: 1},
		{Base: time.Hour, Cap: time.Second}, {Base: 1, Cap: 1, HalfLife: 1},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v is refused: %v", p, err)
		}
	}

	// Every field, so that a new one is not forgotten.
	for i := range reflect.TypeFor[Policy]().NumField() {
		name := reflect.TypeFor[Policy]().Field(i).Name
		var p Policy
		reflect.ValueOf(&p).Elem().Field(i).SetInt(-2)
		err := p.Validate()
		var bad *messages.ArgumentError
		if !errors.As(err, &bad) || !errors.Is(err, messages.ErrArgument) || bad.Argument != name {
			t.Errorf("%s = -2 gives %v, want an ArgumentError that names it", name, err)
		}
		if reflect.ValueOf(Policy{}.WithDefaults()).Field(i).IsZero() {
			t.Errorf("%s has no default", name)
		}
	}
	if err := (Policy{HalfLife: messages.Unlimited}).Validate(); err == nil {
		t.Error("an unlimited HalfLife is taken: only the count may be")
	}

	p := Policy{Base: 1, Cap: 2, MaxFailures: 3, HalfLife: 4}
	if got := p.WithDefaults(); got != p {
		t.Errorf("WithDefaults changed what was set: %+v", got)
	}
}

var (
	drawWait   = rapid.Map(rapid.Int64Range(1, math.MaxInt64), func(n int64) time.Duration { return time.Duration(n) })
	drawShort  = rapid.Map(rapid.Int64Range(1, int64(time.Hour)), func(n int64) time.Duration { return time.Duration(n) })
	drawPolicy = rapid.Custom(func(t *rapid.T) Policy {
		wait := rapid.OneOf(drawShort, drawShort, drawWait)
		return Policy{
			Base: wait.Draw(t, "base"), Cap: wait.Draw(t, "cap"), HalfLife: wait.Draw(t, "halfLife"),
			MaxFailures: rapid.IntRange(1, 100).Draw(t, "maxFailures"),
		}
	})
)

// The clock of this property runs as it likes, back too.
func TestS2_WaitsStayInTheirBoundsAndTheCountBelowTheNumberOfFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy.Draw(t, "policy")
		var h History
		now := noon
		for k := 1; k <= 80; k++ {
			now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), 24*int64(time.Hour)).Draw(t, "step")))
			d := p.Decide(&h, now, rapid.Uint64().Draw(t, "draw"))

			bound := float64(p.Cap)
			if b := float64(p.Base) * math.Exp2(float64(k-1)); b < bound {
				bound = b
			}
			switch {
			case d.After < 0 || float64(d.After) > bound:
				t.Fatalf("failure %d waits %v, want 0 to %v", k, d.After, time.Duration(bound))
			case d.Failures < 1 || d.Failures > float64(k):
				t.Fatalf("after failure %d the count is %v, want 1 to %d", k, d.Failures, k)
			case d.Restart != (d.Failures <= float64(p.MaxFailures)):
				t.Fatalf("restart is %t at a count of %v with limit %d", d.Restart, d.Failures, p.MaxFailures)
			case !d.Restart && d.After != 0:
				t.Fatalf("stopped, and a wait of %v", d.After)
			}
		}
	})
}

// Short is a burst in which the actor ran, between its failures, for less than the
// time that forgives one of limit + 1: HalfLife·log2((limit+1)/limit).
func TestS2_AShortBurstGetsExactlyTheLimitOfRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy.Draw(t, "policy")
		limit := float64(p.MaxFailures)
		short := time.Duration(float64(p.HalfLife) * math.Log2((limit+1)/limit) * 0.99)
		var h History
		now, restarts := noon, 0
		for {
			d := p.Decide(&h, now, rapid.Uint64().Draw(t, "draw"))
			if !d.Restart {
				break
			}
			if restarts++; restarts > p.MaxFailures {
				t.Fatalf("%d restarts in a burst, limit %d", restarts, p.MaxFailures)
			}
			run := time.Duration(rapid.Int64Range(0, int64(short)/int64(p.MaxFailures)).Draw(t, "run"))
			now = now.Add(d.After).Add(run)
		}
		if restarts != p.MaxFailures {
			t.Fatalf("stopped after %d restarts, limit %d", restarts, p.MaxFailures)
		}
	})
}

func TestS2_CalmBringsTheCountDownAndNothingElseDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy.Draw(t, "policy")
		p.HalfLife = drawShort.Draw(t, "halfLife")
		p.MaxFailures = messages.Unlimited
		var h History
		now := noon
		n := rapid.IntRange(1, 100).Draw(t, "failures")
		var d Decision
		for range n {
			d = p.Decide(&h, now, rapid.Uint64().Draw(t, "draw"))
			now = now.Add(d.After)
		}
		if d.Failures != float64(n) {
			t.Fatalf("%d failures without calm count as %v: the waits were taken for calm", n, d.Failures)
		}
		last := d.Failures
		for i := 1; i <= 70; i++ {
			got := p.Failures(h, now.Add(time.Duration(i)*p.HalfLife))
			if got > last/2 {
				t.Fatalf("after %d half-lives %v count, before it %v", i, got, last)
			}
			last = got
		}
		if last != 0 {
			t.Fatalf("after 70 half-lives %v count, want 0", last)
		}
	})
}
