package simulation

import "fmt"

// Strategy is how the scheduler makes its decisions. The set is closed.
type Strategy uint8

// The strategies.
const (
	// Portfolio draws for each seed which of Random and PCT it is: three in four are
	// Random.
	Portfolio Strategy = iota
	// Random draws every pick from the seed.
	Random
	// PCT lets the one of the highest drawn priority run as long as it can, and lowers
	// it at a few drawn points: it finds a bug of depth d with a probability of at least
	// 1/(n·k^(d-1)) (Burckhardt and others, ASPLOS 2010). It is unfair, so liveness is
	// only judged in the calm phase, which is random again.
	PCT
	// Logged takes the decisions of a plan, and the default after the last of them.
	Logged
	// Given asks a [Decider] of the caller's, as an exhaustive search does.
	Given
	strategies
)

var strategyNames = [strategies]string{"portfolio", "random", "pct", "logged", "given"}

func (s Strategy) String() string {
	if s < strategies {
		return strategyNames[s]
	}
	return fmt.Sprintf("strategy %d", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Strategy) UnmarshalText(text []byte) error {
	for i, name := range strategyNames {
		if name == string(text) {
			*s = Strategy(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no strategy; they are %v", text, strategyNames)
}

// Choice is one point of decision.
type Choice struct {
	// Number counts the points of a run from 0; only those with a choice count.
	Number int
	// What is decided: who takes the next step, how many messages an actor takes in
	// its turn, or which of the timers of one instant rings first.
	What What
	// Of is how many possibilities there are, at least 2. 0 is the default.
	Of int
	// Names says for WhatStep who is ready, in the order of the possibilities; valid
	// only during the call.
	Names func(i int) string
}

// What is the subject of a decision.
type What uint8

// The subjects.
const (
	WhatStep  What = iota // who is next: 0 is who is ready longest
	WhatTurn              // messages in this turn, less one
	WhatTimer             // rank among the timers of one instant: 0 rings in the order they were set
)

// Decider makes the decisions of a run. It is asked on the simulation's thread and
// must depend on nothing but what it was asked. A run records what it answers.
type Decider interface {
	// Decide returns a number from 0 to c.Of-1.
	Decide(c Choice) int
}
