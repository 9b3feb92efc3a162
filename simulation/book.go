package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// book is what an onlooker knows of one queue incarnation from its records alone.
// It checks each against what came before (SIMULATION 1.3), independently of the
// ledger's own state and of the model.
type book struct {
	twin *twin

	pages

	lastPut, lastTag, lastLetter uint64
	readied                      uint64
	ready, delayed, leased       int
	paused, closed               bool
}

// pages is what a book is written in.
type pages struct {
	live     map[uint64]*entryNote // by put number: ready, delayed or leased
	byTag    map[uint64]*entryNote // running leases
	claims   map[string]claimNote  // caller's ids: who had it last
	holds    map[string]int        // running leases by holder
	prefetch map[string]int        // of consumers attached
	letters  map[uint64]letterName
	past     []pastLease // by tag
	// What has gone keeps its note until the run is over: somebody may still look at it.
	gone, spare []*entryNote
}

func newPages() pages {
	return pages{
		live: map[uint64]*entryNote{}, byTag: map[uint64]*entryNote{}, claims: map[string]claimNote{},
		holds: map[string]int{}, prefetch: map[string]int{}, letters: map[uint64]letterName{},
	}
}

func (p *pages) clear() {
	for _, n := range p.live {
		p.gone = append(p.gone, n)
	}
	for _, n := range p.gone {
		*n = entryNote{}
	}
	p.spare = append(p.spare, p.gone...)
	clear(p.gone)
	p.gone = p.gone[:0]
	clear(p.live)
	clear(p.byTag)
	clear(p.claims)
	clear(p.holds)
	clear(p.prefetch)
	clear(p.letters)
	clear(p.past)
	p.past = p.past[:0]
}

// pastOf is the past of a tag, to be written; valid until the next call.
func (p *pages) pastOf(tag uint64) *pastLease {
	for uint64(len(p.past)) <= tag {
		p.past = append(p.past, pastLease{})
	}
	return &p.past[tag]
}

// entry is a blank note.
func (p *pages) entry() *entryNote {
	if last := len(p.spare) - 1; last >= 0 {
		n := p.spare[last]
		p.spare[last], p.spare = nil, p.spare[:last]
		return n
	}
	return &entryNote{}
}

// placeNote is where a message is.
type placeNote uint8

const (
	noteReady placeNote = iota
	noteDelayed
	noteLeased
)

// entryNote is one message of the book.
type entryNote struct {
	story      *story
	message    string
	id         string
	given      bool
	system     bool // an event of the broker's own, whose death is not announced
	put        uint64
	generation int
	priority   int
	place      placeNote
	lane       int    // 0 interrupted, 1 failed, 2 fresh, as they are served
	seq        uint64 // place in its lane
	due        time.Time
	expires    time.Time
	at         time.Time // of its put

	attempt, deliveries int
	tag                 uint64
	holder              string
	granted, deadline   time.Time
	noTimeout           bool
	last                int // its latest event
}

type claimNote struct {
	put  uint64
	at   time.Time // of the put
	dead bool
}

func newBook(t *twin) *book {
	return &book{twin: t, pages: t.lab.spec.room.takePages()}
}

// object is a violation of safety seen in the records.
func (b *book) object(invariant, roles, format string, args ...any) {
	b.twin.lab.object("safety", invariant, roles, fmt.Sprintf("queue %s: ", b.twin.source.Queue)+fmt.Sprintf(format, args...))
}

// since is an instant as events have it; 0 for none.
func since(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return at.Sub(Epoch)
}

// tellRecords turns what the ledger has recorded into events.
func (t *twin) tellRecords() {
	told := len(t.records)
	t.records = t.core.MoveRecords(t.records)
	for ; told < len(t.records) && !t.lab.over; told++ {
		t.book.tell(&t.records[told])
		t.changed = true
	}
}

// event begins the event of a message.
func (b *book) event(k Kind, n *entryNote) Event {
	return Event{
		Kind: k, Queue: b.twin.source.Queue, Message: n.message, Put: n.put, Generation: n.generation,
		Attempt: n.attempt, Deliveries: n.deliveries, Cause: n.last,
	}
}

