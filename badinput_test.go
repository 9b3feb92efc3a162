package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
	"github.com/postroom/postroom/supervisor"
)

// bench is what the calls are made on: a broker with something of everything, open
// or already closed.
type bench struct {
	broker       *postroom.Broker
	publisher    *postroom.Publisher
	session      *postroom.Session
	typed        *postroom.Typed[int]
	consumer     *postroom.Consumer
	subscription *postroom.Subscription
	leased       *postroom.Delivery // of jobs, tag 1
	acked        *postroom.Delivery // of jobs, tag 2
}

var smallLimits = postroom.Limits{IDBytes: 20, Headers: 3, HeaderBytes: 100, BodyBytes: 1000}

func newBench(t *testing.T, w *simulation.World) *bench {
	ctx := context.Background()
	b := w.MustOpen(postroom.WithLimits(smallLimits))
	x := &bench{broker: b}
	declare(t, b, "jobs", postroom.QueueConfig{})
	declare(t, b, "full", postroom.QueueConfig{MaxMessages: 1})
	declare(t, b, "draining", postroom.QueueConfig{})
	declare(t, b, "work", postroom.QueueConfig{})
	for _, id := range []string{"leased", "acked", "dead", "ready"} {
		put(t, b, "jobs", message(id))
	}
	put(t, b, "full", message("full"))
	x.leased, x.acked = get(t, b, "jobs"), get(t, b, "jobs")
	require.NoError(t, x.acked.Ack(ctx))
	require.NoError(t, get(t, b, "jobs").Reject(ctx, errors.New("no")))
	require.NoError(t, b.Drain(ctx, "draining"))
	require.NoError(t, b.Bind(ctx, "work", "news.*"))
	var err error
	x.publisher, err = b.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: 1})
	require.NoError(t, err)
	x.session, err = b.Session("front desk")
	require.NoError(t, err)
	x.typed, err = postroom.NewTyped[int](b, "jobs", nil)
	require.NoError(t, err)
	x.subscription, err = b.Subscribe(ctx, "news.*", func(string, *postroom.Event) {})
	require.NoError(t, err)
	takes, _ := keeper()
	x.consumer = consume(t, b, "work", takes, postroom.ConsumerConfig{Concurrency: 2})
	w.Idle()
	return x
}

// snapshot is everything that the stats know of a broker.
type snapshot struct {
	Broker postroom.BrokerStats
	Queues map[string]postroom.QueueStats
	Next   []postroom.Delivery
}

func snapshotOf(t *testing.T, b *postroom.Broker) snapshot {
	ctx := context.Background()
	s := snapshot{Queues: map[string]postroom.QueueStats{}}
	var err error
	s.Broker, err = b.Stats(ctx)
	require.NoError(t, err)
	for _, queue := range b.Queues() {
		s.Queues[queue] = statsOf(t, b, queue)
	}
	s.Next, err = b.Peek(ctx, "jobs", 10)
	require.NoError(t, err)
	return s
}

// row is one bad call.
type row struct {
	what string
	call func(ctx context.Context, x *bench) error
	// want is the reason that the error wraps, and says a part of its text.
	want error
	says string
	// counted is what the call may change all the same: a counter.
	counted func(before *snapshot)
}

// entry is one exported function or method.
type entry struct {
	// nothing says why it has no bad input.
	nothing string
	// call is a good call. It is made with an ended context and on a closed broker.
	call func(ctx context.Context, x *bench) error
	// queue is a call with the name of a queue. It is made with unknown and bad names.
	queue func(ctx context.Context, x *bench, queue string) error
	rows  []row
	// endedIsFine and closedIsFine: it needs no answer then.
	endedIsFine, closedIsFine bool
}

func handler(context.Context, *postroom.Delivery) error { return nil }

// badEnvelopes is what is wrong with a message, whatever way it is put.
func badEnvelopes(call func(ctx context.Context, x *bench, e postroom.Envelope) error) (rows []row) {
	for _, bad := range []struct {
		what string
		e    postroom.Envelope
		want error
		says string
	}{
		{"over-long id", postroom.Envelope{ID: strings.Repeat("i", 21)}, postroom.ErrLimit, "id bytes 21, limit 20"},
		{"oversized body", postroom.Envelope{Body: make([]byte, 1001)}, postroom.ErrLimit, "body bytes 1001, limit 1000"},
		{"too many headers", postroom.Envelope{Headers: map[string]string{"a": "", "b": "", "c": "", "d": ""}}, postroom.ErrLimit, "headers 4, limit 3"},
		{"oversized header", postroom.Envelope{Headers: map[string]string{"a": strings.Repeat("v", 100)}}, postroom.ErrLimit, "header bytes 101, limit 100"},
		{"oversized extra", postroom.Envelope{Extra: make([]byte, 101)}, postroom.ErrLimit, "header bytes 101, limit 100"},
		{"oversized content type", postroom.Envelope{ContentType: strings.Repeat("t", 101)}, postroom.ErrLimit, "header bytes 101, limit 100"},
		{"priority 10", postroom.Envelope{Priority: 10}, postroom.ErrArgument, "Priority must be 0 to 9"},
		{"negative priority", postroom.Envelope{Priority: -1}, postroom.ErrArgument, "Priority must be 0 to 9"},
		{"negative delay", postroom.Envelope{Delay: -1}, postroom.ErrArgument, "Delay must not be negative"},
	} {
		rows = append(rows, row{what: bad.what, want: bad.want, says: bad.says, call: func(ctx context.Context, x *bench) error {
			return call(ctx, x, bad.e)
		}})
	}
	return rows
}

