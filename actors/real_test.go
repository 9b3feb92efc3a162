package actors_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
	"github.com/postroom/postroom/supervisor"
)

// eachExecutor runs fn on real goroutines, with both ways of running actors, and
// checks that none of ours is left (SPEC B5).
func eachExecutor(t *testing.T, fn func(t *testing.T, options ...postroom.Option)) {
	for name, options := range map[string][]postroom.Option{"goroutines": nil, "lanes": {postroom.WithLanes()}} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			fn(t, options...)
		})
	}
}

func openReal(t *testing.T, options ...postroom.Option) *postroom.Broker {
	t.Helper()
	b, err := postroom.Open(options...)
	require.NoError(t, err)
	return b
}

// patience is how long a test on real goroutines waits for an event that must come.
const patience = 20 * time.Second

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		t.Fatalf("waited too long for %s\n%s", what, buf[:runtime.Stack(buf, true)])
	}
	return v
}

func background(t *testing.T, fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

func TestB5_CloseLeavesNoGoroutine(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		b := openReal(t, options...)
		declare(t, b, "jobs", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "jobs", "#"))
		running, release := make(chan struct{}, 100), make(chan struct{})
		k := consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			running <- struct{}{}
			<-release
			return d.Ack(ctx)
		}, postroom.ConsumerConfig{Concurrency: 3, Prefetch: 10})
		crashed := make(chan struct{}, 8)
		declare(t, b, "crashes", postroom.QueueConfig{})
		consume(t, b, "crashes", func(context.Context, *postroom.Delivery) error {
			crashed <- struct{}{}
			panic("crash")
		}, postroom.ConsumerConfig{})
		heard := make(chan string, 100)
		_, err := b.Subscribe(ctx, "#", func(_ string, e *postroom.Event) { heard <- string(e.Body) })
		require.NoError(t, err)
		for i := range 10 {
			publish(t, b, "t", fmt.Sprint(i))
		}
		put(t, b, "crashes", "a", "b")
		for range 3 {
			await(t, "handlers", running)
		}
		await(t, "the crash", crashed)
		for i := range 10 {
			assert.Equal(t, fmt.Sprint(i), await(t, "an event", heard))
		}
		declare(t, b, "empty", postroom.QueueConfig{})
		get := background(t, func() error { _, err := b.Get(ctx, "empty", postroom.GetConfig{}); return err })
		drain := background(t, func() error { return b.Drain(ctx, "jobs") })
		closed := background(t, func() error { return b.Close(ctx) })
		err = await(t, "the get", get)
		assert.ErrorIs(t, err, postroom.ErrBrokerClosed, "hand-overs end at once")
		close(release)
		assert.NoError(t, await(t, "close", closed))
		// The workers may have got through all ten before they were told to end.
		if err := await(t, "drain", drain); err != nil {
			assert.ErrorIs(t, err, postroom.ErrBrokerClosed)
		}
		await(t, "the consumer", k.Done())
		assert.NoError(t, b.Close(ctx), "twice")
	})
}

func TestS1_GoexitInUserCodeIsACrash(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		n := &notices{}
		fast := postroom.WithRestarts(supervisor.Policy{Base: time.Millisecond, Cap: time.Millisecond})
		b := openReal(t, append(options, fast, postroom.WithListener(n.listen))...)
		declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 50 * time.Millisecond})
		done := make(chan int)
		var runs atomic.Int32
		consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			if runs.Add(1) == 1 {
				runtime.Goexit() // as t.FailNow does it
			}
			done <- d.Attempt
			return nil
		}, postroom.ConsumerConfig{})
		put(t, b, "jobs", "a")
		assert.Equal(t, 2, await(t, "the second attempt", done))

		heard := make(chan string)
		_, err := b.Subscribe(ctx, "t", func(_ string, e *postroom.Event) {
			if string(e.Body) == "1" {
				runtime.Goexit()
			}
			heard <- string(e.Body)
		})
		require.NoError(t, err)
		publish(t, b, "t", "1")
		publish(t, b, "t", "2")
		assert.Equal(t, "2", await(t, "the next event", heard))

		reported := make(chan string)
		p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{OnResult: func(r postroom.PutResult) {
			if r.ID == "first" {
				runtime.Goexit()
			}
			reported <- r.ID
		}})
		require.NoError(t, err)
		for _, id := range []string{"first", "second"} {
			_, err := p.Put(ctx, postroom.Envelope{ID: id})
			require.NoError(t, err)
		}
		assert.Equal(t, "second", await(t, "the next result", reported))
		go func() {
			for range done { // the two that were put last
			}
		}()
		require.NoError(t, b.Close(ctx))
		close(done)
		assert.Len(t, of[messages.HandlerCrashed](n), 1)
	})
}

