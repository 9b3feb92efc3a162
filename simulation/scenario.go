package simulation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// Scenario is a run as people read and write it: the world, what is put, what goes
// wrong, and below a line what then happened. It is what the shrinker emits and what
// testdata holds.
//
//	world  queue=mail lease=30s max=3 workers=2
//	put    m1
//	at     grant m1#1 worker hang 45s    # the 1st lease of m1
//	calm   5m
//	----
//	0s      put      m1
//	0s      grant    m1#1 -> w-1 tag=1 until=30s
//	30s     expire   m1#1 tag=1
//	…
//	ok      drained  violations=0
//
// A scenario either describes its world itself (world lines), or holds the plan of a
// spec written in Go (a spec line):
//
//	spec   mailer seed=7
//	set    lease 1 of 0..2 is 500ms
//	put    m1 producer=api queue=mail number=0 at=120ms
//	at     effect m1 worker crash
//	pick   12=3 40=1
//
// Lines are directives; # begins a comment; a name with odd characters stands in
// quotes. Durations are Go's.
type Scenario struct {
	// Queues is the world. Empty: Plan is of the spec that it names.
	Queues []ScenarioQueue
	// Puts is the workload of such a world; Plan.Items is then empty.
	Puts []ScenarioPut
	// Calm is how long the calm phase of such a world may last. Zero: a day.
	Calm time.Duration
	// Plan is the rest: seed, settings, items of a Go spec, faults, picks.
	Plan Plan
	// Want is what stands below the line, with its line ends.
	Want string
}

// ScenarioQueue is one queue of a scenario's world and who works on it.
type ScenarioQueue struct {
	Name string
	// Workers is how many there are: w-1, w-2, … for the first queue, <queue>-1, … for
	// others. Zero: nobody consumes.
	Workers int
	// Work is how long a handler takes; its effect is in the middle.
	Work time.Duration
	// Heartbeat keeps the leases of running handlers alive, Jitter draws the backoff.
	// Unlike in a broker both are off unless written: a trace is easier to read so.
	Heartbeat, Jitter bool
	// Config and Consumer are the rest; their NoJitter and NoHeartbeat are not looked at.
	Config   postroom.QueueConfig
	Consumer postroom.ConsumerConfig
}

// ScenarioPut is one put of a scenario's world.
type ScenarioPut struct {
	Message string
	// ID is the id that is put. Empty: the message's name.
	ID string
	// Queue is where to. Empty: the first queue.
	Queue string
	// Producer is who puts: each puts one after the other. Empty: one for each queue.
	Producer string
	At       time.Duration
	Priority int
	// Delay keeps it back, Expires is its time to live from the put; Work is how long
	// its handler takes, instead of the queue's.
	Delay, Expires, Work time.Duration
}

// ScenarioSpec is the name of the spec that a scenario with a world of its own is run by.
const ScenarioSpec = "scenario"

// scenarioKeys are the keys of a world line, in the order they are written in. The
// first, queue, stands for itself.
func (q *ScenarioQueue) keys() []scenarioKey {
	c, k := &q.Config, &q.Consumer
	return []scenarioKey{
		{"queue", &q.Name}, {"lease", &c.AckTimeout}, {"max", &c.MaxAttempts}, {"workers", &q.Workers}, {"work", &q.Work},
		{"heartbeat", &q.Heartbeat}, {"concurrency", &k.Concurrency}, {"prefetch", &k.Prefetch}, {"handler-timeout", &k.HandlerTimeout},
		{"backoff", &c.BackoffBase}, {"backoff-cap", &c.BackoffCap}, {"jitter", &q.Jitter}, {"retry-expired", &c.RetryExpired},
		{"max-lease", &c.MaxLease}, {"no-timeout", &c.NoTimeout}, {"ttl", &c.TTL}, {"dedup", &c.DedupWindow}, {"dedup-limit", &c.DedupLimit},
		{"messages", &c.MaxMessages}, {"overflow", &c.Overflow}, {"letters", &c.DeadLetterLimit}, {"single-active", &c.SingleActive},
	}
}

// keys are those of a put in a world of the text.
func (p *ScenarioPut) keys() []scenarioKey {
	return []scenarioKey{
		{"at", &p.At}, {"id", &p.ID}, {"queue", &p.Queue}, {"producer", &p.Producer}, {"priority", &p.Priority},
		{"delay", &p.Delay}, {"expires", &p.Expires}, {"work", &p.Work},
	}
}

func itemKeys(it *Item) []scenarioKey {
	return []scenarioKey{{"producer", &it.Producer}, {"queue", &it.Queue}, {"number", &it.Number}, {"at", &it.At}}
}

