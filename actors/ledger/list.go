package ledger

import (
	"math/bits"

	"github.com/postroom/postroom/messages"
)

// list is a doubly linked list through next and prev: a message is in one at most.
type list struct{ first, last *entry }

func (q *list) push(e *entry) {
	e.prev, e.next = q.last, nil
	if q.last == nil {
		q.first = e
	} else {
		q.last.next = e
	}
	q.last = e
}

func (q *list) remove(e *entry) {
	if e.prev == nil {
		q.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// ageList holds every message that has been ready once, in the order of that
// first instant, so that the oldest age is known without a search (B3, A2).
type ageList struct{ first, last *entry }

// push appends; instants only grow, because advance settles in order of time.
func (q *ageList) push(e *entry) {
	e.older, e.younger = q.last, nil
	if q.last == nil {
		q.first = e
	} else {
		q.last.younger = e
	}
	q.last = e
}

func (q *ageList) remove(e *entry) {
	if e.older == nil {
		q.first = e.younger
	} else {
		e.older.younger = e.younger
	}
	if e.younger == nil {
		q.last = e.older
	} else {
		e.younger.older = e.older
	}
	e.older, e.younger = nil, nil
}

const priorities = messages.PriorityMax + 1

// readyLanes are the ready messages: ten priorities of three lanes. Bit
// priority*3+lane of mask is set while that lane holds a message, so the head of
// the queue is the highest bit and the first to be dropped the lowest (Q12, A1).
type readyLanes struct {
	mask uint32
	rank [priorities]*rank // made when the first message of the priority comes
}

// rank is one priority.
type rank struct {
	lane  [laneCount]list
	bytes int64 // of its ready messages: says whether dropping makes room (A1)
	count int
}

func laneBit(priority uint8, n lane) uint32 {
	return 1 << (uint32(priority)*uint32(laneCount) + uint32(n))
}

func (r *readyLanes) push(e *entry) {
	k := r.rank[e.priority]
	if k == nil {
		k = new(rank)
		r.rank[e.priority] = k
	}
	k.lane[e.lane].push(e)
	k.bytes += e.bytes()
	k.count++
	r.mask |= laneBit(e.priority, e.lane)
}

func (r *readyLanes) remove(e *entry) {
	k := r.rank[e.priority]
	q := &k.lane[e.lane]
	q.remove(e)
	k.bytes -= e.bytes()
	k.count--
	if q.first == nil {
		r.mask &^= laneBit(e.priority, e.lane)
	}
}

// at returns the lane of a bit's number.
func (r *readyLanes) at(bit int) *list {
	return &r.rank[bit/int(laneCount)].lane[bit%int(laneCount)]
}

// head is the message to be handed over next; nil when none is ready.
func (r *readyLanes) head() *entry {
	if r.mask == 0 {
		return nil
	}
	return r.at(bits.Len32(r.mask) - 1).first
}

// lowest is the message to be dropped first, other than the newcomer at the end of
// its lane: lowest priority, fresh lane first. There must be one.
func (r *readyLanes) lowest(newcomer *entry) *entry {
	for mask := r.mask; ; mask &= mask - 1 {
		if e := r.at(bits.TrailingZeros32(mask)).first; e != newcomer {
			return e
		}
	}
}

// upTo counts the ready messages of this priority and all lower ones.
func (r *readyLanes) upTo(priority uint8) (count int, bytes int64) {
	for p := range priority + 1 {
		if k := r.rank[p]; k != nil {
			count += k.count
			bytes += k.bytes
		}
	}
	return count, bytes
}

// each calls f for the ready messages in hand-over order until f returns false.
func (r *readyLanes) each(f func(e *entry) bool) {
	for mask := r.mask; mask != 0; {
		bit := bits.Len32(mask) - 1
		mask &^= 1 << bit
		for e := r.at(bit).first; e != nil; e = e.next {
			if !f(e) {
				return
			}
		}
	}
}
