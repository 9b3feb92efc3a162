package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/simulation"
)

// To accept a picture that changed run
//
//	go test ./simulation/report -rewrite
//
// and look at it.
var rewrite = flag.Bool("rewrite", false, "write testdata anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is drawn differently now; look at it after go test ./simulation/report -rewrite", path)
	}
}

func svgOf(t *testing.T, r simulation.Result) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := SVG(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func htmlOf(t *testing.T, r simulation.Result, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheStoryIsDrawnAsBefore(t *testing.T) {
	golden(t, "story.svg", svgOf(t, zombieStory()))
}

func TestEqualResultsGiveEqualFiles(t *testing.T) {
	r := zombieStory()
	o := Options{Command: "postroom sim run"}
	if !bytes.Equal(svgOf(t, r), svgOf(t, zombieStory())) || !bytes.Equal(htmlOf(t, r, o), htmlOf(t, zombieStory(), o)) {
		t.Error("two drawings of one result differ")
	}
}

// nasty is a run whose every text wants to be HTML, or to end the script it stands in.
func nasty() (simulation.Result, []string) {
	texts := []string{
		`</script><script>document.title="owned"</script>`, `"'><img src=x onerror=alert(1)>`,
		"<!--<script>", `{{data}}`, "\u2028\x00\x1b[31m", "]]>", "\xff\xfe", `&amp;<b>`,
	}
	s := &story{}
	s.result.Plan = simulation.Plan{Spec: texts[0], Faults: []simulation.Fault{{Kind: simulation.FaultCrash, Worker: texts[1]}}}
	for i, text := range texts {
		in := about(simulation.KindAccepted, text)
		in.Queue = text
		s.tell(i*10, in)
		g := until(held(simulation.KindGrant, text, text, uint64(i+1), 1), i*10+1000)
		g.Queue, g.Detail = text, text
		s.tell(i*10+1, g)
		v := verb(held(simulation.KindSettle, text, text, uint64(i+1), 1), "ack")
		v.Queue, v.Reason = text, text
		s.tell(i*10+9, v)
	}
	s.result.Violations = []simulation.Violation{{Signature: simulation.Signature{Invariant: "I7", Roles: texts[1]}, Event: 2, Text: texts[0]}}
	s.result.Err = texts[0]
	return s.result, texts
}

var dataBlock = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

func TestNoTextGetsOutOfItsPlace(t *testing.T) {
	r, texts := nasty()
	page := string(htmlOf(t, r, Options{Title: texts[0], Command: texts[1]}))
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d script elements, want the two of the page", n)
	}
	for _, bad := range []string{"<img", "<!--", "owned\"</script"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	var data struct {
		Command string
		Events  []simulation.Event
	}
	if err := json.Unmarshal([]byte(dataBlock.FindStringSubmatch(page)[1]), &data); err != nil {
		t.Fatalf("the data is no JSON: %v", err)
	}
	if data.Command != texts[1] || len(data.Events) != len(r.Events) || data.Events[0].Message != texts[0] {
		t.Errorf("the data came out as %q, %d events, %q", data.Command, len(data.Events), data.Events[0].Message)
	}

	decoder := xml.NewDecoder(bytes.NewReader(svgOf(t, r)))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && (e.Name.Local == "script" || e.Name.Local == "img") {
			t.Errorf("the SVG holds an element %s", e.Name.Local)
		}
	}
}

// Everything is in the file: nothing refers to anywhere else.
func TestTheFilesLoadNothing(t *testing.T) {
	r := zombieStory()
	outside := regexp.MustCompile(`(?i)(src|href)\s*=|@import|url\((?:[^#]|$)|fetch\(|XMLHttpRequest|WebSocket|import\(`)
	for name, file := range map[string][]byte{"HTML": htmlOf(t, r, Options{}), "SVG": svgOf(t, r)} {
		if found := outside.Find(file); found != nil {
			t.Errorf("the %s refers to something outside: %q", name, found)
		}
	}
	if !bytes.Contains(htmlOf(t, r, Options{}), []byte("default-src 'none'")) {
		t.Error("the page's policy allows it to load things")
	}
}

// The script must not hold what ends it, nor be changed by what is put in around it.
func TestTheScriptIsPutInAsItIs(t *testing.T) {
	if strings.Contains(pageScript, "</script") || strings.Contains(pageStyle, "</style") {
		t.Error("the script or the style ends itself")
	}
	if page := htmlOf(t, zombieStory(), Options{}); !bytes.Contains(page, []byte(pageScript)) || bytes.Contains(page, []byte("{{")) {
		t.Error("the page lacks its script, or a place was left empty")
	}
}

func TestARunWithoutEventsHasItsFiguresOnly(t *testing.T) {
	r := simulation.Result{EventCount: 12, Plan: simulation.Plan{Spec: "mailer", Seed: 3}}
	if page := string(htmlOf(t, r, Options{})); !strings.Contains(page, "mailer, seed 3") || !strings.Contains(page, `["events","12"]`) {
		t.Error("the page lacks the run's name and figures")
	}
	if picture := string(svgOf(t, r)); !strings.Contains(picture, "without keeping its events") {
		t.Error("the picture does not say why it is empty")
	}
}

func TestEventsOfHalfARunAreRefused(t *testing.T) {
	whole := zombieStory()
	for name, spoil := range map[string]func(r *simulation.Result){
		"the first is missing":     func(r *simulation.Result) { r.Events = r.Events[1:] },
		"one is its own cause":     func(r *simulation.Result) { r.Events[3].Cause = 4 },
		"a cause before the first": func(r *simulation.Result) { r.Events[3].Cause = -1 },
		"time goes back":           func(r *simulation.Result) { r.Events[9].At = 0 },
	} {
		r := whole
		r.Events = slices.Clone(whole.Events)
		spoil(&r)
		if err := HTML(io.Discard, r, Options{}); !errors.Is(err, ErrEvents) {
			t.Errorf("%s: HTML says %v, want %v", name, err, ErrEvents)
		}
		if err := SVG(io.Discard, r); !errors.Is(err, ErrEvents) {
			t.Errorf("%s: SVG says %v, want %v", name, err, ErrEvents)
		}
	}
}

// failingWriter fails at its first write.
type failingWriter struct{}

var errFull = errors.New("disk full")

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

func TestErrorsOfTheWriterComeBack(t *testing.T) {
	if err := HTML(failingWriter{}, zombieStory(), Options{}); !errors.Is(err, errFull) {
		t.Errorf("HTML: %v", err)
	}
	if err := SVG(failingWriter{}, zombieStory()); !errors.Is(err, errFull) {
		t.Errorf("SVG: %v", err)
	}
}
