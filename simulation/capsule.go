package simulation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

// CapsuleFormat is the version of the file. One of another version is refused.
const CapsuleFormat = 1

// Capsule is a failing run to keep: everything that replays it, and what it showed.
// As a file it is JSON lines, an empty line, and the scenario for people.
//
//	{"capsule":1,"module":"v0.3.0","go":"go1.26.0","arch":"amd64","spec":"mailer",…}
//	{"setting":{"name":"lease","value":1,"least":0,"most":2,"text":"500ms"}}
//	{"item":{"message":"m1",…}}
//	{"fault":{"kind":"crash",…}}
//	{"decisions":[[12,3],[40,1]]}
//	{"violation":{"kind":"safety","invariant":"I7","roles":"grant during a lease","text":"…"}}
//	{"trace":{"hash":"1234","events":2048,"checkpoints":[[1000,"77"],[2000,"78"]]}}
//
//	spec   mailer seed=7
//	…
type Capsule struct {
	// Module, Go and Arch are of who made it: equal traces are promised only for equal ones.
	Module, Go, Arch string
	// Plan is what was run, fully expanded.
	Plan Plan
	// Signature and Text are of the first violation or alarm.
	Signature Signature
	Text      string

	TraceHash   uint64
	Events      int
	Checkpoints []Checkpoint
	// Trace is the short trace, below the line of the scenario.
	Trace string
}

// CapsuleVersionError refuses a capsule of another version.
type CapsuleVersionError struct {
	Found, Known int
	// What has that version: capsule, or plan.
	What string
}

func (e *CapsuleVersionError) Error() string {
	return fmt.Sprintf("capsule: %s format %d, this is format %d", e.What, e.Found, e.Known)
}

// Hint says what can be done about it.
func (e *CapsuleVersionError) Hint() string {
	return "replay it with the version of Postroom that made it, or run the scenario at its end"
}

// CapsuleError says what is wrong with a file that is to be a capsule.
type CapsuleError struct {
	// Line counts from 1.
	Line    int
	Problem string
	// Reason is what was wrong with the JSON or the scenario, if it was that.
	Reason error
}

func (e *CapsuleError) Error() string {
	s := fmt.Sprintf("capsule: line %d: %s", e.Line, e.Problem)
	if e.Reason != nil {
		s += ": " + e.Reason.Error()
	}
	return s
}

// Unwrap returns the reason.
func (e *CapsuleError) Unwrap() error { return e.Reason }

// CapsuleOf is the capsule of a run. Its events should have been kept; without them
// the capsule has no trace to read.
func CapsuleOf(r *Result) *Capsule {
	c := &Capsule{
		Module: moduleVersion(), Go: runtime.Version(), Arch: runtime.GOARCH, Plan: r.Plan.Clone(), Signature: r.Signature(),
		TraceHash: r.TraceHash, Events: r.EventCount, Checkpoints: r.Checkpoints,
	}
	switch {
	case len(r.Violations) > 0:
		c.Text = r.Violations[0].Text
	case len(r.Alarms) > 0:
		c.Text = r.Alarms[0].Reason
	default:
		c.Text = r.Err
	}
	if len(r.Events) > 0 {
		c.Trace = ShortTrace(r)
	}
	return c
}

// moduleVersion is the version of Postroom in this program.
func moduleVersion() string {
	const path = "github.com/postroom/postroom"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == path && info.Main.Version != "" {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == path {
			return d.Version
		}
	}
	return "(devel)"
}

// Scenario is the capsule as people read it.
func (c *Capsule) Scenario() *Scenario { return &Scenario{Plan: c.Plan.Clone(), Want: c.Trace} }

// ---- the file ----

// capsuleLine is one JSON line; only one of its parts is set, but for the header's.
type capsuleLine struct {
	Capsule  int      `json:"capsule,omitempty"`
	PlanIs   int      `json:"plan,omitempty"`
	Module   string   `json:"module,omitempty"`
	Go       string   `json:"go,omitempty"`
	Arch     string   `json:"arch,omitempty"`
	Spec     string   `json:"spec,omitempty"`
	Seed     uint64   `json:"seed,omitempty,string"`
	Strategy Strategy `json:"strategy,omitempty"`

	Setting   *Setting          `json:"setting,omitempty"`
	Item      *Item             `json:"item,omitempty"`
	Fault     *Fault            `json:"fault,omitempty"`
	Decisions [][2]int          `json:"decisions,omitempty"`
	Violation *capsuleViolation `json:"violation,omitempty"`
	Trace     *capsuleTrace     `json:"trace,omitempty"`
}

type capsuleViolation struct {
	Signature
	Text string `json:"text,omitempty"`
}

// capsuleTrace has hashes as text: a number of 64 bits is too large for JSON elsewhere.
type capsuleTrace struct {
	Hash        uint64              `json:"hash,string"`
	Events      int                 `json:"events"`
	Checkpoints []capsuleCheckpoint `json:"checkpoints,omitempty"`
}