// A listener that ends its goroutine restarts the actor that told it. A consumer's
// workers end with that, so the consumer ends too, and says so: it must not stay as
// one that takes messages and has nobody to work on them.
func TestS3_GoexitInTheListenerLeavesNoConsumerWithoutWorkers(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		fast := postroom.WithRestarts(supervisor.Policy{Base: time.Millisecond, Cap: time.Millisecond})
		b := openReal(t, append(options, fast, postroom.WithListener(func(n postroom.Notice) {
			if _, ok := n.(messages.WorkerRestarted); ok {
				runtime.Goexit()
			}
		}))...)
		declare(t, b, "jobs", postroom.QueueConfig{})
		k := consume(t, b, "jobs", func(context.Context, *postroom.Delivery) error { panic("crash") }, postroom.ConsumerConfig{})
		put(t, b, "jobs", "a")
		await(t, "the consumer's end", k.Done())
		assert.Error(t, k.Err())
		require.NoError(t, b.Close(ctx))
	})
}

// The crash comes behind the put's own result: that was told, and is told once.
func TestA3_ACrashBehindAPutsResultDoesNotCountItTwice(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		b := openReal(t, append(options, postroom.WithListener(func(n postroom.Notice) {
			if _, ok := n.(messages.Died); ok {
				runtime.Goexit()
			}
		}))...)
		declare(t, b, "jobs", postroom.QueueConfig{MaxMessages: 1, Overflow: postroom.DropOldest})
		results := make(chan string, 10)
		p, err := b.Publisher(ctx, "jobs", postroom.PublisherConfig{OnResult: func(r postroom.PutResult) {
			results <- fmt.Sprint(r.ID, " ", r.Err == nil)
		}})
		require.NoError(t, err)
		for _, id := range []string{"1", "2", "3"} {
			_, err := p.Put(ctx, postroom.Envelope{ID: id})
			require.NoError(t, err)
			require.NoError(t, p.Flush(ctx))
		}
		for _, want := range []string{"1 true", "2 true", "3 true"} {
			assert.Equal(t, want, await(t, "a result", results))
		}
		assert.Equal(t, 1, stats(t, b, "jobs").Ready)
		require.NoError(t, b.Close(ctx))
	})
}

// The same for the router: what it takes with it is gone for all to see, and the
// next publication works.
func TestS3_GoexitInTheListenerEndsSubscriptionsAndNotTopics(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		b := openReal(t, append(options, postroom.WithListener(func(n postroom.Notice) {
			if _, ok := n.(messages.EventDropped); ok {
				runtime.Goexit()
			}
		}))...)
		declare(t, b, "jobs", postroom.QueueConfig{})
		require.NoError(t, b.Bind(ctx, "jobs", "t"))
		release := make(chan struct{})
		sub, err := b.Subscribe(ctx, "t", func(string, *postroom.Event) { <-release })
		require.NoError(t, err)
		var lost error
		for range router.BufferMax + 2 { // one may be in its hands
			if _, lost = b.Publish(ctx, "t", postroom.Envelope{}); lost != nil {
				break
			}
		}
		unknown(t, lost)
		close(release)
		await(t, "the subscription's end", sub.Done())
		f, err := b.Stats(ctx)
		require.NoError(t, err)
		assert.Zero(t, f.Subscriptions)
		assert.Equal(t, postroom.PublishResult{Accepted: 1}, publish(t, b, "t", ""))
		require.NoError(t, b.Close(ctx))
	})
}

