// Package simulation runs the unchanged broker, door included, on one thread and in
// virtual time: an hour takes no time, and the same seed gives the same run.
//
//	simulation.Run(1, func(w *simulation.World) {
//		broker := w.MustOpen()
//		…
//		w.Sleep(time.Hour) // leases end, retries come due, handlers run
//	})
//
// A [Spec] makes a laboratory of it: queues, workers that run the user's own handlers,
// a workload, faults, and what must hold. [Check] tries many seeds of one in a test.
//
//	seed ──▶ Plan: settings, items, faults, decisions ──▶ run ──▶ Result: events, verdict
//	                  ▲                                             │
//	                  └──────── Replay: the same run again ─────────┘
//
// Every queue is asked twice, the ledger and a reference model (twin.go), and whatever
// the records tell is checked by an onlooker (book.go) that knows neither; what users
// see is checked by their own rules. Randomness is keyed: a draw depends on the seed,
// what it is for and whose it is, and on nothing that was drawn before.
//
// Modes of handlers, and what a replay promises: [Script] and [Inline] are exact,
// [Bubble] is exact as long as no two handlers wake at one instant and says so when
// they did, [Real] is the wall clock and promises nothing.
//
// What it cannot see: data races (run with -race besides; one thread hides them), time
// that code takes (a handler takes none unless it sleeps), and what a killed process
// would not do, deferred calls above all. A search is no proof.
//
// Reading order: spec.go, plan.go, event.go and result.go (the data), declare.go (the
// world), lab.go (a run), workers.go and faults.go (what happens in it), twin.go,
// book.go and oracles.go (what must hold), runtime.go (the one thread and its clock).
package simulation
