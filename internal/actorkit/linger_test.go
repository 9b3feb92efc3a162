package actorkit

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/messages"
)

// An idle program does not spend on lingering what it would spend on sleeping: after
// bad luck nearly all times are left out, and good luck does not last for ever.
func TestPatienceIsSpentWhereItPays(t *testing.T) {
	count := func(p *patience, times int, came func(i int) bool) (tried int) {
		for i := range times {
			if p.tries() {
				tried++
				p.learn(came(i))
			}
		}
		return tried
	}
	never, always := func(int) bool { return false }, func(int) bool { return true }

	var p patience
	assert.Equal(t, 3, count(&p, 3*(leavesOut+1), never), "an idle executor looks once in a while")
	p = patience{luck: luckMax}
	assert.Equal(t, luckMax/2+1, count(&p, luckMax/2+leavesOut+1, never), "bad luck is learned soon")
	p = patience{}
	assert.Equal(t, 100, count(&p, leavesOut+100, always), "and good luck at once")
	p = patience{luck: luckMax}
	assert.Equal(t, 300, count(&p, 300, func(i int) bool { return i%3 != 0 }), "two times in three is good luck")
	p = patience{none: true, luck: luckMax}
	assert.Zero(t, count(&p, 100, always), "a single processor")
}

// Who lingers is given the next function, and only that one; nobody is started or woken for it.
func TestWhoLingersIsGivenTheNextFunction(t *testing.T) {
	p := newPool(1, false)
	var s seat
	p.lingering = &s
	ran := make(chan int, 2)
	require.True(t, p.schedule(func() { ran <- 1 }))
	assert.True(t, s.given.Load())
	assert.Nil(t, p.lingering)
	assert.Zero(t, p.live, "no goroutine was started for it")
	require.True(t, p.schedule(func() { ran <- 2 }))
	assert.Equal(t, 2, get(t, ran, "the second function, on a goroutine of its own"))
	s.fn()
	assert.Equal(t, 1, get(t, ran, "the first"))
	p.close()
	get(t, p.wait(), "the end")

	l := newLanes(1)
	came := new(atomic.Bool)
	l.lingering = came
	require.True(t, l.schedule(func() { ran <- 1 }))
	assert.True(t, came.Load())
	assert.Nil(t, l.lingering)
	assert.Zero(t, l.workers)
	require.True(t, l.schedule(func() { ran <- 2 }))
	assert.Equal(t, []int{1, 2}, []int{get(t, ran, "the first"), get(t, ran, "the second")}, "in the order they came")
	l.close()
	get(t, l.wait(), "the end")
}

// The time of lingering ends, and what comes at its very end is not lost.
func TestLingeringEnds(t *testing.T) {
	p := newPool(1, false)
	p.patience = patience{luck: luckMax}
	var s seat
	p.mu.Lock()
	assert.False(t, p.lingerOn(&s), "nothing came")
	assert.Nil(t, p.lingering)
	assert.Equal(t, luckMax-2, p.patience.luck)
	p.mu.Unlock()

	// What was given and is over at once was not worth it; what takes longer is.
	short := false
	for range 100 { // a machine may stop for a moment in one of them
		short = short || !pays(func() {})
	}
	assert.True(t, short)
	assert.True(t, pays(func() {
		for began := time.Now(); time.Since(began) < worthWaitingFor; {
			runtime.Gosched()
		}
	}))

	// One that gives whenever somebody lingers: each is given to whom it was meant for.
	const rounds = 200
	stop, given := new(atomic.Bool), 0
	over := make(chan struct{})
	go func() {
		defer close(over)
		for !stop.Load() {
			p.mu.Lock()
			meets := p.lingering != nil
			p.mu.Unlock()
			if meets {
				// It may have given up meanwhile; then the function gets a goroutine.
				p.schedule(func() {})
				given++
			}
			runtime.Gosched()
		}
	}()
	met := 0
	for range rounds {
		p.mu.Lock()
		p.patience.luck = luckMax
		if p.lingerOn(&s) {
			require.NotNil(t, s.fn)
			s.fn = nil
			met++
		} else {
			require.Nil(t, s.fn, "given to one who was told that nothing came")
		}
		p.mu.Unlock()
	}
	stop.Store(true)
	get(t, over, "the giver")
	assert.LessOrEqual(t, met, given)
	p.close()
	get(t, p.wait(), "the end")
}

