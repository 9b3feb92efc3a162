package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/postroom/postroom/simulation"
)

//go:embed page.html
var pageFrame string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// page is what the script of a page gets, as JSON.
type page struct {
	*picture
	Command  string      `json:"command,omitempty"`
	Findings []finding   `json:"findings"`
	Signs    []sign      `json:"signs"`
	Endings  [][2]string `json:"endings"`
	Facts    [][2]string `json:"facts"`
	Faults   []string    `json:"faults"`
	Settings []string    `json:"settings"`
}

// finding is something to jump to, unless Event is 0.
type finding struct {
	Event int    `json:"event"`
	Text  string `json:"text"`
}

// HTML writes a page about a run that is one file: it opens from disk and loads
// nothing, which its policy also forbids it. What it shows:
//
//   - lanes by worker or by message: leases, work without one, crashes and the like;
//   - how many messages are in each state, over time;
//   - a slider over the events, with the ledger as it is after each;
//   - the events as a table, and the causes of each as arrows;
//   - the violations and alarms to jump to, and the command that repeats the run.
//
// It is meant for up to 5,000 events, and needs a browser of 2023 or later. A result
// without events gives a page with its figures only.
//
// Errors: those of w; [ErrEvents].
func HTML(w io.Writer, r simulation.Result, o Options) error {
	if err := check(r.Events); err != nil {
		return err
	}
	data, err := json.Marshal(newPage(&r, o)) // with <, > and & as \u003c and so on
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	title := o.Title
	if title == "" {
		title = heading(&r)
	}
	sum := sha256.Sum256([]byte(pageScript))
	var b bytes.Buffer
	// One pass, so that nothing put in is taken for a place to put something in.
	_, err = strings.NewReplacer(
		"{{title}}", escape(title),
		"{{verdict}}", escape(summary(&r)), // the findings stand below it
		"{{passed}}", fmt.Sprintf("%t", !r.Failed()),
		"{{style}}", pageStyle,
		"{{script}}", pageScript,
		"{{script-hash}}", base64.StdEncoding.EncodeToString(sum[:]),
		"{{data}}", string(data),
	).WriteString(&b, pageFrame)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func newPage(r *simulation.Result, o Options) *page {
	p := &page{picture: draw(r), Command: o.Command, Signs: signs, Findings: []finding{}, Faults: []string{}, Settings: []string{}}
	for _, e := range endings {
		p.Endings = append(p.Endings, [2]string{string(e.Class), e.Meaning})
	}
	find := func(event int, text string) {
		if event > len(r.Events) {
			event = 0 // the run was made without keeping them
		}
		p.Findings = append(p.Findings, finding{event, text})
	}
	for _, v := range r.Violations {
		find(v.Event, "violation "+v.String())
	}
	for _, a := range r.Alarms {
		find(a.Event, "alarm "+a.String())
	}
	if r.Err != "" {
		find(0, "error: "+r.Err)
	}
	for _, wait := range r.Waits {
		find(0, "waits: "+wait)
	}
	fact := func(name, format string, args ...any) {
		p.Facts = append(p.Facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	fact("seed", "%d", r.Plan.Seed)
	fact("strategy", "%v", r.Plan.Strategy)
	fact("events", "%d", r.EventCount)
	fact("steps", "%d", r.Steps)
	fact("virtual time", "%v", r.Virtual)
	fact("trace hash", "%016x", r.TraceHash)
	if r.Replay.Runs > 0 {
		fact("run twice", "%v", r.Replay)
	}
	for _, s := range r.Plan.Settings {
		text := s.Text
		if text == "" {
			text = fmt.Sprint(s.Value)
		}
		p.Settings = append(p.Settings, s.Name+": "+text)
	}
	for _, f := range r.Plan.Faults {
		p.Faults = append(p.Faults, f.String())
	}
	return p
}
