package benchmark

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Config says what to measure.
type Config struct {
	// Rounds is how often each case is measured, at least 1. Zero: 5, or 3 when Quick.
	Rounds int
	// Messages is how many go through one round of a case. Zero: 200,000, or half of
	// that when Quick. At least MessagesMin.
	Messages int
	// Only names groups; empty means all of them.
	Only []string
	// Quick is done within 40 s: fewer and smaller rounds, and what does not fit is
	// left out, and said to be.
	Quick bool
	// Progress is told what is being measured. nil: nobody.
	Progress func(text string)
}

// MessagesMin is the least that tells a flow from its beginning and end.
const MessagesMin = 10_000

// A quick run begins nothing after quickBudget, which leaves room in 40 s for the case
// under way and the report; but what is watched by name always has its first round.
const quickBudget = 33 * time.Second

// caseTimeout bounds one round of one case: what takes longer hangs.
const caseTimeout = 2 * time.Minute

func (c Config) withDefaults() Config {
	if c.Rounds == 0 {
		c.Rounds = 5
		if c.Quick {
			c.Rounds = 3
		}
	}
	if c.Messages == 0 {
		c.Messages = 200_000
		if c.Quick {
			c.Messages /= 2
		}
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return c
}

// GroupNames are what Config.Only may name.
func GroupNames() (names []string) {
	for _, g := range groups(size{messages: MessagesMin}, nil) {
		names = append(names, g.name)
	}
	return names
}

// Run measures. Cases that fail are in the report with their error, and the others
// still run. Errors: only the cause of the end of ctx, beside what was measured until then.
func Run(ctx context.Context, config Config) (*Report, error) {
	config = config.withDefaults()
	r := &runner{config: config, report: &Report{Quick: config.Quick, Rounds: config.Rounds, Messages: config.Messages, Began: time.Now()}}
	r.report.Machine = machine()
	r.report.LoadBefore = load()
	ids()
	for _, g := range groups(size{config.Quick, config.Messages}, r.topRate) {
		if len(config.Only) > 0 && !slices.Contains(config.Only, g.name) {
			continue
		}
		r.group(ctx, g)
		if ctx.Err() != nil {
			break
		}
	}
	r.report.Took = time.Since(r.report.Began)
	r.report.LoadAfter = load()
	r.report.finish()
	return r.report, context.Cause(ctx)
}

// runner is one run.
type runner struct {
	config Config
	report *Report
}

// outOfTime reports that a quick run has no time for this round of this group.
func (r *runner) outOfTime(g *group, round int) bool {
	switch took := time.Since(r.report.Began); {
	case !r.config.Quick:
		return false
	case round == 0:
		return !g.watched && took > quickBudget
	default:
		return took > g.again
	}
}

// measured gathers the rounds of one case.
type measured struct {
	benchCase
	figure         *Figure
	floors, ratios []float64
	spread         [][]float64 // by the position in more
	failed         bool
}

func (r *runner) group(ctx context.Context, g group) {
	rounds := r.config.Rounds
	if g.rounds > 0 {
		rounds = min(rounds, g.rounds)
	}
	all := make([]*measured, len(g.cases))
	for i, c := range g.cases {
		unit := c.unit
		if unit == "" {
			unit = "ns"
		}
		all[i] = &measured{benchCase: c, spread: make([][]float64, len(c.more)), figure: &Figure{
			Key: g.name + "/" + c.name + "/" + c.executor, Group: g.name, Case: c.name, Executor: c.executor,
			Unit: unit, Floor: c.floor.String(), Allocs: -1, Bytes: -1,
		}}
	}
	began := time.Now()
	skipped := false
	for round := range rounds {
		for _, m := range all {
			if m.failed || ctx.Err() != nil {
				continue
			}
			if round > 0 && m.once {
				continue
			}
			if r.outOfTime(&g, round) {
				skipped = skipped || round == 0
				continue
			}
			r.config.Progress(fmt.Sprintf("%s: %s, %s, round %d of %d", g.name, m.name, m.executor, round+1, rounds))
			if err := r.round(ctx, m); err != nil {
				m.failed = true
				m.figure.Error = err.Error()
				if ctx.Err() == nil {
					r.report.Failed = append(r.report.Failed, m.figure.Key)
				}
			}
		}
	}
	out := Group{Name: g.name, About: g.about, Took: time.Since(began)}
	for _, m := range all {
		m.finish()
		if m.figure.Rounds > 0 || m.figure.Error != "" {
			out.Figures = append(out.Figures, m.figure)
		}
	}
	if skipped {
		r.report.Skipped = append(r.report.Skipped, g.name)
	}
	r.report.Groups = append(r.report.Groups, out)
}

// round measures the floor, the case, and the floor again.
func (r *runner) round(ctx context.Context, m *measured) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, caseTimeout, errors.New("it took too long"))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p) // the others still run
		}
	}()
	before, err := r.floor(m.floor)
	if err != nil {
		return err
	}
	runtime.GC()
	s, err := m.run(ctx)
	if err != nil {
		return err
	}
	after, err := r.floor(m.floor)
	if err != nil {
		return err
	}
	f := m.figure
	f.Rounds++
	f.values = append(f.values, s.value)
	if m.floor != noFloor {
		floor := (before + after) / 2
		m.floors, m.ratios = append(m.floors, floor), append(m.ratios, s.value/floor)
	}
	f.Backlog = max(f.Backlog, s.backlog)
	if f.PerWakeUp == 0 || s.perWakeUp < f.PerWakeUp {
		f.PerWakeUp = s.perWakeUp // the fewest: what was less batched costs more
	}
	f.CallerRan = s.callerRan
	if s.counted && (f.Allocs < 0 || s.allocs < f.Allocs) {
		f.Allocs, f.Bytes = s.allocs, s.bytes
	}
	for i := range m.spread {
		m.spread[i] = append(m.spread[i], s.spread[i])
	}
	return nil
}

// floor measures one on each side of a case: a machine that has others to serve is not
// the same from one moment to the next.
func (r *runner) floor(f floor) (float64, error) {
	if f == noFloor {
		return 0, nil
	}
	runtime.GC()
	return f.measure(r.config.Messages) // with fewer its beginning, when all is in the cache, is half of it
}

func (m *measured) finish() {
	f := m.figure
	f.Value = rangeOf(f.values)
	if f.Rounds == 0 {
		return
	}
	if m.floor != noFloor {
		floors, ratios := rangeOf(m.floors), rangeOf(m.ratios)
		f.FloorValue, f.Ratio = &floors, &ratios
	}
	for i, n := range m.more {
		n.Value = rangeOf(m.spread[i])
		f.More = append(f.More, n)
	}
}

// topRate is messages a second of the lifecycle, which is measured now if it was not.
func (r *runner) topRate(executor string) (float64, error) {
	key := lifecycleGroup + "/" + oneByOne + "/" + executor
	if f := r.report.figure(key); f != nil && f.Rounds > 0 {
		return 1e9 / f.Value.Median, nil
	}
	s, err := flow{executor: executor, messages: r.config.Messages}.run(context.Background())
	if err != nil {
		return 0, fmt.Errorf("the top rate: %w", err)
	}
	return 1e9 / s.value, nil
}