// emit sends the event of a message on its way and makes it the cause of the next.
func (b *book) emit(n *entryNote, e Event) { n.last = b.twin.lab.emitOf(n.story, e) }

func (b *book) move(n *entryNote, to placeNote) {
	b.count(n.place, -1)
	n.place = to
	b.count(to, 1)
	if to == noteReady {
		b.readied++
		n.seq = b.readied
	}
}

func (b *book) count(p placeNote, by int) {
	switch p {
	case noteReady:
		b.ready += by
	case noteDelayed:
		b.delayed += by
	case noteLeased:
		b.leased += by
	}
}

// find is the live message of a record; anything told of another one would be a
// return from the dead.
func (b *book) find(r *ledger.Record) *entryNote {
	n := b.live[r.Number]
	if n == nil {
		b.object("I3", r.Kind.String()+" after its end", "put %d: %v after its end, or before its beginning", r.Number, r.Kind)
	}
	return n
}

// tell checks one record and emits what it tells of.
func (b *book) tell(r *ledger.Record) {
	l := b.twin.lab
	if at := since(r.At); at > l.now() {
		b.object("I25", r.Kind.String()+" in the future", "%v recorded at %v, now is %v", r.Kind, at, l.now())
	}
	switch r.Kind {
	case ledger.RecordPut:
		b.tellPut(r)
	case ledger.RecordLent:
		b.tellLent(r)
	case ledger.RecordAcked:
		if n := b.find(r); n != nil && b.endLease(n, r, messages.LeaseAcked) {
			e := b.event(KindSettle, n)
			e.Tag, e.Verb, e.Consumer = r.Tag, "ack", n.holder
			b.leave(n, e)
			if c, ok := b.claims[n.id]; ok && c.put == n.put {
				c.dead = true
				b.claims[n.id] = c
			}
		}
	case ledger.RecordReturned:
		b.tellReturned(r)
	case ledger.RecordDue, ledger.RecordRetried:
		n := b.find(r)
		if n == nil {
			return
		}
		if n.place != noteDelayed || r.Kind == ledger.RecordDue && r.At.Before(n.due) {
			b.object("I16", "ready before its instant", "%s is ready at %v, it was due at %v", n.message, since(r.At), since(n.due))
			return
		}
		if r.Waits {
			n.due = time.Time{}
			return // for the retry budget; counted as delayed
		}
		b.move(n, noteReady)
		e := b.event(KindReady, n)
		b.emit(n, e)
	case ledger.RecordDied:
		b.tellDied(r)
	case ledger.RecordTrimmed, ledger.RecordDiscarded, ledger.RecordRedrivenOut:
		b.letterGone(r.Kind, r.Letter)
	case ledger.RecordPurged:
		b.dropAll(KindPurged, false)
	case ledger.RecordClaimFreed, ledger.RecordClaimDropped:
		delete(b.claims, r.ID)
	case ledger.RecordPaused, ledger.RecordResumed, ledger.RecordDraining:
		b.paused = r.Kind == ledger.RecordPaused || b.paused && r.Kind == ledger.RecordDraining
		l.emit(Event{Kind: KindQueue, Queue: b.twin.source.Queue, Detail: r.Kind.String(), Cause: l.doing})
	case ledger.RecordClosed:
		b.closed = true
		b.dropAll(KindDropped, true)
		for _, number := range sortedKeys(b.letters) {
			b.letterGone(r.Kind, number)
		}
		l.emit(Event{Kind: KindQueue, Queue: b.twin.source.Queue, Detail: "closed", Cause: l.doing})
	}
}

