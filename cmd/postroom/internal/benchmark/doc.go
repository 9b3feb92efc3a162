// Package benchmark measures what queue actors cost on this machine, beside what Go
// itself charges for the same hops: the floor.
//
//	 one round of one case
//	┌───────────────────────────────────────────┐
//	│ floor ─▶ open ─▶ case ─▶ check ─▶ floor   │ × rounds, the cases of a
//	└───────────────────────────────────────────┘   group taking turns
//	                       │
//	                       ▼
//	figure: median, min, max · ratio to the floor of the same moment
//	        deepest backlog · messages per wake-up · allocations
//
// A time alone says more about the machine and its load than about the code, so each
// is taken between two floors of its own, and the ratio of the two is what is to be
// read and compared. Every case counts what it did and is an error when that is not
// what it should have done: a benchmark that loses messages is fast.
//
// A case that fails is reported and the others still run.
package benchmark
