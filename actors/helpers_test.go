package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

// sim is one simulated run. It is simulation.World with its runtime and actor
// system in the open, so that a test can have actors of its own.
type sim struct {
	*simulation.Runtime
	t      *testing.T
	system *actorkit.System
	open   []*postroom.Broker
	named  int
}

// lastsMax bounds a run in virtual time: far beyond every timeout of the tests.
const lastsMax = 30 * 24 * time.Hour

// eachSeed runs fn in a world of its own for each of a few seeds. A run that does
// not come to rest, because somebody waits for something that never comes, fails.
func eachSeed(t *testing.T, seeds int, fn func(s *sim)) {
	t.Helper()
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		runSeed(t, seed, fn)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func runSeed(t *testing.T, seed uint64, fn func(s *sim)) *simulation.Runtime {
	t.Helper()
	rt := simulation.NewRuntime(seed)
	defer rt.Close()
	s := &sim{Runtime: rt, t: t, system: actorkit.NewSystem(rt, nil)}
	finished := false
	defer func() {
		if !finished {
			t.Logf("seed %d", seed)
		}
	}()
	rt.Go("main", func() {
		fn(s)
		for _, b := range s.open {
			ctx, cancel := rt.WithTimeout(context.Background(), 24*time.Hour)
			if err := b.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
			cancel()
		}
		finished = true
	})
	if err := rt.Run(lastsMax, simulation.DefaultStepsMax); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return rt
}

// broker opens a broker that is closed at the end of the run.
func (s *sim) broker(options ...postroom.Option) *postroom.Broker {
	s.t.Helper()
	system := s.system
	if len(s.open) > 0 {
		system = actorkit.NewSystem(s.Runtime, nil)
	}
	b, err := postroom.Open(append(options, postroom.WithRuntime(s.Runtime, system))...)
	require.NoError(s.t, err)
	s.open = append(s.open, b)
	return b
}

// sleep lets virtual time pass.
func (s *sim) sleep(d time.Duration) { _ = s.Sleep(context.Background(), d) }

// beside starts fn beside the caller.
func (s *sim) beside(fn func()) {
	s.named++
	s.Go(fmt.Sprintf("beside-%d", s.named), fn)
}

var ctx = context.Background()

// declare makes a queue.
func declare(t *testing.T, b *postroom.Broker, queue string, c postroom.QueueConfig) {
	t.Helper()
	require.NoError(t, b.DeclareQueue(ctx, queue, c))
}

// put puts messages with these ids.
func put(t *testing.T, b *postroom.Broker, queue string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := b.Put(ctx, queue, postroom.Envelope{ID: id, Body: []byte("body of " + id)})
		require.NoError(t, err)
	}
}

// stats reads a queue's figures and checks that they add up (SPEC R10).
func stats(t *testing.T, b *postroom.Broker, queue string) postroom.QueueStats {
	t.Helper()
	s, err := b.QueueStats(ctx, queue)
	require.NoError(t, err)
	in := s.Puts + s.RedrivenIn
	out := uint64(s.Ready+s.Delayed+s.Leased) + s.Acks + s.Dead() + s.Purged + s.Dropped
	assert.Equal(t, in, out, "puts + redriven in = ready + delayed + leased + acks + dead + purged + dropped: %+v", s)
	return s
}

// unknown asserts that nobody knows what became of a command.
func unknown(t *testing.T, err error) {
	t.Helper()
	var o *postroom.OutcomeError
	if assert.ErrorAs(t, err, &o) {
		assert.True(t, o.Sent, "it was sent")
	}
	assert.ErrorIs(t, err, postroom.ErrOutcomeUnknown)
}

// notSent asserts that a command has not happened.
func notSent(t *testing.T, err error) {
	t.Helper()
	var o *postroom.OutcomeError
	if assert.ErrorAs(t, err, &o) {
		assert.False(t, o.Sent, "it was not sent")
	}
	assert.ErrorIs(t, err, postroom.ErrNotSent)
}

// book writes down what happens, in order; handlers on real goroutines may share it.
type book struct {
	mu    sync.Mutex
	lines []string
}

