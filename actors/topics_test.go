package actors_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
)

func publish(t *testing.T, b *postroom.Broker, topic, body string) postroom.PublishResult {
	t.Helper()
	r, err := b.Publish(ctx, topic, postroom.Envelope{Body: []byte(body)})
	require.NoError(t, err)
	return r
}

func TestT2_AFullSubscriberLosesEventsAndNobodyElseDoes(t *testing.T) {
	eachSeed(t, 2, func(s *sim) {
		n := &notices{}
		b := s.broker(postroom.WithListener(n.listen))
		slow, quickly := 0, 0
		_, err := b.Subscribe(ctx, "t", func(string, *postroom.Event) {
			if slow == 0 {
				_ = b.Sleep(ctx, time.Hour)
			}
			slow++
		})
		require.NoError(t, err)
		_, err = b.Subscribe(ctx, "t", func(string, *postroom.Event) { quickly++ })
		require.NoError(t, err)
		publish(t, b, "t", "blocks the slow one")
		s.Idle()
		for range router.BufferMax {
			assert.Equal(t, 2, publish(t, b, "t", "").Subscribers)
		}
		for range 5 {
			assert.Equal(t, 1, publish(t, b, "t", "").Subscribers, "its buffer is full")
		}
		f, err := b.Stats(ctx)
		require.NoError(t, err)
		assert.EqualValues(t, 5, f.SubscriptionDrops)
		assert.Len(t, of[messages.EventDropped](n), 5)
		s.sleep(2 * time.Hour)
		assert.Equal(t, 1+router.BufferMax, slow)
		assert.Equal(t, 1+router.BufferMax+5, quickly)
	})
}

func TestT5_OrderHoldsPerPublisherAndSubscriber(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "jobs", "from.*"))
		got := map[string][]string{} // by subscription and publisher
		for range 3 {
			_, err := b.Subscribe(ctx, "from.#", func(sub string, e *postroom.Event) {
				got[sub+e.Topic] = append(got[sub+e.Topic], string(e.Body))
			})
			require.NoError(t, err)
		}
		var want []string
		for i := range 10 {
			want = append(want, strconv.Itoa(i))
		}
		for _, publisher := range []string{"from.a", "from.b"} {
			s.beside(func() {
				for _, i := range want {
					publish(t, b, publisher, i)
				}
			})
		}
		s.Idle()
		require.Len(t, got, 6)
		for who, bodies := range got {
			assert.Equal(t, want, bodies, who)
		}
		all, err := b.Peek(ctx, "jobs", 100)
		require.NoError(t, err)
		queued := map[string][]string{}
		for _, d := range all {
			queued[d.Topic] = append(queued[d.Topic], string(d.Body))
		}
		assert.Equal(t, map[string][]string{"from.a": want, "from.b": want}, queued)
	})
}

func TestT3_OneCopyHoweverManyBindingsMatch(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{})
		for _, pattern := range []string{"a.b", "a.*", "#", "a.b", "#.b", "x"} {
			require.NoError(t, b.Bind(ctx, "jobs", pattern))
		}
		f, err := b.Stats(ctx)
		require.NoError(t, err)
		assert.Equal(t, 5, f.Bindings, "the same one twice is one")
		assert.Equal(t, postroom.PublishResult{Accepted: 1}, publish(t, b, "a.b", ""))
		assert.EqualValues(t, 1, stats(t, b, "jobs").Puts)
		require.NoError(t, b.Unbind(ctx, "jobs", "a.b"))
		assert.ErrorIs(t, b.Unbind(ctx, "jobs", "a.b"), postroom.ErrNotFound)
		assert.Equal(t, 1, publish(t, b, "a.b", "").Accepted)
	})
}

