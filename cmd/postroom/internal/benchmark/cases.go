package benchmark

import (
	"context"
	"fmt"
	"time"
)

// benchCase is one thing to be measured.
type benchCase struct {
	name     string
	executor string
	unit     string // of the value. Empty: ns
	floor    floor
	more     []Named // names and units of a sample's spread
	once     bool    // a quick run is content with one round
	run      func(ctx context.Context) (sample, error)
}

// group is cases that take turns, so that what disturbs one disturbs all.
type group struct {
	name  string
	about string
	// rounds bounds the rounds of dear cases. Zero: as many as asked for.
	rounds int
	cases  []benchCase

	// Of a quick run: watched groups have their first round in any case, and none has
	// another one when that much time has passed.
	watched bool
	again   time.Duration
}

// size is how much a run does.
type size struct {
	quick    bool
	messages int // in one round of a case
}

// scaled returns n, or a part of it in a quick run.
func (z size) scaled(n, quick int) int {
	if z.quick {
		return quick
	}
	return n
}

// both makes a case for each executor; a quick run may be content with the default one.
func both(quickToo bool, z size, make func(executor string) benchCase) (cases []benchCase) {
	for _, executor := range executors {
		if z.quick && !quickToo && executor != goroutines {
			continue
		}
		c := make(executor)
		c.executor = executor
		c.once = z.quick && !quickToo
		cases = append(cases, c)
	}
	return cases
}

func flowCase(z size, name string, quickToo bool, against floor, f flow) []benchCase {
	if f.messages == 0 {
		f.messages = z.messages
	}
	return both(quickToo, z, func(executor string) benchCase {
		f := f
		f.executor = executor
		return benchCase{name: name, floor: against, run: f.run}
	})
}

// topRates gives the open loop the rate that the lifecycle has reached before it.
type topRates func(executor string) (perSec float64, err error)

// Names of groups and cases that others refer to.
const (
	lifecycleGroup = "lifecycle"
	oneByOne       = "prefetch 256"
)

// groups lists everything, what matters most first: a quick run may run out of time.
func groups(z size, top topRates) []group {
	million := 1_000_000
	// A round of what matters most lasts some tenths of a second: in one of 60 ms, of
	// which the collector's first cycles are a part, a message costs a quarter more.
	long := z.messages * z.scaled(5, 1)
	var all []group
	add := func(name, about string, rounds int, cases ...[]benchCase) {
		g := group{name: name, about: about, rounds: rounds}
		for _, c := range cases {
			g.cases = append(g.cases, c...)
		}
		all = append(all, g)
	}

	add(lifecycleGroup, "put through a Publisher (window 4096, UntilSettled), lent, handled, acked; one queue, 100 B, caller ids", 0,
		flowCase(z, oneByOne, true, hops, flow{messages: long}),
		flowCase(z, "prefetch 16", false, hops16, flow{prefetch: 16}),
		flowCase(z, "prefetch 1", true, hops1, flow{prefetch: 1, messages: z.messages / 2}),
		flowCase(z, "broker ids", false, hops, flow{madeIDs: true, messages: long}),
	)
	add("put", "confirmed puts into an idle queue, 100 B, caller ids", 0,
		both(true, z, func(executor string) benchCase {
			return benchCase{name: "confirmed", floor: roundTrip, run: confirmed{executor, z.messages}.run}
		}),
	)
	inUse := z.scaled(200_000, 100_000)
	queues := z.scaled(20_000, 2_000)
	idle := func(name string, used int, lean bool) benchCase {
		return benchCase{name: name, executor: goroutines, unit: "B", more: []Named{{Name: "goroutines of all", Unit: ""}},
			run: idleQueues{goroutines, queues, used, lean}.run}
	}
	memory := []benchCase{
		{name: "ready, caller ids", executor: goroutines, unit: "B", more: []Named{{Name: "leased", Unit: "B"}}, run: readyMemory{goroutines, inUse, false}.run},
		{name: "ready, broker ids", executor: goroutines, unit: "B", more: []Named{{Name: "leased", Unit: "B"}}, run: readyMemory{goroutines, inUse, true}.run},
		idle("idle queue, used by 100", 100, false),
	}
	if !z.quick {
		memory = append(memory, idle("idle queue, used by 1", 1, false), idle("idle queue, never used", 0, false), idle("idle queue, lean, used by 100", 100, true))
	}
	add("memory", "live bytes beyond the body for a message, and for a queue that is empty again", z.scaled(3, 1), memory)
	batch := func(n int, made, settle, quickToo bool) []benchCase {
		name := fmt.Sprintf("batch %d", n)
		if made {
			name += ", broker ids"
		}
		if settle {
			name += ", SettleBatch"
		}
		messages := z.messages
		if n == 64 {
			messages = long
		}
		return flowCase(z, name, quickToo, hops, flow{batch: n, madeIDs: made, settle: settle, messages: messages})
	}
	add("batch", "PutBatch, batched delivery, acks by the handler's return or by SettleBatch; one queue, 100 B", 0,
		batch(64, false, false, true), batch(64, true, false, true), batch(64, false, true, true),
		batch(1, false, false, false), batch(16, false, false, false), batch(256, false, false, false),
	)
	add("depth", "the same work through a standing backlog, broker ids", z.scaled(5, 2),
		flowCase(z, "0 ready", false, hops, flow{madeIDs: true, standing: 0}),
		flowCase(z, "1,000 ready", false, hops, flow{madeIDs: true, standing: 1000}),
		flowCase(z, "1,000,000 ready", false, hops, flow{madeIDs: true, standing: million}),
	)
	add("bodies", "the lifecycle with other bodies; they are handed over, not copied", 0,
		flowCase(z, "16 B", false, hops, flow{body: 16}),
		flowCase(z, "1 KiB", false, hops, flow{body: 1 << 10}),
		flowCase(z, "64 KiB", false, hops, flow{body: 64 << 10}),
	)
	many := max(z.messages, 128_000)
	add("queues", "the lifecycle over many queues with a consumer each", 0,
		flowCase(z, "10, round-robin", false, hops, flow{queues: 10}),
		flowCase(z, "1,000, round-robin", true, hops, flow{queues: 1000, messages: many}),
		flowCase(z, "1,000, bursts of 64", true, hops, flow{queues: 1000, burst: 64, messages: many}),
	)
	add("topics", "Publish to one matching binding of many", z.scaled(5, 2), topicCases(z))
	add("leases", "one call on a lease of so many, broker ids; in the order of the hand-overs, as heartbeats come, or in none", z.scaled(3, 1), leaseCases(z))
	due := z.scaled(million, 100_000)
	add("timers", "leases that run out, and delays that end, at one instant", z.scaled(3, 1),
		both(false, z, func(executor string) benchCase {
			return benchCase{name: count(due) + " leases expire", more: []Named{{"others' p99 before", "ns", Range{}}, {"others' p99 meanwhile", "ns", Range{}}},
				run: expiry{executor, due}.run}
		}),
		both(false, z, func(executor string) benchCase {
			return benchCase{name: "100,000 delayed", more: []Named{{"put", "ns", Range{}}}, run: delayed{executor, 100_000}.run}
		}),
	)
	drained := []int{1_000, 200_000}
	var drains []benchCase
	for _, n := range drained {
		drains = append(drains, both(false, z, func(executor string) benchCase {
			return benchCase{name: "backlog of " + count(n), floor: hops, run: drain{executor, n}.run}
		})...)
	}
	add("drain", "a backlog worked off by one consumer, prefetch 256, broker ids", z.scaled(5, 2), drains)
	add("latency", "due to be sent until handled, at an even rate that does not wait (open loop)", z.scaled(3, 1), latencyCases(z, top))
	// Of a quick run's time, how much is gone when each of the watched has had its part.
	for i := range all {
		g := &all[i]
		g.again = quickBudget
		if share, ok := map[string]time.Duration{lifecycleGroup: 6, "put": 8, "memory": 10, "batch": 15, "depth": 20}[g.name]; ok {
			g.watched, g.again = true, share*time.Second
		}
	}
	return all
}

