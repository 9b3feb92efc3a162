package actors

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
)

// These tests stand between two instructions, where only another thread comes
// otherwise, and so are inside of the package.

// within runs fn with a broker and a queue on the real runtime, inside of a bubble.
func within(t *testing.T, config messages.QueueConfig, probe func(point string), fn func(t *testing.T, b *Broker, q *Queue)) {
	synctest.Test(t, func(t *testing.T) {
		rt := actorkit.NewReal(actorkit.RealConfig{})
		system := actorkit.NewSystem(rt, nil)
		defer func() {
			system.ActorSystem().Shutdown()
			rt.Close()
		}()
		b, err := Start(Config{System: system, Probe: probe})
		require.NoError(t, err)
		_, err = b.Ask(t.Context(), "declare queue", b.queueDesk, &messages.DeclareQueue{Queue: "jobs", Config: config})
		require.NoError(t, err)
		q, ok := b.Queue("jobs")
		require.True(t, ok)
		fn(t, b, q)
		assert.NoError(t, b.Close(t.Context()))
	})
}

func consumeIn(t *testing.T, b *Broker, h Handler) *Consumer {
	t.Helper()
	a, err := b.AskPool(t.Context(), "consume", &StartConsumer{Queue: "jobs", Handler: h, Config: messages.ConsumerConfig{}.WithDefaults()})
	require.NoError(t, err)
	return a.Value.(*Consumer)
}

func statsOf(t *testing.T, b *Broker, q *Queue) messages.QueueStats {
	t.Helper()
	a, err := b.AskAt(t.Context(), "stats", q, &messages.QueueStatsQuery{})
	require.NoError(t, err)
	return a.Value.(messages.QueueStats)
}

func putIn(t *testing.T, b *Broker, q *Queue, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := b.AskAt(t.Context(), "put", q, &Put{Put: messages.Put{Envelope: messages.Envelope{ID: id}}})
		require.NoError(t, err)
	}
}

// Two goroutines put through one window. The first has to tell the queue and has not
// yet done so; the second must not go on to its next command before that.
func TestA3_APutWaitsForWhoHasYetToTellTheQueueOfItsBurst(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		w := NewWindow(b, q, 10, false)
		enter := func() { require.NoError(t, w.Enter(t.Context(), b.runtime, 1, true)) }
		enter()
		first := ledger.NewPut(&messages.Envelope{ID: "first"}, false)
		require.True(t, w.intake.post(&first))
		enter()
		ahead := make(chan int, 1)
		go func() {
			w.Post(&messages.Envelope{ID: "second"})
			a, err := b.AskAt(t.Context(), "stats", q, &messages.QueueStatsQuery{})
			if !assert.NoError(t, err) {
				a.Value = messages.QueueStats{}
			}
			ahead <- a.Value.(messages.QueueStats).Ready
		}()
		synctest.Wait()
		select {
		case n := <-ahead:
			t.Fatalf("the second went on when the queue had %d of the two puts", n)
		default:
		}
		q.Address.Send(w)
		w.intake.hasTold()
		assert.Equal(t, 2, <-ahead, "puts ahead of the second's next command")
		assert.NoError(t, w.Flush(t.Context(), b.runtime))
	})
}

// The settles of two consumers' workers are on one way. A worker of the first has to
// tell the queue and has not yet done so, when the second consumer ends: its settle
// counts all the same, although its lease without a timeout ends with it. However
// often the queue crashes on the two, the consumer's end is not forgotten.
func TestQ17_ASettleIsAheadOfItsConsumersEndWhoeverTellsTheQueue(t *testing.T) {
	const most = 2 * (1 + triesMax) // until both settles are given up
	for _, crashes := range []int{0, most} {
		left := crashes
		probe := func(point string) {
			if point == "queue jobs before *actors.slot" && left > 0 {
				left--
				panic("bomb")
			}
		}
		config := messages.QueueConfig{NoTimeout: true, MaxAttempts: 100}
		within(t, config, probe, func(t *testing.T, b *Broker, q *Queue) {
			putIn(t, b, q, "a")
			release := make(chan struct{})
			k := consumeIn(t, b, func(context.Context, *messages.Delivery) error { <-release; return nil })
			synctest.Wait()
			other := &consumer{broker: b, tag: "other", queue: q}
			q.returns.pushed.Store(&slot{worker: &worker{consumer: other}, quiet: true}) // its worker is about to send

			_, err := b.AskPool(t.Context(), "cancel", &messages.Cancel{Tag: k.Tag})
			require.NoError(t, err)
			close(release)
			<-k.Done()
			s := statsOf(t, b, q)
			assert.Zero(t, s.Leased, "%+v", s)
			assert.Zero(t, left)
			if crashes == 0 {
				assert.EqualValues(t, 1, s.Acks, "%+v", s)
			} else {
				assert.Equal(t, 1, s.Ready+s.Delayed, "%+v", s)
			}
		})
	}
}

