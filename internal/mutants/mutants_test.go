package mutants

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mutant whose place was rewritten is rewritten too, or it is no mutant any more.
func TestEveryMutantFitsTheCode(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	name, err := Overlay(root, dir)
	require.NoError(t, err)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(text, &overlay))
	for file, changed := range overlay.Replace {
		_, err := parser.ParseFile(token.NewFileSet(), changed, nil, parser.SkipObjectResolution)
		assert.NoError(t, err, file)
		_, err = os.Stat(file)
		assert.Equal(t, filepath.Base(file) == plantedFile, os.IsNotExist(err), "%s is added, all others are replaced", file)
	}
}

func TestTheZooHasAMutantForEveryInvariant(t *testing.T) {
	all := All()
	assert.GreaterOrEqual(t, len(all), 25)
	have := map[string]bool{}
	for _, m := range all {
		have[m.Breaks] = true
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, m.Name)
		assert.True(t, strings.HasSuffix(m.About, "."), m.Name)
	}
	for i := 1; i <= 27; i++ {
		if i != 21 { // ordering keys are not there yet
			assert.True(t, have[fmt.Sprintf("I%d", i)], "I%d has no mutant", i)
		}
	}
}

// Whatever wakes in a mutated program is named in it, and only there: a name that is
// misspelt would be a mutant that nothing can kill.
func TestEveryMutantIsWokenByItsName(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		names[m.Name] = true
	}
	woken := map[string]bool{}
	for _, m := range All() {
		for _, h := range m.hunks {
			for _, match := range regexp.MustCompile(`planted\("([^"]*)"\)`).FindAllStringSubmatch(h.new, -1) {
				woken[match[1]] = true
			}
		}
	}
	assert.Equal(t, names, woken)
}

func TestTheCodeItselfHasNoMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	err = filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "mutants" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		assert.NotContains(t, string(text), "planted(", name)
		return err
	})
	require.NoError(t, err)
}

func TestABrokenZooIsRefusedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"x\n":                                  "line 1: want ##",
		"## a\n":                               "line 1: want a name and an invariant",
		"## a I1\nA.\n--- f\n-x\n## a I1\n":    "line 5: the name is there already",
		"## a I1\nA.\n--- f\n*x\n":             "line 4: want a line that begins with",
		"## a I1\nA.\n--- f\n-x\n\n+y\n":       "line 6: a change goes on behind an empty line",
		"## a I1\n--- f\n-x\n":                 "a says nothing",
		"## a I1\nA.\n":                        "changes nothing",
		"# all is well\n## a I1\nA.\n@@\n-x\n": "changes nothing",
	} {
		_, err := parse(text)
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), want)
	}
}

func TestAPlaceThatIsNotThereOnceIsNamed(t *testing.T) {
	all, err := parse("## a I1\nA.\n--- d/f.go\n-x\n+y\n")
	require.NoError(t, err)
	for text, want := range map[string]string{"z\n": "0 times in d/f.go", "x\nx\n": "2 times in d/f.go"} {
		_, err := apply(all, func(string) (string, error) { return text, nil })
		require.Error(t, err)
		assert.Contains(t, err.Error(), "a no longer fits: the place is "+want)
	}
	changed, err := apply(all, func(string) (string, error) { return "x\n", nil })
	require.NoError(t, err)
	assert.Equal(t, "y\n", changed["d/f.go"])
	assert.Contains(t, changed["d/zz_planted.go"], "package d\n")
	_, err = apply(all, func(string) (string, error) { return "", os.ErrNotExist })
	assert.ErrorIs(t, err, os.ErrNotExist)
}
