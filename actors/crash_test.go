package actors_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// crash is one run of a command that crashes its actor.
type crash struct {
	*sim
	*bomb
	b     *postroom.Broker
	point string // where it goes off
	after bool   // behind the record
}

// arm sets the bomb; the command comes next.
func (x *crash) arm() { x.bomb.arm(x.point, 1) }

// armAt is arm for the nth time that the point is passed.
func (x *crash) armAt(n int) {
	x.arm()
	x.bomb.skip = n - 1
}

// get takes the next message or fails the test.
func (x *crash) get(queue string) *postroom.Delivery {
	x.t.Helper()
	d, err := x.b.Get(ctx, queue, postroom.GetConfig{NoWait: true})
	require.NoError(x.t, err)
	return d
}

// once is how often something happened that the record decides: behind it yes,
// before it no.
func (x *crash) once() int {
	if x.after {
		return 1
	}
	return 0
}

// scenario crashes an actor on one kind of command and says what must hold then.
// Whatever is left in the queue "jobs" is worked off afterwards and counted.
type scenario struct {
	does   string // the type of the message, as %T prints it
	config postroom.QueueConfig
	run    func(x *crash)
}

var quick = postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 5}

// onQueue has a scenario for each case of the type switch in workqueue.go's handle,
// under the name it has there. TestS3_EveryQueueCommandHasACrashTest keeps it so.
var onQueue = map[string]scenario{
	"*Put": {does: "*actors.Put", config: quick, run: func(x *crash) {
		x.arm()
		_, err := x.b.Put(ctx, "jobs", postroom.Envelope{ID: "a"})
		unknown(x.t, err)
		s := stats(x.t, x.b, "jobs")
		assert.EqualValues(x.t, x.once(), s.Puts)
		assert.Equal(x.t, x.once(), s.Ready)
		r, err := x.b.Put(ctx, "jobs", postroom.Envelope{ID: "a"}) // as the error's hint says
		require.NoError(x.t, err)
		assert.Equal(x.t, x.after, r.Duplicate)
	}},
	"*Window": {does: "*actors.arrival", config: quick, run: func(x *crash) {
		var results []postroom.PutResult
		p, err := x.b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 300, UntilSettled: true, OnResult: func(r postroom.PutResult) { results = append(results, r) }})
		require.NoError(x.t, err)
		x.armAt(150)
		for i := range 300 { // as many as there is room for, so none of them waits
			_, err := p.Put(ctx, postroom.Envelope{ID: fmt.Sprint(i + 1)})
			require.NoError(x.t, err)
		}
		unknown(x.t, p.Flush(ctx))
		x.Idle()
		require.Len(x.t, results, 300)
		for i, r := range results {
			assert.Equal(x.t, fmt.Sprint(i+1), r.ID, "in put order")
			assert.Equal(x.t, i == 149, r.Err != nil, "only the culprit: %d, %v", i+1, r.Err)
		}
		assert.EqualValues(x.t, 299+x.once(), stats(x.t, x.b, "jobs").Puts)
		if x.after {
			return
		}
		_, err = p.Put(ctx, postroom.Envelope{ID: "150"}) // into the place that it had in the window
		require.NoError(x.t, err)
		require.NoError(x.t, p.Flush(ctx))
	}},
	"*returns": {does: "*actors.slot", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b")
		got := &book{}
		x.arm()
		consume(x.t, x.b, "jobs", collect(got), postroom.ConsumerConfig{})
		x.sleep(time.Minute)
		want := []string{"a", "b", "a"} // the settle is lost, so the lease runs out
		if x.after {
			want = []string{"a", "b"}
		}
		assert.ElementsMatch(x.t, want, got.all())
		assert.EqualValues(x.t, 2, stats(x.t, x.b, "jobs").Acks)
	}},
	"*router.Copy": {does: "*router.Copy", config: quick, run: func(x *crash) {
		declare(x.t, x.b, "other", quick)
		require.NoError(x.t, x.b.Bind(ctx, "jobs", "t"))
		require.NoError(x.t, x.b.Bind(ctx, "other", "#"))
		x.arm()
		r, err := x.b.Publish(ctx, "t", postroom.Envelope{ID: "a"})
		require.NoError(x.t, err)
		assert.Equal(x.t, postroom.PublishResult{Accepted: 1, Refused: 1}, r)
		assert.EqualValues(x.t, x.once(), stats(x.t, x.b, "jobs").Puts)
		assert.EqualValues(x.t, 1, stats(x.t, x.b, "other").Puts)
	}},
	"*PutBatch": {does: "*actors.PutBatch", config: quick, run: func(x *crash) {
		x.arm()
		_, err := x.b.PutBatch(ctx, "jobs", []postroom.Envelope{{ID: "a"}, {ID: "b"}})
		unknown(x.t, err)
		assert.EqualValues(x.t, 2*x.once(), stats(x.t, x.b, "jobs").Puts)
	}},
	"*messages.SettleBatch": {does: "*messages.SettleBatch", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b")
		d, e := x.get("jobs"), x.get("jobs")
		x.arm()
		results, err := x.b.SettleBatch(ctx, []postroom.Settlement{{Receipt: d.Receipt()}, {Receipt: e.Receipt()}})
		require.NoError(x.t, err)
		for _, r := range results {
			unknown(x.t, r.Err)
		}
		assert.EqualValues(x.t, 2*x.once(), stats(x.t, x.b, "jobs").Acks)
	}},
	"*messages.Put": {does: "*messages.Put", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		x.arm()
		n.request(queuePID(x.t, x.b, "jobs"), &messages.Put{Envelope: postroom.Envelope{ID: "a"}})
		x.Idle()
		x.answeredUnknown(n)
		assert.EqualValues(x.t, x.once(), stats(x.t, x.b, "jobs").Puts)
		n.stop()
	}},
	"settlement": {does: "*messages.Settle", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		d := x.get("jobs")
		x.arm()
		unknown(x.t, d.Ack(ctx))
		assert.EqualValues(x.t, x.once(), stats(x.t, x.b, "jobs").Acks)
		if err := d.Ack(ctx); x.after {
			assert.ErrorIs(x.t, err, postroom.ErrStale)
		} else {
			assert.NoError(x.t, err, "nothing had happened")
		}
	}},
	"*ring": {does: "*actors.ring", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		d := x.get("jobs")
		x.arm()
		x.sleep(10*time.Second + 1)
		s := stats(x.t, x.b, "jobs")
		assert.EqualValues(x.t, 1, s.Expiries, "the alarm rings again at once")
		assert.Equal(x.t, 1, s.Ready)
		assert.False(x.t, s.Quarantined)
		assert.ErrorIs(x.t, d.Ack(ctx), postroom.ErrStale)
	}},
	"*messages.PutBatch": {does: "*messages.PutBatch", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		x.arm()
		n.request(queuePID(x.t, x.b, "jobs"), &messages.PutBatch{Envelopes: []postroom.Envelope{{ID: "a"}, {}}})
		x.Idle()
		x.answeredUnknown(n)
		assert.EqualValues(x.t, 2*x.once(), stats(x.t, x.b, "jobs").Puts)
		n.stop()
	}},
	"*keepAlive": {does: "*actors.keepAlive", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		got := &book{}
		x.arm()
		consume(x.t, x.b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			assert.NoError(x.t, x.b.Sleep(ctx, 40*time.Second))
			return nil
		}, postroom.ConsumerConfig{})
		x.sleep(time.Minute)
		s := stats(x.t, x.b, "jobs")
		assert.Equal(x.t, []string{"a"}, got.all(), "one run, its lease kept")
		assert.EqualValues(x.t, 1, s.Acks)
		assert.Zero(x.t, s.StaleBy[postroom.VerbAck])
	}},
	"*messages.Get": {does: "*messages.Get", config: quick, run: func(x *crash) {
		x.arm()
		_, err := x.b.Get(ctx, "jobs", postroom.GetConfig{})
		unknown(x.t, err)
		put(x.t, x.b, "jobs", "a")
		x.Idle()
		s := stats(x.t, x.b, "jobs")
		assert.Zero(x.t, s.Leased, "no lease for one who has gone")
		assert.Equal(x.t, "a", x.get("jobs").ID)
	}},
	"*CancelGet": {does: "*actors.CancelGet", config: quick, run: func(x *crash) {
		short, cancel := x.WithTimeout(ctx, time.Second)
		defer cancel()
		x.arm()
		_, err := x.b.Get(short, "jobs", postroom.GetConfig{})
		notSent(x.t, err)
		x.Idle()
		put(x.t, x.b, "jobs", "a")
		x.Idle()
		assert.Zero(x.t, stats(x.t, x.b, "jobs").Leased)
		assert.Equal(x.t, 1, x.get("jobs").Attempt)
	}},
	"*attach": {does: "*actors.attach", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b")
		got := &book{}
		x.arm()
		_, err := x.b.Consume(ctx, "jobs", collect(got), postroom.ConsumerConfig{})
		unknown(x.t, err)
		x.Idle()
		s := stats(x.t, x.b, "jobs")
		assert.Zero(x.t, s.Consumers, "nobody has its tag, so it must not stay")
		assert.Zero(x.t, s.Leased, "what was under way to it is back: %+v", s)
	}},
	"*detach": {does: "*actors.detach", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b", "c")
		got := &book{}
		k := consume(x.t, x.b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			got.add("%s", d.ID)
			return x.b.Sleep(ctx, time.Second)
		}, postroom.ConsumerConfig{Prefetch: 3})
		x.Idle()
		x.arm()
		assert.NoError(x.t, k.Cancel(ctx), "it is asked for again")
		s := stats(x.t, x.b, "jobs")
		assert.Zero(x.t, s.Consumers)
		assert.EqualValues(x.t, 2, s.Interruptions)
		x.sleep(2 * time.Second)
		assert.True(x.t, ended(k))
		assert.Equal(x.t, []string{"a"}, got.all())
	}},
	"*giveBack": {does: "*actors.giveBack", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b", "c")
		k := consume(x.t, x.b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			return x.b.Sleep(ctx, time.Second)
		}, postroom.ConsumerConfig{Prefetch: 3})
		x.Idle()
		x.arm()
		assert.NoError(x.t, k.Cancel(ctx))
		s := stats(x.t, x.b, "jobs")
		assert.EqualValues(x.t, 2, s.Interruptions)
		assert.Equal(x.t, 2, s.Ready)
	}},
	"*effectivePrefetch": {does: "*actors.effectivePrefetch", config: quick, run: func(x *crash) {
		k := consume(x.t, x.b, "jobs", collect(&book{}), postroom.ConsumerConfig{})
		x.arm()
		require.NoError(x.t, x.b.SetPrefetch(ctx, k.Tag, 0))
		put(x.t, x.b, "jobs", "a")
		x.sleep(time.Second)
		assert.Equal(x.t, 1, stats(x.t, x.b, "jobs").Ready, "halted")
		require.NoError(x.t, x.b.SetPrefetch(ctx, k.Tag, 1))
		x.sleep(time.Second)
		assert.EqualValues(x.t, 1, stats(x.t, x.b, "jobs").Acks)
	}},
	"*messages.SetPrefetch": {does: "*messages.SetPrefetch", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		n.request(x.b.PID(), &messages.Consume{Queue: "jobs"})
		x.Idle()
		x.arm()
		unknown(x.t, x.b.SetPrefetch(ctx, "ctag-1", 0))
		require.NoError(x.t, x.b.SetPrefetch(ctx, "ctag-1", 0))
		require.NoError(x.t, x.b.Cancel(ctx, "ctag-1"))
		n.stop()
	}},
	"*crashed": {does: "*actors.crashed", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		runs := 0
		x.arm()
		consume(x.t, x.b, "jobs", func(context.Context, *postroom.Delivery) error {
			if runs++; runs == 1 {
				panic("first time")
			}
			return nil
		}, postroom.ConsumerConfig{})
		x.sleep(time.Minute)
		s := stats(x.t, x.b, "jobs")
		assert.EqualValues(x.t, 1, s.Expiries, "its attempt is spent: it was told again")
		assert.EqualValues(x.t, 1, s.Acks)
		assert.Zero(x.t, s.Interruptions)
	}},
	"*lostNotice": {does: "*actors.lostNotice", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		d := x.get("jobs")
		// The router loses the announcement; the queue crashes when it is told.
		x.bomb.arm("router before *router.Announce", 1)
		x.bomb.then = x.point
		require.NoError(x.t, d.Reject(ctx, errWork))
		x.Idle()
		assert.EqualValues(x.t, x.once(), stats(x.t, x.b, "jobs").LostNotices)
	}},
	"*holderEnded": {does: "*actors.holderEnded", config: postroom.QueueConfig{NoTimeout: true}, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		k := consume(x.t, x.b, "jobs", func(context.Context, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{Manual: true})
		x.Idle()
		x.arm()
		require.NoError(x.t, k.Cancel(ctx))
		x.Idle()
		assert.True(x.t, ended(k))
		s := stats(x.t, x.b, "jobs")
		assert.Zero(x.t, s.Leased, "its lease has come back with it")
	}},
	"*endHandOvers": {does: "*actors.endHandOvers", config: quick, run: func(x *crash) {
		var err error
		x.beside(func() { _, err = x.b.Get(ctx, "jobs", postroom.GetConfig{}) })
		x.Idle()
		x.arm()
		require.NoError(x.t, x.b.Close(ctx))
		x.Idle()
		assert.ErrorIs(x.t, err, postroom.ErrBrokerClosed)
		x.b = nil // nothing left to look at
	}},
	"*EndHolder": {does: "*actors.EndHolder", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		session, err := x.b.Session("s")
		require.NoError(x.t, err)
		_, err = session.Get(ctx, "jobs", postroom.GetConfig{NoTimeout: true})
		require.NoError(x.t, err)
		x.arm()
		unknown(x.t, session.Close(ctx))
		assert.NoError(x.t, session.Close(ctx))
		assert.Zero(x.t, stats(x.t, x.b, "jobs").Leased)
	}},
	"*stopConsumer": {does: "*actors.stopConsumer", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		n.request(x.b.PID(), &messages.Consume{Queue: "jobs"})
		x.Idle()
		x.arm()
		unknown(x.t, x.b.Cancel(ctx, "ctag-1"))
		err := x.b.Cancel(ctx, "ctag-1")
		if x.after {
			assert.ErrorIs(x.t, err, postroom.ErrNotFound)
		} else {
			assert.NoError(x.t, err)
		}
		x.Idle()
		assert.Len(x.t, received[*messages.ConsumerEnded](n), 1)
		n.stop()
	}},
	"*messages.Pause": {does: "*messages.Pause", config: quick, run: func(x *crash) {
		x.arm()
		unknown(x.t, x.b.Pause(ctx, "jobs"))
		assert.Equal(x.t, x.after, stats(x.t, x.b, "jobs").Paused)
		require.NoError(x.t, x.b.Resume(ctx, "jobs"))
	}},
	"*messages.Resume": {does: "*messages.Resume", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		drained := x.drain(ctx)
		x.arm()
		unknown(x.t, x.b.Resume(ctx, "jobs"))
		assert.Equal(x.t, !x.after, stats(x.t, x.b, "jobs").Draining)
		require.NoError(x.t, x.b.Resume(ctx, "jobs"))
		x.Idle()
		assert.ErrorIs(x.t, *drained, postroom.ErrResumed)
	}},
	"*messages.Purge": {does: "*messages.Purge", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b")
		x.arm()
		_, err := x.b.Purge(ctx, "jobs")
		unknown(x.t, err)
		assert.EqualValues(x.t, 2*x.once(), stats(x.t, x.b, "jobs").Purged)
	}},
	"*messages.Peek": {does: "*messages.Peek", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		x.arm()
		_, err := x.b.Peek(ctx, "jobs", 1)
		unknown(x.t, err)
		all, err := x.b.Peek(ctx, "jobs", 2)
		require.NoError(x.t, err)
		assert.Len(x.t, all, 1)
	}},
	"*messages.Drain": {does: "*messages.Drain", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		x.arm()
		unknown(x.t, x.b.Drain(ctx, "jobs"))
		assert.Equal(x.t, x.after, stats(x.t, x.b, "jobs").Draining)
		drained := x.drain(ctx)
		require.NoError(x.t, x.get("jobs").Ack(ctx))
		x.Idle()
		assert.NoError(x.t, *drained)
		require.NoError(x.t, x.b.Resume(ctx, "jobs"))
	}},
	"*messages.DeadLettersQuery": {does: "*messages.DeadLettersQuery", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		require.NoError(x.t, x.get("jobs").Reject(ctx, errWork))
		x.arm()
		_, err := x.b.DeadLetters(ctx, "jobs", 0, 10)
		unknown(x.t, err)
		letters, err := x.b.DeadLetters(ctx, "jobs", 0, 10)
		require.NoError(x.t, err)
		assert.Len(x.t, letters, 1)
	}},
	"*messages.Discard": {does: "*messages.Discard", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		require.NoError(x.t, x.get("jobs").Reject(ctx, errWork))
		x.arm()
		_, err := x.b.Discard(ctx, "jobs", "a")
		unknown(x.t, err)
		assert.Equal(x.t, 1-x.once(), stats(x.t, x.b, "jobs").DeadLetters)
	}},
	"*redriveLetter": {does: "*actors.redriveLetter", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a")
		require.NoError(x.t, x.get("jobs").Reject(ctx, errWork))
		x.arm()
		r, err := x.b.Redrive(ctx, "jobs", postroom.RedriveConfig{})
		require.NoError(x.t, err)
		unknown(x.t, r.Stopped)
		s := stats(x.t, x.b, "jobs")
		assert.Equal(x.t, x.once(), s.Ready)
		assert.Equal(x.t, 1-x.once(), s.DeadLetters)
	}},
	"*removeLetter": {does: "*actors.removeLetter", config: quick, run: func(x *crash) {
		declare(x.t, x.b, "other", quick)
		put(x.t, x.b, "jobs", "a")
		require.NoError(x.t, x.get("jobs").Reject(ctx, errWork))
		x.arm()
		r, err := x.b.Redrive(ctx, "jobs", postroom.RedriveConfig{To: "other"})
		require.NoError(x.t, err)
		assert.Equal(x.t, postroom.Redriven{Moved: 1}, r)
		x.Idle()
		assert.Zero(x.t, stats(x.t, x.b, "jobs").DeadLetters, "it has moved, so it is not here as well")
		assert.Equal(x.t, 1, stats(x.t, x.b, "other").Ready)
	}},
	"*messages.QueueStatsQuery": {does: "*messages.QueueStatsQuery", config: quick, run: func(x *crash) {
		x.arm()
		_, err := x.b.QueueStats(ctx, "jobs")
		unknown(x.t, err)
	}},
	"*closeQueue": {does: "*actors.closeQueue", config: quick, run: func(x *crash) {
		put(x.t, x.b, "jobs", "a", "b")
		k := consume(x.t, x.b, "jobs", func(ctx context.Context, d *postroom.Delivery) error {
			return x.b.Sleep(ctx, time.Hour)
		}, postroom.ConsumerConfig{})
		drained := x.drain(ctx)
		x.arm()
		gone, err := x.b.DeleteQueue(ctx, "jobs")
		require.NoError(x.t, err, "its desk asks again")
		assert.Equal(x.t, postroom.Deleted{Messages: 2}, gone)
		x.Idle()
		assert.True(x.t, ended(k))
		assert.ErrorIs(x.t, k.Err(), postroom.ErrQueueClosed)
		assert.ErrorIs(x.t, *drained, postroom.ErrQueueClosed)
		declare(x.t, x.b, "jobs", quick)
	}},
	"messages.Command": {does: "*messages.BrokerStatsQuery", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		x.arm()
		n.request(queuePID(x.t, x.b, "jobs"), &messages.BrokerStatsQuery{})
		x.Idle()
		x.answeredUnknown(n)
		n.stop()
	}},
}

