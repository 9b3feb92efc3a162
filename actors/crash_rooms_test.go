package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/supervisor"
)

// The actors that go on as they are after a panic: the desk, the two rooms with
// children, the consumers, and the redrivers, which end. crash_test.go has the queues and
// the router.

// unended is a lease that only its holder's word or end brings back.
var unended = postroom.QueueConfig{NoTimeout: true, MaxAttempts: 100}

// working is a handler that takes d, whatever its context says, and acks.
func (x *crash) working(got *book, d time.Duration) postroom.Handler {
	return func(_ context.Context, delivery *postroom.Delivery) error {
		got.add("%s", delivery.ID)
		x.sleep(d)
		return nil
	}
}

// keptItsLease asserts that the one message's lease lasted as long as its handler.
func (x *crash) keptItsLease(got *book) {
	s := stats(x.t, x.b, "jobs")
	assert.Equal(x.t, []string{"a"}, got.all(), "its lease was kept")
	assert.EqualValues(x.t, 1, s.Acks)
	assert.Zero(x.t, s.Expiries)
}

// onConsumer has a scenario for each case of the type switch in consumer.go's handle.
var onConsumer = map[string]scenario{
	"*chunk": {does: "*actors.chunk", config: unended, run: func(x *crash) {
		x.arm()
		puts := 0
		consume(x.t, x.b, "jobs", func(context.Context, *postroom.Delivery) error {
			if x.hit() > 0 {
				return nil
			}
			// What the queue hands over while nobody can work comes as a message.
			puts++
			x.beside(func() { _, _ = x.b.Put(ctx, "jobs", postroom.Envelope{ID: fmt.Sprint("a", puts)}) })
			panic("before its restart another one comes")
		}, postroom.ConsumerConfig{Prefetch: 2})
		put(x.t, x.b, "jobs", "a0")
		for range 1000 {
			if x.hit() > 0 {
				break
			}
			x.sleep(time.Second)
		}
		x.sleep(time.Hour)
		s := stats(x.t, x.b, "jobs")
		assert.Zero(x.t, s.Leased+s.Ready+s.Delayed, "it was given back, and its credit with it: %+v", s)
	}},
	"*tick": {does: "*actors.tick", config: quick, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a")
		x.arm()
		consume(x.t, x.b, "jobs", x.working(got, 45*time.Second), postroom.ConsumerConfig{})
		x.sleep(time.Minute)
		x.keptItsLease(got)
	}},
	"*firstTick": {does: "*actors.firstTick", config: quick, run: func(x *crash) {
		got := &book{}
		x.arm()
		consume(x.t, x.b, "jobs", x.working(got, 45*time.Second), postroom.ConsumerConfig{})
		put(x.t, x.b, "jobs", "a")
		x.sleep(time.Minute)
		x.keptItsLease(got)
	}},
	"*returned": {does: "*actors.returned", config: quick, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a")
		k := consume(x.t, x.b, "jobs", x.working(got, 5*time.Second), postroom.ConsumerConfig{})
		x.sleep(time.Second)
		x.arm()
		require.NoError(x.t, k.Cancel(ctx))
		x.sleep(10 * time.Second)
		assert.True(x.t, ended(k), "with its last handler")
		assert.EqualValues(x.t, 1, stats(x.t, x.b, "jobs").Acks)
	}},
	"*leaseLost": {does: "*actors.leaseLost", config: quick, run: func(x *crash) {
		var told error
		put(x.t, x.b, "jobs", "a")
		x.arm()
		k := consume(x.t, x.b, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
			if told == nil {
				told = x.b.Sleep(ctx, time.Hour)
				return told
			}
			return nil
		}, postroom.ConsumerConfig{NoHeartbeat: true})
		x.sleep(11 * time.Second)
		assert.ErrorIs(x.t, told, postroom.ErrLeaseLost, "it does not go on for an hour")
		require.NoError(x.t, k.Cancel(ctx))
	}},
	"*restart": {does: "*actors.restart", config: unended, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a")
		x.arm()
		consume(x.t, x.b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			if len(got.all()) == 1 {
				panic("once")
			}
			return nil
		}, postroom.ConsumerConfig{})
		x.sleep(time.Minute)
		assert.Equal(x.t, []string{"a", "a"}, got.all(), "its only worker runs again")
	}},
	"*messages.SetPrefetch": {does: "*messages.SetPrefetch", config: quick, run: func(x *crash) {
		got := &book{}
		k := consume(x.t, x.b, "jobs", collect(got), postroom.ConsumerConfig{})
		x.arm()
		unknown(x.t, x.b.SetPrefetch(ctx, k.Tag, 0))
		require.NoError(x.t, x.b.SetPrefetch(ctx, k.Tag, 0))
		put(x.t, x.b, "jobs", "a")
		x.sleep(time.Second)
		assert.Empty(x.t, got.all(), "halted")
	}},
	"*stopConsumer": {does: "*actors.stopConsumer", config: quick, run: func(x *crash) {
		k := consume(x.t, x.b, "jobs", collect(&book{}), postroom.ConsumerConfig{})
		x.arm()
		require.NoError(x.t, k.Cancel(ctx), "it is asked for again")
		x.Idle()
		assert.True(x.t, ended(k))
		assert.Zero(x.t, stats(x.t, x.b, "jobs").Consumers)
	}},
	"*detached": {does: "*actors.detached", config: quick, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a", "b", "c")
		k := consume(x.t, x.b, "jobs", x.working(got, time.Second), postroom.ConsumerConfig{Prefetch: 3})
		x.Idle()
		x.arm()
		require.NoError(x.t, k.Cancel(ctx))
		assert.Equal(x.t, 2, stats(x.t, x.b, "jobs").Ready, "what had not begun is back")
		x.sleep(time.Minute)
		assert.True(x.t, ended(k))
		assert.Equal(x.t, []string{"a"}, got.all())
	}},
	"*queueGone": {does: "*actors.queueGone", config: quick, run: func(x *crash) {
		var told error
		put(x.t, x.b, "jobs", "a")
		k := consume(x.t, x.b, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
			told = x.b.Sleep(ctx, time.Hour)
			return told
		}, postroom.ConsumerConfig{})
		x.sleep(time.Second)
		x.arm()
		_, err := x.b.DeleteQueue(ctx, "jobs")
		require.NoError(x.t, err)
		x.sleep(time.Second)
		assert.Error(x.t, told, "the handler is told that it works for nothing")
		assert.True(x.t, ended(k))
		assert.ErrorIs(x.t, k.Err(), postroom.ErrQueueClosed)
		declare(x.t, x.b, "jobs", quick)
	}},
	"*abort": {does: "*actors.abort", config: quick, run: func(x *crash) { x.closeUnderAHandler() }},
	"*attachAnswered": {does: "*actors.attachAnswered", config: quick, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a")
		x.arm()
		k, err := x.b.Consume(ctx, "jobs", collect(got), postroom.ConsumerConfig{})
		require.NoError(x.t, err, "whoever asked is answered")
		x.Idle()
		assert.Equal(x.t, []string{"a"}, got.all())
		assert.False(x.t, ended(k))
	}},
}