func (b *book) add(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf(format, args...))
}

func (b *book) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines)
}

// notices is a listener that keeps what it is told.
type notices struct {
	mu  sync.Mutex
	all []postroom.Notice
}

func (n *notices) listen(x postroom.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, x)
}

// of returns the notices of one kind.
func of[T postroom.Notice](n *notices) []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []T
	for _, x := range n.all {
		if x, ok := x.(T); ok {
			found = append(found, x)
		}
	}
	return found
}

// bomb is a probe that panics at one point, a given number of times.
type bomb struct {
	mu    sync.Mutex
	point string
	skip  int // passes before the first
	left  int
	hits  int
	then  string // the next point, which is the one that counts
}

func (b *bomb) probe(point string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if point == b.point && b.skip > 0 {
		b.skip--
		return
	}
	if point == b.point && b.left > 0 {
		b.left--
		b.hits++
		if b.then != "" {
			b.point, b.left, b.hits, b.then = b.then, 1, 0, ""
		}
		panic("bomb at " + point)
	}
}

func (b *bomb) arm(point string, times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.point, b.left, b.hits = point, times, 0
}

func (b *bomb) hit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hits
}

// events subscribes and keeps the topics and bodies of what comes.
func events(t *testing.T, b *postroom.Broker, pattern string) *book {
	t.Helper()
	got := &book{}
	_, err := b.Subscribe(ctx, pattern, func(_ string, e *postroom.Event) { got.add("%s %s", e.Topic, summary(e)) })
	require.NoError(t, err)
	return got
}

// summary is the id and reason of a system event, else the body.
func summary(e *postroom.Event) string {
	var n struct{ ID, Reason, Error, Consumer string }
	if json.Unmarshal(e.Body, &n) != nil {
		return string(e.Body)
	}
	return strings.TrimSpace(n.ID + " " + n.Reason + n.Consumer)
}

// collect acks everything and keeps the ids in the order of their handlers.
func collect(got *book) postroom.Handler {
	return func(_ context.Context, d *postroom.Delivery) error {
		got.add("%s", d.ID)
		return nil
	}
}

func consume(t *testing.T, b *postroom.Broker, queue string, h postroom.Handler, c postroom.ConsumerConfig) *postroom.Consumer {
	t.Helper()
	k, err := b.Consume(ctx, queue, h, c)
	require.NoError(t, err)
	return k
}

// ended reports whether a consumer is done.
func ended(k *postroom.Consumer) bool {
	select {
	case <-k.Done():
		return true
	default:
		return false
	}
}

// native is an embedder's own actor: it keeps what it is sent.
type native struct {
	address *actorkit.Address
	system  *actorkit.System
	got     []any
	on      func(n *native, msg any)
}

func (s *sim) native(b *postroom.Broker, name string) *native {
	s.t.Helper()
	n := &native{system: actorkit.MountSystem(s.Runtime, b.ActorSystem(), "native/")}
	a, err := n.system.Spawn(actorkit.Spec{Name: name, New: func() actorkit.Actor { return n }})
	require.NoError(s.t, err)
	n.address = a
	return n
}

func (n *native) Receive(_ *actorkit.Context, msg any) {
	n.got = append(n.got, msg)
	if n.on != nil {
		n.on(n, msg)
	}
}

// request sends a message whose answer comes back as a *messages.Answer.
func (n *native) request(to *actor.PID, msg any) {
	n.system.ActorSystem().Root.RequestWithCustomSender(to, msg, n.address.PID())
}

func (n *native) stop() { n.system.Stop(n.address) }

// answers returns the answers so far.
func (n *native) answers() []*messages.Answer { return received[*messages.Answer](n) }

func received[T any](n *native) []T {
	var found []T
	for _, m := range n.got {
		if m, ok := m.(T); ok {
			found = append(found, m)
		}
	}
	return found
}

func queuePID(t *testing.T, b *postroom.Broker, queue string) *actor.PID {
	t.Helper()
	pid, err := b.QueuePID(queue)
	require.NoError(t, err)
	return pid
}

var errWork = errors.New("work failed")
