package ledger_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// The traces, the property and the fuzz target speak one small language: a line
// is one command, and what it did is text. So a failing random program prints as
// a trace, and can be kept as one.

// epoch is where every program starts; times are printed relative to it.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var theSource = &messages.Source{Queue: "jobs", Incarnation: 7}

// subject is a queue that can be told what to do: the ledger itself, or the naive
// model of it in reference_test.go. The methods mean what the ledger's say.
type subject interface {
	HandOver(now time.Time)
	Put(now time.Time, p *ledger.Put) (ledger.PutResult, error)
	Ack(now time.Time, tag uint64) error
	Nack(now time.Time, tag uint64, errText string) error
	NackIn(now time.Time, tag uint64, d time.Duration, errText string) error
	Reject(now time.Time, tag uint64, errText string) error
	Release(now time.Time, tag uint64) error
	Touch(now time.Time, tag uint64) (time.Time, error)
	TouchFor(now time.Time, tag uint64, d time.Duration) (time.Time, error)
	LeaseEnd(tag uint64) (issued bool, end messages.LeaseEnd)
	RefuseForeign(verb messages.Verb, r messages.Receipt) error
	Attach(now time.Time, c *ledger.Consumer) error
	Detach(now time.Time, tag string) bool
	HolderEnded(now time.Time, holder string)
	SetPrefetch(now time.Time, tag string, n int) bool
	Started(now time.Time, tag uint64)
	Returned(now time.Time, consumer string, tag uint64)
	Crashed(now time.Time, tag uint64, errText string)
	Want(now time.Time, w *ledger.Waiter)
	Unwant(w *ledger.Waiter) bool
	Pause(now time.Time)
	Resume(now time.Time)
	Drain(now time.Time)
	Purge(now time.Time) int
	Peek(n int) []messages.Delivery
	Close(now time.Time) (messagesDropped, lettersDropped int)
	Quarantine()
	DeadLetters(after uint64, n int) []messages.DeadLetter
	Discard(now time.Time, ids []string) int
	RemoveLetter(now time.Time, number uint64) bool
	Redrive(now time.Time, number uint64) (ledger.PutResult, error)
	LastLetter() uint64
	Tick(now time.Time)
	NextDeadline() (time.Time, bool)
	Behind() bool
	Trim()
	Stats(now time.Time) messages.QueueStats

	// said takes the effects since it was last called, one line each.
	said() []string
	// check compares the subject with itself: invariants, and the fold of its records.
	check(now time.Time) error
	// newRecords prints the records since it was last called; the model keeps none.
	newRecords() []string
	// restart is the same queue in a new process, without its holders.
	restart(now time.Time) subject
}

// world is one queue with everything that a program may name.
type world struct {
	subject subject
	now     time.Time
	// make builds the subject that the command new asks for.
	make maker

	waiterByName map[string]*ledger.Waiter
	ownerByName  map[string]*ledger.Owner
	// quiet leaves out the self-check, for programs that only measure.
	quiet bool
	// verbose prints every field of a delivery or a dead letter.
	verbose bool
}

// maker builds a subject; config has its defaults, and draw may be nil.
type maker func(config messages.QueueConfig, draw func(put, failure uint64) uint64) subject

func newWorld(make maker) *world {
	return &world{make: make}
}

// run carries out one line and returns what came of it. A line that cannot be
// read is a panic: it is a mistake in the test.
func (w *world) run(line string) string {
	name, args, err := datadriven.ParseLine(line)
	if err != nil {
		panic(err)
	}
	a := arguments{line: line, byName: map[string]string{}, used: map[string]bool{}}
	for _, arg := range args {
		if len(arg.Vals) == 0 {
			a.plain = append(a.plain, arg.Key)
			continue
		}
		a.byName[arg.Key] = strings.Join(arg.Vals, ",")
	}
	var out strings.Builder
	if w.subject == nil && name != "new" {
		panic(line + ": no queue; begin with new")
	}
	w.command(&out, name, &a)
	a.finish()
	return out.String()
}

