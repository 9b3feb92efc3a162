package simulation

// QueueOp is one operation of a history, as Jepsen's total-queue sees it.
type QueueOp struct {
	Type  OpType
	Value string
	// Values is what an ok drain took.
	Values []string
}

// OpType is which operation, and how it ended.
type OpType uint8

// The operations.
const (
	EnqueueInvoke OpType = iota // whatever happened next
	EnqueueOK
	EnqueueFail // certainly not done
	EnqueueInfo // nobody knows
	DequeueOK
	DrainOK   // Values
	DrainInfo // crashed: nobody knows what it took
)

// TotalQueue is the verdict of Jepsen's checker total-queue on a history that
// drains the queue (jepsen/src/jepsen/checker.clj at c4c7473d). All sets are
// multisets; the counts are of elements.
type TotalQueue struct {
	Attempts     int `json:"attempt_count"`
	Acknowledged int `json:"acknowledged_count"`
	OK           int `json:"ok_count"`
	Unexpected   int `json:"unexpected_count"`
	Duplicated   int `json:"duplicated_count"`
	Lost         int `json:"lost_count"`
	Recovered    int `json:"recovered_count"`
	// Valid: nothing lost and nothing unexpected. Duplicates do not count: at least
	// once passes.
	Valid bool `json:"valid"`

	LostValues       map[string]int `json:"lost,omitempty"`
	UnexpectedValues map[string]int `json:"unexpected,omitempty"`
}

// CheckTotalQueue judges a history. The bool is false when a drain crashed: then
// nobody knows what was taken, and there is no verdict.
func CheckTotalQueue(history []QueueOp) (TotalQueue, bool) {
	// One value's multiplicities in A, E and D.
	type counts struct {
		value                         string
		attempted, enqueued, dequeued int
	}
	byValue := make(map[string]int, len(history)/2)
	all := make([]counts, 0, len(history)/2)
	of := func(v string) *counts { // valid until the next call
		i, known := byValue[v]
		if !known {
			i = len(all)
			byValue[v], all = i, append(all, counts{value: v})
		}
		return &all[i]
	}
	for _, op := range history {
		switch op.Type {
		case EnqueueInvoke:
			of(op.Value).attempted++
		case EnqueueOK:
			of(op.Value).enqueued++
		case DequeueOK:
			of(op.Value).dequeued++
		case DrainOK:
			for _, v := range op.Values {
				of(v).dequeued++
			}
		case DrainInfo:
			return TotalQueue{}, false
		}
	}
	var t TotalQueue
	for i := range all {
		v, a, e, d := all[i].value, all[i].attempted, all[i].enqueued, all[i].dequeued
		ok := min(d, a)
		t.Attempts += a
		t.Acknowledged += e
		t.OK += ok
		t.Recovered += max(0, ok-e)
		if lost := e - d; lost > 0 {
			t.Lost += lost
			t.LostValues = noted(t.LostValues, v, lost)
		}
		switch {
		case d > 0 && a == 0:
			t.Unexpected += d
			t.UnexpectedValues = noted(t.UnexpectedValues, v, d)
		case d > a:
			t.Duplicated += d - a
		}
	}
	t.Valid = t.Lost == 0 && t.Unexpected == 0
	return t, true
}

func noted(m map[string]int, value string, n int) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	m[value] = n
	return m
}
