package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// Where each figure of the stats is reported. A field without a metric fails.
var (
	queueMetricOf = map[string]string{
		"Ready": "postroom_ready", "Delayed": "postroom_delayed", "Leased": "postroom_inflight",
		"DeadLetters": "postroom_dead_letters", "Consumers": "postroom_consumers", "Bytes": "postroom_bytes",
		"DeadLetterBytes": "postroom_dead_letter_bytes", "OldestAge": "postroom_oldest_age_seconds",
		"Paused": "postroom_paused", "Draining": "postroom_draining", "Quarantined": "postroom_quarantined",
		"Puts": "postroom_puts_total", "RedrivenIn": "postroom_redriven_total",
		"Deliveries": "postroom_deliveries_total", "Redelivered": "postroom_redelivered_total",
		"Acks": "postroom_acks_total", "Nacks": "postroom_nacks_total", "Expiries": "postroom_expiries_total",
		"Rejections": "postroom_rejections_total", "DeadBy": "postroom_dead_lettered_total",
		"Purged": "postroom_purged_total", "Dropped": "postroom_dropped_total",
		"RedrivenOut": "postroom_redriven_out_total", "Discarded": "postroom_discarded_total",
		"Trimmed": "postroom_trimmed_total", "Touches": "postroom_touches_total", "StaleBy": "postroom_stale_total",
		"Duplicates": "postroom_duplicates_total", "Refusals": "postroom_refusals_total",
		"Interruptions": "postroom_interruptions_total", "ClaimsDropped": "postroom_claims_dropped_total",
		"LostNotices": "postroom_lost_announcements_total",
	}
	brokerMetricOf = map[string]string{
		"Queues": "postroom_queues", "Subscriptions": "postroom_subscriptions", "Bindings": "postroom_bindings",
		"BindingDrops": "postroom_binding_drops_total", "SubscriptionDrops": "postroom_subscription_drops_total",
	}
)

// scraped returns every sample of a scrape, as "name{label=value}" → value.
func scraped(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c), "register the collector")
	families, err := registry.Gather()
	require.NoError(t, err, "gather")
	samples := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			value := m.GetGauge().GetValue()
			if m.GetCounter() != nil {
				value = m.GetCounter().GetValue()
			}
			samples[name] = value
		}
	}
	return samples
}

// expected is what the samples of one queue must be, from its stats by reflection.
func expected(t *testing.T, want map[string]float64, label string, metricOf map[string]string, stats reflect.Value) {
	t.Helper()
	for i := range stats.NumField() {
		field, value := stats.Type().Field(i), stats.Field(i)
		if field.Anonymous {
			expected(t, want, label, metricOf, value)
			continue
		}
		if field.Name == "Queue" || field.Name == "Incarnation" {
			continue
		}
		name, ok := metricOf[field.Name]
		require.True(t, ok, "no metric for %s.%s", stats.Type(), field.Name)
		switch v := value.Interface().(type) {
		case time.Duration:
			want[name+label] = v.Seconds()
		case bool:
			want[name+label] = map[bool]float64{true: 1}[v]
		case [messages.Reasons]uint64:
			for r := postroom.Rejected; int(r) < messages.Reasons; r++ {
				want[strings.TrimSuffix(name+label, "}")+",reason="+r.String()+"}"] = float64(v[r])
			}
		case [messages.Verbs]uint64:
			for verb := range v {
				want[strings.TrimSuffix(name+label, "}")+",verb="+postroom.Verb(verb).String()+"}"] = float64(v[verb])
			}
		default:
			if value.CanUint() {
				want[name+label] = float64(value.Uint())
			} else {
				want[name+label] = float64(value.Int())
			}
		}
	}
}

// inBubble runs fn with a broker on the real runtime and the bubble's clock.
func inBubble(t *testing.T, fn func(t *testing.T, b *postroom.Broker), options ...postroom.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := postroom.Open(options...)
		require.NoError(t, err, "open inside the bubble")
		defer func() { assert.NoError(t, b.Close(context.Background()), "close inside the bubble") }()
		fn(t, b)
	})
}

// busyBroker does something of everything, so that most figures are not zero.
func busyBroker(t *testing.T, b *postroom.Broker) {
	t.Helper()
	ctx := context.Background()
	declare(t, b, "jobs", postroom.QueueConfig{AckTimeout: 10 * time.Second, MaxAttempts: 2, MaxMessages: 10, DeadLetterLimit: 2, NoJitter: true})
	declare(t, b, "dotted.name", postroom.QueueConfig{MaxMessages: 1})
	require.NoError(t, b.Bind(ctx, "dotted.name", "#"))
	_, err := b.Subscribe(ctx, "$sys.#", func(string, *postroom.Event) {})
	require.NoError(t, err)
	for i := range 10 {
		put(t, b, "jobs", message(fmt.Sprint("job-", i)))
	}
	_, err = b.Put(ctx, "jobs", message("one too many"))
	require.ErrorIs(t, err, postroom.ErrQueueFull)
	put(t, b, "jobs", message("job-9"))
	require.NoError(t, get(t, b, "jobs").Ack(ctx))
	require.NoError(t, get(t, b, "jobs").Release(ctx))
	for range 3 {
		require.NoError(t, get(t, b, "jobs").Reject(ctx, errors.New("no")))
	}
	_, err = get(t, b, "jobs").Touch(ctx)
	require.NoError(t, err)
	late := get(t, b, "jobs")
	time.Sleep(11 * time.Second)
	require.ErrorIs(t, late.Ack(ctx), postroom.ErrStale)
	require.NoError(t, get(t, b, "jobs").Nack(ctx, errors.New("not now")))
	get(t, b, "jobs")
	put(t, b, "jobs", postroom.Envelope{ID: "later", Delay: time.Hour})
	_, err = b.Redrive(ctx, "jobs", postroom.RedriveConfig{Max: 1})
	require.NoError(t, err)
	_, err = b.Consume(ctx, "dotted.name", func(context.Context, *postroom.Delivery) error { return nil }, postroom.ConsumerConfig{})
	require.NoError(t, err)
	require.NoError(t, b.Pause(ctx, "jobs"))
	time.Sleep(3 * time.Second)
}

