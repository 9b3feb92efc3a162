package benchmark

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// The page holds the chart library itself, so that it opens from a disk without a
// network, years later: Chart.js 4.6.1, as published, with its licence beside it.
var (
	//go:embed chartjs/chart.umd.min.js
	chartLibrary string
	//go:embed chartjs/LICENSE.md
	chartLicence string
	//go:embed page.html
	pageText string
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"row": row, "further": further, "verdict": verdict, "short": short, "unknown": orUnknown, "count": count,
	"met": func(g Target) bool { return g.Value.Median <= g.AtMost },
}).Parse(pageText))

// chart is one picture, as the script in page.html draws it.
type chart struct {
	Title  string   `json:"title"`
	Axis   string   `json:"axis"`
	Log    bool     `json:"log"`
	Line   bool     `json:"line"` // otherwise lying bars
	Labels []string `json:"labels"`
	Series []series `json:"series"`
}

// series is one colour of a chart. A value that is nil has no bar.
type series struct {
	Name string     `json:"name"`
	Data []*float64 `json:"data"`
	Min  []*float64 `json:"min"`
	Max  []*float64 `json:"max"`
}

// charts are the pictures of a report; groups that were not measured have none.
func (r *Report) charts() (all []chart) {
	var asked chart
	asked.Title, asked.Axis = "What was asked for: measured, as a share of the bound", "of the bound (1 = just met)"
	share := series{Name: "measured"}
	for _, g := range r.Targets {
		asked.Labels = append(asked.Labels, g.What)
		share.add(&Range{g.Value.Median / g.AtMost, g.Value.Min / g.AtMost, g.Value.Max / g.AtMost})
	}
	if asked.Series = []series{share}; len(asked.Labels) > 0 {
		all = append(all, asked)
	}
	for _, g := range r.Groups {
		if c := g.chart(); len(c.Labels) > 0 {
			all = append(all, c)
		}
	}
	return all
}

func (s *series) add(v *Range) {
	if v == nil {
		s.Data, s.Min, s.Max = append(s.Data, nil), append(s.Min, nil), append(s.Max, nil)
		return
	}
	s.Data, s.Min, s.Max = append(s.Data, &v.Median), append(s.Min, &v.Min), append(s.Max, &v.Max)
}

// chart shows one group: the ratio to the floor where there is one, else the value.
func (g *Group) chart() chart {
	switch g.Name {
	case "latency":
		return g.latencyChart()
	case "timers":
		return chart{} // its figures are of different kinds: the table says more
	}
	c := chart{Title: g.Name + ": " + g.About, Axis: "x floor (1 = bare channels)"}
	value := func(f *Figure) *Range { return f.Ratio }
	if g.Name == "memory" {
		c.Axis, c.Log = "bytes", true
		value = func(f *Figure) *Range { return &f.Value }
	}
	places := map[string]int{}
	for _, executor := range executors {
		s := series{Name: executor}
		for range c.Labels {
			s.add(nil)
		}
		for _, f := range g.Figures {
			if f.Executor != executor || f.Rounds == 0 || value(f) == nil {
				continue
			}
			at, ok := places[f.Case]
			if !ok {
				at = len(c.Labels)
				places[f.Case] = at
				c.Labels = append(c.Labels, f.Case)
				s.add(nil)
				for i := range c.Series {
					c.Series[i].add(nil)
				}
			}
			v := value(f)
			s.Data[at], s.Min[at], s.Max[at] = &v.Median, &v.Min, &v.Max
		}
		if len(s.Data) > 0 {
			c.Series = append(c.Series, s)
		}
	}
	return c
}

func (g *Group) latencyChart() chart {
	c := chart{Title: g.Name + ": " + g.About, Axis: "µs", Log: true, Line: true, Labels: []string{"p50", "p99", "p99.9", "max"}}
	for _, f := range g.Figures {
		if f.Rounds == 0 {
			continue
		}
		s := series{Name: f.Case + ", " + f.Executor}
		for _, p := range c.Labels {
			v, _ := f.more(p)
			s.add(&Range{v.Median / 1e3, v.Min / 1e3, v.Max / 1e3})
		}
		c.Series = append(c.Series, s)
	}
	if len(c.Series) == 0 {
		return chart{}
	}
	return c
}

// WriteHTML writes the report as one page that needs nothing else.
func (r *Report) WriteHTML(w io.Writer) error {
	if strings.Contains(chartLibrary, "</script") {
		return fmt.Errorf("write page: the chart library would end its script early")
	}
	return page.Execute(w, struct {
		*Report
		Charts  []chart
		Library template.JS
		Licence string
		Date    string
		Lasted  string
	}{r, r.charts(), template.JS(chartLibrary), chartLicence, r.Began.UTC().Format(time.DateTime) + " UTC", r.Took.Round(100 * time.Millisecond).String()}) //nolint:gosec // it is our own file
}