func TestT4_RefusedCopiesCountAsBindingDrops(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		b := s.broker()
		declare(t, b, "full", postroom.QueueConfig{MaxMessages: 1})
		put(t, b, "full", "x")
		declare(t, b, "draining", postroom.QueueConfig{})
		put(t, b, "draining", "x")
		s.beside(func() { _ = b.Drain(ctx, "draining") })
		s.Idle()
		declare(t, b, "open", postroom.QueueConfig{})
		for i, q := range []string{"full", "draining", "open"} {
			require.NoError(t, b.Bind(ctx, q, "t"), i)
		}
		send := func(e postroom.Envelope) postroom.PublishResult {
			r, err := b.Publish(ctx, "t", e)
			require.NoError(t, err)
			return r
		}
		assert.Equal(t, postroom.PublishResult{Accepted: 1, Refused: 2}, send(postroom.Envelope{ID: "a"}))
		assert.Equal(t, postroom.PublishResult{Duplicate: 1, Refused: 2}, send(postroom.Envelope{ID: "a"}))
		assert.Equal(t, postroom.PublishResult{Refused: 3}, send(postroom.Envelope{ID: "b", ExpiresAt: s.Now().Add(-time.Second)}))
		f, err := b.Stats(ctx)
		require.NoError(t, err)
		assert.EqualValues(t, 2+3+3, f.BindingDrops)
		require.NoError(t, b.Resume(ctx, "draining"))
	})
}

func TestT6_ADeathIsAnnouncedBeforeItsSettleReturns(t *testing.T) {
	eachSeed(t, 20, func(s *sim) {
		b := s.broker()
		declare(t, b, "a.b", postroom.QueueConfig{MaxAttempts: 1})
		declare(t, b, "graveyard", postroom.QueueConfig{})
		// A queue that is bound sees it first: the subscriber's own goroutine may be late.
		require.NoError(t, b.Bind(ctx, "graveyard", "$sys.dead.*"))
		deaths := events(t, b, "$sys.dead.*")
		put(t, b, "a.b", "x", "y", "z")
		for i, settle := range []func(d *postroom.Delivery) error{
			func(d *postroom.Delivery) error { return d.Reject(ctx, errWork) },
			func(d *postroom.Delivery) error { return d.Nack(ctx, errWork) },
			func(d *postroom.Delivery) error {
				_, err := b.SettleBatch(ctx, []postroom.Settlement{{Receipt: d.Receipt(), Verb: postroom.VerbReject}})
				return err
			},
		} {
			d, err := b.Get(ctx, "a.b", postroom.GetConfig{})
			require.NoError(t, err)
			require.NoError(t, settle(d))
			assert.EqualValues(t, i+1, stats(t, b, "graveyard").Puts, "at once")
		}
		s.Idle()
		assert.Equal(t, []string{"$sys.dead.a_b x rejected", "$sys.dead.a_b y max_attempts", "$sys.dead.a_b z rejected"}, deaths.all())
		_, err := b.Publish(ctx, "$sys.dead.a_b", postroom.Envelope{})
		assert.ErrorIs(t, err, postroom.ErrArgument, "users cannot publish there")
	})
}

// A queue bound to everything gets the news of its own deaths once; that those die
// in turn is no news. Else two such queues would send it to and fro for ever.
func TestT6_DeathsOfAnnouncementsAreNotAnnounced(t *testing.T) {
	for _, how := range []string{"nack", "ttl", "attempts", "crash"} {
		t.Run(how, func(t *testing.T) {
			eachSeed(t, 5, func(s *sim) {
				b := s.broker(fixedRestarts(postroom.Unlimited))
				config := postroom.QueueConfig{AckTimeout: time.Second, MaxAttempts: 2}
				if how == "ttl" {
					config.TTL = time.Minute
				}
				handler := func(context.Context, *postroom.Delivery) error {
					switch how {
					case "nack":
						return postroom.Permanent(errWork)
					case "crash":
						panic("crash")
					}
					return errWork
				}
				for _, q := range []string{"all1", "all2"} {
					declare(t, b, q, config)
					require.NoError(t, b.Bind(ctx, q, "#"))
					if how != "ttl" {
						consume(t, b, q, handler, postroom.ConsumerConfig{})
					}
				}
				deaths := events(t, b, "$sys.#")
				r, err := b.Publish(ctx, "t", postroom.Envelope{ID: "original"})
				require.NoError(t, err)
				assert.Equal(t, 2, r.Accepted)
				s.sleep(24 * time.Hour)
				assert.Len(t, deaths.all(), 2, "%v", deaths.all())
				for _, q := range []string{"all1", "all2"} {
					f := stats(t, b, q)
					assert.EqualValues(t, 3, f.Puts, "the original and one announcement of each death")
					assert.Equal(t, 3, f.DeadLetters)
				}
			})
		})
	}
}

