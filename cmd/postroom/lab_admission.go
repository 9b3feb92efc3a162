package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// Figures of the admission story (L): buffering does not create capacity.
const (
	arrivalsPerSecond = 120
	workPerSecond     = 100
	admissionBound    = 400 // ready, delayed and leased
	admissionSeconds  = 30
)

// admissionRow is one second of the story.
type admissionRow struct {
	second             int
	depth              int // ready + leased
	oldest             time.Duration
	completed, refused int // in this second
}

// admissionStory lets 120 jobs a second arrive where 100 are done, on virtual time.
func admissionStory() (rows []admissionRow, err error) {
	err = simulation.Run(1, func(w *simulation.World) {
		ctx, broker := context.Background(), w.MustOpen()
		check(broker.DeclareQueue(ctx, "jobs", postroom.QueueConfig{MaxMessages: admissionBound}))
		// Ten workers, a tenth of a second each.
		must(broker.Consume(ctx, "jobs", func(ctx context.Context, _ *postroom.Delivery) error {
			return broker.Sleep(ctx, 10*time.Second/workPerSecond)
		}, postroom.ConsumerConfig{Concurrency: 10, Prefetch: 10}))

		refused, before := 0, uint64(0)
		for second := 1; second <= admissionSeconds; second++ {
			for i := range arrivalsPerSecond {
				_, err := broker.Put(ctx, "jobs", postroom.Envelope{ID: fmt.Sprintf("job-%d-%d", second, i)})
				if errors.Is(err, postroom.ErrQueueFull) {
					refused++ // the overload response: the caller hears of it at once
				} else {
					check(err)
				}
				begin := simulation.Epoch.Add(time.Duration(second-1) * time.Second)
				next := begin.Add(time.Duration(i+1) * time.Second / arrivalsPerSecond)
				w.Sleep(next.Sub(w.Now()))
			}
			s := must(broker.QueueStats(ctx, "jobs"))
			rows = append(rows, admissionRow{second, s.Ready + s.Leased, s.OldestAge, int(s.Acks - before), refused})
			refused, before = 0, s.Acks
		}
	})
	return rows, err
}

func (l *lab) admission(context.Context) error {
	l.title(fmt.Sprintf("admission: %d arrivals a second, work for %d, a bound of %d, on virtual time", arrivalsPerSecond, workPerSecond, admissionBound))
	rows, err := admissionStory()
	if err != nil {
		return err
	}
	admissionChart(l.out, rows)
	// From the second to the seventeenth second: then workers are busy and there is room.
	growth := float64(rows[16].depth-rows[1].depth) / 15
	last := rows[len(rows)-1]
	l.fact("growth a second while there is room", int64(math.Round(growth)), arrivalsPerSecond-workPerSecond)
	l.fact("completed a second, before and at the bound", int64(last.completed), workPerSecond)
	l.fact("refused a second at the bound", int64(last.refused), arrivalsPerSecond-workPerSecond)
	return nil
}

// admissionChart draws every third second.
func admissionChart(out io.Writer, rows []admissionRow) {
	const width = 30
	fmt.Fprintf(out, "   %6s %6s  %-*s %8s %7s %8s\n", "second", "depth", width, "", "oldest", "done/s", "refused")
	for _, r := range rows {
		if r.second%3 != 0 {
			continue
		}
		bar := strings.Repeat("█", r.depth*width/admissionBound)
		fmt.Fprintf(out, "   %6d %6d  %s%s %7.1fs %7d %8d\n", r.second, r.depth, bar, strings.Repeat("·", width-r.depth*width/admissionBound),
			r.oldest.Seconds(), r.completed, r.refused)
	}
}
