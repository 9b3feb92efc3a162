package benchmark

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is all that a run has found.
type Report struct {
	Machine    Machine
	Quick      bool
	Rounds     int
	Messages   int
	Began      time.Time
	Took       time.Duration
	LoadBefore string // of the last minute; empty where it is not known
	LoadAfter  string
	Groups     []Group
	Targets    []Target
	Failed     []string // keys of figures
	Skipped    []string // groups that were cut short for lack of time
}

// Group is cases that took turns.
type Group struct {
	Name, About string
	Took        time.Duration
	Figures     []*Figure
}

// Machine is what figures are worth nothing without.
type Machine struct {
	CPU        string `json:"cpu"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	OS         string `json:"os"`
	Go         string `json:"go"`
	Commit     string `json:"commit"`
	Changed    bool   `json:"with_changes"`
}

func machine() Machine {
	m := Machine{
		CPU: "unknown", CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Commit: "unknown",
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				m.Commit = s.Value
			case "vcs.modified":
				m.Changed = s.Value == "true"
			}
		}
	}
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}

func (m Machine) String() string {
	commit := m.Commit
	if len(commit) > 12 {
		commit = commit[:12]
	}
	if m.Changed {
		commit += " with changes"
	}
	return fmt.Sprintf("%s, %d CPUs, GOMAXPROCS %d, %s, %s, commit %s", m.CPU, m.CPUs, m.GOMAXPROCS, m.OS, m.Go, commit)
}

// load is the load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// figure returns the figure of that key, or nil.
func (r *Report) figure(key string) *Figure {
	for _, g := range r.Groups {
		for _, f := range g.Figures {
			if f.Key == key {
				return f
			}
		}
	}
	return nil
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\nload of the last minute: %s before, %s after; %d rounds of %s messages, %s\n",
		r.Machine, orUnknown(r.LoadBefore), orUnknown(r.LoadAfter), r.Rounds, count(r.Messages), r.Took.Round(100*time.Millisecond))
	for _, g := range r.Groups {
		fmt.Fprintf(w, "\n%s: %s\n", g.Name, g.About)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "\tcase\texecutor\tmedian\tmin\tmax\tx floor\tfloor\tbacklog\tmsgs/wake-up\tallocs\tB\t\n")
		for _, f := range g.Figures {
			fmt.Fprintln(t, "\t"+strings.Join(row(f), "\t")+"\t")
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, f := range g.Figures {
			if len(f.More) > 0 && f.Rounds > 0 {
				fmt.Fprintf(w, "   %s, %s: %s\n", f.Case, f.Executor, further(f))
			}
			if f.Error != "" {
				fmt.Fprintf(w, "   ✗ %s, %s: %s\n", f.Case, f.Executor, f.Error)
			}
		}
	}
	if len(r.Targets) > 0 {
		fmt.Fprintln(w, "\nwhat was asked for")
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "\twhat\tat most\tmeasured\tmin\tmax\t\t\n")
		for _, g := range r.Targets {
			fmt.Fprintf(t, "\t%s\t%s %s\t%s\t%s\t%s\t%s\t\n", g.What, short(g.AtMost), g.Unit, short(g.Value.Median), short(g.Value.Min), short(g.Value.Max), verdict(g))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(r.Skipped) > 0 {
		fmt.Fprintf(w, "\nno time was left for all of: %s; run without --quick\n", strings.Join(r.Skipped, ", "))
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(w, "\nfailed: %s\n", strings.Join(r.Failed, ", "))
	}
	return nil
}

func verdict(g Target) string {
	if g.Value.Median <= g.AtMost {
		return "met"
	}
	return fmt.Sprintf("missed by %.0f %%", 100*(g.Value.Median/g.AtMost-1))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// row is a figure as the table has it.
func row(f *Figure) []string {
	cells := []string{f.Case, f.Executor}
	if f.Rounds == 0 {
		return append(cells, "failed", "", "", "", "", "", "", "", "")
	}
	cells = append(cells, quantity(f.Value.Median, f.Unit), quantity(f.Value.Min, f.Unit), quantity(f.Value.Max, f.Unit))
	if f.Ratio != nil {
		cells = append(cells, fmt.Sprintf("%.2f", f.Ratio.Median), quantity(f.FloorValue.Median, f.Unit))
	} else {
		cells = append(cells, "", "")
	}
	wakeUps := ""
	switch {
	case f.CallerRan:
		wakeUps = "on the caller"
	case f.PerWakeUp > 0:
		wakeUps = short(f.PerWakeUp)
	}
	cells = append(cells, count(int(f.Backlog)), wakeUps)
	if f.Allocs >= 0 {
		return append(cells, fmt.Sprintf("%.2f", f.Allocs), fmt.Sprintf("%.0f", f.Bytes))
	}
	return append(cells, "", "")
}

func further(f *Figure) string {
	parts := make([]string, len(f.More))
	for i, n := range f.More {
		parts[i] = n.Name + " " + quantity(n.Value.Median, n.Unit)
		if n.Value.Min != n.Value.Max {
			parts[i] += fmt.Sprintf(" (%s to %s)", quantity(n.Value.Min, n.Unit), quantity(n.Value.Max, n.Unit))
		}
	}
	return strings.Join(parts, ", ")
}

// quantity writes a value with its unit; times in the unit that suits them.
func quantity(v float64, unit string) string {
	switch {
	case unit == "":
		return short(v)
	case unit != "ns":
		return short(v) + " " + unit
	case v >= 10e6:
		return short(v/1e6) + " ms"
	case v >= 10e3:
		return short(v/1e3) + " µs"
	}
	return short(v) + " ns"
}

// short writes three digits or a whole number.
func short(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100 || v <= -100:
		return count(int(v + 0.5))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// WriteJSON writes the report as one line: the figures that are watched by name, and
// then all of them. One that was not measured is null.
func (r *Report) WriteJSON(w io.Writer) error {
	var figures []*Figure
	for _, g := range r.Groups {
		figures = append(figures, g.Figures...)
	}
	line := struct {
		Watched
		Failed  []string  `json:"failed"`
		Skipped []string  `json:"skipped"`
		Quick   bool      `json:"quick"`
		Rounds  int       `json:"rounds"`
		Seconds float64   `json:"seconds"`
		Load    [2]string `json:"load"`
		Machine Machine   `json:"machine"`
		Targets []Target  `json:"targets"`
		Figures []*Figure `json:"figures"`
	}{r.Watched(), r.Failed, r.Skipped, r.Quick, r.Rounds, r.Took.Seconds(), [2]string{r.LoadBefore, r.LoadAfter}, r.Machine, r.Targets, figures}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
