package router_test

import (
	"fmt"

	"github.com/postroom/postroom/router"
)

// Two queues take part of what is published under orders.
func ExampleTrie() {
	var trie router.Trie[string]
	trie.Add("orders.*.paid", "invoices")
	trie.Add("orders.#", "audit")
	trie.Add("orders.eu.#", "audit") // overlaps: still one copy

	fmt.Println(trie.Match("orders.eu.paid", nil))
	fmt.Println(trie.Match("orders", nil))
	fmt.Println(trie.Match("stock", nil))
	fmt.Println(trie.RemoveValue("audit"), trie.Len())

	// Output:
	// [invoices audit]
	// [audit]
	// []
	// 2 1
}

func ExampleMatches() {
	fmt.Println(router.Matches("a.*.c", "a.b.c"), router.Matches("a.*.c", "a.b.x.c"))
	fmt.Println(router.Matches("a.#", "a"), router.Matches("a.*", "a."))

	// Output:
	// true false
	// true true
}
