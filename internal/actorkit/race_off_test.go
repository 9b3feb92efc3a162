//go:build !race

package actorkit

const raceEnabled = false
