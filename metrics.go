package postroom

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postroom/postroom/messages"
)

// DefaultScrapeTimeout is how long one scrape waits for the queues when
// CollectorOptions does not say: half of the shortest scrape timeout in common use.
const DefaultScrapeTimeout = 5 * time.Second

// CollectorOptions says how a collector scrapes. The zero value is sensible.
type CollectorOptions struct {
	// Timeout bounds one whole scrape, however many queues there are. Zero: 5 s. Each
	// queue may use half of what is left of it, so that one that hangs does not hide
	// the others; it is missing then, and counted in postroom_unanswered_queues.
	Timeout time.Duration
	// Queues picks the queues to report, by name, so that a hundred thousand queues
	// need not become millions of series. It is called on the scraping goroutine.
	// nil: all.
	Queues func(queue string) bool
}

// NewCollector returns a Prometheus collector of a broker's figures. A scrape asks
// each queue for its [QueueStats], in the order of their names, and the broker for
// its [BrokerStats]; between scrapes it costs nothing. Register it with a registry
// of your choice: nothing is global. Two brokers in one registry are told apart with
// prometheus.WrapRegistererWith(prometheus.Labels{"broker": "a"}, registry).
//
// Of each queue, with the label queue and, where named, one more:
//
//	postroom_ready                     gauge    messages that could be handed over now
//	postroom_delayed                   gauge    messages that wait for their instant
//	postroom_inflight                  gauge    messages leased to somebody
//	postroom_dead_letters              gauge    dead letters kept
//	postroom_consumers                 gauge    consumers attached
//	postroom_bytes                     gauge    bytes of ready, delayed and leased messages
//	postroom_dead_letter_bytes         gauge    bytes of the dead letters kept
//	postroom_oldest_age_seconds        gauge    age of the oldest message since first ready
//	postroom_paused                    gauge    1 while paused
//	postroom_draining                  gauge    1 while draining
//	postroom_quarantined               gauge    1 once the queue failed its own checks
//	postroom_puts_total                counter  messages accepted
//	postroom_redriven_total            counter  dead letters accepted back
//	postroom_deliveries_total          counter  hand-overs
//	postroom_redelivered_total         counter  hand-overs after the first of their message
//	postroom_acks_total                counter  messages finished
//	postroom_nacks_total               counter  messages given back as failed
//	postroom_expiries_total            counter  leases that ran out
//	postroom_rejections_total          counter  messages rejected by their holder
//	postroom_dead_lettered_total       counter  deaths; reason = rejected, max_attempts, expired, overflow
//	postroom_purged_total              counter  messages purged
//	postroom_dropped_total             counter  messages that went with their queue
//	postroom_redriven_out_total        counter  dead letters that left for a queue
//	postroom_discarded_total           counter  dead letters discarded
//	postroom_trimmed_total             counter  dead letters that went because of a limit
//	postroom_touches_total             counter  leases renewed, heartbeats included
//	postroom_stale_total               counter  settles that came too late; verb = ack, nack, …
//	postroom_duplicates_total          counter  puts of an id that was taken
//	postroom_refusals_total            counter  puts refused
//	postroom_interruptions_total       counter  leases that ended without spending an attempt
//	postroom_claims_dropped_total      counter  ids forgotten before their DedupWindow ended
//	postroom_lost_announcements_total  counter  system events lost to a crash
//
// Of the broker:
//
//	postroom_up                        gauge    1 while the broker is open
//	postroom_queues                    gauge    queues declared
//	postroom_subscriptions             gauge    subscriptions
//	postroom_bindings                  gauge    bindings
//	postroom_binding_drops_total       counter  copies that a bound queue refused
//	postroom_subscription_drops_total  counter  events dropped for a full subscriber
//	postroom_unanswered_queues         gauge    queues missing from this scrape
//
// Always puts + redriven = ready + delayed + inflight + acks + dead_lettered +
// purged (+ dropped), which makes a good alert. stale_total{verb="ack"} are late
// acks: the sign of a lease that is too short, or a heartbeat that is off. A queue
// that is deleted takes its series along; one declared again counts from 0.
//
// A closed broker reports postroom_up 0 and nothing else: an error would make a
// scrape fail that carries the rest of the process, too.
//
// It panics with an [*ArgumentError] for a nil broker or a negative Timeout.
func NewCollector(b *Broker, o CollectorOptions) prometheus.Collector {
	if b == nil {
		panic(&ArgumentError{Op: "collector", Argument: "broker", Problem: "must not be nil"})
	}
	if o.Timeout < 0 {
		panic(&ArgumentError{Op: "collector", Argument: "Timeout", Problem: "must not be negative"})
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultScrapeTimeout
	}
	return &collector{b, o}
}

