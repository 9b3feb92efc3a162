package report

import (
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom/simulation"
)

const ms = time.Millisecond

func barOf(t *testing.T, p *picture, tag uint64) *bar {
	t.Helper()
	for i := range p.Bars {
		if p.Bars[i].Tag == tag {
			return &p.Bars[i]
		}
	}
	t.Fatalf("no bar for tag %d", tag)
	return nil
}

func drawStory(t *testing.T) *picture {
	t.Helper()
	r := zombieStory()
	return draw(&r)
}

func TestALeaseIsABarFromGrantToItsEnd(t *testing.T) {
	p := drawStory(t)
	for _, want := range []struct {
		tag          uint64
		from, to     time.Duration
		deadline     time.Duration
		ending       ending
		zombie       time.Duration
		worker, lane string
	}{
		{tag: 1, from: 20 * ms, to: 520 * ms, deadline: 520 * ms, ending: byExpiry, zombie: 800 * ms, worker: "w-1"},
		{tag: 2, from: 520 * ms, to: 700 * ms, deadline: 1020 * ms, ending: byAck, worker: "w-2"},
		{tag: 3, from: 950 * ms, to: 1450 * ms, deadline: 1450 * ms, ending: byExpiry, worker: "w-2"}, // crashed: no zombie
		{tag: 4, from: 1600 * ms, to: 1650 * ms, deadline: 2100 * ms, ending: byFailure, worker: "w-2"},
		{tag: 5, from: 1700 * ms, to: 2000 * ms, deadline: 2400 * ms, ending: stillRuns, worker: "w-1"}, // touched
	} {
		b := barOf(t, p, want.tag)
		if b.From != want.from || b.To != want.to || b.Deadline != want.deadline || b.Ending != want.ending || b.Zombie != want.zombie {
			t.Errorf("tag %d: %v to %v, deadline %v, %s, zombie until %v; want %+v", want.tag, b.From, b.To, b.Deadline, b.Ending, b.Zombie, want)
		}
		if got := p.Workers[b.Place.Worker].Name; got != want.worker {
			t.Errorf("tag %d is in the lane of %s, want %s", want.tag, got, want.worker)
		}
	}
	if touches := len(barOf(t, p, 5).Touches); touches != 1 {
		t.Errorf("tag 5 shows %d touches, want 1", touches)
	}
}

func TestWorkWithoutALeaseHasARowOfItsOwn(t *testing.T) {
	p := drawStory(t)
	first, second := barOf(t, p, 1), barOf(t, p, 2)
	if first.Place.Message != second.Place.Message || first.Place.MessageRow == second.Place.MessageRow {
		t.Errorf("in the lane of m1 the zombie is in row %d and the second lease in row %d", first.Place.MessageRow, second.Place.MessageRow)
	}
	if rows := p.Messages[first.Place.Message].Rows; rows != 2 {
		t.Errorf("the lane of m1 has %d rows, want 2", rows)
	}
	if rows := p.Workers[first.Place.Worker].Rows; rows != 1 {
		t.Errorf("the lane of w-1 has %d rows, want 1: nothing overlaps there", rows)
	}
}

func TestMarksTellWhatWentWrong(t *testing.T) {
	p := drawStory(t)
	counts := map[string]int{}
	for _, m := range p.Marks {
		counts[m.Shape]++
		if m.Shape == "stale" {
			if lane := p.Workers[p.Events[m.Event-1].Place.Worker].Name; lane != "w-1" {
				t.Errorf("the stale ack is marked at %s, want w-1, whose lease it was", lane)
			}
		}
		if m.Shape == "dead" {
			if lane := p.Workers[p.Events[m.Event-1].Place.Worker].Name; lane != "w-2" {
				t.Errorf("the death is marked at %s, want w-2, which rejected", lane)
			}
		}
	}
	for _, shape := range []string{"crash", "restart", "stale", "backoff", "dead", "hang", "violation"} {
		if counts[shape] != 1 {
			t.Errorf("%d marks of %s, want 1", counts[shape], shape)
		}
	}
	if len(p.Downs) != 1 || p.Downs[0].From != 1000*ms || p.Downs[0].To != 1100*ms || p.Downs[0].Why != "crashed" {
		t.Errorf("downs %+v, want w-2 from 1s to 1.1s", p.Downs)
	}
	if len(p.Waits) != 2 || p.Waits[0].IsBackoff || !p.Waits[1].IsBackoff || p.Waits[1].To != 1600*ms {
		t.Errorf("waits %+v, want the put's delay and the backoff until 1.6s", p.Waits)
	}
}