// closeUnderAHandler closes the broker while a handler runs that ends with its context.
func (x *crash) closeUnderAHandler() {
	var told error
	put(x.t, x.b, "jobs", "a")
	k := consume(x.t, x.b, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
		told = x.b.Sleep(ctx, time.Hour)
		return told
	}, postroom.ConsumerConfig{})
	x.sleep(time.Second)
	x.arm()
	short, cancel := x.WithTimeout(ctx, time.Second)
	defer cancel()
	assert.NoError(x.t, x.b.Close(short), "nobody is left behind")
	assert.ErrorIs(x.t, told, postroom.ErrBrokerClosed)
	assert.True(x.t, ended(k))
	x.b = nil
}

// onPool has a scenario for each case of the type switch in pool.go's handle.
var onPool = map[string]scenario{
	"*StartConsumer": {does: "*actors.StartConsumer", config: quick, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a", "b")
		x.arm()
		_, err := x.b.Consume(ctx, "jobs", x.working(got, time.Second), postroom.ConsumerConfig{})
		unknown(x.t, err)
		x.sleep(time.Minute)
		assert.Zero(x.t, stats(x.t, x.b, "jobs").Consumers, "nobody has its tag, so it must not stay")
	}},
	"*consumeNative": {does: "*actors.consumeNative", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		x.arm()
		n.request(x.b.PID(), &messages.Consume{Queue: "jobs"})
		x.Idle()
		x.answeredUnknown(n)
		n.stop()
		x.Idle()
		assert.Zero(x.t, stats(x.t, x.b, "jobs").Consumers)
	}},
	"*consumerGone": {does: "*actors.consumerGone", config: quick, run: func(x *crash) {
		k := consume(x.t, x.b, "jobs", collect(&book{}), postroom.ConsumerConfig{})
		x.arm()
		require.NoError(x.t, k.Cancel(ctx))
		x.Idle()
		assert.True(x.t, ended(k))
		began := x.Now()
		assert.NoError(x.t, x.b.Close(ctx))
		assert.Equal(x.t, began, x.Now(), "Close does not wait for one that has gone")
		x.b = nil
	}},
	"*actorkit.ForeignEnded": {does: "*actorkit.ForeignEnded", config: unended, run: func(x *crash) {
		n := x.native(x.b, "n")
		n.request(x.b.PID(), &messages.Consume{Queue: "jobs"})
		put(x.t, x.b, "jobs", "a")
		x.Idle()
		require.Equal(x.t, 1, stats(x.t, x.b, "jobs").Leased)
		x.arm()
		n.stop()
		x.sleep(time.Minute)
		s := stats(x.t, x.b, "jobs")
		assert.Zero(x.t, s.Leased, "what it held is back")
		assert.Zero(x.t, s.Consumers)
	}},
	"*messages.Cancel": {does: "*messages.Cancel", config: quick, run: func(x *crash) {
		k := consume(x.t, x.b, "jobs", collect(&book{}), postroom.ConsumerConfig{})
		x.arm()
		err := k.Cancel(ctx)
		if !x.after || err != nil { // behind it the consumer may be quicker with its answer
			unknown(x.t, err)
		}
		if err := k.Cancel(ctx); err != nil {
			assert.True(x.t, x.after)
			assert.ErrorIs(x.t, err, postroom.ErrNotFound)
		}
		x.Idle()
		assert.True(x.t, ended(k))
	}},
	"*messages.SetPrefetch": {does: "*messages.SetPrefetch", config: quick, run: func(x *crash) {
		k := consume(x.t, x.b, "jobs", collect(&book{}), postroom.ConsumerConfig{})
		x.arm()
		if err := x.b.SetPrefetch(ctx, k.Tag, 0); !x.after || err != nil {
			unknown(x.t, err)
		}
		require.NoError(x.t, x.b.SetPrefetch(ctx, k.Tag, 1))
	}},
	"*messages.Redrive": {does: "*messages.Redrive", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		require.NoError(x.t, x.get("jobs").Reject(ctx, errWork))
		x.arm()
		_, err := x.b.Redrive(ctx, "jobs", postroom.RedriveConfig{})
		unknown(x.t, err)
		x.sleep(time.Minute)
		_, err = x.b.Redrive(ctx, "jobs", postroom.RedriveConfig{})
		require.NoError(x.t, err)
		s := stats(x.t, x.b, "jobs")
		assert.Equal(x.t, 1, s.Ready)
		assert.EqualValues(x.t, 1, s.RedrivenIn, "moved once")
	}},
	"*StartReporter": {does: "*actors.StartReporter", config: quick, run: func(x *crash) {
		told := &book{}
		config := postroom.PublisherConfig{OnResult: func(r messages.PutResult) { told.add("%s", r.ID) }}
		x.arm()
		if _, err := x.b.Publisher(ctx, "jobs", config); !x.after { // behind it all is answered
			unknown(x.t, err)
		}
		p, err := x.b.Publisher(ctx, "jobs", config)
		require.NoError(x.t, err)
		_, err = p.Put(ctx, postroom.Envelope{ID: "a"})
		require.NoError(x.t, err)
		require.NoError(x.t, p.Flush(ctx))
		x.Idle()
		assert.Equal(x.t, []string{"a"}, told.all())
	}},
	"*closeConsumers": {does: "*actors.closeConsumers", config: quick, run: func(x *crash) {
		got, finished := &book{}, false
		put(x.t, x.b, "jobs", "a")
		consume(x.t, x.b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			err := x.b.Sleep(ctx, time.Minute)
			finished = err == nil
			return err
		}, postroom.ConsumerConfig{})
		x.sleep(time.Second)
		x.arm()
		assert.NoError(x.t, x.b.Close(ctx))
		assert.True(x.t, finished, "the handler had its time")
		x.b = nil
	}},
	"*livingConsumers": {does: "*actors.livingConsumers", config: quick, run: func(x *crash) {
		got := &book{}
		put(x.t, x.b, "jobs", "a")
		consume(x.t, x.b, "jobs", x.working(got, time.Hour), postroom.ConsumerConfig{})
		x.sleep(time.Second)
		x.arm()
		short, cancel := x.WithTimeout(ctx, time.Second)
		defer cancel()
		var stuck *postroom.StuckError
		if assert.ErrorAs(x.t, x.b.Close(short), &stuck) {
			assert.Equal(x.t, []string{"ctag-1"}, stuck.Consumers)
		}
		x.b = nil
	}},
	"*abortConsumers": {does: "*actors.abortConsumers", config: quick, run: func(x *crash) { x.closeUnderAHandler() }},
}

