package messages

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// recorder is a door that writes down what it is asked.
type recorder struct{ got []Settlement }

func (r *recorder) SettleDelivery(_ context.Context, s Settlement) (time.Time, error) {
	r.got = append(r.got, s)
	return time.Unix(60, 0), nil
}

// verbs are all the methods that settle, each with good arguments.
var verbCalls = []struct {
	name string
	call func(*Delivery) error
	want Settlement
}{
	{"Ack", func(d *Delivery) error { return d.Ack(context.Background()) }, Settlement{Verb: VerbAck}},
	{"Nack", func(d *Delivery) error { return d.Nack(context.Background(), errors.New("boom")) },
		Settlement{Verb: VerbNack, Error: "boom"}},
	{"Nack without a cause", func(d *Delivery) error { return d.Nack(context.Background(), nil) }, Settlement{Verb: VerbNack}},
	{"NackIn", func(d *Delivery) error { return d.NackIn(context.Background(), time.Minute, errors.New("boom")) },
		Settlement{Verb: VerbNackIn, Delay: time.Minute, Error: "boom"}},
	{"NackIn at once", func(d *Delivery) error { return d.NackIn(context.Background(), 0, nil) }, Settlement{Verb: VerbNackIn}},
	{"Reject", func(d *Delivery) error { return d.Reject(context.Background(), errors.New("boom")) },
		Settlement{Verb: VerbReject, Error: "boom"}},
	{"Release", func(d *Delivery) error { return d.Release(context.Background()) }, Settlement{Verb: VerbRelease}},
	{"Touch", func(d *Delivery) error { _, err := d.Touch(context.Background()); return err }, Settlement{Verb: VerbTouch}},
	{"TouchFor", func(d *Delivery) error { _, err := d.TouchFor(context.Background(), time.Hour); return err },
		Settlement{Verb: VerbTouch, Delay: time.Hour}},
}

func TestQ3_ADeliverysVerbsSettleByItsReceipt(t *testing.T) {
	for _, tt := range verbCalls {
		t.Run(tt.name, func(t *testing.T) {
			door := new(recorder)
			d := Delivery{Tag: 7, From: &Source{Queue: "q", Incarnation: 3, Settler: door}}
			if err := tt.call(&d); err != nil {
				t.Fatal(err)
			}
			want := tt.want
			want.Receipt = Receipt{Queue: "q", Incarnation: 3, Tag: 7}
			if len(door.got) != 1 || door.got[0] != want {
				t.Errorf("the door was asked %+v, want %+v once", door.got, want)
			}
		})
	}
}

func TestWithoutADoorADeliverysVerbsGiveErrNoDoor(t *testing.T) {
	for name, d := range map[string]*Delivery{
		"no settler": {Tag: 7, From: &Source{Queue: "q"}},
		"no source":  {Tag: 7}, // as a handler's own test may make one
	} {
		for _, tt := range verbCalls {
			if err := tt.call(d); !errors.Is(err, ErrNoDoor) {
				t.Errorf("%s, %s: %v, want ErrNoDoor", name, tt.name, err)
			}
		}
	}
	if d := (&Delivery{Tag: 7}); d.Queue() != "" || d.Receipt() != (Receipt{Tag: 7}) {
		t.Errorf("a delivery from nowhere is of queue %q, receipt %+v", d.Queue(), d.Receipt())
	}
}

func TestQ7_TouchForNeedsAPositiveExtension(t *testing.T) {
	door := new(recorder)
	d := Delivery{From: &Source{Settler: door}}
	for _, extension := range []time.Duration{0, -1, -time.Hour} {
		_, err := d.TouchFor(context.Background(), extension)
		var bad *ArgumentError
		if !errors.As(err, &bad) || bad.Argument != "extension" {
			t.Errorf("TouchFor(%v) = %v, want an ArgumentError", extension, err)
		}
	}
	if len(door.got) != 0 {
		// 0 would have been a plain touch.
		t.Errorf("the door was asked all the same: %+v", door.got)
	}
	if at, err := d.TouchFor(context.Background(), 1); err != nil || !at.Equal(time.Unix(60, 0)) {
		t.Errorf("TouchFor(1ns) = %v, %v; want the door's answer", at, err)
	}
}