func TestO1_CollectorReportsExactlyTheStats(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		busyBroker(t, b)
		want := map[string]float64{"postroom_up": 1, "postroom_unanswered_queues": 0}
		for _, queue := range b.Queues() {
			s := statsOf(t, b, queue)
			conserved(t, s, "of the busy broker")
			expected(t, want, "{queue="+queue+"}", queueMetricOf, reflect.ValueOf(s))
		}
		s, err := b.Stats(context.Background())
		require.NoError(t, err)
		expected(t, want, "", brokerMetricOf, reflect.ValueOf(s))
		assert.Equal(t, want, scraped(t, postroom.NewCollector(b, postroom.CollectorOptions{})), "samples of a scrape against the stats")
		nonzero := 0
		for _, v := range want {
			if v != 0 {
				nonzero++
			}
		}
		assert.Greater(t, nonzero, 30, "the scenario should move most figures")
	})
}

func TestCollectorPassesTheLinter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		busyBroker(t, b)
		problems, err := testutil.CollectAndLint(postroom.NewCollector(b, postroom.CollectorOptions{}))
		require.NoError(t, err)
		for _, p := range problems {
			t.Errorf("lint of %s: %s", p.Metric, p.Text)
		}
	})
}

// The table in the doc comment is the reference: it must name each metric, once,
// with its kind.
func TestCollectorsMetricsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(postroom_\w+) +(gauge|counter) +\S`).FindAllStringSubmatch(string(source), -1) {
		require.NotContains(t, documented, m[1], "documented twice")
		documented[m[1]] = m[2]
	}
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		registry := prometheus.NewRegistry()
		registry.MustRegister(postroom.NewCollector(b, postroom.CollectorOptions{}))
		families, err := registry.Gather()
		require.NoError(t, err)
		reported := map[string]string{}
		for _, f := range families {
			reported[f.GetName()] = strings.ToLower(f.GetType().String())
		}
		assert.Equal(t, reported, documented, "metrics reported (want) against the table in NewCollector's comment (got)")
	})
}

func TestCollectorOfAClosedBrokerSaysDownAndNothingElse(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "q", postroom.QueueConfig{})
		c := postroom.NewCollector(b, postroom.CollectorOptions{})
		require.NoError(t, b.Close(context.Background()))
		assert.Equal(t, map[string]float64{"postroom_up": 0}, scraped(t, c), "a scrape after Close")
	})
}

func TestCollectorWaitsForAHangingQueueNoLongerThanItsTimeout(t *testing.T) {
	var release chan struct{} // of the bubble: waiting on another one would stop its clock
	hangs := postroom.WithListener(func(n postroom.Notice) {
		if a, ok := n.(messages.Accepted); ok && a.Queue == "hangs" {
			<-release
		}
	})
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		release = make(chan struct{})
		for _, queue := range []string{"a", "hangs", "z"} {
			declare(t, b, queue, postroom.QueueConfig{})
		}
		p, err := b.Publisher(context.Background(), "hangs", postroom.PublisherConfig{})
		require.NoError(t, err)
		_, err = p.Put(context.Background(), message("m"))
		require.NoError(t, err)
		synctest.Wait()

		began := time.Now()
		got := scraped(t, postroom.NewCollector(b, postroom.CollectorOptions{Timeout: 4 * time.Second}))
		assert.LessOrEqual(t, time.Since(began), 4*time.Second, "time a scrape took with Timeout 4 s")
		assert.EqualValues(t, 1, got["postroom_unanswered_queues"], "unanswered queues")
		assert.Contains(t, got, "postroom_ready{queue=a}")
		assert.NotContains(t, got, "postroom_ready{queue=hangs}")
		assert.Contains(t, got, "postroom_ready{queue=z}", "a queue behind the one that hangs")
		close(release)
	}, hangs)
}

func TestCollectorReportsOnlyTheQueuesPicked(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		declare(t, b, "a", postroom.QueueConfig{})
		declare(t, b, "b", postroom.QueueConfig{})
		got := scraped(t, postroom.NewCollector(b, postroom.CollectorOptions{Queues: func(q string) bool { return q == "b" }}))
		assert.NotContains(t, got, "postroom_ready{queue=a}")
		assert.Contains(t, got, "postroom_ready{queue=b}")
		assert.EqualValues(t, 2, got["postroom_queues"], "postroom_queues counts all")
	})
}

func TestB6_TwoBrokersFitInOneRegistry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *postroom.Broker) {
		other, err := postroom.Open()
		require.NoError(t, err)
		defer other.Close(context.Background())
		registry := prometheus.NewRegistry()
		for name, broker := range map[string]*postroom.Broker{"a": b, "b": other} {
			wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"broker": name}, registry)
			require.NoError(t, wrapped.Register(postroom.NewCollector(broker, postroom.CollectorOptions{})), "broker %s", name)
		}
		n, err := testutil.GatherAndCount(registry, "postroom_up")
		require.NoError(t, err)
		assert.Equal(t, 2, n, "samples of postroom_up")
	})
}
