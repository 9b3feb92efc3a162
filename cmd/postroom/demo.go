package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Five short stories of what a broker does, on virtual time",
		Long: `Demo tells five stories with the broker itself, on a clock that jumps: an hour's
lease takes no time. It checks each fact that it prints; one that is off is marked,
and the exit status is 1.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !tour(a.stdout) {
				a.status = exitDied
			}
			return nil
		},
	}
}

// story is one part of the tour: what it shows, and a run that shows it.
type story struct {
	title string
	about string
	tell  func(*teller)
}

var stories = []story{
	{"A lease is a loan", `Sam borrows a book for ten seconds and forgets it. When the loan is over the book
goes to Kim, and Sam's late return changes nothing.`, library},
	{"The sorting room", `A queue, a notice board, and a message refused for good: the board hears of its
death before the refusal is answered.`, sortingRoom},
	{"Try again, a little later", `A shaky service fails twice. The waits double: one second, then two.`, backoff},
	{"A worker crashes", `A handler panics. Nobody answers for its message, so the lease runs out; the
supervisor has long restarted the worker, which gets it again.`, crashedWorker},
	{"Second chance for the dead", `Three orders are rejected because of a bug. With the bug fixed they are redriven, one
a second, as if they were new.`, redrive},
}

// tour tells all stories and reports whether every fact was as it should be.
func tour(out io.Writer) bool {
	began := time.Now()
	var virtual time.Duration
	wrong := 0
	for i, s := range stories {
		fmt.Fprintf(out, "%d. %s\n%s\n\n", i+1, s.title, indent(s.about))
		t := &teller{out: out}
		err := simulation.Run(uint64(i+1), func(w *simulation.World) {
			t.world, t.began = w, w.Now()
			s.tell(t)
			virtual += w.Now().Sub(t.began)
		})
		if err != nil {
			t.wrong++
			fmt.Fprintf(out, "   ✗ %v\n", err)
		}
		fmt.Fprintln(out)
		wrong += t.wrong
	}
	fmt.Fprintf(out, "%d stories, %s of virtual time in %s: ", len(stories), virtual, time.Since(began).Round(time.Millisecond))
	if wrong > 0 {
		fmt.Fprintf(out, "%d facts are off.\n", wrong)
		return false
	}
	fmt.Fprintln(out, "every fact as it should be.")
	return true
}

func indent(text string) string {
	out := []byte("   ")
	for _, b := range []byte(text) {
		if out = append(out, b); b == '\n' {
			out = append(out, "   "...)
		}
	}
	return string(out)
}

// teller prints what happens in one story, with its virtual time, and checks it.
type teller struct {
	out   io.Writer
	world *simulation.World
	began time.Time

	mu    sync.Mutex
	wrong int
}

// fact prints what was found, and what it should have been when that is not the same.
func (t *teller) fact(want, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	got := fmt.Sprintf(format, args...)
	fmt.Fprintf(t.out, "   %5s  %s\n", "+"+t.world.Now().Sub(t.began).Round(time.Second).String(), got)
	if got != want {
		t.wrong++
		fmt.Fprintf(t.out, "        ✗ should be: %s\n", want)
	}
}

// must is for what cannot go wrong in a simulation: Run reports the panic.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func library(t *teller) {
	ctx, broker := context.Background(), t.world.MustOpen()
	check(broker.DeclareQueue(ctx, "library", postroom.QueueConfig{AckTimeout: 10 * time.Second}))
	borrow := func(held *[]*postroom.Delivery) postroom.Handler {
		return func(_ context.Context, d *postroom.Delivery) error {
			*held = append(*held, d)
			return nil
		}
	}
	var sam, kim []*postroom.Delivery
	manual := postroom.ConsumerConfig{Manual: true}
	must(broker.Consume(ctx, "library", borrow(&sam), manual))
	must(broker.Consume(ctx, "library", borrow(&kim), manual))
	must(broker.Put(ctx, "library", postroom.Envelope{ID: "book-1", Body: []byte("Dragon Book")}))
	t.world.Idle()

	t.fact("sam holds: [Dragon Book] attempt 1", "sam holds: [%s] attempt %d", sam[0].Body, sam[0].Attempt)
	t.world.Sleep(12 * time.Second)
	t.fact("kim holds: [Dragon Book] attempt 2", "kim holds: [%s] attempt %d", kim[0].Body, kim[0].Attempt)
	t.fact("sam's late ack accepted? false", "sam's late ack accepted? %t", sam[0].Ack(ctx) == nil)
	t.fact("kim's ack accepted? true", "kim's ack accepted? %t", kim[0].Ack(ctx) == nil)
}