func (w *world) command(out *strings.Builder, name string, a *arguments) {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	hold := a.flag("hold")
	// Effects come before the verdict: they are carried out first.
	result := func(text string, err error, holds ...bool) {
		w.finish(out, hold || slices.Contains(holds, true))
		switch {
		case err != nil:
			say("error: %v", err)
			if hint := messages.Hint(err); hint != "" {
				say("hint: %s", hint)
			} else {
				panic(fmt.Sprintf("%s: %v (%T) has no hint", a.line, err, err))
			}
		case text != "":
			say("%s", text)
		}
	}
	s := w.subject
	switch name {
	case "new":
		*w = world{make: w.make, now: epoch, quiet: w.quiet, verbose: a.flag("verbose"),
			waiterByName: map[string]*ledger.Waiter{}, ownerByName: map[string]*ledger.Owner{}}
		config, draw := a.config()
		if err := config.Validate(); err != nil {
			panic(fmt.Sprintf("%s: %v", a.line, err))
		}
		w.subject = w.make(config.WithDefaults(), draw)
		result("", nil)
	case "put":
		w.put("", a) // takes the flags out of the words, so that only ids are left
		ids := a.plain
		a.plain = nil
		for i, id := range ids {
			r, err := s.Put(w.now, w.put(id, a))
			text := ""
			if r.Duplicate {
				text = fmt.Sprintf("%s is a duplicate of put %d", id, r.Number)
			} else if r.Number == 0 && err == nil {
				text = "no put number"
			}
			if err != nil && r != (ledger.PutResult{}) {
				text += fmt.Sprintf("refused, yet %+v", r)
			}
			result(text, err, hold || i < len(ids)-1) // one turn of many puts, one hand-over
		}
	case "ack":
		for _, tag := range a.tags() {
			result("", s.Ack(w.now, tag))
		}
	case "nack":
		for _, tag := range a.tags() {
			result("", s.Nack(w.now, tag, a.errText()))
		}
	case "nack-in":
		d := a.duration("for")
		for _, tag := range a.tags() {
			result("", s.NackIn(w.now, tag, d, a.errText()))
		}
	case "reject":
		for _, tag := range a.tags() {
			result("", s.Reject(w.now, tag, a.errText()))
		}
	case "release":
		for _, tag := range a.tags() {
			result("", s.Release(w.now, tag))
		}
	case "touch":
		for _, tag := range a.tags() {
			at, err := s.Touch(w.now, tag)
			result("until "+instant(at), err)
		}
	case "touch-for":
		d := a.duration("for")
		for _, tag := range a.tags() {
			at, err := s.TouchFor(w.now, tag, d)
			result("until "+instant(at), err)
		}
	case "lease-end":
		for _, tag := range a.tags() {
			issued, end := s.LeaseEnd(tag)
			say("tag %d issued %v, %v", tag, issued, end)
		}
	case "ack-foreign": // by the receipt of another incarnation of the queue
		for _, tag := range a.tags() {
			result("", s.RefuseForeign(messages.VerbAck, messages.Receipt{Queue: theSource.Queue, Incarnation: theSource.Incarnation - 1, Tag: tag}))
		}
	case "attach":
		c := &ledger.Consumer{
			Tag: a.word(), Prefetch: a.number("prefetch", 1), AckTimeout: a.duration("ack-timeout"),
			NoTimeout: a.flag("no-timeout"), Handler: a.flag("handler"),
		}
		result("", s.Attach(w.now, c))
	case "detach":
		result(unlessTrue(s.Detach(w.now, a.word()), "no such consumer"), nil)
	case "holder-ended":
		s.HolderEnded(w.now, a.word())
		result("", nil)
	case "set-prefetch":
		result(unlessTrue(s.SetPrefetch(w.now, a.word(), a.number("to", 0)), "no such consumer"), nil)
	case "started":
		for _, tag := range a.tags() {
			s.Started(w.now, tag)
		}
		result("", nil)
	case "returned":
		consumer := a.word()
		for _, tag := range a.tags() {
			s.Returned(w.now, consumer, tag)
		}
		result("", nil)
	case "crashed":
		for _, tag := range a.tags() {
			s.Crashed(w.now, tag, a.errText())
		}
		result("", nil)
	case "want":
		holder := a.word()
		waiter := &ledger.Waiter{Holder: holder, AckTimeout: a.duration("ack-timeout"), NoTimeout: a.flag("no-timeout")}
		w.waiterByName[holder] = waiter
		s.Want(w.now, waiter)
		result("", nil)
	case "unwant":
		holder := a.word()
		waiter := w.waiterByName[holder]
		if waiter == nil {
			waiter = &ledger.Waiter{Holder: holder}
		}
		result(unlessTrue(s.Unwant(waiter), "not waiting"), nil)
	case "pause":
		s.Pause(w.now)
		result("", nil)
	case "resume":
		s.Resume(w.now)
		result("", nil)
	case "drain":
		s.Drain(w.now)
		result("", nil)
	case "purge":
		result(fmt.Sprintf("%d purged", s.Purge(w.now)), nil)
	case "peek":
		if found := s.Peek(a.number("n", 100)); len(found) == 0 {
			say("nothing is ready")
		} else {
			for i := range found {
				say("%s", w.delivery(&found[i]))
			}
		}
	case "close":
		m, l := s.Close(w.now)
		result(fmt.Sprintf("%d messages and %d dead letters dropped", m, l), nil)
	case "quarantine":
		s.Quarantine()
		result("", nil)
	case "letters":
		found := s.DeadLetters(uint64(a.number("after", 0)), a.number("n", 100))
		if len(found) == 0 {
			say("no dead letters")
		}
		for i := range found {
			say("%s", w.letter(&found[i]))
		}
	case "last-letter":
		say("%d", s.LastLetter())
	case "discard":
		ids := a.plain
		a.plain = nil
		result(fmt.Sprintf("%d discarded", s.Discard(w.now, ids)), nil)
	case "remove-letter":
		for _, number := range a.tags() {
			result(unlessTrue(s.RemoveLetter(w.now, number), "no such letter"), nil)
		}
	case "redrive":
		for _, number := range a.tags() {
			r, err := s.Redrive(w.now, number)
			text := ""
			if r.Duplicate {
				text = "kept, a duplicate"
			}
			result(text, err)
		}
	case "sleep": // time passes and every event is noticed at its instant
		w.sleep(out, w.now.Add(a.period()))
	case "jump": // time passes unnoticed, as before a late timer
		w.now = w.now.Add(a.period())
	case "jump-back": // what a broken clock would say
		w.now = w.now.Add(-a.period())
	case "tick":
		s.Tick(w.now)
		result("", nil)
	case "stats":
		say("%s", statsText(s.Stats(w.now)))
	case "invariants":
		say("%s", okOr(s.check(w.now)))
	case "records":
		for _, line := range s.newRecords() {
			say("%s", line)
		}
	case "restart": // a new process folds the records; the holders are gone
		w.subject = s.restart(w.now)
		w.ownerByName = map[string]*ledger.Owner{}
		result("", nil)
	case "trim":
		s.Trim()
		result("", nil)
	default:
		panic("unknown command " + name)
	}
	if w.quiet {
		return
	}
	if err := w.subject.check(w.now); err != nil {
		say("BROKEN: %v", err)
	}
}

