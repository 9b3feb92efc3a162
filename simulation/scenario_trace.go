package simulation

import (
	"fmt"
	"strings"
)

// ShortTrace is a run as a scenario has it: a line for each thing that happened to a
// message or a worker, the faults that never came to strike, and the verdict.
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
	struck := map[string]bool{}
	for i := range r.Events {
		if r.Events[i].Kind == KindFault {
			struck[r.Events[i].Detail] = true
		}
	}
	for _, f := range r.Plan.Faults {
		if !struck[f.String()] {
			fmt.Fprintf(&b, "never   at %s\n", faultText(f))
		}
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
		return what, e.Detail, e.Cause > 0 // those without are the world's beginning
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
