package simulation

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
)

// stopwatch begins to measure real time and returns what tells it. It is for figures
// only: nothing in a run depends on it.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// systems are actor systems between two runs. Making one costs 10 ms, as much as
// several runs; what is in them is named by the run, and gone at its end.
var systems struct {
	mu   sync.Mutex
	free []*actor.ActorSystem
}

// spareRecords are slices for a run's records, which are large and short-lived.
var spareRecords sync.Pool

func borrowRecords() []ledger.Record {
	if s, ok := spareRecords.Get().(*[]ledger.Record); ok {
		return *s
	}
	return make([]ledger.Record, 0, 256)
}

func returnRecords(s []ledger.Record) {
	clear(s)
	s = s[:0]
	spareRecords.Put(&s)
}

func borrowSystem(fresh bool) *actor.ActorSystem {
	if !fresh {
		systems.mu.Lock()
		defer systems.mu.Unlock()
		if last := len(systems.free) - 1; last >= 0 {
			s := systems.free[last]
			systems.free = systems.free[:last]
			return s
		}
	}
	return actorkit.NewSystem(NewRuntime(0), nil).ActorSystem()
}

// returnSystem keeps a system whose run left nothing in it; one of a run that was cut
// short still holds its names, and is dropped.
func returnSystem(s *actor.ActorSystem, clean bool) {
	if clean {
		systems.mu.Lock()
		systems.free = append(systems.free, s)
		systems.mu.Unlock()
	}
}
