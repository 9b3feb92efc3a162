package router

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// The words that mean something in a pattern. In a topic they are words like any
// other: the topic "a.*" is matched by the pattern "a.*" because * takes any word.
const (
	oneWord  = "*" // exactly one word
	anyWords = "#" // zero or more words
)

// Matches reports whether pattern covers topic (SPEC T1), with RabbitMQ's verdicts:
// * is exactly one word, # is zero or more words anywhere, an empty word is a word
// ("a." has two), the empty string has none, and case counts.
//
// It is for one pattern; for many, a [Trie] gives the same verdicts. The time is at
// most the product of the two numbers of words. No error is possible: every string
// is a pattern and a topic here, and messages.CheckPattern and CheckTopic say which
// ones the broker takes.
func Matches(pattern, topic string) bool {
	p, t := wordsOf(pattern), wordsOf(topic)

	// The last # seen can take one word more whenever the rest does not fit. It is
	// enough to go back to the last one: whatever an earlier # could take instead,
	// the last one can take as well. That is what keeps #.#.#.#.a from being
	// tried in every possible way.
	var afterHash, taken words
	var hashSeen bool

	for t.more {
		if p.more {
			want, afterWant := p.next()
			if want == anyWords {
				hashSeen, afterHash, taken = true, afterWant, t
				p = afterWant
				continue
			}
			if got, afterGot := t.next(); want == oneWord || want == got {
				p, t = afterWant, afterGot
				continue
			}
		}
		if !hashSeen {
			return false
		}
		_, taken = taken.next()
		p, t = afterHash, taken
	}
	for p.more { // the topic is used up, so only # fits
		var want string
		if want, p = p.next(); want != anyWords {
			return false
		}
	}
	return true
}

// Trie finds the values whose patterns cover a topic. The values are what is bound:
// a queue, a subscription. One value may have many patterns and still is found once
// per topic (SPEC T3).
//
// The zero value is empty and ready. It has one owner: no two methods may run at
// the same time, not even two Matches, because Match marks the nodes that it
// visits. It must not be copied once something was added.
//
// Everything but Match costs the length of the patterns concerned, whatever else is
// in the trie, but for an Add or Remove now and then that doubles or halves the table
// of edges. Memory is that of the pairs held: 128 bytes for each node that a pattern
// does not share, up to 128 for its edge, usually 20 to 40, and under 100 for the pair.
// Room that one node needed for very many values at once is kept until the node is gone.
//
// Invariants, checked by [Trie.CheckInvariants]:
//
//   - Every node but the root has a binding or a child: what was removed is gone.
//   - A node is its parent's star or hash or in edges, as its word says, and counted
//     with the parent. Its short is its word, or says that this is too long.
//   - A node's member is that of its first binding, and several says whether there are
//     more.
//   - A binding is in exactly two places, and they agree: in its node, at its
//     index, and in its member, under the pattern that leads to that node.
//   - A member has at least one binding, and no two members have the same order.
//   - pairs and nodes equal a recount.
type Trie[T comparable] struct {
	root          node[T]
	edges         edges[T]
	memberByValue map[T]*member[T] // nil when empty

	pairs     int    // bindings, for Len
	nodes     int    // without the root
	lastOrder uint64 // the order of the newest member; never goes down
	lastNode  uint32 // the number of the newest node; the root's is 0

	// The rest is scratch of Match, kept so that it allocates nothing. Between calls
	// the slices hold no pointers, else they would keep removed nodes alive.
	active, next []*node[T]
	found        []*member[T]
	stamp        uint64 // marks what was reached in this step; 2^64 steps never pass
	visited      uint64 // nodes reached since the start: the cost that T8 is about
}

// node is the end of one path of words from the root.
//
// Its first 64 bytes are all that Match reads of it, unless it has several bindings or
// a long word, and it has 128 in all, so that the allocator lays them on one line of
// the processor's cache: with 100,000 patterns each line is a wait for memory.
type node[T comparable] struct {
	seen       uint64     // the stamp of the last step that reached it
	star, hash *node[T]   // the edges * and #; nil when there is none
	parent     *node[T]   // nil for the root
	member     *member[T] // of the first binding; nil: none
	number     uint32     // which node was made when; tells parents apart in edges
	literals   uint32     // children in edges
	isHash     bool       // this node is its parent's hash
	several    bool       // it has more bindings than one
	shortLen   uint8      // of short; longWord: see word
	short      [13]byte   // word, where it fits in here

	word     string        // of the edge from parent
	bindings []*binding[T] // in no order: the last one fills a gap
	_        [24]byte
}

