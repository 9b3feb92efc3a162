package ledger

import (
	"cmp"
	"slices"

	"github.com/postroom/postroom/messages"
)

// endedMax is how many ended leases a queue remembers, to tell a stale settle how
// its lease ended (Q8).
const endedMax = 4096

// ended remembers the last ended leases, in the order in which they ended, as
// runs of consecutive tags with the same end: consumers that settle in order cost
// one run. It is searched only for a stale settle, from one end to the other.
type ended struct {
	runs  []endedRun // a ring
	head  int32
	n     int32 // runs in use
	total int32 // leases in them, at most endedMax
}

type endedRun struct {
	first uint64
	n     uint32
	how   messages.LeaseEnd
}

func (r *ended) at(i int32) *endedRun { return &r.runs[int(r.head+i)&(len(r.runs)-1)] }

func (r *ended) add(tag uint64, how messages.LeaseEnd) {
	if r.total == endedMax {
		oldest := r.at(0)
		oldest.first++
		oldest.n--
		if oldest.n == 0 {
			r.head = (r.head + 1) & int32(len(r.runs)-1)
			r.n--
		}
		r.total--
	}
	r.total++
	if r.n > 0 {
		if newest := r.at(r.n - 1); newest.how == how && newest.first+uint64(newest.n) == tag {
			newest.n++
			return
		}
	}
	if int(r.n) == len(r.runs) {
		runs := make([]endedRun, max(4, 2*len(r.runs)))
		for i := range r.n {
			runs[i] = *r.at(i)
		}
		r.runs, r.head = runs, 0
	}
	r.n++
	*r.at(r.n - 1) = endedRun{tag, 1, how}
}

// find says how the lease of tag ended; LeaseRunning when that is not known.
func (r *ended) find(tag uint64) messages.LeaseEnd {
	for i := range r.n {
		if run := r.at(i); tag-run.first < uint64(run.n) {
			return run.how
		}
	}
	return messages.LeaseRunning
}

// trim merges what it can, in tag order instead of the order of ending: the same
// leases are known, but which is forgotten first is from now on the lowest tag.
// For an idle queue that is the price of a few bytes instead of 64 KiB.
func (r *ended) trim() {
	if r.n == 0 {
		*r = ended{}
		return
	}
	runs := make([]endedRun, r.n)
	for i := range r.n {
		runs[i] = *r.at(i)
	}
	slices.SortFunc(runs, func(a, b endedRun) int { return cmp.Compare(a.first, b.first) })
	merged := runs[:1]
	for _, run := range runs[1:] {
		newest := &merged[len(merged)-1]
		if newest.how == run.how && newest.first+uint64(newest.n) == run.first {
			newest.n += run.n
		} else {
			merged = append(merged, run)
		}
	}
	size := 1
	for size < len(merged) {
		size *= 2
	}
	ring := make([]endedRun, size)
	*r = ended{runs: ring, n: int32(copy(ring, merged)), total: r.total}
}
