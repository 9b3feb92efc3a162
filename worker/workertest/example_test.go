package workertest_test

import (
	"context"
	"fmt"

	"github.com/postroom/postroom/worker"
	"github.com/postroom/postroom/worker/workertest"
)

// A crash at each boundary of a store, for one's own tests: here after the commit and
// before the ack.
func ExampleProbe() {
	store := workertest.NewMemory(nil)
	crashing := workertest.Probe(store, func(p workertest.Point) {
		if p == workertest.AfterCommit {
			panic("killed " + string(p))
		}
	})
	credit := func(s worker.Store[*workertest.Tx]) (applied bool, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		return worker.Apply(context.Background(), s, worker.Key{Operation: "credit", ID: "17"}, nil, func(tx *workertest.Tx) error {
			return tx.Add("account", 10)
		})
	}
	fmt.Println(credit(crashing))
	fmt.Println(credit(store))
	fmt.Println("balance:", store.Balance("account"))
	// Output:
	// false killed after commit
	// false <nil>
	// balance: 10
}
