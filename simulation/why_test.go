package simulation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// I25: each event names its cause. A touch is of the handler whose lease it keeps, or of
// the grant of one that waits for its worker; a stale settle is of who sent it.
func TestTouchesAndStaleSettlesHaveACause(t *testing.T) {
	touches, waiting, stale := 0, 0, 0
	for seed := range uint64(300) {
		r := Standard().Run(seed)
		for _, e := range r.Events {
			if e.Kind != KindTouch && e.Kind != KindStale {
				continue
			}
			require.Positive(t, e.Cause, "seed %d: %v", seed, e)
			by := r.Events[e.Cause-1]
			require.Equal(t, e.Message, by.Message, "seed %d: %v because of %v", seed, e, by)
			if e.Kind == KindStale {
				stale++
				continue
			}
			require.Equal(t, e.Tag, by.Tag, "seed %d: %v because of %v", seed, e, by)
			touches++
			if by.Kind == KindGrant {
				waiting++
			}
		}
	}
	assert.Positive(t, touches-waiting)
	assert.Positive(t, waiting)
	assert.Positive(t, stale)
}

// Why a lease runs longer than somebody expects: the slice leads from the touch by the
// handler to the put.
func TestWhyFollowsATouchToItsPut(t *testing.T) {
	s := one(func(w *World, _ *Queue) {
		w.Always("no lease lasts longer than 3 s", func(v View) error {
			if e := v.Event(); e.Kind == KindTouch && e.Deadline > 3*time.Second {
				return errors.New("the lease of " + e.Message + " goes on")
			}
			return nil
		})
	}, func(x *External) postroom.Handler {
		return func(ctx context.Context, d *postroom.Delivery) error { return Sleep(ctx, 10*time.Second) }
	}, postroom.ConsumerConfig{})
	r := s.Run(1)
	require.Len(t, r.Violations, 1)
	touch := r.Events[r.Violations[0].Event-2]
	require.Equal(t, KindTouch, touch.Kind)
	var chain []Kind
	for n := touch.Number; n > 0; n = r.Events[n-1].Cause {
		chain = append(chain, r.Events[n-1].Kind)
	}
	assert.Equal(t, []Kind{KindTouch, KindStart, KindGrant, KindAccepted, KindPut}, chain)
	assert.Contains(t, Explain(&r).String(), "start     m1#1 -> w-")
}