// finish hands over, unless the turn goes on, and prints what is to be done.
func (w *world) finish(out *strings.Builder, hold bool) {
	if !hold {
		w.subject.HandOver(w.now)
	}
	for _, line := range w.subject.said() {
		fmt.Fprintln(out, line)
	}
}

// sleep lets time pass until then; the queue is woken at each of its deadlines
// and at nothing else, and what it does then is printed with the instant.
func (w *world) sleep(out *strings.Builder, until time.Time) {
	for rounds := 0; ; rounds++ {
		if rounds > 100_000 {
			panic("the queue asks to be woken for ever at " + instant(w.now))
		}
		at, ok := w.subject.NextDeadline()
		if !ok || at.After(until) {
			break
		}
		if at.After(w.now) {
			w.now = at
		}
		var inner strings.Builder
		w.subject.Tick(w.now)
		w.finish(&inner, false)
		for line := range strings.Lines(inner.String()) {
			fmt.Fprintf(out, "%s %s", instant(w.now), line)
		}
	}
	if w.now.Before(until) {
		w.now = until
	}
	w.subject.Tick(w.now)
	w.finish(out, false)
}

// next says when the queue wants to be woken.
func (w *world) next() string {
	at, ok := w.subject.NextDeadline()
	if !ok {
		return ""
	}
	return "next: " + instant(at)
}

