package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLedgerFollowsTheModel runs random programs on the ledger and on the naive
// model side by side. After every command all that can be seen must be equal:
// verdicts with their causes, effects in their order, statistics, the order of the
// ready messages, the dead letters, and when the queue wants to be woken. The
// ledger's invariants must hold, and folding its records must give it again.
//
// A failure prints the shrunk program as lines that a trace in testdata may hold.
func TestLedgerFollowsTheModel(t *testing.T) {
	// Each command has choices of its own, so that shrinking can leave commands out.
	command := rapid.SliceOfN(rapid.Byte(), 0, 12)
	commands := rapid.OneOf(rapid.SliceOfN(command, 1, 40), rapid.SliceOfN(command, 60, 120))
	property := func(t *rapid.T) {
		p := newPair()
		run := func(choices []byte, line func(g *generator) string) {
			if diff := p.run(line(&generator{choose: bytewise(&choices)})); diff != "" {
				t.Fatal(diff)
			}
		}
		run(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "config"), (*generator).config)
		for _, consumer := range []string{"sam", "kim"} {
			run(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, consumer), func(g *generator) string { return g.opening(consumer) })
		}
		for _, choices := range commands.Draw(t, "commands") {
			run(choices, func(g *generator) string { return g.line(p) })
		}
	}
	batches := 4 // of -rapid.checks programs each
	if raceEnabled {
		batches = 1
	}
	for i := range batches {
		t.Run(fmt.Sprintf("batch=%d", i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, property)
		})
	}
}

// bytewise makes choices of bytes; when there are no more, the simplest.
func bytewise(input *[]byte) func(n int) int {
	return func(n int) int {
		if len(*input) == 0 {
			return 0
		}
		c := int((*input)[0]) % n
		*input = (*input)[1:]
		return c
	}
}

