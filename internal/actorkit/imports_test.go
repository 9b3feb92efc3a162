package actorkit

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The order of the packages, lowest first. A package imports only what its line
// names:
//
//	messages ◀─ actors/ledger
//	messages ◀─ internal/actorkit ◀─ router, supervisor
//	                all of these  ◀─ actors ◀─ postroom ◀─ simulation, worker, cmd
var (
	core      = []string{"messages", "actors/ledger", "router", "supervisor", "internal/actorkit"}
	door      = append(slices.Clone(core), "actors")
	importsOf = map[string][]string{
		"messages":          {},
		"actors/ledger":     {"messages"},
		"router":            {"messages", "internal/actorkit"},
		"supervisor":        {"messages", "internal/actorkit"},
		"internal/actorkit": {"messages"},
		"internal/mutants":  {},
		"actors":            core,
		"":                  door,
	}
	// The users at the top, subpackages included, may import anything below them.
	tops = []string{"simulation", "worker", "cmd", "examples", "docs"}
)

// mayImportActor are the packages besides actorkit that may name actor.PID and
// actor.ActorSystem; the lint test sees to it that they name nothing else.
var mayImportActor = []string{"actors", "router", "supervisor", "", "simulation"}

// checkImports returns what is wrong with the imports of one package, given by
// its path inside the module.
func checkImports(name string, imports []string) (wrong []string) {
	top, _, _ := strings.Cut(name, "/")
	isTop := slices.Contains(tops, top)
	allowedHere, known := importsOf[name]
	if !known && !isTop {
		return []string{"it has no place in the order of packages yet: give it one in imports_test.go"}
	}
	for _, path := range imports {
		switch ours, isOurs := strings.CutPrefix(path, module); {
		case isOurs && (ours == "" || ours[0] == '/'):
			if ours = strings.TrimPrefix(ours, "/"); !isTop && !slices.Contains(allowedHere, ours) {
				wrong = append(wrong, "it must not import "+path)
			}
		case path == proto || strings.HasPrefix(path, proto+"/"):
			if name == "internal/actorkit" || path == proto+"/actor" && slices.Contains(mayImportActor, name) {
				continue
			}
			wrong = append(wrong, "only actorkit may import "+path)
		}
	}
	return wrong
}

func TestImportsPointDownwards(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go tool")
	}
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "./...")
	list.Dir = moduleRoot(t)
	out, err := list.Output()
	require.NoError(t, err)
	packages := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		packages++
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, wrong := range checkImports(name, p.Imports) {
			t.Errorf("%s: %s", p.ImportPath, wrong)
		}
	}
	assert.Greater(t, packages, 2)
}

func TestImportCheckSeesWrongTurns(t *testing.T) {
	for _, row := range []struct {
		name, imports string
		wrong         bool
	}{
		{"messages", "time", false},
		{"messages", module + "/actors/ledger", true},
		{"actors/ledger", module + "/messages", false},
		{"actors/ledger", module + "/internal/actorkit", true},
		{"actors/ledger", proto + "/actor", true},
		{"router", module + "/internal/actorkit", false},
		{"router", module + "/supervisor", true},
		{"router", proto + "/actor", false},
		{"router", proto + "/router", true},
		{"internal/actorkit", module + "/messages", false},
		{"internal/actorkit", module + "/router", true},
		{"internal/actorkit", proto + "/eventstream", false},
		{"actors", module + "/supervisor", false},
		{"actors", module, true},
		{"actors", proto + "/eventstream", true},
		{"", module + "/actors", false},
		{"", module + "/simulation", true},
		{"simulation", module, false},
		{"cmd/postroom", module + "/simulation", false},
		{"worker", proto + "/actor", true},
		{"cmd/postroom", proto + "/remote", true},
		{"new", "time", true},
	} {
		wrong := checkImports(row.name, []string{row.imports})
		assert.Equal(t, row.wrong, len(wrong) > 0, "%q imports %q: %v", row.name, row.imports, wrong)
	}
}
