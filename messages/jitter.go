package messages

import (
	"math/bits"
	"time"
)

// FullJitter maps a draw to [0, bound], both ends included: what the draw is of 2^64,
// the wait is of bound+1 (SPEC R1, S2). No wait has more than one draw in 2^64/bound
// above its share. bound must not be negative.
func FullJitter(bound time.Duration, draw uint64) time.Duration {
	wait, _ := bits.Mul64(draw, uint64(bound)+1)
	return time.Duration(wait)
}
