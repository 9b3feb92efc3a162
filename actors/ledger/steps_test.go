package ledger_test

import (
	"bufio"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestQ18_StepsGrowWithTheLogarithm counts. A program with the coverage tool's counters
// in it carries out each operation on a ledger of 700 messages ready, leased, delayed and
// dead, and on one of 100,000: whoever visits a message runs a statement for it, and so do
// heaps, index and lists for each place they look at. No counter is in the ledger itself,
// whose hot path is not the place for one.
//
// What is counted is the mean of 64, so that a rare step that pays for many, such as the
// index doubling, counts as what it comes to. The two sizes keep well away from one.
func TestQ18_StepsGrowWithTheLogarithm(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program and fills a ledger: 5 s")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go tool")
	}
	const (
		small, large = 700, 100_000
		perLevel     = 16 // more statements at most for twice the messages; a heap of fours takes 10
		constant     = 40 // c of c*log2(n), in statements
	)
	dir := t.TempDir()
	run := func(env, name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), env)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const ours = "github.com/postroom/postroom/actors/ledger"
	program := filepath.Join(dir, "steps")
	// The program's own package has to be among those counted, else it has no counters.
	run("", "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+ours+","+ours+"/testdata/steps", "-o", program, "./testdata/steps")

	steps := func(n int) map[string]float64 {
		t.Helper()
		counters, other := filepath.Join(dir, strconv.Itoa(n)), t.TempDir()
		if err := os.Mkdir(counters, 0o700); err != nil {
			t.Fatal(err)
		}
		run("GOCOVERDIR="+other, program, counters, strconv.Itoa(n))
		operations, err := os.ReadDir(counters)
		if err != nil {
			t.Fatal(err)
		}
		run("", "go", "tool", "covdata", "pkglist", "-i="+filepath.Join(counters, operations[0].Name())) // builds the tool
		covdata := run("", "go", "tool", "-n", "covdata")
		steps := make(map[string]float64)
		for _, o := range operations {
			text := filepath.Join(other, "text")
			run("", covdata, "textfmt", "-i="+filepath.Join(counters, o.Name()), "-o="+text)
			steps[o.Name()] = countedIn(t, text) / 64
		}
		return steps
	}
	few, many := steps(small), steps(large)
	if len(few) < 25 || len(many) != len(few) {
		t.Fatalf("%d and %d operations were counted, want at least 25 of each", len(few), len(many))
	}
	for operation, n := range many {
		t.Logf("%-20s %5.0f of %d, %5.0f of %d", operation, few[operation], small, n, large)
		if few[operation] == 0 {
			t.Errorf("%s: nothing was counted", operation)
		}
		if most := constant * math.Log2(large); n > most {
			t.Errorf("%s visits %.0f places among %d messages, want at most %.0f", operation, n, large, most)
		}
		if more := perLevel * math.Log2(float64(large)/small); n > few[operation]+more {
			t.Errorf("%s visits %.0f places among %d messages and %.0f among %d, want at most %.0f more",
				operation, few[operation], small, n, large, more)
		}
	}
}

// countedIn sums the counts of the ledger's own statements in a coverage profile.
func countedIn(t *testing.T, profile string) (sum float64) {
	t.Helper()
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "mode:") || strings.Contains(line, "testdata") {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("profile line %q: %v", line, err)
		}
		sum += n
	}
	return sum
}
