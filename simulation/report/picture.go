package report

import (
	"time"

	"github.com/postroom/postroom/simulation"
)

// state is where a message is (SIMULATION 1.3); purged, deleted and closed are one.
type state uint8

// The states, in the order of a message's life.
const (
	delayed state = iota
	ready
	leased
	acked
	dead
	dropped
	states
)

var stateNames = [states]string{"delayed", "ready", "leased", "acked", "dead", "dropped"}

// ending is how a lease ended. The names are classes of the style sheet, too.
type ending string

const (
	stillRuns ending = "running"
	byAck     ending = "acked"
	byFailure ending = "failed" // nack or reject
	byRelease ending = "released"
	byExpiry  ending = "expired"
	byTaking  ending = "taken" // its holder is gone
	byDrop    ending = "dropped"
)

// picture is a run as it is to be drawn.
//
// Every event has a lane of both kinds. Lane 0 is for the events that are about no
// worker, or about no message; it is there even when there are none.
type picture struct {
	Events   []eventNote `json:"events"`
	Workers  []lane      `json:"workers"`
	Messages []lane      `json:"messages"`

	Bars  []bar  `json:"bars"`
	Waits []wait `json:"waits"`
	Downs []down `json:"downs"`
	Marks []mark `json:"marks"`

	Changes []change      `json:"changes"`
	Counts  []count       `json:"counts"`
	States  []string      `json:"states"`
	End     time.Duration `json:"end"`
	// ByOrder: most of the time nothing happens, so one step per event is drawn first.
	ByOrder bool `json:"by_order"`
	// ManyQueues: a message is named with its queue.
	ManyQueues bool `json:"many_queues,omitempty"`
}

// eventNote is an event and where it is drawn.
type eventNote struct {
	simulation.Event
	Place place `json:"place"`
}

// place is a lane and a row of it, of either kind.
type place struct {
	Worker     int `json:"w"`
	WorkerRow  int `json:"wr,omitempty"`
	Message    int `json:"m"`
	MessageRow int `json:"mr,omitempty"`
}

// lane is a line of the picture. Leases that run at the same time stand in rows; only
// lane 0 may have none.
type lane struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
}

// bar is one lease: solid from its grant to its end, thin on to the deadline that it
// then no longer needed, hatched from its end for as long as its handler still worked.
type bar struct {
	Place    place         `json:"place"`
	Grant    int           `json:"grant"` // number of the event
	From     time.Duration `json:"from"`
	Over     int           `json:"over,omitempty"` // event that ended the lease; 0: none did
	To       time.Duration `json:"to"`
	Deadline time.Duration `json:"deadline,omitempty"` // as last touched; 0: none
	Ending   ending        `json:"ending"`
	Touches  []int         `json:"touches,omitempty"` // events
	// Zombie is when work without a lease ended, 0: there was none. ZombieOver is the
	// event that ended it, 0: none did.
	Zombie     time.Duration `json:"zombie,omitempty"`
	ZombieOver int           `json:"zombie_over,omitempty"`

	Message    string `json:"message"`
	Worker     string `json:"worker"`
	Deliveries int    `json:"deliveries,omitempty"`
	Attempt    int    `json:"attempt,omitempty"`
	Tag        uint64 `json:"tag,omitempty"`
}

// wait is a delay of a message: its own, or the backoff after a failure.
type wait struct {
	Message   int           `json:"m"`
	Event     int           `json:"event"`
	From      time.Duration `json:"from"`
	Over      int           `json:"over,omitempty"`
	To        time.Duration `json:"to"`
	IsBackoff bool          `json:"backoff,omitempty"`
}

// down is a time in which a worker takes nothing: crashed, paused or detached.
type down struct {
	Worker int           `json:"w"`
	Event  int           `json:"event"`
	From   time.Duration `json:"from"`
	Over   int           `json:"over,omitempty"`
	To     time.Duration `json:"to"`
	Why    string        `json:"why"`
}

// mark is a sign on the lanes of its event.
type mark struct {
	Event int    `json:"event"`
	Shape string `json:"shape"`
}

// change is what one event did to one line of the ledger.
type change struct {
	Event    int           `json:"event"`
	Message  int           `json:"m"` // lane
	State    state         `json:"state"`
	Holder   string        `json:"holder,omitempty"`
	Attempt  int           `json:"attempt,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"` // of the lease, or when a delay is over
	Tag      uint64        `json:"tag,omitempty"`
	Note     string        `json:"note,omitempty"` // why dead, or dropped
}

// count is how many messages are in each state from an event on. Ended ones stay
// counted, and a redriven one counts anew, so that the sum is what was accepted
// (SPEC R10).
type count struct {
	Event int           `json:"event"`
	At    time.Duration `json:"at"`
	In    [states]int   `json:"in"`
}

// markShapes says which events have a sign of their own, and what it means. A stale
// settle, a backoff and an actor's crash are decided where they are met.
var markShapes = map[simulation.Kind]string{
	simulation.KindCrash:     "crash",
	simulation.KindActor:     "crash",
	simulation.KindRestart:   "restart",
	simulation.KindStale:     "stale",
	simulation.KindDead:      "dead",
	simulation.KindFault:     "fault",
	simulation.KindHang:      "hang",
	simulation.KindEffect:    "effect",
	simulation.KindAccepted:  "accepted",
	simulation.KindRefused:   "refused",
	simulation.KindUnknown:   "refused",
	simulation.KindDropped:   "refused",
	simulation.KindPurged:    "refused",
	simulation.KindRedrive:   "redrive",
	simulation.KindCalm:      "calm",
	simulation.KindViolation: "violation",
}

func (s state) String() string { return stateNames[s] }
