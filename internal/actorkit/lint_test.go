package actorkit

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/postroom/postroom"
	proto  = "github.com/asynkron/protoactor-go"
)

// Reasons that several bans share.
const (
	wallClock = "it runs on the wall clock, so neither the simulation nor a broker's own clock governs it; use actorkit.Runtime"
	goroutine = "it starts a goroutine that no Close waits for and that the simulation cannot order; use Runtime.Schedule or ScheduleBlocking"
	dice      = "randomness must be repeatable from a seed; use Runtime.Draw"
	silent    = "it stops an actor silently or on the wall clock; supervision is Supervisor.ChildFailed"
)

// selectorBans is what must not be named from a package: import path, then name.
// They hold outside of actorkit and cmd.
var selectorBans = map[string]map[string]string{
	"time": {
		"Now": wallClock, "Since": wallClock, "Until": wallClock, "Sleep": wallClock, "After": wallClock,
		"AfterFunc": wallClock, "NewTimer": wallClock, "NewTicker": wallClock, "Tick": wallClock,
	},
	"context": {
		"WithTimeout": wallClock + ".WithTimeout", "WithTimeoutCause": wallClock + ".WithTimeout",
		"WithDeadline": wallClock + ".WithTimeout", "WithDeadlineCause": wallClock + ".WithTimeout",
		"AfterFunc": goroutine,
	},
	"github.com/google/uuid": {
		"New": dice, "NewString": dice, "NewRandom": dice,
		"NewUUID": wallClock, "NewV6": wallClock, "NewV7": wallClock, "NewV7FromReader": wallClock,
		"SetRand": "it is global: two brokers share one process; pass Runtime.Random to NewRandomFromReader",
	},
}

// importBans hold outside of actorkit and cmd.
var importBans = map[string]string{
	"math/rand":    dice,
	"math/rand/v2": dice,
	"crypto/rand":  "randomness must be repeatable from a seed; use Runtime.Random or Runtime.Draw",
}

// trapImports hold everywhere: packages of protoactor, subpackages included.
var trapImports = map[string]string{
	proto + "/scheduler":   "its timers run on the wall clock; use Runtime.AfterFunc",
	proto + "/router":      "it has data races (77 reports under -race)",
	proto + "/persistence": "its API returns no error and its providers drop writes",
	proto + "/plugin":      "its passivation runs on the wall clock",
	proto + "/remote":      "any TCP client can end the process, and delivery is at most once",
	proto + "/cluster":     "it has no fencing: a split brain keeps two owners of one queue",
}

// trapNames hold everywhere, for names of protoactor's package actor.
var trapNames = map[string]string{
	"Bounded":                        "a full mailbox makes its senders spin for ever",
	"BoundedDropping":                "it loops at full speed once it dropped a message",
	"PropsFromFunc":                  "a restart does not reset the state in its closure; use Spec.New",
	"WithFunc":                       "a restart does not reset the state in its closure; use Spec.New",
	"WithMetricProviders":            "it leaks a callback per actor and formats labels per message",
	"WithDefaultPrometheusProvider":  "it starts a listener of its own and leaks a callback per actor",
	"NewOneForOneStrategy":           silent,
	"NewAllForOneStrategy":           "as a guardian it takes the process down, and it restarts siblings that still handle messages",
	"NewExponentialBackoffStrategy":  "it is linear, without a limit, on the wall clock and global randomness",
	"NewRestartingStrategy":          "it restarts without limit or delay; " + silent,
	"DefaultSupervisorStrategy":      silent,
	"RestartingSupervisorStrategy":   "it restarts without limit or delay; " + silent,
	"WithDeadLetterThrottleInterval": "0 takes the process down at the first dead letter",
	"NewFuture":                      "futures run on the wall clock and allocate ten times; use Runtime.NewCell",
	"AutoRespond":                    "such a message is answered by the library, past the actor",
	"MessageBatch":                   "its messages are delivered twice, once without their sender",
}

// trapMethods hold everywhere, for calls of methods with these names.
var trapMethods = map[string]string{
	"RequestFuture":     "futures run on the wall clock and allocate ten times; use Runtime.NewCell",
	"StopFuture":        "its timeout of ten seconds is on the wall clock; use Address.TellEnd",
	"PoisonFuture":      "its timeout of ten seconds is on the wall clock; use Address.TellEnd",
	"SetReceiveTimeout": "it has a data race and runs on the wall clock; use Runtime.AfterFunc",
}

// trapMethodsNearProto hold in files that import protoactor; elsewhere the names
// are too common.
var trapMethodsNearProto = map[string]string{
	"Result": "waiting for a future inside an actor is a deadlock, and two waiters wake only one; use Cell.Wait",
	"Stash":  "it replays in the wrong order and forgets senders",
}

