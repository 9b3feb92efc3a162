package router

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// vector is one recorded verdict of RabbitMQ; see testdata/README.md.
type vector struct {
	pattern, topic string
	matches        bool
}

func vectors(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("testdata/topic-vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.FieldsPerRecord = '\t', 3
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	for _, row := range rows[1:] {
		if row[2] != "0" && row[2] != "1" {
			t.Fatalf("verdict %q of %q is neither 0 nor 1", row[2], row[:2])
		}
		vs = append(vs, vector{row[0], row[1], row[2] == "1"})
	}
	if len(vs) != 480 {
		t.Fatalf("%d recorded verdicts, want 480", len(vs))
	}
	return vs
}

func TestT1_VerdictsAreRabbitMQs(t *testing.T) {
	for _, v := range vectors(t) {
		if got := Matches(v.pattern, v.topic); got != v.matches {
			t.Errorf("Matches(%q, %q) = %t, want %t", v.pattern, v.topic, got, v.matches)
		}
		if got := reference(v.pattern, v.topic); got != v.matches {
			t.Errorf("reference(%q, %q) = %t, want %t", v.pattern, v.topic, got, v.matches)
		}
		var alone Trie[string]
		alone.Add(v.pattern, "q")
		if got := len(alone.Match(v.topic, nil)) == 1; got != v.matches {
			t.Errorf("a trie with only %q takes %q: %t, want %t", v.pattern, v.topic, got, v.matches)
		}
	}
}

// All the patterns share one trie here, where a node that belongs to two of them
// could give the verdict of one to the other.
func TestT1_VerdictsHoldWithAllPatternsInOneTrie(t *testing.T) {
	var trie Trie[string]
	wantByTopic := map[string][]string{}
	for _, v := range vectors(t) {
		trie.Add(v.pattern, v.pattern)
		if v.matches {
			wantByTopic[v.topic] = append(wantByTopic[v.topic], v.pattern)
		}
	}
	check(t, &trie)
	for topic, want := range wantByTopic {
		if got := trie.Match(topic, nil); !slices.Equal(got, want) {
			t.Errorf("Match(%q) = %q, want %q", topic, got, want)
		}
	}
}

// What other brokers got wrong; the numbers are those of the study of peers.
func TestT1_MistakesOfPeersAreNotRepeated(t *testing.T) {
	tests := []struct {
		name           string
		pattern, topic string
		want           bool
	}{
		{"29: the empty topic has no words", "*", "", false},
		{"29: the empty topic is any number of words", "#", "", true},
		{"29: the empty pattern takes the empty topic only", "", "a", false},
		{"30: # is zero words at the end", "a.*.c.#", "a.b.c", true},
		{"30: # is zero words in the middle", "a.#.c", "a.c", true},
		{"30: # is zero words at the start", "#.c", "c", true},
		{"31: * does not cross a dot", "a.*.c", "a.b.x.c", false},
		{"C2: # at the end keeps its dot", "stock.#", "stocks.nyse", false},
		{"C2: # at the start keeps its dot", "#.stock", "livestock", false},
		{"C2: # in the middle keeps both", "a.#.b", "ab", false},
		{"an empty word is a word", "a.*", "a.", true},
		{"an empty word is not no word", "a", "a.", false},
		{"a dot alone is two empty words", "*.*", ".", true},
		{"case counts", "a.B", "a.b", false},
		{"* is a word like any other in a topic", "a.*", "a.*", true},
		{"a topic's * stands for nothing else", "a.b", "a.*", false},
		{"a topic's # stands for nothing else", "a.b", "#", false},
		{"* inside a word is a letter", "a*", "ab", false},
		{"* inside a word is that letter", "a*", "a*", true},
		{"# inside a word is a letter", "a.b#", "a.bc", false},
		{"words are bytes, not runes", "é.*", "é.x", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Matches(tt.pattern, tt.topic); got != tt.want {
				t.Errorf("Matches(%q, %q) = %t, want %t", tt.pattern, tt.topic, got, tt.want)
			}
			var trie Trie[int]
			trie.Add(tt.pattern, 1)
			if got := len(trie.Match(tt.topic, nil)) == 1; got != tt.want {
				t.Errorf("a trie with %q takes %q: %t, want %t", tt.pattern, tt.topic, got, tt.want)
			}
		})
	}
}

