package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Explanation is the part of a run that a violation or an alarm depends on: its causal
// slice.
type Explanation struct {
	Signature Signature `json:"signature"`
	// Text is what the oracle said.
	Text string `json:"text"`
	// Messages, Workers and Tags are who it is about.
	Messages []string `json:"messages,omitempty"`
	Workers  []string `json:"workers,omitempty"`
	Tags     []uint64 `json:"tags,omitempty"`
	// Steps are the events, in order; the last is the violation itself.
	Steps []WhyStep `json:"steps"`
	// Of is how many events the run had up to it.
	Of int `json:"of"`
}

// WhyStep is one event of the slice and why it is in there.
type WhyStep struct {
	Event Event `json:"event"`
	// Role says what it has to do with the violation: "cause of 12", "of m1", "of w-1",
	// "fault".
	Role string `json:"role"`
}

// Explain returns the causal slice of what a run failed with first, nil for one that
// passed or kept no events. In it are
//
//   - the events from which a chain of causes leads to the violation
//   - all events of the messages and leases that it names
//   - what became of the workers that held them: crashes, hangs, pauses, restarts
//   - the faults that struck any of those
//
// Everything else could have been otherwise.
func Explain(r *Result) *Explanation {
	if len(r.Events) == 0 {
		return nil
	}
	w := &slicer{events: r.Events, roles: map[int]string{}, messages: map[string]bool{}, workers: map[string]bool{}, tags: map[tagOf]bool{}}
	x := &Explanation{Signature: r.Signature()}
	var end int
	switch {
	case len(r.Violations) > 0:
		v := r.Violations[0]
		x.Text, end = v.Text, v.Event
	case len(r.Alarms) > 0:
		a := r.Alarms[0]
		x.Text, end = a.Reason, a.Event
		if a.Message != "" {
			w.messages[a.Message] = true
		}
	case r.Err != "":
		x.Text, end = r.Err, len(r.Events)
	default:
		return nil
	}
	end = max(1, min(end, len(r.Events)))
	w.events = r.Events[:end]
	x.Of = end
	w.name(x.Text)
	w.add(end, "the end")
	w.slice()
	x.Messages, x.Workers = slices.Sorted(maps.Keys(w.messages)), slices.Sorted(maps.Keys(w.workers))
	for t := range w.tags {
		x.Tags = append(x.Tags, t.tag)
	}
	slices.Sort(x.Tags)
	for _, n := range slices.Sorted(maps.Keys(w.roles)) {
		x.Steps = append(x.Steps, WhyStep{w.events[n-1], w.roles[n]})
	}
	return x
}

// String is the slice as text, one event a line, with the number of its cause.
func (x *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n  %s\n%d of %d events matter", x.Signature, strings.ReplaceAll(x.Text, "\n", "\n  "), len(x.Steps), x.Of)
	if about := strings.Join(append(slices.Clone(x.Messages), x.Workers...), ", "); about != "" {
		fmt.Fprintf(&b, "; it is about %s", about)
	}
	b.WriteString(":\n")
	width := len(strconv.Itoa(x.Of))
	for _, s := range x.Steps {
		cause := strings.Repeat(" ", width+1)
		if s.Event.Cause > 0 {
			cause = fmt.Sprintf("←%*d", width, s.Event.Cause)
		}
		fmt.Fprintf(&b, "%*d %s  %s   [%s]\n", width, s.Event.Number, cause, oneLine(s.Event.String()), s.Role)
	}
	return b.String()
}

// tagOf is a lease: tags are of their queue.
type tagOf struct {
	queue string
	tag   uint64
}

type slicer struct {
	events   []Event
	roles    map[int]string
	messages map[string]bool
	workers  map[string]bool
	tags     map[tagOf]bool
}

// name finds who the text is about: its words that are names of messages and workers
// of the run, and "tag N".
func (w *slicer) name(text string) {
	messages, workers, holder := map[string]bool{}, map[string]bool{}, map[uint64]*Event{}
	for i := range w.events {
		e := &w.events[i]
		messages[e.Message], workers[e.Worker] = true, true
		if e.Kind == KindGrant {
			holder[e.Tag] = e
		}
	}
	words := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' && r != '.' && r != '$'
	})
	for i, word := range words {
		if messages[word] {
			w.messages[word] = true
		}
		if workers[word] {
			w.workers[word] = true
		}
		if tag, err := strconv.ParseUint(word, 10, 64); err == nil && i > 0 && words[i-1] == "tag" && holder[tag] != nil {
			w.tags[tagOf{holder[tag].Queue, tag}] = true
			w.messages[holder[tag].Message] = true
		}
	}
	if len(w.messages) == 0 && len(w.workers) == 0 { // it names nobody: what was going on then
		last := &w.events[len(w.events)-1]
		for n := last.Number; n > 0 && last.Message == ""; n = last.Cause {
			last = &w.events[n-1]
			if last.Cause == 0 {
				break
			}
		}
		if last.Message != "" {
			w.messages[last.Message] = true
		}
	}
}

// add puts an event and what led to it into the slice.
func (w *slicer) add(n int, role string) {
	for n > 0 && n <= len(w.events) && w.roles[n] == "" {
		w.roles[n] = role
		e := &w.events[n-1]
		if e.Kind == KindFault {
			w.roles[n] = "fault"
		}
		role = fmt.Sprintf("cause of %d", n)
		n = e.Cause
	}
}

// slice adds the events of those that are named, and of the workers that held them.
func (w *slicer) slice() {
	for i := range w.events {
		e := &w.events[i]
		if e.Tag != 0 && w.messages[e.Message] {
			w.tags[tagOf{e.Queue, e.Tag}] = true
			if e.Worker != "" {
				w.workers[e.Worker] = true
			}
		}
	}
	for i := range w.events {
		e := &w.events[i]
		switch {
		case e.Message != "" && w.messages[e.Message]:
			w.add(e.Number, "of "+e.Message)
		case e.Tag != 0 && w.tags[tagOf{e.Queue, e.Tag}]:
			w.add(e.Number, fmt.Sprintf("of tag %d", e.Tag))
		case e.Worker != "" && w.workers[e.Worker] && ofWorker(e.Kind):
			w.add(e.Number, "of "+e.Worker)
		case e.Kind == KindFault && e.Message == "" && e.Worker == "":
			w.add(e.Number, "fault")
		case e.Kind == KindActor:
			w.add(e.Number, "crash of the broker's own")
		}
	}
}

// ofWorker reports that an event says something of its worker and not of a message.
func ofWorker(k Kind) bool {
	switch k {
	case KindCrash, KindRestart, KindHang, KindPause, KindResume, KindAttach, KindDetach, KindStopped:
		return true
	}
	return false
}
