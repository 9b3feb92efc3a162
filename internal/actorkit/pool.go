package actorkit

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// pool runs functions, each on a goroutine of its own, and keeps some goroutines
// parked for the next one.
//
// The idle list is LIFO: the goroutine that ran last has a warm stack that has
// grown already, and growing a fresh one on every wake-up costs more than all the
// rest of it.
type pool struct {
	parkedMax int
	// yields makes a goroutine step aside once before it runs what it was woken
	// for. A sender of several messages then posts them all first, and the actor
	// finds a batch instead of one message and a wake-up for each of the others.
	yields bool

	mu        sync.Mutex
	lingering *seat // of the goroutine that waits a moment before it parks; nil: none
	patience  patience
	idle      []chan func() // one per parked goroutine, capacity 1
	live      int           // goroutines, running, lingering and parked
	closed    bool
	drained   chan struct{} // closed when closed and live == 0
}

// seat is where a goroutine that lingers is given its next function.
type seat struct {
	fn    func()
	given atomic.Bool
}

func newPool(parkedMax int, yields bool) *pool {
	return &pool{parkedMax: parkedMax, yields: yields, patience: newPatience(), drained: make(chan struct{})}
}

func (p *pool) schedule(fn func()) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	if s := p.lingering; s != nil {
		p.lingering = nil
		s.fn = fn
		s.given.Store(true)
		p.mu.Unlock()
		return true
	}
	if last := len(p.idle) - 1; last >= 0 {
		next := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		p.mu.Unlock()
		next <- fn // never blocks: a goroutine is in the idle list once and its channel empty
		unhand()
		return true
	}
	p.live++
	p.mu.Unlock()
	go p.work(fn)
	return true
}

// unhand lets another processor have the goroutine that was just woken. Go hands it
// to the waker's own, as the next to run there, and a processor that looks for work
// sleeps for 3 µs, on a virtual machine 50, before it takes such a one away: a waker
// that has more to do would keep the woken from running beside it. A goroutine
// woken after it takes its place and frees it (Go 1.26, runqput and runqgrab).
func unhand() { go func() {}() }

// work is one goroutine's life. It ends by trimming, by close, or when fn ends it
// with runtime.Goexit, which the deferred call counts too.
func (p *pool) work(fn func()) {
	defer p.ended()
	var next chan func()
	var s seat
	for fn != nil {
		if p.yields {
			runtime.Gosched()
		}
		fn()
		p.mu.Lock()
		for p.lingerOn(&s) {
			p.mu.Unlock()
			paid := pays(s.fn)
			s.fn = nil
			p.mu.Lock()
			p.patience.learn(paid)
		}
		if p.closed || len(p.idle) >= p.parkedMax {
			p.mu.Unlock()
			return
		}
		if next == nil {
			next = make(chan func(), 1)
		}
		p.idle = append(p.idle, next)
		p.mu.Unlock()
		fn = <-next
	}
}

// lingerOn waits a moment for a function and reports whether the seat has it. It is
// called, and returns, with mu held.
func (p *pool) lingerOn(s *seat) bool {
	if p.lingering != nil || p.closed || !p.patience.tries() {
		return false
	}
	p.lingering = s
	s.given.Store(false)
	p.mu.Unlock()
	linger(s.given.Load)
	p.mu.Lock()
	if p.lingering == s {
		p.lingering = nil
	}
	if s.given.Load() {
		return true
	}
	p.patience.learn(false)
	return false
}

func (p *pool) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	if p.closed && p.live == 0 {
		close(p.drained)
	}
}

// close refuses what comes from now on and lets the parked go. Wait for drained.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, next := range p.idle {
		next <- nil
	}
	p.idle = nil
	if p.live == 0 {
		close(p.drained)
	}
}

func (p *pool) wait() <-chan struct{} { return p.drained }
