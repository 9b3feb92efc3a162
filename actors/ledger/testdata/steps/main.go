// Steps carries out each operation of a ledger that holds very many messages, and
// writes down how often each of the ledger's statements was run for it.
//
//	go build -cover -covermode=atomic -o steps ./actors/ledger/testdata/steps
//	GOCOVERDIR=OTHER steps DIR N
//
// makes a directory of counters in DIR for each operation, carried out 64 times. The
// test of Q18 builds and runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

const times = 64

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func ensure(ok bool, what string) {
	if !ok {
		panic(what)
	}
}

// full is a ledger with n messages ready, n leased, n delayed and n dead, of ten
// priorities, each with an id of the caller's, an end and a deadline of its own.
type full struct {
	*ledger.Ledger
	n, ids int
	dir    string
}

func (f *full) id() string {
	f.ids++
	return strconv.Itoa(f.ids)
}

func (f *full) put(e messages.Envelope) {
	given := e.ID != ""
	if !given {
		e.ID = "made-" + f.id()
	}
	p := ledger.NewPut(&e, given)
	_, err := f.Put(now, &p)
	must(err)
	f.ClearEffects()
}

func (f *full) handOver() (tag uint64) {
	f.HandOver(now)
	for i := range f.Effects() {
		if e := &f.Effects()[i]; e.Kind == ledger.HandedOver {
			tag = e.Tag
		}
	}
	ensure(tag != 0, "nothing was handed over")
	f.ClearEffects()
	return tag
}

// get lends one message to a Get.
func (f *full) get() (tag uint64) {
	f.Want(now, &ledger.Waiter{Holder: "session"})
	return f.handOver()
}

func (f *full) fill() {
	for i := range f.n { // leased
		now = now.Add(time.Microsecond)
		f.put(messages.Envelope{ID: f.id(), Priority: i % 10, ExpiresAt: now.Add(100 * time.Hour)})
		f.get()
	}
	for i := range 2 * f.n { // dead, and delayed behind them
		now = now.Add(time.Microsecond)
		e := messages.Envelope{ID: f.id(), Priority: i % 10}
		if i >= f.n {
			e.Delay, e.ExpiresAt = 10*time.Hour, now.Add(100*time.Hour)
		}
		f.put(e)
		if i < f.n {
			must(f.Reject(now, f.get(), "no"))
			f.ClearEffects()
		}
	}
	for i := range f.n { // ready
		now = now.Add(time.Microsecond)
		f.put(messages.Envelope{ID: f.id(), Priority: i % 10, ExpiresAt: now.Add(100 * time.Hour)})
	}
}

// count carries out an operation; what before does is not counted.
func (f *full) count(name string, before func(), operation func(i int)) {
	if before != nil {
		for range times {
			before()
		}
	}
	must(coverage.ClearCounters())
	for i := range times {
		operation(i)
		f.ClearEffects()
	}
	dir := filepath.Join(f.dir, name)
	must(os.MkdirAll(dir, 0o700))
	must(coverage.WriteMetaDir(dir))
	must(coverage.WriteCountersDir(dir))
	s := f.Stats(now)
	for what, got := range map[string]int{"ready": s.Ready, "delayed": s.Delayed, "leased": s.Leased, "dead": s.DeadLetters} {
		ensure(got >= f.n/4 && got < 3*f.n, fmt.Sprintf("after %s %d are %s, of %d", name, got, what, f.n))
	}
}

