package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// matrixSeeds is how many seeds each cell of the matrix runs.
const matrixSeeds = 150

// TestTheSameRunEverywhere compares the hash over many seeds: with one processor and
// with more, in one process and in several, with one job and with four, built with
// the race detector and without.
func TestTheSameRunEverywhere(t *testing.T) {
	if os.Getenv("POSTROOM_MATRIX") != "" {
		c := Campaign{First: 1, Last: matrixSeeds}
		_, _ = fmt.Sscan(os.Getenv("POSTROOM_MATRIX"), &c.Jobs)
		sum := Standard().Campaign(c)
		fmt.Printf("hash=%x failed=%t differences=%d\n", sum.TraceHash, sum.Failed(), len(sum.Differences))
		return
	}
	line := regexp.MustCompile(`hash=[0-9a-f]+ failed=false differences=0`)
	cell := func(binary, processors, jobs string) string {
		again := exec.Command(binary, "-test.run=^TestTheSameRunEverywhere$", "-test.count=1")
		again.Env = append(os.Environ(), "POSTROOM_MATRIX="+jobs, "GOMAXPROCS="+processors)
		out, err := again.CombinedOutput()
		require.NoError(t, err, "%s", out)
		hash := line.FindString(string(out))
		require.NotEmpty(t, hash, "%s", out)
		return hash
	}
	want := cell(os.Args[0], "1", "1")
	for _, at := range [][2]string{{"1", "1"}, {"2", "1"}, {"2", "2"}, {"4", "4"}} {
		assert.Equal(t, want, cell(os.Args[0], at[0], at[1]), "GOMAXPROCS=%s, %s jobs", at[0], at[1])
	}
	if testing.Short() {
		t.Skip("the other build takes a while")
	}
	other := filepath.Join(t.TempDir(), "other.test")
	flags := []string{"test", "-c", "-o", other}
	if !raceOn {
		flags = append(flags, "-race")
	}
	if out, err := exec.Command("go", append(flags, ".")...).CombinedOutput(); err != nil {
		t.Skipf("cannot build the other flavour: %v\n%s", err, out)
	}
	for _, processors := range []string{"1", "2"} {
		assert.Equal(t, want, cell(other, processors, processors), "race detector %t, GOMAXPROCS=%s", !raceOn, processors)
	}
}

// One plan is one run, however it came about: drawn from a seed, or written out.
func TestAPlanIsItsRun(t *testing.T) {
	s := Standard()
	for seed := range uint64(100) {
		r := s.Run(seed)
		again := s.Replay(r.Plan)
		require.Equal(t, r.TraceHash, again.TraceHash, "seed %d: %v", seed, compareRuns(&r, &again))
		require.Equal(t, r.Plan, again.Plan, "a replay changes nothing in its plan")
	}
}
