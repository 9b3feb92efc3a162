//go:build !race

package visibility

const raceOn = false
