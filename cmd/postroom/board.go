package main

import (
	"cmp"
	"slices"
	"sync"
)

// board holds the lines in work, from before their put until their end is on record:
// acked, or written to the dead file.
//
//	add ──▶ open ──acked───────────────────▶ gone
//	          │ died                          ▲
//	          └──────▶ dying ──buried (written)┘
//
// It is why no death is lost and none is kept in memory for long: a line leaves only
// when its letter is written, and while there is no room nothing more is read. The
// publisher's window bounds what the broker holds; the board holds up to twice as
// much, because a death frees a place in the window before it is written.
//
// Invariants:
//
//   - At most max(linesMax, 1) lines are on it, and bytesMax bytes unless it is one line.
//   - Every line of dying is in byID, and has its letter.
//   - tags holds only leases whose command was started and whose end is not known yet.
type board struct {
	linesMax int
	bytesMax int64

	mu      sync.Mutex
	changed *sync.Cond
	byID    map[string]*line
	tags    map[uint64]*lease
	dying   []*line // in the order of their deaths
	bytes   int64
	stopped bool // nothing more is taken on
	closed  bool // nothing more dies
	figures figures

	// crashes is how many of the leases in tags are those of crashed commands.
	crashes int
	// onCrashes is told when crashes has changed. It must not block.
	onCrashes func()
}

// lease is one attempt at a line.
type lease struct {
	*line
	crashed bool
	failure string // why the attempt failed; "" while it has not
}

// figures are what a look at the board tells.
type figures struct {
	read    int   // lines taken on
	acked   int   // of them
	dead    int   // of them, and written
	refused int   // of those that die, never put
	running int   // commands
	again   int   // commands begun for an attempt after the first
	bytes   int64 // of the lines that are gone, newlines included
}

func newBoard(linesMax int, bytesMax int64) *board {
	b := &board{
		linesMax: linesMax, bytesMax: bytesMax, onCrashes: func() {},
		byID: map[string]*line{}, tags: map[uint64]*lease{},
	}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// add takes a line on. It waits while the board is full, and while a line with the
// same id is on it, as a dead file may have them: the two are worked one after the
// other. It reports false, and the line is not taken on, when the board is stopped.
func (b *board) add(l *line) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.stopped && !b.hasRoom(l) {
		b.changed.Wait()
	}
	if b.stopped {
		return false
	}
	b.byID[l.id] = l
	b.bytes += l.size()
	b.figures.read++
	return true
}

func (b *board) hasRoom(l *line) bool {
	if b.byID[l.id] != nil {
		return false
	}
	n := len(b.byID)
	return n == 0 || n < b.linesMax && b.bytes+l.size() <= b.bytesMax
}

// forget takes back an add of a line that was not put.
func (b *board) forget(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(l)
	b.figures.read--
}

func (b *board) remove(l *line) {
	delete(b.byID, l.id)
	b.bytes -= l.size()
	b.changed.Broadcast()
}

// start notes that a command begins on a message, by id and delivery tag, and
// returns its line. It is nil when the line is not on the board.
func (b *board) start(id string, tag uint64, attempt int) *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[id]
	if l == nil {
		return nil
	}
	b.tags[tag] = &lease{line: l}
	b.figures.running++
	if attempt > 1 {
		b.figures.again++
	}
	b.changed.Broadcast()
	return l
}

// end notes how a command ended, before the broker is told: a death that follows
// needs it. Of a lease that ran out meanwhile it says nothing any more.
func (b *board) end(tag uint64, out outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.figures.running--
	s := b.tags[tag]
	if s == nil {
		return
	}
	if out.err != nil {
		s.failure = out.err.Error()
		s.lastError, s.stderr = s.failure, out.stderr
	}
	if out.kind == crashed {
		s.crashed = true
		b.crashes++
		b.onCrashes()
		return // its lease runs on
	}
	delete(b.tags, tag)
}

// acked notes that the broker took a line's ack.
func (b *board) acked(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.figures.acked++
	b.gone(l)
}

// gone counts the bytes of a line that is done with.
func (b *board) gone(l *line) {
	b.figures.bytes += int64(len(l.source())) + 1
	b.remove(l)
}

// ranOut notes that a lease ran out.
func (b *board) ranOut(tag uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.tags[tag]
	if s == nil {
		return // no command had begun, or it has ended
	}
	delete(b.tags, tag)
	if s.crashed {
		b.crashes--
		b.onCrashes()
	}
	if s.failure == "" {
		s.lastError, s.stderr = "the lease ran out before the command ended", nil
	}
}

// crashedLeases is how many leases of crashed commands still run.
func (b *board) crashedLeases() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.crashes
}

// died notes that the broker made a dead letter of a message.
func (b *board) died(id, reason string, attempts int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.byID[id]; l != nil && l.death == nil {
		b.kill(l, &letter{ID: id, Reason: reason, Attempts: attempts, Error: cut(l.lastError), Stderr: tailText(l.stderr)})
	}
}

// refuse kills a line that cannot be worked.
func (b *board) refuse(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.figures.refused++
	b.kill(l, &letter{ID: l.id, Reason: l.refusal.reason, Error: cut(l.refusal.err), Truncated: l.refusal.truncated})
}

func (b *board) kill(l *line, death *letter) {
	death.setBody(l.body)
	l.death = death
	b.dying = append(b.dying, l)
	b.changed.Broadcast()
}

// nextDeath waits for a death that is not written yet, and returns it without taking
// it off. It is nil when the board is closed and there is none.
func (b *board) nextDeath() *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.dying) == 0 {
		if b.closed {
			return nil
		}
		b.changed.Wait()
	}
	return b.dying[0]
}

// buried notes that the letter that nextDeath returned is written.
func (b *board) buried() {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.dying[0]
	b.dying[0] = nil
	if b.dying = b.dying[1:]; len(b.dying) == 0 {
		b.dying = nil
	}
	b.figures.dead++
	b.gone(l)
}

// stop ends add: nothing more is taken on.
func (b *board) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.changed.Broadcast()
}

// close ends nextDeath when it has returned what there is.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped, b.closed = true, true
	b.changed.Broadcast()
}

// waitEmpty waits until no line is on the board, and reports false when it was
// stopped first.
func (b *board) waitEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.byID) > 0 && !b.stopped {
		b.changed.Wait()
	}
	return len(b.byID) == 0
}

// open returns the lines on the board in the order of the input.
func (b *board) open() []*line {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := make([]*line, 0, len(b.byID))
	for _, l := range b.byID {
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(x, y *line) int { return cmp.Compare(x.number, y.number) })
	return lines
}

// look returns the figures, and how many lines are on the board.
func (b *board) look() (f figures, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.figures, len(b.byID)
}
