package simulation

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postroom/postroom/messages"
)

var update = flag.Bool("update", false, "write what happens into testdata/*.txt")

// TestScenarios runs testdata/*.txt: what happens must be what stands below the line.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s, err := ParseScenario(string(text))
			require.NoError(t, err)
			first, err := s.Run(Standard())
			require.NoError(t, err)
			second, err := s.Run(Standard())
			require.NoError(t, err)
			require.Equal(t, first.TraceHash, second.TraceHash, "two runs of one scenario")
			got := ShortTrace(&first)
			if *update {
				above, _, _ := cutLine(string(text))
				require.NoError(t, os.WriteFile(file, []byte(above+scenarioLine+"\n"+got), 0o644))
				return
			}
			require.Equal(t, s.Want, got, "run again with -update after a change that is meant")
		})
	}
}

// drawName includes names that would be taken for something else.
var drawName = rapid.OneOf(
	rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`),
	rapid.SampledFrom([]string{"worker", "hang", "a b", "m#1", "k=v", "+1s", `"`, "----", "é", "of", "#", "\n", "grant", "30s"}),
)

func drawDuration(t *rapid.T, label string) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 1, time.Microsecond * 7, 250 * time.Millisecond, 30 * time.Second, 5 * time.Minute, time.Hour, 25*time.Hour + time.Minute}).Draw(t, label)
}

func drawFaultOf(t *rapid.T) Fault {
	f := Fault{Kind: rapid.SampledFrom(FaultKinds()).Draw(t, "fault"), For: drawDuration(t, "for"), Count: rapid.IntRange(0, 3).Draw(t, "count")}
	maybe := func(label string) string {
		return rapid.OneOf(rapid.Just(""), drawName).Draw(t, label)
	}
	f.Worker, f.Queue, f.Point = maybe("worker"), maybe("queue"), maybe("point")
	if rapid.Bool().Draw(t, "timed") {
		f.Anchor.At = drawDuration(t, "at")
		return f
	}
	f.Anchor = Anchor{Event: rapid.SampledFrom(Kinds()).Draw(t, "event"), Message: maybe("message"), Worker: maybe("anchor worker"),
		Queue: maybe("anchor queue"), Verb: maybe("verb"), Nth: rapid.IntRange(0, 3).Draw(t, "nth")}
	return f
}

func drawScenario(t *rapid.T) *Scenario {
	s := &Scenario{Plan: Plan{Format: PlanFormat, Seed: rapid.Uint64().Draw(t, "seed")}}
	for range rapid.IntRange(0, 3).Draw(t, "settings") {
		s.Plan.Settings = append(s.Plan.Settings, Setting{
			Name: drawName.Draw(t, "setting"), Value: rapid.Int64().Draw(t, "value"), Least: rapid.Int64().Draw(t, "least"),
			Most: rapid.Int64().Draw(t, "most"), Text: rapid.OneOf(rapid.Just(""), drawName).Draw(t, "text"),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "faults") {
		s.Plan.Faults = append(s.Plan.Faults, drawFaultOf(t))
	}
	number := -1
	for range rapid.IntRange(0, 25).Draw(t, "decisions") {
		number += rapid.IntRange(1, 100).Draw(t, "gap")
		s.Plan.Decisions = append(s.Plan.Decisions, Decision{Number: number, Pick: rapid.IntRange(1, 9).Draw(t, "pick")})
	}
	if rapid.Bool().Draw(t, "want") {
		s.Want = "0s      put      m1\nok      drained  violations=0\n----\n# not a comment\n"
	}
	if rapid.Bool().Draw(t, "of a spec") {
		s.Plan.Spec = drawName.Draw(t, "spec")
		s.Plan.Strategy = Strategy(rapid.IntRange(0, int(strategies)-1).Draw(t, "strategy"))
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			s.Plan.Items = append(s.Plan.Items, Item{Message: drawName.Draw(t, "message"), Producer: drawName.Draw(t, "producer"),
				Queue: drawName.Draw(t, "queue"), Number: rapid.IntRange(0, 9).Draw(t, "number"), At: drawDuration(t, "at")})
		}
		return s
	}
	s.Plan.Spec, s.Calm = ScenarioSpec, drawDuration(t, "calm")
	for i := range rapid.IntRange(1, 2).Draw(t, "queues") {
		q := ScenarioQueue{Name: []string{"mail", "a.b"}[i], Workers: rapid.IntRange(0, 3).Draw(t, "workers"), Work: drawDuration(t, "work"),
			Heartbeat: rapid.Bool().Draw(t, "heartbeat"), Jitter: rapid.Bool().Draw(t, "jitter")}
		q.Config.AckTimeout, q.Config.MaxAttempts = drawDuration(t, "lease"), rapid.IntRange(0, 5).Draw(t, "max")
		q.Config.TTL, q.Config.DedupWindow = drawDuration(t, "ttl"), drawDuration(t, "dedup")
		q.Config.MaxMessages = rapid.SampledFrom([]int{0, 4, messages.Unlimited}).Draw(t, "messages")
		if rapid.Bool().Draw(t, "drops") {
			q.Config.Overflow = messages.DropOldest
		}
		q.Consumer.Concurrency = rapid.IntRange(0, 2).Draw(t, "concurrency")
		s.Queues = append(s.Queues, q)
	}
	for range rapid.IntRange(0, 3).Draw(t, "puts") {
		s.Puts = append(s.Puts, ScenarioPut{Message: drawName.Draw(t, "message"), ID: rapid.SampledFrom([]string{"", "x", "#"}).Draw(t, "id"),
			Queue: rapid.SampledFrom([]string{"", "mail"}).Draw(t, "queue"), At: drawDuration(t, "at"), Priority: rapid.IntRange(0, 9).Draw(t, "priority"),
			Delay: drawDuration(t, "delay"), Work: drawDuration(t, "work")})
	}
	for i := range s.Plan.Faults { // in a world of the text everybody must be known
		f := &s.Plan.Faults[i]
		if _, expected := s.unknown(f); expected != "" {
			f.Worker, f.Queue, f.Anchor.Worker, f.Anchor.Queue, f.Anchor.Message = "", "mail", "", "", ""
		}
	}
	return s
}

func TestAScenarioIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		for i := range s.Queues {
			if s.Queues[i].Config.Validate() != nil {
				t.Skip("not a queue")
			}
		}
		text := FormatScenario(s)
		again, err := ParseScenario(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		assert.Equal(t, s, again, text)
	})
}