// answeredUnknown asserts that an actor got exactly one answer, and which.
func (x *crash) answeredUnknown(n *native) {
	x.t.Helper()
	if answers := n.answers(); assert.Len(x.t, answers, 1) {
		unknown(x.t, answers[0].Err)
	}
}

// drain drains "jobs" beside the test; the error is there when it has ended.
func (x *crash) drain(ctx context.Context) *error {
	ended := errors.New("still draining")
	x.beside(func() { ended = x.b.Drain(ctx, "jobs") })
	x.Idle()
	return &ended
}

// workOff has everything in "jobs" handled, to see that nothing is lost or stuck.
func (x *crash) workOff() {
	x.t.Helper()
	got, err := &book{}, error(nil)
	put(x.t, x.b, "jobs", "last")
	consume(x.t, x.b, "jobs", collect(got), postroom.ConsumerConfig{})
	x.sleep(10 * time.Minute)
	s := stats(x.t, x.b, "jobs")
	assert.Zero(x.t, s.Ready+s.Delayed+s.Leased, "worked off: %+v", s)
	done := false
	x.beside(func() { _, err = x.b.Get(ctx, "jobs", postroom.GetConfig{NoWait: true}); done = true })
	x.Idle()
	assert.True(x.t, done)
	assert.ErrorIs(x.t, err, postroom.ErrEmpty)
}

