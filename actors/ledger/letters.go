package ledger

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom/messages"
)

// death is a decided one.
type death struct {
	reason  messages.Reason
	how     messages.LeaseEnd // of the lease, when it was leased
	untried bool              // that delivery spent no attempt
	errText string
}

// die buries a message and bounds the dead letters.
func (l *Ledger) die(e *entry, d death) {
	before := l.letters.n
	l.died(e, d)
	for l.letters.over(l.config) {
		l.letterGone(l.letters.first(), RecordTrimmed)
	}
	if n := l.config.DeadLetterAlarm; n > 0 && before < n && l.letters.n >= n {
		l.effect(AlarmRaised).Alarm = messages.DeadLetterCount
	}
	l.tellDrained()
}

// died is the transition to dead: leaving the queue and becoming a letter are one
// step (R5). Death frees the id (Q13).
func (l *Ledger) died(e *entry, d death) {
	if l.journal {
		r := Record{Kind: RecordDied, Number: e.number, Reason: d.reason, Error: d.errText, Letter: l.lastLetter + 1}
		if e.state == leased {
			r.Tag, r.How, r.Interrupted = e.lease.tag, d.how, d.untried
		}
		l.record(r)
	}
	if e.state == leased {
		l.countEnd(d.how, d.reason, d.untried)
		lost := e.lease.holder
		tag, _ := l.endLease(e, d.how)
		if d.untried {
			l.untry(e)
		}
		if d.how == messages.LeaseExpired {
			l.leaseLost(lost, tag)
		}
	} else {
		l.unplace(e)
		if e.ttlPos >= 0 {
			l.lifetimes.remove(e)
		}
	}
	l.counters.more().DeadBy[d.reason]++
	l.keepError(e, d.errText)

	l.lastLetter++
	t := &letter{given: e.has(given), bytes: e.bytes()}
	t.DeadLetter = messages.DeadLetter{
		Number: l.lastLetter,
		ID:     e.id, Body: e.bytesOf(), Details: e.details,
		Queue: l.source.Queue, Reason: d.reason, DiedAt: l.time(l.clock),
		Attempts: int(e.attempt), Deliveries: e.deliveries(), EnqueuedAt: l.time(e.enqueued),
		Deaths: 1,
	}
	var history []messages.Death
	if r := e.rare; r != nil {
		t.Headers, t.Error = r.headers, r.lastError
		t.Deaths = r.deaths + 1
		history = r.history
		if keep := messages.HistoryMax - 1; len(history) > keep {
			history = history[len(history)-keep:]
		}
	}
	// A new array each time: the one before may still be read as another letter's.
	t.History = append(make([]messages.Death, 0, len(history)+1), history...)
	t.History = append(t.History, messages.Death{
		Queue: t.Queue, Reason: t.Reason, Attempts: t.Attempts, Error: t.Error, At: t.DiedAt,
	})
	t.bytes += int64(len(t.Error)) // DeadLetter.Bytes would weigh what a handler may have changed
	l.letters.add(t)
	f := l.effect(Died)
	f.Letter = &t.DeadLetter
	// The death of an announcement is not announced, or two catch-all queues would
	// breed them for ever (T6, P2).
	f.Announce = !strings.HasPrefix(e.details.Topic, messages.SystemTopics)
	l.leave(e, false)
}

// letter is a dead message.
type letter struct {
	messages.DeadLetter
	given        bool    // its id is indexed again when it is redriven here (E3)
	bytes        int64   // what it counts against DeadLetterBytes
	older, newer *letter // with the same id
}

// letters are the dead, in order of number. A letter that leaves from the middle
// leaves a gap, so that numbers stay sorted and a page is found by halving; gaps
// are closed when they are more than half.
type letters struct {
	row   []letterPlace
	n     int // without the gaps
	bytes int64
	byID  map[string]*letter // the newest with that id
}

type letterPlace struct {
	number uint64
	letter *letter // nil: a gap
}

func (s *letters) add(t *letter) {
	s.row = append(s.row, letterPlace{t.Number, t})
	s.n++
	s.bytes += t.bytes
	if s.byID == nil {
		s.byID = make(map[string]*letter)
	}
	if t.older = s.byID[t.ID]; t.older != nil {
		t.older.newer = t
	}
	s.byID[t.ID] = t
}

// from returns the first place whose number is at least this.
func (s *letters) from(number uint64) int {
	return sort.Search(len(s.row), func(i int) bool { return s.row[i].number >= number })
}

func (s *letters) get(number uint64) *letter {
	if i := s.from(number); i < len(s.row) && s.row[i].number == number {
		return s.row[i].letter
	}
	return nil
}

