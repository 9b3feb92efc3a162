package simulation

import (
	"maps"
	"slices"
)

// Coverage is what a campaign came through: which event met a message in which state,
// which two events of a message came one after the other, and which faults struck. What
// is empty was not tried.
type Coverage struct {
	// Met counts events by the state that their message was in: [MessageStates] by
	// [Kinds]. A message is known by its name, so one that is put twice at a time, with ids
	// of the broker's making, may be seen in the state of the other.
	Met map[string]map[string]int `json:"met"`
	// Faults counts those that struck, by kind.
	Faults map[string]int `json:"faults"`
	// First is the lowest seed in which an event of a message followed another one,
	// "grant > expire": where nothing new comes any more, more seeds find little.
	First map[string]uint64 `json:"first"`

	state map[string]string // of a run under way, by queue and message
	last  map[string]Kind
	seed  uint64
}

// MessageStates are the states of a message in their order: none is before its put, or
// after the end of one whose name comes again.
var MessageStates = []string{"none", "delayed", "ready", "leased", "acked", "dead", "dropped"}

func newCoverage(seed uint64) *Coverage {
	return &Coverage{Met: map[string]map[string]int{}, Faults: map[string]int{}, First: map[string]uint64{},
		state: map[string]string{}, last: map[string]Kind{}, seed: seed}
}

// note counts an event.
func (c *Coverage) note(e *Event) {
	if e.Kind == KindFault {
		c.Faults[e.Reason]++
		return
	}
	if e.Message == "" {
		return
	}
	who := e.Queue + "/" + e.Message
	state := c.state[who]
	if state == "" {
		state = "none"
	}
	if c.Met[state] == nil {
		c.Met[state] = map[string]int{}
	}
	c.Met[state][e.Kind.String()]++
	if last := c.last[who]; last != noEvent {
		if pair := last.String() + " > " + e.Kind.String(); c.First[pair] == 0 {
			c.First[pair] = c.seed
		}
	}
	c.last[who] = e.Kind
	waits := "ready"
	if e.Deadline != 0 {
		waits = "delayed"
	}
	switch e.Kind {
	case KindAccepted, KindExpire, KindTaken:
		c.state[who] = waits
	case KindReady:
		c.state[who] = "ready"
	case KindGrant:
		c.state[who] = "leased"
	case KindSettle:
		if c.state[who] = waits; e.Verb == "ack" {
			c.state[who] = "acked"
		}
	case KindDead:
		c.state[who] = "dead"
	case KindPurged, KindDropped:
		c.state[who] = "dropped"
	}
}

// add takes in that of another run.
func (c *Coverage) add(o *Coverage) {
	for state, kinds := range o.Met {
		if c.Met[state] == nil {
			c.Met[state] = map[string]int{}
		}
		for kind, n := range kinds {
			c.Met[state][kind] += n
		}
	}
	for kind, n := range o.Faults {
		c.Faults[kind] += n
	}
	for pair, seed := range o.First {
		if first, known := c.First[pair]; !known || seed < first {
			c.First[pair] = seed
		}
	}
}

// Novelty is how many different pairs the seeds up to each one have shown: seeds that
// brought something new, in their order, and the count with them.
func (c *Coverage) Novelty() (seeds []uint64, pairs []int) {
	n := 0
	for _, seed := range slices.Sorted(maps.Values(c.First)) {
		if n++; len(seeds) > 0 && seeds[len(seeds)-1] == seed {
			pairs[len(pairs)-1] = n
			continue
		}
		seeds, pairs = append(seeds, seed), append(pairs, n)
	}
	return seeds, pairs
}
