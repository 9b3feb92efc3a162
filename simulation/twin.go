package simulation

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation/model"
)

// twin is a queue's rules twice: the ledger under test and the reference model. It
// stands between the queue's actor and its ledger, asks both the same, and compares
// verdicts, effects, figures and, now and then, the fold of the records. What the
// ledger has recorded becomes events on the way.
//
//	queue actor ──▶ twin ──▶ ledger (or a mutant of it) ──▶ verdict, effects, records
//	                  └────▶ model ───────────────────────▶ verdict, effects
//	                             both equal? ──▶ events ──▶ audit
//
// It is an [actors.Ledger] itself.
type twin struct {
	lab    *lab
	source *messages.Source
	config *messages.QueueConfig
	start  time.Time

	face  actors.Ledger  // what is asked: core, or a mutant around it
	core  *ledger.Ledger // what keeps the records
	model *model.Model

	stats   messages.QueueStats // as of the last call
	changed bool                // something has, since the last recount
	seen    int                 // effects compared so far, of those not cleared
	records []ledger.Record
	folded  int // records as of the last fold
	calls   int
	closed  bool

	quarantined bool

	book     *book
	filled   messages.Delivery // for differs
	op       string            // the call under way, and what it is about
	verb     messages.Verb
	putting  string // the id of the put under way
	settleBy int    // the event that caused the settle under way
}

// letterName remembers whose letter it is.
type letterName struct {
	message string
	put     uint64
}

// pastLease is what is kept of a lease that is over.
type pastLease struct {
	message  string
	deadline time.Time // as it then was
	worked   int       // the latest event of its worker about it, also while it runs
}

// of is the past of a tag, empty while there is none.
func (t *twin) of(tag uint64) pastLease {
	if tag < uint64(len(t.book.past)) {
		return t.book.past[tag]
	}
	return pastLease{}
}

// worked notes the latest event of a worker about a lease.
func (t *twin) worked(tag uint64, event int) {
	t.book.pastOf(tag).worked = event
}

// foldEvery is how many calls pass before all records are folded, which costs as much as
// there are of them. In a long run as many as half of what was folded last must have come
// besides, or the folds of a livelock would take longer than all else. The end of a run
// always folds.
const foldEvery = 512

func (l *lab) newTwin(source *messages.Source, config *messages.QueueConfig, start time.Time, o ledger.Options) actors.Ledger {
	o.Journal = true
	core := ledger.New(source, config, start, o)
	t := &twin{
		lab: l, source: source, config: config, start: start,
		core: core, face: core,
		model: model.New(source, *config, start, func(put, failure uint64) uint64 { return o.Draw(source, put, failure) }),
	}
	t.book = newBook(t)
	t.records = borrowRecords()
	if l.spec.Mutate != nil {
		t.face = l.spec.Mutate(core)
	}
	l.adopt(t)
	return t
}

// begin is called first by every call; it names it.
func (t *twin) begin(op string, verb messages.Verb) {
	t.op, t.verb = op, verb
	t.calls++
}

// guard turns a panic of the rules into a violation: a ledger has no reason to panic.
func (t *twin) guard() {
	if value := recover(); value != nil {
		t.lab.object("crash", "I27", "ledger panics in "+t.op, fmt.Sprintf("queue %s: %s: %v", t.source.Queue, t.op, value))
		panic(value)
	}
}

// mismatch objects that the two disagree. what is part of the signature.
func (t *twin) mismatch(invariant, what string, got, want any) {
	t.lab.object("lockstep", invariant, t.op+": "+what,
		fmt.Sprintf("queue %s, call %d (%s): the ledger says %v, the model %v", t.source.Queue, t.calls, t.op, got, want))
}

// finish compares everything that a call may have changed and tells of it.
func (t *twin) finish(now time.Time) {
	t.tellRecords()
	t.compareEffects()
	if t.lab.over {
		return
	}
	if t.face.Behind() {
		return // verdicts are as if it were done, figures are not
	}
	t.compareStats(now)
	if !t.changed {
		return // no record, no effect and no figure: there is nothing new to recount
	}
	t.changed = false
	if err := t.face.CheckInvariants(); err != nil {
		t.lab.object("safety", ledgerInvariant(err), "ledger's own check after "+t.op, fmt.Sprintf("queue %s after %s: %v", t.source.Queue, t.op, err))
	}
	if t.calls%foldEvery == 0 && len(t.records)-t.folded >= t.folded/2 {
		t.fold(now)
	}
}

