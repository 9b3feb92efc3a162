package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// tally is how a run ended. Its JSON is the last line of --json.
type tally struct {
	// Put counts lines taken into work, those included that died unworked.
	Put   uint64 `json:"put"`
	Acked uint64 `json:"acked"`
	// Dead counts lines whose death is on record. Put = Acked + Dead unless the run was
	// interrupted.
	Dead uint64 `json:"dead"`
	// Redelivered counts commands begun again: at an attempt after the first. The
	// broker's own counter has those hand-overs as well that were taken back before
	// anything ran, as happens around a crash.
	Redelivered uint64 `json:"redelivered"`
	// StaleAcks counts commands that ended well after their lease was lost, so that
	// their line was worked again: a machine that slept, or a lease far too short.
	StaleAcks uint64 `json:"stale_acks"`

	took       time.Duration
	unfinished []*line
	next       int  // the next line to be read
	atEnd      bool // there is none
	interrupts int
}

func (r *tally) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("tally: %v", err)) // numbers always encode
	}
	return append(text, '\n')
}

// cut reports whether the run ended before its work did.
func (r *tally) cut() bool { return len(r.unfinished) > 0 || !r.atEnd }

func (r *tally) status() int {
	switch {
	case r.cut():
		return exitInterrupted
	case r.Dead > 0:
		return exitDied
	}
	return exitDone
}

// String is the summary.
func (r *tally) String() string {
	s := fmt.Sprintf("%d put, %d acked, %d dead, %d redelivered, %d stale acks in %s",
		r.Put, r.Acked, r.Dead, r.Redelivered, r.StaleAcks, r.took.Round(time.Millisecond))
	if n := len(r.unfinished); n > 0 {
		s += fmt.Sprintf("; %d unfinished", n)
	}
	return s
}

// namesMax bounds the lists in messages to people.
const namesMax = 10

// counted is a number of things, in English.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// numbers lists lines by number: 3, 5-7, 9, …
func numbers(lines []*line) string {
	var parts []string
	for i := 0; i < len(lines); {
		j := i
		for j+1 < len(lines) && lines[j+1].number == lines[j].number+1 {
			j++
		}
		if len(parts) == namesMax {
			parts = append(parts, fmt.Sprintf("and %d more", len(lines)-i))
			break
		}
		if i == j {
			parts = append(parts, fmt.Sprint(lines[i].number))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", lines[i].number, lines[j].number))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// graveyard is where deaths go without --dead: the first few are told of at the end.
// It holds no bodies.
type graveyard struct {
	count int
	first []string
}

func (g *graveyard) add(l *line) {
	if g.count++; len(g.first) < namesMax {
		d := l.death
		g.first = append(g.first, fmt.Sprintf("line %d: %s, attempts %d: %s", l.number, d.Reason, d.Attempts, d.Error))
	}
}
