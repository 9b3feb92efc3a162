package actorkit

import (
	"io"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Flipping one bit of any argument flips about half of the result's bits.
func TestMixAvalanches(t *testing.T) {
	flips := map[string]int{}
	const rounds = 64 * 20
	for i := range uint64(rounds) {
		bit := uint64(1) << (i % 64)
		base := Mix(i, "purpose", "entity", i)
		text := []byte("a purpose of 17 b")
		before := Mix(i, string(text), "", 0)
		beside := Mix(i, "", string(text), 0)
		text[i%17] ^= 1 << (i % 8)
		flips["seed"] += bits.OnesCount64(base ^ Mix(i^bit, "purpose", "entity", i))
		flips["n"] += bits.OnesCount64(base ^ Mix(i, "purpose", "entity", i^bit))
		flips["purpose"] += bits.OnesCount64(before ^ Mix(i, string(text), "", 0))
		flips["entity"] += bits.OnesCount64(beside ^ Mix(i, "", string(text), 0))
	}
	for argument, n := range flips {
		assert.InDelta(t, 32, float64(n)/rounds, 0.5, argument)
	}
}

// Small remainders are what draws are used for, also of counters.
func TestMixIsEven(t *testing.T) {
	const buckets, draws = 7, 70_000
	var hits [buckets]int
	for n := range uint64(draws) {
		hits[Mix(3, "pick", "", n)%buckets]++
	}
	for _, n := range hits {
		assert.InDelta(t, draws/buckets, n, 500) // 5 standard deviations
	}
}

func TestMixTellsItsArgumentsApart(t *testing.T) {
	seen := map[uint64]bool{}
	for _, args := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"", "abc"}, {"abc\x00", ""}, {"abc", "\x00"}, {"", ""}} {
		h := Mix(0, args[0], args[1], 0)
		assert.False(t, seen[h], "%q", args)
		seen[h] = true
	}
	// Pinned: a change here changes every seed's run.
	assert.Equal(t, uint64(0x54f7bc4848dbf459), Mix(1, "pick", "orders", 2))
}

func TestRealRuntimeDraws(t *testing.T) {
	a, b := NewReal(RealConfig{}), NewReal(RealConfig{})
	assert.Equal(t, a.Draw("retry", "orders", 1), a.Draw("retry", "orders", 1))
	assert.NotEqual(t, a.Draw("retry", "orders", 1), b.Draw("retry", "orders", 1))
	var bytes [16]byte
	_, err := io.ReadFull(a.Random(), bytes[:])
	require.NoError(t, err)
	assert.NotZero(t, bytes)
}