func TestAScenarioWithAnErrorIsRefusedWithItsPlace(t *testing.T) {
	const world = "world  queue=mail\n"
	for _, c := range []struct {
		text         string
		line, column int
		says         string
	}{
		{"", 2, 1, "a world or spec line"},
		{"put m1\n", 1, 1, "world or spec as the first"},
		{"world lease=30s\n", 1, 16, "queue="},
		{"world queue=mail lease=soon\n", 1, 24, "a duration such as"},
		{"world queue=mail lease=-1s\n", 1, 24, "a duration such as"},
		{"world queue=mail lease=1s lease=2s\n", 1, 27, "lease once"},
		{"world queue=mail colour=red\n", 1, 18, "one of queue, lease"},
		{"world queue=mail heartbeat=yes\n", 1, 18, "without a value"},
		{"world queue=mail max=many\n", 1, 22, "a whole number"},
		{"world queue=mail overflow=burst\n", 1, 27, "refuse or drop-oldest"},
		{world + "world queue=mail\n", 2, 1, "each queue once"},
		{world + "spec mailer\n", 2, 1, "not both"},
		{"spec mailer\nworld queue=mail\n", 2, 1, "no world"},
		{"spec mailer\ncalm 5m\n", 2, 1, "no calm"},
		{"spec mailer seed=x\n", 1, 18, "a whole number"},
		{"spec mailer\nput m1\n", 2, 7, "producer= and queue="},
		{"spec mailer\nset lease 1\n", 2, 12, "of least..most"},
		{"spec mailer\nset lease 1 of 0-2\n", 2, 16, "least..most"},
		{world + "shout m1\n", 2, 1, scenarioDirectives},
		{world + "put\n", 2, 4, "the name of a message"},
		{world + "put m1 queue=letters\n", 2, 1, "a queue of a world line"},
		{world + "put m1 at=1s extra\n", 2, 14, "one of at"},
		{world + "put \"m1\n", 2, 5, "a closing quote"},
		{world + "at\n", 2, 3, "an instant such as +1.5s or an event"},
		{world + "at lunch m1 worker crash\n", 2, 4, "or an event: put, accepted"},
		{world + "at +x worker crash\n", 2, 4, "an instant"},
		{world + "at grant m1#0 worker crash\n", 2, 12, "a number from 1"},
		{world + "at grant m1#1\n", 2, 14, "a fault: crash"},
		{world + "at grant m1#1 worker sneeze\n", 2, 22, "a fault: crash"},
		{world + "at grant m1#1 queue crash\n", 2, 15, "worker in front of crash"},
		{world + "at grant m1#1 worker hang -1s\n", 2, 27, "not negative"},
		{world + "at grant m1#1 worker hang 1s 2s\n", 2, 30, "one of worker"},
		{world + "at grant#1 m1#2 crash\n", 2, 12, "one #number"},
		{world + "at grant m9#1 worker crash\n", 2, 10, "a message that is put"},
		{world + "put m1\nat grant m1 queue=letters worker crash\n", 3, 19, "a queue: mail"},
		{"world queue=mail workers=2\nput m1\nat +1s worker kill 3s worker=w-3\n", 3, 30, "a worker: w-1, w-2"},
		{world + "calm soon\n", 2, 6, "a duration"},
		{world + "pick 1=2 1=3\n", 2, 10, "a decision after 1"},
		{world + "pick 1=0\n", 2, 6, "with a pick from 1"},
		{world + "pick\n", 2, 5, "picks such as"},
	} {
		_, err := ParseScenario(c.text)
		var at *ScenarioError
		if assert.ErrorAs(t, err, &at, c.text) {
			assert.Equal(t, [2]int{c.line, c.column}, [2]int{at.Line, at.Column}, "%q: %v", c.text, err)
			assert.Contains(t, at.Expected, c.says, c.text)
		}
	}
}

func TestAScenarioOfAnUnknownSpecIsRefused(t *testing.T) {
	s, err := ParseScenario("spec mailer\n")
	require.NoError(t, err)
	_, err = s.Run(Standard())
	require.ErrorContains(t, err, `no spec is named "mailer"`)
}

func TestTheScenarioOfARunReplaysIt(t *testing.T) {
	for seed := range uint64(20) {
		spec := Standard()
		r := spec.Run(seed)
		s, err := ParseScenario(FormatScenario(ScenarioOf(&r)))
		require.NoError(t, err)
		again, err := s.Run(spec)
		require.NoError(t, err)
		require.Equal(t, r.TraceHash, again.TraceHash, "seed %d", seed)
		require.Equal(t, s.Want, ShortTrace(&again), "seed %d", seed)
	}
}

func FuzzParseScenario(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Add("spec a\nset b 1 of 0..2 is \"x y\"\npick 1=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScenario(text)
		if err != nil {
			return
		}
		again, err := ParseScenario(FormatScenario(s))
		require.NoError(t, err, FormatScenario(s))
		require.Equal(t, s, again)
	})
}
