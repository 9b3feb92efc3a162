package report

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// saw is what a page's self-test writes down: see the end of page.js.
type saw struct {
	Errors     []string
	Title      string
	Events     int
	Copied     *string
	Start      int
	Before     string
	Middle     string
	After      string
	SlideMilli float64 `json:"slideMillis"`
	AfterLeft  int
	AfterNext  int
	Arrows     int
	Overlaps   int
	Views      map[string]struct{ Bars, Zombies, Signs, Lanes int }
	Found      int

	console []string // lines of the browser's console
}

var (
	selfTest = regexp.MustCompile(`(?s)<pre id="selftest"[^>]*>(.*?)</pre>`)
	console  = regexp.MustCompile(`(?m)^.*:CONSOLE.*$`)
)

// browser is the path of a Chromium, or skips the test.
func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starting a browser takes seconds")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium in PATH, so the page was not opened: apt-get install chromium")
	return ""
}

// open opens a page from disk in a browser that reaches nothing else, and has it test
// itself.
func open(t *testing.T, page []byte) saw {
	t.Helper()
	var s saw
	s.console = openInto(t, page, &s)
	return s
}

// openInto is open for a page whose self-test says something else. It returns the lines
// of the browser's console.
func openInto(t *testing.T, page []byte, into any) []string {
	t.Helper()
	chromium := browser(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "run.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// The port of the proxy is that of nobody, and no name has an address.
	command := exec.CommandContext(ctx, chromium,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--proxy-server=127.0.0.1:9", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,1000",
		"--enable-logging=stderr", "--dump-dom", "file://"+filepath.ToSlash(file)+"#selftest")
	var out, log bytes.Buffer
	command.Stdout, command.Stderr = &out, &log
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", chromium, err, log.Bytes())
	}
	found := selfTest.FindSubmatch(out.Bytes())
	if found == nil {
		t.Fatalf("the page came out without its self-test:\n%.2000s", out.Bytes())
	}
	lines := console.FindAllString(log.String(), -1)
	if err := json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), into); err != nil {
		t.Fatalf("the self-test did not come to its end: %v\n%s", err, strings.Join(lines, "\n"))
	}
	return lines
}

// expectSound checks what must hold of every page.
func expectSound(t *testing.T, r simulation.Result, o Options) saw {
	t.Helper()
	p := draw(&r)
	s := open(t, htmlOf(t, r, o))
	if len(s.Errors) > 0 || len(s.console) > 0 {
		t.Errorf("errors %q, console %q", s.Errors, s.console)
	}
	if s.Events != len(r.Events) {
		t.Errorf("%d events in the page, want %d", s.Events, len(r.Events))
	}
	if s.Copied == nil || *s.Copied != o.Command {
		t.Errorf("the copy button copies %v, want %q", s.Copied, o.Command)
	}
	if s.Before == s.Middle || s.Middle == s.After {
		t.Errorf("the ledger does not follow the slider: %q, %q, %q", s.Before, s.Middle, s.After)
	}
	if s.AfterLeft != s.Events-1 {
		t.Errorf("the left key led from event %d to %d", s.Events, s.AfterLeft)
	}
	if s.Overlaps > 0 {
		t.Errorf("%d bars overlap", s.Overlaps)
	}
	zombies := 0
	for i := range p.Bars {
		if p.Bars[i].Zombie > 0 {
			zombies++
		}
	}
	if len(s.Views) != 4 {
		t.Errorf("%d views, want 4", len(s.Views))
	}
	for name, v := range s.Views {
		lanes := len(p.Workers)
		if strings.HasPrefix(name, "messages") {
			lanes = len(p.Messages)
		}
		if v.Bars != len(p.Bars) || v.Zombies != zombies || v.Lanes != lanes || v.Signs == 0 {
			t.Errorf("view %q: %+v, want %d bars, %d zombies, %d lanes and some signs", name, v, len(p.Bars), zombies, lanes)
		}
	}
	return s
}

func TestAPageOpensFromDiskAndWorks(t *testing.T) {
	t.Parallel()
	r := zombieStory()
	s := expectSound(t, r, Options{Command: "postroom sim run --spec mailer --seeds 7..7"})
	violation := r.Violations[0].Event
	if s.Start != violation || s.AfterNext != violation {
		t.Errorf("the page begins at event %d, n leads to %d; want the violation, %d", s.Start, s.AfterNext, violation)
	}
	if s.Arrows == 0 {
		t.Error("no arrow leads to the violation from its causes")
	}
	for _, line := range []string{"m1\tacked", "m2\tdead", "rejected", "m3\tleased\tw-1"} {
		if !strings.Contains(s.After, line) {
			t.Errorf("at the end the ledger lacks %q:\n%s", line, s.After)
		}
	}
	if s.Found != 6 {
		t.Errorf("the filter finds %d events that speak of a grant, want 5 and the violation", s.Found)
	}
}

