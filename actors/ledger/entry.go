package ledger

import (
	"math"
	"unsafe"

	"github.com/postroom/postroom/messages"
)

// never is the instant that does not come: no deadline, no expiry.
const never = math.MaxInt64

// state is where a message is; each has exactly one container.
type state uint8

const (
	unused  state = iota // in the list of spares, or nowhere yet
	ready                // in a lane
	delayed              // in the heap of delays
	waiting              // in the retry budget's line (R9); counted as delayed
	leased               // in a holder's hands; its lease is in tags
)

var stateNames = [...]string{"unused", "ready", "delayed", "waiting", "leased"}

func (s state) String() string { return stateNames[s] }

// lane is a message's place among those of its priority; the higher goes first (Q12).
type lane uint8

const (
	fresh       lane = iota // never failed since put or redrive
	failed                  // nacked, expired, taken back with its holder
	interrupted             // given back untried (R10)
	laneCount
)

var laneNames = [...]string{"fresh", "failed", "interrupted"}

func (n lane) String() string { return laneNames[n] }

// entry is one message. It is recycled: nothing outside the ledger refers to it
// but a HandedOver effect, and that one only until the next command.
//
// It is kept at 128 bytes, two cache lines and a size class of the allocator, because a
// million of them wait in a full queue. What few messages have is in rare, and what only
// a leased one has is in lease.
type entry struct {
	next, prev     *entry // in the list of its state: lane, waiting line, leases, holder's leases
	older, younger *entry // in the age list, once it has been ready

	id      string
	body    string // the envelope's own bytes, without a capacity: eight bytes less a message
	details *messages.Details
	rare    *rare  // nil: all zero
	lease   *lease // while leased; after that, if it ran out, its holder's lapse

	number   uint64 // put number, 1, 2, 3, …
	enqueued int64

	hash     uint32  // of id, meaningful while given
	timerPos int32   // in the heap of delays or of leases; -1 in neither
	ttlPos   int32   // in the heap of lifetimes; -1: lives for ever, or is leased
	attempt  int32   // deliveries less interrupted ones, since put or redrive (Q4)
	owner    ownerNo // zero: nobody
	state    state
	lane     lane
	priority uint8
	flags    entryFlags
}

type entryFlags uint8

const (
	given entryFlags = 1 << iota // the caller chose the id, so it is in the index (E3)
	aged                         // has been ready once, so it is in the age list (B3)
)

func (e *entry) has(f entryFlags) bool { return e.flags&f != 0 }

// avoids is who let the message's last lease run out, and is passed over while
// another has credit (Q11); empty: nobody.
func (e *entry) avoids() string {
	if e.state == leased || e.lease == nil {
		return ""
	}
	return e.lease.holder.name()
}

// deliveries counts hand-overs and never goes down (Q4).
func (e *entry) deliveries() int {
	if e.rare != nil {
		return int(e.attempt) + e.rare.untried
	}
	return int(e.attempt)
}

// firstReady is when a message in the age list was ready for the first time.
func (e *entry) firstReady() int64 {
	if e.rare != nil && e.rare.firstReady != 0 {
		return e.rare.firstReady
	}
	return e.enqueued
}

// bytesOf returns the body as it was put. Appending to it copies.
func (e *entry) bytesOf() []byte { return unsafe.Slice(unsafe.StringData(e.body), len(e.body)) }

// bytes is what the message counts against MaxBytes (A1): what it weighed at its put,
// also when a handler has changed the headers or the extra, which it only shares.
func (e *entry) bytes() int64 {
	n := int64(len(e.id) + len(e.body))
	if e.rare != nil {
		n += e.rare.sharedBytes
	}
	return n
}

// rare holds what most messages do not have.
type rare struct {
	firstReady  int64 // 0: at the put
	untried     int   // hand-overs that are no attempts: interrupted, or before the last redrive
	headers     map[string]string
	sharedBytes int64 // headers and extra, weighed once: deliveries share them, so they may be written to
	history     []messages.Death
	deaths      int
	lastError   string
}

// lease is a message in a holder's hands (Q2). Also recycled.
type lease struct {
	tag      uint64
	deadline int64
	handed   int64  // hand-over; MaxLease counts from it
	timeout  int64  // the holder's AckTimeout; never without
	expires  int64  // the message's own end: out of the heap while leased, a lease is not cut (Q15)
	holder   *taker // consumer or Get
	where    leasePlace
	flags    leaseFlags
}

// leasePlace is which container wakes the ledger for a lease.
type leasePlace uint8

const (
	unarmed  leasePlace = iota // no deadline
	inLine                     // the list of leases with the queue's own timeout
	inTimers                   // the heap of all other deadlines
)

type leaseFlags uint8

const (
	started   leaseFlags = 1 << iota // losing it spends the attempt (C3)
	returned                         // the handler is back already: credit comes with the lease's end (C5)
	noTimeout                        // lasts as long as its holder; in the holder's list (Q17)
)

func (le *lease) has(f leaseFlags) bool { return le.flags&f != 0 }

// recordedDeadline is the deadline at hand-over. Touches are volatile (K4), so
// this is the one that records and Dump know.
func (l *Ledger) recordedDeadline(le *lease) int64 {
	return min(addSat(le.handed, le.timeout), l.leaseLimit(le.handed))
}

// addSat is a+b that stops at never instead of turning negative: a delay of
// 290 years must not fire at once (Q19).
func addSat(a, b int64) int64 {
	if b > 0 && a > never-b {
		return never
	}
	return a + b
}

// sparesMax bounds the entries, leases and rares kept for reuse. A burst larger
// than this allocates again; the memory of a past one is not kept for ever.
const sparesMax = 4096

// spares are recycled structs, so that put, lend and ack allocate nothing.
type spares struct {
	entries []*entry
	leases  []*lease
}

func (s *spares) entry() *entry {
	if n := len(s.entries); n > 0 {
		e := s.entries[n-1]
		s.entries = s.entries[:n-1]
		return e
	}
	return &entry{timerPos: -1, ttlPos: -1}
}

func (s *spares) giveEntry(e *entry) {
	e.state = unused
	if len(s.entries) == sparesMax {
		return
	}
	// No body of a gone message stays reachable. Field by field: it is in no list any
	// more, and while the collector runs it asks about every pointer that is written.
	e.id, e.body, e.details = "", "", nil
	if e.rare != nil {
		e.rare = nil
	}
	if e.lease != nil {
		e.lease = nil
	}
	e.number, e.enqueued, e.hash = 0, 0, 0
	e.attempt, e.owner, e.lane, e.priority, e.flags = 0, 0, 0, 0, 0
	s.entries = append(s.entries, e)
}

func (s *spares) lease() *lease {
	if n := len(s.leases); n > 0 {
		le := s.leases[n-1]
		s.leases = s.leases[:n-1]
		return le
	}
	return new(lease)
}

func (s *spares) giveLease(le *lease) {
	if len(s.leases) < sparesMax {
		le.holder = nil
		s.leases = append(s.leases, le)
	}
}

// giveRare keeps the seldom used part of a message that leaves.
func (l *Ledger) giveRare(r *rare) {
	*r = rare{}
	if len(l.rares) < sparesMax {
		l.rares = append(l.rares, r)
	}
}

// rarely returns the entry's seldom used part, made when it is not there.
func (l *Ledger) rarely(e *entry) *rare {
	if e.rare == nil {
		if n := len(l.rares); n > 0 {
			e.rare = l.rares[n-1]
			l.rares = l.rares[:n-1]
		} else {
			e.rare = new(rare)
		}
	}
	return e.rare
}
