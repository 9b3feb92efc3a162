package postroom_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
	"github.com/postroom/postroom/supervisor"
	"github.com/postroom/postroom/worker"
)

// The docs are held to the code: their Go is code that is compiled, and mostly run;
// their links lead somewhere; the tests, flags, figures and defaults they name exist
// and are all that there are.

// page is one Markdown file.
type page struct {
	path  string // from the root, with slashes
	lines []string
}

func docPages(t *testing.T) []page {
	t.Helper()
	paths := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") && !entry.IsDir() {
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var pages []page
	for _, path := range paths {
		pages = append(pages, page{path, strings.Split(readFile(t, path), "\n")})
	}
	return pages
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is one fenced block.
type block struct {
	at       string // path:line
	language string
	marker   string // NAME of the <!-- code: NAME --> above it
	text     string
}

var markerPattern = regexp.MustCompile(`^<!-- code: (\S+) -->$`)

func (p page) blocks() (all []block) {
	var open *block
	marker := ""
	for i, line := range p.lines {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{at: fmt.Sprintf("%s:%d", p.path, i+1), language: fence, marker: marker}
		case isFence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
			continue
		}
		if m := markerPattern.FindStringSubmatch(line); m != nil {
			marker = m[1]
		} else if strings.TrimSpace(line) != "" {
			marker = ""
		}
	}
	return all
}

// prose is the page without its fenced blocks, which hold no links and no headings.
func (p page) prose() []string {
	var out []string
	inside := false
	for _, line := range p.lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
			line = ""
		}
		if inside {
			line = ""
		}
		out = append(out, line)
	}
	return out
}

// TestDocsShowCodeThatRuns wants every Go block to be one of
//
//   - <!-- code: ExampleX -->: word for word the body of that example of this
//     package, which is run with its output compared;
//   - <!-- code: X#name -->: the part of it between //docs:begin name and //docs:end;
//   - a whole file, beginning with "package": it is built.
func TestDocsShowCodeThatRuns(t *testing.T) {
	bodies := exampleBodies(t)
	for _, p := range docPages(t) {
		for _, b := range p.blocks() {
			if b.language != "go" {
				continue
			}
			if b.marker == "" {
				if !strings.HasPrefix(b.text, "package ") {
					t.Errorf("%s: a Go block needs <!-- code: NAME --> above it, or must be a whole file", b.at)
					continue
				}
				buildBlock(t, b)
				continue
			}
			want, ok := bodies[b.marker]
			if !ok {
				t.Errorf("%s: there is no example, or part of one, called %s", b.at, b.marker)
			} else if b.text != want {
				t.Errorf("%s: differs from %s, which is\n%s", b.at, b.marker, want)
			}
		}
	}
}

// exampleBodies returns what stands between the braces of each function in this
// package's tests, without its indentation and output, and the marked parts of it.
func exampleBodies(t *testing.T) map[string]string {
	t.Helper()
	bodies := map[string]string{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		fset := token.NewFileSet()
		text := readFile(t, path)
		file, err := parser.ParseFile(fset, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			of := f.Name.Name
			if f.Recv != nil { // Type.Method
				receiver := f.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				of = fmt.Sprint(receiver) + "." + of
			}
			from, to := fset.Position(f.Body.Lbrace).Offset+1, fset.Position(f.Body.Rbrace).Offset
			body, parts := splitBody(text[from:to])
			bodies[of] = body
			for name, part := range parts {
				bodies[of+"#"+name] = part
			}
		}
	}
	return bodies
}

func splitBody(text string) (body string, parts map[string]string) {
	parts = map[string]string{}
	var kept []string
	for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "// Output:") {
			break
		}
		kept = append(kept, line)
	}
	var all, part []string
	name := ""
	for _, line := range kept {
		trimmed := strings.TrimSpace(line)
		if n, ok := strings.CutPrefix(trimmed, "//docs:begin "); ok {
			name, part = n, nil
			continue
		}
		if trimmed == "//docs:end" {
			parts[name], name = dedent(part), ""
			continue
		}
		all = append(all, line)
		if name != "" {
			part = append(part, line)
		}
	}
	return dedent(all), parts
}