func TestR7_DeadLetterCopiesNeverReturnToAQueueTheyDiedIn(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		b := s.broker()
		for _, q := range []string{"one", "two"} {
			declare(t, b, q, postroom.QueueConfig{MaxAttempts: 1, DeadLetterTopic: "dlx"})
			require.NoError(t, b.Bind(ctx, q, "dlx"))
		}
		declare(t, b, "last", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "last", "dlx"))
		var got []*postroom.Delivery
		consume(t, b, "last", func(_ context.Context, d *postroom.Delivery) error { got = append(got, d); return nil }, postroom.ConsumerConfig{})
		for _, q := range []string{"one", "two"} {
			consume(t, b, q, func(context.Context, *postroom.Delivery) error { return errWork }, postroom.ConsumerConfig{})
		}
		// The copies have one id: the second would be a duplicate while the first is there.
		require.NoError(t, b.Pause(ctx, "two"))
		_, err := b.Put(ctx, "one", postroom.Envelope{ID: "m", Body: []byte("body"), Headers: map[string]string{"own": "kept"}, ExpiresAt: s.Now().Add(time.Hour)})
		require.NoError(t, err)
		s.sleep(time.Hour)
		require.NoError(t, b.Resume(ctx, "two"))
		s.sleep(2 * time.Hour)
		// Died in one, copied to two and last; died in two, copied to last alone.
		require.Len(t, got, 2)
		assert.EqualValues(t, 1, stats(t, b, "one").Puts)
		assert.EqualValues(t, 1, stats(t, b, "two").Puts)
		for i, d := range got {
			assert.Equal(t, "m", d.ID)
			assert.Equal(t, "body", string(d.Body))
			assert.Equal(t, "kept", d.Headers["own"])
			assert.Equal(t, strconv.Itoa(i+1), d.Headers["postroom-death-count"])
			assert.Equal(t, []string{"one", "two"}[i], d.Headers["postroom-death-queue"])
			assert.Equal(t, "max_attempts", d.Headers["postroom-death-reason"])
			assert.Contains(t, d.Headers["postroom-death-error"], errWork.Error())
			assert.True(t, d.ExpiresAt.IsZero(), "or it would die on arrival")
		}
		assert.Equal(t, 1, stats(t, b, "one").DeadLetters, "the letter itself stays")
	})
}

func TestT7_DeletingAQueueForgetsItsBindingsAndReceipts(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "jobs", "#"))
		put(t, b, "jobs", "a")
		old, err := b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		_, err = b.DeleteQueue(ctx, "jobs")
		require.NoError(t, err)
		f, err := b.Stats(ctx)
		require.NoError(t, err)
		assert.Zero(t, f.Bindings+f.Queues)

		declare(t, b, "jobs", postroom.QueueConfig{})
		assert.Zero(t, publish(t, b, "t", "").Accepted)
		put(t, b, "jobs", "b")
		fresh, err := b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		assert.Equal(t, old.Tag, fresh.Tag, "tags begin again")
		assert.NotEqual(t, old.Receipt(), fresh.Receipt())
		assert.ErrorIs(t, old.Ack(ctx), postroom.ErrStale)
		assert.Equal(t, 1, stats(t, b, "jobs").Leased)
		require.NoError(t, fresh.Ack(ctx))
	})
}

// Whatever the order in which they meet, a Bind that runs beside a deletion and a
// new declaration leaves no binding of a queue that is gone.
func TestT7_ABindOvertakenByADeletionBindsNothingThatIsGone(t *testing.T) {
	eachSeed(t, 80, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{})
		for range 3 {
			s.beside(func() { _ = b.Bind(ctx, "jobs", "t") })
			s.beside(func() { _, _ = b.DeleteQueue(ctx, "jobs") })
			s.beside(func() { _ = b.DeclareQueue(ctx, "jobs", postroom.QueueConfig{}) })
		}
		s.Idle()
		f, err := b.Stats(ctx)
		require.NoError(t, err)
		r := publish(t, b, "t", "")
		assert.Zero(t, r.Refused, "sent to a queue that is gone")
		assert.Equal(t, f.Bindings, r.Accepted)
		require.NoError(t, b.DeclareQueue(ctx, "jobs", postroom.QueueConfig{}))
		require.NoError(t, b.Bind(ctx, "jobs", "t"))
		assert.Equal(t, postroom.PublishResult{Accepted: 1}, publish(t, b, "t", ""))
	})
}

