package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/simulation"
)

//go:embed svg.css
var svgStyle string

// Measures of the SVG, in its units.
const (
	svgWidth   = 960
	labelWidth = 112
	rowHeight  = 13
	signHeight = 13 // of the space for signs above a lane's rows
	lanesMax   = 24 // of workers; more are not drawn, and that is said
	legendCell = 152
)

// SVG writes a static picture of a run for a README: the states over time and a lane
// for each worker. It needs nothing beside itself, and follows the reader's choice of
// light or dark. A result without events gives a picture that says so.
//
// Errors: those of w; [ErrEvents].
func SVG(w io.Writer, r simulation.Result) error {
	if err := check(r.Events); err != nil {
		return err
	}
	s := &svg{picture: draw(&r), result: &r, shapes: map[string]bool{}, endings: map[ending]bool{}}
	body := s.draw()
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">
<style>%[4]s</style>
<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0,0V5"/></pattern></defs>
<rect class="page" width="%[1]d" height="%[2]d"/>
%[5]s</svg>
`, svgWidth, int(s.y), escape(heading(&r)), strings.TrimSpace(svgStyle), body)
	return err
}

// svg draws from top to bottom.
type svg struct {
	*picture
	result *simulation.Result
	b      strings.Builder
	y      float64

	shapes  map[string]bool // signs that came up
	endings map[ending]bool
	zombies bool
	unused  bool
	isDown  bool
}

// plotWidth is what is left for the time.
const plotWidth = svgWidth - labelWidth - 16

// x is where an event, or an instant, is.
func (s *svg) x(event int, at time.Duration) float64 {
	if s.ByOrder {
		return labelWidth + plotWidth*float64(event)/float64(len(s.Events)+1)
	}
	return labelWidth + plotWidth*float64(min(at, s.End))/float64(s.End)
}

// xEnd is where a thing ends that lasts to the end when event is 0.
func (s *svg) xEnd(event int, at time.Duration) float64 {
	if event == 0 {
		return labelWidth + plotWidth
	}
	return s.x(event, at)
}

// xAt is where an instant is that need not have an event.
func (s *svg) xAt(at time.Duration) float64 {
	i, _ := slices.BinarySearchFunc(s.Events, at, func(e eventNote, at time.Duration) int { return int(min(max(e.At-at, -1), 1)) })
	return s.x(i+1, at)
}

func (s *svg) printf(format string, args ...any) { fmt.Fprintf(&s.b, format, args...) }

func (s *svg) text(x, y float64, class, anchor, text string) {
	s.printf(`<text x="%.1f" y="%.1f"`, x, y)
	if class != "" {
		s.printf(` class="%s"`, class)
	}
	if anchor != "" {
		s.printf(` text-anchor="%s"`, anchor)
	}
	s.printf(">%s</text>\n", escape(text))
}

func (s *svg) draw() string {
	s.text(12, 20, "", "", heading(s.result))
	s.text(svgWidth-16, 20, "soft", "end", cut(verdict(s.result), 110))
	s.y = 32
	if len(s.Events) == 0 {
		s.text(12, 48, "soft", "", "The run was made without keeping its events.")
		s.y = 60
		return s.b.String()
	}
	top := s.y
	s.drawStates()
	shown := s.Workers[:min(len(s.Workers), lanesMax+1)]
	for i := range shown {
		s.drawLane(i)
	}
	if rest := len(s.Workers) - len(shown); rest > 0 {
		s.text(labelWidth, s.y+12, "soft", "", "and "+plural(rest, "more worker"))
		s.y += 18
	}
	for _, v := range s.result.Violations {
		if v.Event > 0 && v.Event <= len(s.Events) {
			s.printf(`<path class="finding" d="M%.1f,%.1fV%.1f"><title>%s</title></path>`+"\n", s.x(v.Event, v.At), top, s.y, escape(v.String()))
		}
	}
	s.drawAxis(top)
	s.drawLegend()
	return s.b.String()
}

// stacked is the order of the states in the area, from the bottom.
var stacked = []state{acked, dropped, dead, leased, ready, delayed}

const areaHeight = 72

// drawStates draws the stacked area.
func (s *svg) drawStates() {
	most := 1
	for i := range s.Counts {
		sum := 0
		for _, n := range s.Counts[i].In {
			sum += n
		}
		most = max(most, sum)
	}
	bottom := s.y + areaHeight
	below := make([]int, len(s.Counts))
	for _, st := range stacked {
		var up, back strings.Builder
		any, right := false, labelWidth+float64(plotWidth)
		for i := range s.Counts {
			c := &s.Counts[i]
			from, to := s.x(c.Event, c.At), right
			if i+1 < len(s.Counts) {
				to = s.x(s.Counts[i+1].Event, s.Counts[i+1].At)
			}
			low := below[i]
			below[i] += c.In[st]
			any = any || c.In[st] > 0
			height := func(n int) float64 { return bottom - areaHeight*float64(n)/float64(most) }
			fmt.Fprintf(&up, "%.1f,%.1f %.1f,%.1f ", from, height(below[i]), to, height(below[i]))
			old := back.String()
			back.Reset()
			fmt.Fprintf(&back, "%.1f,%.1f %.1f,%.1f ", to, height(low), from, height(low))
			back.WriteString(old)
		}
		if any {
			s.printf(`<polygon class="%s" points="%s%s"><title>%s</title></polygon>`+"\n", st, up.String(), strings.TrimSpace(back.String()), st)
		}
	}
	s.text(labelWidth-8, s.y+10, "soft", "end", plural(most, "message"))
	s.text(labelWidth-8, bottom, "soft", "end", "0")
	s.y = bottom + 12
}

// drawLane draws the lane of one worker.
func (s *svg) drawLane(n int) {
	l := &s.Workers[n]
	height := float64(signHeight + l.Rows*rowHeight + 3)
	if l.Rows == 0 {
		height = signHeight + 6
	}
	if n%2 == 0 {
		s.printf(`<rect class="band" x="0" y="%.1f" width="%d" height="%.1f"/>`+"\n", s.y, svgWidth, height)
	}
	s.text(labelWidth-8, s.y+height/2+4, "", "end", cut(l.Name, 17))
	for i := range s.Downs {
		if d := &s.Downs[i]; d.Worker == n {
			s.isDown = true
			x := s.x(d.Event, d.From)
			s.printf(`<rect class="down" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`+"\n",
				x, s.y+signHeight/2-2, max(s.xEnd(d.Over, d.To)-x, 1), 5.0, escape(d.Why)) // a lease may still run below it
		}
	}
	for i := range s.Bars {
		if s.Bars[i].Place.Worker == n {
			s.drawBar(&s.Bars[i])
		}
	}
	s.drawSigns(n)
	s.y += height
}

// drawBar draws one lease.
func (s *svg) drawBar(b *bar) {
	y := s.y + signHeight + float64(b.Place.WorkerRow*rowHeight)
	from, to := s.x(b.Grant, b.From), s.xEnd(b.Over, b.To)
	s.endings[b.Ending] = true
	if b.Over != 0 && b.Deadline > b.To {
		if end := min(s.xAt(b.Deadline), s.nextInRow(b)); end-to >= 1 {
			s.unused = true
			s.printf(`<rect class="%s unused" x="%.1f" y="%.1f" width="%.1f" height="2"/>`+"\n", b.Ending, to, y+rowHeight-4, end-to)
		}
	}
	title := fmt.Sprintf("%s, delivery %d, tag %d: %s at %s", b.Message, b.Deliveries, b.Tag, b.Ending, short(b.To))
	width := max(to-from, 1.5)
	s.printf(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="1.5"><title>%s</title></rect>`+"\n",
		b.Ending, from, y, width, rowHeight-2, escape(title))
	if b.Zombie > 0 {
		s.zombies = true
		s.printf(`<rect class="zombie" x="%.1f" y="%.1f" width="%.1f" height="%d"><title>%s</title></rect>`+"\n",
			to, y+1, max(s.xEnd(b.ZombieOver, b.Zombie)-to, 1.5), rowHeight-4, escape(b.Message+" is still worked on, without a lease"))
	}
	label := b.Message
	if b.Deliveries > 1 {
		label += fmt.Sprintf("#%d", b.Deliveries)
	}
	if float64(len([]rune(label)))*7.3+6 <= width {
		s.text(from+3, y+rowHeight-4, "on", "", label)
	}
}

