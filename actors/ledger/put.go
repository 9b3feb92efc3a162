package ledger

import (
	"fmt"
	"hash/maphash"
	"time"
	"unsafe"

	"github.com/postroom/postroom/messages"
)

// Put is one message on its way in.
//
// It is an envelope cut down to what a ledger needs, since a million of them a second
// go from one core to another: see [NewPut].
type Put struct {
	// ID must be set: the broker has made one where the caller gave none.
	ID      string
	Body    []byte
	Headers map[string]string
	// Details are the other parts of the envelope. Nil: there are none.
	Details *messages.Details
	// Delay is how long the message waits before it is first ready.
	Delay time.Duration
	// Owner is told by an effect [Settled] when the message is acked, dead, purged or
	// dropped. Nil: nobody.
	Owner *Owner
	// Past is what the message has been through before. Nil: it is new.
	Past *Past
	// Hash is what [Ledger.Hasher] makes of the ID, when somebody has had the time for it.
	// Zero: the ledger finds it out.
	Hash uint32
	// GivenID says that the caller chose the id. Only such an id is indexed (SPEC E3).
	GivenID bool
}

// Past is the earlier life of a message that has been dead.
type Past struct {
	// Redriven marks a letter of another queue (R8): ExpiresAt and Delay are dropped,
	// attempts begin anew, Deliveries, History and Deaths go on from where they were.
	// Without it the message is the copy of a letter, which is a new one.
	Redriven   bool
	Deliveries int
	History    []messages.Death
	Deaths     int
}

// NewPut returns the put of an envelope; given says that the caller chose its id.
func NewPut(e *messages.Envelope, given bool) Put {
	return Put{ID: e.ID, Body: e.Body, Headers: e.Headers, Details: e.Split(), Delay: e.Delay, GivenID: given}
}

// noDetails are those of a put that has none.
var noDetails = new(messages.Envelope).Split()

// newcomer is the past of a message that has none.
var newcomer = &Past{}

// Owner is who is told of a message's end, such as a publisher whose window counts
// it until then. It is one ledger's.
type Owner struct {
	// Address is the shell's own and never looked at.
	Address any

	number   ownerNo // while it has messages
	messages int
}

// owners are those who have messages in the ledger. They are few, and an entry names its
// own by a number: half of a pointer, and nothing that the collector looks at.
type owners struct {
	row  []*Owner
	free []ownerNo
}

// ownerNo is a place in row plus one.
type ownerNo uint32

// add notes one more message of o's.
func (q *owners) add(o *Owner) ownerNo {
	if o.messages++; o.messages > 1 {
		return o.number
	}
	if n := len(q.free); n > 0 {
		o.number = q.free[n-1]
		q.free = q.free[:n-1]
		q.row[o.number-1] = o
	} else {
		q.row = append(q.row, o)
		o.number = ownerNo(len(q.row))
	}
	return o.number
}

// remove notes one message less, and returns whose it was.
func (q *owners) remove(no ownerNo) *Owner {
	o := q.row[no-1]
	if o.messages--; o.messages == 0 {
		q.row[no-1] = nil
		q.free = append(q.free, no)
	}
	return o
}

// trim forgets the row when nobody is in it.
func (q *owners) trim() {
	if len(q.free) == len(q.row) {
		*q = owners{}
	}
}

// PutResult is an accepted put, or a duplicate.
type PutResult struct {
	// Number is the put number in this incarnation: 1, 2, 3, … Of a duplicate, that
	// of the put it repeats.
	Number uint64
	// Duplicate: the id is taken by the same body; nothing has changed (Q13).
	Duplicate bool
}

// Put takes a message in. It is ready, or delayed; [Ledger.HandOver] lends it.
//
// Errors: [*messages.QueueFullError]; [*messages.PutError] because of ErrIDReused,
// ErrExpired, ErrDraining, ErrQueueClosed or ErrQuarantined. A refused put changes
// nothing but a counter. A duplicate is no error, and is told before a full queue
// or a deadline that has come meanwhile: the first put was taken.
//
// It panics if the priority is out of range: the door has checked it.
func (l *Ledger) Put(now time.Time, p *Put) (PutResult, error) {
	l.advance(now)
	return l.put(now, p, 0)
}

