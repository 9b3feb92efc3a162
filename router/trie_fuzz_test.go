package router

import (
	"strings"
	"testing"
)

// FuzzTrie reads its input as a program, one operation per line, and holds the
// trie against the model after each: "+0 a.*" adds the pattern a.* to value 0, "-0 a.*"
// removes it, "!0" removes the value, and "?a.b" matches a topic.
//
//	go test ./router -fuzz FuzzTrie -fuzztime 30s
func FuzzTrie(f *testing.F) {
	for _, program := range []string{
		"?",
		"+0 \n?\n?a",
		"+0 #\n?\n?a.b\n-0 #\n?a.b",
		"+0 a.*\n+1 a.#\n+0 #.b\n?a.b\n?a\n?a.\n!0\n?a.b",
		"+0 #.#.#.#.a\n+1 #.a.#.a\n?a.a.a.a.a\n?a.a.a.b",
		"+0 a\n+1 a\n+2 a\n-1 a\n?a\n+1 a\n?a",
		"+0 .\n+0 ..\n+1 *..*\n?.\n?..\n?...",
		"+0 *\n+0 *\n-0 *\n-0 *\n?x",
	} {
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program string) {
		p := newPair(t.Fatalf)
		for line := range strings.Lines(program) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || len(line) > 40 || strings.Count(line, "#") > 5 {
				continue // the reference takes exponential time in the number of #
			}
			op, rest := line[0], line[1:]
			if op == '?' {
				p.match(rest)
				continue
			}
			if rest == "" {
				continue
			}
			value, pattern := int(rest[0]%4), strings.TrimPrefix(rest[1:], " ")
			switch op {
			case '+':
				p.add(pattern, value)
			case '-':
				p.remove(pattern, value)
			case '!':
				p.removeValue(value)
			default:
				continue
			}
			p.check()
			p.match(pattern) // a topic near to what was just changed
		}
	})
}