// TestCrowdedLedgerFollowsTheModel does the same with thousands of messages, so
// that rings wrap, tables are resized and pages come and go. The invariants and
// the fold are looked at now and then only; a verdict is compared at every step.
func TestCrowdedLedgerFollowsTheModel(t *testing.T) {
	seeds, steps := uint64(6), 600
	if raceEnabled { // one goroutine: the detector only makes it slow
		seeds, steps = 2, 200
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			n := uint64(0)
			g := &generator{crowd: 1500, choose: func(most int) int { n++; return int(keyed(seed+1, n) % uint64(most)) }}
			p := newPair()
			line := g.config()
			for step := range steps {
				p.ledger.quiet, p.model.quiet = step%100 != 99, true
				p.program = append(p.program, line)
				got, want := p.ledger.run(line)+p.ledger.next(), p.model.run(line)+p.model.next()
				if step%20 == 0 {
					for _, look := range []string{"stats", "peek n=5000", "letters n=5000"} {
						got += p.ledger.run(look)
						want += p.model.run(look)
					}
				}
				if got != want || strings.Contains(got, "BROKEN") {
					t.Fatalf("seed %d, step %d, after the program\n%s\n%s", seed, step,
						indent(strings.Join(p.program, "\n")), firstDifference(got, want))
				}
				line = g.line(p)
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n    got  %s\n    want %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(g), len(w))
}

// pair is the ledger and its model, told the same.
type pair struct {
	ledger, model *world
	program       []string
}

func newPair() *pair { return &pair{ledger: newWorld(newReal), model: newWorld(newModel)} }

// run carries one line out on both and says how they differ, if they do.
func (p *pair) run(line string) string {
	p.program = append(p.program, line)
	got, want := p.ledger.run(line), p.model.run(line)
	for _, look := range []string{"stats", "peek", "letters"} {
		got += p.ledger.run(look)
		want += p.model.run(look)
	}
	got += p.ledger.next()
	want += p.model.next()
	if got == want && !strings.Contains(got, "BROKEN") {
		return ""
	}
	return fmt.Sprintf("the program\n%s\ngave\n%s\nand the model says\n%s",
		indent(strings.Join(p.program, "\n")), indent(got), indent(want))
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

// generator makes programs out of choices: random ones for the property, the bytes
// of the input for the fuzz target.
type generator struct {
	choose func(n int) int // 0 ≤ answer < n; 0 is the simplest
	// crowd makes a queue of up to a few thousand messages, for what only shows
	// when containers grow and shrink; 0 keeps to six ids, which meet more often.
	crowd int
}

func (g *generator) oneIn(n int) bool { return g.choose(n) == n-1 }

func (g *generator) pick(words ...string) string { return words[g.choose(len(words))] }

func (g *generator) config() string {
	line := "new ack-timeout=10s max-attempts=" + g.pick("3", "1", "2", "-1")
	maybe := func(n int, words ...string) {
		if g.oneIn(n) {
			line += " " + g.pick(words...)
		}
	}
	maybe(2, "draw=keyed", "draw=least", "draw=most")
	maybe(2, "backoff=4s cap=10s", "backoff=1h cap=1000000h")
	maybe(3, "retry-expired")
	maybe(2, "ttl=25s", "ttl=10s")
	maybe(2, "dedup-window=15s", "dedup-window=1h dedup-limit=2")
	if g.crowd == 0 {
		maybe(2, "max-messages=4", "max-messages=1", "max-bytes=20")
	} else {
		maybe(2, "max-messages=500", "max-bytes=2000")
	}
	maybe(2, "drop-oldest")
	maybe(3, "single-active")
	maybe(3, "no-timeout")
	maybe(3, "max-lease=12s", "max-lease=5s")
	maybe(3, "letters-max=2", "letter-bytes-max=12")
	maybe(3, "letters-alarm=2", "letters-alarm=1")
	maybe(3, "max-age=20s", "max-age=7s")
	maybe(3, "retry-floor=1 retry-ratio=0.5 retry-window=10s", "retry-floor=2 retry-window=30s")
	return line
}

// line makes the next command, looking at what the model knows so that most of
// them mean something.
func (g *generator) line(p *pair) string {
	m := p.model.subject.(modelled)
	tag := func() string {
		tags := fmt.Sprint(g.tag(m))
		for range g.crowd / 100 {
			tags += fmt.Sprintf(" %d", g.tag(m))
		}
		return tags
	}
	holder := func() string { return g.pick("sam", "kim", "joe", "eve") }
	seldom := 1
	if g.crowd > 0 && g.choose(20) > 0 {
		seldom = 0 // a crowd does not gather in a queue that is emptied all the time
	}
	commands := []struct {
		weight int
		make   func() string
	}{
		{1, func() string { return "tick" }}, // what shrinking leaves in place of a command
		{12, func() string { return g.put() }},
		{8, func() string { return "ack " + tag() }},
		{5, func() string { return "nack " + tag() + g.pick("", " error=why") }},
		{4, func() string { return "nack-in " + tag() + " for=" + g.pick("0s", "3s", "10s") }},
		{3, func() string { return "reject " + tag() + g.pick(" error=bad", "") }},
		{4, func() string { return "release " + tag() }},
		{4, func() string { return "touch " + tag() }},
		{3, func() string { return "touch-for " + tag() + " for=" + g.pick("2s", "10s", "1m") }},
		{5, func() string { return g.attach(g.pick("sam", "kim", "joe", "eve")) }},
		{2, func() string { return "detach " + holder() }},
		{2, func() string { return "holder-ended " + holder() }},
		{2, func() string { return "set-prefetch " + holder() + " to=" + g.pick("0", "1", "3") }},
		{4, func() string { return "started " + tag() }},
		{6, func() string { return g.returned(m) }},
		{3, func() string { return "crashed " + tag() + " error=boom" }},
		{4, func() string {
			return "want " + g.pick("g1", "g2", "sam") + g.pick("", "", " no-timeout", " ack-timeout=3s")
		}},
		{2, func() string { return "unwant " + g.pick("g1", "g2", "sam") }},
		{1, func() string {
			if m.Closed() {
				return "tick" // a closed queue may have let go of what it knew
			}
			return "lease-end " + tag()
		}},
		{1, func() string { return "ack-foreign " + tag() }},
		{seldom, func() string { return "pause" }},
		{2, func() string { return "resume" }},
		{seldom, func() string { return "drain" }},
		{seldom, func() string { return "purge" }},
		{2, func() string { return "redrive " + g.letter(m) }},
		{1, func() string { return "discard " + g.id() + " " + g.id() }},
		{1, func() string { return "remove-letter " + g.letter(m) }},
		{14, func() string { return g.time(p) }},
	}
	if g.oneIn(60) {
		if g.crowd > 0 {
			return "trim"
		}
		return g.pick("trim", "trim", "quarantine", "close")
	}
	if (m.Paused() || m.Draining()) && g.oneIn(6) {
		return "resume"
	}
	total := 0
	for _, c := range commands {
		total += c.weight
	}
	n := g.choose(total)
	for _, c := range commands {
		if n -= c.weight; n < 0 {
			line := c.make()
			word, _, _ := strings.Cut(line, " ")
			if g.oneIn(5) && !slices.Contains([]string{"sleep", "jump", "jump-back"}, word) {
				line += " hold" // the turn goes on, so nothing is handed over yet
			}
			return line
		}
	}
	panic("weights")
}

func (g *generator) attach(consumer string) string {
	return "attach " + consumer + " prefetch=" + g.pick("1", "2", "3", "0", fmt.Sprint(3+g.crowd/2)) +
		g.pick("", " handler") + g.pick("", "", "", " no-timeout", " ack-timeout=3s")
}

// opening attaches two consumers, mostly, so that a program need not come to it.
func (g *generator) opening(consumer string) string {
	if g.choose(4) == 0 {
		return "tick"
	}
	return g.attach(consumer)
}

func (g *generator) id() string { return fmt.Sprintf("m%d", g.choose(max(6, g.crowd))) }

func (g *generator) put() string {
	line := "put " + g.id()
	for range g.crowd / 20 {
		line += " " + g.id()
	}
	maybe := func(n int, words ...string) {
		if g.oneIn(n) {
			line += " " + g.pick(words...)
		}
	}
	maybe(6, g.id())
	maybe(4, "prio=1", "prio=5")
	maybe(4, "delay=3s", "delay=10s", "delay=1h")
	maybe(6, "expires=+12s", "expires=+30s", "expires=+1m")
	maybe(5, "made")
	maybe(6, "body=other", "bytes=15")
	maybe(4, "owner=p1", "owner=p2")
	maybe(8, "topic=$sys.dead.jobs", "topic=a.b")
	maybe(10, "redriven deaths=2 deliveries=3", "redriven deaths=11 deliveries=11")
	return line
}

// tag is mostly that of a running lease, now and then an old one or one that was
// never given out.
func (g *generator) tag(m modelled) uint64 {
	running := m.Running()
	if len(running) > 0 && !g.oneIn(8) {
		return running[g.choose(len(running))]
	}
	last := m.LastTag()
	return last + 1 - uint64(g.choose(int(min(last, 6))+2))
}

// returned names a handler that is out and its consumer, else any.
func (g *generator) returned(m modelled) string {
	for credits := m.Credits(); len(credits) > 0; {
		tag := credits[0].Consumer
		n := 1
		for n < len(credits) && credits[n].Consumer == tag {
			n++
		}
		if credits[0].Handler && !g.oneIn(4) {
			return fmt.Sprintf("returned %s %d", tag, credits[g.choose(n)].Tag)
		}
		credits = credits[n:]
	}
	return fmt.Sprintf("returned sam %d", g.tag(m))
}

func (g *generator) letter(m modelled) string {
	if letters := m.Letters(); len(letters) > 0 && !g.oneIn(6) {
		return fmt.Sprint(letters[g.choose(len(letters))])
	}
	return fmt.Sprint(1 + g.choose(5))
}

// time passes: often to the very instant of a deadline, a nanosecond around it, or
// past several at once.
func (g *generator) time(p *pair) string {
	how := g.pick("sleep ", "sleep ", "jump ")
	if at, ok := p.model.subject.NextDeadline(); ok && g.choose(3) > 0 {
		d := at.Sub(p.model.now) + time.Duration(g.choose(3)-1)
		if d > 0 && d < 100*time.Hour && (g.crowd == 0 || d < 5*time.Second) {
			return how + d.String()
		}
	}
	if g.oneIn(12) {
		return "jump-back " + g.pick("1s", "20s")
	}
	if g.crowd > 0 {
		return how + g.pick("1ms", "100ms", "1s", "5s")
	}
	return how + g.pick("1s", "5s", "10s", "25s", "2h")
}

// TestGeneratorReachesEverything guards against an oracle that never looks: over a
// few hundred programs each of these must come up at least once. It asks the model
// alone, so it says nothing about the ledger.
func TestGeneratorReachesEverything(t *testing.T) {
	wanted := []string{
		"never issued", "over: acked", "over: nacked", "over: expired", "over: returned",
		"is a duplicate", "id reused", "expired before it was put", "is full", "messages\n", "bytes\n", "draining",
		"queue closed", "queue quarantined", "no dead letter", "kept, a duplicate", "attached already",
		" loses ", "get g1 gets", "until never", "settled for",
		"rejected at", "max_attempts at", "expired at", "overflow at", "died unannounced", "trimmed:", "deaths 12",
		"alarm: oldest age", "alarm: dead letters", "drained", "discarded", "purged",
		"interruptions", "redriven-in", "redriven-out", "claims-dropped", "stale-ack", "stale-touch", "expiries",
		"paused", "oldest",
	}
	seen := map[string]int{}
	for seed := range uint64(400) {
		n := uint64(0)
		g := &generator{choose: func(most int) int { n++; return int(keyed(seed+1, n) % uint64(most)) }}
		p := &pair{ledger: newWorld(newModel), model: newWorld(newModel)}
		p.model = p.ledger // one is enough
		line := g.config()
		for range 80 {
			text := p.model.run(line) + p.model.run("stats") + "\n"
			for _, w := range wanted {
				if strings.Contains(text, w) {
					seen[w]++
				}
			}
			line = g.line(p)
		}
	}
	for _, w := range wanted {
		if seen[w] == 0 {
			t.Errorf("no program made the model say %q", w)
		}
	}
	t.Log(seen)
}

// TestQ10_BehindGivesTheSameVerdicts lets more fall due at one instant than the
// ledger settles in one slice, and then asks for a verdict that depends on what is
// still to be settled. The model has no slices. When the ledger has caught up, all
// else must be equal too.
func TestQ10_BehindGivesTheSameVerdicts(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine: the detector only makes it slow")
	}
	const crowd = 4500
	var ids strings.Builder
	for i := range crowd {
		fmt.Fprintf(&ids, " m%d", i)
	}
	dying := []string{"new ttl=10s max-messages=4500", "put" + ids.String(), "jump 10s"}
	dyingBytes := []string{"new ttl=10s max-bytes=42780", dying[1], "jump 10s"} // just what they take
	returning := []string{"new ack-timeout=10s max-attempts=2 max-messages=4501", "attach sam prefetch=5000", "put" + ids.String(), "pause", "jump 10s"}
	for _, test := range []struct {
		before    []string
		commands  []string
		catchesUp bool // the command itself settles all that is due
	}{
		{dying, []string{"put m4499 body=other hold", "put m4499 hold", "put m4498 body=other"}, true},
		{dying, []string{"put x hold", "put y z"}, false},
		{dyingBytes, []string{"put x bytes=42700 hold"}, true},
		{dying, []string{"purge hold"}, true},
		{dying, []string{"drain hold", "put x"}, true},
		{dying, []string{"attach sam hold", "tick"}, false},
		{dying, []string{"want g1 hold", "put x"}, false},
		{dying, []string{"discard m4499 m3 hold"}, true},
		{dying, []string{"close"}, true},
		{returning, []string{"ack 4500 hold", "touch 4499 hold", "release 4498", "nack 4497"}, false},
		{returning, []string{"put m4499 hold", "put x hold", "put y", "resume", "ack 4501"}, true},
		{returning, []string{"put x prio=5 hold", "resume"}, false},
		{returning, []string{"touch-for 4400 for=1m hold", "put m4400 body=other", "purge", "put m4499 body=other"}, false},
	} {
		t.Run(strings.Join(test.commands, "; "), func(t *testing.T) {
			t.Parallel()
			ledger, model := newWorld(newReal), newWorld(newModel)
			wasBehind := test.catchesUp
			for i, line := range append(slices.Clone(test.before), test.commands...) {
				ledger.quiet, model.quiet = i < len(test.before), true
				got, want := verdict(ledger.run(line)), verdict(model.run(line))
				if got != want {
					t.Fatalf("%.60s\ngave\n%s\nand the model says\n%s", line, indent(got), indent(want))
				}
				wasBehind = wasBehind || ledger.subject.Behind()
			}
			if !wasBehind {
				t.Errorf("the ledger was never behind, so this test says nothing: raise crowd")
			}
			for ledger.subject.Behind() {
				ledger.run("tick")
			}
			model.run("tick")
			for _, look := range []string{"stats", "peek n=9999", "letters n=9999"} {
				if got, want := ledger.run(look), model.run(look); got != want {
					t.Fatalf("when it has caught up: %s: %s", look, firstDifference(got, want))
				}
			}
		})
	}
}

// verdict leaves the effects out of what a command printed.
func verdict(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		switch word, _, _ := strings.Cut(line, " "); {
		case word == "error:", word == "hint:", word == "BROKEN:", word == "until",
			strings.Contains(line, "duplicate"), strings.HasSuffix(line, "purged\n"),
			strings.HasSuffix(line, "discarded\n"), strings.HasSuffix(line, "dropped\n"):
			kept.WriteString(line)
		}
	}
	return kept.String()
}