type collector struct {
	broker  *Broker
	options CollectorOptions
}

// metric is one figure: its name, what it says, and where it is in S.
type metric[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*S) float64
}

func gauge[S any](name, help string, labels []string, get func(*S) float64) metric[S] {
	return metric[S]{prometheus.NewDesc("postroom_"+name, help, labels, nil), prometheus.GaugeValue, get}
}

func counter[S any](name, help string, labels []string, get func(*S) uint64) metric[S] {
	return metric[S]{prometheus.NewDesc("postroom_"+name, help, labels, nil), prometheus.CounterValue,
		func(s *S) float64 { return float64(get(s)) }}
}

// The figures, in the order of NewCollector's comment. A Desc never changes, so
// that brokers share them.
var (
	byQueue      = []string{"queue"}
	queueMetrics = []metric[QueueStats]{
		gauge("ready", "Messages that could be handed over now.", byQueue, func(s *QueueStats) float64 { return float64(s.Ready) }),
		gauge("delayed", "Messages that wait for their instant.", byQueue, func(s *QueueStats) float64 { return float64(s.Delayed) }),
		gauge("inflight", "Messages leased to somebody.", byQueue, func(s *QueueStats) float64 { return float64(s.Leased) }),
		gauge("dead_letters", "Dead letters kept.", byQueue, func(s *QueueStats) float64 { return float64(s.DeadLetters) }),
		gauge("consumers", "Consumers attached.", byQueue, func(s *QueueStats) float64 { return float64(s.Consumers) }),
		gauge("bytes", "Bytes of ready, delayed and leased messages.", byQueue, func(s *QueueStats) float64 { return float64(s.Bytes) }),
		gauge("dead_letter_bytes", "Bytes of the dead letters kept.", byQueue, func(s *QueueStats) float64 { return float64(s.DeadLetterBytes) }),
		gauge("oldest_age_seconds", "Age of the oldest message since it was first ready.", byQueue, func(s *QueueStats) float64 { return s.OldestAge.Seconds() }),
		gauge("paused", "1 while the queue is paused.", byQueue, func(s *QueueStats) float64 { return zeroOrOne(s.Paused) }),
		gauge("draining", "1 while the queue is draining.", byQueue, func(s *QueueStats) float64 { return zeroOrOne(s.Draining) }),
		gauge("quarantined", "1 once the queue failed its own checks.", byQueue, func(s *QueueStats) float64 { return zeroOrOne(s.Quarantined) }),
		counter("puts_total", "Messages accepted.", byQueue, func(s *QueueStats) uint64 { return s.Puts }),
		counter("redriven_total", "Dead letters accepted back.", byQueue, func(s *QueueStats) uint64 { return s.RedrivenIn }),
		counter("deliveries_total", "Hand-overs.", byQueue, func(s *QueueStats) uint64 { return s.Deliveries }),
		counter("redelivered_total", "Hand-overs after the first of their message.", byQueue, func(s *QueueStats) uint64 { return s.Redelivered }),
		counter("acks_total", "Messages finished.", byQueue, func(s *QueueStats) uint64 { return s.Acks }),
		counter("nacks_total", "Messages given back as failed.", byQueue, func(s *QueueStats) uint64 { return s.Nacks }),
		counter("expiries_total", "Leases that ran out.", byQueue, func(s *QueueStats) uint64 { return s.Expiries }),
		counter("rejections_total", "Messages rejected by their holder.", byQueue, func(s *QueueStats) uint64 { return s.Rejections }),
		counter("purged_total", "Messages purged.", byQueue, func(s *QueueStats) uint64 { return s.Purged }),
		counter("dropped_total", "Messages that went with their queue.", byQueue, func(s *QueueStats) uint64 { return s.Dropped }),
		counter("redriven_out_total", "Dead letters that left for a queue.", byQueue, func(s *QueueStats) uint64 { return s.RedrivenOut }),
		counter("discarded_total", "Dead letters discarded.", byQueue, func(s *QueueStats) uint64 { return s.Discarded }),
		counter("trimmed_total", "Dead letters that went because of a limit.", byQueue, func(s *QueueStats) uint64 { return s.Trimmed }),
		counter("touches_total", "Leases renewed.", byQueue, func(s *QueueStats) uint64 { return s.Touches }),
		counter("duplicates_total", "Puts of an id that was taken.", byQueue, func(s *QueueStats) uint64 { return s.Duplicates }),
		counter("refusals_total", "Puts refused.", byQueue, func(s *QueueStats) uint64 { return s.Refusals }),
		counter("interruptions_total", "Leases that ended without spending an attempt.", byQueue, func(s *QueueStats) uint64 { return s.Interruptions }),
		counter("claims_dropped_total", "Ids forgotten before their DedupWindow ended.", byQueue, func(s *QueueStats) uint64 { return s.ClaimsDropped }),
		counter("lost_announcements_total", "System events lost to a crash.", byQueue, func(s *QueueStats) uint64 { return s.LostNotices }),
	}
	deadLettered = prometheus.NewDesc("postroom_dead_lettered_total", "Deaths by reason.", []string{"queue", "reason"}, nil)
	stale        = prometheus.NewDesc("postroom_stale_total", "Settles that came too late, by verb.", []string{"queue", "verb"}, nil)

	brokerMetrics = []metric[BrokerStats]{
		gauge("queues", "Queues declared.", nil, func(s *BrokerStats) float64 { return float64(s.Queues) }),
		gauge("subscriptions", "Subscriptions.", nil, func(s *BrokerStats) float64 { return float64(s.Subscriptions) }),
		gauge("bindings", "Bindings.", nil, func(s *BrokerStats) float64 { return float64(s.Bindings) }),
		counter("binding_drops_total", "Copies that a bound queue refused.", nil, func(s *BrokerStats) uint64 { return s.BindingDrops }),
		counter("subscription_drops_total", "Events dropped for a subscriber whose buffer was full.", nil, func(s *BrokerStats) uint64 { return s.SubscriptionDrops }),
	}
	up         = prometheus.NewDesc("postroom_up", "1 while the broker is open.", nil, nil)
	unanswered = prometheus.NewDesc("postroom_unanswered_queues", "Queues that are missing from this scrape because they did not answer in time.", nil, nil)
)

func zeroOrOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range queueMetrics {
		out <- m.desc
	}
	for _, m := range brokerMetrics {
		out <- m.desc
	}
	for _, d := range []*prometheus.Desc{deadLettered, stale, up, unanswered} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. Queues answer one after the other: an
// answer takes microseconds, and asking a hundred thousand of them at once would
// wake them all.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	deadline := c.broker.Now().Add(c.options.Timeout)
	value := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	if c.broker.core.Closing() {
		value(up, prometheus.GaugeValue, 0)
		return
	}
	value(up, prometheus.GaugeValue, 1)
	if s, err := bounded(c, deadline, c.broker.Stats); err == nil {
		for _, m := range brokerMetrics {
			value(m.desc, m.kind, m.get(&s))
		}
	}
	missing := 0
	for _, queue := range c.broker.Queues() {
		if c.options.Queues != nil && !c.options.Queues(queue) {
			continue
		}
		s, err := bounded(c, deadline, func(ctx context.Context) (QueueStats, error) { return c.broker.QueueStats(ctx, queue) })
		if err != nil {
			if !gone(err) { // one that was deleted meanwhile is missed by nobody
				missing++
			}
			continue
		}
		for _, m := range queueMetrics {
			value(m.desc, m.kind, m.get(&s), queue)
		}
		for reason := Rejected; int(reason) < messages.Reasons; reason++ {
			value(deadLettered, prometheus.CounterValue, float64(s.DeadBy[reason]), queue, reason.String())
		}
		for verb := Verb(0); int(verb) < messages.Verbs; verb++ {
			value(stale, prometheus.CounterValue, float64(s.StaleBy[verb]), queue, verb.String())
		}
	}
	value(unanswered, prometheus.GaugeValue, float64(missing))
}

// bounded asks for at most half of the time that is left until the deadline.
func bounded[S any](c *collector, deadline time.Time, ask func(context.Context) (S, error)) (S, error) {
	ctx, cancel := c.broker.WithTimeout(context.Background(), deadline.Sub(c.broker.Now())/2)
	defer cancel()
	return ask(ctx)
}
