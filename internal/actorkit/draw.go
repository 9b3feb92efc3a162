package actorkit

import "math/bits"

// Odd constants with about as many ones as zeros, from wyhash by Wang Yi.
const (
	mixA = 0xa0761d6478bd642f
	mixB = 0xe7037ed1a0b428db
	mixC = 0x8ebc6af09c88c6e3
)

// Mix is the keyed hash behind [Runtime.Draw]: a number that looks random and
// depends on nothing but its arguments.
//
// purpose says what the number is for and entity whose it is; n counts the draws
// of that pair. So a new draw somewhere leaves every other draw as it was, which
// keeps a failing seed failing while code around it changes.
func Mix(seed uint64, purpose, entity string, n uint64) uint64 {
	h := fold(seed^mixA, mixB)
	h = mixString(h, purpose)
	h = mixString(h, entity)
	h = fold(h^n, mixC)
	return fold(h^mixA, mixB^n)
}

// mixString takes the length in, so that ("ab", "c") and ("a", "bc") differ.
func mixString(h uint64, s string) uint64 {
	h ^= uint64(len(s)) * mixC
	for len(s) >= 8 {
		h = fold(h^(uint64(s[0])|uint64(s[1])<<8|uint64(s[2])<<16|uint64(s[3])<<24|
			uint64(s[4])<<32|uint64(s[5])<<40|uint64(s[6])<<48|uint64(s[7])<<56), mixB)
		s = s[8:]
	}
	var rest uint64
	for i := range len(s) {
		rest |= uint64(s[i]) << (8 * i)
	}
	return fold(h^rest, mixC)
}

// fold multiplies to 128 bits and folds them: every bit of the result depends on
// every bit of a. The a is added so that a product of zero does not stick.
func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low ^ bits.RotateLeft64(a, 32)
}