func TestT3_TheSameBindingTwiceIsOne(t *testing.T) {
	var trie Trie[string]
	if !trie.Add("a.#", "q") {
		t.Error("the first Add says that it was there already")
	}
	if trie.Add("a.#", "q") {
		t.Error("the second Add of the same pair says that it is new")
	}
	if trie.Len() != 1 {
		t.Errorf("Len() = %d after the same pair twice, want 1", trie.Len())
	}
	if !trie.Add("a.#", "other") || !trie.Add("a.*", "q") {
		t.Error("another value or another pattern is refused as a repetition")
	}
	if !trie.Remove("a.#", "q") || trie.Remove("a.#", "q") {
		t.Error("removing once does not undo adding twice")
	}
	check(t, &trie)
}

func TestT3_AValueWithSeveralMatchingPatternsIsFoundOnce(t *testing.T) {
	var trie Trie[string]
	for _, p := range []string{"#", "a.#", "a.*", "*.b", "a.b", "#.b", "#.#", "*.#.b"} {
		trie.Add(p, "q")
	}
	for range 2 { // twice: the marks of the first must not hide anything from the second
		if got := trie.Match("a.b", nil); !slices.Equal(got, []string{"q"}) {
			t.Errorf("Match = %q, want q once", got)
		}
	}
	check(t, &trie)
}

func TestMatchAppendsAndKeepsWhatWasThere(t *testing.T) {
	var trie Trie[string]
	trie.Add("a", "q")
	if got := trie.Match("a", []string{"q"}); !slices.Equal(got, []string{"q", "q"}) {
		t.Errorf("Match onto [q] = %q, want [q q]: it must not look at what is there", got)
	}
	if got := trie.Match("b", nil); got != nil {
		t.Errorf("Match of nothing onto nil = %v, want nil", got)
	}
}

func TestMatchIsInTheOrderOfFirstAdd(t *testing.T) {
	var trie Trie[string]
	names := []string{"d", "b", "e", "a", "c"}
	for _, name := range names {
		trie.Add("x."+name, name) // the first Add counts, though this one does not match
	}
	for _, name := range slices.Backward(names) {
		trie.Add("#.t", name)
	}
	for _, name := range []string{"a", "d"} {
		trie.Add("t", name)
	}
	want := func(step string, want ...string) {
		t.Helper()
		check(t, &trie)
		if got := trie.Match("t", nil); !slices.Equal(got, want) {
			t.Errorf("%s: Match = %q, want %q", step, got, want)
		}
	}
	want("at first", "d", "b", "e", "a", "c")

	trie.Remove("x.b", "b")
	trie.Remove("#.t", "e") // fills the gap in the node with the last binding
	want("after a removal", "d", "b", "a", "c")

	trie.Add("#.t", "e")
	want("a value that kept a pattern keeps its place", "d", "b", "e", "a", "c")

	trie.RemoveValue("d")
	trie.Add("t", "d")
	want("a value that lost its last goes to the end", "b", "e", "a", "c", "d")
}

func TestPatternsAreSortedAndByTheirText(t *testing.T) {
	var trie Trie[string]
	for _, p := range []string{"b", "#.#", "a.*", "#", ""} {
		trie.Add(p, "q")
	}
	trie.Add("other", "r")
	if got, want := trie.Patterns("q"), []string{"", "#", "#.#", "a.*", "b"}; !slices.Equal(got, want) {
		t.Errorf("Patterns = %q, want %q", got, want)
	}
	if got := trie.Patterns("nobody"); got != nil {
		t.Errorf("Patterns of an unknown value = %q, want nil", got)
	}
	// "#" and "#.#" cover the same topics and still are two bindings.
	if !trie.Remove("#", "q") || trie.Remove("#", "q") || len(trie.Match("x.y", nil)) != 1 {
		t.Error("removing # took #.# with it, or left #")
	}
}

func TestRemovingWhatIsNotThereChangesNothing(t *testing.T) {
	var trie Trie[string]
	if trie.Remove("a", "q") || trie.RemoveValue("q") != 0 {
		t.Error("an empty trie says that it removed something")
	}
	trie.Add("a.b", "q")
	for _, p := range []string{"a", "a.b.c", "a.*", "#", ""} {
		if trie.Remove(p, "q") {
			t.Errorf("Remove(%q) says that it was there", p)
		}
	}
	if trie.Remove("a.b", "r") || trie.RemoveValue("r") != 0 {
		t.Error("another value's pattern was removed")
	}
	check(t, &trie)
	if trie.Len() != 1 {
		t.Errorf("Len() = %d, want 1", trie.Len())
	}
}

