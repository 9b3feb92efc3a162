package router

import (
	"fmt"
	"testing"
)

// BenchmarkT8_Match looks up a topic that one binding takes among very many that do
// not. The others must cost nothing, so the three figures should be near each
// other: 100,000 at most one and a half times 10.
func BenchmarkT8_Match(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprintf("bindings=%d", n), func(b *testing.B) {
			var trie Trie[int]
			fill(&trie, n)
			to := make([]int, 0, 1)
			b.ReportAllocs()
			for b.Loop() {
				to = trie.Match(benchTopic, to[:0])
				if len(to) != 1 || to[0] != benchValue {
					b.Fatalf("Match = %v, want %d alone", to, benchValue)
				}
			}
		})
	}
}

// BenchmarkMatchRotating looks up another binding's topic each time. It visits as
// many nodes whatever n is; what grows is the share of them that is no longer in
// the processor's cache, which the benchmark above does not show.
func BenchmarkMatchRotating(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprintf("bindings=%d", n), func(b *testing.B) {
			var trie Trie[int]
			topics := make([]string, n)
			for i := range n {
				topics[i] = fmt.Sprintf("orders.customer%d.paid", i)
				trie.Add(topics[i], i)
			}
			to := make([]int, 0, 1)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i = (i + 7919) % n // a prime: neighbours in time are not neighbours in memory
				to = trie.Match(topics[i], to[:0])
				if len(to) != 1 || to[0] != i {
					b.Fatalf("Match(%q) = %v, want %d alone", topics[i], to, i)
				}
			}
		})
	}
}

// BenchmarkMatchFanOut finds n values at once; the cost per value is what matters.
func BenchmarkMatchFanOut(b *testing.B) {
	for _, n := range []int{10, 1_000} {
		b.Run(fmt.Sprintf("found=%d", n), func(b *testing.B) {
			var trie Trie[int]
			patterns := [...]string{"orders.#", "orders.*.berlin.*", "#.paid"}
			for i := range n {
				trie.Add(patterns[i%len(patterns)], i)
			}
			to := make([]int, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				if to = trie.Match(benchTopic, to[:0]); len(to) != n {
					b.Fatalf("%d found, want %d", len(to), n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/value")
		})
	}
}

// BenchmarkAddRemove is a binding that comes and goes among n others, as those of
// reply topics do.
func BenchmarkAddRemove(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("bindings=%d", n), func(b *testing.B) {
			var trie Trie[int]
			fill(&trie, n)
			b.ReportAllocs()
			for b.Loop() {
				if !trie.Add("reply.5f3a.#", benchValue) || !trie.Remove("reply.5f3a.#", benchValue) {
					b.Fatal("the binding was there before, or not there after")
				}
			}
			if trie.Len() != n {
				b.Fatalf("%d pairs left, want %d", trie.Len(), n)
			}
		})
	}
}
