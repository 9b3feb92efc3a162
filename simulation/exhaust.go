package simulation

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
)

// Bound is what an exhaustive search covers. Small worlds find most bugs: few need more
// than two messages and two workers (the small scope hypothesis, Jackson).
type Bound struct {
	// Messages and Workers cut the spec's world down, if it has more. Zero: 2 each.
	Messages, Workers int
	// Crashes is how many faults one run has at most. Zero: 1. Negative: none.
	Crashes int
	// Faults are the faults that may strike, each once. Nil: a crash of the handler at its
	// start, after its effect and at its return, on any delivery of any message.
	Faults []Fault
	// Deliveries is how many deliveries of a message those crashes are tried at. Zero: 2.
	Deliveries int
	// Turn is how many messages an actor takes in one turn at most: every number up to it
	// is tried where so many wait. Zero: 8, as many as there ever are. 1: one at a time.
	Turn int
	// Settings sets parts of the configuration, by name and value; the rest is the
	// simplest there is.
	Settings map[string]int64
	// Seed is what lengths of time that are drawn depend on.
	Seed uint64

	// Budget is real time. Zero: 60 s. A search that does not end in it is not complete,
	// and says so.
	Budget time.Duration
	// FailuresMax ends the search after so many failing schedules. Zero: 1.
	FailuresMax int
	// Progress, if set, is told after every schedule.
	Progress func(*Exhaustion)

	naive bool // without any reduction, to check it by
}

// Exhaustion is what a search has shown.
type Exhaustion struct {
	Spec  string `json:"spec"`
	Bound string `json:"bound"`
	// Complete: every schedule within the bound was run, or is a swap of independent
	// steps away from one that was.
	Complete bool `json:"complete"`
	// Faults is up to how many faults in one run that holds; -1: not even without any.
	// Sets of fewer faults are searched first.
	Faults int `json:"faults"`
	// Searches is how many sets of faults were searched; Unreachable how many of the
	// Bound's faults were left out because their instant never came in any schedule.
	Searches    int `json:"searches"`
	Unreachable int `json:"unreachable"`
	// Schedules is how many runs were made.
	Schedules int `json:"schedules"`
	// States is how many different states were reached between two steps; Steps how many
	// steps led there.
	States int `json:"states"`
	Steps  int `json:"steps"`
	// Pruned are the branches left out because they only swap independent steps of one
	// that was taken.
	Pruned int `json:"pruned"`
	// Depth is the longest schedule, in decisions with a choice.
	Depth int `json:"depth"`
	// Outcomes is how many different histories of the messages the schedules come to.
	Outcomes int           `json:"outcomes"`
	Elapsed  time.Duration `json:"elapsed"`
	// Failures are the failing runs; their plans replay.
	Failures []Result `json:"failures,omitempty"`
	// Err is why the search had to be given up.
	Err string `json:"error,omitempty"`

	outcomes map[uint64]bool
}

// String is the result in a few lines, with what it proves and what not.
func (x *Exhaustion) String() string {
	var b strings.Builder
	verdict := "complete: no schedule within the bound fails"
	switch {
	case x.Err != "":
		verdict = "given up: " + x.Err
	case len(x.Failures) > 0:
		verdict = fmt.Sprintf("found: %v", x.Failures[0].Signature())
	case !x.Complete:
		verdict = "not complete: out of time"
		if x.Faults >= 0 {
			verdict += fmt.Sprintf("; complete up to %d faults", x.Faults)
		}
	}
	fmt.Fprintf(&b, "exhaust %s: %s\n", x.Spec, verdict)
	fmt.Fprintf(&b, "  %d states, %d schedules, %d swaps of independent steps left out, %d outcomes, up to %d choices, %v\n",
		x.States, x.Schedules, x.Pruned, x.Outcomes, x.Depth, x.Elapsed.Round(time.Millisecond))
	fmt.Fprintf(&b, "  %d sets of faults, %d more never came to strike\n", x.Searches, x.Unreachable)
	fmt.Fprintf(&b, "  bound: %s\n", x.Bound)
	return b.String()
}

