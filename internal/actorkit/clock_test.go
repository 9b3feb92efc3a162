package actorkit

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The wall clock is carried on by the monotonic one: nobody can tell by either.
func TestK3_NowIsTheMachinesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReal(RealConfig{})
		defer r.Close()
		for _, pause := range []time.Duration{0, 1, wallFor - 2, 1, wallFor, 100 * wallFor, 24 * time.Hour} {
			time.Sleep(pause)
			assert.Equal(t, time.Now().String(), r.Now().String(), "both readings, %v later", pause)
		}
	})
}

// No goroutine sees a time before one that it has seen, nor one out of step with the
// machine's.
func TestK3_NowNeverRunsBack(t *testing.T) {
	r := NewReal(RealConfig{})
	defer r.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			last := time.Now()
			for i := range 20_000 {
				if i%100 == 0 {
					r.wall.Store(nil) // as when a second is over
				}
				now := r.Now()
				if after := time.Now(); now.Before(last) || now.After(after) {
					t.Errorf("%v is not between %v and %v", now, last, after)
					return
				}
				last = now
			}
		})
	}
	all.Wait()
}
