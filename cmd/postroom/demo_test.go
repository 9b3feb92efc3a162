package main

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/postroom/postroom/simulation"
)

func TestDemoTellsTheSeedsStories(t *testing.T) {
	began := time.Now()
	r := runPostroom(t, "", "demo")
	assert.Equal(t, exitDone, r.status, r.stdout)
	assert.Less(t, time.Since(began), 10*time.Second) // a second on a machine that is free
	for _, line := range []string{
		"sam holds: [Dragon Book] attempt 1\n", "+12s  kim holds: [Dragon Book] attempt 2\n",
		"sam's late ack accepted? false\n", "kim's ack accepted? true\n",
		"consumer: ctag-1\n     +0s  sub-1 $sys.dead.jobs rejected\n     +0s  nack accepted: true\n     +0s  dead letters: 1\n" +
			"     +0s  stats: BrokerStats(queues=1, subscriptions=1, bindings=0, binding_drops=0)\n",
		"+3s  attempt 3 sent\n", "+30s  attempt 2: resized\n", "+2s  order-3 shipped, attempt 1\n",
		"every fact as it should be.\n",
	} {
		assert.Contains(t, r.stdout, line)
	}
	assert.NotContains(t, r.stdout, "✗")
}

func TestDemoIsTheSameEveryTime(t *testing.T) {
	timeless := func() string {
		out := runPostroom(t, "", "demo").stdout
		return out[:strings.LastIndex(out, " of virtual time in ")]
	}
	assert.Equal(t, timeless(), timeless())
}

func TestDemoFindsItsFactsOff(t *testing.T) {
	before := stories
	defer func() { stories = before }()
	stories = []story{
		{"Wrong", "About nothing.", func(t *teller) { t.fact("two", "%s", "three") }},
		{"Hangs", "Nobody answers.", func(t *teller) { w := t.world; w.MustOpen(); w.Sleep(2 * simulation.DefaultVirtualTime) }},
	}
	r := runPostroom(t, "", "demo")
	assert.Equal(t, exitDied, r.status)
	assert.Contains(t, r.stdout, "three\n        ✗ should be: two\n")
	assert.Contains(t, r.stdout, "2 facts are off.\n")
}

func TestVersion(t *testing.T) {
	r := runPostroom(t, "", "version")
	assert.Equal(t, exitDone, r.status)
	assert.Regexp(t, `^postroom \S+ commit \S+.* go1\.\S+\n$`, r.stdout)

	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}}
	assert.Equal(t, "postroom v1.2.3 commit unknown go1.26.0", versionLine(info))
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}
	assert.Equal(t, "postroom v1.2.3 commit abc with changes go1.26.0", versionLine(info))
	assert.Equal(t, "postroom (devel) commit unknown ", fmt.Sprint(versionLine(&debug.BuildInfo{})))
}