// onQueues has a scenario for each case of the type switch in queues.go's handle.
var onQueues = map[string]scenario{
	"*messages.DeclareQueue": {does: "*messages.DeclareQueue", config: quick, run: func(x *crash) {
		x.arm()
		if err := x.b.DeclareQueue(ctx, "more", quick); !x.after { // behind it all is answered
			unknown(x.t, err)
		}
		_, err := x.b.QueueStats(ctx, "more")
		assert.Equal(x.t, x.after, err == nil)
		require.NoError(x.t, x.b.DeclareQueue(ctx, "more", quick))
	}},
	"*messages.DeleteQueue": {does: "*messages.DeleteQueue", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		x.arm()
		_, err := x.b.DeleteQueue(ctx, "jobs")
		unknown(x.t, err)
		_, err = x.b.DeleteQueue(ctx, "jobs")
		if x.after {
			assert.ErrorIs(x.t, err, postroom.ErrNotFound)
		} else {
			assert.NoError(x.t, err)
		}
		declare(x.t, x.b, "jobs", quick)
	}},
	"*queueClosed": {does: "*actors.queueClosed", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		x.arm()
		gone, err := x.b.DeleteQueue(ctx, "jobs")
		require.NoError(x.t, err, "it is told again")
		assert.Equal(x.t, postroom.Deleted{Messages: 1}, gone)
		declare(x.t, x.b, "jobs", quick)
		s, err := x.b.Stats(ctx)
		require.NoError(x.t, err)
		assert.Equal(x.t, 1, s.Queues)
	}},
	"*messages.BrokerStatsQuery": {does: "*messages.BrokerStatsQuery", config: quick, run: func(x *crash) {
		x.arm()
		if _, err := x.b.Stats(ctx); !x.after || err != nil {
			unknown(x.t, err)
		}
	}},
	"*closeQueues": {does: "*actors.closeQueues", config: quick, run: func(x *crash) {
		var err error
		x.beside(func() { err = x.b.Drain(ctx, "jobs") })
		put(x.t, x.b, "jobs", "a")
		x.arm()
		assert.NoError(x.t, x.b.Close(ctx))
		x.Idle()
		if err != nil { // it drained an empty queue, or hears of the end
			assert.ErrorIs(x.t, err, postroom.ErrBrokerClosed)
		}
		x.b = nil
	}},
}