// badTags is what is wrong with a settle by tag.
func badTags(verb postroom.Verb, call func(ctx context.Context, x *bench, tag uint64) error) []row {
	late := func(before *snapshot) { countStale(before, verb) }
	with := func(tag uint64) func(context.Context, *bench) error {
		return func(ctx context.Context, x *bench) error { return call(ctx, x, tag) }
	}
	return []row{
		{what: "tag 0", call: with(0), want: postroom.ErrArgument, says: "has no tag: tags begin with 1"},
		{what: "tag never issued", call: with(99), want: postroom.ErrStale, says: "tag 99 of queue \"jobs\": stale, never issued", counted: late},
		{what: "tag settled already", call: with(2), want: postroom.ErrStale, says: "tag 2 of queue \"jobs\": stale, over: acked", counted: late},
		{what: "largest tag", call: with(math.MaxUint64), want: postroom.ErrStale, says: "never issued", counted: late},
	}
}

func countStale(before *snapshot, verb postroom.Verb) {
	s := before.Queues["jobs"]
	s.StaleBy[verb]++
	before.Queues["jobs"] = s
}

func countRefusal(queue string) func(before *snapshot) {
	return func(before *snapshot) {
		s := before.Queues[queue]
		s.Refusals++
		before.Queues[queue] = s
	}
}

// badPatterns is what is wrong with a pattern or topic.
func badPatterns(what string, call func(ctx context.Context, x *bench, pattern string) error) []row {
	with := func(pattern string) func(context.Context, *bench) error {
		return func(ctx context.Context, x *bench) error { return call(ctx, x, pattern) }
	}
	return []row{
		{what: "empty " + what, call: with(""), want: postroom.ErrArgument, says: what + " must not be empty"},
		{what: "256 bytes of " + what, call: with(strings.Repeat("a", 256)), want: postroom.ErrLimit, says: what + " bytes 256, limit 255"},
	}
}

// refusals is what the queue itself refuses.
func refusals(call func(ctx context.Context, x *bench, queue string, e postroom.Envelope) error) []row {
	with := func(queue string, e postroom.Envelope) func(context.Context, *bench) error {
		return func(ctx context.Context, x *bench) error { return call(ctx, x, queue, e) }
	}
	return []row{
		{what: "deadline past", call: with("jobs", postroom.Envelope{ID: "late", ExpiresAt: simulation.Epoch}), want: postroom.ErrExpired, says: `put "late" into queue "jobs"`, counted: countRefusal("jobs")},
		{what: "id of another body", call: with("jobs", postroom.Envelope{ID: "ready", Body: []byte("other")}), want: postroom.ErrIDReused, says: `put "ready" into queue "jobs"`, counted: countRefusal("jobs")},
		{what: "full queue", call: with("full", message("more")), want: postroom.ErrQueueFull, says: `queue "full" is full: 1 of 1 messages`, counted: countRefusal("full")},
		{what: "draining queue", call: with("draining", message("more")), want: postroom.ErrDraining, says: `put "more" into queue "draining"`, counted: countRefusal("draining")},
	}
}

// badConfigs is every field of a configuration with a value that it cannot have.
func badConfigs[C any](call func(ctx context.Context, x *bench, c C) error, values map[string]any) (rows []row) {
	for _, field := range slices.Sorted(maps.Keys(values)) {
		var config C
		reflect.ValueOf(&config).Elem().FieldByName(field).Set(reflect.ValueOf(values[field]))
		rows = append(rows, row{what: "bad " + field, want: postroom.ErrArgument, says: field, call: func(ctx context.Context, x *bench) error {
			return call(ctx, x, config)
		}})
	}
	return rows
}

// opened closes what should not have been opened.
func opened(b *postroom.Broker, err error) error {
	if err == nil {
		_ = b.Close(context.Background())
	}
	return err
}

func opening(option postroom.Option) func(context.Context, *bench) error {
	return func(context.Context, *bench) error { return opened(postroom.Open(option)) }
}

// panics turns the panic of a call into its error.
func panics(call func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	call()
	return nil
}

func settle(verb postroom.Verb, change func(*postroom.Settlement)) func(context.Context, *bench) error {
	return func(ctx context.Context, x *bench) error {
		s := postroom.Settlement{Receipt: x.leased.Receipt(), Verb: verb}
		change(&s)
		_, err := x.broker.Settle(ctx, s)
		_, batched := x.broker.SettleBatch(ctx, []postroom.Settlement{s})
		if !errors.Is(batched, postroom.ErrArgument) {
			return fmt.Errorf("SettleBatch says %v where Settle says %w", batched, err)
		}
		return err
	}
}

func one(results []postroom.SettleResult, err error) error {
	if err == nil {
		err = results[0].Err
	}
	return err
}

