package simulation

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	faults []struct { // where each fault of the plan stands
		line int
		text string
	}
	end int // column behind the line
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
	p.faults = append(p.faults, struct {
		line int
		text string
	}{p.line, p.text})
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
	if len(p.s.Queues) == 0 {
		return nil
	}
	p.s.Plan.Spec = ScenarioSpec
	for i := range p.s.Plan.Faults {
		if name, expected := p.s.unknown(&p.s.Plan.Faults[i]); expected != "" {
			p.line = p.faults[i].line
			return p.fail(max(0, strings.LastIndex(p.faults[i].text, name))+1, name, "%s", expected)
		}
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
