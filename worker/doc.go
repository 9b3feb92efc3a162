// Package worker is the consumer's side of the lease: retries that stop, effects that
// happen once, intents that are not forgotten, and poison that is put aside.
//
//	            at least once              exactly once                 at least once
//	broker ──────────────────▶ Handler ──────────────────▶ database ──────────────────▶ receiver
//	  ▲     delivery, lease      │       Apply: key, change,   │      Outbox: claim,      │
//	  │                          │       intent in one tx      │      Deliver, mark       ▼
//	  └──────── ack ─────────────┘ after the commit            └─ dispatcher         its own Apply
//
// A broker delivers at least once, because no acknowledgement and no database can
// commit together: the worker may die between the two. So the effect itself must know
// that it has happened. [Apply] records a message's key in the transaction of its
// change; the second time it finds the key and changes nothing. An [Outbox] row in that
// transaction tells another system of it, again at least once, and the receiver applies
// it by its key in turn.
//
// [Retry] and [Budget] bound what a worker tries again within one delivery; attempts,
// backoff and dead letters of the queue bound what is tried across deliveries.
// [Handler] joins it up for a consumer; [Redrive] brings dead letters back.
//
// The package works over database/sql, with SQLite and PostgreSQL, and imports no
// driver. Everything takes a [Clock], and *postroom.Broker is one, so workers run in
// the simulation too, over workertest.Memory. docs/reliability.md says which guarantee
// ends where and how to choose the numbers.
package worker
