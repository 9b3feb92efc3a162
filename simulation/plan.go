package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PlanFormat is the version of [Plan]'s meaning. A plan of another version is
// refused rather than half understood.
const PlanFormat = 1

// Plan is everything that decides a run: what was drawn is written out, so that a
// part can be taken away and the rest stays what it was. It is made by [Spec.Run]
// and carried out by [Spec.Replay]; a shrinker takes elements away in between.
type Plan struct {
	Format int    `json:"format"`
	Spec   string `json:"spec"`
	// Seed is what keyed draws that are not written out still depend on: the length of
	// a script's work, jitter, generated bodies.
	Seed uint64 `json:"seed"`
	// Strategy is how the schedule was found. A replay takes it from Decisions.
	Strategy Strategy `json:"strategy"`

	// Settings is the swarm configuration as drawn, in the order of first use.
	Settings []Setting `json:"settings,omitempty"`
	// Items is the workload: what each producer puts and when.
	Items []Item `json:"items,omitempty"`
	// Faults is what goes wrong.
	Faults []Fault `json:"faults,omitempty"`
	// Decisions holds the picks of the scheduler that are not the default, in
	// order of Number. Without any, whoever is ready longest goes first and every turn
	// is one message.
	Decisions []Decision `json:"decisions,omitempty"`
}

// Setting is one drawn part of the configuration, by the name under which the spec
// asked for it.
type Setting struct {
	Name string `json:"name"`
	// Value is the index of the choice, or a number such as that of workers; Least is
	// the simplest one there is, Most the largest.
	Value int64 `json:"value"`
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
	// Text is the value in words.
	Text string `json:"text,omitempty"`
}

// Item is one put of the workload.
type Item struct {
	// Message is its name, m1, m2, … over all producers: what anchors refer to.
	Message  string `json:"message"`
	Producer string `json:"producer"`
	Queue    string `json:"queue"`
	// Number counts the producer's items from 0: its envelope is drawn by it, so an
	// item stays what it is when others are taken away.
	Number int           `json:"number"`
	At     time.Duration `json:"at"`
}

// FaultKind is what goes wrong. The set is closed.
type FaultKind uint8

// The kinds of fault. Those of a worker strike the one that the anchor's event is
// about, unless Fault.Worker names another; For says how long, where that matters.
const (
	noFault FaultKind = iota

	FaultCrash      // the handler panics at the anchor's point; its supervisor restarts the worker
	FaultKill       // the worker's process is gone: nothing of it is heard again until it is started anew after For
	FaultHang       // the handler stops for For (0: until its context ends or the calm phase), whatever its context says
	FaultZombie     // it hangs until its lease is over, and then goes on and acks
	FaultSlow       // the rest of its work takes For longer
	FaultNack       // it returns an error
	FaultReject     // it returns a permanent error
	FaultDoubleAck  // it acks twice
	FaultAckLate    // it acks at exactly the instant of its deadline
	FaultExtendLate // it touches at exactly the instant of its deadline
	FaultIgnore     // it does not look at its context from here on
	FaultPause      // the worker takes nothing new for For
	FaultRestart    // the worker is cancelled and starts again as a new incarnation
	FaultRolling    // all workers are restarted one after the other, For apart
	FaultScaleZero  // all workers are cancelled, and start again after For
	FaultNackStorm  // every handler returns an error for For
	FaultReorder    // it keeps its ack back until Count later ones were made

	FaultActor      // the broker's actor panics at the anchor's point: Point
	FaultPutUnknown // the producer's put loses its answer; it repeats with the same id
	FaultPurge      // the queue is purged
	FaultDelete     // the queue is deleted, and declared again after For
	FaultQueuePause // the queue is paused for For
	FaultRedrive    // its dead letters are redriven
	FaultDrain      // the queue is drained for For, and resumed
	FaultDuplicate  // the item is put once more
	faults
)

var faultNames = [faults]string{
	"none", "crash", "kill", "hang", "zombie", "slow", "nack", "reject", "double-ack", "ack-late", "extend-late", "ignore",
	"pause", "restart", "rolling-restart", "scale-zero", "nack-storm", "reorder",
	"actor-crash", "put-unknown", "purge", "delete", "queue-pause", "redrive", "drain", "duplicate",
}

func (k FaultKind) String() string {
	if k < faults {
		return faultNames[k]
	}
	return fmt.Sprintf("fault %d", uint8(k))
}

// FaultKinds lists all kinds of fault.
func FaultKinds() []FaultKind {
	all := make([]FaultKind, 0, faults-1)
	for k := FaultCrash; k < faults; k++ {
		all = append(all, k)
	}
	return all
}

// ParseFaultKind is the reverse of String.
func ParseFaultKind(name string) (FaultKind, error) {
	if i := slices.Index(faultNames[1:], name); i >= 0 {
		return FaultKind(i + 1), nil
	}
	return noFault, fmt.Errorf("%q is no kind of fault; they are %v", name, faultNames[1:])
}

// MarshalText implements [encoding.TextMarshaler].
func (k FaultKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *FaultKind) UnmarshalText(text []byte) (err error) {
	*k, err = ParseFaultKind(string(text))
	return err
}