// longWord is the shortLen of a node whose word does not fit in short.
const longWord = 255

// hangsBy reports whether word is that of the edge from its parent.
func (n *node[T]) hangsBy(word string) bool {
	if n.shortLen == longWord {
		return n.word == word
	}
	return string(n.short[:n.shortLen]) == word
}

// noteFirst notes for Match what bindings begins with.
func (n *node[T]) noteFirst() {
	n.member, n.several = nil, len(n.bindings) > 1
	if len(n.bindings) > 0 {
		n.member = n.bindings[0].member
	}
}

// binding is one (pattern, value) pair.
type binding[T comparable] struct {
	member *member[T]
	node   *node[T]
	at     int // index in node.bindings, so that removal need not search for it
}

// member is a value that has at least one pattern.
type member[T comparable] struct {
	value            T
	order            uint64 // when it was first added, counting additions of members
	bindingByPattern map[string]*binding[T]
	seen             uint64 // the stamp of the last Match that found it
}

// Add binds value to pattern. It reports whether that is new: the same pair twice
// is one (SPEC T3).
//
// Patterns are told apart by their text, so "#" and "#.#" are two, although they
// cover the same topics; each must be removed under its own text.
func (t *Trie[T]) Add(pattern string, value T) bool {
	m := t.memberByValue[value]
	if m != nil && m.bindingByPattern[pattern] != nil {
		return false
	}
	if m == nil {
		t.lastOrder++
		m = &member[T]{value: value, order: t.lastOrder, bindingByPattern: map[string]*binding[T]{}}
		if t.memberByValue == nil {
			t.memberByValue = map[T]*member[T]{}
		}
		t.memberByValue[value] = m
	}

	// A pattern may be a piece of a large buffer, such as a frame from a
	// connection, which would stay alive as long as the binding.
	pattern = strings.Clone(pattern)
	n := &t.root
	for rest := wordsOf(pattern); rest.more; {
		var word string
		word, rest = rest.next()
		n = t.child(n, word)
	}
	b := &binding[T]{member: m, node: n, at: len(n.bindings)}
	n.bindings = append(n.bindings, b)
	n.noteFirst()
	m.bindingByPattern[pattern] = b
	t.pairs++
	return true
}

// Remove undoes Add of the same pair. It reports whether there was one.
func (t *Trie[T]) Remove(pattern string, value T) bool {
	m := t.memberByValue[value]
	if m == nil {
		return false
	}
	b := m.bindingByPattern[pattern]
	if b == nil {
		return false
	}
	delete(m.bindingByPattern, pattern)
	t.unbind(b)
	if len(m.bindingByPattern) == 0 {
		t.forget(m)
	}
	return true
}

// RemoveValue removes every pattern of value and returns how many there were. It
// costs that value's own patterns and no look at the others, so that deleting a
// queue (SPEC T7) is cheap in a broker with very many bindings.
func (t *Trie[T]) RemoveValue(value T) int {
	m := t.memberByValue[value]
	if m == nil {
		return 0
	}
	for _, b := range m.bindingByPattern { // map order: what remains is the same in any
		t.unbind(b)
	}
	t.forget(m)
	return len(m.bindingByPattern)
}

// Match appends to to each value that has a pattern covering topic, once, and
// returns the extended slice. The values come in the order in which they were first
// added, so that two runs with the same history route alike; a value that had lost
// its last pattern and was added again counts from then.
//
// The cost is the nodes that the topic's words lead to, at most (words + 1) times
// the nodes of the trie however # is used, and n·log(n) for n values found.
// Patterns that part from the topic cost nothing (SPEC T8). Once its scratch has
// grown, Match allocates nothing but what to needs.
func (t *Trie[T]) Match(topic string, to []T) []T {
	if t.pairs == 0 { // as the subscriptions of a broker that has bindings only
		return to
	}
	t.stamp++
	t.reach(&t.root)
	for rest := wordsOf(topic); rest.more && len(t.next) > 0; {
		var word string
		word, rest = rest.next()
		t.active, t.next = t.next, t.active[:0]
		t.stamp++
		for _, n := range t.active {
			if n.isHash { // # takes this word too
				t.reach(n)
			}
			if n.star != nil {
				t.reach(n.star)
			}
			t.reach(t.edges.find(n, word))
		}
		clear(t.active)
	}

	for _, n := range t.next {
		if !n.several {
			t.collect(n.member)
			continue
		}
		for _, b := range n.bindings {
			t.collect(b.member)
		}
	}
	slices.SortFunc(t.found, func(a, b *member[T]) int { return cmp.Compare(a.order, b.order) })
	for _, m := range t.found {
		to = append(to, m.value)
	}

	clear(t.next)
	clear(t.found)
	t.next, t.found = t.next[:0], t.found[:0]
	return to
}

