package router

import (
	"fmt"
	"strings"
)

// CheckInvariants says which of the invariants listed at [Trie] is broken, or nil.
// It visits everything; it is for tests, fuzzing and the simulation.
func (t *Trie[T]) CheckInvariants() error {
	literals, err := t.edges.check()
	if err != nil {
		return err
	}
	pairs, nodes, edges := 0, 0, 0
	err = t.root.walk(nil, literals, func(n *node[T], path []string) error {
		pattern := strings.Join(path, ".")
		edges += len(literals[n])
		if int(n.literals) != len(literals[n]) {
			return fmt.Errorf("node %q counts %d literal children and has %d", pattern, n.literals, len(literals[n]))
		}
		if n.several != (len(n.bindings) > 1) || (n.member == nil) != (len(n.bindings) == 0) || n.member != nil && n.member != n.bindings[0].member {
			return fmt.Errorf("node %q does not know what its %d bindings begin with", pattern, len(n.bindings))
		}
		if n != &t.root {
			nodes++
			if n.isBare() {
				return fmt.Errorf("node %q has neither a binding nor a child", pattern)
			}
		}
		for i, b := range n.bindings {
			pairs++
			switch {
			case b.node != n || b.at != i:
				return fmt.Errorf("binding %d of node %q does not know its place", i, pattern)
			case b.member.bindingByPattern[pattern] != b:
				return fmt.Errorf("binding %d of node %q is not under that pattern in its member", i, pattern)
			case t.memberByValue[b.member.value] != b.member:
				return fmt.Errorf("binding %d of node %q has a member that is not in the trie", i, pattern)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	ofMembers := 0
	valueByOrder := map[uint64]T{}
	for value, m := range t.memberByValue {
		ofMembers += len(m.bindingByPattern)
		twin, taken := valueByOrder[m.order]
		switch {
		case len(m.bindingByPattern) == 0:
			return fmt.Errorf("value %v has no bindings left", value)
		case m.value != value:
			return fmt.Errorf("value %v is kept under %v", m.value, value)
		case taken || m.order == 0 || m.order > t.lastOrder:
			return fmt.Errorf("value %v has order %d (last %d, also of %v: %t)", value, m.order, t.lastOrder, twin, taken)
		}
		valueByOrder[m.order] = value
	}

	switch {
	case pairs != t.pairs || pairs != ofMembers:
		return fmt.Errorf("%d bindings in the nodes, %d in the members, %d counted", pairs, ofMembers, t.pairs)
	case nodes != t.nodes:
		return fmt.Errorf("%d nodes, %d counted", nodes, t.nodes)
	case edges != t.edges.n:
		return fmt.Errorf("%d literal edges are reached, %d counted", edges, t.edges.n)
	case !t.isScratchClear():
		return fmt.Errorf("scratch still holds pointers")
	}
	return nil
}

// isScratchClear reports whether Match left nothing in its scratch, beyond the
// slices' lengths too.
func (t *Trie[T]) isScratchClear() bool {
	for _, nodes := range [][]*node[T]{t.active, t.next} {
		for _, n := range nodes[:cap(nodes)] {
			if n != nil {
				return false
			}
		}
	}
	for _, m := range t.found[:cap(t.found)] {
		if m != nil {
			return false
		}
	}
	return true
}

// check says what is wrong with the table, and returns the children by parent.
func (e *edges[T]) check() (map[*node[T]][]*node[T], error) {
	n, byParent := 0, map[*node[T]][]*node[T]{}
	for _, s := range e.slots {
		if s.child == nil {
			continue
		}
		n++
		byParent[s.child.parent] = append(byParent[s.child.parent], s.child)
		if e.find(s.child.parent, s.child.word) != s.child {
			return nil, fmt.Errorf("the child %q is not found under its parent", s.child.word)
		}
	}
	slots := len(e.slots)
	if n != e.n || 8*n > 7*slots || (n == 0) != (slots == 0) || slots > slotsMin && 8*n < slots || slots&(slots-1) != 0 {
		return nil, fmt.Errorf("%d edges, %d counted, in %d slots", n, e.n, slots)
	}
	return byParent, nil
}

// walk visits n and everything below it, each with its path from the root. literals
// are the literal children by parent.
func (n *node[T]) walk(path []string, literals map[*node[T]][]*node[T], visit func(*node[T], []string) error) error {
	if err := visit(n, path); err != nil {
		return err
	}
	step := func(word string, child *node[T]) error {
		below := append(path[:len(path):len(path)], word)
		if child.parent != n || child.word != word || !child.hangsBy(word) || child.isHash != (word == anyWords) {
			return fmt.Errorf("node %q does not know where it hangs", strings.Join(below, "."))
		}
		return child.walk(below, literals, visit)
	}
	if n.star != nil {
		if err := step(oneWord, n.star); err != nil {
			return err
		}
	}
	if n.hash != nil {
		if err := step(anyWords, n.hash); err != nil {
			return err
		}
	}
	for _, child := range literals[n] {
		if child.word == oneWord || child.word == anyWords {
			return fmt.Errorf("%q hangs among the literal words", child.word)
		}
		if err := step(child.word, child); err != nil {
			return err
		}
	}
	return nil
}