// nextInRow is where the next bar of the same row begins.
func (s *svg) nextInRow(b *bar) float64 {
	end := labelWidth + float64(plotWidth)
	for i := range s.Bars {
		if n := &s.Bars[i]; n.Grant > b.Grant && n.Place.Worker == b.Place.Worker && n.Place.WorkerRow == b.Place.WorkerRow {
			return min(end, s.x(n.Grant, n.From)-1)
		}
	}
	return end
}

// drawSigns draws the marks of a worker's lane, side by side where they would cover
// each other. Minor ones give way.
func (s *svg) drawSigns(n int) {
	free, major := -1.0, s.majorSigns(n)
	for _, m := range s.Marks {
		e := &s.Events[m.Event-1]
		if e.Place.Worker != n {
			continue
		}
		sign := signOf(m.Shape)
		x := s.x(m.Event, e.At)
		if sign.IsMinor && (x < free || slices.ContainsFunc(major, func(at float64) bool { return at > x-9 && at < x+9 })) {
			continue
		}
		x = max(x, free)
		free = x + 10
		if sign.IsMinor {
			free = x + 6
		}
		s.shapes[m.Shape] = true
		s.drawSign(sign, x, s.y+signHeight/2, e.String())
	}
}

// majorSigns is where the signs of a lane are that give no way.
func (s *svg) majorSigns(n int) (at []float64) {
	for _, m := range s.Marks {
		if e := &s.Events[m.Event-1]; e.Place.Worker == n && !signOf(m.Shape).IsMinor {
			at = append(at, s.x(m.Event, e.At))
		}
	}
	return at
}