// ErrNotExhaustible refuses a spec with handlers of mode Bubble: the simulation does not
// make their steps, so it cannot try every order of them.
var ErrNotExhaustible = errors.New("handlers in a bubble cannot be searched exhaustively; make them Inline or Script")

// Exhaustive is the small world of an exhaustive search: one queue, two workers, two
// producers with a message each, two attempts.
func Exhaustive() Spec {
	return Spec{Name: "exhaustive", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 2 * time.Second, MaxAttempts: 2, NoJitter: true})
		w.Workers("w", 2, q, Script(0, nil), postroom.ConsumerConfig{})
		w.Produce("a", q, Burst(1), nil)
		w.Produce("b", q, Burst(1), nil)
		w.Calm(time.Hour, Drained(q))
	}}
}

// Exhaust runs every schedule of a small world: depth first over the decisions of the
// scheduler, from the first put until the end, for every set of at most b.Crashes
// faults.
//
//	run ──▶ step, step, choice ──▶ the first that is not asleep ──▶ … end
//	 ▲                                                             │
//	 └── the deepest choice with something left is taken anew ◀────┘
//
// A run begins anew for each schedule, since a coroutine cannot be copied. Two
// reductions keep it small. Of two steps only those are tried in both orders that depend
// on each other (dynamic partial order reduction with source sets, Abdulla and others,
// 2014): they touch an actor, mailbox, waiting coroutine or timer in common, or one posts
// what the other might have taken in the same turn. Sleep sets (Godefroid, 1996) leave
// out what only swaps steps that do not. A consumer and its workers count as one,
// because they share memory, and a queue's step touches every consumer that it grants a
// lease to, because it puts the delivery into that one's inbox itself. What is left out
// comes to the same states of every actor by the same steps, but not to all combinations
// of them.
//
// The timers of one instant ring in every order too, and between the steps of it.
//
// What it proves is in the result's Bound. In particular time passes only when nobody
// can move. What code outside
// of mailboxes shares in memory is not seen: two handlers that write one variable count
// as independent, and a rule of [World.Always] about several actors at once sees the
// orders that were run and not their swaps.
func (s Spec) Exhaust(b Bound) *Exhaustion {
	began := stopwatch()
	b = b.withDefaults()
	x := &Exhaustion{Spec: s.Name, Bound: b.text(), Faults: -1, outcomes: map[uint64]bool{}}
	defer func() {
		x.Elapsed, x.Outcomes = began(), len(x.outcomes)
	}()
	plan, err := s.smallPlan(&b)
	if err != nil {
		x.Err = err.Error()
		return x
	}
	faults := b.Faults
	if faults == nil {
		faults = crashesOf(&plan, b.Deliveries)
	}
	e := &exploration{spec: s, bound: &b, out: x, began: began, objects: map[string]int{}, reached: map[int]bool{}, faults: faults}
	x.Complete = e.sets(plan)
	if e.bound.Crashes > 0 {
		x.Unreachable = len(faults) - len(e.reached)
	}
	return x
}

func (b Bound) withDefaults() Bound {
	or := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	or(&b.Messages, 2)
	or(&b.Workers, 2)
	or(&b.Crashes, 1)
	or(&b.Deliveries, 2)
	or(&b.FailuresMax, 1)
	or(&b.Turn, turnMessagesMax)
	if b.Budget <= 0 {
		b.Budget = time.Minute
	}
	return b
}

