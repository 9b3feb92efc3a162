package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// numberedLines is n lines, made as they are read: "line 1", …
func numberedLines(n int) io.Reader {
	return &generator{n: n, line: func(i int) string { return fmt.Sprintf("line %d\n", i) }}
}

// generator makes lines as they are read.
type generator struct {
	n, made int
	line    func(i int) string
	left    string
}

func (g *generator) Read(p []byte) (int, error) {
	for g.left == "" {
		if g.made == g.n {
			return 0, io.EOF
		}
		g.made++
		g.left = g.line(g.made)
	}
	n := copy(p, g.left)
	g.left = g.left[n:]
	return n, nil
}

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 200_000) // three of the reader's buffers
	for _, c := range []struct {
		name, input string
		want        []string
		lengths     []int64
	}{
		{"nothing", "", nil, nil},
		{"one newline is one empty line", "\n", []string{""}, []int64{0}},
		{"the last newline is no line", "a\nb\n", []string{"a", "b"}, []int64{1, 1}},
		{"the last line may lack it", "a\nb", []string{"a", "b"}, []int64{1, 1}},
		{"carriage returns stay", "a\r\n\r\n", []string{"a\r", "\r"}, []int64{2, 1}},
		{"just at the maximum", "12345678\n12345678", []string{"12345678", "12345678"}, []int64{8, 8}},
		{"just over it", "123456789\na\n123456789", []string{"12345678", "a", "12345678"}, []int64{9, 1, 9}},
		{"far over it", long + "\na\n" + long, []string{"xxxxxxxx", "a", "xxxxxxxx"}, []int64{200_000, 1, 200_000}},
	} {
		for _, how := range []struct {
			name string
			wrap func(io.Reader) io.Reader
		}{{"at once", func(r io.Reader) io.Reader { return r }}, {"half", iotest.HalfReader}, {"with EOF", iotest.DataErrReader}} {
			t.Run(c.name+" "+how.name, func(t *testing.T) {
				r := newLineReader(how.wrap(strings.NewReader(c.input)), 8)
				var got []string
				var lengths []int64
				for {
					text, length, err := r.read()
					if err != nil {
						require.Equal(t, io.EOF, err)
						break
					}
					got, lengths = append(got, string(text)), append(lengths, length)
					require.Equal(t, len(got), r.number)
				}
				assert.Equal(t, c.want, got)
				assert.Equal(t, c.lengths, lengths)
			})
		}
	}
}

func TestInputThatBreaksIsNotTakenForItsEnd(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("a\nhalf a li"), iotest.ErrReader(errors.New("disk on fire")))
	r := (&app{stdin: broken}).do(t, "run", "--", "cat")
	assert.Equal(t, exitInterrupted, r.status)
	assert.NotContains(t, r.stdout, "half")
	assert.Contains(t, r.stderr, "input: disk on fire")
	assert.Contains(t, r.stderr, "next input line: 2\n")
}