// Close does not wait for work that a lingering goroutine hopes for, and gives it none.
func TestCloseEndsLingering(t *testing.T) {
	for name, l := range map[string]lane{"pool": newPool(1, false), "lanes": newLanes(1)} {
		t.Run(name, func(t *testing.T) {
			ran := make(chan int, 1)
			for i := range 100 { // some of them come to a goroutine that lingers
				l.schedule(func() { ran <- i })
				assert.Equal(t, i, get(t, ran, "the function"))
			}
			l.close()
			assert.False(t, l.schedule(func() { ran <- 0 }))
			get(t, l.wait(), "the end")
		})
	}
}

// Work that comes to a worker of the lanes when it sleeps already has not been lingered
// for, whatever it was told before: another worker may have taken that. Else lingering
// would seem to pay where it does not.
func TestLanesLearnNothingFromWorkThatFindsThemAsleep(t *testing.T) {
	l := newLanes(1)
	came := new(atomic.Bool)
	type got struct {
		fn       func()
		lingered bool
	}
	next := make(chan got, 1)
	for told := false; !told; {
		l.mu.Lock()
		l.patience = patience{luck: luckMax}
		l.mu.Unlock()
		go func() {
			fn, lingered := l.next(came)
			next <- got{fn, lingered}
		}()
		// It is told of work, as by schedule, that another worker takes; once it sleeps.
		for asleep := false; !asleep; runtime.Gosched() {
			l.mu.Lock()
			if l.lingering != nil {
				l.lingering.Store(true)
				l.lingering, told = nil, true
			}
			asleep = l.sleeping == 1
			l.mu.Unlock()
		}
		require.True(t, l.schedule(func() {}))
		g := get(t, next, "the function")
		assert.NotNil(t, g.fn)
		assert.False(t, g.lingered, "it was asleep")
	}
}

// Who lingers for an answer gets it from Wait as if he had not, whether it has come by
// then or comes later.
func TestLingeringForAnAnswerTakesNothingAway(t *testing.T) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	for _, late := range []bool{false, true} {
		cell := rt.NewCell()
		ref := cell.Ref()
		over := make(chan struct{})
		lingered := make(chan struct{})
		go func() {
			defer close(over)
			if late {
				<-lingered
			}
			assert.True(t, ref.Resolve(messages.Answer{N: 7}))
		}()
		rt.callers.patience = patience{luck: luckMax}
		Linger(cell)
		if late {
			assert.Less(t, rt.callers.patience.luck, luckMax, "it has not paid")
		}
		close(lingered)
		answer, err := cell.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, messages.Answer{N: 7}, answer)
		get(t, over, "the answer")
	}
}

// Beside others that take long before they yield in turn nobody lingers for longer than
// his own turn: a deadline would pass meanwhile.
func TestLingeringEndsWhereOthersTakeLong(t *testing.T) {
	looks := 0
	assert.False(t, linger(func() bool {
		if looks++; looks == 1 {
			for began := time.Now(); time.Since(began) <= lingerFor; {
				runtime.Gosched()
			}
		}
		return false
	}))
	assert.Equal(t, lingerLooks+1, looks, "one round, and a last look")
}

// Where it does not pay callers stop to linger, but for one in some.
func TestCallersLingerAsLongAsItPays(t *testing.T) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	rt.callers.patience = patience{luck: luckMax}
	tried := 0
	for range 1000 {
		if rt.callers.tries() {
			tried++
			rt.callers.learn(false)
		}
	}
	assert.LessOrEqual(t, tried, luckMax/2+1000/leavesOut)
	assert.Positive(t, tried)
}