func sortingRoom(t *teller) {
	ctx, broker := context.Background(), t.world.MustOpen()
	check(broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{}))
	must(broker.Subscribe(ctx, "$sys.dead.*", func(sub string, e *postroom.Event) {
		var notice postroom.DeathNotice
		check(json.Unmarshal(e.Body, &notice))
		t.fact("sub-1 $sys.dead.jobs rejected", "%s %s %s", sub, e.Topic, notice.Reason)
	}))
	var got []*postroom.Delivery
	consumer := must(broker.Consume(ctx, "jobs", func(_ context.Context, d *postroom.Delivery) error {
		got = append(got, d)
		return nil
	}, postroom.ConsumerConfig{Manual: true}))
	t.fact("consumer: ctag-1", "consumer: %s", consumer.Tag)
	must(broker.Put(ctx, "jobs", postroom.Envelope{ID: "job-1", Body: []byte("resize photo")}))
	t.world.Idle()

	err := broker.Reject(ctx, "jobs", got[0].Tag, errors.New("bad file"))
	t.world.Idle() // the subscriber runs when it likes
	t.fact("nack accepted: true", "nack accepted: %t", err == nil)
	t.fact("dead letters: 1", "dead letters: %d", len(must(broker.DeadLetters(ctx, "jobs", 0, 10))))
	s := must(broker.Stats(ctx))
	t.fact("stats: BrokerStats(queues=1, subscriptions=1, bindings=0, binding_drops=0)",
		"stats: BrokerStats(queues=%d, subscriptions=%d, bindings=%d, binding_drops=%d)",
		s.Queues, s.Subscriptions, s.Bindings, s.BindingDrops)
}

func backoff(t *teller) {
	ctx, broker := context.Background(), t.world.MustOpen()
	// Without jitter, so that the waits can be read; leave it on where many retry.
	check(broker.DeclareQueue(ctx, "mail", postroom.QueueConfig{MaxAttempts: 5, BackoffBase: time.Second, NoJitter: true}))
	wants := []string{"attempt 1 failed: service unavailable", "attempt 2 failed: service unavailable", "attempt 3 sent"}
	must(broker.Consume(ctx, "mail", func(_ context.Context, d *postroom.Delivery) error {
		want := wants[d.Attempt-1]
		if d.Attempt < 3 {
			err := errors.New("service unavailable")
			t.fact(want, "attempt %d failed: %v", d.Attempt, err)
			return err
		}
		t.fact(want, "attempt %d sent", d.Attempt)
		return nil
	}, postroom.ConsumerConfig{}))
	start := t.world.Now()
	must(broker.Put(ctx, "mail", postroom.Envelope{ID: "mail-1", Body: []byte("hello")}))
	check(broker.Drain(ctx, "mail"))
	t.fact("done after 3s", "done after %s", t.world.Now().Sub(start))
	s := must(broker.QueueStats(ctx, "mail"))
	t.fact("nacks 2, acks 1, dead 0", "nacks %d, acks %d, dead %d", s.Nacks, s.Acks, s.Dead())
}

func crashedWorker(t *teller) {
	ctx := context.Background()
	restarted := false
	broker := t.world.MustOpen(postroom.WithListener(func(n postroom.Notice) {
		if r, ok := n.(messages.WorkerRestarted); ok && !restarted {
			restarted = true
			t.fact("worker of ctag-1 restarted", "worker of %s restarted", r.Consumer)
		}
	}))
	check(broker.DeclareQueue(ctx, "photos", postroom.QueueConfig{AckTimeout: 30 * time.Second}))
	must(broker.Consume(ctx, "photos", func(_ context.Context, d *postroom.Delivery) error {
		if d.Attempt == 1 {
			t.fact("attempt 1: panic: index out of range", "attempt %d: panic: %s", d.Attempt, "index out of range")
			panic("index out of range")
		}
		t.fact("attempt 2: resized", "attempt %d: resized", d.Attempt)
		return nil
	}, postroom.ConsumerConfig{}))
	start := t.world.Now()
	must(broker.Put(ctx, "photos", postroom.Envelope{ID: "photo-1", Body: []byte("beach.jpg")}))
	check(broker.Drain(ctx, "photos"))
	t.fact("done after 30s", "done after %s", t.world.Now().Sub(start))
	s := must(broker.QueueStats(ctx, "photos"))
	t.fact("expiries 1, acks 1, worker restarted: true", "expiries %d, acks %d, worker restarted: %t", s.Expiries, s.Acks, restarted)
}

func redrive(t *teller) {
	ctx, broker := context.Background(), t.world.MustOpen()
	check(broker.DeclareQueue(ctx, "orders", postroom.QueueConfig{}))
	fixed := false
	must(broker.Consume(ctx, "orders", func(_ context.Context, d *postroom.Delivery) error {
		if !fixed {
			return postroom.Permanent(errors.New("unknown currency"))
		}
		t.fact(d.ID+" shipped, attempt 1", "%s shipped, attempt %d", d.ID, d.Attempt)
		return nil
	}, postroom.ConsumerConfig{}))
	for i := range 3 {
		id := fmt.Sprintf("order-%d", i+1)
		must(broker.Put(ctx, "orders", postroom.Envelope{ID: id, Body: []byte("10 EUR")}))
	}
	t.world.Idle()
	letters := must(broker.DeadLetters(ctx, "orders", 0, 10))
	t.fact("dead letters: 3, the first: order-1 rejected: unknown currency",
		"dead letters: %d, the first: %s %s: %s", len(letters), letters[0].ID, letters[0].Reason, letters[0].Error)

	fixed = true
	r := must(broker.Redrive(ctx, "orders", postroom.RedriveConfig{Rate: 1}))
	t.world.Idle()
	t.fact("redriven: 3 moved, 0 skipped", "redriven: %d moved, %d skipped", r.Moved, r.Skipped)
	t.fact("dead letters: 0", "dead letters: %d", len(must(broker.DeadLetters(ctx, "orders", 0, 10))))
}
