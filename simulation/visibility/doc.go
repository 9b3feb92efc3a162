// Package visibility measures, on virtual time and through the unchanged door, what
// a lease is worth: the experiment of "Redelivering Items with Visibility Timeouts",
// which `postroom sim table` prints.
//
//	500 items ──▶ plain channel ─────▶ 10 workers   an item that is taken is gone
//	          ──▶ queue, 0.5 s lease ─▶ 10 workers   ack, or it comes back
//	          ──▶ the same ───────────▶ 10 workers   and the lease is touched meanwhile
//
// Ten items (2 %) hang whenever they are worked on, until the worker's own timeout
// of 2 s. Every other item is slow with a chance of 10 %: it takes 0.6 s the first
// time. All others take 1 to 9 ms. A message gets 3 attempts. What is counted is
// counted after 10 s; then the queue drains, and what became of the hung items is
// looked at.
//
// # Where the figures differ from the document's
//
// The document measured Python code on the wall clock and gives one run:
//
//	queue             processed  lost  dead  twice  late acks
//	asyncio.Queue           490    10     -      0          -
//	0.5 s visibility        490     0    10     54         54
//	with heartbeat          490     0     4      0          0
//
// Here every seed is a run; README.md has the figures of 100. The findings hold in all
// of them ([Facts]). What differs, and why:
//
//   - Slow. An item that was slow every time would outlive each of its leases and be dead
//     after three, and the document has 490 processed and 10 dead. So being slow must be a
//     matter of chance there. Here it is one draw for each item, for its first delivery:
//     about 49 items, and 54 is well within. Drawn anew for every delivery, 54 would
//     be the mean (10 % of 490/0.9), but one item in a thousand would be slow three times
//     and die although its work was done.
//   - The end of a lease. The document's reaper looks every 50 ms. Postroom has one timer,
//     set to the next deadline: the message is ready again at that very instant, and an ack
//     that comes exactly then is late.
//   - Who is next. The document puts a message that came back behind all others. Postroom
//     serves it before the fresh ones. Without heartbeats a hung item may have used
//     its three attempts 1.5 s after the first began, and then occupies three workers.
//   - Dead with heartbeats. Both need three times the 2 s. The document adds up to 0.5 s
//     until the reaper comes, and the way through the line; here the handler's error is a
//     nack, and the next attempt is ready after a full jitter of at most 1 s, then 2 s. So 2
//     to 10 of the ten are dead after 10 s, as they stand in the queue and as the jitter
//     falls. The document's 4 is one such draw. None is lost: the others are dead later.
//   - A nack after the lease. Without heartbeats the worker's nack comes 1.5 s after the
//     lease has run out, is stale, and changes nothing. An expired message is ready again
//     at once and not after the jitter; that is RetryExpired, which is off.
//   - Processed without heartbeats. Hung items cost 60 s of worker time and slow ones
//     another 0.6 s each, out of the 100 s that ten workers have. A seed with many
//     slow items is not through after 10 s, and is a second later; what is not yet
//     processed is then on its way.
//
// The timeout is the worker's own, as in the document, and deaf to the lease: a worker
// goes on with work that it has lost. A handler that looks at its context ends when
// the lease does; even without heartbeats nothing is then done twice, and no ack is late.
package visibility