// ledgerInvariant maps the number in front of the ledger's own complaint.
func ledgerInvariant(err error) string {
	number, _, _ := strings.Cut(err.Error(), ":")
	switch number {
	case "1", "2":
		return "I1"
	case "3":
		return "I26"
	case "4":
		return "I22"
	case "5":
		return "I18"
	case "6":
		return "I19"
	case "7":
		return "I11"
	case "8":
		return "I13"
	case "9":
		return "I8"
	case "10":
		return "I17"
	case "11":
		return "I16"
	}
	return "I23"
}

// compareErrors compares two verdicts.
func (t *twin) compareErrors(invariant string, got, want error) {
	if (got == nil) != (want == nil) || got != nil && got.Error() != want.Error() {
		t.mismatch(invariant, "verdict "+verdict(got)+" for "+verdict(want), got, want)
	}
}

// verdict is an error's role: what kind it is, without names.
func verdict(err error) string {
	var stale *messages.StaleError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &stale):
		return "stale"
	}
	for reason := err; reason != nil; reason = errors.Unwrap(reason) {
		if errors.Unwrap(reason) == nil {
			return reason.Error()
		}
	}
	return "error"
}

// compareEffects compares what is to be done outside, one by one and in order.
func (t *twin) compareEffects() {
	all := t.face.Effects()
	if t.seen > len(all) {
		t.mismatch("I24", "effects vanished", len(all), t.seen)
		t.seen = len(all)
	}
	got, want := all[t.seen:], t.model.TakeEffects()
	t.changed = t.changed || len(got) > 0
	t.seen = len(all)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.mismatch(effectInvariant(want[i].Kind, want[i].Letter), "no effect "+want[i].Kind.String(), "nothing", effectText(&want[i]))
			return
		case i >= len(want):
			t.mismatch(effectInvariant(got[i].Kind, got[i].Letter), "effect "+got[i].Kind.String(), t.ledgerEffectText(&got[i]), "nothing")
			return
		}
		if what := t.differs(&got[i], &want[i]); what != "" {
			t.mismatch(effectInvariant(want[i].Kind, want[i].Letter), "effect "+want[i].Kind.String()+": "+what, t.ledgerEffectText(&got[i]), effectText(&want[i]))
			return
		}
	}
}

// effectInvariant says which promise an effect of that kind keeps.
func effectInvariant(k ledger.EffectKind, letter *messages.DeadLetter) string {
	switch k {
	case ledger.HandedOver:
		return "I19"
	case ledger.LeaseLost:
		return "I11"
	case ledger.Died:
		if letter != nil && letter.Reason == messages.Expired {
			return "I18"
		}
		return "I17"
	case ledger.Trimmed, ledger.AlarmRaised:
		return "I26"
	}
	return "I23"
}

// differs names the first field that is not as the model has it.
func (t *twin) differs(got *ledger.Effect, want *model.Effect) string {
	if got.Kind != want.Kind {
		return got.Kind.String()
	}
	switch got.Kind {
	case ledger.HandedOver:
		d, w := &t.filled, &want.Delivery
		*d = messages.Delivery{}
		t.face.Fill(got, d)
		switch {
		case got.Waiter != want.Waiter || got.Consumer != nil && got.Consumer.Tag != want.Consumer:
			return "holder"
		case d.ID != w.ID:
			return "message"
		case d.Tag != w.Tag || got.Tag != w.Tag:
			return "tag"
		case d.Attempt != w.Attempt || d.Deliveries != w.Deliveries:
			return "counts"
		case !d.Deadline.Equal(w.Deadline):
			return "deadline"
		case string(d.Body) != string(w.Body) || !reflect.DeepEqual(d.Headers, w.Headers) || !sameDetails(d.Details, w.Details):
			return "body"
		case !d.EnqueuedAt.Equal(w.EnqueuedAt):
			return "enqueued"
		}
	case ledger.LeaseLost:
		holder := ""
		if got.Consumer != nil {
			holder = got.Consumer.Tag
		} else if got.Waiter != nil {
			holder = got.Waiter.Holder
		}
		if got.Tag != want.Tag || holder != want.Consumer {
			return "lease"
		}
	case ledger.Died:
		if got.Announce != want.Announce {
			return "announcement"
		}
		return letterDiffers(got.Letter, want.Letter)
	case ledger.Trimmed:
		return letterDiffers(got.Letter, want.Letter)
	case ledger.AlarmRaised:
		if got.Alarm != want.Alarm {
			return "alarm"
		}
	case ledger.Settled:
		if got.Owner != want.Owner {
			return "owner"
		}
	}
	return ""
}

