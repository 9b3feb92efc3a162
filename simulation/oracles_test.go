package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/actors/ledger"
)

// one is a world of one message and up to two inline workers; handler does the work.
func one(build func(w *World, q *Queue), handler func(x *External) postroom.Handler, config postroom.ConsumerConfig) Spec {
	return Spec{Name: "one", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 2 * time.Second})
		x := w.External("smtp", nil)
		w.Workers("w", 2, q, Inline(handler(x)), config)
		w.Produce("api", q, Burst(1), nil)
		if build != nil {
			build(w, q)
		}
	}}
}

func send(x *External) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		if err := Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		return x.Do(ctx, d.ID, "")
	}
}

// The example of the package: a crash after the effect, before the ack, sends the
// mail twice.
func TestACrashAfterTheEffectRepeatsIt(t *testing.T) {
	s := one(func(w *World, _ *Queue) {
		w.At(AfterEffect("m1", 1), Fault{Kind: FaultCrash})
		w.Expect(EffectAtMostOnceByKey(w.lab.externals[0]))
	}, send, postroom.ConsumerConfig{})
	r := s.RunTwice(1)
	require.Len(t, r.Violations, 1)
	assert.Equal(t, "user", r.Violations[0].Kind)
	assert.Contains(t, r.Violations[0].Text, `smtp was done 2 times under key "m1"`)
	assert.True(t, r.Replay.Exact)
	assert.Equal(t, 1, r.Hits[HitCrashAfterEffect])
	var kinds []string
	for _, e := range r.Events {
		if e.Message == "m1" {
			kinds = append(kinds, e.Kind.String())
		}
	}
	assert.Equal(t, "put accepted grant start effect fault crash expire grant start effect return settle", strings.Join(kinds, " "))
}

func TestUserOracles(t *testing.T) {
	refuses := func(*External) postroom.Handler {
		return func(context.Context, *postroom.Delivery) error { return nil }
	}
	late := func(x *External) postroom.Handler {
		return func(ctx context.Context, d *postroom.Delivery) error {
			_ = Sleep(context.WithoutCancel(ctx), 5*time.Second)
			return x.Do(ctx, d.ID, "")
		}
	}
	for _, test := range []struct {
		name    string
		build   func(w *World, q *Queue)
		handler func(x *External) postroom.Handler
		want    string
	}{
		{"at least once", func(w *World, _ *Queue) { w.Expect(EffectAtLeastOnce(w.lab.externals[0])) }, refuses,
			"user/EffectAtLeastOnce smtp/expected"},
		{"after the fence", func(w *World, _ *Queue) { w.Expect(NoEffectAfterFence(w.lab.externals[0])) }, late,
			"user/NoEffectAfterFence smtp/expected"},
		{"always", func(w *World, q *Queue) {
			w.Always("no lease", func(v View) error {
				if v.Stats(q).Leased > 0 {
					return errors.New("a lease")
				}
				return nil
			})
		}, send, "user/no lease/always"},
		{"passes", func(w *World, _ *Queue) {
			w.Expect(EffectAtLeastOnce(w.lab.externals[0]), EffectAtMostOnceByKey(w.lab.externals[0]), NoEffectAfterFence(w.lab.externals[0]))
			w.Always("time", func(v View) error { return nil })
		}, send, "passed"},
	} {
		r := one(test.build, test.handler, postroom.ConsumerConfig{NoHeartbeat: true}).Run(1)
		assert.Equal(t, test.want, r.Signature().String(), "%s: %v %v %s", test.name, r.Violations, r.Alarms, r.Err)
	}
}

func TestSometimesMakesACampaignVacuous(t *testing.T) {
	s := one(func(w *World, _ *Queue) {
		w.Sometimes("a grant", func(v View) bool { return v.Count(KindGrant) > 0 })
		w.Sometimes("a dead letter", func(v View) bool { return v.Count(KindDead) > 0 })
	}, send, postroom.ConsumerConfig{})
	sum := s.Campaign(Campaign{First: 1, Last: 10, Jobs: 1})
	assert.False(t, sum.Failed())
	assert.Equal(t, []string{"a dead letter"}, sum.Vacuous())
	assert.Contains(t, sum.Vacuous(MustHit...), HitStale)
	assert.Equal(t, 10, sum.Hits["a grant"], "seeds are counted, not events")
}