// The room that a worker has made for the queue's next burst is let go when the
// consumer is idle: there may be 100,000 of them.
func TestAnIdleConsumerKeepsNoRoomForABurst(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		k := consumeIn(t, b, func(context.Context, *messages.Delivery) error { return nil })
		k.inner.stockUp()
		putIn(t, b, q, "a") // it has something to do, and then nothing any more
		time.Sleep(q.Config.AckTimeout)
		synctest.Wait()
		assert.Nil(t, k.inner.spare.Load())
	})
}

// A consumer's touches are on their way when a handler returns, and its settle is
// taken first: with an answer on its way a lease needs no touch, and none is stale.
func TestC4_ATouchThatItsSettleHasOvertakenIsNotStale(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		var got *messages.Delivery
		k := consumeIn(t, b, func(_ context.Context, d *messages.Delivery) error { got = d; return nil })
		putIn(t, b, q, "a")
		synctest.Wait()
		require.NotNil(t, got)
		for _, state := range []uint32{slotSettling, slotOver} {
			answered := &slot{Delivery: *got, worker: k.inner.workers[0]}
			answered.state.Store(state)
			q.Address.Send(&keepAlive{consumer: k.inner, touch: []*slot{answered}})
		}
		s := statsOf(t, b, q)
		assert.EqualValues(t, 1, s.Acks)
		assert.Zero(t, s.StaleBy[messages.VerbTouch])
	})
}

// A turn ends after some thousand puts, however many windows have however many: else
// nobody would be told of the first before the last is handled.
func TestA3_ATurnOfManyPutsEnds(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		const windows, each = 3, turnPutsMax - 1000
		var all []*Window
		told, ahead := 0, 0
		posted := make(chan struct{}) // until then the queue stands at the first put
		order := map[string]int{}
		for i := range windows {
			w := NewWindow(b, q, each, false)
			all = append(all, w)
			w.Report = func(id string, a messages.Answer) {
				<-posted
				require.NoError(t, a.Err)
				window, n, _ := strings.Cut(id, "-")
				require.Equal(t, strconv.Itoa(order[window]), n, "in the order of the puts")
				order[window]++
				told++
				decided := 0
				for _, w := range all {
					decided += int(w.told.Load())
				}
				ahead = max(ahead, told-decided)
			}
			for n := range each {
				require.NoError(t, w.Enter(t.Context(), b.runtime, 1, true))
				w.Post(&messages.Envelope{ID: fmt.Sprintf("%d-%d", i, n), Body: []byte("x")})
			}
		}
		close(posted)
		s := statsOf(t, b, q)
		assert.Equal(t, windows*each, s.Ready, "what is sent behind a burst is handled behind it")
		assert.Equal(t, windows*each, told)
		assert.Equal(t, turnPutsMax, ahead)
	})
}

// Flush waits for what was sent before it, and not for what others go on sending: else
// with a busy publisher it would wait for ever.
func TestA3_FlushWaitsForWhatWasSentBefore(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		w := NewWindow(b, q, 8, false)
		handled := make(chan struct{})
		w.Report = func(string, messages.Answer) { <-handled }
		put := func() {
			require.NoError(t, w.Enter(t.Context(), b.runtime, 1, true))
			w.Post(&messages.Envelope{ID: fmt.Sprint(w.intake.sent()), Body: []byte("x")})
		}
		put()
		put()
		flushed := make(chan error, 1)
		go func() { flushed <- w.Flush(t.Context(), b.runtime) }()
		synctest.Wait()
		require.NoError(t, w.Enter(t.Context(), b.runtime, 1, true)) // another's, who has yet to post it
		handled <- struct{}{}
		synctest.Wait()
		assert.Empty(t, flushed, "the second put is not handled")
		close(handled)
		require.NoError(t, <-flushed)

		w.Withdraw(1) // that one has seen that the broker closes
		assert.NoError(t, w.Flush(t.Context(), b.runtime))
	})
}

