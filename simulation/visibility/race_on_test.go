//go:build race

package visibility

// The race detector makes a seed ten times as slow, and finds nothing new in the
// hundredth: the simulation is one thread.
const raceOn = true