// Every kind of fault can be written down by hand, strikes where its anchor says, and
// leaves a world that comes to its end.
func TestEveryFaultStrikes(t *testing.T) {
	anchors := map[FaultKind]Anchor{
		FaultPutUnknown: OnPut("m1", 1), FaultRedrive: {Event: KindDead, Nth: 1},
		FaultDuplicate: {Event: KindGrant, Message: "m1"},
		FaultReject:    OnStart("m1", 1),
	}
	for _, k := range FaultKinds() {
		a, ok := anchors[k]
		if !ok {
			a = OnStart("m1", 1)
		}
		s := Spec{Name: "fault", Build: func(w *World) {
			q := w.Queue("mail", postroom.QueueConfig{AckTimeout: time.Second})
			w.Workers("w", 2, q, Script(100*time.Millisecond, nil), postroom.ConsumerConfig{})
			w.Produce("api", q, Burst(5), nil)
			if k == FaultRedrive {
				w.At(OnStart("m1", 1), Fault{Kind: FaultReject})
			}
			w.At(a, Fault{Kind: k, For: 3 * time.Second, Count: 2, Point: "after *actors.slot"})
		}}
		for seed := range uint64(20) {
			r := s.Run(seed)
			passes(t, &r)
			struck := slices.ContainsFunc(r.Events, func(e Event) bool { return e.Kind == KindFault && e.Reason == k.String() })
			require.True(t, struck, "%v, seed %d: %v", k, seed, r.Plan.Faults)
			again := s.Replay(r.Plan)
			require.Equal(t, r.TraceHash, again.TraceHash, "%v, seed %d", k, seed)
		}
	}
}

func TestAQueueWithoutWorkersIsExplained(t *testing.T) {
	r := Spec{Name: "alone", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{})
		w.Produce("api", q, Burst(2), nil)
		w.Calm(time.Minute, Drained(q))
	}}.Run(1)
	require.Len(t, r.Alarms, 2)
	assert.Equal(t, "liveness/L1/message does not end: ready", r.Signature().String())
	assert.Equal(t, "ready after 1m0s of calm; the queue has no workers", r.Alarms[0].Reason)
	assert.Equal(t, 2, r.Categories.Stuck)
}

func TestAHandlerThatNeverReturnsIsExplained(t *testing.T) {
	s := one(func(w *World, q *Queue) { w.Calm(10*time.Minute, Drained(q)) }, func(*External) postroom.Handler {
		return func(ctx context.Context, _ *postroom.Delivery) error {
			for { // it looks at nothing
				_ = Sleep(context.WithoutCancel(ctx), time.Hour)
			}
		}
	}, postroom.ConsumerConfig{HandlerTimeout: postroom.Unlimited})
	s.Virtual = 48 * time.Hour
	r := s.Run(1)
	assert.Equal(t, "L1", r.Signature().Invariant, "%v %v", r.Signature(), r.Err)
	assert.NotEmpty(t, r.Alarms[0].Reason)
}

func TestLimitsEndARun(t *testing.T) {
	s := small(Catalogue{})
	s.Steps = 100
	r := s.Run(1)
	assert.Equal(t, "liveness/L5/step limit", r.Signature().String())
	assert.NotEmpty(t, r.Waits)
	s = small(Catalogue{})
	s.Virtual = 300 * time.Millisecond
	r = s.Run(1)
	assert.Equal(t, "liveness/L1/time limit", r.Signature().String())
}

// A ledger that lies is found out by the model, whatever it lies about.
func TestPlantedLiesAreFound(t *testing.T) {
	for name, mutate := range map[string]func(actors.Ledger) actors.Ledger{
		"lockstep/I12": func(l actors.Ledger) actors.Ledger { return lyingTouch{l} },
		"lockstep/I22": func(l actors.Ledger) actors.Ledger { return lyingPut{l} },
		"lockstep/L3":  func(l actors.Ledger) actors.Ledger { return lyingDeadline{l} },
		"crash/I27":    func(l actors.Ledger) actors.Ledger { return panicking{l} },
	} {
		s := Standard()
		s.Mutate = mutate
		sum := s.Campaign(Campaign{First: 1, Last: 500, FailuresMax: 1, Jobs: 1})
		if assert.Len(t, sum.Failures, 1, name) {
			assert.Contains(t, sum.Failures[0].Signature().String(), name)
			assert.True(t, sum.Failures[0].Replay.Exact, "%s: %v", name, sum.Failures[0].Replay)
		}
	}
}

type lyingTouch struct{ actors.Ledger }

func (l lyingTouch) Touch(now time.Time, tag uint64) (time.Time, error) {
	at, err := l.Ledger.Touch(now, tag)
	return at.Add(1), err
}

type lyingPut struct{ actors.Ledger }

func (l lyingPut) Put(now time.Time, p *ledger.Put) (ledger.PutResult, error) {
	r, err := l.Ledger.Put(now, p)
	r.Duplicate = false
	return r, err
}

type lyingDeadline struct{ actors.Ledger }