// trapDeclarations hold everywhere: methods by which a message becomes a trap.
var trapDeclarations = map[string]string{
	"GetAutoResponse": trapNames["AutoRespond"],
	"GetMessages":     trapNames["MessageBatch"],
}

// actorNames is all that packages other than actorkit may name of protoactor's
// package actor.
var actorNames = []string{"PID", "ActorSystem"}

const goRule = "go statement"

// allowed are the exceptions, each with its reason.
var allowed = []struct{ file, what, why string }{
	{"simulation/runtime.go", goRule, "Close stops each coroutine on a goroutine of its own, because its Goexit is handed on"},
	{"simulation/runtime.go", "time.AfterFunc", "the watchdog for a blocked thread is about real time"},
	{"simulation/runtime.go", "time.NewTimer", "in a bubble the watchdog is a timer that never rings"},
	{"simulation/runtime_pull_race.go", goRule, "the detector keeps what it knows of a coroutine for ever, and of a goroutine not; one of the two runs at a time"},
	{"simulation/clock.go", "time.Now", "how long a run takes in real time is a figure, and nothing depends on it"},
	{"simulation/clock.go", "time.Since", "how long a run takes in real time is a figure, and nothing depends on it"},
	{"simulation/bubble.go", goRule, "a handler of mode Bubble is on a goroutine of its own, which the bubble counts and orders"},
	{"simulation/bubble.go", "time.Now", "inside of a bubble this is the simulation's clock"},
	{"simulation/bubble.go", "time.Until", "inside of a bubble this is the simulation's clock"},
	{"simulation/bubble.go", "time.Sleep", "inside of a bubble this lets the simulation's clock run"},
	{"simulation/bubble.go", "time.NewTimer", "inside of a bubble this lets the simulation's clock run"},
	{"simulation/handler.go", goRule, "outside of the simulation Go is a go statement, as its comment says"},
	{"simulation/handler.go", "time.Now", "outside of the simulation Now is the wall clock, as its comment says"},
	{"simulation/handler.go", "context.WithTimeout", "outside of the simulation WithTimeout is the standard one, as its comment says"},
	{"simulation/handler.go", "time.NewTimer", "outside of the simulation Sleep is on the wall clock, as its comment says"},
}

// finding is one violation.
type finding struct {
	file, what, reason string
	line               int
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.what, f.reason)
}

// lint looks at one file. name is its slash-separated path inside the module.
func lint(fset *token.FileSet, name string, file *ast.File) (found []finding) {
	free := strings.HasPrefix(name, "internal/actorkit/") || strings.HasPrefix(name, "cmd/")
	inKit := strings.HasPrefix(name, "internal/actorkit/")
	flag := func(at ast.Node, what, reason string) {
		found = append(found, finding{name, what, reason, fset.Position(at.Pos()).Line})
	}

	pathByName := map[string]string{} // of imports: local name → path
	for _, spec := range file.Imports {
		at, _ := strconv.Unquote(spec.Path.Value)
		local := path.Base(at)
		if local == "v2" {
			local = path.Base(path.Dir(at))
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		pathByName[local] = at
		if reason, ok := importBans[at]; ok && !free {
			flag(spec, "import "+at, reason)
		}
		for trap, reason := range trapImports {
			if at == trap || strings.HasPrefix(at, trap+"/") {
				flag(spec, "import "+at, reason)
			}
		}
		if _, ok := selectorBans[at]; local == "." && (ok || at == proto+"/actor") {
			flag(spec, "dot import "+at, "names could not be told apart any more")
		}
	}
	nearProto := slices.Contains(values(pathByName), proto+"/actor")

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if !free {
				flag(n, goRule, goroutine)
			}
		case *ast.FuncDecl:
			if reason, ok := trapDeclarations[n.Name.Name]; ok && n.Recv != nil {
				flag(n, "method "+n.Name.Name, reason)
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && nearProto {
				if reason, ok := trapMethodsNearProto[s.Sel.Name]; ok {
					flag(n, "."+s.Sel.Name+"()", reason)
				}
			}
		case *ast.SelectorExpr:
			if reason, ok := trapMethods[n.Sel.Name]; ok {
				flag(n, "."+n.Sel.Name, reason)
			}
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // Obj: a local variable of the package's name
				break
			}
			from := pathByName[x.Name]
			if reason, ok := selectorBans[from][n.Sel.Name]; ok && !free {
				flag(n, path.Base(from)+"."+n.Sel.Name, reason)
			}
			if from != proto+"/actor" {
				break
			}
			if reason, ok := trapNames[n.Sel.Name]; ok {
				flag(n, "actor."+n.Sel.Name, reason)
			} else if !inKit && !slices.Contains(actorNames, n.Sel.Name) {
				flag(n, "actor."+n.Sel.Name, "outside of actorkit only actor.PID and actor.ActorSystem are used; actors go through actorkit")
			}
		}
		return true
	})
	return found
}