func topicCases(z size) (cases []benchCase) {
	for _, n := range []int{10, 10_000, 100_000} {
		if z.quick && n == 10_000 {
			continue
		}
		cases = append(cases, both(false, z, func(executor string) benchCase {
			return benchCase{name: count(n) + " bindings", floor: roundTrip, run: topics{executor, n, z.messages / 4}.run}
		})...)
	}
	return cases
}

func leaseCases(z size) (cases []benchCase) {
	for _, kind := range []struct {
		name string
		held held
		both bool // executors: these calls run on their caller, so one says it all
	}{
		{"touch", held{calls: 50_000}, true},
		{"nack in 1 h", held{calls: 50_000, nack: true}, true},
		{"touch in no order", held{calls: 50_000, random: true}, false},
		{"nack in no order", held{calls: 50_000, nack: true, random: true}, false},
		{"touch, SettleBatch 64", held{calls: 64_000, batch: 64}, false},
	} {
		if z.quick && !kind.both {
			continue
		}
		for _, n := range []int{1_000, 1_000_000} {
			of := both(false, z, func(executor string) benchCase {
				h := kind.held
				h.executor, h.leases = executor, n
				if z.quick {
					h.calls /= 2
				}
				return benchCase{name: kind.name + ", " + count(n) + " leased", floor: roundTrip, run: h.run}
			})
			if !kind.both {
				of = of[:1]
			}
			cases = append(cases, of...)
		}
	}
	return cases
}

func latencyCases(z size, top topRates) (cases []benchCase) {
	for _, share := range []float64{0.5, 0.8} {
		cases = append(cases, both(false, z, func(executor string) benchCase {
			return benchCase{
				name: fmt.Sprintf("at %.0f %% of the top rate", 100*share),
				more: []Named{{"p50", "ns", Range{}}, {"p99", "ns", Range{}}, {"p99.9", "ns", Range{}}, {"max", "ns", Range{}}, {"rate reached", "%", Range{}}},
				run: func(ctx context.Context) (sample, error) {
					rate, err := top(executor)
					if err != nil {
						return sample{}, err
					}
					lasts := 2 * time.Second
					if z.quick {
						lasts /= 4
					}
					return openLoop{executor, share * rate, lasts}.run(ctx)
				},
			}
		})...)
	}
	return cases
}

// count writes a number as people do.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return count(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