// What the slider shows: the ledger after each event.
func TestTheLedgerFollowsTheEvents(t *testing.T) {
	p := drawStory(t)
	at := func(event int, message string) change {
		lane := slices.IndexFunc(p.Messages, func(l lane) bool { return l.Name == message })
		var latest change
		for _, c := range p.Changes {
			if c.Event <= event && c.Message == lane {
				latest = c
			}
		}
		return latest
	}
	find := func(k simulation.Kind, message string, nth int) int {
		for _, e := range p.Events {
			if e.Kind == k && e.Message == message {
				if nth--; nth == 0 {
					return e.Number
				}
			}
		}
		t.Fatalf("no %v of %s", k, message)
		return 0
	}
	for _, row := range []struct {
		at      int
		message string
		want    change
	}{
		{find(simulation.KindAccepted, "m1", 1), "m1", change{State: ready}},
		{find(simulation.KindGrant, "m1", 1), "m1", change{State: leased, Holder: "w-1", Attempt: 1, Deadline: 520 * ms, Tag: 1}},
		{find(simulation.KindExpire, "m1", 1), "m1", change{State: ready, Attempt: 1, Note: "expired"}},
		{find(simulation.KindGrant, "m1", 2), "m1", change{State: leased, Holder: "w-2", Attempt: 2, Deadline: 1020 * ms, Tag: 2}},
		{find(simulation.KindStale, "m1", 1), "m1", change{State: acked, Attempt: 2}},
		{find(simulation.KindAccepted, "m2", 1), "m2", change{State: delayed, Deadline: 950 * ms}},
		{find(simulation.KindExpire, "m2", 1), "m2", change{State: delayed, Attempt: 1, Deadline: 1600 * ms, Note: "expired"}},
		{find(simulation.KindGrant, "m2", 2), "m2", change{State: leased, Holder: "w-2 (2)", Attempt: 2, Deadline: 2100 * ms, Tag: 4}},
		{find(simulation.KindSettle, "m2", 1), "m2", change{State: dead, Attempt: 2, Note: "failed"}},
		{find(simulation.KindDead, "m2", 1), "m2", change{State: dead, Attempt: 2, Note: "rejected"}},
		{find(simulation.KindTouch, "m3", 1), "m3", change{State: leased, Holder: "w-1", Attempt: 1, Deadline: 2400 * ms, Tag: 5}},
	} {
		got := at(row.at, row.message)
		got.Event, got.Message = 0, 0
		if got != row.want {
			t.Errorf("after event %d %s is %+v, want %+v", row.at, row.message, got, row.want)
		}
	}
}

func TestEveryAcceptedMessageIsInOneState(t *testing.T) {
	p := drawStory(t)
	accepted := map[int]int{}
	n := 0
	for _, e := range p.Events {
		if e.Kind == simulation.KindAccepted {
			n++
		}
		accepted[e.Number] = n
	}
	for _, c := range p.Counts {
		sum := 0
		for _, in := range c.In {
			if in < 0 {
				t.Errorf("event %d: %v, less than nothing", c.Event, c.In)
			}
			sum += in
		}
		if sum != accepted[c.Event] {
			t.Errorf("event %d: %v sums up to %d, accepted were %d", c.Event, c.In, sum, accepted[c.Event])
		}
	}
	if last := p.Counts[len(p.Counts)-1].In; last != [states]int{leased: 1, acked: 1, dead: 1} {
		t.Errorf("at the end %v, want one leased, acked and dead each", last)
	}
}

// A new generation begins anew, the old one stays counted, and queues are told apart.
func TestARedrivenMessageCountsTwice(t *testing.T) {
	s := &story{}
	s.tell(0, about(simulation.KindAccepted, "m1"))
	s.tell(1, until(held(simulation.KindGrant, "m1", "w-1", 1, 1), 100))
	s.tell(2, verb(held(simulation.KindSettle, "m1", "w-1", 1, 1), "reject"))
	s.tell(2, reason(about(simulation.KindDead, "m1"), "rejected"))
	again := reason(about(simulation.KindAccepted, "m1"), "redriven")
	again.Generation = 1
	s.tell(5, again)
	s.tell(5, about(simulation.KindRedrive, "m1"))
	other := about(simulation.KindAccepted, "m1")
	other.Queue = "post"
	s.tell(6, other)
	s.tell(7, about(simulation.KindDead, "m1")) // of the first generation: the ledger shows the second
	p := draw(&s.result)
	if last := p.Counts[len(p.Counts)-1].In; last != [states]int{ready: 2, dead: 1} {
		t.Errorf("at the end %v, want two ready and one dead", last)
	}
	for _, c := range p.Changes[len(p.Changes)-2:] {
		if c.State != ready {
			t.Errorf("the ledger ends with %+v, want what is ready in both queues", c)
		}
	}
	names := []string{}
	for _, l := range p.Messages[1:] {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"mail/m1", "post/m1"}) {
		t.Errorf("message lanes %q, want one for each queue", names)
	}
}

