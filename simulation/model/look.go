package model

import "slices"

// What a generator of commands looks at, so that most of them mean something.

// Running returns the tags of the running leases, lowest first.
func (m *Model) Running() []uint64 {
	var running []uint64
	for _, e := range m.entries {
		if e.state == leased {
			running = append(running, e.tag)
		}
	}
	slices.Sort(running)
	return running
}

// LastTag is the highest tag given out.
func (m *Model) LastTag() uint64 { return m.tags }

// Closed reports that the queue has ended.
func (m *Model) Closed() bool { return m.closed }

// Paused reports that nothing is handed over.
func (m *Model) Paused() bool { return m.paused }

// Draining reports that puts are refused.
func (m *Model) Draining() bool { return m.draining }

// Credit is one unit of a consumer's credit in use.
type Credit struct {
	Consumer string
	Tag      uint64
	Handler  bool
}

// Credits lists the credit in use, in the order of consumers and hand-overs.
func (m *Model) Credits() []Credit {
	var all []Credit
	for _, d := range m.consumers {
		for _, u := range d.uses {
			all = append(all, Credit{d.Tag, u.tag, d.Handler})
		}
	}
	return all
}

// Letters are the numbers of the dead letters held, oldest first.
func (m *Model) Letters() []uint64 {
	var all []uint64
	for _, l := range m.letters {
		all = append(all, l.Number)
	}
	return all
}