// A timer event finds the queue empty in the very turn that has lent its last message,
// which somebody has acked by its tag before it was on its way. The delivery reaches its
// consumer all the same, whose credit would else be spent for ever (SPEC C5).
func TestC5_ATimerEventKeepsADeliveryThatItsTurnHasYetToSend(t *testing.T) {
	var hold chan struct{}
	probe := func(point string) {
		if point == "queue jobs before *messages.Pause" {
			<-hold // until all that follows waits in the mailbox, for one turn
		}
	}
	within(t, messages.QueueConfig{}, probe, func(t *testing.T, b *Broker, q *Queue) {
		hold = make(chan struct{}) // of this bubble
		var worked []string
		consumeIn(t, b, func(_ context.Context, d *messages.Delivery) error { worked = append(worked, d.ID); return nil })
		q.Address.Send(&messages.Pause{})
		synctest.Wait()
		q.Address.Send(&messages.Resume{})
		q.Address.Send(&Put{Put: messages.Put{Envelope: messages.Envelope{ID: "a"}}})
		q.Address.Send(&messages.Peek{}) // a queue that is asked has handed over what it could
		q.Address.Send(&messages.Ack{Receipt: messages.Receipt{Queue: "jobs", Tag: 1}})
		q.Address.Send(&ring{})
		close(hold)
		putIn(t, b, q, "b")
		synctest.Wait()
		assert.Equal(t, []string{"a", "b"}, worked)
		s := statsOf(t, b, q)
		assert.EqualValues(t, 2, s.Acks, "%+v", s)
		assert.Zero(t, s.Leased)
	})
}

// A turn lends a consumer no more than its prefetch, and makes no larger room for the
// first of it, however many others the turn has to lend to.
func TestAConsumersFirstRoomIsNoLargerThanItsPrefetch(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		_, err := b.AskAt(t.Context(), "pause", q, &messages.Pause{})
		require.NoError(t, err)
		const many = 40
		var worked atomic.Int32
		var all []*Consumer
		for range many {
			all = append(all, consumeIn(t, b, func(context.Context, *messages.Delivery) error { worked.Add(1); return nil }))
		}
		for i := range many {
			putIn(t, b, q, strconv.Itoa(i))
		}
		_, err = b.AskAt(t.Context(), "resume", q, &messages.Resume{})
		require.NoError(t, err)
		synctest.Wait()
		assert.EqualValues(t, many, worked.Load())
		for _, k := range all {
			assert.LessOrEqual(t, len(q.work.consumers[k.Tag].room), burstsPerRoom, k.Tag)
		}
	})
}

// An idle consumer keeps none of the deliveries alive that it has looked at, neither the
// last ones nor those of a tick before, when there were more.
func TestAnIdleConsumerForgetsWhatItsTicksHaveLookedAt(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		const many = 60
		release := make(chan struct{})
		k := consumeIn(t, b, func(_ context.Context, d *messages.Delivery) error {
			if d.ID == "first" || d.ID == "last" {
				<-release
			}
			return nil
		})
		_, err := b.AskPool(t.Context(), "set prefetch", &messages.SetPrefetch{Tag: k.Tag, Prefetch: many})
		require.NoError(t, err)
		look := func(id string) { // at what there is while a handler runs
			putIn(t, b, q, id)
			if id == "first" {
				for i := 1; i < many; i++ { // each is a chunk of its own
					putIn(t, b, q, strconv.Itoa(i))
				}
			}
			time.Sleep(q.Config.AckTimeout / 2)
			release <- struct{}{}
			synctest.Wait()
		}
		look("first")
		for i := range 2 * many { // until the inbox has forgotten those that are over
			putIn(t, b, q, strconv.Itoa(many+i))
			synctest.Wait()
		}
		look("last")
		time.Sleep(q.Config.AckTimeout)
		synctest.Wait()
		require.GreaterOrEqual(t, cap(k.inner.scratch), many)
		for _, ch := range k.inner.scratch[:cap(k.inner.scratch)] {
			assert.Empty(t, ch.slots)
		}
	})
}

// A put that is withdrawn before it was sent stands for no other one: Flush still waits
// for those that were sent before it.
func TestA3_FlushCountsNoPutThatWasWithdrawn(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		w := NewWindow(b, q, 8, false)
		handled := make(chan struct{})
		w.Report = func(string, messages.Answer) { <-handled }
		require.NoError(t, w.Enter(t.Context(), b.runtime, 1, true))
		w.Post(&messages.Envelope{ID: "a"})
		flushed := make(chan error, 1)
		go func() { flushed <- w.Flush(t.Context(), b.runtime) }()
		synctest.Wait()
		require.NoError(t, w.Enter(t.Context(), b.runtime, 1, true)) // another's
		w.Withdraw(1)                                                // who has seen that the broker closes
		synctest.Wait()
		assert.Empty(t, flushed, "the put is not handled")
		close(handled)
		synctest.Wait()
		assert.Len(t, flushed, 1)
	})
}