func faultKeys(f *Fault) []scenarioKey {
	return []scenarioKey{{"worker", &f.Worker}, {"queue", &f.Queue}, {"for", &f.For}, {"count", &f.Count}, {"point", &f.Point}}
}

// scenarioKey is one key=value of a line and where the value goes.
type scenarioKey struct {
	name string
	into any // *string, *int, *time.Duration, *bool or *messages.Overflow
}

// text is " key=value", or nothing for the zero value.
func (k scenarioKey) text() string {
	switch v := k.into.(type) {
	case *string:
		if *v != "" {
			return " " + k.name + "=" + quoteName(*v)
		}
	case *int:
		if *v != 0 {
			return fmt.Sprintf(" %s=%d", k.name, *v)
		}
	case *time.Duration:
		if *v != 0 {
			return " " + k.name + "=" + shortDuration(*v)
		}
	case *bool:
		if *v {
			return " " + k.name
		}
	case *messages.Overflow:
		if *v == postroom.DropOldest {
			return " " + k.name + "=drop-oldest"
		}
	default:
		panic(fmt.Sprintf("simulation: scenario key %s is a %T", k.name, k.into))
	}
	return ""
}

// kind is what the value must be, for errors.
func (k scenarioKey) kind() string {
	switch k.into.(type) {
	case *string:
		return "a name"
	case *int:
		return "a whole number"
	case *time.Duration:
		return "a duration such as 30s or 1m30s"
	case *messages.Overflow:
		return "refuse or drop-oldest"
	}
	return "no value"
}

// take reads a value and reports whether it is one of its kind.
func (k scenarioKey) take(value string) bool {
	switch v := k.into.(type) {
	case *string:
		*v = value
		return value != ""
	case *int:
		n, err := strconv.Atoi(value)
		*v = n
		return err == nil && (n >= 0 || n == postroom.Unlimited)
	case *time.Duration:
		d, err := time.ParseDuration(value)
		*v = d
		return err == nil && d >= 0
	case *messages.Overflow:
		*v = postroom.Refuse
		if value == "drop-oldest" {
			*v = postroom.DropOldest
		}
		return value == "refuse" || value == "drop-oldest"
	}
	return false
}

// ---- writing ----

// FormatScenario writes a scenario so that [ParseScenario] reads the same again.
func FormatScenario(s *Scenario) string {
	var b strings.Builder
	line := func(directive, rest string) { fmt.Fprintf(&b, "%-6s%s\n", directive, rest) }
	if len(s.Queues) == 0 {
		rest := " " + quoteName(s.Plan.Spec)
		if s.Plan.Seed != 0 {
			rest += fmt.Sprintf(" seed=%d", s.Plan.Seed)
		}
		if s.Plan.Strategy != Portfolio {
			rest += " strategy=" + s.Plan.Strategy.String()
		}
		line("spec", rest)
	}
	for i := range s.Queues {
		line("world", textOf(s.Queues[i].keys()))
	}
	if len(s.Queues) > 0 && s.Plan.Seed != 0 {
		line("seed", fmt.Sprintf(" %d", s.Plan.Seed))
	}
	for _, set := range s.Plan.Settings {
		rest := fmt.Sprintf(" %s %d of %d..%d", quoteName(set.Name), set.Value, set.Least, set.Most)
		if set.Text != "" {
			rest += " is " + quoteName(set.Text)
		}
		line("set", rest)
	}
	for i := range s.Puts {
		line("put", " "+quoteName(s.Puts[i].Message)+textOf(s.Puts[i].keys()))
	}
	for i := range s.Plan.Items {
		line("put", " "+quoteName(s.Plan.Items[i].Message)+textOf(itemKeys(&s.Plan.Items[i])))
	}
	for i := range s.Plan.Faults {
		line("at", " "+faultText(s.Plan.Faults[i]))
	}
	if s.Calm != 0 {
		line("calm", " "+shortDuration(s.Calm))
	}
	for chunk := range slices.Chunk(s.Plan.Decisions, 10) {
		rest := ""
		for _, d := range chunk {
			rest += fmt.Sprintf(" %d=%d", d.Number, d.Pick)
		}
		line("pick", rest)
	}
	b.WriteString(scenarioLine + "\n")
	b.WriteString(s.Want)
	return b.String()
}

func (s *Scenario) String() string { return FormatScenario(s) }

// scenarioLine is between what is given and what happened.
const scenarioLine = "----"

func textOf(keys []scenarioKey) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k.text())
	}
	return b.String()
}

