package ledger

import "hash/maphash"

// index finds the live message or the window claim of a caller's id (Q13).
//
// Open addressing with linear probing, the hash kept in the slot so that a miss
// touches no entry, and deletion by shifting back so that no tombstone ever makes
// a probe longer. It doubles at thirteen sixteenths, so that no id ever takes more than
// 40 bytes of it and a ready message stays below 200, and halves at a sixteenth: a resize
// costs as much as the operations since the last one, and the memory of a spike
// comes back by itself. A small one is left as it is until trim, else a queue that
// fills and empties batch by batch would resize with each. Ids the broker made are
// not in it (E3).
type index struct {
	slots []indexSlot
	used  int
}

// indexSlot is empty when its hash is zero. Either its entry or its claim is set.
type indexSlot struct {
	hash  uint32
	claim claimRef
	e     *entry
}

func (s *indexSlot) empty() bool { return s.hash == 0 }

const (
	indexSlotsMin  = 16
	indexSlotsKept = 8192 // 128 KiB
	indexFull      = 13   // sixteenths
)

// hash is what the index knows an id by. It is keyed by the ledger's own seed:
// whoever chooses ids cannot choose collisions. It is never zero.
func (l *Ledger) hash(id string) uint32 { return hashOf(l.seed, id) }

// Hasher returns what makes the hash of an id, for [Put]. Unlike all else that may be
// called from any goroutine, whatever becomes of the ledger: it does not look at it.
func (l *Ledger) Hasher() func(id string) uint32 {
	seed := l.seed
	return func(id string) uint32 { return hashOf(seed, id) }
}

func hashOf(seed maphash.Seed, id string) uint32 { return max(1, uint32(maphash.String(seed, id))) }

// find returns the slot of id, or nil.
func (x *index) find(hash uint32, id string, claims *claims) *indexSlot {
	if x.used == 0 {
		return nil
	}
	mask := uint32(len(x.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &x.slots[i]
		switch {
		case s.empty():
			return nil
		case s.hash != hash:
		case s.e != nil:
			if s.e.id == id {
				return s
			}
		case claims.at(s.claim).id == id:
			return s
		}
	}
}

// add puts in a slot whose id is known to be absent.
func (x *index) add(s indexSlot) {
	if (x.used+1)*16 > len(x.slots)*indexFull {
		x.resize(max(indexSlotsMin, len(x.slots)*2))
	}
	x.used++
	x.insert(s)
}

func (x *index) insert(s indexSlot) {
	mask := uint32(len(x.slots) - 1)
	i := s.hash & mask
	for !x.slots[i].empty() {
		i = (i + 1) & mask
	}
	x.slots[i] = s
}

// where returns the slot that holds exactly this entry or this claim.
func (x *index) where(hash uint32, e *entry, claim claimRef) uint32 {
	mask := uint32(len(x.slots) - 1)
	i := hash & mask
	for x.slots[i].e != e || x.slots[i].claim != claim {
		i = (i + 1) & mask
	}
	return i
}

// remove takes out the slot of this entry or claim, and shifts back what a probe
// would otherwise no longer reach.
func (x *index) remove(hash uint32, e *entry, claim claimRef) {
	mask := uint32(len(x.slots) - 1)
	hole := x.where(hash, e, claim)
	for i := (hole + 1) & mask; !x.slots[i].empty(); i = (i + 1) & mask {
		if home := x.slots[i].hash & mask; (i-home)&mask >= (i-hole)&mask {
			x.slots[hole] = x.slots[i]
			hole = i
		}
	}
	x.slots[hole] = indexSlot{}
	x.used--
	if len(x.slots) > indexSlotsKept && x.used*16 < len(x.slots) {
		x.resize(len(x.slots) / 2)
	}
}

func (x *index) resize(size int) {
	old := x.slots
	x.slots = make([]indexSlot, size)
	for i := range old {
		if !old[i].empty() {
			x.insert(old[i])
		}
	}
}

// trim gives spare slots back.
func (x *index) trim() {
	if x.used == 0 {
		x.slots = nil
		return
	}
	size := indexSlotsMin
	for x.used*16 > size*indexFull {
		size *= 2
	}
	if size < len(x.slots) {
		x.resize(size)
	}
}
