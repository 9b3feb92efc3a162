package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
)

// ShrinkBudget is how long a shrink may take when nobody says otherwise, as in rapid.
const ShrinkBudget = 30 * time.Second

// Reasons for which there is nothing to shrink.
var (
	// ErrPasses: the plan's run passes.
	ErrPasses = errors.New("the plan's run passes, so there is nothing to shrink")
	// ErrNotTheSame: two runs of the plan differ, so no smaller plan could be trusted.
	ErrNotTheSame = errors.New("two runs of the plan differ")
)

// Shrink says how to shrink.
type Shrink struct {
	// Budget is real time. Zero: [ShrinkBudget]. The run that is under way when it is over
	// is cut short. Two runs of the plan at the beginning, and two of the shrunk plan of a
	// livelock at the end, are carried out in full whatever they take.
	Budget time.Duration
	// Progress, if set, is told of every step that was accepted.
	Progress func(*Shrunk)
}

// Elements counts what a reader of a plan has to keep in mind.
type Elements struct {
	Puts    int `json:"puts"`
	Workers int `json:"workers"`
	Faults  int `json:"faults"`
}

// Total is the sum.
func (e Elements) Total() int { return e.Puts + e.Workers + e.Faults }

func (e Elements) String() string {
	return fmt.Sprintf("%d elements (%d puts, %d workers, %d faults)", e.Total(), e.Puts, e.Workers, e.Faults)
}

// Shrunk is the smallest plan that was found with the same violation.
type Shrunk struct {
	// Signature is what every plan on the way had, the first as the last.
	Signature Signature `json:"signature"`
	// Plan is the smallest. Settings at their simplest value are left out of it.
	Plan Plan `json:"plan"`
	// Result is its run.
	Result Result `json:"-"`

	Before Elements `json:"before"`
	After  Elements `json:"after"`
	// Decisions and Settings count the picks that are not the default and the settings
	// that are not the simplest, before and after.
	DecisionsBefore int `json:"decisions_before"`
	DecisionsAfter  int `json:"decisions_after"`
	SettingsBefore  int `json:"settings_before"`
	SettingsAfter   int `json:"settings_after"`

	// Replays counts the runs, two for each accepted step included.
	Replays int           `json:"replays"`
	Elapsed time.Duration `json:"elapsed"`
	// Steps are the accepted steps in words.
	Steps []string `json:"steps,omitempty"`
	// OutOfTime: the budget ended before no step was left to try.
	OutOfTime bool `json:"out_of_time,omitempty"`
}

func (k *Shrunk) String() string {
	s := fmt.Sprintf("shrunk from %v to %v, settings %d to %d, picks %d to %d, in %d replays and %v",
		k.Before, k.After, k.SettingsBefore, k.SettingsAfter, k.DecisionsBefore, k.DecisionsAfter, k.Replays, k.Elapsed.Round(time.Millisecond))
	if k.OutOfTime {
		s += "; out of time"
	}
	return s
}

// Scenario is the shrunk plan and what happens in it, as text that is also a test.
func (k *Shrunk) Scenario() *Scenario {
	return &Scenario{Plan: k.Plan.Clone(), Want: ShortTrace(&k.Result)}
}