// anchorText is [Anchor.String] with names quoted where needed.
func anchorText(a Anchor) string {
	if a.Event == noEvent {
		return "+" + shortDuration(a.At)
	}
	nth := ""
	if a.Nth > 0 {
		nth = fmt.Sprintf("#%d", a.Nth)
	}
	s := a.Event.String()
	if a.Message == "" {
		s += nth
	} else {
		s += " " + quoteName(a.Message) + nth
	}
	return s + textOf(anchorKeys(&a))
}

func anchorKeys(a *Anchor) []scenarioKey {
	return []scenarioKey{{"worker", &a.Worker}, {"queue", &a.Queue}, {"verb", &a.Verb}}
}

// faultText is a fault as the at directive has it.
func faultText(f Fault) string {
	s := anchorText(f.Anchor) + " " + f.Kind.subject() + " " + f.Kind.String()
	if f.For != 0 {
		s += " " + shortDuration(f.For)
		f.For = 0
	}
	return s + textOf(faultKeys(&f))
}

// subject is who a fault strikes: the word before its kind.
func (k FaultKind) subject() string {
	switch k {
	case FaultActor:
		return "broker"
	case FaultPutUnknown, FaultDuplicate:
		return "producer"
	case FaultPurge, FaultDelete, FaultQueuePause, FaultRedrive, FaultDrain:
		return "queue"
	}
	return "worker"
}

