package router_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/internal/actorkit"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/router"
	"github.com/postroom/postroom/simulation"
)

// office is a router in a simulated world, with actors that stand in for queues.
type office struct {
	*simulation.Runtime
	t      *testing.T
	system *actorkit.System
	router *actorkit.Address
	told   []messages.Notice
	probe  func(point string)
	gone   map[string]bool // queues that are not there any more
}

func inOffice(t *testing.T, seeds int, fn func(o *office)) {
	t.Helper()
	for seed := uint64(1); seed <= uint64(seeds) && !t.Failed(); seed++ {
		rt := simulation.NewRuntime(seed)
		o := &office{Runtime: rt, t: t, system: actorkit.NewSystem(rt, nil), gone: map[string]bool{}}
		ids := 0
		r := router.NewTopicRouter(router.Config{
			Runtime:  rt,
			Listener: func(n messages.Notice) { o.told = append(o.told, n) },
			NewID:    func() string { ids++; return fmt.Sprint("made-", ids) },
			Probe: func(point string) {
				if o.probe != nil {
					o.probe(point)
				}
			},
			Lives: func(queue string, _ *actorkit.Address) bool { return !o.gone[queue] },
		})
		rt.Go("main", func() {
			address, err := o.system.Spawn(actorkit.Spec{Name: "router", New: r.New})
			require.NoError(t, err)
			o.router = address
			fn(o)
		})
		if err := rt.Run(simulation.DefaultVirtualTime, simulation.DefaultStepsMax); err != nil {
			t.Errorf("%v", err)
		}
		rt.Close()
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}
}

// ask sends a command and waits for its answer.
func (o *office) ask(cmd messages.Command) messages.Answer {
	o.t.Helper()
	cell := o.NewCell()
	cmd.AnswerTo(cell.Ref())
	o.router.Send(cmd)
	a, err := cell.Wait(context.Background())
	require.NoError(o.t, err)
	return a
}

// queue is an actor that takes copies and answers them when it is told to.
type queue struct {
	address *actorkit.Address
	answer  func(c *router.Copy)
	got     []*router.Copy
}

func (q *queue) Receive(_ *actorkit.Context, msg any) {
	if c, ok := msg.(*router.Copy); ok {
		q.got = append(q.got, c)
		if q.answer != nil {
			q.answer(c)
		}
	}
}

func (o *office) queue(name, pattern string, answer func(c *router.Copy)) *queue {
	o.t.Helper()
	q := &queue{answer: answer}
	a, err := o.system.Spawn(actorkit.Spec{Name: name, New: func() actorkit.Actor { return q }})
	require.NoError(o.t, err)
	q.address = a
	require.NoError(o.t, o.ask(&router.Bind{Queue: name, To: a, Pattern: pattern}).Err)
	return q
}

func accept(c *router.Copy) { c.Accept(false) }

func (o *office) publish(topic string) messages.PublishResult {
	o.t.Helper()
	a := o.ask(&messages.Publish{Envelope: messages.Envelope{Topic: topic}})
	require.NoError(o.t, a.Err)
	return a.Value.(messages.PublishResult)
}

func TestT5_ThePublisherIsAnsweredWhenTheLastQueueHas(t *testing.T) {
	inOffice(t, 10, func(o *office) {
		o.queue("takes", "t", accept)
		o.queue("knows", "t", func(c *router.Copy) { c.Accept(true) })
		o.queue("refuses", "t", func(c *router.Copy) { c.Refuse() })
		late := o.queue("late", "t", nil)
		o.queue("other", "u", accept)
		answered := false
		o.Go("publisher", func() {
			assert.Equal(t, messages.PublishResult{Accepted: 2, Duplicate: 1, Refused: 1}, o.publish("t"))
			answered = true
		})
		o.Idle()
		assert.False(t, answered, "one queue has not")
		require.Len(t, late.got, 1)
		late.got[0].Accept(false)
		o.Idle()
		assert.True(t, answered)
		assert.Equal(t, messages.PublishResult{}, o.publish("nobody"))
		f := o.ask(&router.Stats{Partial: messages.BrokerStats{Queues: 7}}).Value.(messages.BrokerStats)
		assert.Equal(t, messages.BrokerStats{Queues: 7, Bindings: 5, BindingDrops: 2}, f)
	})
}

