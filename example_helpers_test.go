package postroom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// virtually opens a broker and runs an example on virtual time: hours in it take
// no time, and it prints the same lines every time. It is simulation.Run with an
// open broker; outside of examples and tests it would be postroom.Open.
//
// w.Sleep lets time pass, and w.Idle waits, without letting time pass, until all
// that was set in motion has arrived.
func virtually(example func(ctx context.Context, w *simulation.World, broker *postroom.Broker)) {
	err := simulation.Run(1, func(w *simulation.World) {
		example(context.Background(), w, w.MustOpen())
	})
	if err != nil {
		fmt.Println(err)
	}
}

// seconds is the virtual time since the example began.
func seconds(w *simulation.World) string {
	return fmt.Sprintf("%4.1fs", w.Now().Sub(simulation.Epoch).Seconds())
}

// reason reads why a message died from an event on $sys.dead.<queue>.
func reason(e *postroom.Event) string {
	var notice postroom.DeathNotice
	if err := json.Unmarshal(e.Body, &notice); err != nil {
		return err.Error()
	}
	return notice.Reason
}

// message is an envelope with an id and a short body.
func message(id string) postroom.Envelope {
	return postroom.Envelope{ID: id, Body: []byte("body of " + id)}
}

// noon is when some examples' deadlines are.
var noon = simulation.Epoch.Add(12 * time.Hour)
