package ledger

import (
	"fmt"

	"github.com/postroom/postroom/messages"
)

// CheckInvariants recounts everything and returns the first invariant of [Ledger]
// it finds broken, or nil. It costs as much as there is in the queue; tests, fuzz
// targets and the simulation call it after every command.
func (l *Ledger) CheckInvariants() error {
	if l.gone == closed {
		return l.checkEquation(0, 0, 0)
	}
	room := l.scratch
	if room == nil {
		room = &scratch{place: make(map[*entry]string), seat: make(map[*Consumer]seatCount)}
		if l.work != &atRest {
			l.scratch = room
		}
	}
	c := recount{l: l, scratch: room}
	defer room.clear() // nothing gone stays reachable through it
	for _, check := range []func() error{
		c.containers, c.owners, c.index, c.leases, c.ages, c.consumers, c.letters, c.budget, c.time, c.spares, c.rest,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// scratch is the room of a recount, kept for the next: the simulation makes hundreds
// of thousands a second. Nil until the first.
type scratch struct {
	place map[*entry]string
	met   []*entry // the same, for going through: a map takes longer
	lent  []*entry
	seat  map[*Consumer]seatCount
}

// seatCount is what a recount finds of a consumer.
type seatCount struct {
	held   int
	inLine bool
}

func (s *scratch) clear() {
	clear(s.place)
	clear(s.met)
	clear(s.lent)
	clear(s.seat)
	s.met, s.lent = s.met[:0], s.lent[:0]
}

// lanePlaces are the lanes as places of a message.
var lanePlaces = [...]string{"lane fresh", "lane failed", "lane interrupted"}

// recount walks all containers once and notes where it met each message.
type recount struct {
	*scratch
	l                      *Ledger
	ready, delayed, leased int
	bytes                  int64
}

func (c *recount) meet(e *entry, where string, want state) error {
	if other, twice := c.place[e]; twice {
		return fmt.Errorf("1: message %d is in %s and in %s", e.number, other, where)
	}
	c.place[e] = where
	c.met = append(c.met, e)
	l := c.l
	switch {
	case e.state != want:
		return fmt.Errorf("1: message %d is %s and in %s", e.number, e.state, where)
	case (e.lease != nil && e.lease.tag != 0) != (want == leased):
		return fmt.Errorf("1: message %d is %s, has a lease: %t", e.number, e.state, e.lease != nil)
	case e.number == 0 || e.number > l.lastPut:
		return fmt.Errorf("1: message %d in %s, the last put is %d", e.number, where, l.lastPut)
	case e.lane >= laneCount || e.priority > messages.PriorityMax:
		return fmt.Errorf("6: message %d has lane %d and priority %d", e.number, e.lane, e.priority)
	case want != leased && want != delayed && e.timerPos != -1:
		return fmt.Errorf("5: message %d is %s and at %d of a heap of timers", e.number, e.state, e.timerPos)
	case want == leased && e.ttlPos != -1:
		return fmt.Errorf("5: message %d is leased and in the heap of lifetimes", e.number)
	case e.ttlPos != -1 && (int(e.ttlPos) >= len(l.lifetimes.slots) || l.lifetimes.slots[e.ttlPos].e != e):
		return fmt.Errorf("5: message %d is not at %d of the heap of lifetimes", e.number, e.ttlPos)
	case l.config.MaxAttempts >= 0 && int(e.attempt) > l.config.MaxAttempts:
		return fmt.Errorf("7: message %d has made %d attempts of %d", e.number, e.attempt, l.config.MaxAttempts)
	case want != leased && l.config.MaxAttempts >= 0 && int(e.attempt) == l.config.MaxAttempts:
		return fmt.Errorf("7: message %d is %s after its last attempt", e.number, e.state)
	case e.attempt < 0 || int(e.attempt) > e.deliveries() || (want == leased && e.attempt == 0):
		return fmt.Errorf("7: message %d has %d attempts in %d deliveries", e.number, e.attempt, e.deliveries())
	}
	if r := e.rare; r != nil {
		// Headers and extra are not weighed again: a handler that writes into them costs
		// itself and not the queue (E2).
		if r.sharedBytes < 0 || len(r.history) > messages.HistoryMax || r.deaths < len(r.history) || len(r.lastError) > messages.ErrorBytesMax {
			return fmt.Errorf("3: message %d has %d bytes of headers and extra, %d deaths with a history of %d",
				e.number, r.sharedBytes, r.deaths, len(r.history))
		}
	}
	c.bytes += e.bytes()
	return nil
}

// walk follows a list and checks its links.
func walk(q *list, f func(e *entry) error) error {
	var before *entry
	for e := q.first; e != nil; before, e = e, e.next {
		if e.prev != before {
			return fmt.Errorf("6: message %d has a broken link back", e.number)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if q.last != before {
		return fmt.Errorf("6: a list does not end at its last message")
	}
	return nil
}

func (h *heap) check(name string) error {
	for i := range h.slots {
		s := &h.slots[i]
		if h.pos(s.e) != i {
			return fmt.Errorf("5: message %d is at %d of %s and believes %d", s.e.number, i, name, h.pos(s.e))
		}
		if i > 0 && s.before(&h.slots[(i-1)/4]) {
			return fmt.Errorf("5: message %d of %s is before its parent", s.e.number, name)
		}
	}
	return nil
}

func (c *recount) containers() error {
	l := c.l
	for p, k := range l.lanes.rank {
		var bytes int64
		var count int
		for n := range laneCount {
			if k == nil {
				if l.lanes.mask&laneBit(uint8(p), n) != 0 {
					return fmt.Errorf("6: priority %d does not exist and has bit %s", p, laneNames[n])
				}
				continue
			}
			err := walk(&k.lane[n], func(e *entry) error {
				if int(e.priority) != p || e.lane != n {
					return fmt.Errorf("6: message %d of priority %d, %s is in lane %d, %s", e.number, e.priority, e.lane, p, n)
				}
				if !e.has(aged) {
					return fmt.Errorf("6: message %d is ready and has no first-ready instant", e.number)
				}
				bytes += e.bytes()
				count++
				return c.meet(e, lanePlaces[n], ready)
			})
			if err != nil {
				return err
			}
			if (k.lane[n].first != nil) != (l.lanes.mask&laneBit(uint8(p), n) != 0) {
				return fmt.Errorf("6: the bit of priority %d, %s is wrong", p, n)
			}
		}
		if k != nil && (k.bytes != bytes || k.count != count) {
			return fmt.Errorf("3: priority %d has %d ready of %d bytes, counted as %d of %d", p, count, bytes, k.count, k.bytes)
		}
		c.ready += count
	}
	for i := range l.delays.slots {
		if err := c.meet(l.delays.slots[i].e, "delays", delayed); err != nil {
			return err
		}
		c.delayed++
	}
	err := walk(&l.budget.line, func(e *entry) error {
		c.delayed++
		if e.lane != failed {
			return fmt.Errorf("11: message %d waits for the retry budget in lane %s", e.number, e.lane)
		}
		return c.meet(e, "budget line", waiting)
	})
	if err != nil {
		return err
	}
	c.lent = l.tags.appendTo(c.lent)
	for _, e := range c.lent {
		if err := c.meet(e, "tags", leased); err != nil {
			return err
		}
		c.leased++
	}
	if c.ready != l.readyN || c.delayed != l.delayedN || c.leased != l.leasedN {
		return fmt.Errorf("2: recount %d ready, %d delayed, %d leased; counted %d, %d, %d",
			c.ready, c.delayed, c.leased, l.readyN, l.delayedN, l.leasedN)
	}
	if c.bytes != l.bytes {
		return fmt.Errorf("3: %d bytes, counted as %d", c.bytes, l.bytes)
	}
	if l.config.MaxMessages >= 0 && l.total() > l.config.MaxMessages {
		return fmt.Errorf("3: %d messages, at most %d", l.total(), l.config.MaxMessages)
	}
	if l.config.MaxBytes >= 0 && l.bytes > l.config.MaxBytes {
		return fmt.Errorf("3: %d bytes, at most %d", l.bytes, l.config.MaxBytes)
	}
	if err := l.checkEquation(c.ready, c.delayed, c.leased); err != nil {
		return err
	}
	for _, h := range []struct {
		name string
		heap *heap
	}{{"the delays", &l.delays}, {"the lifetimes", &l.lifetimes}, {"the lease timers", &l.timers}} {
		if err := h.heap.check(h.name); err != nil {
			return err
		}
	}
	for i := range l.lifetimes.slots {
		if e := l.lifetimes.slots[i].e; c.place[e] == "" || e.state == leased {
			return fmt.Errorf("5: message %d has a lifetime and is %s", e.number, e.state)
		}
	}
	return nil
}

func (l *Ledger) checkEquation(ready, delayed, leased int) error {
	k := l.counters.all()
	in := k.Puts + k.RedrivenIn
	out := uint64(ready+delayed+leased) + k.Acks + k.Dead() + k.Purged + k.Dropped
	if in != out {
		return fmt.Errorf("2: %d came in, %d are there or have gone", in, out)
	}
	if in != l.lastPut {
		return fmt.Errorf("2: %d came in, the last put is %d", in, l.lastPut)
	}
	if k.Deliveries != l.lastTag {
		return fmt.Errorf("2: %d deliveries, the last tag is %d", k.Deliveries, l.lastTag)
	}
	if k.Dead() != l.lastLetter {
		return fmt.Errorf("10: %d deaths, the last letter is %d", k.Dead(), l.lastLetter)
	}
	if gone := uint64(l.letters.n) + k.RedrivenOut + k.Discarded + k.Trimmed + l.counters.lettersDropped(); gone != k.Dead() {
		return fmt.Errorf("10: %d deaths, %d letters are there or have gone", k.Dead(), gone)
	}
	return nil
}

// owners counts the messages that have one.
func (c *recount) owners() error {
	l := c.l
	owned := 0
	for _, e := range c.scratch.met {
		switch {
		case e.owner == 0:
			continue
		case int(e.owner) > len(l.owners.row) || l.owners.row[e.owner-1] == nil:
			return fmt.Errorf("13: message %d has owner %d of %d, who is not there", e.number, e.owner, len(l.owners.row))
		}
		owned++
	}
	counted, absent := 0, 0
	for i, o := range l.owners.row {
		switch {
		case o == nil:
			absent++
			continue
		case int(o.number) != i+1 || o.messages <= 0:
			return fmt.Errorf("13: owner %d is in place %d with %d messages", o.number, i+1, o.messages)
		}
		counted += o.messages
	}
	if counted != owned || absent != len(l.owners.free) {
		return fmt.Errorf("13: owners have %d messages of %d, and %d of %d places are free", counted, owned, absent, len(l.owners.free))
	}
	return nil
}

func (c *recount) index() error {
	l := c.l
	x := &l.index
	used := 0
	for i := range x.slots {
		s := &x.slots[i]
		if s.empty() {
			continue
		}
		used++
		var id string
		switch {
		case s.e != nil && s.claim != 0:
			return fmt.Errorf("4: slot %d holds a message and a claim", i)
		case s.e != nil:
			if c.place[s.e] == "" || !s.e.has(given) || s.e.hash != s.hash {
				return fmt.Errorf("4: the index holds message %d, which is %s", s.e.number, s.e.state)
			}
			id = s.e.id
		default:
			k := l.claims.at(s.claim)
			if k.hash != s.hash || int(k.pos) >= len(l.claims.heap) || l.claims.heap[k.pos].ref != s.claim {
				return fmt.Errorf("4: the index holds a claim of %q that is not in the heap", k.id)
			}
			id = k.id
		}
		if s.hash != l.hash(id) || x.find(s.hash, id, &l.claims) != s {
			return fmt.Errorf("4: id %q is not reachable", id)
		}
	}
	want := len(l.claims.heap)
	for _, e := range c.met {
		if e.has(given) {
			want++
		}
	}
	if used != x.used || used != want {
		return fmt.Errorf("4: the index holds %d ids, counted as %d, there are %d", used, x.used, want)
	}
	for i, s := range l.claims.heap {
		k := l.claims.at(s.ref)
		switch {
		case k.release != s.release || int(k.pos) != i:
			return fmt.Errorf("4: the claim of %q is misplaced", k.id)
		case s.release > l.claims.last:
			return fmt.Errorf("5: the claim of %q ends after the last one", k.id)
		case i > 0 && l.claims.before(s, l.claims.heap[(i-1)/4]):
			return fmt.Errorf("5: the claim of %q is before its parent", k.id)
		}
	}
	if l.config.DedupLimit >= 0 && len(l.claims.heap) > l.config.DedupLimit {
		return fmt.Errorf("4: %d claims, at most %d", len(l.claims.heap), l.config.DedupLimit)
	}
	return nil
}

func (c *recount) leases() error {
	l := c.l
	inLists, inHeap, kept := 0, 0, 0
	var before *lease
	err := walk(&l.leases, func(e *entry) error {
		inLists++
		le := e.lease
		switch {
		case c.place[e] != "tags" || le.where != inLine:
			return fmt.Errorf("6: message %d is in the list of leases and in %s", e.number, c.place[e])
		case before != nil && (before.deadline > le.deadline || (before.deadline == le.deadline && before.tag >= le.tag)):
			return fmt.Errorf("6: the lease of tag %d is before that of tag %d", before.tag, le.tag)
		}
		before = le
		return nil
	})
	if err != nil {
		return err
	}
	for i := range l.timers.slots {
		inHeap++
		s := &l.timers.slots[i]
		if c.place[s.e] != "tags" || s.e.lease.where != inTimers || s.at != s.e.lease.deadline || s.order != s.e.lease.tag {
			return fmt.Errorf("5: message %d is in the heap of lease timers and in %s", s.e.number, c.place[s.e])
		}
	}
	for name, h := range l.holders {
		var last uint64
		err := walk(&h.leases, func(e *entry) error {
			kept++
			if c.place[e] != "tags" || !e.lease.has(noTimeout) || e.lease.holder.name() != name || e.lease.tag <= last {
				return fmt.Errorf("6: message %d is wrong in the list of holder %q", e.number, name)
			}
			last = e.lease.tag
			return nil
		})
		if err != nil {
			return err
		}
		if h.leases.first == nil {
			return fmt.Errorf("6: holder %q has an empty list", name)
		}
	}
	live := 0
	for no, p := range l.tags.pages {
		n := 0
		for i, e := range p.entry {
			if e == nil {
				continue
			}
			n++
			le := e.lease
			if le.tag != no*pageTags+uint64(i) || le.tag > l.lastTag {
				return fmt.Errorf("9: message %d is under tag %d and has %d", e.number, no*pageTags+uint64(i), le.tag)
			}
			if l.ended.find(le.tag) != messages.LeaseRunning {
				return fmt.Errorf("9: the lease of tag %d is running and remembered as over", le.tag)
			}
			if (le.where == unarmed) != (le.deadline == never) {
				return fmt.Errorf("5: nothing wakes the ledger for the lease of tag %d", le.tag)
			}
			if le.has(noTimeout) != (le.timeout == never) || le.deadline > l.leaseLimit(le.handed) {
				return fmt.Errorf("7: the lease of tag %d outlives MaxLease", le.tag)
			}
			switch le.where {
			case inLine:
				inLists--
			case inTimers:
				inHeap--
			}
			if le.has(noTimeout) {
				kept--
			}
		}
		if n != p.live || (n == 0 && no != l.lastTag/pageTags) {
			return fmt.Errorf("9: page %d has %d tags in hand, counted as %d", no, n, p.live)
		}
		live += n
	}
	if inLists != 0 || inHeap != 0 || kept != 0 || live != l.leasedN {
		return fmt.Errorf("6: %d leases; the list is off by %d, the heap by %d, the holders by %d", live, inLists, inHeap, kept)
	}
	total := 0
	for i := range l.ended.n {
		run := l.ended.at(i)
		total += int(run.n)
		if run.n == 0 || run.first == 0 || run.first+uint64(run.n)-1 > l.lastTag {
			return fmt.Errorf("9: the run of ended leases from %d is wrong", run.first)
		}
	}
	if ended := l.lastTag - uint64(l.leasedN); total != int(l.ended.total) || uint64(total) != min(ended, endedMax) {
		return fmt.Errorf("9: %d ended leases are remembered of %d, counted as %d", total, ended, l.ended.total)
	}
	return nil
}

func (c *recount) ages() error {
	l := c.l
	n, want := 0, 0
	for _, e := range c.met {
		if e.has(aged) {
			want++
		}
	}
	var before *entry
	for e := l.age.first; e != nil; before, e = e, e.younger {
		n++
		if e.older != before || c.place[e] == "" || !e.has(aged) || (before != nil && before.firstReady() > e.firstReady()) || e.firstReady() < e.enqueued {
			return fmt.Errorf("6: message %d is wrong in the age list", e.number)
		}
	}
	if l.age.last != before || n != want {
		return fmt.Errorf("6: the age list holds %d messages of %d", n, want)
	}
	if l.ageRaised && (l.age.first == nil || addSat(l.age.first.firstReady(), int64(l.config.MaxAge)) > l.now) {
		return fmt.Errorf("6: the age alarm is raised for nothing")
	}
	return nil
}

func (c *recount) consumers() error {
	l := c.l
	var sessions map[string]int
	for _, e := range c.met {
		if e.state != leased {
			continue
		}
		if h := e.lease.holder; h.consumer != nil {
			s := c.seat[h.consumer]
			s.held++
			c.seat[h.consumer] = s
		} else {
			if sessions == nil {
				sessions = map[string]int{}
			}
			sessions[h.waiter.Holder]++
		}
	}
	for name, n := range sessions {
		if s := l.sessions[name]; s == nil || s.leases != n {
			return fmt.Errorf("8: session %q holds %d leases, and that is not what is counted", name, n)
		}
	}
	for name, s := range l.sessions {
		if s.leases != sessions[name] || s.leases == 0 && name != "" {
			return fmt.Errorf("8: session %q is kept for %d leases and holds %d", name, s.leases, sessions[name])
		}
	}
	waiting := 0 // consumers in line
	var before *taker
	for t := l.line.first; t != nil; before, t = t, t.next {
		if !t.inLine || t.prev != before || (t.consumer == nil) == (t.waiter == nil) {
			return fmt.Errorf("8: the line is broken at %q", t.name())
		}
		if t.consumer != nil {
			s := c.seat[t.consumer]
			if !s.inLine {
				waiting++
			}
			s.inLine = true
			c.seat[t.consumer] = s
		}
	}
	if l.line.last != before {
		return fmt.Errorf("8: the line does not end at its last")
	}
	seats := 0
	var left *Consumer
	for s := l.seats.first; s != nil; left, s = s, s.nextSeat {
		seats++
		if s.prevSeat != left || (s.attached != (l.seats.byTag[s.Tag] == s)) || (!s.attached && s != l.seats.active) {
			return fmt.Errorf("8: consumer %q is wrong in its seat", s.Tag)
		}
		found := c.seat[s]
		if s.leases != found.held {
			return fmt.Errorf("8: consumer %q holds %d leases, counted as %d", s.Tag, found.held, s.leases)
		}
		if want := s.attached && s.leases+s.back.len() < s.Prefetch; found.inLine != want || s.place.inLine != want {
			return fmt.Errorf("8: consumer %q in line: %t, has credit: %t", s.Tag, found.inLine, want)
		}
		if found.inLine {
			waiting--
		}
	}
	if waiting != 0 {
		return fmt.Errorf("8: %d consumers in line are not attached", waiting)
	}
	ghosts := 0
	if a := l.seats.active; a != nil && !a.attached {
		ghosts = 1
		if a.leases == 0 {
			return fmt.Errorf("8: %q is active, gone, and holds no lease", a.Tag)
		}
	}
	if seats != len(l.seats.byTag)+ghosts || l.seats.last != left {
		return fmt.Errorf("8: %d seats for %d consumers", seats, len(l.seats.byTag))
	}
	if a := l.seats.active; a == nil && l.config.SingleActive && len(l.seats.byTag) > 0 {
		for s := l.seats.first; s != nil; s = s.nextSeat {
			if s.hasCredit() {
				return fmt.Errorf("8: consumer %q has credit and nobody is active", s.Tag)
			}
		}
	}
	return nil
}

func (c *recount) letters() error {
	s := &c.l.letters
	n, bytes := 0, int64(0)
	var last uint64
	for i, p := range s.row {
		if p.number <= last || p.number > c.l.lastLetter {
			return fmt.Errorf("10: letter %d after %d", p.number, last)
		}
		last = p.number
		t := p.letter
		if t == nil {
			if i == 0 {
				return fmt.Errorf("10: the letters begin with a gap")
			}
			continue
		}
		n++
		bytes += t.bytes
		found := false
		for u := s.byID[t.ID]; u != nil; u = u.older {
			found = found || u == t
		}
		// Not DeadLetter.Bytes, which weighs headers and extra again: see meet.
		if t.Number != p.number || t.bytes < int64(len(t.ID)+len(t.Body)+len(t.Error)) || !found {
			return fmt.Errorf("10: letter %d is wrong in its place", p.number)
		}
		if len(t.History) == 0 || len(t.History) > messages.HistoryMax || t.Deaths < len(t.History) {
			return fmt.Errorf("10: letter %d has %d deaths and a history of %d", t.Number, t.Deaths, len(t.History))
		}
	}
	linked := 0
	for id, t := range s.byID {
		for newer := (*letter)(nil); t != nil; newer, t = t, t.older {
			linked++
			if t.ID != id || t.newer != newer {
				return fmt.Errorf("10: letter %d of %q is found under %q", t.Number, t.ID, id)
			}
		}
	}
	if n != s.n || bytes != s.bytes || linked != n {
		return fmt.Errorf("10: %d letters of %d bytes, %d under their ids; counted %d of %d", n, bytes, linked, s.n, s.bytes)
	}
	if s.over(c.l.config) {
		return fmt.Errorf("10: %d letters of %d bytes are over a limit", s.n, s.bytes)
	}
	return nil
}

func (c *recount) budget() error {
	l := c.l
	if l.budget.line.first == nil {
		return nil
	}
	b := &l.config.RetryBudget
	if !b.On() {
		return fmt.Errorf("11: messages wait for a retry budget that is off")
	}
	if !l.behind && l.now < l.budget.end && float64(l.budget.retries) < b.Ratio*float64(l.budget.successes)+float64(b.Floor) {
		return fmt.Errorf("11: messages wait for a retry budget that has room")
	}
	return nil
}

func (c *recount) time() error {
	l := c.l
	if l.clock != l.now {
		return fmt.Errorf("7: the clock stands at %d and now is %d", l.clock, l.now)
	}
	if at, s := l.due(); at <= l.now && !l.behind && l.gone == nil {
		return fmt.Errorf("7: an event of source %d was due at %d and now is %d", s, at, l.now)
	}
	return nil
}

// spares looks at the entry that was given back last: nothing of its message is left.
func (c recount) spares() error {
	n := len(c.l.spares.entries)
	if n > 0 && *c.l.spares.entries[n-1] != (entry{timerPos: -1, ttlPos: -1}) {
		return fmt.Errorf("a spare entry is not empty: %+v", *c.l.spares.entries[n-1])
	}
	return nil
}

func (c *recount) rest() error {
	if !atRest.empty() {
		return fmt.Errorf("12: something is in the work that ledgers at rest share")
	}
	return nil
}