func (b *Bound) text() string {
	what := "crashes of a handler (at its start, after its effect, at its return"
	if b.Faults != nil {
		what = "faults (of the given " + fmt.Sprint(len(b.Faults))
	} else {
		what += fmt.Sprintf("; deliveries 1 to %d of each message", b.Deliveries)
	}
	set := []string{"the simplest"}
	for _, name := range slices.Sorted(maps.Keys(b.Settings)) {
		set = append(set, fmt.Sprintf("%s=%d", name, b.Settings[name]))
	}
	return fmt.Sprintf("messages ≤ %d, workers ≤ %d, in one run ≤ %d %s), settings %s, seed %d; "+
		"every order of steps from the first put to the end, turns of up to %d messages, and of the timers of one instant among them; "+
		"time passes only when nobody can move; memory shared outside of messages is not seen", b.Messages, b.Workers, max(0, b.Crashes), what, strings.Join(set, ", "), b.Seed, b.Turn)
}

// smallPlan is the spec's plan cut down to the bound.
func (s Spec) smallPlan(b *Bound) (Plan, error) {
	if s.needsBubble(Plan{Format: PlanFormat, Spec: s.Name, Seed: b.Seed}) {
		return Plan{}, ErrNotExhaustible
	}
	s.NoEvents = true
	r := s.Run(b.Seed)
	if r.Err != "" {
		return Plan{}, errors.New(r.Err)
	}
	p := r.Plan
	p.Strategy, p.Faults, p.Decisions = Given, nil, nil
	p.Items = p.Items[:min(len(p.Items), b.Messages)]
	for i := range p.Items {
		p.Items[i].At = 0
	}
	workers := b.Workers
	for i := range p.Settings {
		set := &p.Settings[i]
		if v, ok := b.Settings[set.Name]; ok {
			set.Value = max(set.Least, min(set.Most, v))
			continue
		}
		set.Value = set.Least
		if isWorkers(set) {
			set.Value = max(set.Least, min(set.Most, int64(workers)))
			workers -= int(set.Value)
		}
		if set.Name == timersSetting {
			set.Value = timersBetween
		}
	}
	return p, nil
}

// crashesOf are the crashes of a handler that a search tries by default.
func crashesOf(p *Plan, deliveries int) []Fault {
	var all []Fault
	for _, it := range p.Items {
		for nth := range deliveries {
			for _, k := range []Kind{KindStart, KindEffect, KindReturn} {
				all = append(all, Fault{Kind: FaultCrash, Anchor: Anchor{Event: k, Message: it.Message, Nth: nth + 1}})
			}
		}
	}
	return all
}

// exploration is a search over all sets of faults.
type exploration struct {
	spec    Spec
	bound   *Bound
	out     *Exhaustion
	began   func() time.Duration
	faults  []Fault
	objects map[string]int // by name, for all searches
	// consumers are the objects that are consumers.
	consumers []int
	reached   map[int]bool // faults that struck in some schedule
}

// sets searches every set of faults, those of few first, and reports whether it came to
// the end. A set is one fault more than another one that was searched, and whose
// schedules came to the instant of that fault: else it could never strike.
func (e *exploration) sets(p Plan) bool {
	level := [][]int{{}}
	for size := 0; len(level) > 0; size++ {
		known := map[string]bool{}
		var next [][]int
		for _, set := range level {
			with := p.Clone()
			for _, i := range set {
				with.Faults = append(with.Faults, e.faults[i])
			}
			seen, ok := e.search(with)
			if !ok {
				return false
			}
			if size >= e.bound.Crashes {
				continue
			}
			for i := range e.faults {
				if !seen[i] || slices.Contains(set, i) {
					continue
				}
				e.reached[i] = true
				more := append(slices.Clone(set), i)
				slices.Sort(more)
				if key := fmt.Sprint(more); !known[key] {
					known[key] = true
					next = append(next, more)
				}
			}
		}
		e.out.Faults = size
		level = next
	}
	return true
}

