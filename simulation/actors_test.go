package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
)

// crashAt is a world in which an actor crashes at the nth message behind an anchor: with
// restarts, deaths, redrives and the end of a queue, so that all actors have something
// to do.
func crashAt(anchor Kind, actor string, nth int) Spec {
	return Spec{Name: "actors", Build: func(w *World) {
		q := w.Queue("mail", postroom.QueueConfig{AckTimeout: time.Second, MaxAttempts: 2, BackoffBase: 100 * time.Millisecond})
		w.Workers("w", 2, q, Script(500*time.Millisecond, nil), postroom.ConsumerConfig{Prefetch: 2})
		w.Pullers("p", 1, q, Script(200*time.Millisecond, nil), postroom.GetConfig{})
		w.Produce("api", q, Every(200*time.Millisecond, 8), nil)
		w.At(OnStart("m1", 1), Fault{Kind: FaultCrash})
		w.At(OnStart("m2", 1), Fault{Kind: FaultReject})
		w.At(OnStart("m3", 1), Fault{Kind: FaultRestart})
		w.At(OnStart("m4", 1), Fault{Kind: FaultZombie})
		w.At(Anchor{Event: KindDead}, Fault{Kind: FaultRedrive})
		w.At(AtTime(1200*time.Millisecond), Fault{Kind: FaultDelete, Queue: "mail", For: 100 * time.Millisecond})
		w.At(Anchor{Event: anchor}, Fault{Kind: FaultActor, Point: actor, Count: nth})
		w.Calm(time.Hour, Drained(q))
	}}
}

// Issue 3: a crash of any broker actor at any message. Each kind is crashed at each of
// the messages it gets, and the model, the onlooker and the liveness rules must not mind.
func TestAnyActorMayCrashAtAnyMessage(t *testing.T) {
	crashed := map[string]map[string]bool{} // actor → points
	for _, actor := range pointActors {
		crashed[actor] = map[string]bool{}
		for _, anchor := range []Kind{KindQueue, KindAttach, KindAccepted, KindDead} {
			for nth := range 12 {
				s := crashAt(anchor, actor, nth)
				for seed := range uint64(3) {
					r := s.Run(seed)
					passes(t, &r)
					for _, e := range r.Events {
						if e.Kind == KindActor {
							words := strings.Fields(e.Detail)
							crashed[actor][strings.Join(words[len(words)-2:], " ")] = true
						}
					}
				}
			}
		}
		t.Log(actor, slices.Sorted(maps.Keys(crashed[actor])))
	}
	for actor, least := range map[string]int{"queue": 20, "router": 3, "consumer": 12, "consumers": 5, "queues": 4, "redrive": 4} {
		assert.GreaterOrEqual(t, len(crashed[actor]), least, "%s crashed at %v", actor, slices.Sorted(maps.Keys(crashed[actor])))
	}
}

// A crash counts for the actor that it strikes, and must come up in a campaign.
func TestCrashesOfActorsMustBeHit(t *testing.T) {
	for actor, hit := range map[string]string{
		"queue": HitQueueCrash, "router": HitRouterCrash, "consumer": HitConsumerCrash,
		"consumers": HitRoomCrash, "queues": HitRoomCrash, "redrive": HitRoomCrash,
	} {
		anchor := KindAttach
		if actor == "router" || actor == "redrive" {
			anchor = KindDead
		}
		r := crashAt(anchor, actor, 0).Run(1)
		passes(t, &r)
		assert.Equal(t, 1, r.Hits[hit], actor)
		assert.Contains(t, MustHit, hit)
	}
}

// The points of the catalogue are points that there are: of each of them the message
// comes up in the laboratory. One that is misspelt would never strike.
func TestActorPointsAreReached(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	reached := map[string]bool{}
	missing := func() int {
		n := 0
		for _, point := range ActorPoints {
			if !reached[point] {
				n++
			}
		}
		return n
	}
	specs := []Spec{Standard(), Wide()}
	for i := range specs {
		specs[i].NoEvents = true
		specs[i].probed = func(point string) {
			words := strings.Fields(point)
			reached[strings.Join(words[len(words)-2:], " ")] = true
		}
	}
	for seed := uint64(0); seed < 2000 && missing() > 0; seed++ {
		for _, s := range specs {
			s.run(Plan{Format: PlanFormat, Spec: s.Name, Seed: seed}, true)
		}
	}
	for _, point := range ActorPoints {
		assert.True(t, reached[point], "nobody comes to %q", point)
	}
}

func TestAFaultSaysWhereItStrikes(t *testing.T) {
	for _, c := range []struct {
		point, at string
		want      bool
	}{
		{"after *actors.Put", "queue mail after *actors.Put", true},
		{"after *actors.Put", "queue mail before *actors.Put", false},
		{"queue", "queue mail before *actors.Put", true},
		{"queue", "queues before *actors.queueClosed", false},
		{"consumer", "consumers before *messages.Cancel", false},
		{"consumer", "consumer ctag-1 before *actors.tick", true},
	} {
		f := Fault{Kind: FaultActor, Point: c.point}
		require.Equal(t, c.want, f.strikesAt(c.at), fmt.Sprint(c))
	}
}
