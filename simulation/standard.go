package simulation

import (
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/supervisor"
)

// Standard is the world in which the broker itself is tried: one queue whose every
// setting is drawn, scripted workers, two producers, and all faults there are. It is
// small, because bugs need few messages and the oracles cost as much as is in the queue.
func Standard() Spec {
	return Spec{Name: "standard", Build: func(w *World) {
		c := postroom.QueueConfig{
			AckTimeout:      Choose(w, "lease", 2*time.Second, 500*time.Millisecond, 10*time.Second),
			MaxAttempts:     Choose(w, "attempts", 3, 1, 2, 5),
			BackoffBase:     Choose(w, "backoff", time.Second, 100*time.Millisecond),
			BackoffCap:      20 * time.Second,
			RetryExpired:    Choose(w, "retry expired", false, true),
			MaxLease:        Choose(w, "max lease", 0, 3*time.Second, 0),
			DedupWindow:     Choose(w, "dedup window", 0, 2*time.Second, 30*time.Second),
			DedupLimit:      Choose(w, "dedup limit", 0, 3),
			MaxMessages:     Choose(w, "messages", 0, 0, 4),
			Overflow:        Choose(w, "overflow", postroom.Refuse, postroom.DropOldest),
			TTL:             Choose(w, "ttl", 0, 0, 5*time.Second),
			DeadLetterLimit: Choose(w, "letters", 0, 2),
			DeadLetterAlarm: Choose(w, "letter alarm", 0, 2),
			MaxAge:          Choose(w, "max age", 0, 3*time.Second),
			SingleActive:    Choose(w, "single active", false, false, false, true),
			NoTimeout:       Choose(w, "no timeout", false, false, false, false, true),
			RetryBudget:     Choose(w, "retry budget", postroom.RetryBudget{}, postroom.RetryBudget{}, postroom.RetryBudget{Ratio: 0.1, Floor: 1, Window: 2 * time.Second}),
		}
		q := w.Queue("mail", c)
		concurrency := Choose(w, "concurrency", 1, 1, 2)
		w.Workers("w", 3, q, Script(Choose(w, "pace", 200*time.Millisecond, 2*time.Second), nil), postroom.ConsumerConfig{
			Concurrency: concurrency, Prefetch: concurrency * Choose(w, "prefetch", 1, 1, 3),
			NoHeartbeat:    Choose(w, "heartbeat", false, true),
			HandlerTimeout: Choose(w, "handler timeout", 0, 0, 4*time.Second),
		})
		if Choose(w, "pullers", false, false, true) {
			w.Pullers("p", 2, q, Script(time.Second, nil), postroom.GetConfig{
				NoTimeout:  Choose(w, "puller without timeout", false, false, true),
				AckTimeout: Choose(w, "puller lease", 0, time.Second),
			})
		}
		ids := Choose(w, "ids", "given", "made")
		priorities := Choose(w, "priorities", 1, 3)
		delays := Choose(w, "delays", false, true)
		expiries := Choose(w, "expiries", false, true)
		generate := func(d Draw, n int) postroom.Envelope {
			e := postroom.Envelope{Priority: d.N("priority", priorities)}
			if ids == "made" {
				e.ID = MadeIDs
			}
			if delays && d.N("delayed", 3) == 0 {
				e.Delay = d.Duration("delay", 3*time.Second)
			}
			if expiries && d.N("expires", 3) == 0 {
				e.ExpiresAt = Epoch.Add(time.Second + d.Duration("expiry", 10*time.Second))
			}
			if d.N("headers", 4) == 0 {
				e.Headers = map[string]string{"n": fmt.Sprint(n)}
			}
			return e
		}
		w.Produce("api", q, Items(w.Between("items", 1, 10)), generate)
		w.Produce("batch", q, Burst(w.Between("burst", 0, 6)), generate)
		w.Options(postroom.WithRestarts(supervisor.Policy{MaxFailures: Choose(w, "restarts", 10, 2)}))
		w.Faults(AnyFault())
		w.Calm(time.Hour, Drained(q))
	}}
}
