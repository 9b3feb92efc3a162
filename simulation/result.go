package simulation

import (
	"fmt"
	"time"
)

// CheckpointEvents is how many events lie between two [Checkpoint]s.
const CheckpointEvents = 1000

// Result is one run as plain data. Runs of one plan have equal results, but for
// Elapsed and Replay.
type Result struct {
	// Plan is what was carried out, with everything drawn written out: [Spec.Replay] of
	// it is this run again.
	Plan Plan `json:"plan"`
	// Events is what happened, in order. Empty in a campaign that did not ask for them.
	Events []Event `json:"events,omitempty"`
	// EventCount is how many there were, kept or not.
	EventCount int `json:"event_count"`
	// TraceHash sums up every event and every step.
	TraceHash   uint64       `json:"trace_hash"`
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`

	Steps int `json:"steps"`
	// Virtual is how far the clock went, Elapsed what it took in real time.
	Virtual time.Duration `json:"virtual"`
	Elapsed time.Duration `json:"elapsed"`

	// Violations are what the oracles object to, the first first. A run ends at the first
	// violation of safety.
	Violations []Violation `json:"violations,omitempty"`
	// Alarms are messages or workers that did not get on in the calm phase (L1–L5).
	Alarms []Alarm `json:"alarms,omitempty"`
	// Hits counts the items of the must-hit list that came up, and the spec's own
	// Sometimes, by name.
	Hits map[string]int `json:"hits,omitempty"`

	Jepsen     TotalQueue `json:"jepsen"`
	Categories Categories `json:"categories"`

	Replay Verdict `json:"replay"`

	// Err is why the run could not be carried out at all: a bad plan, a spec that
	// panicked in Build, a limit reached before the end. Empty: it ended by itself.
	Err string `json:"error,omitempty"`
	// Waits says who waited for what when a limit was reached.
	Waits []string `json:"waits,omitempty"`

	cover *Coverage // for a campaign that asked for it
}

// Failed reports whether the run found something: a violation, an alarm, or an error.
func (r *Result) Failed() bool { return len(r.Violations) > 0 || len(r.Alarms) > 0 || r.Err != "" }

// Signature is what a shrinker must keep: that of the first violation, else of the
// first alarm, else of the error. Empty for a run that passed.
func (r *Result) Signature() Signature {
	switch {
	case len(r.Violations) > 0:
		return r.Violations[0].Signature
	case len(r.Alarms) > 0:
		return r.Alarms[0].Signature
	case r.Err != "":
		return Signature{Kind: "error"}
	}
	return Signature{}
}

// Checkpoint is the hash of the run up to an event, every [CheckpointEvents].
type Checkpoint struct {
	Event int    `json:"event"`
	Hash  uint64 `json:"hash"`
}

// Signature tells one bug from another. It holds roles and no names of messages,
// workers or tags, so it is the same for all runs that meet the same bug.
type Signature struct {
	// Kind is the family: safety, liveness, user, lockstep, crash, error.
	Kind string `json:"kind"`
	// Invariant is the number of SIMULATION 1.3, such as I7 or L2, or the name of the
	// user's oracle.
	Invariant string `json:"invariant,omitempty"`
	// Roles says who took part and how: "settle ack", "grant after expire".
	Roles string `json:"roles,omitempty"`
}

func (s Signature) String() string {
	if s == (Signature{}) {
		return "passed"
	}
	return fmt.Sprintf("%s/%s/%s", s.Kind, s.Invariant, s.Roles)
}

// IsZero reports whether there is nothing wrong.
func (s Signature) IsZero() bool { return s == Signature{} }

// Violation is one objection of an oracle.
type Violation struct {
	Signature
	// Event is the number of the event at which it was seen.
	Event int           `json:"event"`
	At    time.Duration `json:"at"`
	// Text says what was wrong, with names and numbers.
	Text string `json:"text"`
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s at %v, event %d: %s", v.Invariant, v.Roles, v.At, v.Event, v.Text)
}

// Alarm is a lack of progress in the calm phase, and why there was none (L6).
type Alarm struct {
	Signature
	Event   int           `json:"event"`
	At      time.Duration `json:"at"`
	Message string        `json:"message,omitempty"`
	Queue   string        `json:"queue,omitempty"`
	// Reason says why it could not go on, as far as that is known.
	Reason string `json:"reason"`
}

func (a Alarm) String() string {
	return fmt.Sprintf("%s: %s of %s at %v: %s", a.Invariant, a.Message, a.Queue, a.At, a.Reason)
}

// Verdict is what running a plan twice has shown.
type Verdict struct {
	// Runs is how often it was run; below 2 nothing is known.
	Runs int `json:"runs"`
	// Exact: the hashes agree.
	Exact bool `json:"exact"`
	// BestEffort: the mode of a handler promises no exact replay; Why says what was seen.
	BestEffort bool   `json:"best_effort,omitempty"`
	Why        string `json:"why,omitempty"`
	// FirstDifference is the number of the first event that differs; 0 with Runs ≥ 2
	// and not Exact means that the events agree and only the steps between them differ.
	FirstDifference int    `json:"first_difference,omitempty"`
	First           string `json:"first,omitempty"`
	Second          string `json:"second,omitempty"`
}

func (v Verdict) String() string {
	switch {
	case v.Runs < 2:
		return "replay: not tried"
	case v.Exact:
		return "replay: exact"
	case v.FirstDifference == 0:
		return "replay: same events, other steps"
	}
	s := fmt.Sprintf("replay: differs at event %d: %q, then %q", v.FirstDifference, v.First, v.Second)
	if v.BestEffort {
		s += " (best effort: " + v.Why + ")"
	}
	return s
}

// Categories are the counts of SIMULATION 1.2. Those in the first group are
// violations when they are not zero; those in the second are facts of life.
type Categories struct {
	Lost             int `json:"lost"`
	Unexpected       int `json:"unexpected"`
	DuplicateIllegal int `json:"duplicate_illegal"`
	Resurrected      int `json:"resurrected"`
	Premature        int `json:"premature"`
	Stuck            int `json:"stuck"`
	Overdelivered    int `json:"overdelivered"`
	PhantomSettle    int `json:"phantom_settle"`
	DeadUnannounced  int `json:"dead_unannounced"`
	DeadTwice        int `json:"dead_twice"`
	AbortedDelivery  int `json:"aborted_delivery"`

	LostByModel    int `json:"lost_by_model"`
	Recovered      int `json:"recovered"`
	DuplicateLegal int `json:"duplicate_legal"`
	LateAcks       int `json:"late_acks"`
}