// dedent takes away the tabs that all lines have.
func dedent(lines []string) string {
	tabs := -1
	for _, line := range lines {
		if n := len(line) - len(strings.TrimLeft(line, "\t")); strings.TrimSpace(line) != "" && (tabs < 0 || n < tabs) {
			tabs = n
		}
	}
	var out strings.Builder
	for _, line := range lines {
		if len(line) >= tabs && tabs > 0 {
			line = line[tabs:]
		}
		out.WriteString(strings.TrimRight(line, " \t") + "\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// buildBlock vets a whole file as a package of this module that exists in an overlay
// only, so that nothing is written into the tree.
func buildBlock(t *testing.T, b block) {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source.go")
	writeFile(t, source, b.text)
	name := "main.go"
	if strings.Contains(b.text, `"testing"`) {
		name = "main_test.go"
	}
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, "docs", name): source},
	})
	if err != nil {
		t.Fatal(err)
	}
	overlayPath := filepath.Join(dir, "overlay.json")
	writeFile(t, overlayPath, string(overlay))
	out, err := goTool("vet", "-overlay", overlayPath, "./docs").CombinedOutput()
	if err != nil {
		t.Errorf("%s: does not build: %v\n%s", b.at, err, out)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goTool(args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), "go", args...)
}

var (
	linkPattern    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`^#+ (.+)$`)
	notInAnchors   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the headings as GitHub links to them.
