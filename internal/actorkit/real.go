package actorkit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Fairness budgets of one turn, in messages. A turn ends with EndTurn, where an
// actor writes and answers what it gathered, so the budget also bounds how long
// the first message of a batch waits for that. On lanes it is smaller, because
// other actors wait behind it.
const (
	turnMessagesMax = 1024
	laneMessagesMax = 256
)

// blockingParkedFactor: see [RealConfig.ParkedMax].
const blockingParkedFactor = 8

// lane is an executor.
type lane interface {
	schedule(fn func()) bool // false: closed, fn will not run
	close()
	wait() <-chan struct{} // closed when the lane is closed and empty
}

// Real is the [Runtime] of production: goroutines and the machine's clock.
type Real struct {
	executor Executor
	seed     uint64
	actors   lane
	blocking lane
	cells    sync.Pool // of *realCell
	callers  callers
	closing  atomic.Bool
	wall     atomic.Pointer[time.Time] // read last
}

var _ Runtime = (*Real)(nil)

// NewReal makes a runtime. No goroutine starts before there is something to run;
// [Real.Close] ends them all.
func NewReal(config RealConfig) *Real {
	procs := runtime.GOMAXPROCS(0)
	parked := config.ParkedMax
	if parked <= 0 {
		parked = 4 * procs
	}
	r := &Real{executor: config.Executor, blocking: newPool(blockingParkedFactor*parked, false)}
	if config.Executor == Lanes {
		r.actors = newLanes(procs)
	} else {
		r.actors = newPool(parked, true)
	}
	r.callers.patience = newPatience()
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails: crypto/rand ends the process instead
	r.seed = binary.LittleEndian.Uint64(seed[:])
	return r
}

// Executor returns how the runtime runs its actors.
func (r *Real) Executor() Executor { return r.executor }

// Schedule implements [Runtime].
func (r *Real) Schedule(fn func()) { r.actors.schedule(fn) }

// ScheduleBlocking implements [Runtime].
func (r *Real) ScheduleBlocking(fn func()) { r.blocking.schedule(fn) }

func (r *Real) trySchedule(blocking bool, fn func()) bool {
	if blocking {
		return r.blocking.schedule(fn)
	}
	return r.actors.schedule(fn)
}

// wallFor is how long one reading of the wall clock is carried on by the monotonic
// one, which costs half as much: a wall clock that is set is seen within this time.
// Deadlines of ours are monotonic and do not see it at all.
const wallFor = time.Second

// Now implements [Runtime].
func (r *Real) Now() time.Time {
	if read := r.wall.Load(); read != nil {
		if since := time.Since(*read); since < wallFor {
			return read.Add(since)
		}
	}
	now := time.Now()
	r.wall.Store(&now)
	return now
}

// Since implements [Runtime].
func (r *Real) Since(t time.Time) time.Duration { return time.Since(t) }

// AfterFunc implements [Runtime]. A timer that rings after Close does nothing.
func (r *Real) AfterFunc(d time.Duration, fn func()) Timer {
	return realTimer{time.AfterFunc(d, func() {
		if !r.closing.Load() {
			fn()
		}
	})}
}

type realTimer struct{ timer *time.Timer }

func (t realTimer) Reset(d time.Duration) { t.timer.Reset(d) }
func (t realTimer) Stop()                 { t.timer.Stop() }

// Sleep implements [Runtime].
func (r *Real) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WithTimeout implements [Runtime].
func (r *Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// CheckContext implements [Runtime]: every deadline is on this clock.
func (r *Real) CheckContext(context.Context) error { return nil }

// NewCell implements [Runtime].
func (r *Real) NewCell() Cell {
	if c, ok := r.cells.Get().(*realCell); ok {
		return c
	}
	return &realCell{woken: make(chan struct{}, 1), pool: &r.cells, callers: &r.callers}
}

// Draw implements [Runtime], with a seed from the operating system.
func (r *Real) Draw(purpose, entity string, n uint64) uint64 {
	return Mix(r.seed, purpose, entity, n)
}

// Random implements [Runtime] with crypto/rand.
func (r *Real) Random() io.Reader { return rand.Reader }

// Turn implements [Runtime]. A goroutine per actor stays with its actor while
// that is busy; a lane must go on to the others.
func (r *Real) Turn() (messagesMax int, handBack bool) {
	if r.executor == Lanes {
		return laneMessagesMax, true
	}
	return turnMessagesMax, false
}

// CallerRuns implements [Runtime].
func (r *Real) CallerRuns() bool { return true }

// Closing implements [Runtime].
func (r *Real) Closing() bool { return r.closing.Load() }

// Close implements [Runtime].
func (r *Real) Close() {
	_ = r.Shutdown(context.Background()) // without an end of ctx there is no error
}

// Shutdown is Close for one who cannot wait for ever: when ctx ends before the
// last handler has returned it gives up waiting and returns context.Cause(ctx).
// The goroutines that are left end by themselves when their handlers return.
func (r *Real) Shutdown(ctx context.Context) error {
	r.closing.Store(true)
	r.actors.close()
	r.blocking.close()
	for _, l := range []lane{r.actors, r.blocking} {
		select {
		case <-l.wait():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