func (b *book) tellPut(r *ledger.Record) {
	l := b.twin.lab
	if r.Number != b.lastPut+1 {
		b.object("I5", "put number out of turn", "put %d follows put %d", r.Number, b.lastPut)
	}
	b.lastPut = r.Number
	s := l.storyOf(r.ID)
	name := s.name
	n := b.entry()
	*n = entryNote{
		story: s, message: name, id: r.ID, given: r.GivenID, system: strings.HasPrefix(r.Details.Topic, messages.SystemTopics), put: r.Number, generation: s.accepted, at: r.At,
		priority: r.Details.Priority, lane: 2, due: r.Due, expires: r.Expires, deliveries: r.Deliveries, last: s.last,
	}
	if b.twin.putting != r.ID && r.Letter == 0 {
		b.object("I2", "accepted another than was put", "%s was put and %s is accepted", b.twin.putting, r.ID)
	}
	if s.attempts == 0 && !r.Redriven {
		b.object("I2", "accepted what nobody put", "%s (%s) was never put", name, r.ID)
	}
	if r.GivenID {
		if c, ok := b.claims[r.ID]; ok && !c.dead && b.live[c.put] != nil {
			b.object("I22", "one id accepted twice", "%s is in the queue as put %d and was accepted as put %d", r.ID, c.put, r.Number)
		}
		b.claims[r.ID] = claimNote{put: r.Number, at: r.At}
	}
	s.accepted++
	if !r.Redriven {
		s.taken++
	}
	b.live[n.put] = n
	b.count(noteReady, 1)
	e := b.event(KindAccepted, n)
	if r.Redriven {
		e.Reason = "redriven"
		e.Cause = l.doing
		l.hit(HitRedrive)
	}
	if !r.Due.IsZero() {
		b.move(n, noteDelayed)
		e.Deadline = since(r.Due)
	} else {
		b.move(n, noteReady)
	}
	b.emit(n, e)
	if r.Letter != 0 {
		b.letterGone(ledger.RecordRedrivenOut, r.Letter)
	}
}

func (b *book) tellLent(r *ledger.Record) {
	n := b.find(r)
	if n == nil {
		return
	}
	l, c := b.twin.lab, b.twin.config
	switch {
	case n.place == noteLeased:
		b.object("I7", "grant during a lease", "%s is lent as tag %d while tag %d runs", n.message, r.Tag, n.tag)
	case n.place == noteDelayed:
		b.object("I16", "grant before its instant", "%s is lent at %v, it is delayed until %v", n.message, since(r.At), since(n.due))
	case r.Tag != b.lastTag+1:
		b.object("I8", "tag out of turn", "tag %d follows tag %d", r.Tag, b.lastTag)
	case r.Deliveries != n.deliveries+1 || r.Attempt != n.attempt+1:
		b.object("I14", "grant counted wrong", "%s: attempt %d after %d, delivery %d after %d", n.message, r.Attempt, n.attempt, r.Deliveries, n.deliveries)
	case c.MaxAttempts >= 0 && r.Attempt > c.MaxAttempts:
		b.object("I15", "grant beyond the last attempt", "%s: attempt %d of %d", n.message, r.Attempt, c.MaxAttempts)
	case !n.expires.IsZero() && !r.At.Before(n.expires):
		b.object("I18", "grant after expiry", "%s is lent at %v, it expired at %v", n.message, since(r.At), since(n.expires))
	case b.paused:
		b.object("I13", "grant of a paused queue", "%s is lent", n.message)
	}
	for _, o := range b.live {
		if o == n || o.place != noteReady {
			continue
		}
		switch {
		case o.priority > n.priority:
			b.object("I20", "grant before a higher priority", "%s of priority %d is lent while %s of %d is ready", n.message, n.priority, o.message, o.priority)
		case o.priority == n.priority && (o.lane < n.lane || o.lane == n.lane && o.seq < n.seq):
			b.object("I19", "grant out of turn", "%s is lent while %s stands before it", n.message, o.message)
		}
		if o.priority < n.priority && o.seq < n.seq {
			l.hit(HitPriority)
		}
	}
	b.lastTag = r.Tag
	n.attempt, n.deliveries = r.Attempt, r.Deliveries
	n.tag, n.holder, n.granted, n.deadline, n.noTimeout = r.Tag, r.Consumer, r.At, r.Deadline, r.NoTimeout
	b.move(n, noteLeased)
	b.byTag[r.Tag] = n
	b.holds[n.holder]++
	if most, ok := b.prefetch[n.holder]; ok && b.holds[n.holder] > most {
		b.object("I13", "more leases than the consumer may have", "%s has %d leases of %d", n.holder, b.holds[n.holder], most)
	}
	if n.deliveries > 1 {
		l.result.Categories.DuplicateLegal++
	}
	e := b.event(KindGrant, n)
	e.Tag, e.Consumer, e.Deadline = r.Tag, r.Consumer, since(r.Deadline)
	l.nameWorker(&e)
	b.emit(n, e)
}

