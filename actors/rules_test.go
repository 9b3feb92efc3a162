package actors_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// broken is a ledger with a bug: it panics when time passes, or says that its
// invariants do not hold.
type broken struct {
	*ledger.Ledger
	breaks    *bool
	invariant *error
	panics    *int
}

func (l broken) HandOver(now time.Time) { l.check(); l.Ledger.HandOver(now) }
func (l broken) Tick(now time.Time)     { l.check(); l.Ledger.Tick(now) }

func (l broken) check() {
	if *l.breaks {
		*l.panics++
		panic("a bug in the rules")
	}
}

func (l broken) CheckInvariants() error {
	if *l.invariant != nil {
		return *l.invariant
	}
	return l.Ledger.CheckInvariants()
}

func withBroken(breaks *bool, invariant *error, panics *int) postroom.Option {
	return postroom.WithLedger(func(s *messages.Source, c *messages.QueueConfig, at time.Time, o ledger.Options) actors.Ledger {
		return broken{ledger.New(s, c, at, o), breaks, invariant, panics}
	})
}

// A bug that strikes again at every restart must not keep the queue crashing for
// ever: after a few it is quarantined, whatever it was that struck first.
func TestS3_ACrashThatComesBackAtEachRestartIsQuarantined(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		breaks, invariant, panics := false, error(nil), 0
		b := s.broker(withBroken(&breaks, &invariant, &panics))
		declare(t, b, "jobs", quick)
		quarantined := events(t, b, "$sys.quarantined.*")
		put(t, b, "jobs", "a")
		err := errWork
		s.beside(func() { err = b.Drain(ctx, "jobs") })
		s.Idle()
		breaks = true
		_, purge := b.Purge(ctx, "jobs")
		assert.Error(t, purge)
		s.sleep(time.Minute)
		assert.LessOrEqual(t, panics, 5)
		assert.Len(t, quarantined.all(), 1)
		assert.ErrorIs(t, err, postroom.ErrQuarantined)
		f := stats(t, b, "jobs")
		assert.True(t, f.Quarantined)
		assert.Equal(t, 1, f.Ready)
		_, err = b.DeleteQueue(ctx, "jobs")
		require.NoError(t, err)
	})
}

// So is a queue that crashes on being trimmed: its timer event comes again and again.
func TestS3_AQueueThatCannotBeTrimmedIsQuarantined(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		panics := 0
		b := s.broker(postroom.WithLedger(func(s *messages.Source, c *messages.QueueConfig, at time.Time, o ledger.Options) actors.Ledger {
			return untrimmable{ledger.New(s, c, at, o), &panics}
		}))
		declare(t, b, "jobs", postroom.QueueConfig{NoTimeout: true})
		put(t, b, "jobs", "a")
		d, err := b.Get(ctx, "jobs", postroom.GetConfig{})
		require.NoError(t, err)
		require.NoError(t, d.Ack(ctx))
		s.sleep(time.Hour)
		assert.Equal(t, 3, panics)
		assert.True(t, stats(t, b, "jobs").Quarantined)
	})
}

type untrimmable struct {
	actors.Ledger
	panics *int
}

func (u untrimmable) Trim() {
	*u.panics++
	panic("cannot be trimmed")
}

// Invariants are checked on restart; a queue that fails them does no more harm.
func TestS3_AQueueThatFailsItsInvariantsAfterACrashIsQuarantined(t *testing.T) {
	eachSeed(t, 10, func(s *sim) {
		n, x := &notices{}, &bomb{}
		breaks, invariant, panics := false, error(nil), 0
		b := s.broker(withBroken(&breaks, &invariant, &panics), postroom.WithProbe(x.probe), postroom.WithListener(n.listen))
		declare(t, b, "jobs", quick)
		quarantined := events(t, b, "$sys.quarantined.*")
		put(t, b, "jobs", "a")
		x.arm("queue jobs after *actors.Put", 1)
		_, err := b.Put(ctx, "jobs", postroom.Envelope{})
		unknown(t, err)
		put(t, b, "jobs", "b") // they held
		invariant = errWork
		x.arm("queue jobs after *actors.Put", 1)
		_, err = b.Put(ctx, "jobs", postroom.Envelope{})
		unknown(t, err)
		_, err = b.Put(ctx, "jobs", postroom.Envelope{})
		assert.ErrorIs(t, err, postroom.ErrQuarantined)
		s.Idle()
		assert.Len(t, quarantined.all(), 1)
		told := of[messages.Quarantined](n)
		require.Len(t, told, 1)
		assert.ErrorIs(t, told[0].Reason, errWork)
	})
}

// The router crashes on the announcement of a quarantine: that one is lost, counted
// nowhere but in the queue, which is quarantined all the same.
func TestS3_ALostAnnouncementOfAQuarantineIsCounted(t *testing.T) {
	eachSeed(t, 5, func(s *sim) {
		x := &bomb{}
		b := s.broker(postroom.WithProbe(x.probe))
		declare(t, b, "jobs", quick)
		quarantined := events(t, b, "$sys.#")
		for i := range 3 {
			_, err := b.Put(ctx, "jobs", postroom.Envelope{Delay: time.Duration(i+1) * time.Second})
			require.NoError(t, err)
		}
		x.arm("queue jobs before *actors.ring", 3)
		s.beside(func() {
			s.sleep(2500 * time.Millisecond)
			x.then = "router before *router.Announce"
			x.left = 1
		})
		s.sleep(time.Minute)
		assert.Empty(t, quarantined.all())
		assert.True(t, stats(t, b, "jobs").Quarantined)
		assert.EqualValues(t, 1, stats(t, b, "jobs").LostNotices)
	})
}
