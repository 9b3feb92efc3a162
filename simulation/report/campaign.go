package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/simulation"
)

//go:embed campaign.html
var campaignFrame string

//go:embed campaign.js
var campaignScript string

// Campaign writes a page about many runs, one file like that of [HTML]: how fast they
// were, what came up of must (which may be empty) and of the spec's own Sometimes, which
// event met a message in which state, when the last new thing was seen, which faults
// struck, and what failed. The figures of coverage need Campaign.Cover.
//
// Errors: those of w.
func Campaign(w io.Writer, c *simulation.CampaignResult, must []string, o Options) error {
	title := o.Title
	if title == "" {
		title = fmt.Sprintf("%s: %d seeds", c.Spec, c.Seeds)
	}
	missing := c.Vacuous(must...)
	verdict, passed := "no violation, no alarm, everything came up", true
	switch {
	case c.Failed():
		verdict, passed = fmt.Sprintf("%d violations, %d alarms, %d errors, %d seeds not the same twice", c.Violations, c.Alarms, c.Errors, c.Nondeterministic), false
	case len(missing) > 0:
		verdict, passed = "vacuous: never "+strings.Join(missing, ", "), false
	}
	seconds := c.Elapsed.Seconds()
	var facts strings.Builder
	fact := func(format string, args ...any) {
		fmt.Fprintf(&facts, "<span>%s</span>", escape(fmt.Sprintf(format, args...)))
	}
	fact("%d events", c.Events)
	fact("%d steps", c.Steps)
	fact("%v virtual in %v", c.Virtual.Round(time.Second), c.Elapsed.Round(time.Millisecond))
	if seconds > 0 {
		fact("%.0f seeds/s", float64(c.Seeds)/seconds)
		fact("%.0f events/s", c.EventsPerSecond())
		fact("%.0f virtual seconds in a second", c.Virtual.Seconds()/seconds)
	}
	fact("%d run twice, %d differ", c.Rechecked, c.Nondeterministic)
	fact("trace hash %016x", c.TraceHash)

	sum := sha256.Sum256([]byte(campaignScript))
	curve, novelty := noveltyCurve(c)
	var b bytes.Buffer
	_, err := strings.NewReplacer(
		"{{title}}", escape(title), "{{verdict}}", escape(verdict), "{{passed}}", fmt.Sprint(passed),
		"{{style}}", pageStyle, "{{script}}", campaignScript, "{{script-hash}}", base64.StdEncoding.EncodeToString(sum[:]),
		"{{facts}}", facts.String(), "{{failures}}", campaignFailures(c), "{{hits}}", campaignHits(c, must),
		"{{matrix}}", campaignMatrix(c), "{{curve}}", curve, "{{novelty}}", escape(novelty), "{{faults}}", campaignFaults(c),
	).WriteString(&b, campaignFrame)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func campaignFailures(c *simulation.CampaignResult) string {
	if len(c.Failures) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<h2>What failed</h2><ul id=\"failures\">")
	for i := range c.Failures {
		r := &c.Failures[i]
		fmt.Fprintf(&b, "<li>seed %d: %s, %s</li>", r.Plan.Seed, escape(r.Signature().String()), escape(r.Replay.String()))
	}
	b.WriteString("</ul>")
	return b.String()
}

// campaignHits is must in its order, and behind it what the spec asked for itself.
func campaignHits(c *simulation.CampaignResult, must []string) string {
	names := slices.Clone(must)
	for _, name := range slices.Sorted(maps.Keys(c.Hits)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var b strings.Builder
	for _, name := range names {
		n, class := c.Hits[name], ""
		if n == 0 {
			class = " class=\"never\""
		}
		fmt.Fprintf(&b, "<tr><td>%s</td><td%s>%d</td><td><meter max=\"%d\" value=\"%d\"></meter></td></tr>", escape(name), class, n, max(1, c.Seeds), n)
	}
	return b.String()
}

// campaignMatrix is states by events, for the events of messages that came up.
func campaignMatrix(c *simulation.CampaignResult) string {
	if c.Cover == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("<tr><th></th>")
	var kinds []string
	for _, k := range simulation.Kinds() {
		if slices.ContainsFunc(slices.Collect(maps.Values(c.Cover.Met)), func(met map[string]int) bool { return met[k.String()] > 0 }) {
			kinds = append(kinds, k.String())
			fmt.Fprintf(&b, "<th>%s</th>", k)
		}
	}
	b.WriteString("</tr>")
	for _, state := range simulation.MessageStates {
		fmt.Fprintf(&b, "<tr><th>%s</th>", state)
		for _, kind := range kinds {
			n := c.Cover.Met[state][kind]
			if n == 0 {
				b.WriteString("<td></td>")
				continue
			}
			share := min(70, 10+12*int(math.Log10(float64(n))))
			fmt.Fprintf(&b, "<td data-n=\"%d\" style=\"background:color-mix(in srgb,var(--running) %d%%,transparent)\">%d</td>", n, share, n)
		}
		b.WriteString("</tr>")
	}
	return b.String()
}

// noveltyCurve is how many pairs of events were known after how many seeds.
func noveltyCurve(c *simulation.CampaignResult) (svg, text string) {
	if c.Cover == nil || len(c.Cover.First) == 0 {
		return "", "The campaign did not note it."
	}
	seeds, pairs := c.Cover.Novelty()
	last := float64(max(1, c.Seeds))
	most := float64(pairs[len(pairs)-1])
	var points strings.Builder
	before := 0
	for i, seed := range seeds {
		x := math.Min(800, 800*float64(seed-seeds[0])/last)
		fmt.Fprintf(&points, "%.1f,%.1f %.1f,%.1f ", x, 200-190*float64(before)/most, x, 200-190*float64(pairs[i])/most)
		before = pairs[i]
	}
	fmt.Fprintf(&points, "800,10")
	return fmt.Sprintf("<svg id=\"curve\" viewBox=\"0 0 800 200\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"pairs of events by seeds\"><polyline points=\"%s\"/></svg>", points.String()),
		fmt.Sprintf("%d pairs of events of one message that came one after the other; the last new one in seed %d.", int(most), seeds[len(seeds)-1])
}

func campaignFaults(c *simulation.CampaignResult) string {
	if c.Cover == nil {
		return ""
	}
	var b strings.Builder
	for _, k := range simulation.FaultKinds() {
		n, class := c.Cover.Faults[k.String()], ""
		if n == 0 {
			class = " class=\"never\""
		}
		fmt.Fprintf(&b, "<tr><td>%s</td><td%s>%d</td></tr>", k, class, n)
	}
	return b.String()
}