var entries = map[string]entry{
	// ---- opening ----
	"Open": {rows: []row{{what: "nil option", want: postroom.ErrArgument, says: "option must not be nil", call: opening(nil)}}},
	"Mount": {rows: []row{
		{what: "nil system", want: postroom.ErrArgument, says: "mount: system must not be nil", call: func(context.Context, *bench) error { return opened(postroom.Mount(nil)) }},
		{what: "nil option", want: postroom.ErrArgument, says: "option must not be nil", call: func(_ context.Context, x *bench) error { return opened(postroom.Mount(x.broker.ActorSystem(), nil)) }},
		{what: "name taken", want: postroom.ErrArgument, says: `mount: name "postroom" is taken in this system`, call: func(_ context.Context, x *bench) error {
			first, err := postroom.Mount(x.broker.ActorSystem())
			if err != nil {
				return err
			}
			defer first.Close(context.Background())
			return opened(postroom.Mount(x.broker.ActorSystem()))
		}},
	}},
	"WithName": {rows: []row{
		{what: "empty", want: postroom.ErrArgument, says: "open: name must not be empty", call: opening(postroom.WithName(""))},
		{what: "over-long", want: postroom.ErrLimit, says: "name bytes 201, limit 200", call: opening(postroom.WithName(strings.Repeat("n", 201)))},
		{what: "slash", want: postroom.ErrArgument, says: "open: name must be printable ASCII without a slash", call: opening(postroom.WithName("a/b"))},
	}},
	"WithLimits": {rows: []row{
		{what: "negative", want: postroom.ErrArgument, says: "Limits", call: opening(postroom.WithLimits(postroom.Limits{IDBytes: -2}))},
		{what: "negative body", want: postroom.ErrArgument, says: "Limits", call: opening(postroom.WithLimits(postroom.Limits{BodyBytes: -2}))},
	}},
	"WithListener": {rows: []row{{what: "nil", want: postroom.ErrArgument, says: "listener must not be nil", call: opening(postroom.WithListener(nil))}}},
	"WithRestarts": {rows: []row{
		{what: "negative base", want: postroom.ErrArgument, says: "Base must not be negative", call: opening(postroom.WithRestarts(supervisor.Policy{Base: -1}))},
		{what: "negative failures", want: postroom.ErrArgument, says: "MaxFailures", call: opening(postroom.WithRestarts(supervisor.Policy{MaxFailures: -2}))},
	}},
	"WithLanes":   {nothing: "takes nothing"},
	"WithRuntime": {nothing: "nil means the real one; its type cannot be named outside of the module"},
	"WithProbe":   {nothing: "nil means none"},
	"WithLedger":  {nothing: "nil means the broker's own; for package simulation"},
	"SlogListener": {rows: []row{{what: "nil logger", want: postroom.ErrArgument, says: "logger must not be nil", call: func(context.Context, *bench) error {
		return panics(func() { postroom.SlogListener(nil, postroom.SlogOptions{}) })
	}}}},
	"NewCollector": {rows: []row{
		{what: "nil broker", want: postroom.ErrArgument, says: "broker must not be nil", call: func(context.Context, *bench) error {
			return panics(func() { postroom.NewCollector(nil, postroom.CollectorOptions{}) })
		}},
		{what: "negative timeout", want: postroom.ErrArgument, says: "Timeout must not be negative", call: func(_ context.Context, x *bench) error {
			return panics(func() { postroom.NewCollector(x.broker, postroom.CollectorOptions{Timeout: -1}) })
		}},
	}},
	"Hint":               {nothing: "any error will do"},
	"Permanent":          {nothing: "any error will do, nil stays nil"},
	"Broker.Close":       {nothing: "ending the context early is part of its contract, and twice is harmless"},
	"Broker.PID":         {nothing: "takes nothing"},
	"Broker.ActorSystem": {nothing: "takes nothing"},
	"Broker.Now":         {nothing: "takes nothing"},
	"Broker.Sleep":       {nothing: "any duration will do; no command is sent"},
	"Broker.WithTimeout": {nothing: "any duration will do; no command is sent"},
	"Broker.Queues":      {nothing: "takes nothing"},

	// ---- queues ----
	"Broker.DeclareQueue": {
		call: func(ctx context.Context, x *bench) error {
			return x.broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{})
		},
		rows: append([]row{
			{what: "empty name", want: postroom.ErrArgument, says: "declare queue: queue must not be empty", call: declaring("", postroom.QueueConfig{})},
			{what: "over-long name", want: postroom.ErrLimit, says: "queue name bytes 201, limit 200", call: declaring(strings.Repeat("q", 201), postroom.QueueConfig{})},
			{what: "slash", want: postroom.ErrArgument, says: "printable ASCII without a slash", call: declaring("a/b", postroom.QueueConfig{})},
			{what: "control byte", want: postroom.ErrArgument, says: "printable ASCII", call: declaring("a\n", postroom.QueueConfig{})},
			{what: "other settings", want: postroom.ErrConfigConflict, says: "other settings in MaxAttempts", call: declaring("jobs", postroom.QueueConfig{MaxAttempts: 9})},
			{what: "system topic for letters", want: postroom.ErrArgument, says: "DeadLetterTopic", call: declaring("new", postroom.QueueConfig{DeadLetterTopic: "$sys.x"})},
			{what: "retry budget not a number", want: postroom.ErrArgument, says: "RetryBudget", call: declaring("new", postroom.QueueConfig{RetryBudget: postroom.RetryBudget{Ratio: math.NaN()}})},
		}, badConfigs(func(ctx context.Context, x *bench, c postroom.QueueConfig) error {
			return x.broker.DeclareQueue(ctx, "new", c)
		}, map[string]any{
			"AckTimeout": time.Duration(-1), "MaxLease": time.Duration(-1), "MaxAttempts": -2,
			"BackoffBase": time.Duration(-1), "BackoffCap": time.Duration(-1), "MaxMessages": -2, "MaxBytes": int64(-2),
			"Overflow": messages.Overflow(2), "InboxLimit": -2, "TTL": time.Duration(-1), "DedupWindow": time.Duration(-1),
			"DedupLimit": -2, "DeadLetterLimit": -2, "DeadLetterBytes": int64(-2), "DeadLetterAlarm": -1,
			"DeadLetterTopic": strings.Repeat("t", 256), "MaxAge": time.Duration(-1), "RetryBudget": postroom.RetryBudget{Ratio: -1},
		})...),
	},
	"Broker.DeleteQueue": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.DeleteQueue(ctx, queue)
			return err
		},
		rows: []row{
			{what: "unknown condition", want: postroom.ErrArgument, says: "condition must be IfEmpty or IfUnused", call: deleting("jobs", 9)},
			{what: "not empty", want: postroom.ErrInUse, says: "2 messages, 0 consumers", call: deleting("jobs", postroom.IfEmpty)},
			{what: "not unused", want: postroom.ErrInUse, says: "0 messages, 1 consumers", call: deleting("work", postroom.IfUnused)},
		},
	},
	"Broker.Pause":  {queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Pause(ctx, queue) }},
	"Broker.Resume": {queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Resume(ctx, queue) }},
	"Broker.Drain":  {queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Drain(ctx, queue) }},
	"Broker.Purge": {queue: func(ctx context.Context, x *bench, queue string) error {
		_, err := x.broker.Purge(ctx, queue)
		return err
	}},
	"Broker.Peek": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Peek(ctx, queue, 1)
			return err
		},
		rows: []row{{what: "negative n", want: postroom.ErrArgument, says: "n must not be negative", call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.Peek(ctx, "jobs", -1)
			return err
		}}},
	},
	"Broker.QueueStats": {queue: func(ctx context.Context, x *bench, queue string) error {
		_, err := x.broker.QueueStats(ctx, queue)
		return err
	}},
	"Broker.QueuePID": {endedIsFine: true, queue: func(_ context.Context, x *bench, queue string) error {
		_, err := x.broker.QueuePID(queue)
		return err
	}},
	"Broker.Stats": {call: func(ctx context.Context, x *bench) error {
		_, err := x.broker.Stats(ctx)
		return err
	}},

	// ---- puts ----
	"Broker.Put": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Put(ctx, queue, message("m"))
			return err
		},
		rows: append(badEnvelopes(func(ctx context.Context, x *bench, e postroom.Envelope) error {
			_, err := x.broker.Put(ctx, "jobs", e)
			return err
		}), refusals(func(ctx context.Context, x *bench, queue string, e postroom.Envelope) error {
			r, err := x.broker.Put(ctx, queue, e)
			if r.ID != e.ID || !errors.Is(r.Err, err) {
				return errors.New("the result does not say what the error does")
			}
			return err
		})...),
	},
	"Broker.PutBatch": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.PutBatch(ctx, queue, []postroom.Envelope{message("m")})
			return err
		},
		rows: slices.Concat([]row{
			{what: "empty batch", want: postroom.ErrArgument, says: "batch must not be empty", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.PutBatch(ctx, "jobs", nil)
				return err
			}},
			{what: "which message is bad", want: postroom.ErrArgument, says: "batch[1]: Priority", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.PutBatch(ctx, "jobs", []postroom.Envelope{message("fine"), {Priority: 10}})
				return err
			}},
		}, badEnvelopes(func(ctx context.Context, x *bench, e postroom.Envelope) error {
			_, err := x.broker.PutBatch(ctx, "jobs", []postroom.Envelope{message("fine"), e})
			return err
		}), refusals(func(ctx context.Context, x *bench, queue string, e postroom.Envelope) error {
			results, err := x.broker.PutBatch(ctx, queue, []postroom.Envelope{e})
			if err == nil {
				err = results[0].Err
			}
			return err
		})),
	},
	"Broker.Publisher": {
		endedIsFine: true, // without OnResult nothing is waited for
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Publisher(ctx, queue, postroom.PublisherConfig{})
			return err
		},
		rows: []row{{what: "negative window", want: postroom.ErrArgument, says: "Window must not be negative", call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.Publisher(ctx, "jobs", postroom.PublisherConfig{Window: -1})
			return err
		}}},
	},
	"Publisher.Put": {
		call: func(ctx context.Context, x *bench) error {
			_, err := x.publisher.Put(ctx, message("m"))
			return err
		},
		rows: append(badEnvelopes(func(ctx context.Context, x *bench, e postroom.Envelope) error {
			_, err := x.publisher.Put(ctx, e)
			return err
		}), refusals(func(ctx context.Context, x *bench, queue string, e postroom.Envelope) error {
			p, err := x.broker.Publisher(ctx, queue, postroom.PublisherConfig{})
			if err != nil {
				return err
			}
			if _, err := p.Put(ctx, e); err != nil {
				return err
			}
			return p.Flush(ctx)
		})...),
	},
	"Publisher.Flush": {endedIsFine: true, closedIsFine: true, call: func(ctx context.Context, x *bench) error { return x.publisher.Flush(ctx) }},
	"NewTyped": {endedIsFine: true,
		queue: func(_ context.Context, x *bench, queue string) error {
			_, err := postroom.NewTyped[int](x.broker, queue, nil)
			return err
		},
		rows: []row{{what: "nil broker", want: postroom.ErrArgument, says: "broker must not be nil", call: func(context.Context, *bench) error {
			_, err := postroom.NewTyped[int](nil, "jobs", nil)
			return err
		}}},
	},
	"Typed.Put": {
		call: func(ctx context.Context, x *bench) error {
			_, err := x.typed.Put(ctx, "m", 1)
			return err
		},
		rows: []row{
			{what: "over-long id", want: postroom.ErrLimit, says: "id bytes 21, limit 20", call: func(ctx context.Context, x *bench) error {
				_, err := x.typed.Put(ctx, strings.Repeat("i", 21), 1)
				return err
			}},
			{what: "value that cannot be encoded", want: postroom.ErrArgument, says: "value cannot be encoded: json", call: func(ctx context.Context, x *bench) error {
				typed, err := postroom.NewTyped[func()](x.broker, "jobs", nil)
				if err != nil {
					return err
				}
				_, err = typed.Put(ctx, "m", func() {})
				return err
			}},
		},
	},
	"Typed.Consume": {
		call: func(ctx context.Context, x *bench) error {
			_, err := x.typed.Consume(ctx, func(context.Context, int, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{})
			return err
		},
		rows: []row{
			{what: "nil handler", want: postroom.ErrArgument, says: "handler must not be nil", call: func(ctx context.Context, x *bench) error {
				_, err := x.typed.Consume(ctx, nil, postroom.ConsumerConfig{})
				return err
			}},
			{what: "bad config", want: postroom.ErrArgument, says: "Concurrency", call: func(ctx context.Context, x *bench) error {
				_, err := x.typed.Consume(ctx, func(context.Context, int, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{Concurrency: -1})
				return err
			}},
		},
	},
	"Typed.Get": {
		call: func(ctx context.Context, x *bench) error {
			_, _, err := x.typed.Get(ctx, postroom.GetConfig{})
			return err
		},
		rows: []row{{what: "negative AckTimeout", want: postroom.ErrArgument, says: "AckTimeout", call: func(ctx context.Context, x *bench) error {
			_, _, err := x.typed.Get(ctx, postroom.GetConfig{AckTimeout: -1})
			return err
		}}},
	},
	"JSON.Encode": {nothing: "the errors are those of encoding/json"},
	"JSON.Decode": {nothing: "the errors are those of encoding/json"},

	// ---- consumers and gets ----
	"Broker.Consume": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Consume(ctx, queue, handler, postroom.ConsumerConfig{})
			return err
		},
		rows: append([]row{
			{what: "nil handler", want: postroom.ErrArgument, says: "handler must not be nil", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.Consume(ctx, "jobs", nil, postroom.ConsumerConfig{})
				return err
			}},
			{what: "prefetch below concurrency", want: postroom.ErrArgument, says: "Prefetch must be at least Concurrency", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.Consume(ctx, "jobs", handler, postroom.ConsumerConfig{Concurrency: 3, Prefetch: 2})
				return err
			}},
		}, badConfigs(func(ctx context.Context, x *bench, c postroom.ConsumerConfig) error {
			_, err := x.broker.Consume(ctx, "jobs", handler, c)
			return err
		}, map[string]any{
			"Concurrency": -1, "Prefetch": -1, "AckTimeout": time.Duration(-1), "HandlerTimeout": time.Duration(-2),
		})...),
	},
	"Consumer.Cancel": {call: func(ctx context.Context, x *bench) error { return x.consumer.Cancel(ctx) }},
	"Consumer.Done":   {nothing: "takes nothing"},
	"Consumer.Err":    {nothing: "takes nothing"},
	"Broker.Cancel": {
		call: func(ctx context.Context, x *bench) error { return x.broker.Cancel(ctx, "ctag-1") },
		rows: []row{
			{what: "empty tag", want: postroom.ErrNotFound, says: `no consumer ""`, call: func(ctx context.Context, x *bench) error { return x.broker.Cancel(ctx, "") }},
			{what: "unknown tag", want: postroom.ErrNotFound, says: `cancel: no consumer "ctag-9"`, call: func(ctx context.Context, x *bench) error { return x.broker.Cancel(ctx, "ctag-9") }},
		},
	},
	"Broker.SetPrefetch": {
		call: func(ctx context.Context, x *bench) error { return x.broker.SetPrefetch(ctx, "ctag-1", 4) },
		rows: []row{
			{what: "negative", want: postroom.ErrArgument, says: "prefetch must not be negative", call: func(ctx context.Context, x *bench) error { return x.broker.SetPrefetch(ctx, "ctag-1", -1) }},
			{what: "below concurrency", want: postroom.ErrArgument, says: "prefetch must be 0 or at least Concurrency", call: func(ctx context.Context, x *bench) error { return x.broker.SetPrefetch(ctx, "ctag-1", 1) }},
			{what: "unknown tag", want: postroom.ErrNotFound, says: `no consumer "ctag-9"`, call: func(ctx context.Context, x *bench) error { return x.broker.SetPrefetch(ctx, "ctag-9", 1) }},
		},
	},
	"Broker.Get": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Get(ctx, queue, postroom.GetConfig{})
			return err
		},
		rows: []row{
			{what: "negative AckTimeout", want: postroom.ErrArgument, says: "AckTimeout must not be negative", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.Get(ctx, "jobs", postroom.GetConfig{AckTimeout: -1})
				return err
			}},
			{what: "NoTimeout without a session", want: postroom.ErrArgument, says: "NoTimeout needs a Session", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.Get(ctx, "jobs", postroom.GetConfig{NoTimeout: true})
				return err
			}},
			{what: "nothing there", want: postroom.ErrEmpty, says: "queue empty", call: func(ctx context.Context, x *bench) error {
				_, err := x.broker.Get(ctx, "draining", postroom.GetConfig{NoWait: true})
				return err
			}},
		},
	},
	"Broker.Session": {rows: []row{
		{what: "empty name", want: postroom.ErrArgument, says: "session: name must not be empty", call: func(_ context.Context, x *bench) error {
			_, err := x.broker.Session("")
			return err
		}},
		{what: "over-long name", want: postroom.ErrLimit, says: "name bytes 201, limit 200", call: func(_ context.Context, x *bench) error {
			_, err := x.broker.Session(strings.Repeat("s", 201))
			return err
		}},
	}},
	"Session.Get": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.session.Get(ctx, queue, postroom.GetConfig{})
			return err
		},
		rows: []row{{what: "negative AckTimeout", want: postroom.ErrArgument, says: "AckTimeout must not be negative", call: func(ctx context.Context, x *bench) error {
			_, err := x.session.Get(ctx, "jobs", postroom.GetConfig{AckTimeout: -1})
			return err
		}}},
	},
	"Session.Close": {endedIsFine: true, closedIsFine: true, call: func(ctx context.Context, x *bench) error { return x.session.Close(ctx) }},

	// ---- settles ----
	"Broker.Ack": {
		queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Ack(ctx, queue, 1) },
		rows:  badTags(postroom.VerbAck, func(ctx context.Context, x *bench, tag uint64) error { return x.broker.Ack(ctx, "jobs", tag) }),
	},
	"Broker.Nack": {
		queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Nack(ctx, queue, 1, nil) },
		rows: badTags(postroom.VerbNack, func(ctx context.Context, x *bench, tag uint64) error {
			return x.broker.Nack(ctx, "jobs", tag, nil)
		}),
	},
	"Broker.Reject": {
		queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Reject(ctx, queue, 1, nil) },
		rows: badTags(postroom.VerbReject, func(ctx context.Context, x *bench, tag uint64) error {
			return x.broker.Reject(ctx, "jobs", tag, nil)
		}),
	},
	"Broker.Touch": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Touch(ctx, queue, 1)
			return err
		},
		rows: badTags(postroom.VerbTouch, func(ctx context.Context, x *bench, tag uint64) error {
			_, err := x.broker.Touch(ctx, "jobs", tag)
			return err
		}),
	},
	"Broker.Settle": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Settle(ctx, postroom.Settlement{Receipt: postroom.Receipt{Queue: queue, Tag: 1}})
			return err
		},
		rows: []row{
			{what: "unknown verb", want: postroom.ErrArgument, says: "Verb is unknown", call: settle(99, func(*postroom.Settlement) {})},
			{what: "negative delay", want: postroom.ErrArgument, says: "nack_in: Delay must not be negative", call: settle(postroom.VerbNackIn, func(s *postroom.Settlement) { s.Delay = -1 })},
			{what: "negative extension", want: postroom.ErrArgument, says: "touch: Delay must not be negative", call: settle(postroom.VerbTouch, func(s *postroom.Settlement) { s.Delay = -1 })},
			{what: "no tag", want: postroom.ErrArgument, says: "ack: Receipt has no tag", call: settle(postroom.VerbAck, func(s *postroom.Settlement) { s.Receipt.Tag = 0 })},
			{what: "another incarnation", want: postroom.ErrStale, says: "never issued", counted: func(before *snapshot) { countStale(before, postroom.VerbAck) }, call: func(ctx context.Context, x *bench) error {
				r := x.leased.Receipt()
				r.Incarnation += 7
				_, err := x.broker.Settle(ctx, postroom.Settlement{Receipt: r})
				return err
			}},
		},
	},
	"Broker.SettleBatch": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			return one(x.broker.SettleBatch(ctx, []postroom.Settlement{{Receipt: postroom.Receipt{Queue: queue, Tag: 1}}}))
		},
		rows: []row{
			{what: "empty batch", want: postroom.ErrArgument, says: "settlements must not be empty", call: func(ctx context.Context, x *bench) error {
				return one(x.broker.SettleBatch(ctx, nil))
			}},
			{what: "which settlement is bad", want: postroom.ErrArgument, says: "settlements[1]: ", call: func(ctx context.Context, x *bench) error {
				return one(x.broker.SettleBatch(ctx, []postroom.Settlement{{Receipt: x.leased.Receipt()}, {}}))
			}},
			{what: "stale item", want: postroom.ErrStale, says: "over: acked", counted: func(before *snapshot) { countStale(before, postroom.VerbAck) }, call: func(ctx context.Context, x *bench) error {
				return one(x.broker.SettleBatch(ctx, []postroom.Settlement{{Receipt: x.acked.Receipt()}}))
			}},
		},
	},
	"Delivery.Ack":     settlesOf(postroom.VerbAck, func(ctx context.Context, d *postroom.Delivery) error { return d.Ack(ctx) }),
	"Delivery.Nack":    settlesOf(postroom.VerbNack, func(ctx context.Context, d *postroom.Delivery) error { return d.Nack(ctx, nil) }),
	"Delivery.Reject":  settlesOf(postroom.VerbReject, func(ctx context.Context, d *postroom.Delivery) error { return d.Reject(ctx, nil) }),
	"Delivery.Release": settlesOf(postroom.VerbRelease, func(ctx context.Context, d *postroom.Delivery) error { return d.Release(ctx) }),
	"Delivery.Touch": settlesOf(postroom.VerbTouch, func(ctx context.Context, d *postroom.Delivery) error {
		_, err := d.Touch(ctx)
		return err
	}),
	"Delivery.NackIn": settlesOf(postroom.VerbNackIn, func(ctx context.Context, d *postroom.Delivery) error { return d.NackIn(ctx, time.Second, nil) },
		row{what: "negative delay", want: postroom.ErrArgument, says: "nack: delay must not be negative", call: func(ctx context.Context, x *bench) error {
			return x.leased.NackIn(ctx, -1, nil)
		}}),
	"Delivery.TouchFor": settlesOf(postroom.VerbTouch, func(ctx context.Context, d *postroom.Delivery) error {
		_, err := d.TouchFor(ctx, time.Second)
		return err
	}, row{what: "no extension", want: postroom.ErrArgument, says: "touch: extension must be more than zero", call: func(ctx context.Context, x *bench) error {
		_, err := x.leased.TouchFor(ctx, 0)
		return err
	}}),
	"Delivery.Queue":       {nothing: "takes nothing"},
	"Delivery.Receipt":     {nothing: "takes nothing"},
	"Delivery.Redelivered": {nothing: "takes nothing"},
	"Delivery.Envelope":    {nothing: "takes nothing"},

	// ---- topics ----
	"Broker.Publish": {
		call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.Publish(ctx, "news.today", message("m"))
			return err
		},
		rows: slices.Concat([]row{{what: "system topic", want: postroom.ErrArgument, says: "topic must not begin with $sys.", call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.Publish(ctx, "$sys.dead.jobs", message("m"))
			return err
		}}}, badPatterns("topic", func(ctx context.Context, x *bench, topic string) error {
			_, err := x.broker.Publish(ctx, topic, message("m"))
			return err
		}), badEnvelopes(func(ctx context.Context, x *bench, e postroom.Envelope) error {
			_, err := x.broker.Publish(ctx, "news.today", e)
			return err
		})),
	},
	"Broker.Subscribe": {
		call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.Subscribe(ctx, "#", func(string, *postroom.Event) {})
			return err
		},
		rows: append([]row{{what: "nil fn", want: postroom.ErrArgument, says: "fn must not be nil", call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.Subscribe(ctx, "#", nil)
			return err
		}}}, badPatterns("pattern", func(ctx context.Context, x *bench, pattern string) error {
			_, err := x.broker.Subscribe(ctx, pattern, func(string, *postroom.Event) {})
			return err
		})...),
	},
	"Subscription.Done":        {nothing: "takes nothing"},
	"Subscription.Err":         {nothing: "takes nothing"},
	"Subscription.Unsubscribe": {call: func(ctx context.Context, x *bench) error { return x.subscription.Unsubscribe(ctx) }},
	"Broker.Unsubscribe": {
		call: func(ctx context.Context, x *bench) error { return x.broker.Unsubscribe(ctx, "sub-1") },
		rows: []row{{what: "unknown name", want: postroom.ErrNotFound, says: `unsubscribe: no subscription "sub-9"`, call: func(ctx context.Context, x *bench) error {
			return x.broker.Unsubscribe(ctx, "sub-9")
		}}},
	},
	"Broker.Bind": {
		queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Bind(ctx, queue, "#") },
		rows: badPatterns("pattern", func(ctx context.Context, x *bench, pattern string) error {
			return x.broker.Bind(ctx, "jobs", pattern)
		}),
	},
	"Broker.Unbind": {
		queue: func(ctx context.Context, x *bench, queue string) error { return x.broker.Unbind(ctx, queue, "news.*") },
		rows: []row{{what: "no such binding", want: postroom.ErrNotFound, says: `unbind: no binding "jobs #"`, call: func(ctx context.Context, x *bench) error {
			return x.broker.Unbind(ctx, "jobs", "#")
		}}},
	},

	// ---- dead letters ----
	"Broker.DeadLetters": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.DeadLetters(ctx, queue, 0, 1)
			return err
		},
		rows: []row{{what: "negative n", want: postroom.ErrArgument, says: "n must not be negative", call: func(ctx context.Context, x *bench) error {
			_, err := x.broker.DeadLetters(ctx, "jobs", 0, -1)
			return err
		}}},
	},
	"Broker.Discard": {queue: func(ctx context.Context, x *bench, queue string) error {
		_, err := x.broker.Discard(ctx, queue, "dead")
		return err
	}},
	"Broker.Redrive": {
		queue: func(ctx context.Context, x *bench, queue string) error {
			_, err := x.broker.Redrive(ctx, queue, postroom.RedriveConfig{})
			return err
		},
		rows: []row{
			{what: "unknown target", want: postroom.ErrNotFound, says: `redrive: no queue "nowhere"`, call: redriving(postroom.RedriveConfig{To: "nowhere"})},
			{what: "negative rate", want: postroom.ErrArgument, says: "rate must not be negative", call: redriving(postroom.RedriveConfig{Rate: -1})},
			{what: "rate not a number", want: postroom.ErrArgument, says: "rate", call: redriving(postroom.RedriveConfig{Rate: math.NaN()})},
			{what: "negative max", want: postroom.ErrArgument, says: "max must not be negative", call: redriving(postroom.RedriveConfig{Max: -1})},
		},
	},
}