// first is the oldest letter; there must be one. Gaps do not stay at the front.
func (s *letters) first() *letter { return s.row[0].letter }

func (s *letters) over(c *messages.QueueConfig) bool {
	return s.n > 0 && ((c.DeadLetterLimit >= 0 && s.n > c.DeadLetterLimit) ||
		(c.DeadLetterBytes >= 0 && s.bytes > c.DeadLetterBytes))
}

func (s *letters) remove(number uint64) {
	i := s.from(number)
	t := s.row[i].letter
	s.row[i].letter = nil
	s.n--
	s.bytes -= t.bytes
	s.unlinkID(t)
	for len(s.row) > 0 && s.row[0].letter == nil {
		s.row = s.row[1:]
	}
	if s.n == 0 {
		s.row = nil
	} else if len(s.row) > 2*s.n+16 {
		s.row = slices.DeleteFunc(s.row, func(p letterPlace) bool { return p.letter == nil })
	}
}

// unlinkID takes t out of the letters with its id: at once from either end, for a
// message that dies again and again is trimmed oldest first.
func (s *letters) unlinkID(t *letter) {
	if t.older != nil {
		t.older.newer = t.newer
	}
	switch {
	case t.newer != nil:
		t.newer.older = t.older
	case t.older != nil:
		s.byID[t.ID] = t.older
	default:
		delete(s.byID, t.ID)
	}
	t.older, t.newer = nil, nil
}

// letterGone is the transition of a letter that was trimmed, discarded or taken by
// another queue.
func (l *Ledger) letterGone(t *letter, why RecordKind) {
	if l.journal {
		l.record(Record{Kind: why, Letter: t.Number})
	}
	l.letters.remove(t.Number)
	switch why {
	case RecordTrimmed:
		l.counters.more().Trimmed++
		l.effect(Trimmed).Letter = &t.DeadLetter
	case RecordDiscarded:
		l.counters.more().Discarded++
	case RecordRedrivenOut:
		l.counters.more().RedrivenOut++
	}
}

// DeadLetters returns up to n letters whose Number is more than after, oldest
// first (SPEC R4). Their parts are shared and must not be changed.
func (l *Ledger) DeadLetters(after uint64, n int) []messages.DeadLetter {
	var page []messages.DeadLetter
	if after >= l.lastLetter {
		return nil
	}
	for i := l.letters.from(after + 1); i < len(l.letters.row) && len(page) < n; i++ {
		if t := l.letters.row[i].letter; t != nil {
			letter := t.DeadLetter
			if letter.Details == noDetails {
				letter.Details = new(messages.Details) // the reader's own: see filled
			}
			page = append(page, letter)
		}
	}
	return page
}

// LastLetter is the number of the newest letter ever; 0 before the first death.
func (l *Ledger) LastLetter() uint64 { return l.lastLetter }

// Discard forgets all letters with one of these message ids and says how many.
func (l *Ledger) Discard(now time.Time, ids []string) int {
	l.advance(now)
	if l.gone != nil {
		return 0
	}
	l.catchUp()
	n := 0
	for _, id := range ids {
		for t := l.letters.byID[id]; t != nil; t = l.letters.byID[id] {
			l.letterGone(t, RecordDiscarded)
			n++
		}
	}
	return n
}

// RemoveLetter forgets a letter because another queue has taken it (R8). False: it
// is gone already.
func (l *Ledger) RemoveLetter(now time.Time, number uint64) bool {
	l.advance(now)
	t := l.letters.get(number)
	if t == nil || l.gone != nil {
		return false
	}
	l.letterGone(t, RecordRedrivenOut)
	return true
}

// Redrive puts a letter back into this queue, in one step: it leaves the dead only
// when the queue accepts it, and a duplicate keeps it (R8). Errors as for Put, and
// [*messages.NotFoundError] when the letter is gone.
func (l *Ledger) Redrive(now time.Time, number uint64) (PutResult, error) {
	l.advance(now)
	if err := l.refuse("redrive"); err != nil {
		return PutResult{}, err
	}
	t := l.letters.get(number)
	if t == nil {
		return PutResult{}, &messages.NotFoundError{Op: "redrive", What: "dead letter", Name: strconv.FormatUint(number, 10)}
	}
	return l.put(now, &Put{
		ID: t.ID, Body: t.Body, Headers: t.Headers, Details: t.Details, GivenID: t.given,
		Past: &Past{Redriven: true, Deliveries: t.Deliveries, History: t.History, Deaths: t.Deaths},
	}, number)
}
