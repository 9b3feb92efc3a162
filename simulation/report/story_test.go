package report

import (
	"time"

	"github.com/postroom/postroom/simulation"
)

// story builds a result event by event.
type story struct {
	result simulation.Result
	at     time.Duration
}

// tell adds an event at an instant in milliseconds and returns its number.
func (s *story) tell(millis int, e simulation.Event) int {
	s.at = time.Duration(millis) * time.Millisecond
	e.Number, e.At = len(s.result.Events)+1, s.at
	s.result.Events = append(s.result.Events, e)
	s.result.EventCount = e.Number
	s.result.Virtual = s.at
	return e.Number
}

// about is an event about a message.
func about(k simulation.Kind, message string) simulation.Event {
	return simulation.Event{Kind: k, Queue: "mail", Message: message}
}

// held is an event about a lease.
func held(k simulation.Kind, message, worker string, tag uint64, delivery int) simulation.Event {
	e := about(k, message)
	e.Worker, e.Incarnation, e.Consumer, e.Tag, e.Attempt, e.Deliveries = worker, 1, "ctag-"+worker, tag, delivery, delivery
	return e
}

func until(e simulation.Event, millis int) simulation.Event {
	e.Deadline = time.Duration(millis) * time.Millisecond
	return e
}

func because(e simulation.Event, cause int) simulation.Event {
	e.Cause = cause
	return e
}

func verb(e simulation.Event, v string) simulation.Event {
	e.Verb = v
	return e
}

func reason(e simulation.Event, r string) simulation.Event {
	e.Reason = r
	return e
}

// zombieStory: w-1 hangs on m1 until after its lease, w-2 does it meanwhile, and the late
// ack is stale. Then m2 crashes w-2, backs off, and dies; m3 is touched, and still held at the
// end, at which an oracle objects.
func zombieStory() simulation.Result {
	s := &story{}
	s.result.Plan = simulation.Plan{Spec: "mailer", Seed: 7}
	s.tell(0, simulation.Event{Kind: simulation.KindAttach, Queue: "mail", Worker: "w-1", Incarnation: 1, Consumer: "ctag-w-1"})
	s.tell(0, simulation.Event{Kind: simulation.KindAttach, Queue: "mail", Worker: "w-2", Incarnation: 1, Consumer: "ctag-w-2"})
	put := s.tell(10, about(simulation.KindPut, "m1"))
	in := s.tell(10, because(about(simulation.KindAccepted, "m1"), put))
	g1 := s.tell(20, because(until(held(simulation.KindGrant, "m1", "w-1", 1, 1), 520), in))
	s.tell(20, because(held(simulation.KindStart, "m1", "w-1", 1, 1), g1))
	s.tell(30, because(held(simulation.KindHang, "m1", "w-1", 1, 1), g1))
	x1 := s.tell(520, because(held(simulation.KindExpire, "m1", "w-1", 1, 1), g1))
	g2 := s.tell(520, because(until(held(simulation.KindGrant, "m1", "w-2", 2, 2), 1020), x1))
	s.tell(520, because(held(simulation.KindStart, "m1", "w-2", 2, 2), g2))
	r2 := s.tell(700, because(held(simulation.KindReturn, "m1", "w-2", 2, 2), g2))
	s.tell(700, because(verb(held(simulation.KindSettle, "m1", "w-2", 2, 2), "ack"), r2))
	r1 := s.tell(800, because(held(simulation.KindReturn, "m1", "w-1", 1, 1), g1))
	stale := reason(verb(about(simulation.KindStale, "m1"), "ack"), "expired")
	stale.Tag = 1
	s.tell(800, because(stale, r1))

	in2 := s.tell(900, until(about(simulation.KindAccepted, "m2"), 950))
	s.tell(950, because(about(simulation.KindReady, "m2"), in2))
	g3 := s.tell(950, because(until(held(simulation.KindGrant, "m2", "w-2", 3, 1), 1450), in2))
	s.tell(950, because(held(simulation.KindStart, "m2", "w-2", 3, 1), g3))
	s.tell(1000, because(held(simulation.KindCrash, "m2", "w-2", 3, 1), g3))
	restart := simulation.Event{Kind: simulation.KindRestart, Queue: "mail", Worker: "w-2", Incarnation: 2}
	s.tell(1100, restart)
	x3 := s.tell(1450, because(until(held(simulation.KindExpire, "m2", "w-2", 3, 1), 1600), g3))
	s.tell(1600, because(about(simulation.KindReady, "m2"), x3))
	again := held(simulation.KindGrant, "m2", "w-2", 4, 2)
	again.Incarnation = 2
	g4 := s.tell(1600, because(until(again, 2100), x3))
	n4 := s.tell(1650, because(verb(held(simulation.KindSettle, "m2", "w-2", 4, 2), "reject"), g4))
	s.tell(1650, because(reason(about(simulation.KindDead, "m2"), "rejected"), n4))

	in3 := s.tell(1700, about(simulation.KindAccepted, "m3"))
	g5 := s.tell(1700, because(until(held(simulation.KindGrant, "m3", "w-1", 5, 1), 2200), in3))
	s.tell(1900, because(until(held(simulation.KindTouch, "m3", "w-1", 5, 1), 2400), g5))
	v := s.tell(2000, because(reason(simulation.Event{Kind: simulation.KindViolation, Detail: "m3 is lent twice"}, "I7 grant during a lease"), g5))
	s.result.Violations = []simulation.Violation{{
		Signature: simulation.Signature{Kind: "safety", Invariant: "I7", Roles: "grant during a lease"},
		Event:     v, At: s.at, Text: "m3 is lent twice",
	}}
	return s.result
}