func declaring(queue string, c postroom.QueueConfig) func(context.Context, *bench) error {
	return func(ctx context.Context, x *bench) error { return x.broker.DeclareQueue(ctx, queue, c) }
}

func deleting(queue string, condition postroom.DeleteCondition) func(context.Context, *bench) error {
	return func(ctx context.Context, x *bench) error {
		_, err := x.broker.DeleteQueue(ctx, queue, condition)
		return err
	}
}

func redriving(c postroom.RedriveConfig) func(context.Context, *bench) error {
	return func(ctx context.Context, x *bench) error {
		_, err := x.broker.Redrive(ctx, "jobs", c)
		return err
	}
}

// settlesOf is the entry of a delivery's verb.
func settlesOf(verb postroom.Verb, call func(context.Context, *postroom.Delivery) error, more ...row) entry {
	return entry{
		call: func(ctx context.Context, x *bench) error { return call(ctx, x.leased) },
		rows: append(more,
			row{what: "settled already", want: postroom.ErrStale, says: "tag 2 of queue \"jobs\": stale, over: acked", counted: func(before *snapshot) { countStale(before, verb) },
				call: func(ctx context.Context, x *bench) error { return call(ctx, x.acked) }},
			row{what: "delivery from nowhere", want: messages.ErrNoDoor, says: "no door",
				call: func(ctx context.Context, _ *bench) error { return call(ctx, &postroom.Delivery{Tag: 1}) }},
			row{what: "deleted queue", want: postroom.ErrNotFound, says: `no queue "gone"`, call: func(ctx context.Context, x *bench) error {
				d := *x.leased
				from := *d.From
				from.Queue = "gone"
				d.From = &from
				return call(ctx, &d)
			}}),
	}
}