// Fault is one thing that goes wrong, where its anchor says.
type Fault struct {
	Kind   FaultKind `json:"kind"`
	Anchor Anchor    `json:"anchor"`
	// Worker is who is struck when that is not the worker of the anchor's event.
	Worker string `json:"worker,omitempty"`
	// Queue is which queue is struck when that is not the anchor's.
	Queue string        `json:"queue,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	Count int           `json:"count,omitempty"`
	// Point is where a broker's actor crashes, as its probe names it: "after *actors.Put",
	// or the actor's first word for any of its messages: queue, router, consumer,
	// consumers, queues, redrive. It crashes there at the first time after the anchor, or
	// when it has come through there Count times.
	Point string `json:"point,omitempty"`
}

// strikesAt reports whether the fault is for actors that come to this point, such as
// "queue mail after *actors.Put".
func (f *Fault) strikesAt(point string) bool {
	return f.Kind == FaultActor && (strings.HasSuffix(point, " "+f.Point) || strings.HasPrefix(point, f.Point+" "))
}

func (f Fault) String() string {
	s := "at " + f.Anchor.String() + " " + f.Kind.String()
	if f.Worker != "" {
		s += " worker=" + f.Worker
	}
	if f.Queue != "" {
		s += " queue=" + f.Queue
	}
	if f.For != 0 {
		s += " for=" + f.For.String()
	}
	if f.Count != 0 {
		s += fmt.Sprintf(" count=%d", f.Count)
	}
	if f.Point != "" {
		s += fmt.Sprintf(" point=%q", f.Point)
	}
	return s
}

// Anchor says when: at the Nth event of a kind that matches what is set, or at an
// instant. Anchors to events keep their meaning when the rest of a plan changes.
//
//	grant m1#2           the 2nd lease of m1
//	effect m1            after the first effect of m1, before the ack
//	start worker=w-1#3   the 3rd time that w-1 begins to work
//	+1.5s                the instant
type Anchor struct {
	// Event is the kind; none: At counts.
	Event Kind `json:"event,omitempty"`
	// Message, Worker, Queue and Verb must match where they are set.
	Message string `json:"message,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Queue   string `json:"queue,omitempty"`
	Verb    string `json:"verb,omitempty"`
	// Nth is which of the matching events, from 1. 0 means 1.
	Nth int `json:"nth,omitempty"`
	// At is the instant since [Epoch], without Event.
	At time.Duration `json:"at,omitempty"`
}

func (a Anchor) String() string {
	if a.Event == noEvent {
		return "+" + a.At.String()
	}
	parts := []string{a.Event.String()}
	nth := ""
	if a.Nth > 1 {
		nth = fmt.Sprintf("#%d", a.Nth)
	}
	if a.Message != "" {
		parts = append(parts, a.Message+nth)
		nth = ""
	}
	for _, part := range [...][2]string{{"worker", a.Worker}, {"queue", a.Queue}, {"verb", a.Verb}} {
		if part[1] != "" {
			parts = append(parts, part[0]+"="+part[1])
		}
	}
	return strings.Join(parts, " ") + nth
}

// Matches reports whether e is an event that the anchor counts.
func (a Anchor) Matches(e *Event) bool {
	return a.Event == e.Kind && a.Event != noEvent &&
		(a.Message == "" || a.Message == e.Message) &&
		(a.Worker == "" || a.Worker == e.Worker) &&
		(a.Queue == "" || a.Queue == e.Queue) &&
		(a.Verb == "" || a.Verb == e.Verb)
}

// Decision is one pick of the scheduler that was not the default one.
type Decision struct {
	// Number counts the points of decision from 0. Only points with a choice count.
	Number int `json:"n"`
	// Pick is which of the possibilities; 0 is the default and never written. One that
	// is too large for the possibilities there are means the last of them.
	Pick int `json:"pick"`
}

// ErrPlan is what every fault of a plan itself wraps.
var ErrPlan = errors.New("plan cannot be carried out")

// Validate says what keeps a plan from being carried out, or nil. Errors wrap [ErrPlan].
func (p *Plan) Validate() error {
	if p.Format != PlanFormat {
		return fmt.Errorf("%w: it is of format %d, this is %d", ErrPlan, p.Format, PlanFormat)
	}
	for i, f := range p.Faults {
		switch {
		case f.Kind == noFault || f.Kind >= faults:
			return fmt.Errorf("%w: fault %d has no kind", ErrPlan, i)
		case f.For < 0 || f.Count < 0 || f.Anchor.Nth < 0 || f.Anchor.At < 0:
			return fmt.Errorf("%w: fault %d (%v) has a negative number", ErrPlan, i, f)
		}
	}
	for i, it := range p.Items {
		if it.Message == "" || it.Queue == "" || it.At < 0 || it.Number < 0 {
			return fmt.Errorf("%w: item %d of %d lacks a message, a queue or has a negative number", ErrPlan, i, len(p.Items))
		}
	}
	last := -1
	for _, d := range p.Decisions {
		if d.Number <= last || d.Pick <= 0 {
			return fmt.Errorf("%w: decision %d comes after %d, picks %d", ErrPlan, d.Number, last, d.Pick)
		}
		last = d.Number
	}
	return nil
}

// Clone returns a plan that shares nothing with p.
func (p Plan) Clone() Plan {
	p.Settings = slices.Clone(p.Settings)
	p.Items = slices.Clone(p.Items)
	p.Faults = slices.Clone(p.Faults)
	p.Decisions = slices.Clone(p.Decisions)
	return p
}