func (w *world) put(id string, a *arguments) *ledger.Put {
	e := &messages.Envelope{ID: id, Body: []byte(id)}
	if body, ok := a.lookup("body"); ok {
		e.Body = []byte(body)
	}
	if n := a.number("bytes", -1); n >= 0 {
		e.Body = make([]byte, n)
	}
	if text, ok := a.lookup("header"); ok {
		key, value, _ := strings.Cut(text, ":")
		e.Headers = map[string]string{key: value}
	}
	if extra, ok := a.lookup("extra"); ok {
		e.Extra = []byte(extra)
	}
	e.ContentType, e.Topic = a.text("type"), a.text("topic")
	e.Priority = a.number("prio", 0)
	e.Delay = a.duration("delay")
	if at, ok := a.lookup("expires"); ok {
		e.ExpiresAt = epoch.Add(mustDuration(strings.TrimPrefix(at, "+")))
	}
	put := ledger.NewPut(e, !a.flag("made"))
	p := &put
	if name, ok := a.lookup("owner"); ok {
		if w.ownerByName[name] == nil {
			w.ownerByName[name] = &ledger.Owner{Address: name}
		}
		p.Owner = w.ownerByName[name]
	}
	// What a redrive from another queue brings along.
	if a.flag("redriven") {
		p.Past = &ledger.Past{Redriven: true, Deliveries: a.number("deliveries", 1), Deaths: a.number("deaths", 1)}
		for range min(p.Past.Deaths, messages.HistoryMax) {
			p.Past.History = append(p.Past.History, messages.Death{
				Queue: "before", Reason: messages.Rejected, Attempts: 1, Error: "old", At: epoch.Add(-time.Hour),
			})
		}
	}
	return p
}

// arguments are the words of a line, taken one by one so that none is overlooked.
type arguments struct {
	line   string
	plain  []string
	byName map[string]string
	used   map[string]bool
}

func (a *arguments) lookup(name string) (string, bool) {
	a.used[name] = true
	v, ok := a.byName[name]
	return v, ok
}

func (a *arguments) text(name string) string { v, _ := a.lookup(name); return v }

// errText is the error of a settle; error-bytes makes a long one.
func (a *arguments) errText() string {
	if n := a.number("error-bytes", 0); n > 0 {
		return strings.Repeat("x", n)
	}
	return a.text("error")
}

func (a *arguments) flag(name string) bool {
	if i := slices.Index(a.plain, name); i >= 0 {
		a.plain = slices.Delete(slices.Clone(a.plain), i, i+1)
		a.used["flag "+name] = true // a put asks again for each of its ids
	}
	return a.used["flag "+name]
}

func (a *arguments) number(name string, or int) int {
	v, ok := a.lookup(name)
	if !ok {
		return or
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", a.line, err))
	}
	return n
}

func (a *arguments) duration(name string) time.Duration {
	v, ok := a.lookup(name)
	if !ok {
		return 0
	}
	return mustDuration(v)
}

func (a *arguments) word() string {
	if len(a.plain) == 0 {
		panic(a.line + ": a name is missing")
	}
	word := a.plain[0]
	a.plain = a.plain[1:]
	return word
}

func (a *arguments) period() time.Duration { return mustDuration(a.word()) }

func (a *arguments) tags() []uint64 {
	var tags []uint64
	for _, word := range a.plain {
		tag, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", a.line, err))
		}
		tags = append(tags, tag)
	}
	a.plain = nil
	return tags
}

// finish makes sure that a misspelt word is not passed over in silence.
func (a *arguments) finish() {
	if len(a.plain) > 0 {
		panic(fmt.Sprintf("%s: %q means nothing here", a.line, a.plain))
	}
	for name := range a.byName {
		if !a.used[name] {
			panic(fmt.Sprintf("%s: %q means nothing here", a.line, name))
		}
	}
}