// A publisher keeps room for its next burst up to a bound, however its bursts fall.
func TestAPublisherKeepsNoMoreRoomThanItsBound(t *testing.T) {
	var in intake
	post := func(sheaves int) {
		for range sheaves * sheafPuts {
			if in.post(&ledger.Put{}) {
				in.hasTold()
			}
		}
	}
	post(3)
	require.NotNil(t, in.next(), "the queue has these in its hands")
	post(2 * sheavesKept)
	for in.next() != nil {
	}
	kept := 0
	for s := in.free; s != nil; s = s.next {
		kept++
	}
	assert.Equal(t, in.kept, kept)
	assert.LessOrEqual(t, kept, sheavesKept)
	assert.Greater(t, kept, sheavesKept-giveBackEvery)
}

// A queue that was emptied keeps no body and no room for more than restAfter, whatever
// kind of deadline its leases have, and whether its messages were acked or purged.
func TestAQueueThatWasEmptiedComesToRest(t *testing.T) {
	configs := map[string]messages.QueueConfig{
		"default": {}, "no timeout": {NoTimeout: true}, "half a day": {AckTimeout: 12 * time.Hour},
	}
	for name, config := range configs {
		for _, purged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, purged %t", name, purged), func(t *testing.T) {
				within(t, config, nil, func(t *testing.T, b *Broker, q *Queue) {
					const many = 3*roomMax + 1
					var bodies []weak.Pointer[byte]
					put := func() {
						body := make([]byte, 1<<16)
						bodies = append(bodies, weak.Make(&body[0]))
						_, err := b.AskAt(t.Context(), "put", q, &Put{Put: messages.Put{
							Envelope: messages.Envelope{ID: strconv.Itoa(len(bodies)), Body: body}}, Given: true})
						require.NoError(t, err)
					}
					k := consumeIn(t, b, func(context.Context, *messages.Delivery) error { return nil })
					if purged {
						_, err := b.AskAt(t.Context(), "pause", q, &messages.Pause{})
						require.NoError(t, err)
					}
					for range many {
						put()
					}
					if purged {
						a, err := b.AskAt(t.Context(), "purge", q, &messages.Purge{})
						require.NoError(t, err)
						require.EqualValues(t, many, a.N)
						assert.NotNil(t, q.work.timer)
					}
					synctest.Wait()
					s := statsOf(t, b, q)
					require.Zero(t, s.Ready+s.Delayed+s.Leased)
					time.Sleep(restAfter + time.Second)
					synctest.Wait()
					assert.False(t, q.work.worn)
					assert.Nil(t, q.work.consumers[k.Tag].room)
					runtime.GC()
					for i, body := range bodies {
						require.Nil(t, body.Value(), "body %d", i)
					}
					// It does not ask again and again whether it is at rest.
					assert.Nil(t, q.work.timer)
				})
			})
		}
	}
}

// The ticks of a consumer may be hours apart: what one of them has looked at is not kept
// until the next.
func TestAConsumerKeepsNothingThatATickHasLookedAt(t *testing.T) {
	within(t, messages.QueueConfig{AckTimeout: 12 * time.Hour}, nil, func(t *testing.T, b *Broker, q *Queue) {
		config := messages.ConsumerConfig{HandlerTimeout: messages.Unlimited}.WithDefaults()
		_, err := b.AskPool(t.Context(), "consume", &StartConsumer{Queue: "jobs", Config: config,
			Handler: func(context.Context, *messages.Delivery) error {
				time.Sleep(5 * time.Hour) // a tick comes after 4
				return nil
			}})
		require.NoError(t, err)
		body := make([]byte, 1<<16)
		kept := weak.Make(&body[0])
		_, err = b.AskAt(t.Context(), "put", q, &Put{Put: messages.Put{Envelope: messages.Envelope{ID: "a", Body: body}}, Given: true})
		require.NoError(t, err)
		time.Sleep(5*time.Hour + restAfter + time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, statsOf(t, b, q).Acks)
		runtime.GC()
		assert.Nil(t, kept.Value())
	})
}

// A queue that was trimmed is trimmed again when the last who waited for its messages goes.
func TestAQueueComesToRestBehindItsLastConsumer(t *testing.T) {
	within(t, messages.QueueConfig{}, nil, func(t *testing.T, b *Broker, q *Queue) {
		k := consumeIn(t, b, func(context.Context, *messages.Delivery) error { return nil })
		putIn(t, b, q, "a")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.False(t, q.work.worn)
		_, err := b.AskPool(t.Context(), "cancel", &messages.Cancel{Tag: k.Tag})
		require.NoError(t, err)
		time.Sleep(restAfter + time.Second)
		synctest.Wait()
		assert.Nil(t, q.work.consumers)
		assert.Nil(t, q.work.timer)
	})
}
