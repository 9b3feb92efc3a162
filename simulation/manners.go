package simulation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// What follows looks at handlers themselves: whether they stop when they are told to,
// and leave nothing behind.

// HandlerHonoursContext: a handler returns within so much time when its context has
// ended, because its lease was lost, its time was up, or it was told to stop. One that
// the plan hangs or makes ignore its context is excused.
func HandlerHonoursContext(within time.Duration) Expectation {
	return Expectation{
		name:  "HandlerHonoursContext",
		setUp: func(l *lab) { l.honours = &honours{within: within} },
		judge: func(l *lab) error { return l.honours.found },
	}
}

// honours is what is known of contexts that have ended.
type honours struct {
	within time.Duration
	found  error
}

// look notes of every handler whose context has ended when that was, and objects to
// those that go on for too long. The laboratory calls it whenever time is about to pass.
func (h *honours) look(l *lab) {
	for _, j := range l.jobs {
		h.check(l, j)
	}
}

// check is look at one handler, also when it returns.
func (h *honours) check(l *lab, j *job) {
	if j.excused || j.doomed != nil || j.ctx.Err() == nil {
		return
	}
	if j.told.IsZero() {
		j.told = l.rt.now
	}
	if on := l.rt.now.Sub(j.told); on > h.within && h.found == nil {
		h.found = fmt.Errorf("%s works on %s by tag %d for %v after its context has ended (%w), and may for %v",
			j.worker.name, j.name, j.d.Tag, on, context.Cause(j.ctx), h.within)
	}
}

// NoGoroutineLeft: so long after the last handler has returned, no goroutine runs that
// one has started: with [Go], or in modes [Bubble] and [Real] with a go statement. Those
// of a handler whose process was killed are excused, because they would be gone with it.
func NoGoroutineLeft(after time.Duration) Expectation {
	return Expectation{
		name: "NoGoroutineLeft",
		setUp: func(l *lab) {
			l.leftovers = &leftovers{run: runsLabelled.Add(1), after: after, children: map[int]child{}}
		},
		judge: func(l *lab) error { return l.leftovers.judge(l) },
	}
}

// leftovers is what is known of the goroutines that handlers have started.
type leftovers struct {
	run      uint64 // of runsLabelled
	after    time.Duration
	children map[int]child // those of Go that have not ended, on the one thread
	started  int
}

type child struct{ job *job }

// begun notes a child and returns what notes its end. Nobody may look: f is nil then.
func (f *leftovers) begun(j *job) (ended func()) {
	if f == nil {
		return func() {}
	}
	f.started++
	n := f.started
	f.children[n] = child{j}
	return func() { delete(f.children, n) }
}

// label is how the goroutines of a run are known from all others: those that a handler
// starts inherit its labels.
const label = "postroom simulation"

// labelled runs a handler so that its goroutines are known.
func (l *lab) labelled(j *job, run func(ctx context.Context)) {
	if l.leftovers == nil {
		run(j.ctx)
		return
	}
	pprof.Do(j.ctx, pprof.Labels(label, l.labelOf(j.number)), run)
}

// runsLabelled numbers the runs of this process, of which the labels tell one from
// another, also from one that is over: what leaked there is still running. An address
// would do neither, once it is used again. Nothing of a run depends on it.
var runsLabelled atomic.Uint64

// labelOf tells apart the handlers of this run from those of all others.
func (l *lab) labelOf(job int) string { return fmt.Sprintf("%d %d", l.leftovers.run, job) }

// judge tells of what is left, the same in each run: without addresses and ids.
func (f *leftovers) judge(l *lab) error {
	found := map[string]int{}
	for _, c := range f.children {
		if !c.job.killed {
			found["started by simulation.Go in "+c.job.name]++
		}
	}
	for stack, n := range l.labelledStacks() {
		found[stack] += n
	}
	if len(found) == 0 {
		return nil
	}
	var says []string
	for _, what := range slices.Sorted(maps.Keys(found)) {
		says = append(says, fmt.Sprintf("%d %s", found[what], what))
	}
	return fmt.Errorf("%v after the last handler: %s", f.after, strings.Join(says, "; "))
}

// labelledStacks counts the goroutines of this run's handlers by where they are.
func (l *lab) labelledStacks() map[string]int {
	found := map[string]int{}
	if l.bubbles == nil && l.soak == nil {
		return found
	}
	var b bytes.Buffer
	if pprof.Lookup("goroutine").WriteTo(&b, 1) != nil {
		return found
	}
	for _, part := range strings.Split(b.String(), "\n\n") {
		head, rest, _ := strings.Cut(part, "\n")
		ours := strings.Index(rest, fmt.Sprintf("%q:\"%d ", label, l.leftovers.run))
		if ours < 0 {
			continue
		}
		value := rest[ours+len(fmt.Sprintf("%q:\"%d ", label, l.leftovers.run)):]
		number, _ := strconv.Atoi(value[:max(0, strings.IndexByte(value, '"'))])
		if l.killedJobs[number] {
			continue
		}
		count, _ := strconv.Atoi(cmp.Or(strings.SplitN(head, " ", 2)[0], "1"))
		found["in "+functionsOf(rest)] += count
	}
	return found
}

// functionsOf are the functions of a stack of a profile, the innermost first, without
// those of the runtime.
func functionsOf(stack string) string {
	var names []string
	for _, line := range strings.Split(stack, "\n") {
		fields := strings.Fields(line) // # 0x4a2b40 main.leak.func1+0x1f /path/file.go:7
		if len(fields) < 3 || fields[0] != "#" || !strings.HasPrefix(fields[1], "0x") {
			continue
		}
		name, _, _ := strings.Cut(fields[2], "+")
		if name = name[strings.LastIndexByte(name, '/')+1:]; !strings.HasPrefix(name, "runtime.") {
			names = append(names, name)
		}
	}
	return strings.Join(names[:min(3, len(names))], " of ")
}