// Len is the number of (pattern, value) pairs.
func (t *Trie[T]) Len() int { return t.pairs }

// Patterns returns the patterns of value, sorted; nil when it has none.
func (t *Trie[T]) Patterns(value T) []string {
	m := t.memberByValue[value]
	if m == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(m.bindingByPattern))
}

// reach puts n into the set of this step, with what # reaches from it without
// taking a word.
//
// The mark is what bounds the work: several # in a pattern lead to the same node in
// many ways, exponentially many in their number, and only the first way goes on.
func (t *Trie[T]) reach(n *node[T]) {
	for n != nil && n.seen != t.stamp {
		n.seen = t.stamp
		t.visited++
		t.next = append(t.next, n)
		n = n.hash
	}
}

// collect puts m, unless it is nil, into what Match has found, once: several of its
// patterns may match.
func (t *Trie[T]) collect(m *member[T]) {
	if m != nil && m.seen != t.stamp {
		m.seen = t.stamp
		t.found = append(t.found, m)
	}
}

// child returns n's child along word, which it makes if need be.
func (t *Trie[T]) child(n *node[T], word string) *node[T] {
	var child *node[T]
	switch word {
	case oneWord:
		child = n.star
	case anyWords:
		child = n.hash
	default:
		child = t.edges.find(n, word)
	}
	if child != nil {
		return child
	}

	t.nodes++
	t.lastNode++
	child = &node[T]{parent: n, number: t.lastNode, word: word, isHash: word == anyWords, shortLen: longWord}
	if len(word) <= len(child.short) {
		child.shortLen = uint8(copy(child.short[:], word))
	}
	switch word {
	case oneWord:
		n.star = child
	case anyWords:
		n.hash = child
	default:
		t.edges.add(child)
	}
	return child
}

// unbind takes b out of its node, and out of the tree what served only b. The
// caller takes it out of its member.
func (t *Trie[T]) unbind(b *binding[T]) {
	n := b.node
	last := len(n.bindings) - 1
	n.bindings[b.at] = n.bindings[last]
	n.bindings[b.at].at = b.at
	n.bindings[last] = nil
	n.bindings = n.bindings[:last]
	n.noteFirst()
	t.pairs--

	for n.parent != nil && n.isBare() {
		parent := n.parent
		switch n.word {
		case oneWord:
			parent.star = nil
		case anyWords:
			parent.hash = nil
		default:
			t.edges.remove(n)
		}
		t.nodes--
		n = parent
	}
}

// forget removes a member that has no bindings any more.
func (t *Trie[T]) forget(m *member[T]) {
	delete(t.memberByValue, m.value)
	if len(t.memberByValue) == 0 {
		t.memberByValue = nil
	}
}

// isBare reports whether nothing needs n.
func (n *node[T]) isBare() bool {
	return len(n.bindings) == 0 && n.literals == 0 && n.star == nil && n.hash == nil
}

// words are the words of a topic or pattern that are still to come.
//
// A flag says whether there is one, because the text cannot: behind the dot of "a."
// there is one more word, the empty one, and in "" there is none.
type words struct {
	rest string
	more bool
}

func wordsOf(s string) words { return words{rest: s, more: s != ""} }

// next returns the first word and those behind it. There must be one: check more.
func (w words) next() (string, words) {
	// IndexByte rather than strings.Cut, whose separator is a string: this is the
	// inner loop of Match.
	if dot := strings.IndexByte(w.rest, '.'); dot >= 0 {
		return w.rest[:dot], words{rest: w.rest[dot+1:], more: true}
	}
	return w.rest, words{}
}
