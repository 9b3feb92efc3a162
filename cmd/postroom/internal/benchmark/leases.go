package benchmark

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/postroom/postroom"
)

// expiry is so many leases of one queue that run out at one instant, while others put
// into another queue. Its value is nanoseconds a lease until the last is over; spread
// holds the others' p99 before and meanwhile, in nanoseconds.
type expiry struct {
	executor string
	leases   int
}

// probesEvery is how often the others put: often enough for a p99 of a short time.
const probesEvery = 100 * time.Microsecond

func (f expiry) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue, other = queuePrefix, queuePrefix + "-other"
		for _, q := range []string{queue, other} {
			if err := b.DeclareQueue(ctx, q, deep()); err != nil {
				return s, err
			}
		}
		if err := b.fill(ctx, queue, f.leases); err != nil {
			return s, err
		}
		began := time.Now()
		receipts, err := b.lease(ctx, queue, f.leases)
		if err != nil {
			return s, err
		}
		// Now they are made to end together. A touch takes less time than a hand-over
		// did, whatever the machine is like.
		runtime.GC()
		end := time.Now().Add(300*time.Millisecond + time.Since(began))
		if err := b.endAt(ctx, receipts, end); err != nil {
			return s, err
		}
		wakeUps := b.runtime.wakeUps.Load()
		probe := b.startProbe(ctx, other)
		over := time.Time{}
		for over.IsZero() && err == nil {
			now := time.Now()
			if now.Before(end) {
				err = waitUntil(ctx, end)
				continue
			}
			var stats postroom.QueueStats
			if stats, err = b.QueueStats(ctx, queue); err == nil && stats.Leased == 0 {
				over = time.Now()
				if stats.Expiries != uint64(f.leases) || stats.Ready != f.leases {
					err = fmt.Errorf("%d leases ran out and %d messages are ready again, want %d", stats.Expiries, stats.Ready, f.leases)
				}
				break
			}
			time.Sleep(200 * time.Microsecond) // a look is a command too
		}
		before, meanwhile, probeErr := probe(end, over)
		if err = errors.Join(err, probeErr); err != nil {
			return s, err
		}
		s.value = perMessage(over.Sub(end), f.leases)
		s.spread = []float64{before, meanwhile}
		s.backlog = int64(f.leases)
		b.woken(&s, wakeUps, f.leases)
		return s, nil
	})
}

// endAt has leases run out at an instant.
func (b *bench) endAt(ctx context.Context, receipts []postroom.Receipt, end time.Time) error {
	for part := range slices.Chunk(receipts, 256) {
		left := time.Until(end)
		if left <= 0 {
			return errors.New("the machine is too slow: the first leases ran out before the last was touched")
		}
		settlements := make([]postroom.Settlement, len(part))
		for i, r := range part {
			settlements[i] = postroom.Settlement{Receipt: r, Verb: postroom.VerbTouch, Delay: left}
		}
		results, err := b.SettleBatch(ctx, settlements)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Err != nil {
				return r.Err
			}
		}
	}
	return nil
}

// probed is one put of the others.
type probed struct {
	due  time.Time
	took time.Duration // from when it was due
}

// startProbe has one goroutine put at even intervals until the function that it
// returns is called, which says what 99 of 100 stayed below before begin and between
// begin and end.
func (b *bench) startProbe(ctx context.Context, queue string) func(begin, end time.Time) (before, between float64, err error) {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	var all []probed
	go func() {
		body := make([]byte, bodyBytes)
		due := time.Now()
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(time.Until(due)):
			}
			if _, err := b.Put(ctx, queue, postroom.Envelope{Body: body}); err != nil {
				stopped <- err
				return
			}
			all = append(all, probed{due, time.Since(due)})
			due = due.Add(probesEvery)
		}
	}()
	return func(begin, end time.Time) (before, between float64, err error) {
		close(stop)
		err = <-stopped
		var first, second []time.Duration
		for _, p := range all {
			switch {
			case p.due.Before(begin):
				first = append(first, p.took)
			case p.due.Before(end):
				second = append(second, p.took)
			}
		}
		return p99(first), p99(second), err
	}
}

func p99(d []time.Duration) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[(len(d)*99)/100])
}

// held is a queue with standing leases, of which some are touched or given back.
type held struct {
	executor string
	leases   int
	calls    int // of each kind
	batch    int // so many in one SettleBatch; zero: one call each
	nack     bool
	random   bool // in no order; otherwise in that of the hand-overs, as heartbeats come
}

// givenBack bounds how many leases are missing at a time because they were given back.
const givenBack = 250

func (f held) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue = queuePrefix
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		if err := b.fill(ctx, queue, f.leases); err != nil {
			return s, err
		}
		receipts, err := b.lease(ctx, queue, f.leases)
		if err != nil {
			return s, err
		}
		if f.random {
			random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each round, and no secret
			random.Shuffle(len(receipts), func(i, j int) { receipts[i], receipts[j] = receipts[j], receipts[i] })
		}
		runtime.GC() // what the making of a million leases has left to do is not the calls' cost
		s.backlog = int64(f.leases)
		wakeUps := b.runtime.wakeUps.Load()
		var took time.Duration
		if f.nack {
			took, err = b.nackAll(ctx, queue, receipts, f.calls)
		} else {
			took, err = b.touchAll(ctx, receipts, f.calls, f.batch)
		}
		if err != nil {
			return s, err
		}
		s.value = perMessage(took, f.calls)
		b.woken(&s, wakeUps, f.calls)
		stats, err := b.QueueStats(ctx, queue)
		if err != nil {
			return s, err
		}
		touches, nacks := uint64(f.calls), uint64(0)
		if f.nack {
			touches, nacks = nacks, touches
		}
		if stats.Touches != touches || stats.Nacks != nacks || stats.Delayed != int(nacks) || stats.Leased != f.leases || stats.Expiries > 0 {
			return s, fmt.Errorf("%d touches, %d nacks, %d delayed, %d leased, %d expiries; want %d, %d, %d, %d, 0",
				stats.Touches, stats.Nacks, stats.Delayed, stats.Leased, stats.Expiries, touches, nacks, nacks, f.leases)
		}
		return s, nil
	})
}