// bareReasons are the Err… values that come without a struct around them.
var bareReasons = []error{postroom.ErrBrokerClosed, postroom.ErrEmpty, postroom.ErrBusy, messages.ErrNoDoor}

// checkError says what is wrong with an error, whatever the call.
func checkError(t *testing.T, err, want error, says string) {
	t.Helper()
	if !assert.ErrorIs(t, err, want) {
		return
	}
	assert.Contains(t, err.Error(), says, "what the error says")
	assert.NotEmpty(t, postroom.Hint(err), "the hint of %q, a %T", err, err)
	if slices.Contains(bareReasons, err) {
		return
	}
	var h messages.Hinter
	assert.ErrorAs(t, err, &h, "%q should be a typed error", err)
}

// TestBadInputIsRefusedAndChangesNothing makes every call of the table on one broker,
// which must be the same after each of them as before.
func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	run(t, 1, func(ctx context.Context, w *simulation.World) {
		x := newBench(t, w)
		closed := newBench(t, w)
		require.NoError(t, closed.broker.Close(ctx))
		why := errors.New("no time left")
		ended, end := context.WithCancelCause(ctx)
		end(why)

		check := func(name, what string, call func() error, want error, says string, counted func(*snapshot)) {
			before := snapshotOf(t, x.broker)
			err := call()
			w.Idle()
			if counted != nil {
				counted(&before)
			}
			after := snapshotOf(t, x.broker)
			t.Run(name+"/"+what, func(t *testing.T) {
				checkError(t, err, want, says)
				assert.Equal(t, before, after, "stats after the call against those before")
			})
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			e := entries[name]
			for _, r := range e.rows {
				check(name, r.what, func() error { return r.call(ctx, x) }, r.want, r.says, r.counted)
			}
			call := e.call
			if e.queue != nil {
				call = func(ctx context.Context, x *bench) error { return e.queue(ctx, x, "jobs") }
				for _, queue := range []string{"", "nowhere", "a/b", strings.Repeat("q", 201)} {
					check(name, "unknown queue "+queue[:min(len(queue), 10)], func() error { return e.queue(ctx, x, queue) },
						postroom.ErrNotFound, "no queue \""+queue+"\"", nil)
				}
			}
			if call == nil {
				continue
			}
			if !e.endedIsFine {
				check(name, "ended context", func() error { return call(ended, x) }, postroom.ErrNotSent, why.Error(), nil)
				check(name, "ended context, its cause", func() error { return call(ended, x) }, why, "not sent", nil)
			}
			if !e.closedIsFine {
				check(name, "closed broker", func() error { return call(ctx, closed) }, postroom.ErrBrokerClosed, "closed", nil)
			} else {
				assert.NoError(t, call(ctx, closed), "%s on a closed broker", name)
			}
		}
	})
}

