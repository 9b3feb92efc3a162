// Package router decides where a publication goes.
//
// A topic is words with dots between them. A binding or a subscription is a
// pattern of words in which * stands for exactly one word and # for any number of
// them, none included (SPEC T1). The patterns are kept in a [Trie], a tree with
// one edge per word, in which patterns that begin alike share their beginning:
//
//	Add("orders.*.paid", q1)              root
//	Add("orders.#", q2)                     └─ orders
//	Add("orders.eu", q3)                         ├─ *
//	                                             │  └─ paid   ● q1
//	                                             ├─ #         ● q2
//	                                             └─ eu        ● q3
//
//	Match("orders.eu.paid")
//
//	      start      orders        eu           paid
//	     {root} ──► {orders, #} ──► {*, #, eu} ──► {paid, #}  ──►  q1, q2
//
// A topic is matched by walking its words once with the set of nodes reached so
// far. That set is what a publication costs: a pattern that parts from the topic
// early has no node in it (SPEC T8).
//
// The trie is pure: it knows no actor, lock or clock. Files trie*.go are that
// half of the package; the actor that owns one and carries out what it decides is
// the other.
package router
