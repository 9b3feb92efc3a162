package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// odd is lines that a file of lines can hold and that are easily spoilt.
var odd = []string{
	"", " ", "plain", "\r", `"quoted\" {}`, "<&>", "ünïcödé  ", "\xff\xfe not UTF-8", "tab\tnul\x00bell\a",
	"\uFFFD honest", `{"id":"x"}`, strings.Repeat("long ", 1000), "\xed\xa0\x80",
}

// fakeRunner decides by itself how attempts end.
type fakeRunner func(ctx context.Context, stop <-chan struct{}, t task) outcome

func (f fakeRunner) run(ctx context.Context, stop <-chan struct{}, t task) outcome {
	return f(ctx, stop, t)
}

func (f fakeRunner) make(*runConfig, *console) runner { return f }

var errHopeless = errors.New("hopeless")

func hopeless(context.Context, <-chan struct{}, task) outcome {
	return outcome{kind: permanent, err: errHopeless, stderr: []byte("tail")}
}

func TestDeadLettersGoThroughAFileUnchanged(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, strings.Join(odd, "\n")+"\n", "run", "--workers", "1", "--dead", dead, "--", "sh", "-c", `cat >&2; exit 65`)
	assert.Equal(t, exitDied, r.status)
	info, err := os.Stat(dead)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	assert.True(t, utf8.ValidString(readFile(t, dead)))

	all, bodies := letters(t, dead)
	assert.Equal(t, odd, bodies)
	for i, l := range all {
		assert.Equal(t, utf8.ValidString(odd[i]), l.Body != nil)
		assert.Equal(t, !utf8.ValidString(odd[i]), l.BodyBase64 != nil)
	}
	assert.Equal(t, "\uFFFD not UTF-8\n", all[7].Stderr)

	// The names of the fields are a promise to other programs.
	var fields map[string]any
	first, _, _ := strings.Cut(readFile(t, dead), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &fields))
	assert.Equal(t, map[string]any{
		"id": all[0].ID, "body": "", "reason": "rejected", "attempts": 1.0,
		"error": "exit status 65 (EX_DATAERR)", "stderr": "\n",
	}, fields)

	r = runPostroom(t, "", "run", "--workers", "1", "--json", "--from-dead", dead, "--", "sh", "-c", `printf "%s\n" "$POSTROOM_ID"; cat`)
	assert.Equal(t, exitDone, r.status)
	f, out := r.figures(t)
	assert.Equal(t, tally{Put: uint64(len(odd)), Acked: uint64(len(odd))}, f)
	var want strings.Builder
	for i, l := range all {
		fmt.Fprintf(&want, "%s\n%s\n", l.ID, odd[i])
	}
	assert.Equal(t, want.String(), out, "ids and lines as they were")
}

func TestDeadFileOnlyKeepsTheEndOfStderr(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, "x\n", "run", "--dead", dead, "--", "sh", "-c", `i=0; while [ $i -lt 2000 ]; do echo "line $i é"; i=$((i+1)); done >&2; exit 65`)
	assert.Equal(t, exitDied, r.status)
	all, _ := letters(t, dead)
	require.Len(t, all, 1)
	assert.LessOrEqual(t, len(all[0].Stderr), stderrTail)
	assert.Greater(t, len(all[0].Stderr), stderrTail-utf8.UTFMax)
	assert.True(t, strings.HasSuffix(all[0].Stderr, "line 1998 é\nline 1999 é\n"))
	assert.NotContains(t, all[0].Stderr, "\uFFFD")
	assert.Contains(t, r.stderr, "line 0 é\n", "all of it is passed through")
}

// The broker keeps 10,000 dead letters and a subscriber 1,024 events: the file has
// every one all the same.
func TestEveryDeathIsInTheFile(t *testing.T) {
	const deaths = 50_000
	dead := inTemp(t, "dead.jsonl")
	a := &app{stdin: numberedLines(deaths), runner: fakeRunner(hopeless).make}
	r := a.do(t, "run", "--workers", "4", "--json", "--dead", dead, "--", "true")
	assert.Equal(t, exitDied, r.status)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: deaths, Dead: deaths}, f)
	assertAllOnce(t, dead, deaths)
}

