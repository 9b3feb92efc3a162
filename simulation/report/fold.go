package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom/simulation"
)

// fold reads the events of a run, once and in order, and writes down the picture.
type fold struct {
	*picture
	events []simulation.Event

	workerLane  map[string]int
	messageLane map[string]int
	homes       map[string]string // message → queue it was seen in first
	workerOf    map[string]string // consumer → worker; a lease may begin before that is told

	entries map[entryKey]*entry
	next    []simulation.Kind // the kind of the next event about the same entry
	leases  map[leaseKey]*lease
	newest  map[string]int // message line → its generation shown in the ledger
	downs   map[string]int // worker → index of its open down
	in      [states]int
}

// entryKey is one generation of a message in its queue.
type entryKey struct {
	line       string
	generation int
}

// entry is what is known of it.
type entry struct {
	state   state
	holder  string
	attempt int
	until   time.Duration
	tag     uint64
	note    string
	wait    int // index of its open wait, -1
}

// leaseKey is one lease. The message is part of it because tags begin anew when a
// queue is declared again.
type leaseKey struct {
	queue   string
	tag     uint64
	message string
}

// lease is a bar on its way.
type lease struct {
	bar        int
	works      bool // its handler runs
	wasWorking bool // there were events of its handler
}

// ErrEvents is wrapped when a result's events are not those of a whole run.
var ErrEvents = errors.New("report: not the events of a whole run")

// check sees to it that events can be found by their number and causes be followed to
// their beginning. A result without any events is fine.
func check(events []simulation.Event) error {
	at := time.Duration(0)
	for i := range events {
		e := &events[i]
		switch {
		case e.Number != i+1:
			return fmt.Errorf("%w: event %d comes as number %d", ErrEvents, e.Number, i+1)
		case e.Cause < 0 || e.Cause >= e.Number:
			return fmt.Errorf("%w: event %d has the cause %d", ErrEvents, e.Number, e.Cause)
		case e.At < at:
			return fmt.Errorf("%w: event %d is at %v, the one before at %v", ErrEvents, e.Number, e.At, at)
		}
		at = e.At
	}
	return nil
}

// draw makes the picture of a run whose events were checked.
func draw(r *simulation.Result) *picture {
	f := &fold{
		// Not nil, since a page's script wants lists.
		picture: &picture{
			States: stateNames[:], Events: []eventNote{}, Bars: []bar{}, Waits: []wait{}, Downs: []down{}, Marks: []mark{},
			Changes: []change{}, Counts: []count{},
		},
		events: r.Events,
		homes:  map[string]string{}, workerOf: map[string]string{}, entries: map[entryKey]*entry{}, leases: map[leaseKey]*lease{},
		newest: map[string]int{}, downs: map[string]int{},
	}
	f.findLanes()
	f.lookAhead()
	for i := range f.events {
		f.read(&f.events[i], f.next[i])
	}
	f.finish()
	return f.picture
}

// line is the name of an event's message line: with the queue when there are several.
func (f *fold) line(e *simulation.Event) string {
	if e.Message == "" {
		return ""
	}
	queue := e.Queue
	if queue == "" {
		queue = f.homes[e.Message]
	}
	if f.ManyQueues && queue != "" {
		return queue + "/" + e.Message
	}
	return e.Message
}

// who is the worker of an event, be it that only its consumer, or only the lease that
// it is about, is named in it. A consumer that belongs to no worker stands for itself.
func (f *fold) who(e *simulation.Event) string {
	if e.Worker != "" {
		return e.Worker
	}
	if w := f.workerOf[e.Consumer]; w != "" {
		return w
	}
	if e.Consumer != "" {
		return e.Consumer
	}
	switch e.Kind {
	case simulation.KindStale:
		if l := f.leases[leaseOf(e)]; l != nil {
			return f.Bars[l.bar].Worker
		}
	case simulation.KindDead: // drawn where its last lease ended
		if e.Cause > 0 && e.Cause <= len(f.Events) && f.events[e.Cause-1].Kind != simulation.KindAccepted {
			return f.who(&f.events[e.Cause-1])
		}
	}
	return ""
}

