package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTraces replays the scenarios in testdata. Each line of a directive is one
// command, and the expected output is the effects, the verdict and its hint, word
// for word, and when the queue wants to be woken next.
//
// After each command the invariants are checked, and that folding the records so
// far gives the same ledger.
//
// To accept a change of behaviour run
//
//	go test ./actors/ledger -run TestTraces -rewrite
//
// and read the diff as a reviewer would: every changed line is a change that
// users of the queue can see.
func TestTraces(t *testing.T) {
	replay(t, newReal)
}

// TestModelFollowsTheTraces holds the naive model to the same scenarios, so that
// the oracle of the property is known to say what the specification says.
func TestModelFollowsTheTraces(t *testing.T) {
	replay(t, newModel)
}

func replay(t *testing.T, make maker) {
	for _, path := range traceFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			w := newWorld(make)
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				return w.directive(d)
			})
		})
	}
}

func (w *world) directive(d *datadriven.TestData) string {
	var out strings.Builder
	lines := d.Cmd
	for i := range d.CmdArgs {
		lines += " " + d.CmdArgs[i].Key
		if vals := d.CmdArgs[i].Vals; len(vals) > 0 {
			lines += "=(" + strings.Join(vals, ",") + ")"
		}
	}
	if d.Input != "" {
		lines += "\n" + d.Input
	}
	for line := range strings.Lines(lines) {
		out.WriteString(w.run(strings.TrimSpace(line)))
	}
	if next := w.next(); next != "" {
		out.WriteString(next + "\n")
	}
	if out.Len() == 0 {
		return "ok"
	}
	return out.String()
}

func traceFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("glob testdata/*.txt: %d files, error %v", len(files), err)
	}
	return files
}

// clauses are those of the specification that the ledger can show. The name of a
// trace begins with its clause, so that the list can be held against the files.
var clauses = strings.Fields(`
	a1 a2
	c3 c5 c6 c8
	e1 e3
	k3 k4
	q1 q2 q3 q4 q5 q6 q7 q8 q9 q10 q11 q12 q13 q14 q15 q16 q17 q18 q19
	r1 r2 r3 r4 r5 r6 r7 r8 r9 r10
	s1 t6
`)

// TestEveryClauseHasATrace fails for a clause without a file, and for a file whose
// name or first line does not say what it is about.
func TestEveryClauseHasATrace(t *testing.T) {
	filesByClause := map[string]int{}
	for _, path := range traceFiles(t) {
		name := filepath.Base(path)
		clause, _, found := strings.Cut(name, "_")
		if !found {
			t.Errorf("testdata/%s: want a name like q9_deadline_instant.txt", name)
		}
		filesByClause[clause]++
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("testdata/%s: want a comment on top that says what the clause promises", name)
		}
	}
	for _, clause := range clauses {
		if filesByClause[clause] == 0 {
			t.Errorf("clause %s has no trace in testdata", strings.ToUpper(clause))
		}
		delete(filesByClause, clause)
	}
	for clause := range filesByClause {
		t.Errorf("testdata/%s_…: %q is not in the list of clauses", clause, clause)
	}
}
