package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

// step is one thing that a random program does. What its numbers mean depends on
// the kind; they are taken modulo what there is.
type step struct {
	Kind    int
	A, B, C int
}

const (
	stepPut = iota
	stepPutBatch
	stepPublish
	stepGet
	stepSettle
	stepSettleBatch
	stepConsume
	stepCancel
	stepSleep
	stepPause
	stepResume
	stepPurge
	stepRedrive
	stepDiscard
	stepKinds
)

// kinds of the same step are drawn as often as they stand here: puts, gets and
// settles are what the others happen to.
var stepWeights = []int{
	stepPut, stepPut, stepPut, stepPut, stepPutBatch, stepPublish, stepPublish,
	stepGet, stepGet, stepGet, stepSettle, stepSettle, stepSettle, stepSettleBatch,
	stepConsume, stepCancel, stepSleep, stepSleep, stepSleep,
	stepPause, stepResume, stepPurge, stepRedrive, stepDiscard,
}

var programs = rapid.Custom(func(t *rapid.T) []step {
	number := rapid.IntRange(0, 9)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.SampledFrom(stepWeights).Draw(t, "kind"), number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c")}
	}), 1, 60).Draw(t, "program")
})

var randomConfigs = rapid.Custom(func(t *rapid.T) postroom.QueueConfig {
	duration := func(name string, choices ...time.Duration) time.Duration {
		return rapid.SampledFrom(choices).Draw(t, name)
	}
	return postroom.QueueConfig{
		AckTimeout:      duration("ack timeout", time.Second, 5*time.Second),
		MaxAttempts:     rapid.IntRange(1, 3).Draw(t, "max attempts"),
		BackoffBase:     duration("backoff base", time.Millisecond, time.Second),
		RetryExpired:    rapid.Bool().Draw(t, "retry expired"),
		MaxMessages:     rapid.SampledFrom([]int{0, 3, 10}).Draw(t, "max messages"),
		Overflow:        rapid.SampledFrom([]messages.Overflow{postroom.Refuse, postroom.DropOldest}).Draw(t, "overflow"),
		TTL:             duration("ttl", 0, 0, 10*time.Second),
		DedupWindow:     duration("dedup window", 0, 20*time.Second),
		DeadLetterLimit: rapid.SampledFrom([]int{0, 2}).Draw(t, "dead letter limit"),
		DeadLetterTopic: rapid.SampledFrom([]string{"", "dead"}).Draw(t, "dead letter topic"),
		SingleActive:    rapid.Bool().Draw(t, "single active"),
	}
})

// machine runs a program against two queues.
type machine struct {
	w         *simulation.World
	b         *postroom.Broker
	held      []*postroom.Delivery
	consumers []*postroom.Consumer
	acked     map[postroom.Receipt]bool // by us, with the broker's consent
	acks      map[string]uint64         // the same, and by handlers, by queue
	puts      map[string]uint64
	problem   error
}

var programQueues = []string{"left", "right"}

func (m *machine) fail(format string, args ...any) {
	if m.problem == nil {
		m.problem = fmt.Errorf(format, args...)
	}
}

func (m *machine) envelope(s step) postroom.Envelope {
	e := postroom.Envelope{Priority: s.A, Body: []byte{byte(s.B % 2)}}
	if s.B < 7 {
		e.ID = fmt.Sprint("id-", s.B)
	}
	if s.C > 6 {
		e.Delay = time.Duration(s.C) * time.Second
	}
	if s.C == 3 {
		e.ExpiresAt = m.w.Now().Add(4 * time.Second)
	}
	return e
}

func (m *machine) took(queue string, r postroom.PutResult) {
	if r.Err == nil && !r.Duplicate {
		m.puts[queue]++
	}
}

// settled notes an answer to an ack and checks that no lease is acked twice.
func (m *machine) settled(d *postroom.Delivery, verb postroom.Verb, err error) {
	if verb != postroom.VerbAck || err != nil {
		return
	}
	if m.acked[d.Receipt()] {
		m.fail("Q5: receipt %+v was acked twice", d.Receipt())
	}
	m.acked[d.Receipt()] = true
	m.acks[d.Queue()]++
}

var programVerbs = []postroom.Verb{
	postroom.VerbAck, postroom.VerbAck, postroom.VerbNack, postroom.VerbNackIn,
	postroom.VerbReject, postroom.VerbRelease, postroom.VerbTouch,
}