// findLanes gives every worker a lane, in natural order, and every message, in order of
// appearance.
func (f *fold) findLanes() {
	queue := ""
	for i := range f.events {
		e := &f.events[i]
		if e.Worker != "" && e.Consumer != "" {
			f.workerOf[e.Consumer] = e.Worker
		}
		if e.Message == "" || e.Queue == "" {
			continue
		}
		f.ManyQueues = f.ManyQueues || queue != "" && queue != e.Queue
		queue = e.Queue
		if f.homes[e.Message] == "" {
			f.homes[e.Message] = e.Queue
		}
	}
	var workers, lines []string
	seenWorker, seenLine := map[string]bool{}, map[string]bool{}
	for i := range f.events {
		if w := f.who(&f.events[i]); w != "" && !seenWorker[w] {
			seenWorker[w] = true
			workers = append(workers, w)
		}
		if l := f.line(&f.events[i]); l != "" && !seenLine[l] {
			seenLine[l] = true
			lines = append(lines, l)
		}
	}
	slices.SortFunc(workers, natural)
	f.Workers, f.workerLane = lanes("broker", workers)
	f.Messages, f.messageLane = lanes("all", lines)
}

func lanes(first string, names []string) (all []lane, byName map[string]int) {
	all, byName = []lane{{Name: first}}, map[string]int{}
	for _, name := range names {
		byName[name] = len(all)
		all = append(all, lane{Name: name, Rows: 1})
	}
	return all, byName
}

// natural orders w-2 before w-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, errX := strconv.ParseUint(a[:na], 10, 64)
			y, errY := strconv.ParseUint(b[:nb], 10, 64)
			if errX == nil && errY == nil && x != y {
				if x < y {
					return -1
				}
				return 1
			}
			if d := strings.Compare(a[:na], b[:nb]); d != 0 {
				return d
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return strings.Compare(a, b)
		}
		a, b = a[1:], b[1:]
	}
	return strings.Compare(a, b)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// ledgerKinds are the events that move a message.
var ledgerKinds = map[simulation.Kind]bool{
	simulation.KindAccepted: true, simulation.KindGrant: true, simulation.KindSettle: true, simulation.KindExpire: true,
	simulation.KindTaken: true, simulation.KindReady: true, simulation.KindDead: true, simulation.KindPurged: true,
	simulation.KindDropped: true,
}

// lookAhead notes for each event what comes next for its message: the end of a lease
// alone does not say whether its message is ready, waits for a retry budget, or dies.
func (f *fold) lookAhead() {
	f.next = make([]simulation.Kind, len(f.events))
	coming := map[entryKey]simulation.Kind{}
	for i := len(f.events) - 1; i >= 0; i-- {
		e := &f.events[i]
		if !ledgerKinds[e.Kind] {
			continue
		}
		key := entryKey{f.line(e), e.Generation}
		f.next[i] = coming[key]
		coming[key] = e.Kind
	}
}

// read takes in one event; next is the kind of the next one that moves its message.
func (f *fold) read(e *simulation.Event, next simulation.Kind) {
	line := f.line(e)
	at := place{Worker: f.workerLane[f.who(e)], Message: f.messageLane[line]}
	if ledgerKinds[e.Kind] || e.Kind == simulation.KindTouch {
		f.move(e, line, next)
	}
	switch e.Kind {
	case simulation.KindGrant:
		f.Bars = append(f.Bars, bar{
			Place: at, Grant: e.Number, From: e.At, Deadline: e.Deadline, Ending: stillRuns,
			Message: line, Worker: f.who(e), Deliveries: e.Deliveries, Attempt: e.Attempt, Tag: e.Tag,
		})
		f.leases[leaseOf(e)] = &lease{bar: len(f.Bars) - 1}
	case simulation.KindTouch:
		if l := f.leases[leaseOf(e)]; l != nil {
			f.Bars[l.bar].Deadline = e.Deadline
			f.Bars[l.bar].Touches = append(f.Bars[l.bar].Touches, e.Number)
		}
	case simulation.KindStart:
		if l := f.leases[leaseOf(e)]; l != nil {
			l.works, l.wasWorking = true, true
		}
	case simulation.KindReturn:
		f.workOver(e, f.leases[leaseOf(e)])
	case simulation.KindCrash:
		f.crash(e)
		f.goDown(e, at.Worker, "crashed")
	case simulation.KindStale:
		// The last sign of a handler of which nothing else is told.
		if l := f.leases[leaseOf(e)]; l != nil && !l.wasWorking {
			f.workOver(e, l)
		}
	case simulation.KindPause:
		f.goDown(e, at.Worker, "paused")
	case simulation.KindDetach, simulation.KindStopped:
		f.goDown(e, at.Worker, "detached")
	case simulation.KindRestart, simulation.KindResume, simulation.KindAttach:
		f.comeBack(e)
	}
	if shape := markShapes[e.Kind]; shape != "" {
		f.Marks = append(f.Marks, mark{e.Number, shape})
	}
	f.Events = append(f.Events, eventNote{Event: *e, Place: at})
}

