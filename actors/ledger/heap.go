package ledger

// heap is a 4-ary heap of messages by instant, then by order, then by put number.
// Keys are inline, so that sifting touches an entry only to tell it its place:
// the entries of a million leases are not in any cache. Four children to a node
// halve the depth against two, and lie side by side.
type heap struct {
	slots []heapSlot
	ttl   bool // which of the entry's two places is kept: lifetimes, or delays and leases
}

type heapSlot struct {
	at    int64
	order uint64
	e     *entry
}

func (a *heapSlot) before(b *heapSlot) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.order != b.order {
		return a.order < b.order
	}
	return a.e.number < b.e.number
}

func (h *heap) place(i int, s heapSlot) {
	h.slots[i] = s
	if h.ttl {
		s.e.ttlPos = int32(i)
	} else {
		s.e.timerPos = int32(i)
	}
}

func (h *heap) forget(e *entry) {
	if h.ttl {
		e.ttlPos = -1
	} else {
		e.timerPos = -1
	}
}

func (h *heap) pos(e *entry) int {
	if h.ttl {
		return int(e.ttlPos)
	}
	return int(e.timerPos)
}

// first is the earliest instant; never when the heap is empty.
func (h *heap) first() int64 {
	if len(h.slots) == 0 {
		return never
	}
	return h.slots[0].at
}

func (h *heap) push(at int64, order uint64, e *entry) {
	h.slots = append(h.slots, heapSlot{})
	h.up(len(h.slots)-1, heapSlot{at, order, e})
}

// remove takes e out, wherever it is, and returns the instant it stood at.
func (h *heap) remove(e *entry) int64 {
	i := h.pos(e)
	at := h.slots[i].at
	n := len(h.slots) - 1
	moved := h.slots[n]
	h.slots[n] = heapSlot{}
	h.slots = h.slots[:n]
	h.forget(e)
	if i < n {
		if i > 0 && moved.before(&h.slots[(i-1)/4]) {
			h.up(i, moved)
		} else {
			h.down(i, moved)
		}
	}
	return at
}

func (h *heap) up(i int, s heapSlot) {
	for i > 0 {
		parent := (i - 1) / 4
		if !s.before(&h.slots[parent]) {
			break
		}
		h.place(i, h.slots[parent])
		i = parent
	}
	h.place(i, s)
}

func (h *heap) down(i int, s heapSlot) {
	n := len(h.slots)
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, n); c++ {
			if h.slots[c].before(&h.slots[least]) {
				least = c
			}
		}
		if !h.slots[least].before(&s) {
			break
		}
		h.place(i, h.slots[least])
		i = least
	}
	h.place(i, s)
}

// trim gives spare capacity back.
func (h *heap) trim() { h.slots = fit(h.slots) }

// fit returns s in an array of its own size when much of the old one is empty.
func fit[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	if cap(s) <= 2*len(s) {
		return s
	}
	return append(make([]T, 0, len(s)), s...)
}
