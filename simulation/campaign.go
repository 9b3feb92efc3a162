package simulation

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/actorkit"
)

// Campaign says how many runs to make of a spec.
type Campaign struct {
	// First and Last are the seeds, both included. With For and no Last they go on until
	// the time is over.
	First, Last uint64
	// For ends the campaign after so much real time; runs under way are finished. Zero:
	// no such limit.
	For time.Duration
	// Jobs is how many runs go on at once, each on a thread of its own. Zero: GOMAXPROCS.
	Jobs int
	// Recheck runs one passing seed in so many twice; failing ones always are. Zero: 20.
	// Negative: none.
	Recheck int
	// FailuresMax ends the campaign after so many failing seeds. Zero: 10.
	FailuresMax int
	// Cover has the result tell what was come through, at a tenth of the speed or so.
	Cover bool
	// Progress, if set, is told after every run, on one goroutine at a time.
	Progress func(*CampaignResult)
}

// CampaignResult sums up the runs of a campaign.
type CampaignResult struct {
	Spec  string `json:"spec"`
	Seeds int    `json:"seeds"`

	Steps            int           `json:"steps"`
	Events           int           `json:"events"`
	Virtual          time.Duration `json:"virtual"`
	Elapsed          time.Duration `json:"elapsed"`
	Violations       int           `json:"violations"`
	Alarms           int           `json:"alarms"`
	Errors           int           `json:"errors"`
	Rechecked        int           `json:"rechecked"`
	Nondeterministic int           `json:"nondeterministic"`

	// Hits counts the seeds in which an item of the must-hit list, or a Sometimes of the
	// spec, came up.
	Hits map[string]int `json:"hits"`
	// TraceHash is a hash over all seeds' hashes in the order of the seeds.
	TraceHash uint64 `json:"trace_hash"`

	// Cover is what was come through, nil unless it was asked for.
	Cover *Coverage `json:"cover,omitempty"`

	// Failures are the failing runs, with their events, the lowest seed first.
	Failures []Result `json:"failures,omitempty"`
	// Differences are the rechecks that did not come out equal, by seed.
	Differences map[uint64]Verdict `json:"differences,omitempty"`
}

// StepsPerSecond is the speed in real time.
func (c *CampaignResult) StepsPerSecond() float64 { return perSecond(c.Steps, c.Elapsed) }