func leaseOf(e *simulation.Event) leaseKey { return leaseKey{e.Queue, e.Tag, e.Message} }

// crash ends the work of a worker: of the lease that it is about, or of all its leases
// when it is about none.
func (f *fold) crash(e *simulation.Event) {
	if l := f.leases[leaseOf(e)]; l != nil && e.Tag != 0 {
		f.workOver(e, l)
		return
	}
	for _, l := range f.leases { // each changes its own bar only, so their order is no matter
		if l.works && f.Bars[l.bar].Worker == f.who(e) {
			f.workOver(e, l)
		}
	}
}

// workOver ends a handler's work; what it did without a lease was for nothing.
func (f *fold) workOver(e *simulation.Event, l *lease) {
	if l == nil {
		return
	}
	l.works = false
	b := &f.Bars[l.bar]
	if b.isLost() && b.ZombieOver == 0 && e.At > b.To {
		b.Zombie, b.ZombieOver = e.At, e.Number
	}
}

// isLost reports that the lease ended and its handler was not asked.
func (b *bar) isLost() bool {
	return b.Ending == byExpiry || b.Ending == byTaking || b.Ending == byDrop
}

func (f *fold) goDown(e *simulation.Event, workerLane int, why string) {
	w := f.who(e)
	if _, isDown := f.downs[w]; isDown || workerLane == 0 {
		return
	}
	f.downs[w] = len(f.Downs)
	f.Downs = append(f.Downs, down{Worker: workerLane, Event: e.Number, From: e.At, Why: why})
}

func (f *fold) comeBack(e *simulation.Event) {
	if i, isDown := f.downs[f.who(e)]; isDown {
		f.picture.Downs[i].Over, f.picture.Downs[i].To = e.Number, e.At
		delete(f.downs, f.who(e))
	}
}

// move carries out what an event does to a message.
func (f *fold) move(e *simulation.Event, line string, next simulation.Kind) {
	key := entryKey{line, e.Generation}
	n := f.entries[key]
	if n == nil {
		if e.Kind != simulation.KindAccepted && e.Kind != simulation.KindGrant {
			return // of a message whose beginning is not in these events
		}
		n = &entry{state: ready, wait: -1}
		f.entries[key] = n
		f.in[ready]++
	}
	before := n.state
	switch e.Kind {
	case simulation.KindAccepted:
		if n.until = e.Deadline; e.Deadline > e.At {
			n.state = delayed
			f.beginWait(e, n, line, false)
		}
	case simulation.KindGrant:
		n.state, n.holder, n.attempt, n.until, n.tag, n.note = leased, f.who(e), e.Attempt, e.Deadline, e.Tag, ""
		if e.Incarnation > 1 {
			n.holder += " (" + strconv.Itoa(e.Incarnation) + ")"
		}
	case simulation.KindTouch:
		n.until = e.Deadline
	case simulation.KindReady:
		n.state, n.until = ready, 0
	case simulation.KindDead:
		f.endLease(e, n, byDrop)
		n.state, n.until, n.note = dead, 0, e.Reason
	case simulation.KindPurged, simulation.KindDropped:
		f.endLease(e, n, byDrop)
		n.state, n.until, n.note = dropped, 0, e.Kind.String()
	case simulation.KindSettle, simulation.KindExpire, simulation.KindTaken:
		f.back(e, n, line, next)
	}
	if n.state != delayed && n.wait >= 0 {
		w := &f.Waits[n.wait]
		w.Over, w.To, n.wait = e.Number, e.At, -1
	}
	f.in[before]--
	f.in[n.state]++
	f.note(e, n, line)
}

// back is the end of a lease.
func (f *fold) back(e *simulation.Event, n *entry, line string, next simulation.Kind) {
	how := byFailure
	switch {
	case e.Kind == simulation.KindExpire:
		how = byExpiry
	case e.Kind == simulation.KindTaken:
		how = byTaking
	case e.Verb == "ack":
		how = byAck
	case e.Verb == "release":
		how = byRelease
	}
	f.endLease(e, n, how)
	n.until = e.Deadline
	switch {
	case how == byAck:
		n.state, n.until = acked, 0
	case next == simulation.KindDead:
		n.state, n.until = dead, 0
	case e.Deadline > e.At || next == simulation.KindReady:
		n.state = delayed
		f.beginWait(e, n, line, true)
		f.Marks = append(f.Marks, mark{e.Number, "backoff"})
	default:
		n.state, n.until = ready, 0
	}
	if how == byFailure || how == byExpiry {
		n.note = string(how)
	}
}