type capsuleCheckpoint struct {
	Event int    `json:"event"`
	Hash  uint64 `json:"hash,string"`
}

// ErrOwnWorld refuses to write a capsule of a scenario that has a world of its own: the
// plan alone would not replay it, and its text does.
var ErrOwnWorld = errors.New("capsule: the run is of a scenario with a world of its own; keep that text instead")

// Write writes the file. Errors: [ErrOwnWorld], and what writing to it says.
func (c *Capsule) Write(to io.Writer) error {
	if c.Plan.Spec == ScenarioSpec {
		return ErrOwnWorld
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	var failed error
	line := func(l capsuleLine) {
		if err := encoder.Encode(l); err != nil && failed == nil {
			failed = err
		}
	}
	p := &c.Plan
	line(capsuleLine{Capsule: CapsuleFormat, PlanIs: p.Format, Module: c.Module, Go: c.Go, Arch: c.Arch, Spec: p.Spec, Seed: p.Seed, Strategy: p.Strategy})
	for i := range p.Settings {
		line(capsuleLine{Setting: &p.Settings[i]})
	}
	for i := range p.Items {
		line(capsuleLine{Item: &p.Items[i]})
	}
	for i := range p.Faults {
		line(capsuleLine{Fault: &p.Faults[i]})
	}
	if len(p.Decisions) > 0 {
		log := make([][2]int, len(p.Decisions))
		for i, d := range p.Decisions {
			log[i] = [2]int{d.Number, d.Pick}
		}
		line(capsuleLine{Decisions: log})
	}
	line(capsuleLine{Violation: &capsuleViolation{c.Signature, c.Text}})
	trace := &capsuleTrace{Hash: c.TraceHash, Events: c.Events}
	for _, p := range c.Checkpoints {
		trace.Checkpoints = append(trace.Checkpoints, capsuleCheckpoint(p))
	}
	line(capsuleLine{Trace: trace})
	if failed != nil {
		return failed
	}
	b.WriteByte('\n')
	b.WriteString(FormatScenario(c.Scenario()))
	_, err := to.Write(b.Bytes())
	return err
}

// ReadCapsule reads a file of [Capsule.Write]. Errors: [*CapsuleVersionError] for one
// of another version, [*CapsuleError] for one that is damaged, or whose scenario was
// edited and is no longer that of its plan.
func ReadCapsule(from io.Reader) (*Capsule, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	head, tail, found := strings.Cut(string(text), "\n\n")
	c := &Capsule{Plan: Plan{}}
	n, hasTrace, hasViolation := 0, false, false
	scanner := bufio.NewScanner(strings.NewReader(head))
	scanner.Buffer(nil, 1<<26)
	for scanner.Scan() {
		n++
		var l capsuleLine
		decoder := json.NewDecoder(bytes.NewReader(scanner.Bytes()))
		if n > 1 { // the first may be of a later version, with more in it
			decoder.DisallowUnknownFields()
		}
		if err := decoder.Decode(&l); err != nil {
			return nil, &CapsuleError{n, "not a line of a capsule", err}
		}
		if n == 1 {
			if l.Capsule == 0 {
				return nil, &CapsuleError{n, "not the first line of a capsule", nil}
			}
			if l.Capsule != CapsuleFormat {
				return nil, &CapsuleVersionError{l.Capsule, CapsuleFormat, "capsule"}
			}
			if l.PlanIs != PlanFormat {
				return nil, &CapsuleVersionError{l.PlanIs, PlanFormat, "plan"}
			}
			c.Module, c.Go, c.Arch = l.Module, l.Go, l.Arch
			c.Plan.Format, c.Plan.Spec, c.Plan.Seed, c.Plan.Strategy = l.PlanIs, l.Spec, l.Seed, l.Strategy
			continue
		}
		hasTrace, hasViolation = hasTrace || l.Trace != nil, hasViolation || l.Violation != nil
		if !c.take(&l) {
			return nil, &CapsuleError{n, "a line that says nothing", nil}
		}
	}
	switch {
	case scanner.Err() != nil:
		return nil, &CapsuleError{n + 1, "unreadable", scanner.Err()}
	case n == 0:
		return nil, &CapsuleError{1, "empty", nil}
	case !found || !hasTrace || !hasViolation:
		return nil, &CapsuleError{n + 1, "cut short: violation, trace or scenario is missing", nil}
	}
	if err := c.Plan.Validate(); err != nil {
		return nil, &CapsuleError{n, "its plan", err}
	}
	s, err := ParseScenario(tail)
	if err != nil {
		var at *ScenarioError
		if errors.As(err, &at) {
			return nil, &CapsuleError{n + 1 + at.Line, "its scenario", err}
		}
		return nil, &CapsuleError{n + 2, "its scenario", err}
	}
	c.Trace, s.Want = s.Want, ""
	if FormatScenario(s) != FormatScenario(&Scenario{Plan: c.Plan}) {
		return nil, &CapsuleError{n + 2, "the scenario is not that of the plan; to run an edited one, keep it in a file of its own", nil}
	}
	return c, nil
}

// take puts one line's part where it belongs.
func (c *Capsule) take(l *capsuleLine) bool {
	switch {
	case l.Setting != nil:
		c.Plan.Settings = append(c.Plan.Settings, *l.Setting)
	case l.Item != nil:
		c.Plan.Items = append(c.Plan.Items, *l.Item)
	case l.Fault != nil:
		c.Plan.Faults = append(c.Plan.Faults, *l.Fault)
	case l.Decisions != nil:
		for _, d := range l.Decisions {
			c.Plan.Decisions = append(c.Plan.Decisions, Decision{d[0], d[1]})
		}
	case l.Violation != nil:
		c.Signature, c.Text = l.Violation.Signature, l.Violation.Text
	case l.Trace != nil:
		c.TraceHash, c.Events = l.Trace.Hash, l.Trace.Events
		for _, p := range l.Trace.Checkpoints {
			c.Checkpoints = append(c.Checkpoints, Checkpoint(p))
		}
	default:
		return false
	}
	return true
}

// ---- replay ----

// Outcome is what a replay of a capsule has shown, the most trustworthy first.
type Outcome uint8

// The outcomes.
const (
	// Exact: the same trace, byte for byte.
	Exact Outcome = iota + 1
	// SameSignature: another trace, as after a change of the code, and the same violation.
	SameSignature
	// BySeed: the plan does not show it any more; what is drawn from its seed now does.
	BySeed
	// NoLongerApplies: neither shows it. The bug may be fixed, or hidden: nothing is
	// known, and that is never to be read as a pass.
	NoLongerApplies
)

func (o Outcome) String() string {
	if o < Exact || o > NoLongerApplies {
		return fmt.Sprintf("outcome %d", uint8(o))
	}
	return [...]string{"exact", "same signature", "same signature by seed", "capsule no longer applies"}[o-1]
}

// CapsuleReplay is a replay and what it has shown.
type CapsuleReplay struct {
	Outcome Outcome
	// Why says more in words.
	Why string
	// Result is the run that was judged, its Replay the comparison of two of them.
	Result Result
}

func (c *CapsuleReplay) String() string {
	if c.Why == "" {
		return "replay: " + c.Outcome.String()
	}
	return "replay: " + c.Outcome.String() + ": " + c.Why
}

// ReplayCapsule replays a capsule, twice unless the first run is exact. A spec that the
// capsule is not of, and a plan that it refuses, are [NoLongerApplies].
func (s Spec) ReplayCapsule(c *Capsule) *CapsuleReplay {
	r := s.Replay(c.Plan)
	if r.TraceHash == c.TraceHash && r.Signature() == c.Signature {
		r.Replay = Verdict{Runs: 2, Exact: true, BestEffort: r.Replay.BestEffort, Why: r.Replay.Why}
		return &CapsuleReplay{Outcome: Exact, Result: r}
	}
	again := s.Replay(c.Plan)
	r.Replay = compareRuns(&r, &again)
	differs := c.differs(&r)
	if !r.Replay.Exact {
		differs += "; " + r.Replay.String()
	}
	if r.Signature() == c.Signature {
		return &CapsuleReplay{SameSignature, differs, r}
	}
	why := "it passes now"
	switch {
	case r.Err != "":
		why = r.Err
	case r.Failed():
		why = fmt.Sprintf("it fails with %v now", r.Signature())
	}
	if c.Plan.Spec == s.Name && r.Err == "" {
		if seeded := s.Run(c.Plan.Seed); seeded.Signature() == c.Signature {
			return &CapsuleReplay{BySeed, "its plan: " + why, seeded}
		}
	}
	return &CapsuleReplay{NoLongerApplies, fmt.Sprintf("it showed %v; %s; %s", c.Signature, why, differs), r}
}

// differs says where the trace leaves that of the capsule, as far as that is known.
func (c *Capsule) differs(r *Result) string {
	var s string
	agreed := 0
	for i, p := range c.Checkpoints {
		if i >= len(r.Checkpoints) || r.Checkpoints[i] != p {
			s = fmt.Sprintf("the trace differs between events %d and %d", agreed, p.Event)
			break
		}
		agreed = p.Event
	}
	if s == "" {
		s = fmt.Sprintf("the trace differs behind event %d", agreed)
	}
	if made := c.Module + " " + c.Go + " " + c.Arch; made != moduleVersion()+" "+runtime.Version()+" "+runtime.GOARCH {
		s += "; it was made with " + made
	}
	return s
}