// search runs every schedule of a plan. It returns which of the faults could have
// struck in one of them.
func (e *exploration) search(p Plan) (seen map[int]bool, complete bool) {
	x := &explorer{exploration: e, plan: &p, visited: map[uint64]bool{}, seen: map[int]bool{}}
	e.out.Searches++
	spec := e.spec
	spec.search, spec.NoEvents = x, true
	spec.room = &room{}
	defer spec.room.close()
	for {
		if e.began() >= e.bound.Budget {
			return x.seen, false
		}
		x.begin()
		r := spec.run(p.Clone(), false)
		x.end()
		e.out.Schedules++
		e.out.Depth = max(e.out.Depth, len(x.stack))
		e.out.outcomes[x.outcome] = true
		if x.confused != "" {
			e.out.Err = x.confused
			return x.seen, false
		}
		if r.Failed() {
			e.out.Failures = append(e.out.Failures, r)
			if len(e.out.Failures) >= e.bound.FailuresMax {
				return x.seen, false
			}
		}
		if e.bound.Progress != nil {
			e.out.Elapsed = e.began()
			e.bound.Progress(e.out)
		}
		if !x.backtrack() {
			return x.seen, true
		}
	}
}

// objectsMax is how many objects a set can tell apart; those beyond share the last
// place, which makes steps dependent that need not be, and no harm.
const objectsMax = 256

// objectSet is what a step touched.
type objectSet [objectsMax / 64]uint64

func (s *objectSet) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s *objectSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

