//go:build race

package actorkit

const raceEnabled = true
