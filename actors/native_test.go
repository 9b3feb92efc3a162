package actors_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// ask sends a message and returns the answer that has come when all is idle.
func (n *native) ask(s *sim, to *actor.PID, msg any) *messages.Answer {
	s.t.Helper()
	before := len(n.answers())
	n.request(to, msg)
	s.Idle()
	answers := n.answers()
	require.Len(s.t, answers, before+1, "%T has one answer", msg)
	return answers[before]
}

func TestC7_AnActorDoesEverythingByMessage(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		n := s.native(b, "embedder")
		desk := b.PID()

		assert.NoError(t, n.ask(s, desk, &messages.DeclareQueue{Queue: "jobs"}).Err)
		jobs := queuePID(t, b, "jobs")
		assert.NoError(t, n.ask(s, jobs, &messages.Put{Envelope: postroom.Envelope{ID: "a"}}).Err)
		assert.EqualValues(t, 1, n.ask(s, jobs, &messages.Put{Envelope: postroom.Envelope{ID: "a"}}).N, "a duplicate")
		batch := n.ask(s, jobs, &messages.PutBatch{Envelopes: []postroom.Envelope{{ID: "b"}, {}}})
		require.NoError(t, batch.Err)
		assert.Len(t, batch.Value, 2)

		got := n.ask(s, jobs, &messages.Get{}).Value.(*postroom.Delivery)
		assert.Equal(t, "a", got.ID)
		assert.NoError(t, n.ask(s, jobs, &messages.Touch{Receipt: got.Receipt()}).Err)
		assert.NoError(t, n.ask(s, jobs, &messages.Ack{Receipt: got.Receipt()}).Err)
		assert.ErrorIs(t, n.ask(s, jobs, &messages.Ack{Receipt: got.Receipt()}).Err, postroom.ErrStale)
		got = n.ask(s, jobs, &messages.Get{}).Value.(*postroom.Delivery)
		assert.NoError(t, n.ask(s, jobs, &messages.Nack{Receipt: got.Receipt(), Error: "no"}).Err)
		got = n.ask(s, jobs, &messages.Get{}).Value.(*postroom.Delivery)
		assert.NoError(t, n.ask(s, jobs, &messages.Reject{Receipt: got.Receipt()}).Err)
		assert.ErrorIs(t, n.ask(s, jobs, &messages.Get{GetConfig: messages.GetConfig{NoWait: true}}).Err, postroom.ErrEmpty)

		assert.Equal(t, "sub-1", n.ask(s, desk, &messages.Subscribe{Pattern: "t"}).Value)
		assert.NoError(t, n.ask(s, desk, &messages.Bind{Queue: "jobs", Pattern: "t"}).Err)
		r := n.ask(s, desk, &messages.Publish{Envelope: postroom.Envelope{Topic: "t", Body: []byte("news")}})
		assert.Equal(t, postroom.PublishResult{Subscribers: 1, Accepted: 1}, r.Value)
		heard := received[*messages.Event](n)
		require.Len(t, heard, 1)
		assert.Equal(t, "news", string(heard[0].Body))
		assert.NoError(t, n.ask(s, desk, &messages.Unsubscribe{Subscription: "sub-1"}).Err)
		assert.NoError(t, n.ask(s, desk, &messages.Unbind{Queue: "jobs", Pattern: "t"}).Err)
		assert.ErrorIs(t, n.ask(s, desk, &messages.Unbind{Queue: "jobs", Pattern: "t"}).Err, postroom.ErrNotFound)
		assert.ErrorIs(t, n.ask(s, desk, &messages.Publish{Envelope: postroom.Envelope{Topic: "$sys.x"}}).Err, postroom.ErrArgument)
		assert.ErrorIs(t, n.ask(s, desk, &messages.Get{}).Err, postroom.ErrArgument, "queues take it")

		f := n.ask(s, jobs, &messages.QueueStatsQuery{}).Value.(postroom.QueueStats)
		assert.Equal(t, stats(t, b, "jobs"), f)
		assert.Equal(t, 1, n.ask(s, desk, &messages.BrokerStatsQuery{}).Value.(postroom.BrokerStats).Queues)
		assert.Equal(t, postroom.Deleted{Messages: 2, DeadLetters: 1}, n.ask(s, desk, &messages.DeleteQueue{Queue: "jobs"}).Value)
		n.stop()
	})
}

// consumer makes n a consumer that keeps the deliveries.
func (n *native) consume(s *sim, b *postroom.Broker, queue string, c postroom.ConsumerConfig) string {
	s.t.Helper()
	a := n.ask(s, b.PID(), &messages.Consume{Queue: queue, Consumer: c})
	require.NoError(s.t, a.Err)
	return a.Value.(string)
}

