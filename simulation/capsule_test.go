package simulation

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// plantedRun is a failing run and its spec.
func plantedRun(t *testing.T) (Spec, Result) {
	s := Standard()
	s.Mutate = planted[0].mutate
	r := failing(t, s)
	return s, s.Run(r.Plan.Seed)
}

func written(t *testing.T, c *Capsule) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, c.Write(&b))
	return b.String()
}

func TestACapsuleIsReadAsItWasWritten(t *testing.T) {
	_, r := plantedRun(t)
	c := CapsuleOf(&r)
	text := written(t, c)
	again, err := ReadCapsule(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, c, again)
	require.Equal(t, text, written(t, again))
}

func TestACapsuleReplaysExactly(t *testing.T) {
	s, r := plantedRun(t)
	c, err := ReadCapsule(strings.NewReader(written(t, CapsuleOf(&r))))
	require.NoError(t, err)
	replay := s.ReplayCapsule(c)
	require.Equal(t, Exact, replay.Outcome, replay)
	require.Equal(t, r.TraceHash, replay.Result.TraceHash)
}

func TestACapsuleAfterAChangeHasTheSameSignature(t *testing.T) {
	s, r := plantedRun(t)
	c := CapsuleOf(&r)
	build := s.Build
	s.Build = func(w *World) { // a refactoring: one more queue, that nobody uses
		build(w)
		w.Queue("audit", postroom.QueueConfig{})
	}
	replay := s.ReplayCapsule(c)
	require.NotEqual(t, Exact, replay.Outcome)
	require.NotEqual(t, NoLongerApplies, replay.Outcome, replay)
	require.Contains(t, replay.String(), "same signature")
}

func TestACapsuleOfAFixedBugIsNoSilentPass(t *testing.T) {
	s, r := plantedRun(t)
	c := CapsuleOf(&r)
	s.Mutate = nil
	replay := s.ReplayCapsule(c)
	require.Equal(t, NoLongerApplies, replay.Outcome)
	require.Contains(t, replay.String(), "capsule no longer applies")
	require.Contains(t, replay.String(), "passes now")

	s.Name = "another"
	replay = s.ReplayCapsule(c)
	require.Equal(t, NoLongerApplies, replay.Outcome)
	require.Contains(t, replay.String(), ErrPlan.Error())
}

func TestACapsuleOfAnotherVersionIsRefused(t *testing.T) {
	_, r := plantedRun(t)
	text := written(t, CapsuleOf(&r))
	var version *CapsuleVersionError

	_, err := ReadCapsule(strings.NewReader(strings.Replace(text, `"capsule":1`, `"capsule":2,"new":true`, 1)))
	require.ErrorAs(t, err, &version)
	require.Equal(t, 2, version.Found)
	require.NotEmpty(t, version.Hint())

	_, err = ReadCapsule(strings.NewReader(strings.Replace(text, `"plan":1`, `"plan":9`, 1)))
	require.ErrorAs(t, err, &version)
	require.Equal(t, "plan", version.What)
}

func TestAScenariosOwnWorldIsKeptAsItsText(t *testing.T) {
	s, err := ParseScenario("world queue=mail\nput m1\n")
	require.NoError(t, err)
	r, err := s.Run()
	require.NoError(t, err)
	require.ErrorIs(t, CapsuleOf(&r).Write(&bytes.Buffer{}), ErrOwnWorld)
}

func TestADamagedCapsuleIsRefused(t *testing.T) {
	_, r := plantedRun(t)
	text := written(t, CapsuleOf(&r))
	head, _, _ := strings.Cut(text, "\n\n")
	lines := strings.Count(head, "\n") + 1
	var damaged *CapsuleError
	for _, c := range []struct {
		name, text string
		line       int
		says       string
	}{
		{"empty", "", 1, "empty"},
		{"other JSON", "{}\n\n", 1, "not the first line"},
		{"no JSON", "hello\n\n", 1, "not a line"},
		{"a line of something else", strings.Replace(text, "{\"item\"", "{\"itme\"", 1), 0, "not a line"},
		{"cut short", text[:len(text)/3], 0, ""},
		{"without the scenario", head, lines + 1, "cut short"},
		{"an edited scenario", strings.Replace(text, "put    m1 ", "put    m9 ", 1), lines + 2, "not that of the plan"},
		{"a broken scenario", strings.Replace(text, "\nput ", "\nputt ", 1), 0, "found \"putt\""},
	} {
		_, err := ReadCapsule(strings.NewReader(c.text))
		require.ErrorAs(t, err, &damaged, c.name)
		require.Contains(t, err.Error(), c.says, c.name)
		if c.line != 0 {
			require.Equal(t, c.line, damaged.Line, c.name)
		}
	}
}

func TestWhyTellsWhatTheViolationDependsOn(t *testing.T) {
	s := Standard()
	s.Mutate = planted[0].mutate
	r := failing(t, s)
	r = s.Run(r.Plan.Seed)
	x := Explain(&r)
	require.NotNil(t, x)
	t.Log("seed", r.Plan.Seed, "\n", x)
	require.NotEmpty(t, x.Messages)
	require.Less(t, len(x.Steps), x.Of, "all events would be no explanation")
	require.Equal(t, KindViolation, x.Steps[len(x.Steps)-1].Event.Kind)
	has := map[Kind]bool{}
	last := 0
	for _, step := range x.Steps {
		require.Greater(t, step.Event.Number, last)
		last = step.Event.Number
		require.NotEmpty(t, step.Role)
		has[step.Event.Kind] = true
		if m := step.Event.Message; m != "" && step.Role == "of "+m {
			require.Contains(t, x.Messages, m)
		}
	}
	for _, k := range []Kind{KindAccepted, KindGrant, KindExpire} { // a late ack needs them all
		require.True(t, has[k], "%v is missing in\n%v", k, x)
	}
	for _, step := range x.Steps { // closed under causes
		if c := step.Event.Cause; c > 0 {
			require.True(t, slicesHave(x.Steps, c), "event %d, the cause of %d, is missing", c, step.Event.Number)
		}
	}
}

func slicesHave(steps []WhyStep, number int) bool {
	for _, s := range steps {
		if s.Event.Number == number {
			return true
		}
	}
	return false
}

func TestWhyExplainsAnAlarm(t *testing.T) {
	s := Spec{Name: "stuck", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{})
		w.Produce("api", q, Burst(2), nil)
		w.Calm(time.Minute)
	}}
	r := s.Run(1)
	require.NotEmpty(t, r.Alarms)
	x := Explain(&r)
	require.Equal(t, []string{"m1"}, x.Messages)
	require.Contains(t, x.String(), "the queue has no workers")
	require.Nil(t, Explain(&Result{}))
}