func (a *arguments) config() (messages.QueueConfig, func(put, failure uint64) uint64) {
	c := messages.QueueConfig{
		AckTimeout: a.duration("ack-timeout"), NoTimeout: a.flag("no-timeout"), MaxLease: a.duration("max-lease"),
		MaxAttempts: a.number("max-attempts", 0),
		BackoffBase: a.duration("backoff"), BackoffCap: a.duration("cap"), NoJitter: a.flag("no-jitter"),
		RetryExpired: a.flag("retry-expired"),
		MaxMessages:  a.number("max-messages", 0), MaxBytes: int64(a.number("max-bytes", 0)),
		TTL: a.duration("ttl"), DedupWindow: a.duration("dedup-window"), DedupLimit: a.number("dedup-limit", 0),
		DeadLetterLimit: a.number("letters-max", 0), DeadLetterBytes: int64(a.number("letter-bytes-max", 0)),
		DeadLetterAlarm: a.number("letters-alarm", 0),
		MaxAge:          a.duration("max-age"), SingleActive: a.flag("single-active"),
	}
	if a.flag("drop-oldest") {
		c.Overflow = messages.DropOldest
	}
	if ratio, ok := a.lookup("retry-ratio"); ok {
		c.RetryBudget.Ratio, _ = strconv.ParseFloat(ratio, 64)
	}
	c.RetryBudget.Floor = a.number("retry-floor", 0)
	c.RetryBudget.Window = a.duration("retry-window")

	var draw func(put, failure uint64) uint64
	switch v, ok := a.lookup("draw"); {
	case !ok:
	case v == "least":
		draw = func(uint64, uint64) uint64 { return 0 }
	case v == "most":
		draw = func(uint64, uint64) uint64 { return math.MaxUint64 }
	case v == "keyed":
		draw = keyed
	default:
		panic(a.line + ": draw is least, most or keyed")
	}
	return c, draw
}

// keyed is a random source that gives the same number for the same put and
// failure (splitmix64).
func keyed(put, failure uint64) uint64 {
	x := put*0x9E3779B97F4A7C15 + failure*0xBF58476D1CE4E5B9
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

func mustDuration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func unlessTrue(ok bool, otherwise string) string {
	if ok {
		return ""
	}
	return otherwise
}

func okOr(err error) string {
	if err != nil {
		return "BROKEN: " + err.Error()
	}
	return "ok"
}

func instant(t time.Time) string {
	switch d := t.Sub(epoch); {
	case t.IsZero():
		return "never"
	case d < 0:
		return d.String()
	default:
		return "+" + d.String()
	}
}

// delivery prints what a holder receives, or what Peek shows when the tag is 0.
func (w *world) delivery(d *messages.Delivery) string { return deliveryText(d, w.verbose) }

func deliveryText(d *messages.Delivery, verbose bool) string {
	var b strings.Builder
	if d.Tag != 0 {
		fmt.Fprintf(&b, "%d: %s attempt %d", d.Tag, d.ID, d.Attempt)
		if d.Deliveries != d.Attempt {
			fmt.Fprintf(&b, " delivery %d", d.Deliveries)
		}
		fmt.Fprintf(&b, " until %s", instant(d.Deadline))
	} else {
		fmt.Fprintf(&b, "%s attempts %d deliveries %d", d.ID, d.Attempt, d.Deliveries)
	}
	if d.From != theSource {
		fmt.Fprintf(&b, " from %+v", d.From)
	}
	if verbose {
		fmt.Fprintf(&b, " enqueued %s%s", instant(d.EnqueuedAt), envelopeText(d.Body, d.Headers, d.Details))
	}
	return b.String()
}

func envelopeText(body []byte, headers map[string]string, d *messages.Details) string {
	var b strings.Builder
	fmt.Fprintf(&b, " body=%s", body)
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&b, " header=%s:%s", k, headers[k])
	}
	if d == nil {
		return b.String() + " no details"
	}
	if d.ContentType != "" {
		fmt.Fprintf(&b, " type=%s", d.ContentType)
	}
	if d.Extra != nil {
		fmt.Fprintf(&b, " extra=%s", d.Extra)
	}
	if d.Topic != "" {
		fmt.Fprintf(&b, " topic=%s", d.Topic)
	}
	if d.Priority != 0 {
		fmt.Fprintf(&b, " prio=%d", d.Priority)
	}
	if !d.ExpiresAt.IsZero() {
		fmt.Fprintf(&b, " expires=%s", instant(d.ExpiresAt))
	}
	return b.String()
}

func (w *world) letter(l *messages.DeadLetter) string { return letterText(l, w.verbose) }

