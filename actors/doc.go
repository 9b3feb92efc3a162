// Package actors holds the shells: the actors that carry out what the pure rules
// decide, and the directory and calls that the door is made of.
//
//	broker ──┬─ topic-router ── sub-1, sub-2 …            (package router)
//	         ├─ queues ── <queue> …                       workQueue: a ledger and its effects
//	         └─ consumers ──┬─ ctag-1 … ── worker-1 …     consumer: inbox, heartbeat; worker: the handler
//	                        ├─ redrive-1 …                redriver: letters on their way back
//	                        └─ publisher-1 …              reporter: a publisher's callback
//
// A delivery's way through them:
//
//	door ──Put──▶ workQueue ──chunk──▶ inbox ──slot──▶ worker ──slot──▶ workQueue
//	                 ▲                   │ looked after by
//	                 └──── consumer ─────┘ keepAlive, giveBack, crashed
//
// A burst is one message: the puts of a publisher wait in its window's intake, and the
// slots on their way back on the queue's stack of returns, until the queue comes to
// the one message that was sent for all of them.
//
// Only workers, subscribers and reporters run user code, and only they may block.
// Every other actor's state lives in a value that outlives its actor, so a panic
// costs one message: see [workQueue] for a queue's own rules on that.
//
// Reading order: broker.go (what they share), workqueue.go and perform.go (a
// queue), window.go and intake.go (a publisher's puts), slot.go, consumer.go and
// worker.go (a consumer), returns.go (its settles), queues.go and pool.go (who makes
// and ends them), door.go (how a caller waits).
package actors