// Shrink looks for a smaller plan whose run has the same signature (SIMULATION 2.4):
//
//  1. cut what comes after the violation and the faults that never struck
//  2. take whole kinds of fault away, and the drawn schedule and settings
//  3. ddmin over puts, workers and faults (Zeller and Hildebrandt, 2002)
//  4. ddmin over settings and picks, shorter times, faults anchored to events
//  5. again from 3 until nothing changes
//
// A step counts only if two runs of the smaller plan have that signature and the same
// hash. When a plan depends on its schedule, taking an element away moves every pick
// behind it: then a few other schedules are tried as well.
//
// Errors: [ErrPasses], [ErrNotTheSame], and what is wrong with the plan, wrapping
// [ErrPlan].
func (s Spec) Shrink(p Plan, o Shrink) (*Shrunk, error) {
	began := stopwatch()
	if o.Budget <= 0 {
		o.Budget = ShrinkBudget
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s.room = &room{}
	defer s.room.close()
	k := &shrinker{spec: s, began: began, budget: o.Budget, progress: o.Progress, out: &Shrunk{}}
	again, r := k.run(p, true), k.run(p, false)
	switch {
	case !r.Failed():
		return nil, ErrPasses
	case r.TraceHash != again.TraceHash || r.Signature() != again.Signature():
		return nil, ErrNotTheSame
	case strings.HasPrefix(r.Err, ErrPlan.Error()):
		return nil, fmt.Errorf("%w: %s", ErrPlan, r.Err)
	}
	k.out.Signature = r.Signature()
	k.out.Before, k.out.DecisionsBefore, k.out.SettingsBefore = elementsOf(&r.Plan), len(p.Decisions), countSettings(&r.Plan)
	k.adopt(r)
	k.spec.late = func() bool { return k.began() >= k.budget }
	if livelock := (Signature{Kind: "liveness", Invariant: "L5", Roles: livelockRoles}); k.out.Signature == livelock {
		k.shrinkLivelock(r)
	} else {
		k.shrink()
	}
	k.out.Elapsed = k.began()
	return k.out, nil
}

// shrinkLivelock shrinks a plan that spins at one instant. Each of its runs would go on to
// the same large number of events, which is what makes it sure; so candidates are called a
// livelock much earlier, and what comes of them has to stand the full number.
func (k *shrinker) shrinkLivelock(whole Result) {
	full := cmp.Or(k.spec.livelock, livelockEvents)
	k.spec.livelock = min(full, 5_000+500*len(whole.Plan.Items)) // no message has a tenth of them at one instant
	k.shrink()
	k.spec.livelock, k.spec.late = full, nil
	if len(k.out.Steps) == 0 {
		return
	}
	again, r := k.run(k.best, true), k.run(k.best, false)
	if r.Signature() != k.out.Signature || r.TraceHash != again.TraceHash {
		k.out.Steps = nil
		r = whole
	}
	k.adopt(r)
}

// elementsOf counts a plan that was run, so that all its settings are in it.
func elementsOf(p *Plan) Elements {
	e := Elements{Puts: len(p.Items), Faults: len(p.Faults)}
	for _, set := range p.Settings {
		if isWorkers(&set) {
			e.Workers += int(set.Value)
		}
	}
	return e
}

func isWorkers(s *Setting) bool { return strings.HasPrefix(s.Name, workersSetting("")) }

// countSettings counts those that are not the simplest.
func countSettings(p *Plan) int {
	n := 0
	for _, set := range p.Settings {
		if set.Value != set.Least && !isWorkers(&set) {
			n++
		}
	}
	return n
}

type shrinker struct {
	spec     Spec
	began    func() time.Duration
	budget   time.Duration
	progress func(*Shrunk)
	out      *Shrunk

	best      Plan // settings at their least left out
	schedules int  // how many other schedules a step is tried with
}

// run is one replay. Most show nothing, so their events are not kept.
func (k *shrinker) run(p Plan, quiet bool) Result {
	k.out.Replays++
	k.spec.NoEvents = quiet
	return k.spec.Replay(p)
}

func (k *shrinker) late() bool {
	if k.began() >= k.budget {
		k.out.OutOfTime = true
	}
	return k.out.OutOfTime
}

// adopt makes the plan of a run the best.
func (k *shrinker) adopt(r Result) {
	o := k.out
	o.After = elementsOf(&r.Plan)
	o.SettingsAfter, o.DecisionsAfter = countSettings(&r.Plan), len(r.Plan.Decisions)
	k.best = r.Plan.Clone()
	k.best.Settings = slices.DeleteFunc(k.best.Settings, func(s Setting) bool { return s.Value == s.Least })
	o.Plan, o.Result, o.Elapsed = k.best, r, k.began()
}

// try runs a smaller plan, and adopts it if two runs show the same violation.
func (k *shrinker) try(step string, p Plan) bool {
	if k.late() {
		return false
	}
	if k.tryOnce(step, p) {
		return true
	}
	if len(p.Decisions) == 0 {
		return false
	}
	bare := p.Clone()
	bare.Decisions = nil
	if k.tryOnce(step+", default schedule", bare) {
		return true
	}
	for i := range k.schedules {
		if k.late() {
			return false
		}
		p.Decisions = drawSchedule(uint64(k.out.Replays), uint64(i), k.out.Result.Steps*2)
		if k.tryOnce(step+", another schedule", p) {
			return true
		}
	}
	return false
}

func (k *shrinker) tryOnce(step string, p Plan) bool {
	again := k.run(p, true)
	if again.Signature() != k.out.Signature || again.Err == errCut.Error() {
		return false
	}
	r := k.run(p, false)
	if r.Signature() != k.out.Signature || r.TraceHash != again.TraceHash || r.Err == errCut.Error() {
		return false
	}
	k.adopt(r)
	k.out.Steps = append(k.out.Steps, fmt.Sprintf("%s: %v", step, k.out.After))
	if k.progress != nil {
		k.progress(k.out)
	}
	return true
}

// drawSchedule draws a decision log: every other pick is the default.
func drawSchedule(seed, n uint64, of int) []Decision {
	var log []Decision
	for i := range of {
		draw := actorkit.Mix(seed, "shrink schedule", "", n<<32|uint64(i))
		if pick := [...]int{0, 0, 0, 0, 1, 1, 2, 3}[draw%8]; pick > 0 {
			log = append(log, Decision{Number: i, Pick: pick})
		}
	}
	return log
}

func (k *shrinker) shrink() {
	k.cutTail()
	k.simplest()
	for round := 0; !k.late(); round++ {
		before := len(k.out.Steps)
		k.elements()
		k.settings()
		k.simplify()
		k.decisions()
		if len(k.out.Steps) == before {
			if k.schedules > 0 || len(k.best.Decisions) == 0 {
				break
			}
			k.schedules = 5 // what does not go with this schedule may go with another
		}
	}
}

// cutTail takes away what came after the violation and the faults that never struck.
func (k *shrinker) cutTail() {
	r := &k.out.Result
	struck := map[string]bool{}
	end := r.Virtual
	for i := range r.Events {
		if r.Events[i].Kind == KindFault {
			struck[r.Events[i].Detail] = true
		}
	}
	if len(r.Violations) > 0 {
		end = r.Violations[0].At
	}
	p := k.best.Clone()
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return !struck[f.String()] })
	p.Items = slices.DeleteFunc(p.Items, func(it Item) bool { return it.At > end })
	if len(p.Faults) < len(k.best.Faults) || len(p.Items) < len(k.best.Items) {
		k.try("tail cut", p)
	}
}