func TestNoTextGetsOutOfItsPlaceInABrowserEither(t *testing.T) {
	t.Parallel()
	r, texts := nasty()
	s := expectSound(t, r, Options{Title: texts[0], Command: texts[1]})
	if s.Title != texts[0] {
		t.Errorf("the title is %q, want %q", s.Title, texts[0])
	}
	if !strings.Contains(s.After, texts[1]) {
		t.Errorf("the ledger lacks %q", texts[1])
	}
}

// A page that would load something is found out, so the other tests mean something.
func TestAPageThatLoadsSomethingIsFoundOut(t *testing.T) {
	t.Parallel()
	page := bytes.Replace(htmlOf(t, zombieStory(), Options{}), []byte("<header>"), []byte(`<img src="http://example.com/x.png"><header>`), 1)
	if s := open(t, page); len(s.console) == 0 {
		t.Error("the console says nothing of an image from elsewhere")
	}
}

// mailer is a world in which most things go wrong, for pictures.
func mailer(items int) simulation.Spec {
	return simulation.Spec{Name: "mailer", Build: func(w *simulation.World) {
		mail := w.Queue("mail", postroom.QueueConfig{AckTimeout: 2 * time.Second})
		w.Workers("mailer", 4, mail, simulation.Script(1500*time.Millisecond, w.External("smtp", nil)), postroom.ConsumerConfig{NoHeartbeat: true})
		w.Produce("api", mail, simulation.Over(10*time.Second, items), nil)
		w.At(simulation.OnStart("m3", 1), simulation.Fault{Kind: simulation.FaultZombie})
		w.At(simulation.AfterEffect("m6", 1), simulation.Fault{Kind: simulation.FaultCrash})
		for nth := 1; nth <= 3; nth++ {
			w.At(simulation.OnStart("m8", nth), simulation.Fault{Kind: simulation.FaultNack})
		}
		w.At(simulation.OnStart("m12", 1), simulation.Fault{Kind: simulation.FaultHang, For: 5 * time.Second})
		w.At(simulation.OnStart("m14", 1), simulation.Fault{Kind: simulation.FaultReject})
		w.At(simulation.OnStart("m15", 1), simulation.Fault{Kind: simulation.FaultPause, For: 3 * time.Second})
		w.At(simulation.AtTime(6*time.Second), simulation.Fault{Kind: simulation.FaultRolling, For: 500 * time.Millisecond})
		w.At(simulation.OnStart("m17", 1), simulation.Fault{Kind: simulation.FaultKill, For: 2 * time.Second})
		w.Calm(time.Hour, simulation.Drained(mail))
	}}
}

// A run of the laboratory is drawn whole: each grant is a bar, and at the end of the
// drained run all that was accepted has ended.
func TestARunOfTheLaboratoryIsDrawnWhole(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		r := mailer(24).Run(seed)
		if r.Failed() {
			t.Fatalf("seed %d: %s", seed, verdict(&r))
		}
		p := draw(&r)
		grants, zombies := 0, 0
		for i := range r.Events {
			if r.Events[i].Kind == simulation.KindGrant {
				grants++
			}
		}
		for i := range p.Bars {
			if p.Bars[i].Ending == stillRuns {
				t.Errorf("seed %d: tag %d still runs at the end of a drained run", seed, p.Bars[i].Tag)
			}
			if p.Bars[i].Zombie > 0 {
				zombies++
			}
		}
		last := p.Counts[len(p.Counts)-1].In
		if len(p.Bars) != grants || zombies == 0 || last[acked]+last[dead] != 24 {
			t.Errorf("seed %d: %d bars for %d grants, %d zombies, %v at the end", seed, len(p.Bars), grants, zombies, last)
		}
	}
}

// Five thousand events are what a page is meant for: each step of the slider must feel
// immediate.
func TestFiveThousandEventsStayQuick(t *testing.T) {
	t.Parallel()
	browser(t)
	r := mailer(700).Run(1)
	if len(r.Events) < 4500 {
		t.Fatalf("the run has %d events only", len(r.Events))
	}
	s := expectSound(t, r, Options{Command: "postroom sim run"})
	t.Logf("%d events: %.1f ms for a step of the slider, page of %d kB", len(r.Events), s.SlideMilli, len(htmlOf(t, r, Options{}))/1000)
	if s.SlideMilli > 2000 { // far above, since a loaded machine is no reason to fail
		t.Errorf("a step of the slider takes %.0f ms", s.SlideMilli)
	}
}
