package supervisor_test

import (
	"fmt"
	"math"
	"time"

	"github.com/postroom/postroom/supervisor"
)

// A worker fails three times in a row and gets longer and longer waits; the draw is
// the highest here, so that they are the bounds. Then it stops.
func ExamplePolicy_Decide() {
	policy := supervisor.Policy{Base: time.Second, MaxFailures: 3}
	var history supervisor.History
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for {
		d := policy.Decide(&history, now, math.MaxUint64)
		if !d.Restart {
			fmt.Println("stop at failure", d.Failures)
			break
		}
		fmt.Println("restart after", d.After)
		now = now.Add(d.After)
	}

	// Output:
	// restart after 1s
	// restart after 2s
	// restart after 4s
	// stop at failure 4
}
