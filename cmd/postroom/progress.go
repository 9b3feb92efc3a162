package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// How often progress is shown: often enough to live on a terminal, and on plain
// output, which may be a log that is kept, no more than that one sees it move.
const (
	barEvery   = 200 * time.Millisecond
	plainEvery = 5 * time.Second
)

// progress shows how far the work is, on stderr.
type progress struct {
	console *console
	board   *board
	size    int64 // of the input; 0: not known
	every   time.Duration
	now     func() time.Time
	began   time.Time

	bar   *progressbar.ProgressBar // nil: plain lines
	drawn bool
	last  figures
}

func newProgress(c *console, b *board, size int64) *progress {
	p := &progress{console: c, board: b, size: size, every: plainEvery, now: time.Now}
	p.began = p.now()
	if isTerminal(c.stderr) {
		p.every = barEvery
		p.bar = newBar(c.stderr, size)
		c.clear = p.wipe
	}
	return p
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// newBar makes a bar that draws only when it is told to: it shares the terminal with
// the commands, and a drawing of its own accord would land in the middle of theirs.
func newBar(w io.Writer, size int64) *progressbar.ProgressBar {
	if size == 0 {
		size = -1 // a spinner
	}
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetWidth(10), // with the words it must fit into 80 columns
		progressbar.OptionUseANSICodes(true),
	)
}

// run shows progress until stop is closed.
func (p *progress) run(stop <-chan struct{}) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			p.console.draw(p.wipe)
			return
		case <-tick.C:
			p.show()
		}
	}
}

// show draws the bar, or prints a line if something has moved.
func (p *progress) show() {
	f, open := p.board.look()
	text := fmt.Sprintf("%d acked %d dead %d running %d waiting", f.acked, f.dead, f.running, max(open-f.running, 0))
	if p.bar == nil {
		if f != p.last {
			p.console.say("%s: %s", p.now().Sub(p.began).Round(time.Second), text)
		}
		p.last = f
		return
	}
	p.console.draw(func() {
		p.drawn = true
		p.bar.Describe(text)
		if p.size > 0 {
			// The end is not the bar's to declare: a file that grows would end it early.
			_ = p.bar.Set64(min(f.bytes, p.size-1)) // a terminal that is gone is no reason to stop
			return
		}
		_ = p.bar.Set64(int64(f.acked + f.dead))
	})
}

// wipe takes the bar off the terminal; the next show draws it again.
func (p *progress) wipe() {
	if p.bar != nil && p.drawn {
		p.drawn = false
		_ = p.bar.Clear()
	}
}