func letterText(l *messages.DeadLetter, verbose bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "letter %d: %s %s at %s attempts %d deliveries %d", l.Number, l.ID, l.Reason, instant(l.DiedAt), l.Attempts, l.Deliveries)
	if l.Error != "" {
		fmt.Fprintf(&b, " error %q", cutForPrint(l.Error))
	}
	if l.Queue != theSource.Queue {
		fmt.Fprintf(&b, " queue %q", l.Queue)
	}
	if l.Deaths != 1 || verbose {
		fmt.Fprintf(&b, " deaths %d, known", l.Deaths)
		for _, d := range l.History {
			fmt.Fprintf(&b, " [%s %s %s attempts %d %q]", instant(d.At), d.Queue, d.Reason, d.Attempts, cutForPrint(d.Error))
		}
	}
	if verbose {
		fmt.Fprintf(&b, " enqueued %s%s", instant(l.EnqueuedAt), envelopeText(l.Body, l.Headers, l.Details))
	}
	return b.String()
}

func cutForPrint(s string) string {
	if len(s) <= 60 {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:20], len(s))
}

// statsText prints what is not zero; the counters stand on a line of their own.
func statsText(s messages.QueueStats) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ready %d delayed %d leased %d dead %d consumers %d bytes %d", s.Ready, s.Delayed, s.Leased, s.DeadLetters, s.Consumers, s.Bytes)
	if s.DeadLetterBytes != 0 {
		fmt.Fprintf(&b, " dead bytes %d", s.DeadLetterBytes)
	}
	if s.OldestAge != 0 {
		fmt.Fprintf(&b, " oldest %v", s.OldestAge)
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"paused", s.Paused}, {"draining", s.Draining}, {"quarantined", s.Quarantined}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	if s.Queue != theSource.Queue || s.Incarnation != theSource.Incarnation {
		fmt.Fprintf(&b, " of %s/%d", s.Queue, s.Incarnation)
	}
	b.WriteString("\ncounted:")
	c := &s.Counters
	count := func(name string, n uint64) {
		if n != 0 {
			fmt.Fprintf(&b, " %s %d", name, n)
		}
	}
	count("puts", c.Puts)
	count("redriven-in", c.RedrivenIn)
	count("deliveries", c.Deliveries)
	count("redelivered", c.Redelivered)
	count("acks", c.Acks)
	count("nacks", c.Nacks)
	count("expiries", c.Expiries)
	count("rejections", c.Rejections)
	for r, n := range c.DeadBy {
		count("dead-"+messages.Reason(r).String(), n)
	}
	count("purged", c.Purged)
	count("dropped", c.Dropped)
	count("redriven-out", c.RedrivenOut)
	count("discarded", c.Discarded)
	count("trimmed", c.Trimmed)
	count("touches", c.Touches)
	for v, n := range c.StaleBy {
		count("stale-"+messages.Verb(v).String(), n)
	}
	count("duplicates", c.Duplicates)
	count("refusals", c.Refusals)
	count("interruptions", c.Interruptions)
	count("claims-dropped", c.ClaimsDropped)
	count("lost-notices", c.LostNotices)
	return strings.TrimSuffix(b.String(), "\ncounted:")
}

// conserved is the equation of SPEC R10.
func conserved(s messages.QueueStats) error {
	in := s.Puts + s.RedrivenIn
	out := uint64(s.Ready) + uint64(s.Delayed) + uint64(s.Leased) + s.Acks + s.Counters.Dead() + s.Purged + s.Dropped
	if in != out {
		return fmt.Errorf("puts %d + redriven in %d, but ready %d + delayed %d + leased %d + acks %d + dead %d + purged %d + dropped %d = %d",
			s.Puts, s.RedrivenIn, s.Ready, s.Delayed, s.Leased, s.Acks, s.Counters.Dead(), s.Purged, s.Dropped, out)
	}
	letters := uint64(s.DeadLetters) + s.RedrivenOut + s.Discarded + s.Trimmed
	if s.Dropped == 0 && letters > s.Counters.Dead() { // a closed queue drops its letters uncounted
		return fmt.Errorf("%d deaths made %d letters", s.Counters.Dead(), letters)
	}
	return nil
}

// real is the ledger as a subject, with all its records kept.
type real struct {
	*ledger.Ledger
	config messages.QueueConfig
	draw   func(put, failure uint64) uint64

	records []ledger.Record // all of them; nil after a restart
	fresh   []ledger.Record // those not yet printed
	folds   bool            // records tell the whole story
}