// shortDuration is d without the zeros behind it: 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// quoteName puts a name in quotes if it could be taken for something else.
func quoteName(name string) string {
	plain := name != "" && name[0] != '+' && name != scenarioLine && !isSubject(name)
	for _, r := range name {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`"=#\`, r) {
			plain = false
		}
	}
	if _, err := ParseFaultKind(name); err == nil {
		plain = false
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}

func isSubject(word string) bool {
	return word == "worker" || word == "queue" || word == "broker" || word == "producer"
}

// ---- reading ----

// ScenarioError says where a scenario is not one.
type ScenarioError struct {
	// Line and Column count from 1; the column counts bytes.
	Line, Column int
	// Found is what stands there, Expected what should.
	Found, Expected string
}

func (e *ScenarioError) Error() string {
	found := strconv.Quote(e.Found)
	if e.Found == "" {
		found = "end of line"
	}
	return fmt.Sprintf("scenario: line %d, column %d: found %s, expected %s", e.Line, e.Column, found, e.Expected)
}

// ParseScenario reads a scenario. Errors: [*ScenarioError].
func ParseScenario(text string) (*Scenario, error) {
	p := &scenarioParser{s: &Scenario{Plan: Plan{Format: PlanFormat}}}
	above, below, found := cutLine(text)
	if found {
		p.s.Want = below
	}
	for i, line := range strings.Split(above, "\n") {
		p.line, p.text = i+1, strings.TrimSuffix(line, "\r")
		if err := p.directive(); err != nil {
			return nil, err
		}
	}
	if err := p.whole(); err != nil {
		return nil, err
	}
	return p.s, nil
}

// cutLine cuts the text at the line between the two parts.
func cutLine(text string) (above, below string, found bool) {
	at := 0
	for at < len(text) {
		end := strings.IndexByte(text[at:], '\n')
		next := at + end + 1
		if end < 0 {
			end, next = len(text)-at, len(text)
		}
		if strings.TrimRight(text[at:at+end], " \t\r") == scenarioLine {
			return text[:at], text[next:], true
		}
		at = next
	}
	return text, "", false
}

type scenarioParser struct {
	s      *Scenario
	line   int
	text   string
	words  []word
	at     int
	isSpec bool
	end    int // column behind the line
}

// word is one word of a line: [key=]value[#nth], where the value may be quoted.
type word struct {
	column  int
	raw     string
	key     string
	value   string
	valueAt int
	quoted  bool
	nth     int
	hasNth  bool
}

func (p *scenarioParser) fail(column int, found, format string, args ...any) error {
	return &ScenarioError{Line: p.line, Column: column, Found: found, Expected: fmt.Sprintf(format, args...)}
}

// split cuts the line into words.
func (p *scenarioParser) split() error {
	p.words, p.at, p.end = p.words[:0], 0, len(p.text)+1
	for i := 0; i < len(p.text); {
		switch c := p.text[i]; {
		case c == ' ' || c == '\t':
			i++
			continue
		case c == '#':
			return nil
		}
		begin := i
		w := word{column: begin + 1, valueAt: begin + 1}
		bare := func() string {
			from := i
			for i < len(p.text) && !strings.ContainsRune(" \t\"=#", rune(p.text[i])) {
				i++
			}
			return p.text[from:i]
		}
		quoted := func() (string, error) {
			prefix, err := strconv.QuotedPrefix(p.text[i:])
			if err != nil {
				return "", p.fail(i+1, p.text[i:], "a closing quote")
			}
			i += len(prefix)
			return strconv.Unquote(prefix)
		}
		var err error
		if p.text[i] == '"' {
			w.quoted = true
			if w.value, err = quoted(); err != nil {
				return err
			}
		} else {
			w.value = bare()
		}
		if i < len(p.text) && p.text[i] == '=' && !w.quoted {
			i++
			w.key, w.value, w.valueAt = w.value, "", i+1
			if w.key == "" {
				return p.fail(begin+1, "=", "a key in front of =")
			}
			if i < len(p.text) && p.text[i] == '"' {
				w.quoted = true
				if w.value, err = quoted(); err != nil {
					return err
				}
			} else if w.value = bare(); w.value == "" {
				return p.fail(i+1, p.rest(i), "a value of %s", w.key)
			}
		}
		if i < len(p.text) && p.text[i] == '#' {
			from := i
			for i++; i < len(p.text) && p.text[i] >= '0' && p.text[i] <= '9'; i++ {
			}
			n, err := strconv.Atoi(p.text[from+1 : i])
			if err != nil || n < 1 {
				return p.fail(from+1, p.text[from:i], "a number from 1 behind #")
			}
			w.nth, w.hasNth = n, true
		}
		if i < len(p.text) && p.text[i] != ' ' && p.text[i] != '\t' {
			return p.fail(i+1, p.rest(i), "a space")
		}
		w.raw = p.text[begin:i]
		p.words = append(p.words, w)
	}
	return nil
}

// rest is the text from an index up to the next space.
func (p *scenarioParser) rest(i int) string {
	text, _, _ := strings.Cut(p.text[i:], " ")
	return text
}

// next takes the next word; one without a place is the end of the line.
func (p *scenarioParser) next() word {
	if p.at < len(p.words) {
		p.at++
		return p.words[p.at-1]
	}
	return word{column: p.end, valueAt: p.end}
}

func (p *scenarioParser) more() bool { return p.at < len(p.words) }

// done refuses words that are too many.
func (p *scenarioParser) done() error {
	if p.more() {
		w := p.next()
		return p.fail(w.column, w.raw, "the end of the line")
	}
	return nil
}

// name takes a word that is a plain name.
func (p *scenarioParser) name(what string) (string, error) {
	w := p.next()
	if w.raw == "" || w.key != "" || w.hasNth || w.value == "" {
		return "", p.fail(w.column, w.raw, "%s", what)
	}
	return w.value, nil
}

const scenarioDirectives = "world, spec, seed, set, put, at, calm, pick or ----"

// directive reads one line.
func (p *scenarioParser) directive() error {
	if err := p.split(); err != nil || len(p.words) == 0 {
		return err
	}
	w := p.next()
	unfit := func(why string) error { return p.fail(w.column, w.raw, "%s", why) }
	s := p.s
	ours := len(s.Queues) > 0
	if !ours && !p.isSpec && w.raw != "world" && w.raw != "spec" {
		return unfit("world or spec as the first directive")
	}
	switch w.raw {
	case "world":
		if p.isSpec {
			return unfit("no world: the spec of the first line has one")
		}
		return p.world()
	case "spec":
		if ours || p.isSpec {
			return unfit("one spec or world lines, not both")
		}
		p.isSpec = true
		return p.spec()
	case "seed":
		if !ours {
			return unfit("no seed line: a spec has seed=")
		}
		return p.seed(p.next())
	case "set":
		return p.set()
	case "put":
		return p.put()
	case "at":
		return p.fault()
	case "calm":
		if !ours {
			return unfit("no calm: the spec of the first line says it")
		}
		w := p.next()
		if !(scenarioKey{"calm", &s.Calm}).take(w.value) || w.key != "" || w.hasNth {
			return p.fail(w.column, w.raw, "a duration such as 5m")
		}
		return p.done()
	case "pick":
		return p.pick()
	}
	return unfit(scenarioDirectives)
}

// pairs reads the key=value words up to the end of the line. Each key may stand once.
func (p *scenarioParser) pairs(keys []scenarioKey) error {
	seen := map[string]bool{}
	for p.more() {
		if err := p.pair(p.next(), keys, seen); err != nil {
			return err
		}
	}
	return nil
}

func (p *scenarioParser) pair(w word, keys []scenarioKey, seen map[string]bool) error {
	name := w.key
	if name == "" && !w.quoted {
		name = w.value
	}
	for _, k := range keys {
		if k.name != name {
			continue
		}
		if seen[name] {
			return p.fail(w.column, w.raw, "%s once", name)
		}
		seen[name] = true
		if flag, ok := k.into.(*bool); ok {
			if w.key != "" || w.hasNth {
				return p.fail(w.column, w.raw, "%s without a value", name)
			}
			*flag = true
			return nil
		}
		if w.key == "" || w.hasNth || !k.take(w.value) {
			return p.fail(w.valueAt, w.value, "%s of %s", name, k.kind())
		}
		return nil
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return p.fail(w.column, w.raw, "one of %s", strings.Join(names, ", "))
}

func (p *scenarioParser) world() error {
	q := ScenarioQueue{}
	if err := p.pairs(q.keys()); err != nil {
		return err
	}
	if q.Name == "" {
		return p.fail(p.end, "", "queue=")
	}
	for _, o := range p.s.Queues {
		if o.Name == q.Name {
			return p.fail(1, p.text, "each queue once, and %s was there", q.Name)
		}
	}
	if err := q.Config.Validate(); err != nil {
		return p.fail(1, p.text, "a queue that can be declared: %v", err)
	}
	if err := q.Consumer.Validate(); err != nil {
		return p.fail(1, p.text, "a consumer that can be attached: %v", err)
	}
	if q.Workers < 0 || q.Name[0] == '$' {
		return p.fail(1, p.text, "a number of workers and a name that does not begin with $")
	}
	p.s.Queues = append(p.s.Queues, q)
	return nil
}

func (p *scenarioParser) spec() (err error) {
	if p.s.Plan.Spec, err = p.name("the name of a spec"); err != nil {
		return err
	}
	for p.more() {
		switch w := p.next(); w.key {
		case "seed":
			if err := p.number(w, &p.s.Plan.Seed); err != nil {
				return err
			}
		case "strategy":
			if p.s.Plan.Strategy.UnmarshalText([]byte(w.value)) != nil || w.hasNth {
				return p.fail(w.valueAt, w.value, "one of %s", strings.Join(strategyNames[:], ", "))
			}
		default:
			return p.fail(w.column, w.raw, "seed= or strategy=")
		}
	}
	return nil
}

func (p *scenarioParser) number(w word, into *uint64) (err error) {
	if *into, err = strconv.ParseUint(w.value, 10, 64); err != nil || w.hasNth {
		return p.fail(w.valueAt, w.value, "a whole number from 0")
	}
	return nil
}

func (p *scenarioParser) seed(w word) error {
	if w.key != "" {
		return p.fail(w.column, w.raw, "a whole number from 0")
	}
	if err := p.number(w, &p.s.Plan.Seed); err != nil {
		return err
	}
	return p.done()
}

// set reads: name value of least..most [is text].
func (p *scenarioParser) set() (err error) {
	var set Setting
	if set.Name, err = p.name("the name of a setting"); err != nil {
		return err
	}
	integer := func(w word, text string, into *int64) (err error) {
		if *into, err = strconv.ParseInt(text, 10, 64); err != nil || w.key != "" || w.hasNth || w.quoted {
			return p.fail(w.column, w.raw, "a whole number")
		}
		return nil
	}
	w := p.next()
	if err := integer(w, w.value, &set.Value); err != nil {
		return err
	}
	if w := p.next(); w.raw != "of" {
		return p.fail(w.column, w.raw, "of least..most")
	}
	w = p.next()
	least, most, ok := strings.Cut(w.value, "..")
	if !ok {
		return p.fail(w.column, w.raw, "least..most")
	}
	if err := integer(w, least, &set.Least); err != nil {
		return err
	}
	if err := integer(w, most, &set.Most); err != nil {
		return err
	}
	if p.more() {
		if w := p.next(); w.raw != "is" {
			return p.fail(w.column, w.raw, "is and the value in words")
		}
		if set.Text, err = p.name("the value in words"); err != nil {
			return err
		}
	}
	p.s.Plan.Settings = append(p.s.Plan.Settings, set)
	return p.done()
}

func (p *scenarioParser) put() error {
	name, err := p.name("the name of a message")
	if err != nil {
		return err
	}
	if p.isSpec {
		it := Item{Message: name}
		if err := p.pairs(itemKeys(&it)); err != nil {
			return err
		}
		if it.Queue == "" || it.Producer == "" {
			return p.fail(p.end, "", "producer= and queue=, as the spec has them")
		}
		if it.Number < 0 {
			return p.fail(1, p.text, "a number from 0")
		}
		p.s.Plan.Items = append(p.s.Plan.Items, it)
		return nil
	}
	put := ScenarioPut{Message: name}
	if err := p.pairs(put.keys()); err != nil {
		return err
	}
	if put.Queue != "" && p.s.queue(put.Queue) == nil {
		return p.fail(1, p.text, "a queue of a world line before it, not %s", put.Queue)
	}
	if put.Priority < 0 {
		return p.fail(1, p.text, "a priority from 0")
	}
	p.s.Puts = append(p.s.Puts, put)
	return nil
}

// fault reads: anchor [subject] kind [duration] [key=value …].
func (p *scenarioParser) fault() error {
	var f Fault
	if err := p.anchor(&f.Anchor); err != nil {
		return err
	}
	w := p.next()
	subject, said := w, false
	if isSubject(w.raw) {
		said = true
		w = p.next()
	}
	kind, err := ParseFaultKind(w.value)
	if err != nil || w.quoted || w.key != "" || w.hasNth {
		return p.fail(w.column, w.raw, "a fault: %s", strings.Join(faultNames[1:], ", "))
	}
	f.Kind = kind
	if said && subject.raw != kind.subject() {
		return p.fail(subject.column, subject.raw, "%s in front of %v", kind.subject(), kind)
	}
	keys, seen := faultKeys(&f), map[string]bool{}
	for first := true; p.more(); first = false {
		w := p.next()
		if d, err := time.ParseDuration(w.raw); first && err == nil {
			if d < 0 {
				return p.fail(w.column, w.raw, "a duration that is not negative")
			}
			f.For, seen["for"] = d, true
			continue
		}
		if err := p.pair(w, keys, seen); err != nil {
			return err
		}
	}
	if f.Count < 0 {
		return p.fail(1, p.text, "a count from 0")
	}
	p.s.Plan.Faults = append(p.s.Plan.Faults, f)
	return nil
}

// anchor reads an instant, or an event and what must match, up to the fault.
func (p *scenarioParser) anchor(a *Anchor) error {
	w := p.next()
	if strings.HasPrefix(w.raw, "+") {
		if !(scenarioKey{"", &a.At}).take(w.raw[1:]) {
			return p.fail(w.column, w.raw, "an instant such as +1.5s")
		}
		return nil
	}
	kind, err := ParseKind(w.value)
	if err != nil || w.quoted || w.key != "" {
		return p.fail(w.column, w.raw, "an instant such as +1.5s or an event: %s", strings.Join(kindNames[1:], ", "))
	}
	a.Event = kind
	nth := func(w word) error {
		if !w.hasNth {
			return nil
		}
		if a.Nth != 0 {
			return p.fail(w.column, w.raw, "one #number")
		}
		a.Nth = w.nth
		return nil
	}
	if err := nth(w); err != nil {
		return err
	}
	keys, seen := anchorKeys(a), map[string]bool{}
	for ; p.more(); p.at++ {
		w := p.words[p.at]
		_, notFault := ParseFaultKind(w.raw)
		if w.key == "" && (isSubject(w.raw) || notFault == nil) {
			return nil
		}
		if err := nth(w); err != nil {
			return err
		}
		if w.key == "" {
			if a.Message != "" || w.value == "" {
				return p.fail(w.column, w.raw, "a fault: %s", strings.Join(faultNames[1:], ", "))
			}
			a.Message = w.value
			continue
		}
		w.hasNth = false
		if err := p.pair(w, keys, seen); err != nil {
			return err
		}
	}
	return nil
}

func (p *scenarioParser) pick() error {
	if !p.more() {
		return p.fail(p.end, "", "picks such as 12=3")
	}
	for p.more() {
		w := p.next()
		number, err := strconv.Atoi(w.key)
		pick, err2 := strconv.Atoi(w.value)
		if err != nil || err2 != nil || number < 0 || pick < 1 || w.hasNth {
			return p.fail(w.column, w.raw, "decision=pick, such as 12=3, with a pick from 1")
		}
		if log := p.s.Plan.Decisions; len(log) > 0 && log[len(log)-1].Number >= number {
			return p.fail(w.column, w.raw, "a decision after %d", log[len(log)-1].Number)
		}
		p.s.Plan.Decisions = append(p.s.Plan.Decisions, Decision{Number: number, Pick: pick})
	}
	return nil
}

// whole checks what no line can know.
func (p *scenarioParser) whole() error {
	p.line++
	if len(p.s.Queues) == 0 && !p.isSpec {
		return p.fail(1, "", "a world or spec line")
	}
	if len(p.s.Queues) > 0 {
		p.s.Plan.Spec = ScenarioSpec
	}
	return nil
}

func (s *Scenario) queue(name string) *ScenarioQueue {
	for i := range s.Queues {
		if s.Queues[i].Name == name {
			return &s.Queues[i]
		}
	}
	return nil
}

// ---- running ----

// poolOf is the name of the workers of queue i.
func (s *Scenario) poolOf(i int) string {
	if i == 0 {
		return "w"
	}
	return s.Queues[i].Name
}

// items are the puts as a plan has them.
func (s *Scenario) items() []Item {
	items := make([]Item, len(s.Puts))
	for i, p := range s.Puts {
		it := Item{Message: p.Message, Producer: p.Producer, Queue: p.Queue, Number: i, At: p.At}
		if it.Queue == "" {
			it.Queue = s.Queues[0].Name
		}
		if it.Producer == "" {
			it.Producer = "api"
		}
		it.Producer += "/" + it.Queue
		items[i] = it
	}
	return items
}

// Spec is the world of the text as a spec, nil if it has none. Its plan is that of
// [Scenario.FullPlan].
func (s *Scenario) Spec() *Spec {
	if len(s.Queues) == 0 {
		return nil
	}
	return &Spec{Name: ScenarioSpec, Build: s.build}
}

// FullPlan is the plan that [Spec.Replay] takes: with the items of a world of the
// text and the number of its workers.
func (s *Scenario) FullPlan() Plan {
	p := s.Plan.Clone()
	if len(s.Queues) == 0 {
		return p
	}
	p.Spec, p.Items = ScenarioSpec, s.items()
	for i := range s.Queues {
		if n := int64(s.Queues[i].Workers); n > 0 {
			p.Settings = append(p.Settings, Setting{Name: workersSetting(s.poolOf(i)), Value: n, Least: 1, Most: n})
		}
	}
	return p
}

// workersSetting is the setting that says how many workers a pool has.
func workersSetting(pool string) string { return "workers " + pool }

// build describes the world of the text.
func (s *Scenario) build(w *World) {
	effect := w.External("effect", nil)
	queues := map[string]*Queue{}
	for i := range s.Queues {
		q := s.Queues[i]
		q.Config.NoJitter, q.Consumer.NoHeartbeat = !q.Jitter, !q.Heartbeat
		queues[q.Name] = w.Queue(q.Name, q.Config)
		if q.Workers > 0 {
			w.Workers(s.poolOf(i), q.Workers, queues[q.Name], Inline(s.handler(q, effect)), q.Consumer)
		}
	}
	made := map[string]bool{}
	for _, it := range s.items() {
		if !made[it.Producer] {
			made[it.Producer] = true
			w.Produce(it.Producer, queues[it.Queue], Load{}, s.generate)
		}
	}
	if s.Calm != 0 {
		w.Calm(s.Calm)
	}
}

// handler works half of its time, has its effect, and works the rest.
func (s *Scenario) handler(q ScenarioQueue, effect *External) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		work := q.Work
		for _, p := range s.Puts {
			if p.Work > 0 && (p.Message == d.ID || p.ID == d.ID) {
				work = p.Work
			}
		}
		if work == 0 { // it never looks at its context
			return effect.Do(ctx, d.ID, "")
		}
		if err := Sleep(ctx, work/2); err != nil {
			return err
		}
		if err := effect.Do(ctx, d.ID, ""); err != nil {
			return err
		}
		return Sleep(ctx, work-work/2)
	}
}

// generate makes the envelope of the put with this number.
func (s *Scenario) generate(_ Draw, number int) postroom.Envelope {
	p := s.Puts[number]
	e := postroom.Envelope{ID: p.ID, Priority: p.Priority, Delay: p.Delay}
	if p.Expires > 0 {
		e.ExpiresAt = Epoch.Add(p.At + p.Expires)
	}
	return e
}

// Run runs the scenario: its own world, or the spec of its name among specs. Errors:
// none of them has that name.
func (s *Scenario) Run(specs ...Spec) (Result, error) {
	if own := s.Spec(); own != nil {
		return own.Replay(s.FullPlan()), nil
	}
	for _, spec := range specs {
		if spec.Name == s.Plan.Spec {
			return spec.Replay(s.FullPlan()), nil
		}
	}
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = spec.Name
	}
	return Result{}, fmt.Errorf("scenario: no spec is named %q; there are %v", s.Plan.Spec, names)
}

// With is the scenario with a plan that was made from its own, such as a shrunk one:
// puts and workers that the plan has not are gone.
func (s *Scenario) With(p Plan) *Scenario {
	made := *s
	made.Plan = p.Clone()
	if len(s.Queues) == 0 {
		return &made
	}
	made.Plan.Items, made.Plan.Settings = nil, nil
	made.Queues, made.Puts = slices.Clone(s.Queues), nil
	for i := range made.Queues {
		for _, set := range p.Settings {
			if set.Name == workersSetting(s.poolOf(i)) {
				made.Queues[i].Workers = int(set.Value)
			}
		}
	}
	for _, it := range p.Items {
		put := s.Puts[it.Number]
		put.At = it.At
		made.Puts = append(made.Puts, put)
	}
	return &made
}

// ScenarioOf is the scenario of a run of a spec written in Go, with what happened.
func ScenarioOf(r *Result) *Scenario {
	return &Scenario{Plan: r.Plan.Clone(), Want: ShortTrace(r)}
}

// ---- what happened ----

// ShortTrace is a run as a scenario has it: a line for each thing that happened to a
// message or a worker, and the verdict.
func ShortTrace(r *Result) string {
	var b strings.Builder
	queues := map[string]bool{}
	for i := range r.Events {
		if q := r.Events[i].Queue; q != "" {
			queues[q] = true
		}
	}
	for i := range r.Events {
		if r.Events[i].Kind == KindEnd {
			break // what closes then says nothing
		}
		what, rest, told := shortEvent(&r.Events[i])
		if !told {
			continue
		}
		if len(queues) > 1 && r.Events[i].Queue != "" {
			rest += " queue=" + quoteName(r.Events[i].Queue)
		}
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-7s %-8s %s", shortDuration(r.Events[i].At), what, rest), " "))
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "VIOLATION %v: %s\n", v.Signature, oneLine(v.Text))
	}
	for _, a := range r.Alarms {
		fmt.Fprintf(&b, "ALARM   %v: %s\n", a.Signature, oneLine(a.Reason))
	}
	if r.Err != "" {
		fmt.Fprintf(&b, "ERROR   %s\n", oneLine(r.Err))
	}
	if !r.Failed() {
		b.WriteString("ok      drained  violations=0\n")
	}
	return b.String()
}

func oneLine(text string) string {
	line, _, cut := strings.Cut(text, "\n")
	if cut {
		line += " …"
	}
	return line
}

// shortEvent is one line of the short trace; told says whether there is one.
func shortEvent(e *Event) (what, rest string, told bool) {
	what = e.Kind.String()
	message := quoteMessage(e)
	until := ""
	if e.Deadline != 0 {
		until = " until=" + shortDuration(e.Deadline)
	}
	worker := e.Worker
	if e.Incarnation > 1 {
		worker += fmt.Sprintf("'%d", e.Incarnation)
	}
	if worker == "" {
		worker = e.Consumer
	}
	tag := ""
	if e.Tag != 0 {
		tag = fmt.Sprintf(" tag=%d", e.Tag)
	}
	reason := ""
	if e.Reason != "" {
		reason = " " + e.Reason
	}
	switch e.Kind {
	case KindAccepted:
		return "put", message + until + reason, true
	case KindDuplicate, KindRefused, KindUnknown:
		return "put", message + " " + strings.ToUpper(what) + reason, true
	case KindGrant:
		attempt := ""
		if e.Attempt != e.Deliveries {
			attempt = fmt.Sprintf(" attempt=%d", e.Attempt)
		}
		return what, message + " -> " + worker + tag + attempt + until, true
	case KindEffect:
		return what, message + " by " + worker + tag + reason, true
	case KindSettle:
		return e.Verb, message + tag + until, true
	case KindTouch:
		return what, message + tag + until, true
	case KindStale:
		return e.Verb, message + tag + " REJECTED stale: " + e.Reason, true
	case KindExpire, KindTaken:
		note := ""
		if e.Detail != "" {
			note = " " + e.Detail
		}
		return what, message + tag + until + note, true
	case KindReady, KindPurged, KindDropped, KindRedrive:
		return what, message, true
	case KindDead, KindTrimmed, KindAnnounce:
		return what, message + reason, true
	case KindCrash, KindHang, KindPause, KindResume, KindRestart, KindDetach, KindStopped:
		note := ""
		if e.Detail != "" {
			note = " " + e.Detail
		}
		if message != "" {
			message = " on " + message
		}
		return what, worker + message + reason + note, true
	case KindAttach:
		return what, worker, e.Incarnation > 1
	case KindActor, KindAlarm:
		return what, e.Detail, true
	case KindQueue:
		return what, e.Detail, e.Detail != "declared, incarnation 1" || e.At > 0
	case KindFault:
		return what, e.Reason + " " + message, true
	case KindCalm:
		return what, "", true
	}
	return "", "", false
}

// quoteMessage is the message of an event with its generation and delivery.
func quoteMessage(e *Event) string {
	s := e.Message
	if s == "" {
		return ""
	}
	if e.Generation > 0 {
		s += fmt.Sprintf("+%d", e.Generation)
	}
	if e.Deliveries > 0 {
		s += fmt.Sprintf("#%d", e.Deliveries)
	}
	return s
}