func TestT7_RemoveValueTakesAllItsPatternsAndNoOther(t *testing.T) {
	var trie Trie[string]
	for i := range 100 {
		trie.Add(fmt.Sprintf("a.%d.#", i), "q")
		trie.Add(fmt.Sprintf("a.%d.#", i), "r")
		trie.Add(fmt.Sprintf("b.%d", i), "q")
	}
	if got := trie.RemoveValue("q"); got != 200 {
		t.Errorf("RemoveValue = %d, want 200", got)
	}
	check(t, &trie)
	if trie.Len() != 100 || trie.Patterns("q") != nil || len(trie.Patterns("r")) != 100 {
		t.Errorf("%d pairs left, %d of q, %d of r; want 100, 0, 100", trie.Len(), len(trie.Patterns("q")), len(trie.Patterns("r")))
	}
	if got := trie.Match("a.7.x", nil); !slices.Equal(got, []string{"r"}) {
		t.Errorf("Match = %q, want r", got)
	}
}

func TestT8_RemovingFreesTheNodes(t *testing.T) {
	const n = 100_000
	for _, byValue := range []bool{false, true} {
		t.Run(fmt.Sprintf("byValue=%t", byValue), func(t *testing.T) {
			var trie Trie[int]
			trie.Add("keep.*.me", -1)
			before := trie.nodes
			for i := range n {
				trie.Add(scattered(i), i)
			}
			if trie.Len() != n+1 || trie.nodes < n {
				t.Fatalf("%d pairs and %d nodes, want %d and at least %d", trie.Len(), trie.nodes, n+1, n)
			}
			check(t, &trie)
			for i := range n {
				if byValue && trie.RemoveValue(i) != 1 || !byValue && !trie.Remove(scattered(i), i) {
					t.Fatalf("pattern %q was not there", scattered(i))
				}
			}
			check(t, &trie)
			if trie.nodes != before || trie.Len() != 1 {
				t.Errorf("%d nodes and %d pairs left, want %d and 1", trie.nodes, trie.Len(), before)
			}
			trie.RemoveValue(-1)
			if r := &trie.root; !r.isBare() || trie.edges.slots != nil || trie.memberByValue != nil || trie.nodes != 0 {
				t.Error("an emptied trie still holds something")
			}
		})
	}
}

// Nodes are numbered with 32 bits, so that two may have one number when very many came
// and went. Then their edges have one hash as well.
func TestT1_TwoNodesOfOneNumberKeepTheirChildrenApart(t *testing.T) {
	var trie Trie[string]
	trie.Add("x.a", "q")
	trie.lastNode = 0
	trie.Add("y.a", "r")
	trie.lastNode = 0
	trie.Add("z.b", "s")
	check(t, &trie)
	for topic, want := range map[string][]string{"x.a": {"q"}, "y.a": {"r"}, "z.a": nil, "z.b": {"s"}} {
		if got := trie.Match(topic, nil); !slices.Equal(got, want) {
			t.Errorf("Match(%q) = %q, want %q", topic, got, want)
		}
	}
	for _, p := range []string{"x.a", "z.b", "y.a"} {
		trie.Remove(p, map[string]string{"x.a": "q", "y.a": "r", "z.b": "s"}[p])
		check(t, &trie)
	}
}

// What Match reads of a node is to lie on one line of the processor's cache.
func TestT8_ANodeIsTwoLinesOfWhichMatchReadsOne(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the lines are those of 64-bit processors")
	}
	var n node[int]
	if size, first := unsafe.Sizeof(n), unsafe.Offsetof(n.word); size != 128 || first != 64 {
		t.Errorf("a node has %d bytes and its first part %d, want 128 and 64", size, first)
	}
}

// A count of nodes and not of nanoseconds, so that it says the same on any machine;
// the benchmark says the rest.
func TestT8_PatternsThatDoNotMatchCostNothing(t *testing.T) {
	visits := func(n int) uint64 {
		var trie Trie[int]
		fill(&trie, n)
		before := trie.visited
		if got := trie.Match(benchTopic, nil); !slices.Equal(got, []int{benchValue}) {
			t.Fatalf("among %d: Match = %v, want %d", n, got, benchValue)
		}
		return trie.visited - before
	}
	few, many := visits(10), visits(100_000)
	if few != many {
		t.Errorf("Match visits %d nodes among 10 bindings and %d among 100,000, want the same", few, many)
	}
}