func signOf(shape string) *sign {
	for i := range signs {
		if signs[i].Shape == shape {
			return &signs[i]
		}
	}
	return &signs[0]
}

func (s *svg) drawSign(g *sign, x, y float64, title string) {
	class := "sign " + g.Shape
	if g.IsLine {
		class += " line"
	}
	s.printf(`<path class="%s" transform="translate(%.1f %.1f)" d="%s">`, class, x, y, g.Path)
	if title != "" {
		s.printf("<title>%s</title>", escape(title))
	}
	s.printf("</path>\n")
}

// drawAxis draws the time below, and its lines through all above.
func (s *svg) drawAxis(top float64) {
	tick := func(x float64, label string) {
		s.printf(`<path class="grid" d="M%.1f,%.1fV%.1f" opacity=".6"/>`+"\n", x, top, s.y+4)
		s.text(x, s.y+16, "soft", "middle", label)
	}
	title := "virtual time"
	if s.ByOrder {
		title = "virtual time, one step per event"
		every := max(len(s.Events)/8, 1)
		for i := 0; i < len(s.Events); i += every {
			tick(s.x(i+1, 0), short(s.Events[i].At))
		}
	} else {
		d := step(s.End, 8)
		for at := time.Duration(0); at <= s.End; at += d {
			tick(s.x(0, at), short(at))
		}
	}
	s.text(labelWidth-8, s.y+16, "soft", "end", cut(title, 17))
	s.y += 30
}

// drawLegend explains what came up.
func (s *svg) drawLegend() {
	column := 0
	cell := func() (x, y float64) {
		if column > 0 && column*legendCell+legendCell+12 > svgWidth {
			column = 0
			s.y += 16
		}
		x = float64(12 + column*legendCell)
		column++
		return x, s.y
	}
	box := func(class, meaning string, height float64) {
		x, y := cell()
		s.printf(`<rect class="%s" x="%.1f" y="%.1f" width="12" height="%.1f"/>`+"\n", class, x, y+10-height, height)
		s.text(x+18, y+10, "soft", "", meaning)
	}
	for _, st := range stacked {
		box(st.String(), st.String(), 10)
	}
	column = 0
	s.y += 18
	for _, e := range endings {
		if s.endings[e.Class] {
			box(string(e.Class), e.Meaning, 10)
		}
	}
	if s.unused {
		box("running unused", "rest until the deadline", 3)
	}
	if s.zombies {
		box("zombie", "work without a lease", 10)
	}
	if s.isDown {
		box("down", "worker is down", 5)
	}
	for i := range signs {
		if g := &signs[i]; s.shapes[g.Shape] {
			x, y := cell()
			s.drawSign(g, x+6, y+5, "")
			s.text(x+18, y+10, "soft", "", g.Meaning)
		}
	}
	s.y += 22
}
