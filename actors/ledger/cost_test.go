package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

func plainLedger(c messages.QueueConfig) *ledger.Ledger {
	return ledger.New(theSource, new(c.WithDefaults()), epoch, ledger.Options{})
}

// TestQ18_SteadyStateAllocatesNothing puts, lends and acks one message at a time,
// once the containers have reached their size.
func TestQ18_SteadyStateAllocatesNothing(t *testing.T) {
	for _, given := range []bool{false, true} {
		t.Run(fmt.Sprintf("given=%v", given), func(t *testing.T) {
			l := plainLedger(messages.QueueConfig{})
			now := epoch
			if err := l.Attach(now, &ledger.Consumer{Tag: "sam", Prefetch: 100}); err != nil {
				t.Fatal(err)
			}
			ids := make([]string, 64)
			for i := range ids {
				ids[i] = fmt.Sprintf("message-%d", i)
			}
			body := []byte("body")
			var d messages.Delivery
			var p ledger.Put
			round := 0
			step := func() {
				now = now.Add(time.Millisecond)
				p = ledger.Put{ID: ids[round%len(ids)], Body: body, GivenID: given}
				round++
				if _, err := l.Put(now, &p); err != nil {
					t.Fatalf("put %d: %v", round, err)
				}
				l.HandOver(now)
				effects := l.Effects()
				if len(effects) != 1 || effects[0].Kind != ledger.HandedOver {
					t.Fatalf("round %d: effects %+v, want one hand-over", round, effects)
				}
				l.Fill(&effects[0], &d)
				l.ClearEffects()
				if err := l.Ack(now, d.Tag); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			for range 10_000 {
				step()
			}
			if raceEnabled {
				t.Skip("the race detector allocates for itself")
			}
			if got := testing.AllocsPerRun(1000, step); got != 0 {
				t.Errorf("put + lend + ack: %v allocations in steady state, want 0", got)
			}
		})
	}
}

// TestQ10_ManyDueAtOneInstant lets very many leases end at one instant. The
// ledger may take them in slices, but a verdict never depends on how far it is.
func TestQ10_ManyDueAtOneInstant(t *testing.T) {
	const many = 50_000
	l := plainLedger(messages.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 2})
	if err := l.Attach(epoch, &ledger.Consumer{Tag: "sam", Prefetch: many}); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		p := &ledger.Put{ID: fmt.Sprintf("m%d", i), GivenID: true}
		if _, err := l.Put(epoch, p); err != nil {
			t.Fatal(err)
		}
	}
	l.HandOver(epoch)
	if got := len(l.Effects()); got != many {
		t.Fatalf("%d effects, want %d hand-overs", got, many)
	}
	l.ClearEffects()
	l.Pause(epoch)

	at := epoch.Add(10 * time.Second)
	slices := 0
	for first := true; first || l.Behind(); first = false {
		slices++
		// The last lease of all is as over as the first one. How an early one ended may
		// be forgotten by then: 4,096 ended leases are remembered.
		for _, tag := range []uint64{many, 1, many / 2} {
			err := l.Ack(at, tag)
			var stale *messages.StaleError
			if !errors.As(err, &stale) || !stale.Issued {
				t.Fatalf("slice %d: ack of tag %d at its deadline: %v, want stale, over", slices, tag, err)
			}
			if stale.Ended != messages.LeaseExpired && (tag == many || stale.Ended != messages.LeaseRunning) {
				t.Fatalf("slice %d: ack of tag %d at its deadline: %v, want stale, over: expired", slices, tag, err)
			}
		}
		r, err := l.Put(at, &ledger.Put{ID: fmt.Sprintf("m%d", many-1), GivenID: true})
		if err != nil || !r.Duplicate {
			t.Fatalf("slice %d: put of an id that is still here: %+v, %v, want a duplicate", slices, r, err)
		}
		if next, ok := l.NextDeadline(); l.Behind() && (!ok || next.After(at)) {
			t.Fatalf("slice %d: work is left, yet the next deadline is %s", slices, instant(next))
		}
		if err := conserved(l.Stats(at)); err != nil {
			t.Fatalf("slice %d: %v", slices, err)
		}
		l.Tick(at)
		if slices > many {
			t.Fatalf("still behind after %d ticks", slices)
		}
	}
	t.Logf("%d leases in %d slices", many, slices)
	if got := l.Stats(at); got.Ready != many || got.Expiries != many || got.Leased != 0 {
		t.Fatalf("after all: ready %d, leased %d, expiries %d, want %d, 0, %d", got.Ready, got.Leased, got.Expiries, many, many)
	}
	tag := uint64(0)
	for _, e := range l.Effects() {
		if e.Kind == ledger.LeaseLost {
			tag++
			if e.Tag != tag {
				t.Fatalf("lease %d was lost after %d, want tag order", e.Tag, tag-1)
			}
		}
	}
	if tag != many {
		t.Fatalf("%d leases lost, want %d", tag, many)
	}
	for i, d := range l.Peek(many) {
		if want := fmt.Sprintf("m%d", i); d.ID != want {
			t.Fatalf("ready message %d is %s, want %s: returned together go in tag order", i, d.ID, want)
		}
	}
	if err := l.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// TestQ8_LastEndedLeasesAreKnown acks in an order of its own and asks for the