func TestQ6_NackInRefusesANegativeDelay(t *testing.T) {
	door := new(recorder)
	d := Delivery{From: &Source{Settler: door}}
	var bad *ArgumentError
	if err := d.NackIn(context.Background(), -1, nil); !errors.As(err, &bad) || bad.Argument != "delay" {
		t.Errorf("NackIn(-1ns) = %v, want an ArgumentError", err)
	}
	if len(door.got) != 0 {
		t.Errorf("the door was asked all the same: %+v", door.got)
	}
}

func TestR4_TheCauseOfASettleIsCut(t *testing.T) {
	door := new(recorder)
	d := Delivery{From: &Source{Settler: door}}
	long := errors.New(strings.Repeat("x", 5000))
	for _, settle := range []func() error{
		func() error { return d.Nack(context.Background(), long) },
		func() error { return d.NackIn(context.Background(), 0, long) },
		func() error { return d.Reject(context.Background(), long) },
	} {
		if err := settle(); err != nil {
			t.Fatal(err)
		}
		if got := len(door.got[len(door.got)-1].Error); got != ErrorBytesMax {
			t.Errorf("%d bytes of the cause arrive, want %d", got, ErrorBytesMax)
		}
	}
}

func TestC7_TheShortCommandsMeanTheirVerb(t *testing.T) {
	r := Receipt{Queue: "q", Incarnation: 3, Tag: 7}
	full := Settlement{Receipt: r, Verb: VerbNackIn, Delay: time.Second, Error: "boom"}
	for _, tt := range []struct {
		command settlement
		want    Settlement
	}{
		{&Ack{Receipt: r}, Settlement{Receipt: r, Verb: VerbAck}},
		{&Nack{Receipt: r, Error: "boom"}, Settlement{Receipt: r, Verb: VerbNack, Error: "boom"}},
		{&Reject{Receipt: r, Error: "boom"}, Settlement{Receipt: r, Verb: VerbReject, Error: "boom"}},
		{&Touch{Receipt: r, For: time.Hour}, Settlement{Receipt: r, Verb: VerbTouch, Delay: time.Hour}},
		{&Settle{Settlement: full}, full},
	} {
		if got := tt.command.Settled(); got != tt.want {
			t.Errorf("%T means %+v, want %+v", tt.command, got, tt.want)
		}
	}
}

// cell is a Resolver for one generation.
type cell struct {
	generation uint64
	got        []Answer
}

func (c *cell) Resolve(generation uint64, a Answer) bool {
	if generation != c.generation {
		return false
	}
	c.got = append(c.got, a)
	return true
}

func (c *cell) Waiting(generation uint64) bool { return generation == c.generation }

func TestARefAnswersItsOwnGenerationOnly(t *testing.T) {
	var nobody Ref
	if !nobody.IsZero() || nobody.Waiting() || nobody.Resolve(Answer{}) {
		t.Error("the zero Ref is somebody")
	}
	c := &cell{generation: 2}
	old, current := Ref{To: c, Generation: 1}, Ref{To: c, Generation: 2}
	if old.Waiting() || old.Resolve(Answer{N: 1}) {
		t.Error("a Ref of a cell's former use still answers")
	}
	if current.IsZero() || !current.Waiting() || !current.Resolve(Answer{N: 2}) {
		t.Error("a Ref of the cell's present use does not answer")
	}
	put := Put{Asked: Asked{Reply: current}}
	put.Fail(ErrQueueClosed)
	new(Put).Fail(ErrQueueClosed) // nobody to tell, and no panic
	if want := []Answer{{N: 2}, {Err: ErrQueueClosed}}; !reflect.DeepEqual(c.got, want) {
		t.Errorf("the cell got %+v, want %+v", c.got, want)
	}
	if put.ReplyRef() != current {
		t.Error("ReplyRef is not where the answer goes")
	}
}