func sameDetails(a, b *messages.Details) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return a.ContentType == b.ContentType && string(a.Extra) == string(b.Extra) && a.Topic == b.Topic &&
		a.Priority == b.Priority && a.ExpiresAt.Equal(b.ExpiresAt)
}

func letterDiffers(got, want *messages.DeadLetter) string {
	switch {
	case got.Number != want.Number || got.ID != want.ID:
		return "letter"
	case got.Reason != want.Reason:
		return "reason"
	case got.Error != want.Error:
		return "error"
	case got.Attempts != want.Attempts || got.Deliveries != want.Deliveries:
		return "counts"
	case !got.DiedAt.Equal(want.DiedAt) || !got.EnqueuedAt.Equal(want.EnqueuedAt):
		return "instant"
	case string(got.Body) != string(want.Body) || !reflect.DeepEqual(got.Headers, want.Headers) || got.Queue != want.Queue:
		return "body"
	case got.Deaths != want.Deaths || len(got.History) != len(want.History):
		return "history"
	}
	return ""
}

func (t *twin) ledgerEffectText(e *ledger.Effect) string {
	m := model.Effect{Kind: e.Kind, Waiter: e.Waiter, Tag: e.Tag, Letter: e.Letter, Announce: e.Announce, Alarm: e.Alarm, Owner: e.Owner}
	if e.Consumer != nil {
		m.Consumer = e.Consumer.Tag
	}
	if e.Kind == ledger.HandedOver {
		t.face.Fill(e, &m.Delivery)
	}
	return effectText(&m)
}

func effectText(e *model.Effect) string {
	switch e.Kind {
	case ledger.HandedOver:
		d := &e.Delivery
		return fmt.Sprintf("handed over %s to %q tag %d attempt %d delivery %d until %v", d.ID, e.Consumer, d.Tag, d.Attempt, d.Deliveries, d.Deadline.Sub(Epoch))
	case ledger.LeaseLost:
		return fmt.Sprintf("lease lost tag %d by %s", e.Tag, e.Consumer)
	case ledger.Died, ledger.Trimmed:
		l := e.Letter
		return fmt.Sprintf("%s %s letter %d %s attempts %d deliveries %d error %q at %v announce %t", e.Kind, l.ID, l.Number, l.Reason, l.Attempts, l.Deliveries, l.Error, l.DiedAt.Sub(Epoch), e.Announce)
	case ledger.AlarmRaised:
		return "alarm " + e.Alarm.String()
	}
	return e.Kind.String()
}

// statsInvariant names the figure that differs, and what it is a promise of.
func (t *twin) compareStats(now time.Time) {
	got, want := t.face.Stats(now), t.model.Stats(now)
	t.changed = t.changed || got != t.stats
	t.stats = got
	t.book.recount(&got)
	if got == want {
		return
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		name := g.Type().Field(i).Name
		if name == "Counters" {
			gc, wc := g.Field(i), w.Field(i)
			for k := range gc.NumField() {
				if a, b := gc.Field(k).Interface(), wc.Field(k).Interface(); a != b {
					t.mismatch("I23", "figure "+gc.Type().Field(k).Name, a, b)
					return
				}
			}
			continue
		}
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); a != b {
			t.mismatch("I23", "figure "+name, a, b)
			return
		}
	}
}

// compareDeadline compares when the queue wants to be woken. The ledger may wake
// earlier than the model, which does no harm; later is L3.
func (t *twin) compareDeadline(got time.Time, ok bool) {
	want, wanted := t.model.NextDeadline()
	if t.face.Behind() {
		return
	}
	if wanted && (!ok || got.After(want)) {
		t.mismatch("L3", "wakes too late", got.Sub(Epoch), want.Sub(Epoch))
	}
}