func (m *machine) settlement(s step) (*postroom.Delivery, postroom.Settlement) {
	d := m.held[s.A%len(m.held)]
	verb := programVerbs[s.B%len(programVerbs)]
	settlement := postroom.Settlement{Receipt: d.Receipt(), Verb: verb}
	if verb == postroom.VerbNackIn || verb == postroom.VerbTouch {
		settlement.Delay = time.Duration(s.C) * time.Second
	}
	return d, settlement
}

func (m *machine) do(s step) {
	ctx, b := context.Background(), m.b
	queue := programQueues[s.C%2]
	switch s.Kind {
	case stepPut:
		r, _ := b.Put(ctx, queue, m.envelope(s))
		m.took(queue, r)
	case stepPutBatch:
		results, _ := b.PutBatch(ctx, queue, []postroom.Envelope{m.envelope(s), m.envelope(step{A: s.B, B: s.A, C: s.C})})
		for _, r := range results {
			m.took(queue, r)
		}
	case stepPublish:
		_, _ = b.Publish(ctx, []string{"a.b", "a", "c"}[s.A%3], m.envelope(s))
	case stepGet:
		if d, err := b.Get(ctx, queue, postroom.GetConfig{NoWait: true}); err == nil {
			m.held = append(m.held, d)
		}
	case stepSettle:
		if len(m.held) > 0 {
			d, settlement := m.settlement(s)
			_, err := b.Settle(ctx, settlement)
			m.settled(d, settlement.Verb, err)
		}
	case stepSettleBatch:
		if len(m.held) > 0 {
			d1, one := m.settlement(s)
			d2, two := m.settlement(step{A: s.B, B: s.C, C: s.A})
			results, err := b.SettleBatch(ctx, []postroom.Settlement{one, two})
			if err != nil {
				m.fail("C10: settle batch: %w", err)
				return
			}
			m.settled(d1, one.Verb, results[0].Err)
			m.settled(d2, two.Verb, results[1].Err)
		}
	case stepConsume:
		k, err := b.Consume(ctx, queue, m.handler(s), postroom.ConsumerConfig{Concurrency: 1 + s.A%3, NoHeartbeat: s.B%2 == 0})
		if err != nil {
			m.fail("consume: %w", err)
			return
		}
		m.consumers = append(m.consumers, k)
	case stepCancel:
		if len(m.consumers) > 0 {
			_ = m.consumers[s.A%len(m.consumers)].Cancel(ctx)
		}
	case stepSleep:
		m.w.Sleep(time.Duration(s.A*s.A) * 100 * time.Millisecond)
	case stepPause:
		_ = b.Pause(ctx, queue)
	case stepResume:
		_ = b.Resume(ctx, queue)
	case stepPurge:
		_, _ = b.Purge(ctx, queue)
	case stepRedrive:
		_, _ = b.Redrive(ctx, queue, postroom.RedriveConfig{To: programQueues[s.A%2], Rate: 100, Max: 1 + s.B})
	case stepDiscard:
		_, _ = b.Discard(ctx, queue, fmt.Sprint("id-", s.A))
	}
}

// handler does each thing a handler can do, by the message's attempt and the step.
func (m *machine) handler(s step) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		switch (s.A + d.Deliveries) % 6 {
		case 0:
			return errors.New("failed")
		case 1:
			return postroom.Permanent(errors.New("never"))
		case 2:
			panic("crashed")
		case 3:
			m.w.Sleep(time.Duration(s.B) * time.Second) // longer than some leases
		case 4:
			err := d.Ack(ctx)
			m.settled(d, postroom.VerbAck, err)
		}
		return nil
	}
}

// check holds each queue against what must always be true of it.
func (m *machine) check(after string, handlersAck bool) {
	for _, queue := range programQueues {
		puts, acks := m.puts[queue], m.acks[queue] // handlers go on while we ask
		s, err := m.b.QueueStats(context.Background(), queue)
		if err != nil {
			m.fail("stats: %w", err)
			return
		}
		in := s.Puts + s.RedrivenIn
		out := uint64(s.Ready+s.Delayed+s.Leased) + s.Acks + s.Dead() + s.Purged + s.Dropped
		if in != out {
			m.fail("R10: %s after %s: puts %d + redriven %d, but the rest is %d: %+v", queue, after, s.Puts, s.RedrivenIn, out, s)
		}
		if s.Puts < puts {
			m.fail("G1: %s after %s: %d puts were accepted, and only %d are counted", queue, after, puts, s.Puts)
		}
		if s.Acks < acks || !handlersAck && s.Acks != acks {
			m.fail("Q5: %s after %s: %d acks were accepted, and %d are counted", queue, after, acks, s.Acks)
		}
		if kept := s.Dead() - s.Trimmed - s.Discarded - s.RedrivenOut; uint64(s.DeadLetters) != kept {
			m.fail("R4: %s after %s: %d dead letters, and the counters say %d: %+v", queue, after, s.DeadLetters, kept, s)
		}
		if ended := s.Acks + s.Nacks + s.Rejections + s.Expiries + uint64(s.Leased); s.Deliveries < ended || s.Deliveries < s.Redelivered {
			m.fail("Q4: %s after %s: %d deliveries, fewer than the %d leases that run or ended, or than redeliveries: %+v", queue, after, s.Deliveries, ended, s)
		}
	}
}