func newReal(config messages.QueueConfig, draw func(put, failure uint64) uint64) subject {
	o := ledger.Options{Journal: true}
	if draw != nil {
		o.Draw = func(_ *messages.Source, put, failure uint64) uint64 { return draw(put, failure) }
	}
	return &real{
		Ledger: ledger.New(theSource, &config, epoch, o),
		config: config, draw: draw, folds: true,
	}
}

func (r *real) said() []string {
	var lines []string
	effects := r.Effects()
	for i := range effects {
		for range max(1, effects[i].Count) { // the model tells of each
			lines = append(lines, r.effectText(&effects[i]))
		}
	}
	r.ClearEffects()
	return lines
}

func (r *real) effectText(e *ledger.Effect) string {
	holder := func() string {
		switch {
		case e.Consumer != nil && e.Waiter != nil:
			return "both a consumer and a get"
		case e.Consumer != nil:
			return e.Consumer.Tag
		case e.Waiter != nil:
			return "get " + e.Waiter.Holder
		default:
			return "nobody"
		}
	}
	switch e.Kind {
	case ledger.HandedOver:
		var d messages.Delivery
		r.Fill(e, &d)
		if d.Tag != e.Tag {
			return fmt.Sprintf("effect of tag %d filled with tag %d", e.Tag, d.Tag)
		}
		return handedOverText(holder(), &d)
	case ledger.LeaseLost:
		return lostText(holder(), e.Tag)
	case ledger.Died:
		return diedText(e.Letter, e.Announce)
	case ledger.Trimmed:
		return trimmedText(e.Letter)
	case ledger.AlarmRaised:
		return alarmText(e.Alarm == messages.OldestAge)
	case ledger.Settled:
		return settledText(e.Owner)
	case ledger.Drained:
		return "drained"
	default:
		return fmt.Sprintf("effect of unknown kind %d", e.Kind)
	}
}

func handedOverText(holder string, d *messages.Delivery) string {
	return fmt.Sprintf("%s gets %s", holder, deliveryText(d, false))
}
func lostText(holder string, tag uint64) string { return fmt.Sprintf("%s loses %d", holder, tag) }
func diedText(l *messages.DeadLetter, announce bool) string {
	if !announce {
		return "died unannounced: " + letterText(l, false)
	}
	return "died: " + letterText(l, false)
}
func trimmedText(l *messages.DeadLetter) string {
	return "trimmed: letter " + strconv.FormatUint(l.Number, 10)
}
func alarmText(age bool) string {
	if age {
		return "alarm: oldest age"
	}
	return "alarm: dead letters"
}
func settledText(o *ledger.Owner) string { return fmt.Sprint("settled for ", o.Address) }

func (r *real) check(now time.Time) error {
	if err := r.CheckInvariants(); err != nil {
		return err
	}
	taken := r.TakeRecords()
	r.records = append(r.records, taken...)
	r.fresh = append(r.fresh, taken...)
	if !r.folds {
		return nil
	}
	folded, err := ledger.Fold(theSource, &r.config, epoch, r.records)
	if err != nil {
		return fmt.Errorf("fold of %d records: %w", len(r.records), err)
	}
	if got, want := folded.Dump(), r.Dump(); got != want {
		return fmt.Errorf("fold of %d records:\n%s\nthe ledger itself:\n%s", len(r.records), got, want)
	}
	// A touched deadline is not recorded, so the folded ledger may be overdue; it is
	// whole once it has moved on.
	folded.Recover(now)
	for folded.Behind() {
		folded.Tick(now)
	}
	if err := folded.CheckInvariants(); err != nil {
		return fmt.Errorf("the folded and recovered ledger: %w", err)
	}
	return nil
}

// restart is what a new process does: it folds the records and takes the leases
// of all holders back.
func (r *real) restart(now time.Time) subject {
	if err := r.check(now); err != nil {
		panic(err)
	}
	l, err := ledger.Fold(theSource, &r.config, epoch, r.records)
	if err != nil {
		panic(err)
	}
	l.Recover(now)
	return &real{Ledger: l, config: r.config, draw: r.draw}
}

func (r *real) newRecords() []string {
	var lines []string
	for i := range r.fresh {
		lines = append(lines, fmt.Sprintf("%+v", r.fresh[i]))
	}
	r.fresh = nil
	return lines
}
