package benchmark

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
)

// bodyBytes is the size of a message's body where nothing else is said.
const bodyBytes = 100

// The two ways of running actors.
const (
	goroutines = "goroutines" // one for each active queue
	lanes      = "lanes"      // GOMAXPROCS of them
)

var executors = []string{goroutines, lanes}

// queuePrefix begins the name of every queue here; it tells their actors apart.
const queuePrefix = "bench"

// bench is an open broker whose queues' wake-ups are counted.
type bench struct {
	*postroom.Broker
	runtime *counting
}

// counting is the runtime of production that also counts how often a queue's actor
// was woken. That costs a comparison for each wake-up and nothing for a message.
//
// With a goroutine per active queue a wake-up lasts until the queue's mailbox is
// empty; on lanes it is one turn.
type counting struct {
	*actorkit.Real
	wakeUps atomic.Int64
}

var _ actorkit.Announcer = (*counting)(nil)

// Announce implements [actorkit.Announcer].
func (c *counting) Announce(actor string) {
	if strings.Contains(actor, "/"+queuePrefix) {
		c.wakeUps.Add(1)
	}
}

func open(executor string) (*bench, error) {
	config := actorkit.RealConfig{}
	if executor == lanes {
		config.Executor = actorkit.Lanes
	}
	rt := &counting{Real: actorkit.NewReal(config)}
	broker, err := postroom.Open(postroom.WithRuntime(rt, nil))
	if err != nil {
		rt.Close()
		return nil, err
	}
	return &bench{broker, rt}, nil
}

// close ends the broker and what it ran on. It has a time of its own: the caller's
// may be over.
func (b *bench) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		return fmt.Errorf("close: %w", err) // whatever is stuck would keep the runtime for ever
	}
	return b.runtime.Shutdown(ctx)
}

// with opens a broker for fn and closes it.
func with(executor string, fn func(*bench) (sample, error)) (s sample, err error) {
	b, err := open(executor)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return fn(b)
}

// deep is the configuration of a queue that takes a million messages and more.
func deep() postroom.QueueConfig {
	return postroom.QueueConfig{MaxMessages: postroom.Unlimited, MaxBytes: postroom.Unlimited, AckTimeout: time.Hour, NoJitter: true}
}

// fill puts n messages with made ids.
func (b *bench) fill(ctx context.Context, queue string, n int) error {
	body := make([]byte, bodyBytes)
	batch := make([]postroom.Envelope, 256)
	for i := range batch {
		batch[i].Body = body
	}
	for n > 0 {
		part := batch[:min(n, len(batch))]
		results, err := b.PutBatch(ctx, queue, part)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Err != nil {
				return r.Err
			}
		}
		n -= len(part)
	}
	return nil
}

// lease takes n messages, each for as long as the queue says.
func (b *bench) lease(ctx context.Context, queue string, n int) ([]postroom.Receipt, error) {
	receipts := make([]postroom.Receipt, n)
	for i := range receipts {
		d, err := b.Get(ctx, queue, postroom.GetConfig{NoWait: true})
		if err != nil {
			return nil, err
		}
		receipts[i] = d.Receipt()
	}
	return receipts, nil
}

// usage is what the process has allocated.
type usage struct{ mallocs, bytes uint64 }

func allocated() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.Mallocs, m.TotalAlloc}
}

// since notes in s what was allocated for each of n messages.
func (u usage) since(s *sample, n int) {
	now := allocated()
	s.allocs, s.bytes = float64(now.mallocs-u.mallocs)/float64(n), float64(now.bytes-u.bytes)/float64(n)
	s.counted = true
}

// heap is what is live, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what finalisers and pools held the first time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// sample is what one round of one case has found.
type sample struct {
	value     float64
	backlog   int64   // deepest seen; 0: not looked at
	perWakeUp float64 // messages handled for each wake-up of a queue; 0: not counted
	callerRan bool    // no queue was ever woken: its turns ran on the caller

	counted       bool // allocs and bytes are there
	allocs, bytes float64

	spread []float64 // more figures that the case came by, as it says
}

// woken notes in s how many messages there were for each wake-up.
func (b *bench) woken(s *sample, before int64, n int) {
	if w := b.runtime.wakeUps.Load() - before; w > 0 {
		s.perWakeUp = float64(n) / float64(w)
	} else {
		s.callerRan = true
	}
}