// play runs a program in a world of its own and returns the first thing wrong.
func play(seed uint64, configs [2]postroom.QueueConfig, program []step) (problem error) {
	err := simulation.Run(seed, func(w *simulation.World) {
		ctx := context.Background()
		m := &machine{w: w, b: w.MustOpen(), acked: map[postroom.Receipt]bool{}, acks: map[string]uint64{}, puts: map[string]uint64{}}
		defer func() { problem = m.problem }()
		for i, queue := range programQueues {
			if err := m.b.DeclareQueue(ctx, queue, configs[i]); err != nil {
				m.fail("declare: %w", err)
				return
			}
		}
		for _, pattern := range []string{"a.*", "#"} {
			_ = m.b.Bind(ctx, "left", pattern)
		}
		_ = m.b.Bind(ctx, "right", "a.#")
		for i, s := range program {
			m.do(s)
			m.check(fmt.Sprintf("step %d, %+v", i, s), len(m.consumers) > 0)
			if m.problem != nil {
				return
			}
		}
		// Whatever was left open comes to its end by itself.
		for _, queue := range programQueues {
			_ = m.b.Resume(ctx, queue)
		}
		w.Sleep(time.Hour)
		m.check("an hour of rest", true)
		for _, queue := range programQueues {
			if s, err := m.b.QueueStats(ctx, queue); err == nil && s.Leased+s.Delayed > 0 {
				m.fail("Q10, R2: %s has %d leased and %d delayed messages after an hour of rest", queue, s.Leased, s.Delayed)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("simulation: %w", err)
	}
	return problem
}

// Random programs against two queues with random settings, under a schedule drawn
// from a random seed: whatever is done, every message is somewhere.
func TestR10_RandomProgramsConserveMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		configs := [2]postroom.QueueConfig{randomConfigs.Draw(t, "left"), randomConfigs.Draw(t, "right")}
		program := programs.Draw(t, "program")
		seed := rapid.Uint64().Draw(t, "seed")
		if err := play(seed, configs, program); err != nil {
			t.Fatalf("seed %d, %d steps: %v", seed, len(program), err)
		}
	})
}

// One program under many schedules, to have some luck of its own kind: the clauses
// hold whoever takes the next step.
func TestR10_OneProgramUnderManySchedules(t *testing.T) {
	var program []step
	for i := range 60 {
		program = append(program, step{stepWeights[i*7%len(stepWeights)], i * 3 % 10, i * 7 % 10, i % 10})
	}
	configs := [2]postroom.QueueConfig{
		{AckTimeout: time.Second, MaxMessages: 10, BackoffBase: time.Second, DeadLetterTopic: "dead"},
		{AckTimeout: 5 * time.Second, MaxAttempts: 2, DedupWindow: 20 * time.Second, DeadLetterLimit: 2},
	}
	for seed := range uint64(30) {
		if err := play(seed, configs, program); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// The same seed gives the same run, to the last step.
func TestK2_TheSameSeedGivesTheSameRun(t *testing.T) {
	hash := func(seed uint64) (hash uint64) {
		run(t, seed, func(ctx context.Context, w *simulation.World) {
			b := w.MustOpen()
			declare(t, b, "q", postroom.QueueConfig{AckTimeout: time.Second})
			consume(t, b, "q", func(context.Context, *postroom.Delivery) error {
				w.Sleep(300 * time.Millisecond)
				return errors.New("no")
			}, postroom.ConsumerConfig{Concurrency: 3})
			for range 20 {
				put(t, b, "q", postroom.Envelope{})
			}
			w.Sleep(time.Minute)
			hash = w.TraceHash()
		})
		return hash
	}
	if one, two := hash(7), hash(7); one != two {
		t.Errorf("two runs of seed 7 have the traces %x and %x, want the same", one, two)
	}
	if one, two := hash(7), hash(8); one == two {
		t.Error("the runs of seeds 7 and 8 are the same: the seed decides nothing")
	}
}
