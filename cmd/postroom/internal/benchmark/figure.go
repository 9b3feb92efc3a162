package benchmark

import "slices"

// Figure is what was found for one case, over all its rounds.
type Figure struct {
	// Key is unique: group, case and executor, with slashes.
	Key      string `json:"key"`
	Group    string `json:"group"`
	Case     string `json:"case"`
	Executor string `json:"executor"`
	Unit     string `json:"unit"`

	Value Range `json:"value"`
	// Floor names what Ratio compares with, measured just before each round; empty
	// where a comparison would mean nothing.
	Floor      string `json:"floor,omitempty"`
	FloorValue *Range `json:"floor_value,omitempty"`
	Ratio      *Range `json:"ratio,omitempty"`

	// Backlog is the most messages that were put and not handled.
	Backlog int64 `json:"deepest_backlog"`
	// PerWakeUp is how many messages each wake-up of the queue served. 0: its turns
	// ran on the caller, or the case has no flow of messages.
	PerWakeUp float64 `json:"messages_per_wake_up"`
	CallerRan bool    `json:"ran_on_the_caller,omitempty"`

	// Allocs and Bytes are allocated for each message, the least of all rounds: what
	// a round has more than that is the runtime's own. Negative: not counted.
	Allocs float64 `json:"allocs"`
	Bytes  float64 `json:"bytes"`

	// More are further figures of the same rounds, by name.
	More []Named `json:"more,omitempty"`
	// Error says why the case has no figure, or fewer rounds.
	Error  string `json:"error,omitempty"`
	Rounds int    `json:"rounds"`

	values []float64 // of the rounds, for ratios between cases
}

// Range is a median and what lies around it.
type Range struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Named is one further figure.
type Named struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Value Range  `json:"value"`
}

func rangeOf(values []float64) Range {
	if len(values) == 0 {
		return Range{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (median + sorted[middle-1]) / 2
	}
	return Range{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// divide returns the range of the quotients of two cases, round by round.
func divide(a, b []float64) Range {
	quotients := make([]float64, min(len(a), len(b)))
	for i := range quotients {
		quotients[i] = a[i] / b[i]
	}
	return rangeOf(quotients)
}

// more returns the further figure of that name.
func (f *Figure) more(name string) (Range, bool) {
	for _, n := range f.More {
		if n.Name == name {
			return n.Value, true
		}
	}
	return Range{}, false
}