// A panic in the queue's actor costs the command that caused it, at whatever point
// it comes, and never the state.
func TestS3_QueueCrashCostsOneCommand(t *testing.T) {
	for _, name := range sortedNames(onQueue) {
		sc := onQueue[name]
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+strings.TrimPrefix(sc.does, "*"), func(t *testing.T) {
				eachSeed(t, 4, func(s *sim) {
					x := &crash{sim: s, bomb: &bomb{}, after: when == "after", point: fmt.Sprintf("queue jobs %s %s", when, sc.does)}
					x.b = s.broker(postroom.WithProbe(x.probe))
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

// onRouter has a scenario for each case of the type switch in the router's handle.
var onRouter = map[string]scenario{
	"*messages.Publish": {does: "*messages.Publish", config: quick, run: func(x *crash) {
		require.NoError(x.t, x.b.Bind(ctx, "jobs", "t"))
		x.arm()
		_, err := x.b.Publish(ctx, "t", postroom.Envelope{ID: "a"})
		x.Idle()
		if x.after && err == nil {
			// The queue was quicker with its answer than the router with its crash.
			assert.EqualValues(x.t, 1, stats(x.t, x.b, "jobs").Puts)
			return
		}
		unknown(x.t, err)
		assert.EqualValues(x.t, x.once(), stats(x.t, x.b, "jobs").Puts)
	}},
	"*Announce": {does: "*router.Announce", config: quick, run: func(x *crash) {
		got := events(x.t, x.b, "$sys.dead.jobs")
		put(x.t, x.b, "jobs", "a")
		d := x.get("jobs")
		x.arm()
		require.NoError(x.t, d.Reject(ctx, errWork), "the settle is answered all the same")
		x.Idle()
		assert.Len(x.t, got.all(), x.once(), "at most once")
		assert.EqualValues(x.t, 1-x.once(), stats(x.t, x.b, "jobs").LostNotices, "a lost one is counted")
	}},
	"*Subscribe": {does: "*router.Subscribe", config: quick, run: func(x *crash) {
		x.arm()
		_, err := x.b.Subscribe(ctx, "t", func(string, *postroom.Event) {})
		if !x.after {
			unknown(x.t, err)
		}
		_, err = x.b.Subscribe(ctx, "t", func(string, *postroom.Event) {})
		require.NoError(x.t, err)
	}},
	"*messages.Unsubscribe": {does: "*messages.Unsubscribe", config: quick, run: func(x *crash) {
		sub, err := x.b.Subscribe(ctx, "t", func(string, *postroom.Event) {})
		require.NoError(x.t, err)
		x.arm()
		if err := sub.Unsubscribe(ctx); !x.after {
			unknown(x.t, err)
			require.NoError(x.t, sub.Unsubscribe(ctx))
		}
		assert.ErrorIs(x.t, sub.Unsubscribe(ctx), postroom.ErrNotFound)
	}},
	"*Bind": {does: "*router.Bind", config: quick, run: func(x *crash) {
		x.arm()
		if err := x.b.Bind(ctx, "jobs", "t"); !x.after {
			unknown(x.t, err)
		}
		require.NoError(x.t, x.b.Bind(ctx, "jobs", "t"))
		r, err := x.b.Publish(ctx, "t", postroom.Envelope{})
		require.NoError(x.t, err)
		assert.Equal(x.t, 1, r.Accepted)
	}},
	"*Unbind": {does: "*router.Unbind", config: quick, run: func(x *crash) {
		require.NoError(x.t, x.b.Bind(ctx, "jobs", "t"))
		x.arm()
		if err := x.b.Unbind(ctx, "jobs", "t"); !x.after {
			unknown(x.t, err)
			require.NoError(x.t, x.b.Unbind(ctx, "jobs", "t"))
		}
		r, err := x.b.Publish(ctx, "t", postroom.Envelope{})
		require.NoError(x.t, err)
		assert.Zero(x.t, r.Accepted+r.Refused)
	}},
	"*Forget": {does: "*router.Forget", config: quick, run: func(x *crash) {
		require.NoError(x.t, x.b.Bind(ctx, "jobs", "t"))
		put(x.t, x.b, "jobs", "a")
		x.arm()
		gone, err := x.b.DeleteQueue(ctx, "jobs")
		require.NoError(x.t, err, "it is asked for again")
		assert.Equal(x.t, postroom.Deleted{Messages: 1}, gone)
		s, err := x.b.Stats(ctx)
		require.NoError(x.t, err)
		assert.Equal(x.t, 1, s.Bindings, "only the one that every scenario has")
		declare(x.t, x.b, "jobs", quick)
		require.NoError(x.t, x.b.Bind(ctx, "jobs", "u"))
		r, err := x.b.Publish(ctx, "u", postroom.Envelope{})
		require.NoError(x.t, err)
		assert.Equal(x.t, 1, r.Accepted)
	}},
	"*Stats": {does: "*router.Stats", config: quick, run: func(x *crash) {
		x.arm()
		if _, err := x.b.Stats(ctx); !x.after {
			unknown(x.t, err)
		}
	}},
	"*actorkit.ForeignEnded": {does: "*actorkit.ForeignEnded", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		n.request(x.b.PID(), &messages.Subscribe{Pattern: "t"})
		x.Idle()
		x.arm()
		n.stop()
		x.Idle()
		s, err := x.b.Stats(ctx)
		require.NoError(x.t, err)
		assert.Equal(x.t, 1, s.Subscriptions, "only the one that every scenario has")
	}},
	"*subscriberEnded": {does: "*router.subscriberEnded", config: quick, run: func(x *crash) {
		n := x.native(x.b, "n")
		n.request(x.b.PID(), &messages.Subscribe{Pattern: "t"})
		x.Idle()
		x.bomb.arm("router before *actorkit.ForeignEnded", 1)
		x.bomb.then = x.point
		n.stop()
		x.Idle()
	}},
	"messages.Command": {does: "*messages.BrokerStatsQuery", config: quick, run: func(x *crash) {
		// The router's address is nobody's but ours, so a stray command comes by name.
		pid := *x.b.PID()
		pid.Id += "/topic-router"
		n := x.native(x.b, "n")
		x.arm()
		n.request(&pid, &messages.BrokerStatsQuery{})
		x.Idle()
		if answers := n.answers(); assert.Len(x.t, answers, 1) && !x.after {
			unknown(x.t, answers[0].Err)
		}
		n.stop()
	}},
}

// A panic in the router costs the command that caused it. Its subscribers and
// bindings stand, and so does a subscriber that is in the middle of an event.
func TestS3_RouterCrashCostsOneCommand(t *testing.T) {
	for _, name := range sortedNames(onRouter) {
		sc := onRouter[name]
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+strings.TrimPrefix(sc.does, "*"), func(t *testing.T) {
				eachSeed(t, 4, func(s *sim) {
					x := &crash{sim: s, bomb: &bomb{}, after: when == "after", point: fmt.Sprintf("router %s %s", when, sc.does)}
					x.b = s.broker(postroom.WithProbe(x.probe))
					declare(t, x.b, "jobs", sc.config)
					declare(t, x.b, "standing", postroom.QueueConfig{})
					require.NoError(t, x.b.Bind(ctx, "standing", "news"))
					read := &book{}
					_, err := x.b.Subscribe(ctx, "news", func(_ string, e *postroom.Event) {
						read.add("%s", e.Body)
						_ = x.b.Sleep(ctx, time.Hour)
					})
					require.NoError(t, err)
					news := func(body string) {
						r, err := x.b.Publish(ctx, "news", postroom.Envelope{Body: []byte(body)})
						require.NoError(t, err)
						assert.Equal(t, postroom.PublishResult{Subscribers: 1, Accepted: 1}, r)
					}
					news("first")
					x.Idle()
					sc.run(x)
					require.Equal(t, 1, x.hit(), "the bomb at %q went off", x.point)
					news("second")
					x.sleep(3 * time.Hour)
					assert.Equal(t, []string{"first", "second"}, read.all())
					x.workOff()
				})
			})
		}
	}
}

func sortedNames(m map[string]scenario) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A command that nobody has crashed is a command whose crash nobody knows.
func TestS3_EveryQueueCommandHasACrashTest(t *testing.T) {
	assert.Equal(t, casesOf(t, "workqueue.go", "handle"), sortedNames(onQueue))
}

func TestS3_EveryRouterCommandHasACrashTest(t *testing.T) {
	assert.Equal(t, casesOf(t, "../router/router.go", "handle"), sortedNames(onRouter))
}

// casesOf lists the types in the type switches of a method, in order of name.
func casesOf(t *testing.T, file, method string) []string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var found []string
	for _, d := range parsed.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != method {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSwitchStmt); ok {
				for _, c := range s.Body.List {
					for _, typ := range c.(*ast.CaseClause).List {
						found = append(found, types.ExprString(typ))
					}
				}
			}
			return true
		})
	}
	require.NotEmpty(t, found)
	slices.Sort(found)
	return found
}

