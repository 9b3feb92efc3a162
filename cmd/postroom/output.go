package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// console is where the output of all commands, the progress and our own words meet:
// one lock, and whole lines.
type console struct {
	mu             sync.Mutex
	stdout, stderr io.Writer
	// clear takes a drawn progress bar off the terminal; nil: there is none.
	clear func()
	// onBroken is told, once, that stdout takes nothing more.
	onBroken func(error)

	broken  error
	midLine bool // stdout's last byte was no newline
}

// say prints a line of ours on stderr.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
	fmt.Fprintf(c.stderr, "postroom: "+format+"\n", args...)
}

// draw runs fn with the terminal to itself.
func (c *console) draw(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

func (c *console) wipe() {
	if c.clear != nil {
		c.clear()
	}
}

// writeOut passes bytes on to stdout. When stdout is closed it swallows them: the
// commands that run are to end as if nothing had happened.
func (c *console) writeOut(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 || c.broken != nil {
		return
	}
	c.wipe()
	if _, err := c.stdout.Write(p); err != nil {
		c.broken = err
		if c.onBroken != nil {
			c.onBroken(err)
		}
		return
	}
	c.midLine = p[len(p)-1] != '\n'
}

func (c *console) writeErr(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) > 0 {
		c.wipe()
		_, _ = c.stderr.Write(p) // there is nowhere left to say so
	}
}

// lastLine prints a line on stdout that stands alone, whatever came before.
func (c *console) lastLine(text []byte) {
	c.mu.Lock()
	glued := c.midLine
	c.mu.Unlock()
	if glued {
		text = append([]byte{'\n'}, text...)
	}
	c.writeOut(text)
}

// lineWriter passes on whole lines. What a command leaves without a newline goes at
// its end, as it is; a line of more than lineMax goes in pieces, because somebody
// has to hold it until then.
//
// It has a lock of its own: a process that outlives the command may still hold the
// other end of the pipe.
type lineWriter struct {
	to func([]byte)

	mu   sync.Mutex
	held []byte
	// tail keeps the last bytes when tailMax is not 0.
	tail    []byte
	tailMax int
}

const lineMax = 64 << 10

// Write implements io.Writer. It never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(p)
	whole := bytes.LastIndexByte(p, '\n') + 1
	switch {
	case whole > 0 && len(w.held) == 0:
		w.to(p[:whole])
	case whole > 0:
		w.held = append(w.held, p[:whole]...)
		w.pass()
	}
	w.held = append(w.held, p[whole:]...)
	if len(w.held) > lineMax {
		w.pass()
	}
	return len(p), nil
}

func (w *lineWriter) keep(p []byte) {
	if len(p) >= w.tailMax {
		w.tail = append(w.tail[:0], p[len(p)-w.tailMax:]...)
		return
	}
	if over := len(w.tail) + len(p) - w.tailMax; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
	w.tail = append(w.tail, p...)
}

// Flush passes on what is left of a line.
func (w *lineWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
}

func (w *lineWriter) pass() {
	w.to(w.held)
	w.held = w.held[:0]
}

// Tail returns a copy of the last bytes written.
func (w *lineWriter) Tail() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.tail)
}

// tailText is the end of a command's stderr as text: it may begin inside a rune, and
// hold what is no text at all.
func tailText(tail []byte) string {
	if len(tail) == stderrTail { // cut, probably
		for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
			tail = tail[1:]
		}
	}
	return strings.ToValidUTF8(string(tail), string(utf8.RuneError))
}

// cut bounds an error's text, at a rune's edge.
func cut(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= errorMax {
		return s
	}
	n := errorMax
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
