package actorkit

import (
	"sync"
	"sync/atomic"
)

// lanes runs functions on a fixed number of goroutines, first come, first served.
// Goroutines start when there is work for them, up to the number, and stay.
type lanes struct {
	workersMax int

	mu       sync.Mutex
	wake     sync.Cond
	ring     []func() // a power of two long
	head     int      // index of the oldest
	waiting  int      // functions in the ring
	workers  int
	sleeping int // workers in wake.Wait
	// lingering is where the worker that waits a moment before it sleeps is told of
	// work; nil: none does.
	lingering *atomic.Bool
	patience  patience
	closed    bool
	drained   chan struct{} // closed when closed and workers == 0
}

func newLanes(workersMax int) *lanes {
	l := &lanes{workersMax: workersMax, ring: make([]func(), 64), patience: newPatience(), drained: make(chan struct{})}
	l.wake.L = &l.mu
	return l
}

func (l *lanes) schedule(fn func()) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	if l.waiting == len(l.ring) {
		l.grow()
	}
	l.ring[(l.head+l.waiting)&(len(l.ring)-1)] = fn
	l.waiting++
	var sleeps, starts bool
	switch {
	case l.lingering != nil:
		l.lingering.Store(true)
		l.lingering = nil
	case l.sleeping > 0:
		sleeps = true
	case l.workers < l.workersMax:
		starts = true
		l.workers++
	}
	l.mu.Unlock()
	if sleeps {
		l.wake.Signal()
		unhand()
	}
	if starts {
		go l.work()
	}
	return true
}

// grow doubles the ring. The number of actors bounds it: one is in here at most
// once.
func (l *lanes) grow() {
	ring := make([]func(), 2*len(l.ring))
	n := copy(ring, l.ring[l.head:])
	copy(ring[n:], l.ring[:l.head])
	l.ring, l.head = ring, 0
}

func (l *lanes) work() {
	defer l.ended()
	came := new(atomic.Bool)
	for {
		fn, lingered := l.next(came)
		if fn == nil {
			return
		}
		if !lingered {
			fn()
			continue
		}
		paid := pays(fn)
		l.mu.Lock()
		l.patience.learn(paid)
		l.mu.Unlock()
	}
}

// next waits for a function, and says whether it lingered for it; nil means that the
// lanes are closed. came is the worker's.
func (l *lanes) next(came *atomic.Bool) (fn func(), lingered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == 0 && !l.closed && l.lingering == nil && l.patience.tries() {
		came.Store(false)
		l.lingering = came
		l.mu.Unlock()
		linger(came.Load)
		l.mu.Lock()
		if l.lingering == came {
			l.lingering = nil
		}
		if lingered = came.Load(); !lingered {
			l.patience.learn(false)
		}
	}
	for l.waiting == 0 {
		if l.closed {
			return nil, false
		}
		lingered = false // another worker has taken what this one was told of
		l.sleeping++
		l.wake.Wait()
		l.sleeping--
	}
	fn = l.ring[l.head]
	l.ring[l.head] = nil
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.waiting--
	return fn, lingered
}

// ended also comes after a runtime.Goexit in an actor: a worker that is gone while
// work waits is replaced, else its lane would be closed for good.
func (l *lanes) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers--
	if l.waiting > 0 {
		l.workers++
		go l.work()
		return
	}
	if l.closed && l.workers == 0 {
		close(l.drained)
	}
}

// close refuses what comes from now on; what waits still runs. Wait for drained.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.wake.Broadcast()
	if l.workers == 0 {
		close(l.drained)
	}
}

func (l *lanes) wait() <-chan struct{} { return l.drained }