// fold rebuilds the queue from its records and compares (I24).
func (t *twin) fold(now time.Time) {
	if t.face.Behind() || t.closed || t.folded == len(t.records) {
		return
	}
	t.folded = len(t.records)
	folded, err := ledger.Fold(t.source, t.config, t.start, t.records)
	if err != nil {
		t.lab.object("safety", "I24", "fold of the records fails", fmt.Sprintf("queue %s, %d records: %v", t.source.Queue, len(t.records), err))
		return
	}
	if got, want := folded.Dump(), t.core.Dump(); got != want {
		t.lab.object("safety", "I24", "fold of the records differs", fmt.Sprintf("queue %s, %d records fold to\n%s\nthe ledger itself is\n%s", t.source.Queue, len(t.records), got, want))
		return
	}
	folded.Recover(now)
	for folded.Behind() {
		folded.Tick(now)
	}
	if err := folded.CheckInvariants(); err != nil {
		t.lab.object("safety", "I24", "recovered ledger's own check", fmt.Sprintf("queue %s: %v", t.source.Queue, err))
	}
}

// ---- actors.Ledger ----

// Put implements [actors.Ledger].
func (t *twin) Put(now time.Time, p *ledger.Put) (ledger.PutResult, error) {
	t.begin("put", 0)
	defer t.guard()
	own := *p // the model keeps it, and must not see what the ledger may do to it
	t.lab.arriving(p)
	t.putting = p.ID
	got, err := t.face.Put(now, p)
	want, wantErr := t.model.Put(now, &own)
	t.compareErrors(putInvariant(err, wantErr), err, wantErr)
	if got != want {
		t.mismatch("I22", "result", got, want)
	}
	t.finish(now)
	t.lab.arrived(t, &own, got, err)
	return got, err
}

// putInvariant says which promise two different verdicts on a put concern.
func putInvariant(errs ...error) string {
	for _, err := range errs {
		switch {
		case errors.Is(err, messages.ErrQueueFull):
			return "I26"
		case errors.Is(err, messages.ErrIDReused):
			return "I22"
		case errors.Is(err, messages.ErrExpired):
			return "I18"
		}
	}
	return "I5"
}

// Hasher implements [actors.Ledger].
func (t *twin) Hasher() func(id string) uint32 { return t.face.Hasher() }

// HandOver implements [actors.Ledger].
func (t *twin) HandOver(now time.Time) {
	t.begin("hand over", 0)
	defer t.guard()
	t.face.HandOver(now)
	t.model.HandOver(now)
	t.finish(now)
}

// settle runs one verb on both.
func (t *twin) settle(now time.Time, verb messages.Verb, tag uint64, got, want func() (time.Time, error)) (time.Time, error) {
	t.begin(verb.String(), verb)
	defer t.guard()
	t.settleBy = t.lab.settling(t, tag)
	t.lab.checkReceipt(t, verb, tag)
	at, err := got()
	wantAt, wantErr := want()
	invariant := "I10"
	switch {
	case verb == messages.VerbTouch:
		invariant = "I12"
	case wantErr != nil:
		invariant = "I9"
	}
	t.compareErrors(invariant, err, wantErr)
	if !at.Equal(wantAt) {
		t.mismatch("I12", "deadline", at.Sub(Epoch), wantAt.Sub(Epoch))
	}
	t.finish(now)
	t.lab.settledBy(t, verb, tag, at, err)
	t.settleBy = 0
	return at, err
}

func only(err error) (time.Time, error) { return time.Time{}, err }

// Ack implements [actors.Ledger].
func (t *twin) Ack(now time.Time, tag uint64) error {
	t.lab.checkAnswer(t, messages.VerbAck, tag, "")
	_, err := t.settle(now, messages.VerbAck, tag,
		func() (time.Time, error) { return only(t.face.Ack(now, tag)) },
		func() (time.Time, error) { return only(t.model.Ack(now, tag)) })
	return err
}

// AckReturned implements [actors.Ledger].
func (t *twin) AckReturned(now time.Time, consumer string, tag uint64) bool {
	if !t.model.Runs(now, consumer, tag) {
		t.begin("returned", 0)
		defer t.guard()
		if t.face.AckReturned(now, consumer, tag) {
			t.mismatch("I9", "ack", "accepted", "the lease is over")
		}
		t.finish(now)
		return false
	}
	t.lab.checkAnswer(t, messages.VerbAck, tag, "")
	acked := true
	_, _ = t.settle(now, messages.VerbAck, tag,
		func() (at time.Time, err error) {
			if acked = t.face.AckReturned(now, consumer, tag); !acked {
				err = errNotAcked
			}
			return at, err
		},
		func() (at time.Time, err error) {
			if !t.model.AckReturned(now, consumer, tag) {
				err = errNotAcked
			}
			return at, err
		})
	return acked
}

