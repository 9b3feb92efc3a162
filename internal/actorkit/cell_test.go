package actorkit

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/messages"
)

func TestCellAnswersOnce(t *testing.T) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	cell := rt.NewCell()
	ref := cell.Ref()
	assert.True(t, ref.Waiting())
	assert.True(t, ref.Resolve(messages.Answer{N: 1}))
	assert.False(t, ref.Waiting())
	assert.False(t, ref.Resolve(messages.Answer{N: 2}))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	answer, err := cell.Wait(ended)
	require.NoError(t, err, "an answer that is there wins over an ended context")
	assert.Equal(t, messages.Answer{N: 1}, answer)
	assert.False(t, ref.Resolve(messages.Answer{N: 3}), "a late answer reaches nobody")
}

func TestAbandonedCellIsRecycledByItsResolver(t *testing.T) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	cause := errors.New("had enough")
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	cell := rt.NewCell()
	ref := cell.Ref()
	_, err := cell.Wait(ended)
	require.ErrorIs(t, err, cause)
	assert.False(t, ref.Waiting())
	assert.False(t, ref.Resolve(messages.Answer{N: 1}))
	assert.NotEqual(t, ref.Generation, cell.Ref().Generation, "ready for the next one")
	assert.False(t, ref.Resolve(messages.Answer{N: 2}))
	assert.True(t, cell.Ref().Waiting())

	cell = rt.NewCell()
	ref = cell.Ref()
	cell.Abandon()
	assert.False(t, ref.Waiting())
	assert.False(t, ref.Resolve(messages.Answer{}))
}

// Resolvers race with each other and with the end of the context. Nobody may get
// another's answer, and nobody may be left waiting.
func TestCellsUnderFire(t *testing.T) {
	rt := NewReal(RealConfig{})
	defer rt.Close()
	var waiters sync.WaitGroup
	for w := range int64(4) {
		waiters.Go(func() {
			var others sync.WaitGroup
			for i := range int64(3000) {
				want := w*1_000_000 + i
				cell := rt.NewCell()
				ref := cell.Ref()
				ctx, cancel := context.WithCancel(context.Background())
				resolved := make(chan int, 2)
				for range 2 {
					others.Go(func() {
						if i%2 == 0 {
							runtime.Gosched()
						}
						n := 0
						if ref.Resolve(messages.Answer{N: want}) {
							n = 1
						}
						resolved <- n
					})
				}
				if i%3 == 0 {
					others.Go(cancel)
				}
				answer, err := cell.Wait(ctx)
				if n := <-resolved + <-resolved; (err == nil) != (n == 1) {
					t.Errorf("err %v, but %d resolvers were told that somebody waited", err, n)
				}
				if err == nil && answer.N != want {
					t.Errorf("got the answer %d, want %d", answer.N, want)
				}
				cancel()
			}
			others.Wait()
		})
	}
	waiters.Wait()
}

func TestConfirmedCallsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops things on purpose under the race detector")
	}
	eachExecutor(t, func(t *testing.T, s *System) {
		a := mustSpawn(t, s, spec("a", echo()))
		m := &ask{}
		for name, send := range map[string]func(any){"call": a.Call, "send": a.Send} {
			ctx := t.Context()
			allocs := testing.AllocsPerRun(2000, func() {
				cell := s.Runtime().NewCell()
				m.Reply = cell.Ref()
				send(m)
				if _, err := cell.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
			assert.Zero(t, allocs, name)
		}
		stopAndWait(t, s, a)
	})
}
