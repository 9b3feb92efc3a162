package router

import "hash/maphash"

// edges are the literal edges of a whole trie: an open-addressing table by parent and
// word. One table for all nodes and not a map in each, because of what a step costs
// when very many patterns are bound and none of them is in the processor's cache: a
// Go map reads its group, the word's text and then the node; this reads one slot, and
// the word is in the node.
//
// Invariants, checked by [Trie.CheckInvariants]: each child is found under its parent
// and word, n is how many there are, and at most 7/8 of the slots are taken, at least
// 1/8 of them or there are only slotsMin.
type edges[T comparable] struct {
	seed  maphash.Seed
	slots []edge[T] // a power of two of them; nil when empty
	n     int
}

type edge[T comparable] struct {
	hash  uint64
	child *node[T] // nil: the slot is free
}

const slotsMin = 8

// hash mixes the parent in by its number and not by its address, which is the root's
// own and may change. Two nodes of one number, after 2^32 of them, only share slots.
func (e *edges[T]) hash(parent *node[T], word string) uint64 {
	return maphash.String(e.seed, word) + uint64(parent.number)*0x9E3779B97F4A7C15
}

// find returns parent's child along word, or nil.
func (e *edges[T]) find(parent *node[T], word string) *node[T] {
	if parent.literals == 0 {
		return nil
	}
	hash := e.hash(parent, word)
	mask := uint64(len(e.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &e.slots[i]
		if s.child == nil {
			return nil
		}
		if s.hash == hash && s.child.parent == parent && s.child.hangsBy(word) {
			return s.child
		}
	}
}

// add hangs in a child that is not there yet.
func (e *edges[T]) add(child *node[T]) {
	switch {
	case e.slots == nil:
		e.seed = maphash.MakeSeed()
		e.slots = make([]edge[T], slotsMin)
	case 8*(e.n+1) > 7*len(e.slots):
		e.resize(2 * len(e.slots))
	}
	e.n++
	child.parent.literals++
	e.put(edge[T]{e.hash(child.parent, child.word), child})
}

func (e *edges[T]) put(s edge[T]) {
	mask := uint64(len(e.slots) - 1)
	i := s.hash & mask
	for e.slots[i].child != nil {
		i = (i + 1) & mask
	}
	e.slots[i] = s
}

// remove takes out a child that is there. What stands behind it moves up, so that no
// search ends too early and no marks of the removed gather.
func (e *edges[T]) remove(child *node[T]) {
	mask := uint64(len(e.slots) - 1)
	gap := e.hash(child.parent, child.word) & mask
	for e.slots[gap].child != child {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; e.slots[i].child != nil; i = (i + 1) & mask {
		// It may move unless its own first place lies behind the gap.
		if home := e.slots[i].hash & mask; (i-home)&mask >= (i-gap)&mask {
			e.slots[gap] = e.slots[i]
			gap = i
		}
	}
	e.slots[gap] = edge[T]{}
	e.n--
	child.parent.literals--
	switch {
	case e.n == 0:
		e.slots = nil
	case len(e.slots) > slotsMin && 8*e.n < len(e.slots):
		e.resize(len(e.slots) / 2)
	}
}

func (e *edges[T]) resize(slots int) {
	old := e.slots
	e.slots = make([]edge[T], slots)
	for _, s := range old {
		if s.child != nil {
			e.put(s)
		}
	}
}
