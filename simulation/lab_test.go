package simulation

import (
	"syscall"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postroom/postroom"
)

// small is a plain world: ten items, a few scripted workers, faults.
func small(faults Catalogue) Spec {
	return Spec{Name: "small", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: 2 * time.Second})
		w.Workers("w", 3, q, Script(500*time.Millisecond, nil), postroom.ConsumerConfig{})
		w.Produce("api", q, Items(10), nil)
		w.Faults(faults)
	}}
}

func passes(t *testing.T, r *Result) {
	t.Helper()
	if r.Failed() {
		for _, e := range r.Events[max(0, len(r.Events)-40):] {
			t.Log(e)
		}
		t.Fatalf("seed %d: %v %v %v %s\nfaults %v", r.Plan.Seed, r.Violations, r.Alarms, r.Err, r.Waits, r.Plan.Faults)
	}
}

func TestASpecRunsAndReplays(t *testing.T) {
	s := small(Catalogue{})
	r := s.Run(1)
	passes(t, &r)
	for _, e := range r.Events {
		t.Log(e)
	}
	again := s.Run(1)
	require.Equal(t, r.TraceHash, again.TraceHash)
	replayed := s.Replay(r.Plan)
	passes(t, &replayed)
	require.Equal(t, r.TraceHash, replayed.TraceHash)
	assert.Equal(t, 10, r.Jepsen.Acknowledged)
	assert.True(t, r.Jepsen.Valid)
}

func TestFaultsOfWorkers(t *testing.T) {
	s := small(AnyWorkerFault())
	for seed := range uint64(200) {
		r := s.Run(seed)
		passes(t, &r)
	}
}

func TestStandard(t *testing.T) {
	hits := map[string]int{}
	events := 0
	for seed := range uint64(500) {
		s := Standard()
		r := s.Run(seed)
		if r.Failed() {
			passes(t, &r)
		}
		events += r.EventCount
		for name, n := range r.Hits {
			hits[name] += n
		}
	}
	t.Log(hits, events)
}

// cpu is the processor time of this process so far: what a figure means on a machine
// that others work on too.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchmark(b *testing.B, s Spec) {
	began := cpu()
	b.ReportAllocs()
	sum := s.Campaign(Campaign{First: 1, Last: uint64(b.N), Jobs: 1, Recheck: -1})
	spent := (cpu() - began).Seconds()
	if sum.Failed() || sum.Seeds != b.N {
		b.Fatalf("%d seeds: %v", sum.Seeds, sum.Failures)
	}
	b.ReportMetric(float64(sum.Events)/spent, "events/cpu-s")
	b.ReportMetric(float64(sum.Steps)/spent, "steps/cpu-s")
	b.ReportMetric(float64(sum.Seeds)/spent, "seeds/cpu-s")
	b.ReportMetric(float64(sum.Events)/float64(sum.Seeds), "events/seed")
}

// BenchmarkStandard is the small world with all faults, as a campaign runs it.
func BenchmarkStandard(b *testing.B) { benchmark(b, Standard()) }

// BenchmarkThousand is runs of about 1,000 events, where opening and closing a broker
// no longer counts.
func BenchmarkThousand(b *testing.B) {
	benchmark(b, Spec{Name: "thousand", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{})
		w.Workers("w", 3, q, Script(20*time.Millisecond, nil), postroom.ConsumerConfig{Concurrency: 2})
		w.Produce("api", q, Over(10*time.Second, 140), nil)
	}})
}

func TestCheckStandard(t *testing.T) { Check(t, Standard()) }

// A campaign uses one actor system after the other run; whatever a run ends with, it
// leaves no goroutine, and no name that the next one would find taken.
func TestRunsLeaveNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cut := Standard()
	cut.Steps = 60 // ends in the middle
	whole := Standard()
	for seed := range uint64(30) {
		r := cut.Run(seed)
		require.True(t, r.Failed())
		again := whole.Run(seed)
		require.False(t, again.Failed(), "seed %d: %v %s", seed, again.Signature(), again.Err)
	}
	systems.mu.Lock()
	defer systems.mu.Unlock()
	for _, s := range systems.free {
		for _, name := range []string{"broker", "broker/queues", "broker/consumers", "broker/topic-router", "broker/queues/mail#1"} {
			_, taken := s.ProcessRegistry.Get(actorPID(s, name))
			assert.False(t, taken, name)
		}
	}
}

func actorPID(s *actor.ActorSystem, name string) *actor.PID {
	return &actor.PID{Address: s.Address(), Id: name}
}
