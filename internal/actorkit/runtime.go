package actorkit

import (
	"context"
	"io"
	"time"

	"github.com/postroom/postroom/messages"
)

// Runtime is executor, clock, reply cells, contexts and randomness in one
// interface. It has two makers: [NewReal], and the simulation's NewRuntime.
//
// Everything a runtime hands out (timers, cells, contexts) belongs to it and is
// never shared with another one: two brokers fit in one process, and a broker
// opened and closed inside a testing/synctest bubble leaves nothing outside.
type Runtime interface {
	// Schedule runs fn soon, on the lane of actors that never block. After Close
	// it does nothing.
	Schedule(fn func())
	// ScheduleBlocking runs fn soon, on the lane of handlers and callbacks, which
	// may block for hours: no number of them keeps another from running.
	ScheduleBlocking(fn func())

	// Now is the runtime's clock. The real one carries a monotonic reading.
	Now() time.Time
	// Since is Now less t, at half the price where t has a monotonic reading.
	Since(t time.Time) time.Duration
	// AfterFunc calls fn once, d from now; d of zero or less means at once. fn must
	// not block: it posts a message.
	AfterFunc(d time.Duration, fn func()) Timer
	// Sleep waits for d on the runtime's clock. It returns nil, or
	// context.Cause(ctx) when ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout on the runtime's clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// CheckContext refuses a context whose deadline will never come here: in the
	// simulation that is a deadline on the wall clock, with a
	// [*ForeignDeadlineError]. The real runtime accepts every context.
	CheckContext(ctx context.Context) error

	// NewCell returns a place to wait for one answer. It costs no allocation in
	// the long run.
	NewCell() Cell

	// Draw is keyed randomness: the same (purpose, entity, n) gives the same number
	// throughout one run, whatever else was drawn in between. See [Mix].
	Draw(purpose, entity string, n uint64) uint64
	// Random is a source of bytes, for uuid.NewRandomFromReader. It may be read
	// from several goroutines.
	Random() io.Reader

	// Turn says how many messages an actor may take in its next turn, at least 1,
	// and whether its activation must go back to the scheduler after the turn.
	Turn() (messagesMax int, handBack bool)
	// CallerRuns reports whether a confirmed call may run a turn on its caller's
	// goroutine ([Address.Call]).
	CallerRuns() bool

	// Closing reports that the runtime is ending. The simulation then unwinds its
	// parked waits with runtime.Goexit, which is no crash of the actor.
	Closing() bool
	// Close ends the goroutines kept for later and returns when none of the
	// runtime's is left, so it waits for handlers that still run. Stop the actors
	// first: what is scheduled after Close never runs. Never call it from inside an
	// actor. Twice is harmless.
	Close()
}

// Timer is one call in the future, set by [Runtime.AfterFunc].
type Timer interface {
	// Reset makes the timer ring d from now, whether or not it rang already. A call
	// that is just under way is not taken back, so an owner must stand an early or
	// double ring.
	Reset(d time.Duration)
	// Stop keeps the timer from ringing, unless the call is just under way.
	Stop()
}

// Cell is where one caller waits for one [messages.Answer].
//
// A cell is used once: after Wait or Abandon it may already serve somebody else,
// and must not be touched again. References to it carry a generation, so that an
// answer that comes late reaches nobody instead of the next one.
type Cell interface {
	// Ref returns the reference to put into the command.
	Ref() messages.Ref
	// Wait returns the answer. When ctx ends first it returns context.Cause(ctx)
	// and the cell is abandoned: whoever answers is told that nobody waits, and
	// whether the command was carried out is not known. An answer that is already
	// there wins over an ended ctx.
	Wait(ctx context.Context) (messages.Answer, error)
	// Abandon gives the cell back without waiting, when its command was not sent.
	Abandon()
}

// RealConfig configures [NewReal]. The zero value is sensible.
type RealConfig struct {
	// Executor says how actors that never block get their goroutines. The default
	// is [GoroutinePerActor].
	Executor Executor
	// ParkedMax is how many goroutines stay parked on the actors' lane when all is
	// idle, so that the next wake-up finds a stack that has grown already. 0 means
	// 4·GOMAXPROCS. The blocking lane keeps up to 8 times as many, because one
	// consumer easily has dozens of handlers that all pause together. Parked
	// goroutines cost 2 to 8 KiB each, and none is left after Close.
	ParkedMax int
}

// Executor is a way of running actors that never block.
type Executor uint8

const (
	// GoroutinePerActor gives each active actor a goroutine of its own and lets it
	// go when the actor is idle. It needs no tuning and reaches all cores with few
	// actors.
	GoroutinePerActor Executor = iota
	// Lanes runs all actors on GOMAXPROCS goroutines, in the order they woke up.
	// While an activation waits for its turn its mailbox fills, so that under load
	// work comes in batches by itself: the better throughput with one busy queue,
	// the worse latency when many share the lanes.
	Lanes
)

func (e Executor) String() string {
	switch e {
	case GoroutinePerActor:
		return "goroutine per active actor"
	case Lanes:
		return "lanes"
	}
	return "unknown executor"
}