// simplest tries the large steps that often succeed.
func (k *shrinker) simplest() {
	p := k.best.Clone()
	p.Settings = slices.DeleteFunc(p.Settings, func(s Setting) bool { return !isWorkers(&s) })
	if len(p.Settings) < len(k.best.Settings) {
		k.try("simplest settings", p)
	}
	if len(k.best.Decisions) > 0 {
		p := k.best.Clone()
		p.Decisions = nil
		k.try("default schedule", p)
	}
	for _, kind := range FaultKinds() {
		p := k.best.Clone()
		p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Kind == kind })
		if len(p.Faults) < len(k.best.Faults) {
			k.try("without "+kind.String(), p)
		}
	}
}

// ddmin takes away as many of n elements as it can: halves, quarters, single ones.
// without tries to do without those from from to before to, of those that are left,
// and reports whether that was accepted.
func ddmin(n int, without func(from, to int) bool) {
	for size := max(1, n/2); n > 0; size = max(1, size/2) {
		removed := false
		for from := n; from > 0; {
			to := from
			from = max(0, from-size)
			if without(from, to) {
				n -= to - from
				removed = true
			}
		}
		if size == 1 && !removed {
			return
		}
	}
}

// elements does ddmin over faults, puts and workers.
func (k *shrinker) elements() {
	ddmin(len(k.best.Faults), func(from, to int) bool {
		p := k.best.Clone()
		p.Faults = slices.Delete(p.Faults, from, to)
		return k.try(fmt.Sprintf("%d faults less", to-from), p)
	})
	ddmin(len(k.best.Items), func(from, to int) bool {
		p := k.best.Clone()
		p.Items = slices.Delete(p.Items, from, to)
		return k.try(fmt.Sprintf("%d puts less", to-from), p)
	})
	for _, set := range slices.Clone(k.best.Settings) {
		if !isWorkers(&set) {
			continue
		}
		for v := set.Least; v < set.Value; v++ {
			if k.try(fmt.Sprintf("%s %d", set.Name, v), k.with(set.Name, v)) {
				break
			}
		}
	}
}

// with is the best plan with another value of a setting.
func (k *shrinker) with(setting string, v int64) Plan {
	p := k.best.Clone()
	for i := range p.Settings {
		if p.Settings[i].Name == setting {
			p.Settings[i].Value = v
		}
	}
	return p
}