func (l lyingDeadline) NextDeadline() (time.Time, bool) {
	at, ok := l.Ledger.NextDeadline()
	return at.Add(time.Second), ok
}

type panicking struct{ actors.Ledger }

func (l panicking) Nack(now time.Time, tag uint64, why string) error {
	if why == "nack of the plan" {
		panic("boom")
	}
	return l.Ledger.Nack(now, tag, why)
}

func TestBadPlansAreRefused(t *testing.T) {
	s := small(Catalogue{})
	good := s.Run(1).Plan
	for want, spoil := range map[string]func(p *Plan){
		"it is of format 9":                 func(p *Plan) { p.Format = 9 },
		`it is of spec "other"`:             func(p *Plan) { p.Spec = "other" },
		`producer "x", which`:               func(p *Plan) { p.Items[0].Producer = "x" },
		`puts into "mail", not "x"`:         func(p *Plan) { p.Items[0].Queue = "x" },
		"has no kind":                       func(p *Plan) { p.Faults = []Fault{{}} },
		"negative number":                   func(p *Plan) { p.Faults = []Fault{{Kind: FaultCrash, For: -1}} },
		`worker "x-1", which`:               func(p *Plan) { p.Faults = []Fault{{Kind: FaultPause, Worker: "x-1"}} },
		`queue "x", which`:                  func(p *Plan) { p.Faults = []Fault{{Kind: FaultPurge, Queue: "x"}} },
		"decision 3 comes after 3, picks 1": func(p *Plan) { p.Decisions = []Decision{{3, 1}, {3, 1}} },
	} {
		p := good.Clone()
		spoil(&p)
		r := s.Replay(p)
		assert.True(t, strings.HasPrefix(r.Err, ErrPlan.Error()), "%q", r.Err)
		assert.Contains(t, r.Err, want)
		assert.Empty(t, r.Events)
	}
}

func TestAPanicInBuildIsSaid(t *testing.T) {
	for want, build := range map[string]func(w *World){
		"boom":           func(*World) { panic("boom") },
		"declared twice": func(w *World) { w.Queue("q", postroom.QueueConfig{}); w.Queue("q", postroom.QueueConfig{}) },
		"AckTimeout":     func(w *World) { w.Queue("q", postroom.QueueConfig{AckTimeout: -1}) },
		"have no handler": func(w *World) {
			w.Workers("w", 1, w.Queue("q", postroom.QueueConfig{}), Inline(nil), postroom.ConsumerConfig{})
		},
		"0 workers":         func(w *World) { w.Workers("w", 0, nil, Script(0, nil), postroom.ConsumerConfig{}) },
		"Choose of nothing": func(w *World) { Choose[int](w, "x") },
	} {
		r := Spec{Name: "bad", Build: build}.Run(1)
		assert.Contains(t, r.Err, want)
		assert.True(t, r.Failed())
	}
	assert.Contains(t, Spec{Name: "none"}.Run(1).Err, "has no Build")
	defer func() {
		crash, ok := recover().(*PanicError)
		require.True(t, ok)
		assert.Equal(t, "simulation: World.Queue is for Spec.Build; in Run open a broker with World.Open", crash.Value)
	}()
	_ = Run(1, func(w *World) { w.Queue("q", postroom.QueueConfig{}) })
}

// The bug of a handler is not the broker's: it is told as a crash of its worker, and
// the message is tried again until it dies.
func TestAHandlersOwnPanicIsACrash(t *testing.T) {
	r := one(nil, func(*External) postroom.Handler {
		return func(context.Context, *postroom.Delivery) error { panic("a bug of the user") }
	}, postroom.ConsumerConfig{}).Run(1)
	passes(t, &r)
	crashes := 0
	for _, e := range r.Events {
		if e.Kind == KindCrash {
			crashes++
			assert.Equal(t, "handler panics", e.Reason)
		}
	}
	assert.Equal(t, postroom.QueueConfig{}.WithDefaults().MaxAttempts, crashes)
	assert.Equal(t, 1, r.Jepsen.OK, "it came out as a dead letter")
}

func TestStandardHitsEverything(t *testing.T) {
	c := Campaign{First: 1, Last: 1500}
	if raceOn || testing.Short() {
		c.Last = 200 // seven times slower, and about something else
	}
	sum := Standard().Campaign(c)
	if c.Last > 1000 {
		assert.Empty(t, sum.Vacuous(MustHit...))
	}
	for _, r := range sum.Failures {
		t.Errorf("seed %d: %v", r.Plan.Seed, r.Signature())
	}
	assert.Zero(t, sum.Nondeterministic, fmt.Sprint(sum.Differences))
}