// endLease ends the running lease of n, which must be the one of the record.
func (b *book) endLease(n *entryNote, r *ledger.Record, how messages.LeaseEnd) bool {
	if n.place != noteLeased || n.tag != r.Tag {
		b.object("I10", r.Kind.String()+" without the current receipt", "%s: %v by tag %d, the running lease is tag %d", n.message, r.Kind, r.Tag, n.tag)
		return false
	}
	late := !n.deadline.IsZero() && !r.At.Before(n.deadline)
	switch {
	case how == messages.LeaseExpired && (n.deadline.IsZero() || r.At.Before(n.deadline)):
		b.object("I11", "lease expires early", "tag %d of %s expires at %v, its deadline is %v", n.tag, n.message, since(r.At), since(n.deadline))
	case how == messages.LeaseExpired && r.At.After(n.deadline):
		b.object("I11", "lease expires late", "tag %d of %s expires at %v, its deadline was %v", n.tag, n.message, since(r.At), since(n.deadline))
	case how != messages.LeaseExpired && how != messages.LeaseReturned && late:
		b.object("I11", "settled after its deadline", "tag %d of %s is settled at %v, its deadline was %v", n.tag, n.message, since(r.At), since(n.deadline))
	}
	delete(b.byTag, n.tag)
	past := b.pastOf(n.tag)
	past.deadline, past.message = n.deadline, n.message
	if b.holds[n.holder]--; b.holds[n.holder] == 0 {
		delete(b.holds, n.holder)
	}
	b.twin.lab.leaseOver(b.twin, n.tag, how)
	return true
}

// leaseEvent is the event of a lease's end.
func (b *book) leaseEvent(n *entryNote, r *ledger.Record) Event {
	e := b.event(KindSettle, n)
	e.Tag, e.Consumer, e.Deadline = r.Tag, n.holder, since(r.Due)
	switch r.How {
	case messages.LeaseExpired:
		e.Kind = KindExpire
		b.twin.lab.hitExpire(b.twin, n.tag)
	case messages.LeaseReturned:
		if e.Verb = "release"; b.twin.op != "release" {
			e.Kind, e.Verb = KindTaken, ""
		}
	default:
		e.Verb = b.twin.verb.String()
	}
	if r.Interrupted {
		e.Detail = "interrupted"
	}
	if e.Kind == KindSettle && b.twin.settleBy != 0 {
		e.Cause = b.twin.settleBy
	}
	b.twin.lab.nameWorker(&e)
	return e
}

func (b *book) tellReturned(r *ledger.Record) {
	n := b.find(r)
	if n == nil || !b.endLease(n, r, r.How) {
		return
	}
	most := b.twin.config.MaxAttempts
	if !r.Interrupted && most >= 0 && n.attempt >= most {
		b.object("I15", "goes back after its last attempt", "%s failed attempt %d of %d and goes back", n.message, n.attempt, most)
	}
	if r.Interrupted && r.How == messages.LeaseExpired {
		b.checkUntried(n, r)
	}
	e := b.leaseEvent(n, r)
	if r.Interrupted {
		n.attempt--
		n.lane = 0
	} else {
		n.lane = 1
	}
	n.due = r.Due
	if !r.Due.IsZero() || r.Waits {
		b.move(n, noteDelayed)
	} else {
		b.move(n, noteReady)
	}
	b.emit(n, e)
}

// checkUntried objects to an expiry that spends no attempt although a handler worked
// on it for longer than a consumer takes to say so, a third of the lease.
func (b *book) checkUntried(n *entryNote, r *ledger.Record) {
	l := b.twin.lab
	j := l.jobs[leaseKey{b.twin.source.Queue, b.twin.source.Incarnation, r.Tag}]
	if j == nil || l.actorDown {
		return
	}
	if worked := l.rt.now.Sub(j.began); worked > b.twin.config.AckTimeout/2 {
		b.object("I14", "expiry of a begun attempt is not counted", "%s worked on %s for %v before tag %d expired as never begun", j.worker.name, n.message, worked, r.Tag)
	}
}

