package actorkit

import (
	"runtime"
	"sync"
	"time"
)

// Whoever runs out of work lingers for a moment before it sleeps, in case there is
// more at once: to wake a sleeping processor takes 10 to 50 µs on a virtual machine,
// and under load a queue and its workers each run out once in a few dozen messages.
//
// It yields all the time. Others stand in line behind it on this processor, and as long
// as this one is busy no other processor comes for them.
const (
	lingerYields = 100
	lingerLooks  = 300 // between two yields, which is about 300 ns
	// lingerFor ends it where others take long before they yield in turn.
	lingerFor = 50 * time.Microsecond
)

// worthWaitingFor is how long the work must be that whoever lingers is given. Two that
// give each other less than that, a message at a time, are better off taking turns: to
// wake one of them takes so long that there are many messages when it comes.
const worthWaitingFor = 1500 * time.Nanosecond // 20 messages

// patience says whether to linger: as long as it pays, and else once in a while. So a
// busy program spends it instead of sleeping and waking, and an idle one hardly ever.
// It belongs to an executor, or to all callers, and is under a mutex.
type patience struct {
	none bool // on a single processor whoever is waited for waits as well
	luck int  // how many more times to try; not more than zero: how many were left out
}

const (
	luckMax   = 16
	leavesOut = 31
)

// tries reports whether to linger this time.
func (p *patience) tries() bool {
	switch {
	case p.none:
		return false
	case p.luck > 0 || p.luck <= -leavesOut:
		return true
	}
	p.luck--
	return false
}

// learn notes whether lingering has paid.
func (p *patience) learn(paid bool) {
	if paid {
		p.luck = min(max(p.luck, 0)+1, luckMax)
	} else {
		p.luck = max(p.luck-2, 0)
	}
}

func newPatience() patience { return patience{none: runtime.GOMAXPROCS(0) == 1} }

// pays runs what somebody was given who lingered, and reports whether it was worth it.
func pays(fn func()) bool {
	began := time.Now()
	fn()
	return time.Since(began) >= worthWaitingFor
}

// linger waits a moment for something to come, and reports whether it has.
func linger(came func() bool) bool {
	began := time.Now()
	for range lingerYields {
		for range lingerLooks {
			if came() {
				return true
			}
		}
		runtime.Gosched()
		if time.Since(began) > lingerFor {
			break
		}
	}
	return came()
}

// Linger gives the answer to a long command some 30 µs to come before [Cell.Wait] puts
// the caller to sleep, as long as that pays: a queue takes a batch in for less than it costs
// to wake somebody. For a short one it does not. In the simulation it does nothing.
func Linger(c Cell) {
	if c, ok := c.(*realCell); ok && c.callers.tries() {
		c.callers.learn(linger(c.answered))
	}
}

// callers are all who wait for answers on a runtime.
type callers struct {
	mu       sync.Mutex
	patience patience
}

func (q *callers) tries() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.patience.tries()
}

func (q *callers) learn(paid bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.patience.learn(paid)
}
