package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// keys are those of a world line, in the order they are written in. The
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
		var rest strings.Builder
		for _, d := range chunk {
			fmt.Fprintf(&rest, " %d=%d", d.Number, d.Pick)
		}
		line("pick", rest.String())
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
