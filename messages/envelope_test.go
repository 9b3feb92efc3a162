package messages

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"
)

func fullEnvelope() Envelope {
	return Envelope{
		ID: "id", Body: []byte("body"), Headers: map[string]string{"k": "v"}, ContentType: "text/plain",
		Extra: []byte("extra"), Topic: "a.b", Priority: 7, ExpiresAt: time.Unix(1000, 0), Delay: time.Minute,
	}
}

func TestFullEnvelopeIsFull(t *testing.T) {
	v := reflect.ValueOf(fullEnvelope())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("fullEnvelope lacks %s, so the tests below do not look at it", v.Type().Field(i).Name)
		}
	}
}

func TestE2_CloneSharesNothing(t *testing.T) {
	e := fullEnvelope()
	c := e.Clone()
	if !reflect.DeepEqual(c, e) {
		t.Fatalf("Clone() = %+v, want %+v", c, e)
	}
	// Every field that could be shared, also one that is added later.
	v, w := reflect.ValueOf(e), reflect.ValueOf(c)
	for i := range v.NumField() {
		switch v.Field(i).Kind() {
		case reflect.Slice, reflect.Map, reflect.Pointer:
			if v.Field(i).Pointer() == w.Field(i).Pointer() {
				t.Errorf("the clone shares %s", v.Type().Field(i).Name)
			}
		}
	}
	c.Body[0], c.Extra[0], c.Headers["k"] = 'X', 'X', "X"
	c.Headers["new"] = "X"
	if !reflect.DeepEqual(e, fullEnvelope()) {
		t.Errorf("writing to the clone changed the original: %+v", e)
	}
	e = fullEnvelope()
	c = e.Clone()
	e.Body[0], e.Extra[0], e.Headers["k"] = 'X', 'X', "X"
	if !reflect.DeepEqual(c, fullEnvelope()) {
		t.Errorf("writing to the original changed the clone: %+v", c)
	}
}

func TestE2_CloneKeepsNilAndEmptyApart(t *testing.T) {
	if c := (Envelope{}).Clone(); c.Body != nil || c.Headers != nil || c.Extra != nil {
		t.Errorf("the clone of nothing holds %#v", c)
	}
	c := Envelope{Body: []byte{}, Headers: map[string]string{}, Extra: []byte{}}.Clone()
	if c.Body == nil || c.Headers == nil || c.Extra == nil {
		t.Errorf("the clone of what is empty has a nil: %#v", c)
	}
}

func TestE1_SplitTakesEveryDetailAndOnlyThose(t *testing.T) {
	full := reflect.ValueOf(fullEnvelope())
	details := reflect.TypeFor[Details]()
	for i := range details.NumField() {
		name := details.Field(i).Name
		var e Envelope // with this one field, which alone must be enough to be kept
		reflect.ValueOf(&e).Elem().FieldByName(name).Set(full.FieldByName(name))
		got := e.Split()
		want := new(Details)
		reflect.ValueOf(want).Elem().Field(i).Set(full.FieldByName(name))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("an envelope with %s alone: Split() = %+v, want %+v", name, got, want)
		}
	}
	// An envelope field is either a detail or kept by the message itself.
	apart := []string{"ID", "Body", "Headers", "Delay"}
	for i := range full.NumField() {
		name := full.Type().Field(i).Name
		if _, isDetail := details.FieldByName(name); isDetail == slices.Contains(apart, name) {
			t.Errorf("%s is lost or kept twice: a detail is %t", name, isDetail)
		}
	}
}

func TestE1_SplitOfNothingIsShared(t *testing.T) {
	plain := Envelope{ID: "id", Body: []byte("x"), Headers: map[string]string{"k": "v"}, Delay: time.Hour}
	if a, b := plain.Split(), (&Envelope{}).Split(); a != b || !reflect.DeepEqual(a, new(Details)) {
		t.Errorf("two messages without details have %p and %p, want one empty value", a, b)
	}
	if n := testing.AllocsPerRun(100, func() { plain.Split() }); n != 0 {
		t.Errorf("Split of a plain envelope allocates %v times, want 0", n)
	}
}

func TestE1_SplitDoesNotFollowLaterChanges(t *testing.T) {
	e := fullEnvelope()
	d := e.Split()
	e.Topic, e.Priority, e.ContentType, e.ExpiresAt, e.Extra = "x", 1, "x", time.Time{}, []byte("x")
	f := fullEnvelope()
	if want := f.Split(); !reflect.DeepEqual(d, want) {
		t.Errorf("after changes to the envelope its details are %+v, want %+v", d, want)
	}
	e.Split().Topic = "y"
	if d.Topic != "a.b" {
		t.Error("two Splits of one envelope share their value")
	}
}

func TestA1_BytesCountsBodyHeadersIDAndExtra(t *testing.T) {
	e := fullEnvelope()
	if got := e.Bytes(); got != int64(len("id")+len("body")+len("extra")+len("k")+len("v")) {
		t.Errorf("Bytes() = %d, want 13", got)
	}
	if got := (&Envelope{Topic: "t", ContentType: "c", Delay: 1}).Bytes(); got != 0 {
		t.Errorf("what is neither body, headers, id nor extra counts %d bytes, want 0", got)
	}
	l := DeadLetter{ID: e.ID, Body: e.Body, Headers: e.Headers, Details: e.Split(), Error: "boom"}
	if got, want := l.Bytes(), e.Bytes()+4; got != want {
		t.Errorf("a dead letter counts %d bytes, want %d with its error", got, want)
	}
	if got := (&DeadLetter{ID: "id"}).Bytes(); got != 2 {
		t.Errorf("a letter without details counts %d bytes, want 2", got)
	}
}

func TestE2_DeliveriesAndLettersGiveDeepCopies(t *testing.T) {
	e := fullEnvelope()
	want := fullEnvelope()
	want.Delay = 0 // it is over
	d := Delivery{ID: e.ID, Body: e.Body, Headers: e.Headers, Details: e.Split()}
	l := DeadLetter{ID: e.ID, Body: e.Body, Headers: e.Headers, Details: e.Split()}
	for name, copied := range map[string]func() Envelope{"delivery": d.Envelope, "dead letter": l.Envelope} {
		got := copied()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Envelope() = %+v, want %+v", name, got, want)
		}
		got.Body[0], got.Extra[0], got.Headers["k"] = 'X', 'X', "X"
		if !bytes.Equal(e.Body, want.Body) || !bytes.Equal(e.Extra, want.Extra) || !maps.Equal(e.Headers, want.Headers) {
			t.Errorf("%s: writing to its Envelope changed the message", name)
		}
	}
	if got := (&Delivery{ID: "id"}).Envelope(); got.ID != "id" {
		t.Errorf("a delivery without details gives %+v", got)
	}
	if got := (&DeadLetter{ID: "id"}).Envelope(); got.ID != "id" {
		t.Errorf("a letter without details gives %+v", got)
	}
}

func TestQ3_AReceiptNamesQueueIncarnationAndTag(t *testing.T) {
	d := Delivery{Tag: 7, From: &Source{Queue: "q", Incarnation: 3}}
	if got, want := d.Receipt(), (Receipt{Queue: "q", Incarnation: 3, Tag: 7}); got != want || d.Queue() != "q" {
		t.Errorf("Receipt() = %+v of queue %q, want %+v", got, d.Queue(), want)
	}
	for deliveries, want := range map[int]bool{0: false, 1: false, 2: true} {
		if got := (&Delivery{Deliveries: deliveries}).Redelivered(); got != want {
			t.Errorf("after %d hand-overs Redelivered() = %t, want %t", deliveries, got, want)
		}
	}
}