func TestEveryDeathOfRealCommandsIsInTheFile(t *testing.T) {
	const deaths = 3000
	dead := inTemp(t, "dead.jsonl")
	a := &app{stdin: numberedLines(deaths)}
	r := a.do(t, "run", "--workers", "4", "--json", "--max-attempts", "1", "--dead", dead, "--", "false")
	assert.Equal(t, exitDied, r.status)
	f, _ := r.figures(t)
	assert.Equal(t, tally{Put: deaths, Dead: deaths}, f)
	assertAllOnce(t, dead, deaths)
}

func assertAllOnce(t *testing.T, dead string, n int) {
	t.Helper()
	all, bodies := letters(t, dead)
	require.Len(t, all, n)
	seen := map[string]bool{}
	for i, l := range all {
		_, number, _ := strings.Cut(l.ID, "-")
		require.Equal(t, "line "+number, bodies[i])
		seen[bodies[i]] = true
	}
	require.Len(t, seen, n)
}

func TestDeadFileThatCannotBeWrittenStopsTheRun(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	rest := inTemp(t, "rest.txt")
	r := runPostroom(t, "a\nb\nc\n", "run", "--json", "--workers", "1", "--dead", "/dev/full", "--rest", rest, "--", "sh", "-c", "exit 65")
	assert.Equal(t, exitInterrupted, r.status)
	assert.Contains(t, r.stderr, "postroom: write /dev/full: no space left", "the name once")
	f, _ := r.figures(t)
	assert.Zero(t, f.Dead, "a death that is not on record does not count")
	assert.True(t, strings.HasPrefix(readFile(t, rest), "a\n"), "and its line is unfinished")
}

func TestHalfALetterIsTakenBack(t *testing.T) {
	name := inTemp(t, "dead.jsonl")
	file, err := os.Create(name)
	require.NoError(t, err)
	d := newDeadFile(file, name)
	body := "x"
	require.NoError(t, d.write(&letter{ID: "1", Body: &body}))
	before := readFile(t, name)
	// The write of a full disk: some of it is there, and an error.
	_, err = file.WriteString(`{"id":"2","bo`)
	require.NoError(t, err)
	require.NoError(t, d.takeBack())
	require.NoError(t, d.write(&letter{ID: "3", Body: &body}))
	assert.Equal(t, before+strings.Replace(before, `"1"`, `"3"`, 1), readFile(t, name))
	d.Close()
	assert.Error(t, d.write(&letter{ID: "4", Body: &body}))
}

func TestRecordsThatAreNoLettersDieUnworked(t *testing.T) {
	records := []string{
		`not JSON`, `{"id":"a"}`, `{"id":"a","body":"x","body_base64":"eA=="}`, `{"body_base64":"?"}`, `null`, `[]`,
		`{"id":"` + strings.Repeat("i", idMax+1) + `","body":"x"}`, `{"id":"a\u0000b","body":"x"}`, "{\"body\":\"\xff\"}",
	}
	dead := inTemp(t, "dead.jsonl")
	input := strings.Join(records, "\n") + "\n\n" + `{"body":"made by hand","note":"no id"}` + "\n"
	r := runPostroom(t, input, "run", "--json", "--from-dead", "-", "--dead", dead, "--", "cat")
	assert.Equal(t, exitDied, r.status)
	f, out := r.figures(t)
	n := uint64(len(records))
	assert.Equal(t, tally{Put: n + 1, Acked: 1, Dead: n}, f)
	assert.Equal(t, "made by hand\n", out)
	all, bodies := letters(t, dead)
	assert.Equal(t, records, bodies)
	for i, l := range all {
		assert.Equal(t, reasonMalformed, l.Reason)
		assert.Contains(t, l.Error, fmt.Sprintf("line %d: not a dead letter: ", i+1))
	}

	again := inTemp(t, "again.jsonl")
	r = runPostroom(t, "", "run", "--json", "--from-dead", dead, "--dead", again, "--", "cat")
	_, out = r.figures(t)
	assert.Empty(t, out, "a record was run as if it were a line")
	assert.Equal(t, readFile(t, dead), readFile(t, again))
}

