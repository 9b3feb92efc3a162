package report

import (
	"fmt"
	"html"
	"strings"
	"time"
	"unicode"

	"github.com/postroom/postroom/simulation"
)

// escape makes any text fit for XML and HTML, in elements and attributes.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar))))
}

// cut shortens a name for a label.
func cut(s string, runesMax int) string {
	if runes := []rune(s); len(runes) > runesMax {
		return string(runes[:runesMax-1]) + "…"
	}
	return s
}

// heading is the run in one line.
func heading(r *simulation.Result) string {
	name := r.Plan.Spec
	if name == "" {
		name = "run"
	}
	return fmt.Sprintf("%s, seed %d", name, r.Plan.Seed)
}

// verdict says in one line how the run ended.
func verdict(r *simulation.Result) string {
	switch {
	case len(r.Violations) > 0:
		return "violation " + r.Violations[0].String()
	case len(r.Alarms) > 0:
		return "alarm " + r.Alarms[0].String()
	case r.Err != "":
		return "error: " + r.Err
	}
	return "no violation"
}

// summary counts what verdict tells of.
func summary(r *simulation.Result) string {
	var parts []string
	if n := len(r.Violations); n > 0 {
		parts = append(parts, plural(n, "violation"))
	}
	if n := len(r.Alarms); n > 0 {
		parts = append(parts, plural(n, "alarm"))
	}
	if r.Err != "" {
		parts = append(parts, "an error")
	}
	if len(parts) == 0 {
		return "no violation"
	}
	return strings.Join(parts, ", ")
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// step is the distance of the axis' labels: 1, 2 or 5 times a power of ten, or a round
// number of seconds, minutes or hours, such that about n of them fit into length.
func step(length time.Duration, n int) time.Duration {
	wanted := length / time.Duration(max(n, 1))
	for unit := time.Nanosecond; unit < time.Second; unit *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			if unit*k >= wanted {
				return unit * k
			}
		}
	}
	for _, d := range []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	} {
		if d >= wanted {
			return d
		}
	}
	return (wanted/(24*time.Hour) + 1) * 24 * time.Hour
}

// short is a duration with four digits at most, and without zero parts: 1m30s, 2h.
func short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			d = d.Round(unit / 1000)
			break
		}
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
