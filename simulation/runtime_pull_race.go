//go:build race

package simulation

import (
	"iter"
	"runtime"
)

// pull does under the race detector what iter.Pull does, with a goroutine and two
// channels. Go 1.26 does not tell the detector of the end of a coroutine
// (runtime.coroexit goes past racegoend), so what the detector keeps of each, 5 kB and
// more, is never given back: a search of some ten thousand runs came to more than 20 GB.
//
// A panic must not leave body; coroutine.call sees to that. A Goexit is handed on to
// whoever called next or stop, as iter.Pull does.
func pull(body iter.Seq[struct{}]) (next func() (struct{}, bool), stop func()) {
	resume, yielded := make(chan bool), make(chan bool)
	over, exits := false, false
	go func() {
		exits = true
		defer func() {
			over = true
			close(yielded)
		}()
		if <-resume {
			body(func(struct{}) bool {
				yielded <- true
				return <-resume
			})
		}
		exits = false
	}()
	let := func(goOn bool) bool {
		if over {
			return false
		}
		resume <- goOn
		if <-yielded {
			return true
		}
		if exits {
			exits = false // once, as with iter.Pull
			runtime.Goexit()
		}
		return false
	}
	next = func() (struct{}, bool) { return struct{}{}, let(true) }
	stop = func() { let(false) }
	return next, stop
}