func (s *objectSet) meets(o *objectSet) bool {
	for i := range s {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// crossing is a point with more than one possibility, on the way that is searched.
type crossing struct {
	ids    []string             // who is ready, in the order of the possibilities
	whos   []string             // the same without the number of messages
	asleep map[string]objectSet // whose steps lead nowhere new, and what they touch
	done   map[string]objectSet // taken before
	want   map[string]bool      // by who: to be taken, because of a race behind the crossing
	all    bool                 // everybody is
	chosen string
}

// next is a possibility that is to be taken and was not, -1 if there is none.
func (c *crossing) next() int {
	return slices.IndexFunc(c.ids, func(id string) bool {
		_, asleep := c.asleep[id]
		_, done := c.done[id]
		return !asleep && !done && id != c.chosen && (c.all || c.want[c.whos[slices.Index(c.ids, id)]])
	})
}

// made is a step of the run under way.
type made struct {
	who      string
	crossing int // where it was chosen, -1 if there was no choice
	touched  objectSet
	inbox    int   // the mailbox it took messages from, -1 if none
	senders  []int // the steps that posted those, as far as they are of this instant
	behind   steps // all steps that it depends on, directly or not
}

// steps is a set of steps of one instant.
type steps []uint64

func (s *steps) add(i int) {
	for len(*s) <= i/64 {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s *steps) join(o steps) {
	for len(*s) < len(o) {
		*s = append(*s, 0)
	}
	for i, word := range o {
		(*s)[i] |= word
	}
}

func (s steps) has(i int) bool { return i/64 < len(s) && s[i/64]&(1<<(i%64)) != 0 }

func (s steps) meets(o steps) bool {
	for i := range min(len(s), len(o)) {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// explorer searches the schedules of one plan. It is asked at every step of a run.
//
// Invariants:
//
//   - stack is the way that the run follows or has taken; behind it the first
//     possibility that is not asleep is taken.
//   - Whoever is asleep is ready, and its next step touches what is noted: only
//     independent steps were made since it was put to sleep.
type explorer struct {
	*exploration
	plan    *Plan
	stack   []crossing
	visited map[uint64]bool // states
	seen    map[int]bool    // faults whose instant came

	// Of one run:
	depth    int
	open     bool // between the first put and the end
	pruned   bool // nothing new can come
	confused string
	sets     map[string]int // timers that were set, by whose they are
	pick     int            // of the step to be made: who, and how many messages less one
	turn     int
	asleep   map[string]objectSet
	counts   map[int]int // matching events, by fault
	outcome  uint64
	perName  map[string]uint64

	// Of one step:
	id      string // empty outside of a step
	who     string // that of its possibility
	taken   int    // the crossing it was chosen at, -1 if there was no choice
	inbox   int
	senders []int
	touched objectSet
	before  uint64
	posts   uint64
	got     uint64

	// The state, as a hash: of what each object went through, and what waits in mailboxes.
	state   [objectsMax]uint64
	mail    map[string][]posted
	sum     uint64
	instant uint64

	trace []made // the steps of this instant
	past  int    // those of the instants before
}

// posted is a message in a mailbox: its hash, and the number of the step that sent it.
type posted struct {
	hash uint64
	step int
}

// begin makes ready for a run.
func (x *explorer) begin() {
	x.depth, x.open, x.pruned, x.confused, x.pick, x.turn = 0, false, false, "", 0, 0
	x.asleep, x.counts, x.outcome = map[string]objectSet{}, map[int]int{}, 0
	x.sets = map[string]int{}
	x.perName = map[string]uint64{}
	x.id, x.taken = "", -1
	x.state, x.mail, x.sum, x.instant = [objectsMax]uint64{}, map[string][]posted{}, 0, 0
	x.trace, x.past = x.trace[:0], 0
}

// end closes the books of a run.
func (x *explorer) end() {
	x.endStep()
	if x.depth < len(x.stack) && x.confused == "" {
		x.confused = fmt.Sprintf("two runs of the same decisions differ: choice %d of %d did not come again", x.depth, len(x.stack))
	}
	for _, name := range slices.Sorted(maps.Keys(x.perName)) {
		x.outcome = actorkit.Mix(x.outcome, "outcome", name, x.perName[name])
	}
}

// backtrack takes the deepest choice that has something left, and reports whether there
// is one.
func (x *explorer) backtrack() bool {
	for len(x.stack) > 0 {
		c := &x.stack[len(x.stack)-1]
		if i := c.next(); i >= 0 {
			c.chosen = c.ids[i]
			return true
		}
		x.out.Pruned += len(c.ids) - len(c.done)
		x.stack = x.stack[:len(x.stack)-1]
	}
	return false
}

// ---- asked by the runtime ----

// event tells of what happened: where the search begins and ends, which faults could
// have struck, and what the messages went through.
func (x *explorer) event(e *Event) {
	switch e.Kind {
	case KindEnd, KindViolation:
		x.endStep()
		x.open = false
	case KindGrant: // a queue puts a delivery into the consumer's inbox itself, without a message
		if x.id != "" && e.Consumer != "" {
			x.touched.add(x.object(consumerObject + e.Consumer))
		}
	}
	for i := range x.faults {
		a := &x.faults[i].Anchor
		if a.Matches(e) {
			if x.counts[i]++; x.counts[i] == max(1, a.Nth) {
				x.seen[i] = true
			}
		}
	}
	for i := range x.plan.Faults { // who comes first to its anchor is what it strikes
		if f := &x.plan.Faults[i]; x.id != "" && f.Anchor.Matches(e) {
			x.touched.add(x.object("fault " + f.Kind.String() + " " + f.Point))
		}
	}
	if e.Message == "" {
		return
	}
	// A history is what each of queue, worker and producer saw of a message: in which order
	// two of them did something that nobody orders is not part of it.
	who := "queue"
	switch e.Kind {
	case KindPut, KindUnknown:
		who = "producer"
	case KindStart, KindEffect, KindReturn, KindCrash, KindHang, KindFault:
		who = e.Worker
	case KindAnnounce:
		who = "subscriber"
	}
	who = e.Message + " " + who
	h := actorkit.Mix(x.perName[who], e.Kind.String()+e.Verb, e.Worker+e.Reason, e.Tag)
	x.perName[who] = actorkit.Mix(h, "at", "", uint64(e.At))
}

// decide gives the pick for a decision with a choice.
func (x *explorer) decide(what What) int {
	switch what {
	case WhatStep:
		return x.pick
	case WhatTurn:
		return x.turn
	}
	return 0
}

// choose is called before every step, with those who are ready and the timers that are
// due.
func (x *explorer) choose(now time.Time, ready []*coroutine, due []*timer) {
	x.endStep()
	if instant := uint64(now.Sub(Epoch)); instant != x.instant { // nobody could move any more
		x.instant = instant
		x.past += len(x.trace)
		x.trace = x.trace[:0]
	}
	x.pick, x.turn = 0, 0
	if !x.open || x.pruned {
		return
	}
	ids, whos, steps := x.possible(ready)
	for i, t := range due {
		ids, whos, steps = append(ids, t.name), append(whos, t.name), append(steps, step{len(ready) + i, 1})
	}
	i := x.choice(ids, whos)
	next := steps[i]
	x.pick, x.turn, x.who = next.who, next.messages-1, whos[i]
	if x.pick < len(ready) {
		x.beginStep(ready[x.pick].name)
		return
	}
	x.beginStep(due[x.pick-len(ready)].name)
}

// step is one possibility: who of those that are ready, and how many messages at once,
// or a timer.
type step struct{ who, messages int }

// possible lists the possibilities, each with a name of its own.
func (x *explorer) possible(ready []*coroutine) (ids, whos []string, steps []step) {
	for i, c := range ready {
		name := c.name
		for n := 2; slices.Contains(ids, name); n++ {
			name = fmt.Sprintf("%s%s%d", c.name, doubled, n)
		}
		for n := 1; n == 1 || n <= min(x.bound.Turn, len(x.mail[c.name])); n++ {
			id := name
			if n > 1 {
				id = fmt.Sprintf("%s, %d messages", name, n)
			}
			ids, whos, steps = append(ids, id), append(whos, name), append(steps, step{i, n})
		}
	}
	return ids, whos, steps
}

// choice follows the stack, or goes on behind it.
func (x *explorer) choice(ids, whos []string) int {
	x.taken = -1
	if x.depth >= len(x.stack) {
		if h := actorkit.Mix(x.sum, "state", "", x.instant); !x.visited[h] {
			x.visited[h] = true
			x.out.States++
		}
	}
	if len(ids) == 1 {
		if _, asleep := x.asleep[ids[0]]; asleep {
			x.pruned = true
		}
		return 0
	}
	if x.depth >= len(x.stack) {
		next := slices.IndexFunc(ids, func(id string) bool { _, asleep := x.asleep[id]; return !asleep })
		if next < 0 {
			x.pruned = true
			return 0
		}
		// Two of one name cannot be told apart from one crossing to the next.
		all := x.bound.naive || slices.ContainsFunc(whos, func(who string) bool { return strings.Contains(who, doubled) })
		x.stack = append(x.stack, crossing{ids: ids, whos: whos, asleep: x.asleep, done: map[string]objectSet{},
			want: map[string]bool{whos[next]: true}, all: all, chosen: ids[next]})
	}
	c := &x.stack[x.depth]
	if !slices.Equal(c.ids, ids) {
		x.confused = fmt.Sprintf("two runs of the same decisions differ: at choice %d %v are ready, then %v", x.depth+1, c.ids, ids)
		x.pruned = true
		return 0
	}
	x.taken = x.depth
	x.depth++
	// Whose step was taken from here before need not be taken behind this one, until
	// something happens that it depends on.
	x.asleep = maps.Clone(c.asleep)
	maps.Copy(x.asleep, c.done)
	delete(x.asleep, c.chosen)
	return slices.Index(ids, c.chosen)
}

// doubled separates a name from its number where several have it.
const doubled = "#again "

// races looks for earlier steps of this instant that the step k, which is not yet in the
// trace, might as well have come before, and asks for that at their crossings (source
// sets: Abdulla, Aronis, Jonsson, Sagonas, 2014). Steps of two instants have no choice.
func (x *explorer) races(k *made) {
	var earlier []int // those it depends on directly, the latest first
	direct := func(i int) bool {
		m := &x.trace[i]
		return m.touched.meets(&k.touched) || slices.Contains(k.senders, i)
	}
	for i := len(x.trace) - 1; i >= 0; i-- {
		m := &x.trace[i]
		depends := direct(i)
		// Who takes a message leaves the one that comes next to another turn, so to have
		// both in one turn the post must come first.
		overtaken := m.inbox >= 0 && k.touched.has(m.inbox) && x.bound.Turn > 1
		if (depends || overtaken) && m.who != k.who && !k.behind.has(i) && !slices.Contains(k.senders, i) {
			earlier = append(earlier, i)
		}
		if depends {
			k.behind.add(i)
			k.behind.join(m.behind)
		}
	}
	for _, i := range earlier {
		x.reverse(i, k)
	}
}

// reverse asks for a way in which k comes before the step i of the trace.
func (x *explorer) reverse(i int, k *made) {
	if x.trace[i].crossing < 0 {
		return
	}
	c := &x.stack[x.trace[i].crossing]
	if c.all {
		return
	}
	// What does not depend on i and comes before k can be done first, and then k.
	var before steps
	var firsts []string
	for j := i + 1; j < len(x.trace); j++ {
		m := &x.trace[j]
		if m.behind.has(i) {
			continue
		}
		if !m.behind.meets(before) {
			firsts = append(firsts, m.who)
		}
		before.add(j)
	}
	if !k.behind.meets(before) {
		if !slices.Contains(c.whos, k.who) {
			return // it was i that made it possible
		}
		firsts = append(firsts, k.who)
	}
	for _, who := range firsts {
		if c.want[who] {
			return
		}
	}
	for _, who := range slices.Backward(firsts) {
		if slices.Contains(c.whos, who) {
			c.want[who] = true
			return
		}
	}
	c.all = true
}

// beginStep is the beginning of somebody's step.
func (x *explorer) beginStep(id string) {
	x.id, x.touched, x.posts, x.got, x.inbox, x.senders = id, objectSet{}, 0, 0, -1, nil
	own := x.object(sharesWith(id))
	x.before = actorkit.Mix(x.state[own], "step", id, 0)
	x.touched.add(own)
	if local := strings.HasPrefix(id, "fault ") || sharesWith(id) != id; local && x.reachesWorkers() {
		x.touched.add(x.object("workers"))
	}
}

// endStep closes the step under way: all that it touched went through it together.
func (x *explorer) endStep() {
	if x.id == "" {
		return
	}
	x.out.Steps++
	h := actorkit.Mix(x.before, "got", "", x.got)
	for w, word := range x.touched {
		for ; word != 0; word &= word - 1 {
			h = actorkit.Mix(h, "", "", x.state[w*64+bits.TrailingZeros64(word)])
		}
	}
	for w, word := range x.touched {
		for ; word != 0; word &= word - 1 {
			o := w*64 + bits.TrailingZeros64(word)
			x.sum -= actorkit.Mix(x.state[o], "object", "", uint64(o))
			x.state[o] = actorkit.Mix(h, "touched", "", uint64(o))
			x.sum += actorkit.Mix(x.state[o], "object", "", uint64(o))
		}
	}
	if x.taken >= 0 {
		c := &x.stack[x.taken]
		c.done[c.chosen] = x.touched
	}
	if x.bound.naive {
		clear(x.asleep)
	} else {
		maps.DeleteFunc(x.asleep, func(_ string, o objectSet) bool { return o.meets(&x.touched) })
		m := made{who: x.who, crossing: x.taken, touched: x.touched, inbox: x.inbox, senders: x.senders}
		x.races(&m)
		x.trace = append(x.trace, m)
	}
	x.id, x.taken = "", -1
}

// point is told of a point at which the broker's actors may crash: of those that wait
// there for one, the first to come is struck.
func (x *explorer) point(name string) {
	for i := range x.plan.Faults {
		if f := &x.plan.Faults[i]; x.id != "" && f.strikesAt(name) {
			x.touched.add(x.object("fault " + f.Kind.String() + " " + f.Point))
		}
	}
}

// reachesWorkers reports that a fault of the plan changes, without a message, what any
// handler looks at.
func (x *explorer) reachesWorkers() bool {
	return slices.ContainsFunc(x.plan.Faults, func(f Fault) bool {
		switch f.Kind {
		case FaultKill, FaultPause, FaultRestart, FaultRolling, FaultScaleZero, FaultNackStorm, FaultReorder:
			return true
		}
		return false
	})
}

// touch notes that the step under way touches whoever runs under this name. A producer
// opens the search.
func (x *explorer) touch(name string) {
	if !x.open && strings.HasPrefix(name, "producer ") && x.depth == 0 && !x.pruned {
		x.open = true
	}
	if x.id != "" {
		x.touched.add(x.object(sharesWith(name)))
	}
}

// set names a timer that is set by whose it is and how many that one has set before, so
// that it is the same in all orders that only swap independent steps. Its ring depends
// on that step and on one that stops it.
func (x *explorer) set(t *timer, owner string) {
	x.sets[owner]++
	t.name = fmt.Sprintf("timer %d of %s", x.sets[owner], owner)
	if x.id != "" {
		x.touched.add(x.object(t.name))
	}
}

// stop notes that a timer is taken back.
func (x *explorer) stop(t *timer) {
	if x.id == "" {
		return
	}
	x.touched.add(x.object(t.name))
	// It will not ring behind this step, so it is never seen to race with it.
	if x.taken >= 0 && slices.Contains(x.stack[x.taken].whos, t.name) {
		x.stack[x.taken].want[t.name] = true
	}
}

// Posted implements [actorkit.Watcher].
func (x *explorer) Posted(to *actorkit.Address, system bool) {
	if x.id == "" {
		return
	}
	name := to.String()
	x.touched.add(x.object("mail of " + name))
	x.posts++
	if system {
		x.touched.add(x.object(sharesWith(name)))
		return
	}
	x.mail[name] = append(x.mail[name], posted{actorkit.Mix(x.before, "post", name, x.posts), x.past + len(x.trace)})
}

// Taken implements [actorkit.Watcher].
func (x *explorer) Taken(by *actorkit.Address, system bool) {
	if x.id == "" {
		return
	}
	name := by.String()
	if system {
		if strings.Contains(name, "/queues/") { // after a crash it hands over what it had not yet
			for _, c := range x.consumers {
				x.touched.add(c)
			}
		}
		return
	}
	if mail := x.mail[name]; len(mail) > 0 { // none: it was posted before the search began
		x.got = actorkit.Mix(x.got, "", "", mail[0].hash)
		x.mail[name] = mail[1:]
		x.inbox = x.object("mail of " + name)
		if i := mail[0].step - x.past; i >= 0 && i < len(x.trace) {
			x.senders = append(x.senders, i)
		}
	}
}

// object is the number of an object.
func (x *explorer) object(name string) int {
	i, ok := x.objects[name]
	if !ok {
		i = min(len(x.objects), objectsMax-1)
		x.objects[name] = i
		if strings.HasPrefix(name, consumerObject) {
			x.consumers = append(x.consumers, i)
		}
	}
	return i
}

// consumerObject is how the objects of consumers are named, before their tag.
const consumerObject = "consumer "

// sharesWith is the object that a coroutine's state is part of: its own, and for a
// worker that of its consumer.
func sharesWith(name string) string {
	const consumers = "/consumers/"
	if i := strings.Index(name, consumers); i >= 0 {
		i += len(consumers)
		if j := strings.IndexByte(name[i:], '/'); j >= 0 {
			return consumerObject + name[i:i+j]
		}
		return consumerObject + name[i:]
	}
	return name
}