// endLease ends the bar of the lease that n is in, if it is in one.
func (f *fold) endLease(e *simulation.Event, n *entry, how ending) {
	if n.state != leased {
		return
	}
	if l := f.leases[leaseKey{e.Queue, n.tag, e.Message}]; l != nil {
		if b := &f.Bars[l.bar]; b.Over == 0 { // else the run has given one tag twice
			b.Over, b.To, b.Ending = e.Number, e.At, how
		}
	}
	n.holder, n.tag = "", 0
}

func (f *fold) beginWait(e *simulation.Event, n *entry, line string, isBackoff bool) {
	n.wait = len(f.Waits)
	f.Waits = append(f.Waits, wait{Message: f.messageLane[line], Event: e.Number, From: e.At, IsBackoff: isBackoff})
}

// note writes the entry down as it is after an event.
func (f *fold) note(e *simulation.Event, n *entry, line string) {
	if f.newest[line] <= e.Generation {
		f.newest[line] = e.Generation
		f.Changes = append(f.Changes, change{
			Event: e.Number, Message: f.messageLane[line], State: n.state, Holder: n.holder,
			Attempt: n.attempt, Deadline: n.until, Tag: n.tag, Note: n.note,
		})
	}
	if last := len(f.Counts) - 1; last < 0 || f.Counts[last].In != f.in {
		f.Counts = append(f.Counts, count{e.Number, e.At, f.in})
	}
}

// finish ends what the run did not end, and gives overlapping bars rows of their own.
func (f *fold) finish() {
	f.End = 1 // something to divide by
	if n := len(f.events); n > 0 {
		f.End = max(f.End, f.events[n-1].At)
	}
	for _, l := range f.leases {
		b := &f.Bars[l.bar]
		if l.works && b.isLost() && f.End > b.To {
			b.Zombie, b.ZombieOver = f.End, 0
		}
	}
	for i := range f.Bars {
		if b := &f.Bars[i]; b.Ending == stillRuns {
			b.To = f.End
		}
	}
	for i := range f.Waits {
		if w := &f.Waits[i]; w.Over == 0 {
			w.To = f.End
		}
	}
	for i := range f.picture.Downs {
		if d := &f.picture.Downs[i]; d.Over == 0 {
			d.To = f.End
		}
	}
	f.findRows()
	f.ByOrder = f.isLopsided()
}

// findRows puts bars that overlap into different rows of their lane, the first free
// one each. Bars come in the order of their grants.
func (f *fold) findRows() {
	worker := rows{lanes: f.Workers, ends: map[int][]int{}}
	message := rows{lanes: f.Messages, ends: map[int][]int{}}
	rowOf := map[int]place{} // by event
	for i := range f.Bars {
		b := &f.Bars[i]
		over := b.lastEvent(len(f.Events))
		b.Place.WorkerRow = worker.find(b.Place.Worker, b.Grant, over)
		b.Place.MessageRow = message.find(b.Place.Message, b.Grant, over)
		for _, event := range append([]int{b.Grant, b.Over, b.ZombieOver}, b.Touches...) {
			rowOf[event] = b.Place
		}
	}
	for i := range f.Events {
		e := &f.Events[i]
		if p, ok := rowOf[e.Number]; ok {
			e.Place.WorkerRow, e.Place.MessageRow = p.WorkerRow, p.MessageRow
			if e.Place.Worker == 0 { // an expiry or a death is nobody's doing
				e.Place.WorkerRow = 0
			}
		}
	}
}

// lastEvent is the event at which nothing of the bar is left; last if none is.
func (b *bar) lastEvent(last int) int {
	switch {
	case b.Over == 0 || b.Zombie > 0 && b.ZombieOver == 0:
		return last + 1
	case b.Zombie > 0:
		return b.ZombieOver
	}
	return b.Over
}

// rows knows when each row of each lane is free again. It counts in events and not in
// time, so that bars overlap in neither scale.
type rows struct {
	lanes []lane
	ends  map[int][]int
}

func (r *rows) find(in, from, over int) int {
	ends := r.ends[in]
	for row, free := range ends {
		if free <= from {
			ends[row] = over
			return row
		}
	}
	r.ends[in] = append(ends, over)
	r.lanes[in].Rows = len(r.ends[in])
	return len(ends)
}

// isLopsided reports that the middle four fifths of the events fill less than a tenth
// of the time: drawn by time, all would be one smear.
func (f *fold) isLopsided() bool {
	n := len(f.events)
	if n < 10 {
		return false
	}
	middle := f.events[n*9/10].At - f.events[n/10].At
	return middle < f.End/10
}