// put is Put, and Redrive of the letter with that number when it is not 0.
func (l *Ledger) put(now time.Time, p *Put, letter uint64) (PutResult, error) {
	var in arrival
	in.Put, in.Past, in.details, in.letter, in.expires = p, p.Past, p.Details, letter, never
	if in.details == nil {
		in.details = noDetails
	}
	if in.Past == nil {
		in.Past = newcomer
	}
	if uint(in.details.Priority) > messages.PriorityMax {
		panic(fmt.Sprintf("ledger: put with priority %d", in.details.Priority))
	}
	delay := max(0, p.Delay)
	if in.Redriven {
		delay = 0
		if !in.details.ExpiresAt.IsZero() { // shared with the letter, which keeps its own
			without := *in.details
			without.ExpiresAt = time.Time{}
			in.details = &without
		}
	}
	switch {
	case l.gone != nil:
		return l.refusePut(p, *l.gone)
	case l.draining:
		return l.refusePut(p, messages.ErrDraining)
	}

	if p.GivenID {
		if in.hash = p.Hash; in.hash == 0 {
			in.hash = l.hash(p.ID)
		}
		if s := l.index.find(in.hash, p.ID, &l.claims); s != nil {
			if l.behind {
				// What is due may free the id; the verdict is that of a ledger on time.
				l.catchUp()
				s = l.index.find(in.hash, p.ID, &l.claims)
			}
			if s != nil {
				if taken, r, err := l.taken(&in, s); taken {
					return r, err
				}
			}
		}
	}

	if !in.details.ExpiresAt.IsZero() {
		// The deadline is wall time and the ledger's is not: what remains of it now,
		// on the wall clock, is laid onto the monotonic one. A later step of the wall
		// clock neither kills the message early nor keeps it alive. A now that was
		// clamped counts as later by as much (K3).
		clamped := time.Duration(l.now) - now.Sub(l.start)
		remains := in.details.ExpiresAt.Round(0).Sub(now.Round(0).Add(clamped))
		if remains <= 0 {
			return l.refusePut(p, messages.ErrExpired)
		}
		in.expires = addSat(l.now, int64(remains))
	}
	if l.config.TTL > 0 {
		in.expires = min(in.expires, addSat(l.now, int64(l.config.TTL)))
	}
	in.due = addSat(l.now, int64(delay))
	// A ledger that is behind has messages whose due instant lies before this put:
	// it takes its place after them, by waiting among the delayed until now.
	in.waits = in.due > l.now || l.behind

	in.weighShared()
	size := int64(len(p.ID)+len(p.Body)) + in.sharedBytes
	fits, err := l.admits(size, uint8(in.details.Priority))
	if !fits && l.behind {
		l.catchUp() // what is due may make room
		in.waits = in.due > l.now
		fits, err = l.admits(size, uint8(in.details.Priority))
	}
	if err != nil {
		l.counters.more().Refusals++
		return PutResult{}, err
	}
	e := l.enter(&in)
	number := e.number
	if !fits {
		l.makeRoom(e)
	}
	return PutResult{Number: number}, nil
}

func (l *Ledger) refusePut(p *Put, reason error) (PutResult, error) {
	l.counters.more().Refusals++
	return PutResult{}, &messages.PutError{Queue: l.source.Queue, ID: p.ID, Reason: reason}
}

// taken gives the verdict on a put whose id is in the index: with the same body it
// is the same message again, with another one a mistake (Q13, L). False: the id is
// held by nothing but the claim that the redriven message itself left behind, and
// that never blocks it (R8).
func (l *Ledger) taken(in *arrival, s *indexSlot) (bool, PutResult, error) {
	var number uint64
	var same bool
	if s.e != nil {
		number, same = s.e.number, s.e.body == string(in.Body)
	} else {
		c := l.claims.at(s.claim)
		number, same = c.number, c.body == maphash.Bytes(l.seed, in.Body)
		if same && in.Redriven {
			return false, PutResult{}, nil
		}
	}
	if !same {
		r, err := l.refusePut(in.Put, messages.ErrIDReused)
		return true, r, err
	}
	l.counters.more().Duplicates++
	return true, PutResult{Number: number, Duplicate: true}, nil
}

// arrival is a decided put: nothing about it can be refused any more.
type arrival struct {
	*Put
	*Past                         // never nil
	details     *messages.Details // likewise
	hash        uint32
	sharedBytes int64
	letter      uint64 // of this queue, which leaves the dead in the same step
	due         int64
	waits       bool // delayed until due
	expires     int64
}