// settings takes away the settings that need not be what they are, or makes them simpler.
func (k *shrinker) settings() {
	others := func(p *Plan) (at []int) {
		for i := range p.Settings {
			if !isWorkers(&p.Settings[i]) {
				at = append(at, i)
			}
		}
		return at
	}
	ddmin(len(others(&k.best)), func(from, to int) bool {
		p := k.best.Clone()
		gone := others(&p)[from:to]
		for _, i := range slices.Backward(gone) {
			p.Settings = slices.Delete(p.Settings, i, i+1)
		}
		return k.try(fmt.Sprintf("%d settings simplest", to-from), p)
	})
	for _, set := range slices.Clone(k.best.Settings) {
		for v := set.Least + 1; v < set.Value && v < set.Least+8 && !isWorkers(&set); v++ {
			if k.try("simpler "+set.Name, k.with(set.Name, v)) {
				break
			}
		}
	}
}

// decisions does ddmin over the picks, and makes those that are left smaller.
func (k *shrinker) decisions() {
	ddmin(len(k.best.Decisions), func(from, to int) bool {
		if k.late() {
			return false
		}
		p := k.best.Clone()
		p.Decisions = slices.Delete(p.Decisions, from, to)
		return k.tryOnce(fmt.Sprintf("%d picks less", to-from), p)
	})
	for i := range k.best.Decisions {
		if k.best.Decisions[i].Pick > 1 && !k.late() {
			p := k.best.Clone()
			p.Decisions[i].Pick = 1
			k.tryOnce("smaller pick", p)
		}
	}
}

// simplify makes what is left easier to read: earlier puts, shorter and rounder
// times, faults at the first event of their kind, and at events and not instants.
func (k *shrinker) simplify() {
	for i := range k.best.Items {
		for _, at := range []time.Duration{0, k.best.Items[i].At.Truncate(time.Second), k.best.Items[i].At.Truncate(100 * time.Millisecond)} {
			if at < k.best.Items[i].At {
				p := k.best.Clone()
				p.Items[i].At = at
				if k.try("earlier put", p) {
					break
				}
			}
		}
	}
	for i := range k.best.Faults {
		k.reanchor(i)
		f := k.best.Faults[i]
		alter := func(step string, change func(f *Fault)) bool {
			p := k.best.Clone()
			change(&p.Faults[i])
			return p.Faults[i] != k.best.Faults[i] && k.try(step, p)
		}
		if f.Worker != "" && f.Anchor.Event != noEvent {
			alter("the worker of the anchor", func(f *Fault) { f.Worker = "" })
		}
		if f.Queue != "" && f.Anchor.Event != noEvent {
			alter("the queue of the anchor", func(f *Fault) { f.Queue = "" })
		}
		if f.Anchor.Nth > 1 {
			_ = alter("the first of them", func(f *Fault) { f.Anchor.Nth = 1 }) ||
				f.Anchor.Nth > 2 && alter("an earlier of them", func(f *Fault) { f.Anchor.Nth-- })
		}
		if f.Count > 1 {
			alter("count 1", func(f *Fault) { f.Count = 1 })
		}
		for _, d := range []time.Duration{0, time.Second, f.For / 2, f.For.Truncate(time.Second)} {
			if d < f.For && alter("a shorter fault", func(f *Fault) { f.For = d }) {
				break
			}
		}
	}
}

// reanchorEvents is how many events before a timed fault are tried as its anchor.
const reanchorEvents = 12

// reanchor ties a fault that strikes at an instant to an event just before it: that
// keeps its meaning when the code changes.
func (k *shrinker) reanchor(i int) {
	f := k.best.Faults[i]
	if f.Anchor.Event != noEvent {
		return
	}
	events := k.out.Result.Events
	at := slices.IndexFunc(events, func(e Event) bool { return e.Kind == KindFault && e.Detail == f.String() })
	for n := at - 1; n >= 0 && n >= at-reanchorEvents; n-- {
		e := &events[n]
		switch e.Kind {
		case KindAccepted, KindGrant, KindStart, KindEffect, KindReturn, KindSettle, KindStale, KindExpire, KindReady, KindDead:
		default:
			continue
		}
		a := Anchor{Event: e.Kind, Message: e.Message, Nth: 0}
		for j := range n + 1 {
			if a.Matches(&events[j]) {
				a.Nth++
			}
		}
		p := k.best.Clone()
		p.Faults[i].Anchor = a
		if k.try("anchored to an event", p) {
			return
		}
	}
}
