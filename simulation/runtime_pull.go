//go:build !race

package simulation

import "iter"

// pull is iter.Pull: a switch to a coroutine and back is a fraction of one between two
// goroutines by a channel.
func pull(body iter.Seq[struct{}]) (next func() (struct{}, bool), stop func()) {
	return iter.Pull(body)
}