// weighShared weighs headers and extra.
func (in *arrival) weighShared() {
	in.sharedBytes = int64(len(in.details.Extra))
	if len(in.Headers) == 0 {
		return // ranging over none costs as much as taking the message in
	}
	for header, value := range in.Headers {
		in.sharedBytes += int64(len(header) + len(value))
	}
}

// enter is the transition of a put or redrive.
func (l *Ledger) enter(in *arrival) *entry {
	l.wake()
	if l.journal {
		due := int64(never)
		if in.waits {
			due = in.due
		}
		l.record(Record{
			Kind: RecordPut, Number: l.lastPut + 1, ID: in.ID, GivenID: in.GivenID, Body: in.Body, Headers: in.Headers,
			Details: in.details, Due: l.time(due), Expires: l.time(in.expires), Redriven: in.Redriven, Letter: in.letter,
			Deliveries: in.Deliveries, History: in.History, Deaths: in.Deaths,
		})
	}
	l.lastPut++
	e := l.spares.entry()
	e.number, e.enqueued = l.lastPut, l.clock
	e.id, e.details = in.ID, in.details
	if in.Owner != nil {
		e.owner = l.owners.add(in.Owner)
	}
	e.body = unsafe.String(unsafe.SliceData(in.Body), len(in.Body))
	e.priority = uint8(in.details.Priority)
	if len(in.Headers) > 0 || in.sharedBytes > 0 {
		r := l.rarely(e)
		r.headers, r.sharedBytes = in.Headers, in.sharedBytes
	}
	if in.Past != newcomer {
		r := l.rarely(e)
		r.untried, r.history, r.deaths = in.Deliveries, in.History, in.Deaths
		if n := len(in.History); n > 0 {
			r.lastError = in.History[n-1].Error
		}
	}
	if in.Redriven {
		l.counters.more().RedrivenIn++
		if in.letter != 0 {
			l.counters.more().RedrivenOut++
			l.letters.remove(in.letter)
		}
	} else {
		l.counters.Puts++
	}
	l.bytes += e.bytes()
	if in.GivenID {
		if in.Redriven {
			if s := l.index.find(in.hash, in.ID, &l.claims); s != nil {
				l.freeClaim(s.claim) // taken has allowed it; no record, the put says it
			}
		}
		e.flags |= given
		e.hash = in.hash
		l.index.add(indexSlot{hash: in.hash, e: e})
	}
	if in.waits {
		l.delay(e, in.due, e.number)
	} else {
		l.makeReady(e)
	}
	l.setExpiry(e, in.expires)
	return e
}

// setExpiry puts a message that is not leased into the heap of lifetimes.
func (l *Ledger) setExpiry(e *entry, at int64) {
	if at != never {
		l.lifetimes.push(at, e.number, e)
	}
}

// makeReady puts a message at the end of its lane.
func (l *Ledger) makeReady(e *entry) {
	e.state = ready
	l.readyN++
	l.lanes.push(e)
	if !e.has(aged) {
		e.flags |= aged
		if l.clock != e.enqueued {
			l.rarely(e).firstReady = l.clock
		}
		l.age.push(e)
	}
}

// delay puts a message into the heap of delays. Those due at one instant come out
// by order: the tag of the lease they come from, or the put number (Q12).
func (l *Ledger) delay(e *entry, due int64, order uint64) {
	e.state = delayed
	l.delayedN++
	l.delays.push(due, order, e)
}

// unplace takes a message out of the container of its state.
func (l *Ledger) unplace(e *entry) {
	switch e.state {
	case ready:
		l.readyN--
		l.lanes.remove(e)
	case delayed:
		l.delayedN--
		l.delays.remove(e)
	case waiting:
		l.delayedN--
		l.budget.line.remove(e)
	default:
		panic("ledger: unplace of a message that is " + e.state.String())
	}
}

// leave forgets a message that is in no container any more; its id stays claimed
// when keepsClaim says so and its window is open.
func (l *Ledger) leave(e *entry, keepsClaim bool) {
	l.forgetID(e, keepsClaim)
	if e.has(aged) {
		l.leaveAge(e)
	}
	l.bytes -= e.bytes()
	if e.owner != 0 {
		l.tellOwner(e)
	}
	if e.rare != nil {
		l.giveRare(e.rare)
	}
	l.spares.giveEntry(e)
}
