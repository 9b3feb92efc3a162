// Package ledger is one queue's rules as a pure state machine: who holds which
// message until when.
//
//	         Put                    HandOver                  Ack
//	──┬──────────────────▶ Ready ──────────────▶ Leased ──────────────▶ gone
//	  │ Put, Delay > 0      ▲ ▲                   │ │ │
//	  └─────▶ Delayed ──────┘ └───────────────────┘ │ │ Reject, attempts used up,
//	          ▲    due instant   lease ran out,     │ │ too old when it failed
//	          │                  Release, NackIn 0  │ ▼
//	          └─────────────────────────────────────┘ Dead ──▶ Redrive, Discard, trim
//	             Nack, NackIn                         ▲
//	             Ready, Delayed ──────────────────────┘
//	                             TTL, overflow
//
// Ready is ten priorities of three lanes: interrupted before failed before fresh
// (SPEC Q12). A failed message whose retry budget is spent waits in a line of its
// own, counted as delayed (R9).
//
// A [Ledger] knows no actor, goroutine, clock, lock, logger or random source. Time
// comes in with every command, as time.Time; inside it is int64 nanoseconds since
// the ledger's start, on the monotonic clock. What is to be done outside comes out
// as [Effect] values in the order to perform them, and, with [Options.Journal],
// each durable change as a [Record]: [Fold] of the records gives the same state.
//
// Reading order: ledger.go (the type and its invariants), put.go and admission.go
// (in), takers.go and lend.go (out on lease), settle.go (back), expire.go (by
// time), letters.go (dead). list.go, heap.go, index.go, claims.go, tags.go and
// ended.go are the containers.
package ledger
