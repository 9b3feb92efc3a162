package ledger

import (
	"hash/maphash"
	"slices"
)

// claims are ids that stay taken after their message was acked or purged, until
// put + DedupWindow (Q13). They lie in one slab, 48 bytes each and without a
// pointer but the id's, because there may be a million; a claimRef is a place in
// it plus one.
type claims struct {
	slab []claim
	free claimRef    // first of the chain of unused places, through pos
	heap []claimSlot // by release, then put number: the first is the oldest
	last int64       // latest release ever: one wake-up for all of them is enough
}

type claimRef uint32

type claim struct {
	id      string
	body    uint64 // hash of the body: a put with another one reuses the id
	release int64
	number  uint64 // of the put
	hash    uint32 // of the id
	pos     int32  // in heap; in a free place, the next free claimRef
}

type claimSlot struct {
	release int64
	ref     claimRef
}

func (c *claims) at(r claimRef) *claim { return &c.slab[r-1] }

func (c *claims) first() int64 {
	if len(c.heap) == 0 {
		return never
	}
	return c.heap[0].release
}

func (c *claims) add(n claim) claimRef {
	r := c.free
	if r != 0 {
		c.free = claimRef(c.at(r).pos)
		*c.at(r) = n
	} else {
		c.slab = append(c.slab, n)
		r = claimRef(len(c.slab))
	}
	c.last = max(c.last, n.release)
	c.heap = append(c.heap, claimSlot{})
	c.up(len(c.heap)-1, claimSlot{n.release, r})
	return r
}

func (c *claims) remove(r claimRef) {
	i := int(c.at(r).pos)
	n := len(c.heap) - 1
	moved := c.heap[n]
	c.heap = c.heap[:n]
	if i < n {
		if i > 0 && c.before(moved, c.heap[(i-1)/4]) {
			c.up(i, moved)
		} else {
			c.down(i, moved)
		}
	}
	*c.at(r) = claim{pos: int32(c.free)}
	c.free = r
}

func (c *claims) before(a, b claimSlot) bool {
	if a.release != b.release {
		return a.release < b.release
	}
	return c.at(a.ref).number < c.at(b.ref).number
}

func (c *claims) place(i int, s claimSlot) {
	c.heap[i] = s
	c.at(s.ref).pos = int32(i)
}

func (c *claims) up(i int, s claimSlot) {
	for i > 0 && c.before(s, c.heap[(i-1)/4]) {
		c.place(i, c.heap[(i-1)/4])
		i = (i - 1) / 4
	}
	c.place(i, s)
}

func (c *claims) down(i int, s claimSlot) {
	for n := len(c.heap); ; {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for k := child + 1; k < min(child+4, n); k++ {
			if c.before(c.heap[k], c.heap[least]) {
				least = k
			}
		}
		if !c.before(c.heap[least], s) {
			break
		}
		c.place(i, c.heap[least])
		i = least
	}
	c.place(i, s)
}

// forgetID takes the id of a leaving message out of the index: at once, or, when
// it was acked or purged inside its window, by turning its slot into a claim.
func (l *Ledger) forgetID(e *entry, keepsClaim bool) {
	if !e.has(given) {
		return
	}
	release := addSat(e.enqueued, int64(l.config.DedupWindow))
	if !keepsClaim || l.config.DedupWindow == 0 || release <= l.clock {
		l.index.remove(e.hash, e, 0)
		return
	}
	r := l.claims.add(claim{
		id: e.id, body: maphash.String(l.seed, e.body), release: release, number: e.number, hash: e.hash,
	})
	s := &l.index.slots[l.index.where(e.hash, e, 0)]
	s.e, s.claim = nil, r
}

// boundClaims keeps DedupLimit: the oldest claims go, counted.
func (l *Ledger) boundClaims() {
	for l.config.DedupLimit >= 0 && len(l.claims.heap) > l.config.DedupLimit {
		r := l.claims.heap[0].ref
		l.dropClaim(r, RecordClaimDropped)
	}
}

// dropClaim is the transition that frees a claimed id.
func (l *Ledger) dropClaim(r claimRef, why RecordKind) {
	c := l.claims.at(r)
	if l.journal {
		l.record(Record{Kind: why, ID: c.id})
	}
	if why == RecordClaimDropped {
		l.counters.more().ClaimsDropped++
	}
	l.freeClaim(r)
}

func (l *Ledger) freeClaim(r claimRef) {
	l.index.remove(l.claims.at(r).hash, nil, r)
	l.claims.remove(r)
}

// trimClaims packs the slab once most of it is unused.
func (l *Ledger) trimClaims() {
	c := &l.claims
	if len(c.heap) == 0 {
		*c = claims{}
		return
	}
	if len(c.slab) < 2*len(c.heap) {
		return
	}
	packed := claims{slab: make([]claim, 0, len(c.heap)), heap: make([]claimSlot, 0, len(c.heap)), last: c.last}
	for _, s := range c.heap {
		old := *c.at(s.ref)
		slot := &l.index.slots[l.index.where(old.hash, nil, s.ref)]
		packed.slab = append(packed.slab, old)
		r := claimRef(len(packed.slab))
		packed.heap = append(packed.heap, claimSlot{s.release, r}) // same order, so the same heap and the same pos
		// Renumbered refs are marked until all are done: a small one may still be
		// the old number of another claim with the same hash.
		slot.claim = r | claimMark
	}
	for i := range l.index.slots {
		l.index.slots[i].claim &^= claimMark
	}
	*c = packed
}

// claimMark is a bit no claimRef of a slab in memory reaches.
const claimMark claimRef = 1 << 31

// claimsInOrder lists the claims, oldest first.
func (l *Ledger) claimsInOrder() []claim {
	slots := slices.Clone(l.claims.heap)
	slices.SortFunc(slots, func(a, b claimSlot) int {
		if l.claims.before(a, b) {
			return -1
		}
		return 1
	})
	out := make([]claim, len(slots))
	for i, s := range slots {
		out[i] = *l.claims.at(s.ref)
	}
	return out
}