// The door looks a queue up and then asks the router; on real goroutines a deletion
// can come in between. Here it does.
func TestT7_ABindOfAQueueDeletedMeanwhileIsNotFound(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		core, err := actors.Start(actors.Config{System: s.system})
		require.NoError(t, err)
		declare := func() { // also again, under the same name
			_, err := core.AskDesk(ctx, "declare", &messages.DeclareQueue{Queue: "jobs"})
			require.NoError(t, err)
		}
		declare()
		q, err := core.Find("bind", "jobs")
		require.NoError(t, err)
		_, err = core.AskDesk(ctx, "delete", &messages.DeleteQueue{Queue: "jobs"})
		require.NoError(t, err)
		for range 2 {
			_, err = core.AskRouter(ctx, "bind", &router.Bind{Queue: "jobs", To: q.Address, Pattern: "t"})
			assert.ErrorIs(t, err, postroom.ErrNotFound)
			declare()
		}
		require.NoError(t, core.Close(ctx))
	})
}

func TestT7_UndoingWhatIsNotThereIsNotFound(t *testing.T) {
	eachSeed(t, 2, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{})
		sub, err := b.Subscribe(ctx, "t", func(string, *postroom.Event) {})
		require.NoError(t, err)
		assert.Equal(t, "sub-1", sub.Name)
		require.NoError(t, sub.Unsubscribe(ctx))
		for what, err := range map[string]error{
			"unsubscribe": sub.Unsubscribe(ctx),
			"unbind":      b.Unbind(ctx, "jobs", "t"),
			"unbind 2":    b.Unbind(ctx, "none", "t"),
			"bind":        b.Bind(ctx, "none", "t"),
			"cancel":      b.Cancel(ctx, "ctag-1"),
			"settle":      b.Ack(ctx, "none", 1),
			"pause":       b.Pause(ctx, "none"),
		} {
			assert.ErrorIs(t, err, postroom.ErrNotFound, what)
			assert.NotEmpty(t, postroom.Hint(err), what)
		}
		_, err = b.DeleteQueue(ctx, "none")
		assert.ErrorIs(t, err, postroom.ErrNotFound)
	})
}

func TestB1_ADeclarationIsRepeatedSafelyAndConflictsAreNamed(t *testing.T) {
	eachSeed(t, 2, func(s *sim) {
		b := s.broker()
		declare(t, b, "jobs", postroom.QueueConfig{})
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 30 * time.Second}) // the default
		var conflict *postroom.QueueConfigConflictError
		require.ErrorAs(t, b.DeclareQueue(ctx, "jobs", postroom.QueueConfig{TTL: time.Hour, MaxAttempts: 9}), &conflict)
		assert.ElementsMatch(t, []string{"TTL", "MaxAttempts"}, conflict.Fields)
	})
}

func TestB6_ManyBrokersLiveInOneProcess(t *testing.T) {
	eachSeed(t, 3, func(s *sim) {
		var all []*postroom.Broker
		got := &book{}
		for i := range 5 {
			b := s.broker()
			all = append(all, b)
			declare(t, b, "jobs", postroom.QueueConfig{})
			k := consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
				got.add("%d %s", i, d.ID)
				return nil
			}, postroom.ConsumerConfig{})
			assert.Equal(t, "ctag-1", k.Tag)
		}
		for i, b := range all {
			put(t, b, "jobs", fmt.Sprint("to ", i))
		}
		require.NoError(t, all[0].Close(ctx))
		s.Idle()
		put(t, all[1], "jobs", "more")
		s.Idle()
		assert.Len(t, got.all(), 6)
		for _, line := range got.all() {
			if broker, id, _ := strings.Cut(line, " "); id != "more" {
				assert.Equal(t, "to "+broker, id)
			}
		}
	})
}
