package ledger

import (
	"hash/maphash"
	"time"

	"github.com/postroom/postroom/messages"
)

// Options is what a ledger is given besides its configuration.
type Options struct {
	// Draw is the injected source of full jitter (SPEC R1): the same queue, put number and
	// failure give the same number in one run. Nil: the bound itself is waited.
	Draw func(of *messages.Source, put, failure uint64) uint64
	// Journal keeps a [Record] of every durable change until [Ledger.TakeRecords].
	// Off costs nothing.
	Journal bool
}

// Ledger holds the messages of one queue incarnation. It is not safe for
// concurrent use: exactly one actor owns it.
//
// Each method that takes now first settles what fell due by then, in order of
// time, and appends to [Ledger.Effects]; a now before the latest one seen counts
// as that one (SPEC K3). At most a slice of events is settled per call; while more
// are left ([Ledger.Behind]) nothing is handed over, and every verdict is given as
// if all were done (Q10).
//
// Invariants, checked by [Ledger.CheckInvariants]:
//
//  1. Every message is in exactly one container, that of its state: its lane, the
//     heap of delays, the retry budget's line, or under its tag.
//  2. puts + redriven in = ready + delayed + leased + acks + dead + purged + dropped,
//     and each count equals a recount (R10, B3).
//  3. bytes is the sum over the messages, in all and for each priority's ready ones,
//     and neither it nor their number is over its bound (A1).
//  4. The index holds exactly the live messages whose id the caller gave and the
//     window claims, each reachable by its id (Q13); claims are within DedupLimit.
//  5. Heaps are ordered and know the place of each member; a message with an end
//     and without a lease is in the heap of lifetimes, and no other one is.
//  6. Lanes, lists and their mask agree; the list of leases is in order of deadline
//     and tag, each holder's list of leases without timeout in order of tag, the age
//     list in order of first-ready instant and holds exactly those once ready.
//  7. Nothing due is left, unless Behind; no attempt is over MaxAttempts or over the
//     deliveries; no lease outlives MaxLease.
//  8. A consumer's and a session's leases are counted with it, exactly those attached with credit
//     are in line, and Gets are in line until they are served.
//  9. Tags in hand are those of running leases, none above the last one; the ended
//     leases remembered are at most 4,096 and none of them is running (Q8).
//  10. Letters are in order of number, their count and bytes equal a recount and are
//     within bounds, each is found under its id, and
//     dead = letters + redriven out + discarded + trimmed + dropped letters.
//  11. The retry budget's line is empty or the budget has no room (R9).
//  12. Nothing is in the work that ledgers at rest share.
//  13. Each owner is counted once for each of its messages, and in its place while it has any.
type Ledger struct {
	source *messages.Source
	config *messages.QueueConfig // shared, never written
	start  time.Time
	draw   func(of *messages.Source, put, failure uint64) uint64
	seed   maphash.Seed
	latest time.Time // given last

	now   int64 // latest time seen
	clock int64 // instant of what is being done: that of the event while settling, else now

	gone       *error // why no command is taken: closed or quarantined; nil while in service
	journal    bool
	folding    bool // records decide, nothing else does
	settled    bool // all that was due by now is done
	paused     bool
	draining   bool
	behind     bool
	ageRaised  bool // the MaxAge alarm is raised and not re-armed (A2)
	lastPut    uint64
	lastTag    uint64 // given out last (Q3)
	lastLetter uint64

	readyN, delayedN, leasedN int
	bytes                     int64
	counters                  counters

	// What every message passes is here; what few pass is in work, one step further.
	age    ageList
	index  index
	tags   tags
	ended  ended
	leases list // leases with the queue's own timeout, by deadline and tag
	spares spares

	effects []Effect
	filled  *filled
	*work
}

// work is what only a queue needs that holds something or has somebody waiting: of
// 100,000 queues most are at rest. It is made when the first of that comes, see
// [Ledger.wake], and [Ledger.Trim] lets go of it.
type work struct {
	lanes     readyLanes
	delays    heap // delayed messages by due instant, then tag or put number
	lifetimes heap // messages with an end, unless leased
	claims    claims

	timers   heap               // leases with any other deadline
	holders  map[string]*holder // of leases without timeout (Q17)
	spare    *holder
	sessions map[string]*session // with leases

	budget budget
	line   takers
	seats  seats

	letters letters
	owners  owners
	rares   []*rare // spare
	pages   []*page // likewise, of tags
	records []Record
	scratch *scratch // of CheckInvariants
}

// atRest is the work of all ledgers that have none, so that nobody has to ask whether
// there is any before looking into it. It is never written to: what begins something
// calls wake first, and all else finds nothing here that it could change.
var atRest = work{lifetimes: heap{ttl: true}}

// wake is called before the first message comes in or somebody waits for one.
func (l *Ledger) wake() {
	if l.work == &atRest {
		l.work = &work{lifetimes: heap{ttl: true}}
	}
}

// rest lets go of the work when nothing would be lost with it.
func (l *Ledger) rest() {
	if l.total() == 0 && l.work.empty() {
		l.work = &atRest
	}
}

func (w *work) empty() bool {
	return w.lanes.mask == 0 && len(w.delays.slots) == 0 && len(w.lifetimes.slots) == 0 &&
		len(w.claims.heap) == 0 && len(w.timers.slots) == 0 && len(w.holders) == 0 && len(w.sessions) == 0 &&
		w.budget == budget{} && w.line.first == nil && w.seats.first == nil &&
		w.letters.n == 0 && len(w.records) == 0
}

// New returns the ledger of an empty queue. config must have its defaults in place,
// and is shared: nobody may change it any more. start is the origin of the ledger's
// time, and source what every delivery says about its queue.
func New(source *messages.Source, config *messages.QueueConfig, start time.Time, o Options) *Ledger {
	return &Ledger{
		source: source, config: config, start: start, draw: o.Draw, journal: o.Journal,
		seed: maphash.MakeSeed(), work: &atRest,
	}
}

// Config returns the configuration in force.
func (l *Ledger) Config() messages.QueueConfig { return *l.config }

// time turns an instant of the ledger into one of the world; never becomes the
// zero time.
func (l *Ledger) time(at int64) time.Time {
	if at == never {
		return time.Time{}
	}
	return l.start.Add(time.Duration(at))
}

// filled is what the deliveries of one turn mostly have in common.
type filled struct {
	enqueued, deadline instant
	// plain are the details of messages that have none, in a holder's hands. He must not
	// write to them; if he does all the same, it is no other queue's messages that he
	// changes, or another broker's (SPEC B6).
	plain messages.Details
}

type instant struct {
	at int64
	t  time.Time // zero: none yet
}

func (i *instant) of(l *Ledger, at int64) time.Time {
	if i.at != at || i.t.IsZero() {
		i.at, i.t = at, l.time(at)
	}
	return i.t
}

// closed and quarantined are what a ledger's gone points to: half as large as an error,
// for there is one in each queue.
var closed, quarantined = &messages.ErrQueueClosed, &messages.ErrQuarantined

// total is how many messages MaxMessages counts.
func (l *Ledger) total() int { return l.readyN + l.delayedN + l.leasedN }

// refuse answers a command other than a put while the queue is out of service.
func (l *Ledger) refuse(op string) error {
	if l.gone == nil {
		return nil
	}
	return &messages.QueueStateError{Op: op, Queue: l.source.Queue, Reason: *l.gone}
}