func TestT8_MatchDoesNotAllocate(t *testing.T) {
	var trie Trie[int]
	fill(&trie, 10_000)
	for i := range 100 { // many found, in an order that needs sorting
		trie.Add("#", 99-i)
		trie.Add(benchTopic, 99-i)
	}
	trie.Remove("#", 50)
	to := trie.Match(benchTopic, nil)
	if len(to) != 101 {
		t.Fatalf("%d found, want 101", len(to))
	}
	if allocs := testing.AllocsPerRun(100, func() { to = trie.Match(benchTopic, to[:0]) }); allocs != 0 {
		t.Errorf("Match allocates %v times, want 0", allocs)
	}
}

// Each # doubles the ways to match when they are tried one by one: 2^60 of them
// would not end. So the test is that it ends, and the bound is on nodes visited.
func TestT8_ManyHashesDoNotBlowUp(t *testing.T) {
	const hashes = 60
	long := strings.TrimSuffix(strings.Repeat("a.", 120), ".") // 239 bytes, near the limit of 255
	tests := []struct {
		name, pattern string
		want          bool
	}{
		{"in a row, no match", strings.Repeat("#.", hashes) + "b", false},
		{"in a row, match", strings.Repeat("#.", hashes) + "a", true},
		{"with words between, no match", strings.Repeat("#.a.", hashes) + "b", false},
		{"with words between, match", strings.Repeat("#.a.", hashes) + "#", true},
		{"with stars between, no match", strings.Repeat("#.*.", hashes) + "b", false},
		{"with stars between, match", strings.Repeat("*.#.", hashes) + "a", true},
		{"more stars than words", strings.Repeat("#.*.", 121) + "#", false},
	}
	var all Trie[int]
	for i, tt := range tests {
		all.Add(tt.pattern, i)
		t.Run(tt.name, func(t *testing.T) {
			if got := Matches(tt.pattern, long); got != tt.want {
				t.Errorf("Matches = %t, want %t", got, tt.want)
			}
			var trie Trie[int]
			trie.Add(tt.pattern, 1)
			if got := len(trie.Match(long, nil)) == 1; got != tt.want {
				t.Errorf("Match = %t, want %t", got, tt.want)
			}
			if bound := uint64(trie.nodes+1) * 121; trie.visited > bound {
				t.Errorf("visited %d nodes, want at most nodes times words, %d", trie.visited, bound)
			}
		})
	}
	var want []int
	for i, tt := range tests {
		if tt.want {
			want = append(want, i)
		}
	}
	if got := all.Match(long, nil); !slices.Equal(got, want) {
		t.Errorf("all in one trie: Match = %v, want %v", got, want)
	}
}

// The caller's pattern may be a view of a buffer that is used again.
func TestTheTrieKeepsNoPieceOfACallersBuffer(t *testing.T) {
	var trie Trie[string]
	buffer := strings.Repeat("x", 1<<20) + "a.b"
	trie.Add(buffer[1<<20:], "q")
	for p := range trie.memberByValue["q"].bindingByPattern {
		if unsafe.StringData(p) == unsafe.StringData(buffer[1<<20:]) {
			t.Error("the kept pattern is a piece of the caller's megabyte")
		}
	}
	for _, s := range trie.edges.slots {
		if s.child != nil && unsafe.StringData(s.child.word) == unsafe.StringData(buffer[1<<20:]) {
			t.Error("the kept word is a piece of the caller's megabyte")
		}
	}
}

func check[T comparable](t testing.TB, trie *Trie[T]) {
	t.Helper()
	if err := trie.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// scattered is a pattern per number, of four shapes that put the number in
// different depths and behind different wildcards.
func scattered(i int) string {
	shapes := [...]string{"orders.%d.paid", "*.%d.#", "#.region%d.*", "tenant%d.orders.#.eu"}
	return fmt.Sprintf(shapes[i%len(shapes)], i)
}

const (
	benchTopic = "orders.eu.berlin.paid"
	benchValue = -1
)

// fill makes n bindings of which one, that of benchValue, matches benchTopic.
func fill(trie *Trie[int], n int) {
	trie.Add("orders.*.berlin.#", benchValue)
	for i := 1; i < n; i++ {
		trie.Add(scattered(i), i)
	}
}

// reference is the definition of a match, as plainly as it can be said and apart
// from the code under test. It takes exponential time.
func reference(pattern, topic string) bool {
	split := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ".")
	}
	var match func(p, t []string) bool
	match = func(p, t []string) bool {
		switch {
		case len(p) == 0:
			return len(t) == 0
		case p[0] == "#":
			return match(p[1:], t) || len(t) > 0 && match(p, t[1:])
		default:
			return len(t) > 0 && (p[0] == "*" || p[0] == t[0]) && match(p[1:], t[1:])
		}
	}
	return match(split(pattern), split(topic))
}