func values(m map[string]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// moduleRoot is the directory of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above")
		dir = parent
	}
}

// TestNoForbiddenNames reads every file of the module that is not a test.
func TestNoForbiddenNames(t *testing.T) {
	root := moduleRoot(t)
	fset := token.NewFileSet()
	used := make([]bool, len(allowed))
	files := 0
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // a file that vanished while we look, as during a build
		}
		base := entry.Name()
		if entry.IsDir() {
			if at != root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil && at != root {
				return fs.SkipDir // another module
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(fset, at, nil, 0)
		if err != nil {
			t.Logf("not looked at: %v", err) // the compiler will say it better
			return nil
		}
		files++
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
	next:
		for _, f := range lint(fset, name, file) {
			for i, a := range allowed {
				if a.file == name && a.what == f.what {
					used[i] = true
					continue next
				}
			}
			t.Error(f)
		}
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, files, 10)
	for i, a := range allowed {
		assert.True(t, used[i], "the exception for %s in %s is not needed any more", a.what, a.file)
	}
}

// Each ban has a snippet that breaks it, and some that must pass.
func TestLintSeesWhatItBans(t *testing.T) {
	const outside, kit = "actors/x.go", "internal/actorkit/x.go"
	actorImport := `import "` + proto + `/actor"; `
	type row struct{ file, source, want string }
	rows := []row{
		{outside, `func f() { go f() }`, goRule},
		{outside, `import clock "time"; var now = clock.Now`, "time.Now"},
		{outside, `import . "time"; var now = Now`, "dot import time"},
		{outside, `import "math/rand"; var x = rand.Int()`, "import math/rand"},
		{outside, `import r "math/rand/v2"; var x = r.Int()`, "import math/rand/v2"},
		{outside, `import "crypto/rand"; var x = rand.Reader`, "import crypto/rand"},
		{outside, `func f(c any) { c.RequestFuture(1, 2, 3) }`, ".RequestFuture"},
		{kit, `func f(c any) { c.RequestFuture(1, 2, 3) }`, ".RequestFuture"},
		{kit, `func f(c any) { c.SetReceiveTimeout(1) }`, ".SetReceiveTimeout"},
		{kit, `func f(c any) { c.StopFuture(1) }`, ".StopFuture"},
		{kit, `func f(c any) { c.PoisonFuture(1) }`, ".PoisonFuture"},
		{kit, actorImport + `func f(c actor.Context) { c.Stash() }`, ".Stash()"},
		{kit, actorImport + `func f(c any) { c.Result() }`, ".Result()"},
		{kit, `type m struct{}; func (m) GetMessages() []any { return nil }`, "method GetMessages"},
		{kit, `type m struct{}; func (m) GetAutoResponse(any) any { return nil }`, "method GetAutoResponse"},
		{outside, actorImport + `var p = actor.NewPID("a", "b")`, "actor.NewPID"},
		{outside, actorImport + `type x struct { c actor.Context }`, "actor.Context"},
		{"internal/actorkit/deep/x.go", `import "` + proto + `/cluster/gossip"; var x = gossip.X`, "import " + proto + "/cluster/gossip"},

		{kit, `func f() { go f() }`, ""},
		{"cmd/postroom/main.go", `import "time"; func f() { time.Sleep(1) }`, ""},
		{outside, `import "time"; func f(d time.Duration) time.Time { return time.Unix(0, int64(d)) }`, ""},
		{outside, `type clock struct{}; func (clock) Now() int { return 0 }; func f(time clock) int { return time.Now() }`, ""},
		{outside, `import "context"; var f = context.WithCancel`, ""},
		{outside, `import "github.com/google/uuid"; var f = uuid.NewRandomFromReader`, ""},
		{outside, actorImport + `type x struct { p *actor.PID; s *actor.ActorSystem }`, ""},
		{outside, `func f(c any) { c.Result() }`, ""},
	}
	for from, names := range selectorBans {
		for name := range names {
			rows = append(rows, row{outside, fmt.Sprintf("import %q; var x = %s.%s", from, path.Base(from), name), path.Base(from) + "." + name})
		}
	}
	for from := range trapImports {
		rows = append(rows, row{kit, fmt.Sprintf("import _ %q", from), "import " + from})
	}
	for name := range trapNames {
		rows = append(rows, row{kit, actorImport + "var x = actor." + name, "actor." + name})
	}
	for _, r := range rows {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, r.file, "package x; "+r.source, 0)
		require.NoError(t, err, r.source)
		var got []string
		for _, f := range lint(fset, r.file, file) {
			assert.NotEmpty(t, f.reason)
			got = append(got, f.what)
		}
		if r.want == "" {
			assert.Empty(t, got, r.source)
		} else {
			assert.Contains(t, got, r.want, r.source)
		}
	}
}