// errNotAcked is a lease that AckReturned should have ended.
var errNotAcked = errors.New("not acked")

// Nack implements [actors.Ledger].
func (t *twin) Nack(now time.Time, tag uint64, errText string) error {
	t.lab.checkAnswer(t, messages.VerbNack, tag, errText)
	_, err := t.settle(now, messages.VerbNack, tag,
		func() (time.Time, error) { return only(t.face.Nack(now, tag, errText)) },
		func() (time.Time, error) { return only(t.model.Nack(now, tag, errText)) })
	return err
}

// NackIn implements [actors.Ledger].
func (t *twin) NackIn(now time.Time, tag uint64, d time.Duration, errText string) error {
	t.lab.checkAnswer(t, messages.VerbNackIn, tag, errText)
	_, err := t.settle(now, messages.VerbNackIn, tag,
		func() (time.Time, error) { return only(t.face.NackIn(now, tag, d, errText)) },
		func() (time.Time, error) { return only(t.model.NackIn(now, tag, d, errText)) })
	return err
}

// Reject implements [actors.Ledger].
func (t *twin) Reject(now time.Time, tag uint64, errText string) error {
	t.lab.checkAnswer(t, messages.VerbReject, tag, errText)
	_, err := t.settle(now, messages.VerbReject, tag,
		func() (time.Time, error) { return only(t.face.Reject(now, tag, errText)) },
		func() (time.Time, error) { return only(t.model.Reject(now, tag, errText)) })
	return err
}

// Release implements [actors.Ledger].
func (t *twin) Release(now time.Time, tag uint64) error {
	_, err := t.settle(now, messages.VerbRelease, tag,
		func() (time.Time, error) { return only(t.face.Release(now, tag)) },
		func() (time.Time, error) { return only(t.model.Release(now, tag)) })
	return err
}

// Touch implements [actors.Ledger].
func (t *twin) Touch(now time.Time, tag uint64) (time.Time, error) {
	return t.settle(now, messages.VerbTouch, tag,
		func() (time.Time, error) { return t.face.Touch(now, tag) },
		func() (time.Time, error) { return t.model.Touch(now, tag) })
}

// TouchFor implements [actors.Ledger].
func (t *twin) TouchFor(now time.Time, tag uint64, d time.Duration) (time.Time, error) {
	return t.settle(now, messages.VerbTouch, tag,
		func() (time.Time, error) { return t.face.TouchFor(now, tag, d) },
		func() (time.Time, error) { return t.model.TouchFor(now, tag, d) })
}

// LeaseEnd implements [actors.Ledger].
func (t *twin) LeaseEnd(tag uint64) (bool, messages.LeaseEnd) {
	t.begin("lease end", 0)
	issued, end := t.face.LeaseEnd(tag)
	if wantIssued, wantEnd := t.model.LeaseEnd(tag); (issued != wantIssued || end != wantEnd) && !t.face.Behind() {
		t.mismatch("I8", "lease end", end, wantEnd)
	}
	return issued, end
}

// RefuseForeign implements [actors.Ledger].
func (t *twin) RefuseForeign(verb messages.Verb, r messages.Receipt) error {
	t.begin(verb.String()+" of another incarnation", verb)
	err := t.face.RefuseForeign(verb, r)
	t.compareErrors("I8", err, t.model.RefuseForeign(verb, r))
	return err
}

// Attach implements [actors.Ledger].
func (t *twin) Attach(now time.Time, c *ledger.Consumer) error {
	t.begin("attach", 0)
	defer t.guard()
	err := t.face.Attach(now, c)
	t.compareErrors("I13", err, t.model.Attach(now, c))
	if err == nil {
		t.book.prefetch[c.Tag] = c.Prefetch
	}
	t.finish(now)
	return err
}

// Detach implements [actors.Ledger].
func (t *twin) Detach(now time.Time, tag string) bool {
	t.begin("detach", 0)
	defer t.guard()
	got := t.face.Detach(now, tag)
	defer delete(t.book.prefetch, tag)
	if want := t.model.Detach(now, tag); got != want {
		t.mismatch("I13", "result", got, want)
	}
	t.finish(now)
	return got
}