// first of the last 4,096 ended leases, and for the one before.
func TestQ8_LastEndedLeasesAreKnown(t *testing.T) {
	const known, more = 4096, 1000
	l := plainLedger(messages.QueueConfig{})
	if err := l.Attach(epoch, &ledger.Consumer{Tag: "sam", Prefetch: known + more}); err != nil {
		t.Fatal(err)
	}
	for i := range known + more {
		if _, err := l.Put(epoch, &ledger.Put{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	l.HandOver(epoch)
	l.ClearEffects()
	// Every second one from the end, then the rest from the start.
	var order []uint64
	for tag := uint64(known + more); tag > 1; tag -= 2 {
		order = append(order, tag)
	}
	for tag := uint64(1); tag < known+more; tag += 2 {
		order = append(order, tag)
	}
	for _, tag := range order {
		if err := l.Ack(epoch, tag); err != nil {
			t.Fatalf("ack of tag %d: %v", tag, err)
		}
	}
	for i, tag := range order {
		var stale *messages.StaleError
		if err := l.Ack(epoch, tag); !errors.As(err, &stale) || !stale.Issued {
			t.Fatalf("second ack of tag %d: %v, want stale and issued", tag, err)
		}
		want := messages.LeaseAcked
		if i < more {
			want = messages.LeaseRunning // not known any more
		}
		if stale.Ended != want {
			t.Fatalf("the lease that ended as number %d of %d: %v, want %v", i+1, len(order), stale.Ended, want)
		}
	}
}

// wallStep returns now as a clock would read it whose wall time was set forward by
// step while its monotonic time went on. There is no other way to make one.
func wallStep(t *testing.T, now time.Time, step time.Duration) time.Time {
	t.Helper()
	stepped := now.Add(step)
	parts := func(t *time.Time) *[2]uint64 { return (*[2]uint64)(unsafe.Pointer(t)) }
	if parts(&now)[0]>>63 == 0 {
		t.Fatal("the time has no monotonic reading")
	}
	parts(&stepped)[1] = parts(&now)[1] // the monotonic reading
	if stepped.Sub(now) != 0 || stepped.Round(0).Sub(now.Round(0)) != step {
		t.Skip("time.Time is laid out in another way")
	}
	return stepped
}

// TestK3_OnlyExpiresAtIsWallTime sets the wall clock an hour forward in the middle
// of a lease, a delay and a TTL: none of them notices. A business deadline does.
func TestK3_OnlyExpiresAtIsWallTime(t *testing.T) {
	start := time.Now()
	config := messages.QueueConfig{AckTimeout: 10 * time.Second, TTL: 30 * time.Second, DedupWindow: time.Minute}
	l := ledger.New(theSource, new(config.WithDefaults()), start, ledger.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(at time.Time, e messages.Envelope) error {
		p := ledger.NewPut(&e, true)
		_, err := l.Put(at, &p)
		return err
	}
	must(l.Attach(start, &ledger.Consumer{Tag: "sam", Prefetch: 1}))
	must(put(start, messages.Envelope{ID: "leased"}))
	must(put(start, messages.Envelope{ID: "ready"}))
	must(put(start, messages.Envelope{ID: "delayed", Delay: 10 * time.Second}))
	l.HandOver(start)

	at := func(mono time.Duration) time.Time { return wallStep(t, start.Add(mono), time.Hour) }
	if _, err := l.Touch(at(9*time.Second), 1); err != nil {
		t.Fatalf("touch in the ninth second of a lease of ten, the wall clock having jumped: %v", err)
	}
	if s := l.Stats(at(9 * time.Second)); s.Ready != 1 || s.Delayed != 1 || s.Leased != 1 || s.Dead() != 0 {
		t.Fatalf("after the jump: ready %d, delayed %d, leased %d, dead %d, want 1, 1, 1, 0", s.Ready, s.Delayed, s.Leased, s.Dead())
	}
	if err := put(at(9*time.Second), messages.Envelope{ID: "past", ExpiresAt: start.Add(30 * time.Minute)}); !errors.Is(err, messages.ErrExpired) {
		t.Errorf("put whose wall deadline has passed: %v, want %v", err, messages.ErrExpired)
	}
	must(put(at(9*time.Second), messages.Envelope{ID: "in time", ExpiresAt: start.Add(time.Hour + 11*time.Second)}))
	if s := l.Stats(at(10 * time.Second)); s.Ready != 3 || s.Dead() != 0 {
		t.Fatalf("at 10 s: ready %d, dead %d, want 3, 0", s.Ready, s.Dead())
	}
	if s := l.Stats(at(11 * time.Second)); s.DeadBy[messages.Expired] != 1 {
		t.Errorf("at the wall deadline: %d expired, want 1", s.DeadBy[messages.Expired])
	}
}

// TestQ15_NothingDeadIsHandedOver has more messages die at one instant than two
// slices hold: the consumer that waits for them gets none, however far the ledger
// has come with burying them.
func TestQ15_NothingDeadIsHandedOver(t *testing.T) {
	const many = 3*4096 + 100
	l := plainLedger(messages.QueueConfig{TTL: 10 * time.Second, DeadLetterLimit: messages.Unlimited})
	for i := range many {
		if _, err := l.Put(epoch, &ledger.Put{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	at := epoch.Add(10 * time.Second)
	if err := l.Attach(at, &ledger.Consumer{Tag: "sam", Prefetch: many}); err != nil {
		t.Fatal(err)
	}
	if !l.Behind() {
		t.Fatalf("%d deaths at one instant were settled at once; this test needs more", many)
	}
	for range many {
		l.HandOver(at)
		if !l.Behind() {
			break
		}
	}
	died := 0
	for _, e := range l.Effects() {
		switch e.Kind {
		case ledger.HandedOver:
			t.Fatalf("message of tag %d was handed over at the instant of its death", e.Tag)
		case ledger.Died:
			died++
		}
	}
	if died != many {
		t.Errorf("%d died, want %d", died, many)
	}
}

// TestQ18_ALeaseKeepsItsQueueAwake trims a queue whose only message is in the hands of
// somebody who has left, and has it back: a ledger at rest has no place for it.
func TestQ18_ALeaseKeepsItsQueueAwake(t *testing.T) {
	l := plainLedger(messages.QueueConfig{})
	require.NoError(t, l.Attach(epoch, &ledger.Consumer{Tag: "sam", Prefetch: 1}))
	_, err := l.Put(epoch, &ledger.Put{ID: "m1"})
	require.NoError(t, err)
	l.HandOver(epoch)
	require.Len(t, l.Effects(), 1)
	l.ClearEffects()
	require.True(t, l.Detach(epoch, "sam"))
	l.Trim()
	require.NoError(t, l.NackIn(epoch, 1, 0, ""))
	require.NoError(t, l.CheckInvariants())
	require.Equal(t, 1, l.Stats(epoch).Ready)
}