func TestC7_AnActorConsumesAndIsToldOnceOfItsEnd(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(s *sim, b *postroom.Broker)
		want error
	}{
		"cancel": {func(s *sim, b *postroom.Broker) { require.NoError(s.t, b.Cancel(ctx, "ctag-1")) }, nil},
		"delete": {func(s *sim, b *postroom.Broker) {
			_, err := b.DeleteQueue(ctx, "jobs")
			require.NoError(s.t, err)
		}, postroom.ErrQueueClosed},
		"close": {func(s *sim, b *postroom.Broker) { require.NoError(s.t, b.Close(ctx)) }, postroom.ErrBrokerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, 10, func(s *sim) {
				b := s.broker()
				declare(t, b, "jobs", quick)
				n := s.native(b, "embedder")
				tag := n.consume(s, b, "jobs", postroom.ConsumerConfig{Prefetch: 2})
				assert.Equal(t, "ctag-1", tag)
				put(t, b, "jobs", "a", "b", "c")
				s.Idle()
				deliveries := received[*messages.Deliver](n)
				require.Len(t, deliveries, 2, "as many as its prefetch")
				n.request(queuePID(t, b, "jobs"), &messages.Ack{Receipt: deliveries[0].Delivery.Receipt()})
				s.Idle()
				require.Len(t, received[*messages.Deliver](n), 3, "its credit is back")

				end.by(s, b)
				s.Idle()
				told := received[*messages.ConsumerEnded](n)
				require.Len(t, told, 1)
				assert.Equal(t, tag, told[0].Tag)
				if end.want == nil {
					assert.NoError(t, told[0].Reason)
					// What it holds it can still settle.
					last := received[*messages.Deliver](n)[2]
					assert.NoError(t, n.ask(s, queuePID(t, b, "jobs"), &messages.Ack{Receipt: last.Delivery.Receipt()}).Err)
				} else {
					assert.ErrorIs(t, told[0].Reason, end.want)
				}
				assert.Error(t, b.Cancel(ctx, tag))
				n.stop()
			})
		})
	}
}

func TestQ17_ADeadActorsLeasesReturn(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		eachSeed(t, 10, func(s *sim) {
			b := s.broker()
			declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true, MaxAttempts: 3})
			n := s.native(b, "embedder")
			tag := n.consume(s, b, "jobs", postroom.ConsumerConfig{Prefetch: 2})
			put(t, b, "jobs", "a", "b", "c")
			s.sleep(time.Hour)
			assert.Equal(t, 2, stats(t, b, "jobs").Leased)
			if cancelled { // it holds them all the same
				require.NoError(t, b.Cancel(ctx, tag))
				s.sleep(time.Hour)
				assert.Equal(t, 2, stats(t, b, "jobs").Leased)
			}
			n.stop()
			s.Idle()
			f := stats(t, b, "jobs")
			assert.Equal(t, 3, f.Ready)
			assert.Zero(t, f.Consumers)
			d, err := b.Get(ctx, "jobs", postroom.GetConfig{})
			require.NoError(t, err)
			assert.Equal(t, "a", d.ID, "in tag order")
			assert.Equal(t, 2, d.Attempt, "as a failed delivery")
		})
	}
}

// The queue crashes on the news of the actor's death: it must still hear of it, or
// it would go on handing messages to nobody.
func TestQ17_ADeadActorIsForgottenDespiteACrash(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		eachSeed(t, 5, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true})
			n := s.native(b, "embedder")
			n.consume(s, b, "jobs", postroom.ConsumerConfig{})
			put(t, b, "jobs", "a")
			s.Idle()
			x.arm("queue jobs "+when+" *actors.stopConsumer", 1)
			n.stop()
			s.Idle()
			require.Equal(t, 1, x.hit())
			f := stats(t, b, "jobs")
			assert.Zero(t, f.Consumers)
			assert.Equal(t, 1, f.Ready)
		})
	}
}

// A Consume whose attach crashed the queue has failed for its actor, so nothing of
// it may stay behind and draw messages.
func TestS3_AnActorsConsumeThatCrashedLeavesNothing(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		eachSeed(t, 5, func(s *sim) {
			x := &bomb{}
			b := s.broker(postroom.WithProbe(x.probe))
			declare(t, b, "jobs", quick)
			n := s.native(b, "embedder")
			x.arm("queue jobs "+when+" *actors.attach", 1)
			unknown(t, n.ask(s, b.PID(), &messages.Consume{Queue: "jobs"}).Err)
			put(t, b, "jobs", "a")
			s.Idle()
			f := stats(t, b, "jobs")
			assert.Zero(t, f.Consumers+f.Leased)
			assert.Empty(t, received[*messages.Deliver](n))
			n.stop()
		})
	}
}

func TestA3_AnActorsFloodIsAnsweredBusy(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{InboxLimit: 10})
		n := s.native(b, "embedder")
		jobs := queuePID(t, b, "jobs")
		for range 50 {
			n.request(jobs, &messages.Put{})
		}
		n.request(jobs, &messages.Ack{Receipt: postroom.Receipt{Tag: 1}})
		s.Idle()
		answers := n.answers()
		require.Len(t, answers, 51)
		busy := 0
		for _, a := range answers[:50] {
			if a.Err != nil {
				assert.ErrorIs(t, a.Err, postroom.ErrBusy)
				busy++
			}
		}
		assert.Equal(t, 50-stats(t, b, "jobs").Ready, busy)
		assert.Greater(t, busy, 30)
		assert.ErrorIs(t, answers[50].Err, postroom.ErrStale, "settles are never refused for it")
		n.stop()
	})
}

func TestC7_ConsumeWithoutASenderIsRefused(t *testing.T) {
	eachSeed(t, 1, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", quick)
		s.system.Send(b.PID(), &messages.Consume{Queue: "jobs"})
		s.Idle()
		assert.Zero(t, stats(t, b, "jobs").Consumers)
	})
}
