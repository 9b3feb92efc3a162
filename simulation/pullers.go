package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
)

// pullEvery is how long one Get of a puller waits: many end without a message, and
// some in the very instant in which one is handed over.
const pullEvery = 700 * time.Millisecond

// pullerRestart is how long a crashed puller is away.
const pullerRestart = 200 * time.Millisecond

// Pullers adds up to n workers, name-1 to name-n, that take their messages one by one
// with [postroom.Session.Get] instead of consuming, and settle them themselves. Their
// faults are those of workers.
func (w *World) Pullers(name string, n int, q *Queue, mode Mode, config postroom.GetConfig) {
	l := w.describing("Pullers")
	if mode.kind == modeBubble || mode.kind == modeReal {
		panic(fmt.Sprintf("simulation: pullers %q must be Script or Inline", name))
	}
	w.Workers(name, n, q, mode, postroom.ConsumerConfig{})
	p := l.pools[len(l.pools)-1]
	p.pull = &config
}

// startPuller begins a new incarnation of a worker that pulls.
func (k *worker) startPuller() {
	l := k.lab
	k.alive = true
	k.incarnation++
	k.down = 0
	incarnation := k.incarnation
	// A session of its own: its leases are not those of the incarnation before.
	session, err := l.broker.Session(fmt.Sprintf("%s'%d", k.name, incarnation))
	if err != nil {
		l.fail(err)
		return
	}
	k.holder = fmt.Sprintf("session %s'%d", k.name, incarnation)
	l.byConsumer[k.holder] = k
	e := k.event(KindAttach)
	e.Consumer = k.holder
	k.emit(e)
	l.pulling++
	l.rt.Go("puller "+k.name, func() {
		defer func() { l.pulling--; l.poke() }()
		for k.alive && k.incarnation == incarnation && !l.over && !l.ending {
			k.pullOne(session)
		}
		if !l.over {
			_ = session.Close(context.Background())
		}
	})
}

// pullOne is one Get and the work on what it brings.
func (k *worker) pullOne(session *postroom.Session) {
	l := k.lab
	ctx, cancel := l.rt.WithTimeout(context.Background(), pullEvery)
	k.waiting = true
	d, err := session.Get(ctx, k.pool.queue.name, *k.pool.pull)
	k.waiting = false
	cancel()
	if l.over {
		return
	}
	if err != nil {
		if errors.Is(err, postroom.ErrNotFound) || errors.Is(err, postroom.ErrEmpty) || errors.Is(err, postroom.ErrQueueClosed) {
			l.sleep(pullEvery)
		}
		return
	}
	crashed, why := k.work(d)
	if crashed {
		k.alive = false
		_ = session.Close(context.Background())
		l.sleep(pullerRestart)
		k.restarts++
		if !l.ending && !l.over {
			k.startPuller()
		}
		return
	}
	for range putTriesMax {
		err := settleByHand(d, why) // a stale one is an event of its own
		var outcome *postroom.OutcomeError
		if !errors.As(err, &outcome) {
			return
		}
		// Nobody knows whether it was done, and to do it again is harmless. Without that a
		// lease that lasts as long as its holder would stay.
	}
}

func settleByHand(d *postroom.Delivery, why error) error {
	ctx := context.Background()
	switch {
	case why == nil:
		return d.Ack(ctx)
	case messages.IsPermanent(why):
		return d.Reject(ctx, why)
	}
	return d.Nack(ctx, why)
}

// work is handle for a puller: a crash costs it its incarnation.
func (k *worker) work(d *postroom.Delivery) (crashed bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			crashed = true
		}
	}()
	return false, k.handle(context.Background(), d)
}