func (p page) anchors() map[string]bool {
	all := map[string]bool{}
	for _, line := range p.prose() {
		if m := headingPattern.FindStringSubmatch(line); m != nil {
			text := notInAnchors.ReplaceAllString(strings.ToLower(m[1]), "")
			all[strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	return all
}

// TestDocsLinksLeadSomewhere follows every link inside the repository.
func TestDocsLinksLeadSomewhere(t *testing.T) {
	pages := map[string]page{}
	for _, p := range docPages(t) {
		pages[p.path] = p
	}
	links := 0
	for _, p := range pages {
		for i, line := range p.prose() {
			for _, m := range linkPattern.FindAllStringSubmatch(line, -1) {
				links++
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				path := p.path
				if target != "" {
					path = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), target))
				}
				if _, err := os.Stat(filepath.FromSlash(path)); err != nil {
					t.Errorf("%s:%d: %s leads nowhere", p.path, i+1, m[1])
					continue
				}
				if to, ok := pages[path]; ok && anchor != "" && !to.anchors()[anchor] {
					t.Errorf("%s:%d: %s has no heading %q", p.path, i+1, path, anchor)
				}
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found: does the pattern still work?", links)
	}
}

var (
	testNamePattern = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Za-z0-9_]*)`")
	traceNames      = regexp.MustCompile("`([a-z][0-9]+_[a-z0-9_]+)`")
)

// TestDocsNameTestsThatExist looks for every test and trace that the docs name: a
// promise whose test is gone is no promise.
func TestDocsNameTestsThatExist(t *testing.T) {
	functions, traces := map[string]bool{}, map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz|Benchmark)\w*)\(`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range declared.FindAllStringSubmatch(readFile(t, path), -1) {
				functions[m[1]] = true
			}
		case strings.HasSuffix(path, ".txt"):
			traces[strings.TrimSuffix(entry.Name(), ".txt")] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, p := range docPages(t) {
		for i, line := range p.prose() {
			for _, m := range testNamePattern.FindAllStringSubmatch(line, -1) {
				named++
				if !functions[m[1]] {
					t.Errorf("%s:%d: there is no %s", p.path, i+1, m[1])
				}
			}
			for _, m := range traceNames.FindAllStringSubmatch(line, -1) {
				named++
				if !traces[m[1]] {
					t.Errorf("%s:%d: there is no trace %s", p.path, i+1, m[1])
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests and traces are named: do the patterns still work?", named)
	}
}

// TestDocsKnowEveryClause wants a number like SPEC Q9, in a comment anywhere, to be
// found in docs/guarantees.md.
func TestDocsKnowEveryClause(t *testing.T) {
	clauses := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| \*\*([A-Z]\d+)\*\* \|`).FindAllStringSubmatch(readFile(t, "docs/guarantees.md"), -1) {
		clauses[m[1]] = true
	}
	if len(clauses) == 0 {
		t.Fatal("docs/guarantees.md has no clauses")
	}
	cited := regexp.MustCompile(`SPEC ([A-Z]\d+(?:, [A-Z]\d+)*)`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		for _, m := range cited.FindAllStringSubmatch(readFile(t, path), -1) {
			for _, clause := range strings.Split(m[1], ", ") {
				if !clauses[clause] {
					t.Errorf("%s cites SPEC %s, which docs/guarantees.md does not have", path, clause)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocsTellTheDefaults holds docs/limits.md to the constants: a row begins with
// the name and has the default in its second column.
func TestDocsTellTheDefaults(t *testing.T) {
	config := postroom.QueueConfig{RetryBudget: postroom.RetryBudget{Ratio: 1}}.WithDefaults()
	consumer := postroom.ConsumerConfig{}.WithDefaults()
	limits := postroom.Limits{}.WithDefaults()
	restart := supervisor.Policy{}.WithDefaults()
	for name, want := range map[string]any{
		"QueueConfig.AckTimeout":          config.AckTimeout,
		"QueueConfig.MaxAttempts":         config.MaxAttempts,
		"QueueConfig.BackoffBase":         config.BackoffBase,
		"QueueConfig.BackoffCap":          config.BackoffCap,
		"QueueConfig.MaxMessages":         config.MaxMessages,
		"QueueConfig.MaxBytes":            bytesOf(config.MaxBytes),
		"QueueConfig.InboxLimit":          config.InboxLimit,
		"QueueConfig.DedupLimit":          config.DedupLimit,
		"QueueConfig.DeadLetterLimit":     config.DeadLetterLimit,
		"QueueConfig.DeadLetterBytes":     bytesOf(config.DeadLetterBytes),
		"RetryBudget.Floor":               config.RetryBudget.Floor,
		"RetryBudget.Window":              config.RetryBudget.Window,
		"ConsumerConfig.Concurrency":      consumer.Concurrency,
		"ConsumerConfig.HandlerTimeout":   consumer.HandlerTimeout,
		"Limits.IDBytes":                  limits.IDBytes,
		"Limits.Headers":                  limits.Headers,
		"Limits.HeaderBytes":              bytesOf(int64(limits.HeaderBytes)),
		"Limits.BodyBytes":                bytesOf(limits.BodyBytes),
		"Queue name":                      messages.QueueNameBytesMax,
		"Topic or pattern":                messages.TopicBytesMax,
		"Error text kept":                 bytesOf(messages.ErrorBytesMax),
		"Deaths kept in a history":        messages.HistoryMax,
		"Highest priority":                messages.PriorityMax,
		"Events waiting for a subscriber": router.BufferMax,
		"PublisherConfig.Window":          postroom.DefaultWindow,
		"RedriveConfig.Rate":              int(messages.DefaultRedriveRate),
		"CollectorOptions.Timeout":        postroom.DefaultScrapeTimeout,
		"Policy.Attempts":                 worker.DefaultAttempts,
		"Policy.Deadline":                 worker.DefaultDeadline,
		"Policy.Base, of a retry":         worker.DefaultBase,
		"Policy.Cap, of a retry":          worker.DefaultCap,
		"BudgetConfig.Tokens":             worker.DefaultBudgetTokens,
		"BudgetConfig.PerSuccess":         worker.DefaultBudgetPerSuccess,
		"BudgetConfig.PerSecond":          worker.DefaultBudgetPerSecond,
		"PruneConfig.Window":              worker.DefaultWindow,
		"Redrive's Retention":             worker.DefaultRetention,
		"OutboxConfig.Batch":              worker.DefaultBatch,
		"OutboxConfig.Claim":              worker.DefaultClaim,
		"OutboxConfig.Attempts":           worker.DefaultOutboxAttempts,
		"OutboxConfig.Base":               worker.DefaultOutboxBase,
		"OutboxConfig.Cap":                worker.DefaultOutboxCap,
		"OutboxConfig.Poll":               worker.DefaultPoll,
		"Payload kept with a key":         bytesOf(worker.PayloadBytesMax),
		"Each part of a key":              bytesOf(worker.KeyBytesMax),
		"Policy.Base":                     restart.Base,
		"Policy.Cap":                      restart.Cap,
		"Policy.MaxFailures":              restart.MaxFailures,
		"Policy.HalfLife":                 restart.HalfLife,
	} {
		row := tableRow(t, "docs/limits.md", name)
		if row == nil {
			t.Errorf("docs/limits.md has no row %q", name)
			continue
		}
		if value := inWords(want); !strings.HasPrefix(row[1], value) {
			t.Errorf("docs/limits.md: %s is %q, want %q", name, row[1], value)
		}
	}
}

type bytesOf int64

// inWords writes a default as people do: 1,000,000; 1 GiB; 30 s.
func inWords(v any) string {
	switch v := v.(type) {
	case time.Duration:
		for _, unit := range []struct {
			name string
			d    time.Duration
		}{{"days", 24 * time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
			if v%unit.d == 0 {
				return fmt.Sprintf("%d %s", v/unit.d, unit.name)
			}
		}
		return v.String()
	case bytesOf:
		for _, unit := range []struct {
			name string
			n    bytesOf
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if v%unit.n == 0 {
				return fmt.Sprintf("%d %s", v/unit.n, unit.name)
			}
		}
		return fmt.Sprintf("%d bytes", int64(v))
	case int:
		digits := strconv.Itoa(v)
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	}
	return fmt.Sprint(v)
}

// tableRow returns the cells of the row whose first cell is name, in backticks or not.
func tableRow(t *testing.T, path, name string) []string {
	t.Helper()
	for line := range strings.Lines(readFile(t, path)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.Trim(cells[0], "`") == name && len(cells) > 1 {
			return cells
		}
	}
	return nil
}

// TestDocsNameEveryFigure wants each counter, notice and metric in docs/operating.md,
// and no metric there that the collector does not have.
func TestDocsNameEveryFigure(t *testing.T) {
	text := readFile(t, "docs/operating.md")
	for field := range reflect.TypeFor[messages.Counters]().Fields() {
		if !strings.Contains(text, "`"+field.Name+"`") {
			t.Errorf("docs/operating.md does not name the counter %s", field.Name)
		}
	}
	notices := regexp.MustCompile(`(?m)^func \((\w+)\) isNotice\(\)`).FindAllStringSubmatch(readFile(t, "messages/events.go"), -1)
	if len(notices) == 0 {
		t.Error("messages/events.go has no notices: does the pattern still work?")
	}
	for _, m := range notices {
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/operating.md does not name the notice %s", m[1])
		}
	}
	names := regexp.MustCompile(`postroom_[a-z_]+`)
	known := names.FindAllString(readFile(t, "metrics.go"), -1)
	for _, name := range known {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/operating.md does not name the metric %s", name)
		}
	}
	for _, name := range names.FindAllString(text, -1) {
		if !slices.Contains(known, name) {
			t.Errorf("docs/operating.md names %s, which the collector does not have", name)
		}
	}
}