// onRedriver has a scenario for each case of the type switch in redrive.go's Receive.
var onRedriver = map[string]scenario{
	"*lettersRead": {does: "*actors.lettersRead", config: quick, run: func(x *crash) { x.redriveTwo() }},
	"*nextLetter":  {does: "*actors.nextLetter", config: quick, run: func(x *crash) { x.redriveTwo() }},
	"*letterMoved": {does: "*actors.letterMoved", config: quick, run: func(x *crash) { x.redriveTwo() }},
}

// redriveTwo moves two letters to another queue, in two redrives, the first of which
// crashes: each letter is in one place then, and it says how far it came.
func (x *crash) redriveTwo() {
	declare(x.t, x.b, "other", quick)
	put(x.t, x.b, "jobs", "a", "b")
	for range 2 {
		require.NoError(x.t, x.get("jobs").Reject(ctx, errWork))
	}
	x.arm()
	first, err := x.b.Redrive(ctx, "jobs", postroom.RedriveConfig{To: "other", Rate: 1})
	if err == nil {
		err = first.Stopped
	}
	assert.ErrorIs(x.t, err, postroom.ErrOutcomeUnknown)
	second, err := x.b.Redrive(ctx, "jobs", postroom.RedriveConfig{To: "other"})
	require.NoError(x.t, err)
	require.NoError(x.t, second.Stopped)
	from, to := stats(x.t, x.b, "jobs"), stats(x.t, x.b, "other")
	assert.Equal(x.t, 2, to.Ready, "both are there, once each")
	assert.Equal(x.t, 2-first.Moved-second.Moved, from.DeadLetters)
}