// Whoever waits in a queue goes on waiting through a crash of it, and is served.
func TestS3_WaitersSurviveACrash(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		x := &bomb{}
		b := s.broker(postroom.WithProbe(x.probe))
		declare(t, b, "jobs", quick)
		put(t, b, "jobs", "leased")
		held, err := b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		served, drained := &book{}, errWork
		for i := range 3 {
			s.beside(func() {
				d, err := b.Get(ctx, "jobs", postroom.GetConfig{})
				if assert.NoError(t, err) {
					served.add("get %d %s", i, d.ID)
					assert.NoError(t, d.Ack(ctx))
				}
			})
			s.Idle()
		}
		for _, point := range []string{"before *messages.Peek", "after *messages.QueueStatsQuery", "before *messages.Purge", "after *messages.Discard"} {
			x.arm("queue jobs "+point, 1)
			_, _ = b.Peek(ctx, "jobs", 1)
			_, _ = b.QueueStats(ctx, "jobs")
			_, _ = b.Purge(ctx, "jobs")
			_, _ = b.Discard(ctx, "jobs", "none")
			require.Equal(t, 1, x.hit())
		}
		put(t, b, "jobs", "a", "b", "c")
		s.Idle()
		assert.ElementsMatch(t, []string{"get 0 a", "get 1 b", "get 2 c"}, served.all(), "in their turn")
		s.beside(func() { drained = b.Drain(ctx, "jobs") })
		s.Idle()
		x.arm("queue jobs after *messages.Settle", 1)
		unknown(t, held.Ack(ctx))
		s.Idle()
		assert.NoError(t, drained, "the effects of the crashed settle were carried out")
	})
}