// Many goroutines, every kind of failure, real time: nothing is lost, and the figures
// add up. Under -race it is also about the slots that consumers and workers share.
func TestG1_NothingIsLostUnderLoadAndCrashes(t *testing.T) {
	eachExecutor(t, func(t *testing.T, options ...postroom.Option) {
		var crashes atomic.Int32
		probe := func(string) {
			if crashes.Add(1)%97 == 0 {
				panic("a bug of ours")
			}
		}
		fast := postroom.WithRestarts(supervisor.Policy{Base: time.Millisecond, Cap: 2 * time.Millisecond, MaxFailures: postroom.Unlimited})
		b := openReal(t, append(options, fast, postroom.WithProbe(probe))...)
		for {
			if b.DeclareQueue(ctx, "jobs", postroom.QueueConfig{AckTimeout: 40 * time.Millisecond, MaxAttempts: postroom.Unlimited,
				BackoffBase: time.Millisecond, BackoffCap: time.Millisecond}) == nil {
				break
			}
		}
		const producers, each = 4, 150
		var handled sync.Map
		var left atomic.Int32
		left.Store(producers * each)
		all := make(chan struct{})
		var n atomic.Int32
		handler := func(_ context.Context, d *postroom.Delivery) error {
			switch n.Add(1) % 23 {
			case 3:
				panic("a bug of yours")
			case 7:
				return errWork
			case 11:
				return d.Release(ctx) // nil would ack it, had the release been lost to a crash
			}
			if _, twice := handled.LoadOrStore(d.ID, true); !twice && left.Add(-1) == 0 {
				close(all)
			}
			return nil
		}
		consumed := 0
		for consumed < 3 {
			if _, err := b.Consume(ctx, "jobs", handler, postroom.ConsumerConfig{Concurrency: 2, Prefetch: 8}); err == nil {
				consumed++
			}
		}
		for p := range producers {
			go func() {
				for i := range each {
					e := postroom.Envelope{ID: fmt.Sprint(p, "-", i)}
					for { // as the hint of an unknown outcome says: again, with the same id
						_, err := b.Put(ctx, "jobs", e)
						if err == nil || !errors.Is(err, postroom.ErrOutcomeUnknown) {
							assert.NoError(t, err)
							break
						}
					}
				}
			}()
		}
		await(t, "every message", all)
		require.NoError(t, b.Close(ctx))
	})
}

// itsOwn is a goroutine that protoactor starts at a system's first dead letter, and
// never ends.
var itsOwn = goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1")

func quietSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
}

func TestB6_TwoBrokersInOneActorSystem(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), itsOwn)
	system := quietSystem()
	one, err := postroom.Mount(system, postroom.WithName("one"))
	require.NoError(t, err)
	two, err := postroom.Mount(system, postroom.WithName("two"))
	require.NoError(t, err)
	_, err = postroom.Mount(system, postroom.WithName("two"))
	assert.Error(t, err, "the name is taken")
	got := make(chan string, 2)
	for name, b := range map[string]*postroom.Broker{"one": one, "two": two} {
		declare(t, b, "jobs", postroom.QueueConfig{})
		consume(t, b, "jobs", func(_ context.Context, d *postroom.Delivery) error {
			got <- name + " " + d.ID
			return nil
		}, postroom.ConsumerConfig{})
	}
	put(t, one, "jobs", "a")
	assert.Equal(t, "one a", await(t, "one", got))
	require.NoError(t, one.Close(ctx))
	put(t, two, "jobs", "b")
	assert.Equal(t, "two b", await(t, "two", got))
	require.NoError(t, two.Close(ctx))
	again, err := postroom.Mount(system, postroom.WithName("two"))
	require.NoError(t, err, "the name is free again")
	require.NoError(t, again.Close(ctx))
	system.Shutdown()
}

// An embedder's actor of the plainest kind, on protoactor's own mailbox.
func TestC7_APlainProtoactorActorConsumes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), itsOwn)
	system := quietSystem()
	b, err := postroom.Mount(system)
	require.NoError(t, err)
	declare(t, b, "jobs", postroom.QueueConfig{})
	jobs := queuePID(t, b, "jobs")
	tags, acked, told := make(chan any, 1), make(chan *messages.Answer, 1), make(chan error, 1)
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return receiver(func(c actor.Context) {
			switch m := c.Message().(type) {
			case *actor.Started:
				c.Request(b.PID(), &messages.Consume{Queue: "jobs"})
			case *messages.Deliver:
				c.Request(jobs, &messages.Ack{Receipt: m.Delivery.Receipt()})
			case *messages.Answer:
				if tag, ok := m.Value.(string); ok {
					tags <- tag
				} else {
					acked <- m
				}
			case *messages.ConsumerEnded:
				told <- m.Reason
			}
		})
	}))
	assert.Equal(t, "ctag-1", await(t, "the tag", tags))
	put(t, b, "jobs", "a")
	assert.NoError(t, await(t, "the ack", acked).Err)
	assert.EqualValues(t, 1, stats(t, b, "jobs").Acks)
	require.NoError(t, b.Close(ctx))
	assert.ErrorIs(t, await(t, "the end", told), postroom.ErrBrokerClosed)
	_ = system.Root.StopFuture(pid).Wait()
	system.Shutdown()
}

type receiver func(actor.Context)

func (r receiver) Receive(c actor.Context) { r(c) }