// A lease may begin before it is told whose consumer that is, and a run made with a
// plain listener knows no workers at all.
func TestAConsumerIsDrawnAtItsWorker(t *testing.T) {
	s := &story{}
	s.tell(0, about(simulation.KindAccepted, "m1"))
	early := until(held(simulation.KindGrant, "m1", "", 1, 1), 100)
	early.Consumer = "ctag-1"
	s.tell(1, early)
	s.tell(1, simulation.Event{Kind: simulation.KindAttach, Queue: "mail", Worker: "w-10", Consumer: "ctag-1"})
	s.tell(1, simulation.Event{Kind: simulation.KindAttach, Queue: "mail", Worker: "w-9", Consumer: "ctag-2"})
	stranger := until(held(simulation.KindGrant, "m2", "", 2, 1), 100)
	stranger.Consumer = "ctag-3"
	s.tell(2, stranger)
	p := draw(&s.result)
	var names []string
	for _, l := range p.Workers {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"broker", "ctag-3", "w-9", "w-10"}) {
		t.Errorf("worker lanes %q, want the consumer that is nobody's and the workers in natural order", names)
	}
	if got := p.Workers[p.Bars[0].Place.Worker].Name; got != "w-10" {
		t.Errorf("the early lease is drawn at %s, want w-10", got)
	}
}

// Without events of handlers, a stale settle is the only sign of a zombie.
func TestAStaleSettleAloneShowsAZombie(t *testing.T) {
	s := &story{}
	s.tell(0, about(simulation.KindAccepted, "m1"))
	s.tell(1, until(held(simulation.KindGrant, "m1", "w-1", 1, 1), 100))
	s.tell(100, held(simulation.KindExpire, "m1", "w-1", 1, 1))
	s.tell(150, verb(held(simulation.KindStale, "m1", "w-1", 1, 1), "ack"))
	p := draw(&s.result)
	if got := barOf(t, p, 1).Zombie; got != 150*ms {
		t.Errorf("zombie until %v, want 150ms", got)
	}
}

// A late touch is stale, and its handler works on.
func TestAZombieWorksUntilItReturns(t *testing.T) {
	s := &story{}
	s.tell(0, about(simulation.KindAccepted, "m1"))
	s.tell(1, until(held(simulation.KindGrant, "m1", "w-1", 1, 1), 100))
	s.tell(1, held(simulation.KindStart, "m1", "w-1", 1, 1))
	s.tell(100, held(simulation.KindExpire, "m1", "w-1", 1, 1))
	s.tell(150, verb(held(simulation.KindStale, "m1", "w-1", 1, 1), "touch"))
	s.tell(200, held(simulation.KindReturn, "m1", "w-1", 1, 1))
	p := draw(&s.result)
	if got := barOf(t, p, 1).Zombie; got != 200*ms {
		t.Errorf("zombie until %v, want 200ms", got)
	}
}

func TestAHandlerThatNeverReturnsIsAZombieToTheEnd(t *testing.T) {
	s := &story{}
	s.tell(0, about(simulation.KindAccepted, "m1"))
	s.tell(1, until(held(simulation.KindGrant, "m1", "w-1", 1, 1), 100))
	s.tell(1, held(simulation.KindStart, "m1", "w-1", 1, 1))
	s.tell(100, held(simulation.KindExpire, "m1", "w-1", 1, 1))
	s.tell(500, simulation.Event{Kind: simulation.KindEnd})
	p := draw(&s.result)
	if b := barOf(t, p, 1); b.Zombie != 500*ms || b.ZombieOver != 0 {
		t.Errorf("zombie until %v (event %d), want 500ms, the end", b.Zombie, b.ZombieOver)
	}
}

// A message that waits for the retry budget has no instant, only a later ready.
func TestAWaitWithoutAnInstantIsABackoffToo(t *testing.T) {
	s := &story{}
	s.tell(0, about(simulation.KindAccepted, "m1"))
	s.tell(1, until(held(simulation.KindGrant, "m1", "w-1", 1, 1), 100))
	s.tell(2, verb(held(simulation.KindSettle, "m1", "w-1", 1, 1), "nack"))
	s.tell(50, about(simulation.KindReady, "m1"))
	p := draw(&s.result)
	if len(p.Waits) != 1 || !p.Waits[0].IsBackoff || p.Waits[0].From != 2*ms || p.Waits[0].To != 50*ms {
		t.Errorf("waits %+v, want a backoff from 2ms to 50ms", p.Waits)
	}
}

func TestALongCalmIsDrawnByEvent(t *testing.T) {
	s := &story{}
	for i := range 20 {
		s.tell(i, about(simulation.KindAccepted, "m1"))
	}
	if p := draw(&s.result); p.ByOrder {
		t.Error("twenty events in twenty milliseconds are drawn by event")
	}
	s.tell(600_000, simulation.Event{Kind: simulation.KindEnd})
	if p := draw(&s.result); !p.ByOrder {
		t.Error("ten quiet minutes after twenty milliseconds are drawn by time")
	}
}