func main() {
	n, err := strconv.Atoi(os.Args[2])
	must(err)
	source := &messages.Source{Queue: "q", Incarnation: 1}
	config := messages.QueueConfig{
		AckTimeout: time.Hour, MaxAttempts: messages.Unlimited, MaxMessages: messages.Unlimited, DeadLetterLimit: messages.Unlimited,
		DeadLetterBytes: messages.Unlimited, DedupWindow: time.Hour, BackoffBase: time.Hour, MaxAge: 1000 * time.Hour,
	}
	f := &full{Ledger: ledger.New(source, new(config.WithDefaults()), now, ledger.Options{}), n: n, dir: os.Args[1]}
	f.fill()

	var tags []uint64
	lend := func() { tags = append(tags, f.get()) }
	settle := func(name string, verb func(tag uint64) error) {
		tags = tags[:0]
		f.count(name, lend, func(i int) { must(verb(tags[(i*37)%times])) })
	}
	tick := func() { now = now.Add(time.Microsecond) }

	f.count("put", nil, func(int) { tick(); f.put(messages.Envelope{ID: f.id()}) })
	f.count("put-without-id", nil, func(int) { tick(); f.put(messages.Envelope{}) })
	f.count("put-with-an-end", nil, func(int) { tick(); f.put(messages.Envelope{ID: f.id(), ExpiresAt: now.Add(time.Hour)}) })
	f.count("put-with-a-delay", nil, func(int) { tick(); f.put(messages.Envelope{ID: f.id(), Delay: time.Hour}) })
	f.count("put-of-a-duplicate", nil, func(i int) { tick(); f.put(messages.Envelope{ID: strconv.Itoa(i + 1)}) })
	f.count("hand-over", nil, func(int) { tick(); f.get() })
	f.count("unwant", func() { f.Pause(now) }, func(int) {
		w := &ledger.Waiter{Holder: "session"}
		f.Want(now, w)
		ensure(f.Unwant(w), "the Get is not in line")
	})
	f.Resume(now)
	settle("ack", func(tag uint64) error { return f.Ack(now, tag) })
	settle("nack", func(tag uint64) error { return f.Nack(now, tag, "no") })
	settle("nack-at-once", func(tag uint64) error { return f.NackIn(now, tag, 0, "no") })
	settle("reject", func(tag uint64) error { return f.Reject(now, tag, "no") })
	settle("release", func(tag uint64) error { return f.Release(now, tag) })
	settle("touch", func(tag uint64) error { _, err := f.Touch(now, tag); return err })
	settle("touch-for", func(tag uint64) error { _, err := f.TouchFor(now, tag, time.Minute); return err })
	settle("crashed", func(tag uint64) error { f.Crashed(now, tag, "crash"); return nil })
	f.count("stale-ack", nil, func(i int) { ensure(f.Ack(now, 1<<40+uint64(i)) != nil, "acked") })
	f.count("ack-of-an-old-lease", nil, func(i int) { must(f.Ack(now, uint64(n/2+i))) })
	f.count("redrive", nil, func(i int) { _, err := f.Redrive(now, uint64(n/2+i)); must(err) })
	f.count("remove-letter", nil, func(i int) { ensure(f.RemoveLetter(now, uint64(n/3+i)), "no letter") })
	f.count("dead-letter", nil, func(i int) { ensure(len(f.DeadLetters(uint64(n/4+i), 1)) == 1, "no letter") })
	f.count("discard", nil, func(i int) { ensure(f.Discard(now, []string{strconv.Itoa(n + 2 + i)}) == 1, "no letter") })
	f.count("stats", nil, func(int) { f.Stats(now) })
	f.count("next-deadline", nil, func(int) { f.NextDeadline() })

	// until ticks until one more of something was counted; claims end meanwhile.
	until := func(counted func(s messages.QueueStats) uint64) func(int) {
		return func(int) {
			for before := counted(f.Stats(now)); counted(f.Stats(now)) == before; f.Tick(now) {
				at, ok := f.NextDeadline()
				ensure(ok, "nothing is due")
				now = at
			}
		}
	}
	f.count("end-of-a-delay", func() { tick(); f.put(messages.Envelope{ID: f.id(), Delay: time.Millisecond}) },
		until(func(s messages.QueueStats) uint64 { return uint64(s.Ready) }))
	f.count("end-of-a-life", func() { tick(); f.put(messages.Envelope{ID: f.id(), ExpiresAt: now.Add(time.Millisecond)}) },
		until(func(s messages.QueueStats) uint64 { return s.DeadBy[messages.Expired] }))
	f.count("expiry-of-a-lease", nil, until(func(s messages.QueueStats) uint64 { return s.Expiries }))
}
