package simulation

import "github.com/postroom/postroom/internal/actorkit"

// startStrategy readies what the strategy needs.
func (l *lab) startStrategy() {
	if l.drawn && l.plan.Strategy == Portfolio {
		l.plan.Strategy = Random
		if actorkit.Mix(l.plan.Seed, "strategy", "", 0)%4 == 0 {
			l.plan.Strategy = PCT
		}
	}
	if l.drawn && l.plan.Strategy == PCT {
		l.pct = newPCT(l.plan.Seed, l.spec.Depth)
	}
}

// decide makes one decision of the scheduler and writes it into the plan unless it is
// the default.
func (l *lab) decide(what What, of int, names func(int) string) int {
	number := l.decisions
	l.decisions++
	pick := 0
	switch {
	case l.rt.search != nil:
		pick = l.rt.search.decide(what)
	case !l.drawn:
		return l.decideLogged(number, of)
	case l.plan.Strategy == Given:
		if l.spec.Decider != nil {
			pick = max(0, min(of-1, l.spec.Decider.Decide(Choice{Number: number, What: what, Of: of, Names: names})))
		}
	case l.pct != nil && what == WhatStep && !l.calm:
		pick = l.pct.pick(of, names)
	case what == WhatTurn && l.plan.Strategy == PCT:
		// Long turns hide what happens between two messages.
	default:
		pick = int(actorkit.Mix(l.plan.Seed, "decision", "", uint64(number)) % uint64(of))
	}
	if pick != 0 {
		l.plan.Decisions = append(l.plan.Decisions, Decision{Number: number, Pick: pick})
	}
	return pick
}

// decideLogged takes the plan's decision, or the default.
func (l *lab) decideLogged(number, of int) int {
	log := l.plan.Decisions
	for l.logged < len(log) && log[l.logged].Number < number {
		l.logged++
	}
	if l.logged < len(log) && log[l.logged].Number == number {
		return min(log[l.logged].Pick, of-1)
	}
	return 0
}

// pct is probabilistic concurrency testing: everybody has a drawn priority, the
// highest runs, and at a few drawn decisions the one that is about to run falls
// behind all others.
type pct struct {
	seed     uint64
	changes  map[int]bool
	priority map[string]uint64
	count    int
	fallen   uint64
}

// pctDepth is the depth when none is given, pctSteps over how many decisions the
// points of change are spread.
const (
	pctDepth = 3
	pctSteps = 1000
)

func newPCT(seed uint64, depth int) *pct {
	if depth <= 0 {
		depth = pctDepth
	}
	p := &pct{seed: seed, changes: map[int]bool{}, priority: map[string]uint64{}}
	for i := range depth - 1 {
		p.changes[int(actorkit.Mix(seed, "pct change", "", uint64(i))%pctSteps)] = true
	}
	return p
}

func (p *pct) of(name string) uint64 {
	v, ok := p.priority[name]
	if !ok {
		v = 1<<32 + actorkit.Mix(p.seed, "pct priority", name, 0)>>1
		p.priority[name] = v
	}
	return v
}

func (p *pct) pick(of int, names func(int) string) int {
	highest := func() int {
		best := 0
		for i := 1; i < of; i++ {
			if p.of(names(i)) > p.of(names(best)) {
				best = i
			}
		}
		return best
	}
	best := highest()
	p.count++
	if p.changes[p.count] {
		p.fallen++
		p.priority[names(best)] = 1<<31 - p.fallen
		best = highest()
	}
	return best
}