var (
	flagPattern     = regexp.MustCompile(`(?:^|[\s` + "`" + `(\[])--([a-z][a-z-]+)`)
	helpFlagPattern = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z][a-z-]*)`)
	commandPattern  = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}`)
)

// TestDocsNameFlagsThatExist wants every flag that the docs name to be one of the
// program's, and every flag of "postroom run" to be told of in docs/operating.md.
func TestDocsNameFlagsThatExist(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	binary := filepath.Join(t.TempDir(), "postroom")
	if out, err := goTool("build", "-o", binary, "./cmd/postroom").CombinedOutput(); err != nil {
		t.Skipf("go build ./cmd/postroom: %v\n%s", err, out) // which is for its own tests to tell
	}
	help := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), binary, append(args, "--help")...).Output()
		if err != nil {
			t.Fatalf("postroom %s --help: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	known, named := map[string]bool{"help": true}, map[string]bool{"help": true}
	var learn func(command ...string)
	learn = func(command ...string) {
		text := help(command...)
		for _, m := range helpFlagPattern.FindAllStringSubmatch(text, -1) {
			known[m[1]] = true
		}
		_, list, _ := strings.Cut(text, "Available Commands:")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, sub := range commandPattern.FindAllStringSubmatch(list, -1) {
			learn(append(slices.Clone(command), sub[1])...)
		}
	}
	learn()
	for _, p := range docPages(t) {
		if strings.HasPrefix(p.path, "docs/decisions/") || p.path == "CONTRIBUTING.md" {
			continue // they name flags of other programs
		}
		for i, line := range p.lines {
			// What stands behind a bare -- belongs to the command that is run.
			ours, _, _ := strings.Cut(line, " -- ")
			for _, m := range flagPattern.FindAllStringSubmatch(ours, -1) {
				if p.path == "docs/operating.md" {
					named[m[1]] = true
				}
				if !known[m[1]] {
					t.Errorf("%s:%d: postroom has no --%s", p.path, i+1, m[1])
				}
			}
		}
	}
	flags := helpFlagPattern.FindAllStringSubmatch(help("run"), -1)
	if len(flags) < 5 {
		t.Errorf("only the flags %v were found: does the pattern still work?", flags)
	}
	for _, m := range flags {
		if !named[m[1]] {
			t.Errorf("docs/operating.md does not tell of --%s", m[1])
		}
	}
}

// TestDocsReadmeRunsWhatItShows wants the README's command to work on a file of the
// repository with as many lines as its result has.
func TestDocsReadmeRunsWhatItShows(t *testing.T) {
	readme := readFile(t, "README.md")
	command := regexp.MustCompile(`(?m)^go run \./cmd/postroom run .* (\S+) -- .*$`).FindStringSubmatch(readme)
	result := regexp.MustCompile(`(?m)^\{"put":.*\}$`).FindString(readme)
	if command == nil || result == "" {
		t.Fatal("the README has no command, or not its result")
	}
	var figures struct{ Put, Acked int }
	if err := json.Unmarshal([]byte(result), &figures); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	lines := 0
	for scanner := bufio.NewScanner(strings.NewReader(readFile(t, command[1]))); scanner.Scan(); lines++ {
		if _, err := os.Stat(scanner.Text()); err != nil {
			t.Errorf("%s: %v", command[1], err)
		}
	}
	if figures.Put != lines || figures.Acked != lines {
		t.Errorf("%s has %d lines, the README says %s", command[1], lines, result)
	}
}

// TestDocsDecisionsAreWhole wants each decision numbered without a gap, listed, and
// with the four parts of a decision.
func TestDocsDecisionsAreWhole(t *testing.T) {
	paths, err := filepath.Glob("docs/decisions/[0-9]*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	index := readFile(t, "docs/decisions/README.md")
	for i, path := range paths {
		name := filepath.Base(path)
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(name, want) {
			t.Errorf("%s: want a name that begins with %s", path, want)
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
		text := readFile(t, path)
		for _, part := range []string{"## Context", "## Choice", "## What we gave up", "Status: "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q", path, part)
			}
		}
	}
}
