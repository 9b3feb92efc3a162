// Package actorkit is the ground the actors of Postroom stand on: executor,
// clock, reply cells, contexts and randomness behind one interface, [Runtime],
// and an actor system on protoactor-go that follows our rules.
//
//	         door (any goroutine)                    timers
//	               │ Address.Call / Send               │ AfterFunc
//	               ▼                                   ▼
//	┌────────────── mailbox of one actor ──────────────────┐
//	│ system messages first · one batch, taken by a cursor │
//	└───────────────┬──────────────────────────────────────┘
//	                │ one activation at a time
//	 Schedule       │        ScheduleBlocking
//	 (never blocks) ▼        (handlers, may block for hours)
//	┌──────────── one turn ─────────────┐
//	│ Receive, Receive, … then EndTurn  │──▶ answers: cells, or *messages.Answer
//	└───────────────┬───────────────────┘
//	                │ panic: the culprit's caller is answered, the rest stays
//	                ▼
//	   parent's ChildFailed, or restart at once
//
// There are two runtimes. [Real], here, runs on goroutines and the machine's
// clock; the simulation's runs everything on one thread in an order drawn from a
// seed. What is built on this package does not know which of the two it has.
//
// # What an actor may rely on
//
//   - Receive is never entered twice at a time, and messages of one sender come
//     in the order they were sent.
//   - A message that is a messages.Failer is handled or failed, never lost: not by
//     a panic ([CrashError]), not by a stop ([StoppedError]).
//   - A panic costs the message that caused it. What was posted behind it stays,
//     in order, and is handled by the restarted actor.
//   - Started, EndTurn and Ended are called as their interfaces say, also after a
//     panic or a runtime.Goexit.
//
// # Why protoactor-go is wrapped
//
// Its core is sound, but several of its doors lead outside of these promises:
// futures and receive timeouts run on the wall clock, its stock mailbox drops a
// stopped actor's messages without a word, its default strategies stop an actor
// silently. The package's lint test lists the doors that are shut, with reasons.
package actorkit