func TestLetterOverMaxLineKeepsItsWholeBody(t *testing.T) {
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, `{"id":"a","body":"12345678901"}`, "run", "--max-line", "10", "--from-dead", "-", "--dead", dead, "--", "cat")
	assert.Equal(t, exitDied, r.status)
	r = runPostroom(t, "", "run", "--from-dead", dead, "--", "cat")
	assert.Equal(t, "12345678901\n", r.stdout)
}

func TestRecordOverEveryLimit(t *testing.T) {
	record := `{"id":"a","body":"` + strings.Repeat("x", 200<<10) + `"}`
	dead := inTemp(t, "dead.jsonl")
	r := runPostroom(t, record, "run", "--max-line", "10", "--from-dead", "-", "--dead", dead, "--", "cat")
	assert.Equal(t, exitDied, r.status)
	all, bodies := letters(t, dead)
	require.Len(t, all, 1)
	assert.True(t, all[0].Truncated)
	assert.Equal(t, reasonTooLong, all[0].Reason)
	assert.Equal(t, record[:10], bodies[0])
}

// Two letters of one id are two lines of work, never at the same time.
func TestLettersOfOneIDAreWorkedOneAfterTheOther(t *testing.T) {
	var mu sync.Mutex
	var running, most int
	var bodies []string
	a := &app{
		stdin: strings.NewReader(strings.Repeat(`{"id":"same","body":"a"}`+"\n"+`{"id":"same","body":"b"}`+"\n", 20)),
		runner: fakeRunner(func(_ context.Context, _ <-chan struct{}, t task) outcome {
			mu.Lock()
			running++
			most = max(most, running)
			bodies = append(bodies, string(t.body))
			mu.Unlock()
			defer func() { mu.Lock(); running--; mu.Unlock() }()
			if t.attempt == 1 {
				return outcome{kind: failed, err: errHopeless}
			}
			return outcome{kind: done}
		}).make,
	}
	r := a.do(t, "run", "--workers", "4", "--backoff", "0", "--json", "--from-dead", "-", "--", "true")
	assert.Equal(t, exitDone, r.status, r.stderr)
	assert.Equal(t, 1, most)
	assert.Equal(t, strings.Repeat("aabb", 20), strings.Join(bodies, ""))
}

// FuzzLetter holds that any line comes back from its letter as it was.
func FuzzLetter(f *testing.F) {
	for _, s := range odd {
		f.Add([]byte(s), s)
	}
	f.Fuzz(func(t *testing.T, body []byte, text string) {
		l := &letter{ID: "id-1", Reason: "rejected", Error: cut(text), Stderr: tailText([]byte(text))}
		l.setBody(body)
		encoded := l.encode()
		if strings.Count(string(encoded), "\n") != 1 {
			t.Fatalf("letter of %q is not one line: %q", body, encoded)
		}
		got, gotBody, err := parseLetter(encoded[:len(encoded)-1])
		if err != nil {
			t.Fatalf("letter of %q: %v", body, err)
		}
		if string(gotBody) != string(body) || got.Error != l.Error || got.Stderr != l.Stderr {
			t.Fatalf("letter of %q came back as %q, %+v", body, gotBody, got)
		}
	})
}

// FuzzFromDead holds that no input, however odd, is lost or stops the reader.
func FuzzFromDead(f *testing.F) {
	f.Add([]byte(`{"id":"a","body":"x"}` + "\n\nnot JSON\n"))
	f.Fuzz(func(t *testing.T, input []byte) {
		s := newDeadLines(strings.NewReader(string(input)), "run", 16)
		lines := 0
		for {
			l, err := s.next()
			if err != nil {
				break
			}
			lines++
			if l.id == "" || len(l.id) > idMax || l.number < lines || (l.refusal == nil && len(l.body) > 16) {
				t.Fatalf("line %+v of %q", l, input)
			}
		}
		want := 0
		for _, text := range strings.Split(string(input), "\n") {
			if strings.TrimSpace(text) != "" {
				want++
			}
		}
		if lines != want {
			t.Fatalf("%d lines of %q, want %d", lines, input, want)
		}
	})
}