// A queue that crashes behind its answer fails the copy once more; that must not
// answer for another queue.
func TestT5_ACopyIsAnsweredOnce(t *testing.T) {
	inOffice(t, 10, func(o *office) {
		o.queue("twice", "t", func(c *router.Copy) { c.Accept(false); c.Fail(actorkit.ErrCrashed); c.Accept(true) })
		late := o.queue("late", "t", nil)
		answered := false
		o.Go("publisher", func() {
			assert.Equal(t, messages.PublishResult{Accepted: 1, Refused: 1}, o.publish("t"))
			answered = true
		})
		o.Idle()
		require.False(t, answered)
		late.got[0].Refuse()
		o.Idle()
		assert.True(t, answered)
	})
}

func TestR7_ACopyEntersNoQueueOfItsHistory(t *testing.T) {
	inOffice(t, 3, func(o *office) {
		died, next := o.queue("died", "t", accept), o.queue("next", "t", accept)
		announced := 0
		o.router.Send(&router.Announce{Envelope: messages.Envelope{ID: "m", Topic: "t"}, Given: true, Deaths: 1,
			History: []messages.Death{{Queue: "died"}}, Then: []func(){func() { announced++ }}})
		o.Idle()
		assert.Empty(t, died.got)
		require.Len(t, next.got, 1)
		assert.True(t, next.got[0].Given)
		assert.Equal(t, 1, announced)
	})
}

func TestS3_AnAnnouncementIsLostOnceAtMostAndItsWaiterAnswered(t *testing.T) {
	for when, lost := range map[string]int{"before": 1, "after": 0} {
		inOffice(t, 5, func(o *office) {
			q := o.queue("q", "#", accept)
			o.probe = func(point string) {
				if point == "router "+when+" *router.Announce" {
					panic("boom")
				}
			}
			counted, waiters := 0, 0
			o.router.Send(&router.Announce{Envelope: messages.Envelope{Topic: "$sys.x"},
				Lost: func() { counted++ }, Then: []func(){func() { waiters++ }}})
			o.Idle()
			assert.Equal(t, lost, counted)
			assert.Equal(t, 1, waiters)
			assert.Len(t, q.got, 1-lost)
			assert.Len(t, o.told, 1, "the listener heard of the crash")
		})
	}
}

// The queue's address is new with each incarnation, the name is not.
func TestT7_ASuccessorsBindingsAreItsOwn(t *testing.T) {
	inOffice(t, 5, func(o *office) {
		old := o.queue("q", "t", accept)
		// Declared again and bound before the old one's Forget has come, as after a
		// crash of the router on that.
		fresh := &queue{answer: accept}
		a, err := o.system.Spawn(actorkit.Spec{Name: "q2", New: func() actorkit.Actor { return fresh }})
		require.NoError(t, err)
		require.NoError(t, o.ask(&router.Bind{Queue: "q", To: a, Pattern: "u"}).Err)
		require.NoError(t, o.ask(&router.Forget{Queue: "q", To: old.address}).Err)
		assert.Zero(t, o.publish("t").Accepted)
		assert.Equal(t, 1, o.publish("u").Accepted)
		assert.Len(t, fresh.got, 1)

		// A Bind that was overtaken by the deletion.
		o.gone["q"] = true
		require.NoError(t, o.ask(&router.Forget{Queue: "q", To: a}).Err)
		assert.ErrorIs(t, o.ask(&router.Bind{Queue: "q", To: a, Pattern: "u"}).Err, messages.ErrNotFound)
		assert.Zero(t, o.publish("u").Accepted)
	})
}

func TestT2_SubscriptionsAreNumberedAndForgotten(t *testing.T) {
	inOffice(t, 3, func(o *office) {
		heard := []string{}
		for i := 1; i <= 3; i++ {
			a := o.ask(&router.Subscribe{Pattern: "t", Handle: func(sub string, e *messages.Event) { heard = append(heard, sub+e.ID) }})
			require.NoError(t, a.Err)
			assert.Equal(t, fmt.Sprint("sub-", i), a.Value.(router.Subscribed).Name)
		}
		require.NoError(t, o.ask(&messages.Unsubscribe{Subscription: "sub-2"}).Err)
		assert.ErrorIs(t, o.ask(&messages.Unsubscribe{Subscription: "sub-2"}).Err, messages.ErrNotFound)
		assert.Equal(t, 2, o.publish("t").Subscribers)
		o.Idle()
		assert.ElementsMatch(t, []string{"sub-1made-1", "sub-3made-1"}, heard)
		bad := o.ask(&router.Subscribe{Pattern: "", Handle: func(string, *messages.Event) {}})
		assert.Error(t, bad.Err)
	})
}