// TestBadInputTableIsComplete: what the door exports is in the table, and nothing
// else is.
func TestBadInputTableIsComplete(t *testing.T) {
	exported := exportedCalls(t)
	require.Greater(t, len(exported), 60)
	for _, name := range exported {
		e, ok := entries[name]
		if !assert.True(t, ok, "%s is exported and has no entry in badinput_test.go: say what its bad input is", name) {
			continue
		}
		assert.True(t, e.nothing != "" || e.call != nil || e.queue != nil || len(e.rows) > 0, "the entry of %s says nothing", name)
	}
	for name := range entries {
		assert.Contains(t, exported, name, "the table has an entry for what is not exported")
	}
	for _, config := range []struct {
		entry string
		of    reflect.Type
	}{{"Broker.DeclareQueue", reflect.TypeFor[postroom.QueueConfig]()}, {"Broker.Consume", reflect.TypeFor[postroom.ConsumerConfig]()}} {
		for i := range config.of.NumField() {
			field := config.of.Field(i)
			if field.Type.Kind() == reflect.Bool || field.Name == "Name" {
				continue // no value of it is bad
			}
			assert.True(t, slices.ContainsFunc(entries[config.entry].rows, func(r row) bool { return r.what == "bad "+field.Name }),
				"%s has no row for a bad %s", config.entry, field.Name)
		}
	}
}

// exportedCalls reads the door's source for its functions and methods, and adds by
// reflection the methods that it has from elsewhere.
func exportedCalls(t *testing.T) (names []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				receiver := receiverName(f.Recv.List[0].Type)
				if !ast.IsExported(receiver) {
					continue
				}
				name = receiver + "." + name
			}
			names = append(names, name)
		}
	}
	for receiver, of := range map[string]reflect.Type{
		"Consumer": reflect.TypeFor[*postroom.Consumer](), "Delivery": reflect.TypeFor[*postroom.Delivery](),
	} {
		for i := range of.NumMethod() {
			if name := receiver + "." + of.Method(i).Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