// A publisher that waits for its window, and one that flushes, hear of a crash.
func TestS3_PublishersSurviveACrash(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		eachSeed(t, 10, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", quick)
			p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 1})
			require.NoError(t, err)
			x.arm("queue jobs "+when+" *actors.arrival", 1)
			for range 10 {
				_, err := p.Put(ctx, postroom.Envelope{})
				require.NoError(t, err)
			}
			assert.ErrorIs(t, p.Flush(ctx), postroom.ErrOutcomeUnknown)
			assert.NoError(t, p.Flush(ctx), "told once")
			want := 9
			if when == "after" {
				want = 10
			}
			assert.Equal(t, want, stats(t, b, "jobs").Ready)
		})
	}
}

// That a handler has begun is said once, with the first touch. When the queue crashes
// on that, the lease must not count as never begun, or it would spend no attempt.
func TestS3_ACrashDoesNotForgetThatAHandlerHasBegun(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		eachSeed(t, 10, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 1})
			put(t, b, "jobs", "a")
			x.arm("queue jobs "+when+" *actors.keepAlive", 1)
			runs := 0
			consume(t, b, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
				runs++
				return b.Sleep(ctx, time.Hour)
			}, postroom.ConsumerConfig{NoHeartbeat: true})
			s.sleep(time.Minute)
			require.Equal(t, 1, x.hit())
			assert.Equal(t, 1, runs)
			assert.EqualValues(t, 1, stats(t, b, "jobs").DeadBy[postroom.MaxAttempts])
		})
	}
}