func (b *book) tellDied(r *ledger.Record) {
	n := b.find(r)
	if n == nil {
		return
	}
	l := b.twin.lab
	if r.Tag != 0 {
		if !b.endLease(n, r, r.How) {
			return
		}
		b.emit(n, b.leaseEvent(n, r))
	} else if n.place == noteLeased {
		b.object("I4", "dies during a lease", "%s dies (%v) while tag %d runs", n.message, r.Reason, n.tag)
	}
	switch r.Reason {
	case messages.MaxAttempts:
		if most := b.twin.config.MaxAttempts; n.attempt < most {
			b.object("I15", "dies before its last attempt", "%s dies of attempts after %d of %d", n.message, n.attempt, most)
		}
		if b.twin.verb == messages.VerbNack {
			l.hit(HitNackAtMax)
		}
	case messages.Expired:
		if n.expires.IsZero() || r.At.Before(n.expires) || r.Tag == 0 && r.At.After(n.expires) {
			b.object("I18", "dies at another instant than its expiry", "%s dies at %v, it expires at %v", n.message, since(r.At), since(n.expires))
		}
	case messages.Overflowed:
		l.hit(HitOverflow)
	}
	if r.Letter != b.lastLetter+1 {
		b.object("I17", "letter number out of turn", "letter %d follows %d", r.Letter, b.lastLetter)
	}
	b.lastLetter = r.Letter
	b.letters[r.Letter] = letterName{n.message, n.put}
	if n.given {
		delete(b.claims, n.id)
	}
	e := b.event(KindDead, n)
	e.Reason, e.Consumer = r.Reason.String(), ""
	b.leave(n, e)
	if !n.system {
		l.died(b.twin, n)
	}
}

// leave takes a message out for good.
func (b *book) leave(n *entryNote, e Event) {
	b.twin.lab.nameWorker(&e)
	if e.Kind == KindSettle && b.twin.settleBy != 0 {
		e.Cause = b.twin.settleBy
	}
	b.count(n.place, -1)
	delete(b.live, n.put)
	if e.Kind != KindDead { // a dead letter is still there to be taken
		b.twin.lab.took(n.message)
	}
	b.emit(n, e)
	n.story.last = n.last
	b.gone = append(b.gone, n)
}

func (b *book) dropAll(k Kind, leasesToo bool) {
	for _, put := range sortedKeys(b.live) {
		n := b.live[put]
		if n.place == noteLeased {
			if !leasesToo {
				continue
			}
			delete(b.byTag, n.tag)
			b.twin.lab.leaseOver(b.twin, n.tag, messages.LeaseRunning)
		}
		e := b.event(k, n)
		e.Cause = max(e.Cause, b.twin.lab.doing)
		b.leave(n, e)
		if c, ok := b.claims[n.id]; ok && c.put == n.put {
			c.dead = true
			b.claims[n.id] = c
		}
	}
}

func (b *book) letterGone(k ledger.RecordKind, number uint64) {
	l := b.twin.lab
	name, ok := b.letters[number]
	if !ok {
		b.object("I17", k.String()+" of no letter", "letter %d is %v and was not there", number, k)
		return
	}
	delete(b.letters, number)
	e := Event{Kind: KindTrimmed, Queue: b.twin.source.Queue, Message: name.message, Put: name.put, Reason: k.String(), Cause: l.story(name.message).last}
	if k == ledger.RecordRedrivenOut {
		e.Kind, e.Reason = KindRedrive, ""
	} else {
		l.took(name.message)
	}
	l.emit(e)
}

func sortedKeys[V any](m map[uint64]V) []uint64 {
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// recount compares the book with the queue's own figures (I1, I23).
func (b *book) recount(s *messages.QueueStats) {
	if b.closed {
		return
	}
	if s.Ready != b.ready || s.Delayed != b.delayed || s.Leased != b.leased {
		b.object("I1", "places do not add up", "ready %d, delayed %d, leased %d by the records; the queue says %d, %d, %d",
			b.ready, b.delayed, b.leased, s.Ready, s.Delayed, s.Leased)
	}
	if most := b.twin.config.MaxMessages; most >= 0 && len(b.live) > most {
		b.object("I26", "more messages than the limit", "%d messages of at most %d", len(b.live), most)
	}
}