// runRooms crashes an actor before and after each of its messages. Nobody may wait for
// ever: the run would not come to rest, or its broker not close. And nothing may be
// lost: what is left in the queue is worked off.
func runRooms(t *testing.T, name string, scenarios map[string]scenario) {
	for _, key := range sortedNames(scenarios) {
		sc := scenarios[key]
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+strings.TrimPrefix(sc.does, "*"), func(t *testing.T) {
				eachSeed(t, 4, func(s *sim) {
					x := &crash{sim: s, bomb: &bomb{}, after: when == "after", point: fmt.Sprintf("%s %s %s", name, when, sc.does)}
					x.b = s.broker(postroom.WithProbe(func(point string) { x.probe(withoutTag(point)) }),
						postroom.WithRestarts(supervisor.Policy{MaxFailures: 1000}))
					declare(t, x.b, "jobs", sc.config)
					sc.run(x)
					require.Equal(t, 1, x.hit(), "the bomb at %q went off", x.point)
					if x.b != nil {
						x.workOff()
					}
				})
			})
		}
	}
}

// withoutTag is a point without the consumer's tag in it.
func withoutTag(point string) string {
	words := slices.DeleteFunc(strings.Fields(point), func(w string) bool { return strings.HasPrefix(w, "ctag-") })
	return strings.Join(words, " ")
}

// A panic in a consumer's actor costs nothing: its workers go on, and what it was told
// it tells itself again.
func TestS3_AConsumersActorSurvivesACrash(t *testing.T) { runRooms(t, "consumer", onConsumer) }

