package ledger_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// bench is a ledger with so many standing leases, all of another consumer.
type bench struct {
	*ledger.Ledger
	now      time.Time
	standing int
	ids      []string
}

const benchIDs = 1 << 16

func newBench(b testing.TB, standing int, given bool) *bench {
	config := messages.QueueConfig{MaxMessages: messages.Unlimited, NoJitter: true, MaxAttempts: messages.Unlimited}
	l := &bench{now: time.Unix(1_800_000_000, 0), standing: standing}
	l.Ledger = ledger.New(&messages.Source{Queue: "bench", Incarnation: 1}, new(config.WithDefaults()), l.now, ledger.Options{})
	for i := range benchIDs {
		l.ids = append(l.ids, fmt.Sprintf("order-%010d", i))
	}
	holder := &ledger.Consumer{Tag: "holder", Prefetch: standing}
	if err := l.Attach(l.now, holder); err != nil {
		b.Fatal(err)
	}
	p := ledger.Put{GivenID: given}
	for i := range standing {
		p.ID = "standing-" + strconv.Itoa(i)
		if _, err := l.Put(l.now, &p); err != nil {
			b.Fatal(err)
		}
		if l.HandOver(l.now); i%1000 == 0 {
			l.ClearEffects()
		}
	}
	l.ClearEffects()
	l.Detach(l.now, "holder")
	return l
}

// attach adds the consumer that takes part.
func (l *bench) attach(b testing.TB, prefetch int) {
	if err := l.Attach(l.now, &ledger.Consumer{Tag: "me", Prefetch: prefetch}); err != nil {
		b.Fatal(err)
	}
}

// check says that nothing is left but what stands, and that it all adds up.
func (l *bench) check(b *testing.B, acks int) {
	b.Helper()
	b.StopTimer()
	s := l.Stats(l.now)
	if s.Leased != l.standing || s.Ready+s.Delayed != 0 || s.Acks != uint64(acks) {
		b.Fatalf("%d leased, %d ready, %d delayed, %d acks; want %d leased and %d acks", s.Leased, s.Ready, s.Delayed, s.Acks, l.standing, acks)
	}
	if err := l.CheckInvariants(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLifecycle is put, hand-over and ack of one message, while others are
// leased. Those must not matter (SPEC Q18), but for what the caches miss.
func BenchmarkLifecycle(b *testing.B) {
	for _, given := range []bool{false, true} {
		for _, standing := range []int{0, 1_000, 1_000_000} {
			b.Run(fmt.Sprintf("ids=%s/leased=%d", map[bool]string{false: "broker", true: "caller"}[given], standing), func(b *testing.B) {
				l := newBench(b, standing, given)
				l.attach(b, 1)
				p := ledger.Put{GivenID: given}
				p.Body = make([]byte, 64)
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					l.now = l.now.Add(50 * time.Nanosecond)
					p.ID = l.ids[n%benchIDs]
					n++
					if _, err := l.Put(l.now, &p); err != nil {
						b.Fatal(err)
					}
					l.HandOver(l.now)
					effects := l.Effects()
					if err := l.Ack(l.now, effects[len(effects)-1].Tag); err != nil {
						b.Fatal(err)
					}
					l.ClearEffects()
				}
				l.check(b, n)
			})
		}
	}
}

// BenchmarkBatch is the same in batches of 64, as a busy shell does it.
func BenchmarkBatch(b *testing.B) {
	const batch = 64
	for _, given := range []bool{false, true} {
		b.Run(fmt.Sprintf("ids=%s", map[bool]string{false: "broker", true: "caller"}[given]), func(b *testing.B) {
			l := newBench(b, 0, given)
			l.attach(b, batch)
			p := ledger.Put{GivenID: given}
			p.Body = make([]byte, 64)
			var d messages.Delivery
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				l.now = l.now.Add(50 * time.Nanosecond)
				p.ID = l.ids[n%benchIDs]
				if _, err := l.Put(l.now, &p); err != nil {
					b.Fatal(err)
				}
				if n++; n%batch != 0 {
					continue
				}
				l.HandOver(l.now)
				for i := range l.Effects() {
					e := &l.Effects()[i]
					l.Fill(e, &d)
					if err := l.Ack(l.now, d.Tag); err != nil {
						b.Fatal(err)
					}
				}
				l.ClearEffects()
			}
			l.HandOver(l.now)
			for _, e := range l.Effects() {
				if err := l.Ack(l.now, e.Tag); err != nil {
					b.Fatal(err)
				}
			}
			l.check(b, n)
		})
	}
}

// BenchmarkTouch renews one lease after the other of so many, in no order.
func BenchmarkTouch(b *testing.B) {
	for _, standing := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("leased=%d", standing), func(b *testing.B) {
			l := newBench(b, standing, false)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				l.now = l.now.Add(10 * time.Nanosecond)
				n++
				tag := uint64(n*7919%standing) + 1
				at, err := l.Touch(l.now, tag)
				if err != nil || !at.Equal(l.now.Add(messages.DefaultAckTimeout)) {
					b.Fatal(at, err)
				}
			}
			if got := l.Stats(l.now).Touches; got != uint64(n) {
				b.Fatalf("%d touches, want %d", got, n)
			}
			l.check(b, 0)
		})
	}
}

// BenchmarkNackIn gives one lease back after the other, and takes it again when its
// delay is over.
func BenchmarkNackIn(b *testing.B) {
	for _, standing := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("leased=%d", standing), func(b *testing.B) {
			l := newBench(b, standing, false)
			l.attach(b, 1)
			if _, err := l.Put(l.now, &ledger.Put{ID: "mine"}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				l.now = l.now.Add(20 * time.Nanosecond)
				n++
				l.HandOver(l.now)
				if err := l.NackIn(l.now, l.Effects()[0].Tag, 20*time.Nanosecond, ""); err != nil {
					b.Fatal(err)
				}
				l.ClearEffects()
			}
			b.StopTimer()
			if s := l.Stats(l.now); s.Nacks != uint64(n) || s.Leased != standing || s.Delayed != 1 {
				b.Fatalf("%d nacks, %d leased, %d delayed; want %d, %d, 1", s.Nacks, s.Leased, s.Delayed, n, standing)
			}
			if err := l.CheckInvariants(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkMemory reports what a message takes beyond its body, ready and leased,
// with everything: entry, id, index, lease, tag page.
func BenchmarkMemory(b *testing.B) {
	const n = 200_000
	for _, given := range []bool{false, true} {
		b.Run(fmt.Sprintf("ids=%s", map[bool]string{false: "broker", true: "caller"}[given]), func(b *testing.B) {
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			for b.Loop() {
				l := newBench(b, 0, given)
				before := heap()
				for i := range n {
					id := fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i) // as long as a UUID
					if given {
						id = fmt.Sprintf("order-%010d", i)
					}
					if _, err := l.Put(l.now, &ledger.Put{ID: id, GivenID: given}); err != nil {
						b.Fatal(err)
					}
				}
				ready := heap()
				l.attach(b, n)
				l.HandOver(l.now)
				l.ClearEffects()
				l.Trim()
				leased := heap()
				b.ReportMetric(float64(ready-before)/n, "B/ready")
				b.ReportMetric(float64(leased-before)/n, "B/leased")
				if s := l.Stats(l.now); s.Leased != n {
					b.Fatalf("%d leased, want %d", s.Leased, n)
				}
			}
		})
	}
}