func (b *bench) touchAll(ctx context.Context, receipts []postroom.Receipt, calls, batch int) (time.Duration, error) {
	settlements := make([]postroom.Settlement, max(batch, 1))
	began := time.Now()
	for done := 0; done < calls; done += len(settlements) {
		settlements = settlements[:min(len(settlements), calls-done)]
		for i := range settlements {
			settlements[i] = postroom.Settlement{Receipt: receipts[(done+i)%len(receipts)], Verb: postroom.VerbTouch}
		}
		if batch == 0 {
			if _, err := b.Settle(ctx, settlements[0]); err != nil {
				return 0, err
			}
			continue
		}
		if _, err := b.SettleBatch(ctx, settlements); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// nackAll gives leases back for an hour. Each time that some are gone others take
// their place, off the clock, so that as many stay leased.
func (b *bench) nackAll(ctx context.Context, queue string, receipts []postroom.Receipt, calls int) (took time.Duration, err error) {
	for done := 0; done < calls; {
		part := min(givenBack, calls-done)
		began := time.Now()
		for i := range part {
			at := (done + i) % len(receipts)
			_, err := b.Settle(ctx, postroom.Settlement{Receipt: receipts[at], Verb: postroom.VerbNackIn, Delay: time.Hour})
			if err != nil {
				return 0, err
			}
		}
		took += time.Since(began)
		if err := b.fill(ctx, queue, part); err != nil {
			return 0, err
		}
		fresh, err := b.lease(ctx, queue, part)
		if err != nil {
			return 0, err
		}
		for i, r := range fresh {
			receipts[(done+i)%len(receipts)] = r
		}
		done += part
	}
	return took, nil
}

// delayed is messages that wait for an instant and are then worked off: nanoseconds a
// message from that instant. spread holds the cost of a put, in nanoseconds.
type delayed struct {
	executor string
	messages int
}

func (f delayed) run(ctx context.Context) (sample, error) {
	return with(f.executor, func(b *bench) (s sample, err error) {
		const queue = queuePrefix
		if err := b.DeclareQueue(ctx, queue, deep()); err != nil {
			return s, err
		}
		var due time.Time
		var put float64
		for allowed := 500 * time.Millisecond; ; allowed *= 2 { // more on a slow machine
			due = time.Now().Add(allowed)
			var inTime bool
			if put, inTime, err = b.putDelayed(ctx, queue, f.messages, due); err != nil {
				return s, err
			}
			if inTime {
				break
			}
			if _, err := b.Purge(ctx, queue); err != nil {
				return s, err
			}
		}
		stats, err := b.QueueStats(ctx, queue)
		if err != nil {
			return s, err
		}
		if stats.Delayed != f.messages {
			return s, fmt.Errorf("%d messages delayed, want %d", stats.Delayed, f.messages)
		}
		g := newGate(window)
		first := make(chan time.Time, 1)
		wakeUps := b.runtime.wakeUps.Load()
		_, err = b.Consume(ctx, queue, func(context.Context, *postroom.Delivery) error {
			if g.handled.Load() == 0 {
				first <- time.Now()
			}
			g.done()
			return nil
		}, postroom.ConsumerConfig{Prefetch: 256})
		if err != nil {
			return s, err
		}
		if err := b.Drain(ctx, queue); err != nil {
			return s, err
		}
		s.value = perMessage(time.Since(due), f.messages)
		s.spread = []float64{put}
		s.backlog = int64(f.messages)
		b.woken(&s, wakeUps, f.messages)
		// A millisecond for what passes between the delay's making and the put.
		if at := <-first; at.Before(due.Add(-time.Millisecond)) {
			return s, fmt.Errorf("the first message came %s early", due.Sub(at))
		}
		if n := g.handled.Load(); n != int64(f.messages) {
			return s, fmt.Errorf("%d messages handled, want %d", n, f.messages)
		}
		return s, nil
	})
}

// putDelayed puts messages that are due at one instant: nanoseconds a put, and whether
// all were there before it.
func (b *bench) putDelayed(ctx context.Context, queue string, n int, due time.Time) (ns float64, inTime bool, err error) {
	body := make([]byte, bodyBytes)
	began := time.Now()
	for left := n; left > 0; {
		delay := time.Until(due)
		if delay <= 0 {
			return 0, false, nil
		}
		batch := make([]postroom.Envelope, min(64, left))
		for i := range batch {
			batch[i] = postroom.Envelope{Body: body, Delay: delay}
		}
		if _, err := b.PutBatch(ctx, queue, batch); err != nil {
			return 0, false, err
		}
		left -= len(batch)
	}
	return perMessage(time.Since(began), n), time.Now().Before(due), nil
}