// HolderEnded implements [actors.Ledger].
func (t *twin) HolderEnded(now time.Time, holder string) {
	t.begin("holder ended", 0)
	defer t.guard()
	t.face.HolderEnded(now, holder)
	t.model.HolderEnded(now, holder)
	t.finish(now)
}

// SetPrefetch implements [actors.Ledger].
func (t *twin) SetPrefetch(now time.Time, tag string, n int) bool {
	t.begin("set prefetch", 0)
	defer t.guard()
	got := t.face.SetPrefetch(now, tag, n)
	if _, ok := t.book.prefetch[tag]; ok {
		t.book.prefetch[tag] = max(n, t.book.holds[tag]) // what is out stays out
	}
	if want := t.model.SetPrefetch(now, tag, n); got != want {
		t.mismatch("I13", "result", got, want)
	}
	t.finish(now)
	return got
}

// Started implements [actors.Ledger].
func (t *twin) Started(now time.Time, tag uint64) {
	t.begin("started", 0)
	defer t.guard()
	t.face.Started(now, tag)
	t.model.Started(now, tag)
	t.finish(now)
}

// Returned implements [actors.Ledger].
func (t *twin) Returned(now time.Time, consumer string, tag uint64) {
	t.begin("returned", 0)
	defer t.guard()
	t.face.Returned(now, consumer, tag)
	t.model.Returned(now, consumer, tag)
	t.finish(now)
}

// Crashed implements [actors.Ledger].
func (t *twin) Crashed(now time.Time, tag uint64, errText string) {
	t.begin("crashed", 0)
	defer t.guard()
	t.face.Crashed(now, tag, errText)
	t.model.Crashed(now, tag, errText)
	t.finish(now)
}

// Want implements [actors.Ledger].
func (t *twin) Want(now time.Time, w *ledger.Waiter) {
	t.begin("get", 0)
	defer t.guard()
	t.face.Want(now, w)
	t.model.Want(now, w)
	t.finish(now)
}

// Unwant implements [actors.Ledger].
func (t *twin) Unwant(w *ledger.Waiter) bool {
	t.begin("end of get", 0)
	got := t.face.Unwant(w)
	if want := t.model.Unwant(w); got != want {
		t.mismatch("I13", "result", got, want)
	}
	return got
}

// Pause implements [actors.Ledger].
func (t *twin) Pause(now time.Time) {
	t.begin("pause", 0)
	defer t.guard()
	t.face.Pause(now)
	t.model.Pause(now)
	t.finish(now)
}

// Resume implements [actors.Ledger].
func (t *twin) Resume(now time.Time) {
	t.begin("resume", 0)
	defer t.guard()
	t.face.Resume(now)
	t.model.Resume(now)
	t.finish(now)
}

// Drain implements [actors.Ledger].
func (t *twin) Drain(now time.Time) {
	t.begin("drain", 0)
	defer t.guard()
	t.face.Drain(now)
	t.model.Drain(now)
	t.finish(now)
}

// Purge implements [actors.Ledger].
func (t *twin) Purge(now time.Time) int {
	t.begin("purge", 0)
	defer t.guard()
	got := t.face.Purge(now)
	if want := t.model.Purge(now); got != want {
		t.mismatch("I1", "count", got, want)
	}
	t.finish(now)
	return got
}

// Peek implements [actors.Ledger].
func (t *twin) Peek(n int) []messages.Delivery {
	t.begin("peek", 0)
	got, want := t.face.Peek(n), t.model.Peek(n)
	if t.face.Behind() {
		return got
	}
	if len(got) != len(want) {
		t.mismatch("I19", "count", len(got), len(want))
		return got
	}
	for i := range got {
		if got[i].ID != want[i].ID || got[i].Attempt != want[i].Attempt || got[i].Deliveries != want[i].Deliveries {
			t.mismatch("I19", "order", got[i].ID, want[i].ID)
			break
		}
	}
	return got
}

// Close implements [actors.Ledger].
func (t *twin) Close(now time.Time) (int, int) {
	t.begin("close", 0)
	defer t.guard()
	t.fold(now)
	n, letters := t.face.Close(now)
	if wantN, wantLetters := t.model.Close(now); n != wantN || letters != wantLetters {
		t.mismatch("I1", "counts", n+letters, wantN+wantLetters)
	}
	t.closed = true
	t.finish(now)
	return n, letters
}