// A panic in the actor that starts and ends consumers costs the command's caller the
// answer, and nobody else anything.
func TestS3_ThePoolOfConsumersSurvivesACrash(t *testing.T) { runRooms(t, "consumers", onPool) }

// The same for the actor that declares and deletes queues.
func TestS3_TheDeskOfQueuesSurvivesACrash(t *testing.T) { runRooms(t, "queues", onQueues) }

// A redrive that crashes ends, with what it had moved.
func TestS3_ARedriveThatCrashesEnds(t *testing.T) { runRooms(t, "redrive", onRedriver) }

func TestS3_EveryRoomsCommandHasACrashTest(t *testing.T) {
	assert.Equal(t, casesOf(t, "consumer.go", "handle"), sortedNames(onConsumer))
	assert.Equal(t, casesOf(t, "pool.go", "handle"), sortedNames(onPool))
	assert.Equal(t, casesOf(t, "queues.go", "handle"), sortedNames(onQueues))
	assert.Equal(t, casesOf(t, "redrive.go", "Receive"), sortedNames(onRedriver))
	var all []string
	for name := range onDesk {
		all = append(all, name)
	}
	slices.Sort(all)
	assert.Equal(t, casesOf(t, "broker.go", "pass"), all)
}

// onDesk is a command for each case of the type switch in broker.go's pass, in an order
// of its own where each can be done.
var onDesk = map[string]messages.Command{
	"*messages.DeclareQueue":     &messages.DeclareQueue{Queue: "more"},
	"*messages.DeleteQueue":      &messages.DeleteQueue{Queue: "jobs"},
	"*messages.BrokerStatsQuery": &messages.BrokerStatsQuery{},
	"*messages.Consume":          &messages.Consume{Queue: "jobs"},
	"*messages.Cancel":           &messages.Cancel{Tag: "ctag-1"},
	"*messages.SetPrefetch":      &messages.SetPrefetch{Tag: "ctag-1", Prefetch: 1},
	"*messages.Redrive":          &messages.Redrive{Queue: "jobs"},
	"*messages.Publish":          &messages.Publish{Envelope: postroom.Envelope{Topic: "t"}},
	"*messages.Unsubscribe":      &messages.Unsubscribe{Subscription: "sub-1"},
	"*messages.Subscribe":        &messages.Subscribe{Pattern: "t"},
	"*messages.Bind":             &messages.Bind{Queue: "jobs", Pattern: "t"},
	"*messages.Unbind":           &messages.Unbind{Queue: "jobs", Pattern: "t"},
	"messages.Command":           &messages.Peek{N: 1},
}

// A panic of the desk costs an embedder's actor the answer to its command: it gets one,
// that nobody knows, or behind the command the answer of whoever was quicker.
func TestS3_TheDeskSurvivesACrash(t *testing.T) {
	for name, cmd := range onDesk {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+name, func(t *testing.T) {
				eachSeed(t, 4, func(s *sim) {
					x := &crash{sim: s, bomb: &bomb{}, point: fmt.Sprintf("desk %s %T", when, cmd)}
					x.b = s.broker(postroom.WithProbe(x.probe))
					declare(t, x.b, "jobs", quick)
					put(t, x.b, "jobs", "a")
					n := s.native(x.b, "n")
					cmd.AnswerTo(messages.Ref{})
					x.arm()
					n.request(x.b.PID(), cmd)
					s.Idle()
					require.Equal(t, 1, x.hit(), "the bomb at %q went off", x.point)
					answers := n.answers()
					if assert.Len(t, answers, 1, "one answer") && (when == "before" || errors.Is(answers[0].Err, postroom.ErrOutcomeUnknown)) {
						unknown(t, answers[0].Err)
					}
					n.stop()
					s.Idle()
					require.NoError(t, x.b.DeclareQueue(ctx, "jobs", quick))
					x.workOff()
				})
			})
		}
	}
}
