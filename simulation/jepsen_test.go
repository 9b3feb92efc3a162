package simulation

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The cases are those of jepsen's checker_test.clj (total-queue), and one for each
// fact of SIMULATION 1.1 that people get wrong.
func TestTotalQueueIsJepsens(t *testing.T) {
	invoke := func(v string) QueueOp { return QueueOp{Type: EnqueueInvoke, Value: v} }
	ok := func(v string) QueueOp { return QueueOp{Type: EnqueueOK, Value: v} }
	out := func(v string) QueueOp { return QueueOp{Type: DequeueOK, Value: v} }
	for _, test := range []struct {
		name    string
		history []QueueOp
		want    TotalQueue
	}{
		{"empty", nil, TotalQueue{Valid: true}},
		{"sane", []QueueOp{invoke("1"), invoke("2"), ok("2"), out("1"), out("2")},
			TotalQueue{Attempts: 2, Acknowledged: 1, OK: 2, Recovered: 1, Valid: true}},
		{"pathological", []QueueOp{
			invoke("hung"), invoke("enqueued"), ok("enqueued"), invoke("dup"), ok("dup"), out("wtf"), out("dup"), out("dup"),
		}, TotalQueue{
			Attempts: 3, Acknowledged: 2, OK: 1, Lost: 1, Unexpected: 1, Duplicated: 1,
			LostValues: map[string]int{"enqueued": 1}, UnexpectedValues: map[string]int{"wtf": 1},
		}},
		{"duplicates are valid", []QueueOp{invoke("a"), ok("a"), out("a"), out("a"), out("a")},
			TotalQueue{Attempts: 1, Acknowledged: 1, OK: 1, Duplicated: 2, Valid: true}},
		{"multisets, not sets", []QueueOp{invoke("a"), ok("a"), invoke("a"), ok("a"), out("a")},
			TotalQueue{Attempts: 2, Acknowledged: 2, OK: 1, Lost: 1, LostValues: map[string]int{"a": 1}}},
		{"an unknown put that never came out is not lost", []QueueOp{invoke("a"), {Type: EnqueueInfo, Value: "a"}},
			TotalQueue{Attempts: 1, Valid: true}},
		{"a failed put that comes out is not unexpected: it was tried", []QueueOp{invoke("a"), {Type: EnqueueFail, Value: "a"}, out("a")},
			TotalQueue{Attempts: 1, OK: 1, Recovered: 1, Valid: true}},
		{"a drain is one dequeue per element", []QueueOp{invoke("a"), ok("a"), invoke("b"), ok("b"), {Type: DrainOK, Values: []string{"b", "a"}}},
			TotalQueue{Attempts: 2, Acknowledged: 2, OK: 2, Valid: true}},
		{"unexpected twice counts twice", []QueueOp{out("x"), out("x")},
			TotalQueue{Unexpected: 2, UnexpectedValues: map[string]int{"x": 2}}},
		{"order does not matter", []QueueOp{out("a"), ok("a"), invoke("a")},
			TotalQueue{Attempts: 1, Acknowledged: 1, OK: 1, Valid: true}},
	} {
		got, decided := CheckTotalQueue(test.history)
		assert.True(t, decided, test.name)
		assert.Equal(t, test.want, got, test.name)
	}
	_, decided := CheckTotalQueue([]QueueOp{invoke("a"), {Type: DrainInfo}})
	assert.False(t, decided, "nobody knows what a crashed drain took")
}
