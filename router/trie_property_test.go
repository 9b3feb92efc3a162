package router

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// model is what a trie must be indistinguishable from: a list, looked through.
type model struct {
	order []int            // values that have a pattern, by first Add
	pairs map[int][]string // the patterns of a value
}

func (m *model) add(pattern string, value int) bool {
	if slices.Contains(m.pairs[value], pattern) {
		return false
	}
	if len(m.pairs[value]) == 0 {
		m.order = append(m.order, value)
	}
	m.pairs[value] = append(m.pairs[value], pattern)
	return true
}

func (m *model) remove(pattern string, value int) bool {
	i := slices.Index(m.pairs[value], pattern)
	if i < 0 {
		return false
	}
	m.pairs[value] = slices.Delete(m.pairs[value], i, i+1)
	if len(m.pairs[value]) == 0 {
		m.removeValue(value)
	}
	return true
}

func (m *model) removeValue(value int) int {
	n := len(m.pairs[value])
	delete(m.pairs, value)
	m.order = slices.DeleteFunc(m.order, func(v int) bool { return v == value })
	return n
}

func (m *model) match(topic string) (found []int) {
	for _, value := range m.order {
		if slices.ContainsFunc(m.pairs[value], func(p string) bool { return reference(p, topic) }) {
			found = append(found, value)
		}
	}
	return found
}

func (m *model) len() (n int) {
	for _, patterns := range m.pairs {
		n += len(patterns)
	}
	return n
}

// pair is a trie and its model, which are told the same and must say the same.
type pair struct {
	fail  func(format string, args ...any)
	trie  Trie[int]
	model model
}

func newPair(fail func(string, ...any)) *pair {
	return &pair{fail: fail, model: model{pairs: map[int][]string{}}}
}

func (p *pair) add(pattern string, value int) {
	if got, want := p.trie.Add(pattern, value), p.model.add(pattern, value); got != want {
		p.fail("Add(%q, %d) = %t, want %t", pattern, value, got, want)
	}
}

func (p *pair) remove(pattern string, value int) {
	if got, want := p.trie.Remove(pattern, value), p.model.remove(pattern, value); got != want {
		p.fail("Remove(%q, %d) = %t, want %t", pattern, value, got, want)
	}
}

func (p *pair) removeValue(value int) {
	if got, want := p.trie.RemoveValue(value), p.model.removeValue(value); got != want {
		p.fail("RemoveValue(%d) = %d, want %d", value, got, want)
	}
}

func (p *pair) match(topic string) {
	if got, want := p.trie.Match(topic, nil), p.model.match(topic); !slices.Equal(got, want) {
		p.fail("Match(%q) = %v, want %v of %v", topic, got, want, p.model.pairs)
	}
}

func (p *pair) check() {
	if err := p.trie.CheckInvariants(); err != nil {
		p.fail("%v", err)
	}
	if got, want := p.trie.Len(), p.model.len(); got != want {
		p.fail("Len() = %d, want %d", got, want)
	}
	for value, patterns := range p.model.pairs {
		if got, want := p.trie.Patterns(value), slices.Sorted(slices.Values(patterns)); !slices.Equal(got, want) {
			p.fail("Patterns(%d) = %q, want %q", value, got, want)
		}
	}
}

// Few words, so that patterns meet often; among them those of which one is the
// beginning of another, the empty one, and both sides of what a node has room for.
var (
	drawWord    = rapid.SampledFrom([]string{"a", "b", "ab", "A", "", "thirteen-long", "thirteen-long-and", "thirteen-long-or"})
	drawPattern = drawWords(rapid.OneOf(drawWord, rapid.SampledFrom([]string{"*", "#"})), 6)
	drawTopic   = drawWords(rapid.OneOf(drawWord, drawWord, rapid.SampledFrom([]string{"*", "#"})), 8)
	drawValue   = rapid.IntRange(0, 4)
)

func drawWords(word *rapid.Generator[string], max int) *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(word, 0, max), func(ws []string) string { return strings.Join(ws, ".") })
}

func TestT1_MatchesEqualsTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, topic := drawPattern.Draw(t, "pattern"), drawTopic.Draw(t, "topic")
		if got, want := Matches(pattern, topic), reference(pattern, topic); got != want {
			t.Fatalf("Matches(%q, %q) = %t, want %t", pattern, topic, got, want)
		}
	})
}

func TestT1_TheTrieEqualsAListLookedThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t.Fatalf)
		t.Repeat(map[string]func(*rapid.T){
			"add":         func(t *rapid.T) { p.add(drawPattern.Draw(t, "pattern"), drawValue.Draw(t, "value")) },
			"match":       func(t *rapid.T) { p.match(drawTopic.Draw(t, "topic")) },
			"removeValue": func(t *rapid.T) { p.removeValue(drawValue.Draw(t, "value")) },
			"remove": func(t *rapid.T) {
				value := drawValue.Draw(t, "value")
				pattern := drawPattern.Draw(t, "pattern")
				if held := p.trie.Patterns(value); held != nil && rapid.Bool().Draw(t, "held") {
					pattern = rapid.SampledFrom(held).Draw(t, "which")
				}
				p.remove(pattern, value)
			},
			"": func(*rapid.T) { p.check() },
		})
	})
}