// EventsPerSecond is the speed in events.
func (c *CampaignResult) EventsPerSecond() float64 { return perSecond(c.Events, c.Elapsed) }

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Vacuous lists what should have come up and did not: the spec's own Sometimes, and
// with them the items of must that the caller names ([MustHit] for a spec with all
// faults). A campaign that lists something has shown less than it seems.
func (c *CampaignResult) Vacuous(must ...string) []string {
	missing := []string{}
	for name, n := range c.Hits {
		if n == 0 {
			missing = append(missing, name)
		}
	}
	for _, name := range must {
		if c.Hits[name] == 0 && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// Failed reports whether a run failed or was not the same twice.
func (c *CampaignResult) Failed() bool {
	return c.Violations+c.Alarms+c.Errors+c.Nondeterministic > 0
}

// Campaign runs many seeds. The result but for Elapsed depends on the seeds only, not
// on Jobs; with For it depends on how far they came.
func (s Spec) Campaign(c Campaign) *CampaignResult {
	began := stopwatch()
	sum := &CampaignResult{Spec: s.Name, Hits: map[string]int{}, Differences: map[uint64]Verdict{}}
	if c.Jobs <= 0 {
		c.Jobs = runtime.GOMAXPROCS(0)
	}
	if s.host != nil {
		c.Jobs = 1 // bubbles of one test go one after the other
	}
	if c.Recheck == 0 {
		c.Recheck = 20
	}
	if c.FailuresMax == 0 {
		c.FailuresMax = 10
	}
	if c.Last < c.First || c.Last == 0 && c.For > 0 {
		c.Last = ^uint64(0)
	}
	if c.Last == ^uint64(0) && c.For <= 0 {
		c.Last = c.First // an endless campaign must have a limit
	}
	if s.cover = c.Cover; c.Cover {
		sum.Cover = newCoverage(0)
	}
	var mu sync.Mutex
	next, over := c.First, false
	taken := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if over || next > c.Last || c.For > 0 && began() >= c.For || sum.failures() >= c.FailuresMax {
			return 0, false
		}
		seed, next = next, next+1
		over = seed == c.Last
		return seed, true
	}
	order := inOrder{next: c.First, waiting: map[uint64]uint64{}}
	work := func() {
		s := s // with a room of its own
		s.room = &room{}
		defer s.room.close()
		for {
			seed, ok := taken()
			if !ok {
				return
			}
			r := s.one(seed, c.Recheck > 0 && seed%uint64(c.Recheck) == 0)
			mu.Lock()
			sum.add(&r)
			sum.TraceHash = order.add(sum.TraceHash, seed, r.TraceHash)
			sum.Elapsed = began()
			if c.Progress != nil {
				c.Progress(sum)
			}
			mu.Unlock()
		}
	}
	if c.Jobs == 1 {
		work()
	} else {
		var jobs sync.WaitGroup
		for range c.Jobs {
			jobs.Go(work)
		}
		jobs.Wait()
	}
	sum.Elapsed = began()
	slices.SortFunc(sum.Failures, func(a, b Result) int {
		if a.Plan.Seed < b.Plan.Seed {
			return -1
		}
		return 1
	})
	return sum
}

func (c *CampaignResult) failures() int { return len(c.Failures) + c.Nondeterministic }

// inOrder hashes the seeds' hashes in the order of the seeds, in whatever order they
// come.
type inOrder struct {
	next    uint64
	waiting map[uint64]uint64
}

func (o *inOrder) add(sum, seed, hash uint64) uint64 {
	o.waiting[seed] = hash
	for {
		h, ok := o.waiting[o.next]
		if !ok {
			return sum
		}
		delete(o.waiting, o.next)
		sum = actorkit.Mix(sum, "seed", "", h)
		o.next++
	}
}

// one runs a seed, again when it failed or is to be rechecked.
func (s Spec) one(seed uint64, recheck bool) Result {
	quiet := s
	quiet.NoEvents = true
	r := quiet.Run(seed)
	if !recheck && !r.Failed() {
		r.Replay = Verdict{Runs: 1}
		return r
	}
	if !r.Failed() { // most are: events are for a difference
		if again := quiet.Run(seed); again.TraceHash == r.TraceHash && !again.Failed() {
			again.Replay = Verdict{Runs: 2, Exact: true, BestEffort: again.Replay.BestEffort, Why: again.Replay.Why}
			return again
		}
	}
	loud := s
	loud.NoEvents = false
	again := loud.Run(seed)
	again.Replay = Verdict{Runs: 2, Exact: again.TraceHash == r.TraceHash, BestEffort: again.Replay.BestEffort, Why: again.Replay.Why}
	if !again.Replay.Exact {
		third := loud.Run(seed)
		again.Replay = compareRuns(&again, &third)
		again.Replay.Exact = false
	}
	if !again.Failed() && !r.Failed() {
		again.Events = nil
	}
	return again
}

// compareRuns names the first event in which two runs differ.
func compareRuns(a, b *Result) Verdict {
	v := Verdict{Runs: 2, Exact: a.TraceHash == b.TraceHash, BestEffort: a.Replay.BestEffort, Why: a.Replay.Why}
	if v.Exact {
		return v
	}
	for i := range max(len(a.Events), len(b.Events)) {
		first, second := "nothing", "nothing"
		if i < len(a.Events) {
			first = a.Events[i].String()
		}
		if i < len(b.Events) {
			second = b.Events[i].String()
		}
		if i >= len(a.Events) || i >= len(b.Events) || a.Events[i] != b.Events[i] {
			v.FirstDifference, v.First, v.Second = i+1, first, second
			return v
		}
	}
	return v
}

// RunTwice runs a seed twice and says in Replay whether both runs were the same.
func (s Spec) RunTwice(seed uint64) Result {
	a, b := s.Run(seed), s.Run(seed)
	a.Replay = compareRuns(&a, &b)
	return a
}

// ReplayTwice carries a plan out twice and says in Replay whether both runs were the same.
func (s Spec) ReplayTwice(p Plan) Result {
	a, b := s.Replay(p), s.Replay(p)
	a.Replay = compareRuns(&a, &b)
	return a
}

func (c *CampaignResult) add(r *Result) {
	c.Seeds++
	c.Steps += r.Steps
	c.Events += r.EventCount
	c.Virtual += r.Virtual
	if r.cover != nil {
		c.Cover.add(r.cover)
		r.cover = nil
	}
	for name, n := range maps.All(r.Hits) {
		c.Hits[name] += min(n, 1)
	}
	if len(r.Violations) > 0 {
		c.Violations++
	}
	if len(r.Alarms) > 0 {
		c.Alarms++
	}
	if r.Err != "" {
		c.Errors++
	}
	if r.Replay.Runs > 1 {
		c.Rechecked++
		if !r.Replay.Exact && !r.Replay.BestEffort {
			c.Nondeterministic++
			c.Differences[r.Plan.Seed] = r.Replay
		}
	}
	if r.Failed() {
		c.Failures = append(c.Failures, *r)
	}
}
