package ledger

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/postroom/postroom/messages"
)

// Put is one message on its way in.
type Put struct {
	// Envelope's ID must be set: the broker has made one where the caller gave none.
	Envelope messages.Envelope
	// GivenID says that the caller chose the id. Only such an id is indexed (SPEC E3).
	GivenID bool
	// Details are shared by the copies of one publication and win over the
	// envelope's own; nil: made from Envelope.Split.
	Details *messages.Details
	// Owner is told by an effect [Settled] when the message is acked, dead, purged or
	// dropped. Nil: nobody. Must be of a pointer type.
	Owner any

	// Redriven marks a letter of another queue (R8): ExpiresAt and Delay are dropped,
	// attempts begin anew, Deliveries, History and Deaths go on from where they were.
	Redriven   bool
	Deliveries int
	History    []messages.Death
	Deaths     int
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
	in := arrival{
		id: p.Envelope.ID, given: p.GivenID, body: p.Envelope.Body, headers: p.Envelope.Headers,
		details: p.Details, owner: p.Owner, redriven: p.Redriven, letter: letter,
		deliveries: p.Deliveries, history: p.History, deaths: p.Deaths, expires: never,
	}
	if in.details == nil {
		in.details = p.Envelope.Split()
	}
	if uint(in.details.Priority) > messages.PriorityMax {
		panic(fmt.Sprintf("ledger: put with priority %d", in.details.Priority))
	}
	delay := max(0, p.Envelope.Delay)
	if p.Redriven {
		delay = 0
		if !in.details.ExpiresAt.IsZero() { // shared with the letter, which keeps its own
			without := *in.details
			without.ExpiresAt = time.Time{}
			in.details = &without
		}
	}
	switch {
	case l.gone != nil:
		return l.refusePut(p, l.gone)
	case l.draining:
		return l.refusePut(p, messages.ErrDraining)
	}

	if in.given {
		in.hash = l.hashOf(in.id)
		if s := l.index.find(in.hash, in.id, &l.claims); s != nil {
			if l.behind {
				// What is due may free the id; the verdict is that of a ledger on time.
				l.catchUp()
				s = l.index.find(in.hash, in.id, &l.claims)
			}
			if s != nil {
				if taken, r, err := l.taken(p, s); taken {
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

	for header, value := range in.headers {
		in.headerBytes += int64(len(header) + len(value))
	}
	size := int64(len(in.id)+len(in.body)+len(in.details.Extra)) + in.headerBytes
	fits, err := l.admits(size, uint8(in.details.Priority))
	if !fits && l.behind {
		l.catchUp() // what is due may make room
		in.waits = in.due > l.now
		fits, err = l.admits(size, uint8(in.details.Priority))
	}
	if err != nil {
		l.counters.Refusals++
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
	l.counters.Refusals++
	return PutResult{}, &messages.PutError{Queue: l.source.Queue, ID: p.Envelope.ID, Reason: reason}
}

// taken gives the verdict on a put whose id is in the index: with the same body it
// is the same message again, with another one a mistake (Q13, L). False: the id is
// held by nothing but the claim that the redriven message itself left behind, and
// that never blocks it (R8).
func (l *Ledger) taken(p *Put, s *indexSlot) (bool, PutResult, error) {
	var number uint64
	var same bool
	if s.e != nil {
		number, same = s.e.number, bytes.Equal(s.e.body, p.Envelope.Body)
	} else {
		c := l.claims.at(s.claim)
		number, same = c.number, c.body == maphash.Bytes(l.seed, p.Envelope.Body)
		if same && p.Redriven {
			return false, PutResult{}, nil
		}
	}
	if !same {
		r, err := l.refusePut(p, messages.ErrIDReused)
		return true, r, err
	}
	l.counters.Duplicates++
	return true, PutResult{Number: number, Duplicate: true}, nil
}

// arrival is a decided put: nothing about it can be refused any more.
type arrival struct {
	id          string
	given       bool
	hash        uint32
	body        []byte
	headers     map[string]string
	headerBytes int64
	details     *messages.Details
	owner       any
	redriven    bool
	letter      uint64 // of this queue, which leaves the dead in the same step
	deliveries  int
	history     []messages.Death
	deaths      int
	due         int64
	waits       bool // delayed until due
	expires     int64
}

// enter is the transition of a put or redrive.
func (l *Ledger) enter(in *arrival) *entry {
	if l.journal {
		due := int64(never)
		if in.waits {
			due = in.due
		}
		l.record(Record{
			Kind: RecordPut, Number: l.lastPut + 1, ID: in.id, GivenID: in.given, Body: in.body, Headers: in.headers,
			Details: in.details, Due: l.time(due), Expires: l.time(in.expires), Redriven: in.redriven, Letter: in.letter,
			Deliveries: in.deliveries, History: in.history, Deaths: in.deaths,
		})
	}
	l.lastPut++
	e := l.spares.entry()
	e.number, e.enqueued = l.lastPut, l.clock
	e.id, e.body, e.details = in.id, in.body, in.details
	e.priority = uint8(in.details.Priority)
	e.deliveries = int32(in.deliveries)
	if len(in.headers) > 0 || in.owner != nil || in.deaths > 0 || len(in.history) > 0 {
		r := l.rarely(e)
		r.headers, r.headerBytes, r.owner = in.headers, in.headerBytes, in.owner
		r.history, r.deaths = in.history, in.deaths
		if n := len(in.history); n > 0 {
			r.lastError = in.history[n-1].Error
		}
	}
	if in.redriven {
		l.counters.RedrivenIn++
		if in.letter != 0 {
			l.counters.RedrivenOut++
			l.letters.remove(in.letter)
		}
	} else {
		l.counters.Puts++
	}
	l.bytes += e.bytes()
	if in.given {
		if in.redriven {
			if s := l.index.find(in.hash, in.id, &l.claims); s != nil {
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
		e.firstReady = l.clock
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
	if e.rare != nil && e.rare.owner != nil {
		l.effects = append(l.effects, Effect{Kind: Settled, Owner: e.rare.owner})
	}
	l.spares.giveEntry(e)
}