// Quarantine implements [actors.Ledger].
func (t *twin) Quarantine() {
	t.begin("quarantine", 0)
	t.face.Quarantine()
	t.model.Quarantine()
}

// DeadLetters implements [actors.Ledger].
func (t *twin) DeadLetters(after uint64, n int) []messages.DeadLetter {
	t.begin("dead letters", 0)
	got, want := t.face.DeadLetters(after, n), t.model.DeadLetters(after, n)
	if len(got) != len(want) {
		t.mismatch("I17", "count", len(got), len(want))
		return got
	}
	for i := range got {
		if what := letterDiffers(&got[i], &want[i]); what != "" {
			t.mismatch("I17", what, got[i].ID, want[i].ID)
			break
		}
	}
	return got
}

// LastLetter implements [actors.Ledger].
func (t *twin) LastLetter() uint64 {
	t.begin("last letter", 0)
	got := t.face.LastLetter()
	if want := t.model.LastLetter(); got != want && !t.face.Behind() {
		t.mismatch("I17", "number", got, want)
	}
	return got
}

// Discard implements [actors.Ledger].
func (t *twin) Discard(now time.Time, ids []string) int {
	t.begin("discard", 0)
	defer t.guard()
	got := t.face.Discard(now, ids)
	if want := t.model.Discard(now, ids); got != want {
		t.mismatch("I17", "count", got, want)
	}
	t.finish(now)
	return got
}

// RemoveLetter implements [actors.Ledger].
func (t *twin) RemoveLetter(now time.Time, number uint64) bool {
	t.begin("remove letter", 0)
	defer t.guard()
	got := t.face.RemoveLetter(now, number)
	if want := t.model.RemoveLetter(now, number); got != want {
		t.mismatch("I17", "result", got, want)
	}
	t.finish(now)
	return got
}

// Redrive implements [actors.Ledger].
func (t *twin) Redrive(now time.Time, number uint64) (ledger.PutResult, error) {
	t.begin("redrive", 0)
	defer t.guard()
	got, err := t.face.Redrive(now, number)
	want, wantErr := t.model.Redrive(now, number)
	t.compareErrors("I3", err, wantErr)
	if got != want {
		t.mismatch("I3", "result", got, want)
	}
	t.finish(now)
	return got, err
}

// Tick implements [actors.Ledger].
func (t *twin) Tick(now time.Time) {
	t.begin("tick", 0)
	defer t.guard()
	t.face.Tick(now)
	t.model.Tick(now)
	t.finish(now)
}

// NextDeadline implements [actors.Ledger].
func (t *twin) NextDeadline() (time.Time, bool) {
	t.begin("next deadline", 0)
	at, ok := t.face.NextDeadline()
	t.compareDeadline(at, ok)
	return at, ok
}

// Behind implements [actors.Ledger].
func (t *twin) Behind() bool { return t.face.Behind() }

// Stats implements [actors.Ledger].
func (t *twin) Stats(now time.Time) messages.QueueStats {
	t.begin("stats", 0)
	defer t.guard()
	s := t.face.Stats(now)
	t.model.Tick(now)
	t.finish(now)
	return s
}

// Trim implements [actors.Ledger].
func (t *twin) Trim() {
	t.face.Trim()
	t.model.Trim()
}

// Effects implements [actors.Ledger].
func (t *twin) Effects() []ledger.Effect { return t.face.Effects() }

// ClearEffects implements [actors.Ledger].
func (t *twin) ClearEffects() {
	t.face.ClearEffects()
	t.seen = 0
}

// Fill implements [actors.Ledger].
func (t *twin) Fill(e *ledger.Effect, d *messages.Delivery) { t.face.Fill(e, d) }

// CountBusy implements [actors.Ledger].
func (t *twin) CountBusy() {
	t.face.CountBusy()
	t.model.CountBusy()
}

// CountLostNotice implements [actors.Ledger].
func (t *twin) CountLostNotice() {
	t.face.CountLostNotice()
	t.model.CountLostNotice()
}

// CheckInvariants implements [actors.Ledger].
func (t *twin) CheckInvariants() error { return t.face.CheckInvariants() }
