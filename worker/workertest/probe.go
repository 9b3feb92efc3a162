package workertest

import (
	"context"
	"time"

	"github.com/postroom/postroom/worker"
)

// Point is a boundary at which a crash shows what a worker's promise is worth.
type Point string

// The points. Nothing is stored at BeforeCommit, all of it at AfterCommit; at
// BeforeMark an outbox has sent what it has not yet marked.
const (
	BeforeCommit Point = "before commit"
	AfterCommit  Point = "after commit"
	BeforeMark   Point = "after send, before mark"
)

// Points lists them all.
var Points = [...]Point{BeforeCommit, AfterCommit, BeforeMark}

// probe is a store that tells of its boundaries.
type probe[T any] struct {
	worker.Store[T]
	at func(Point)
}

// Probe returns the store with at called at each [Point], on the goroutine that is
// there. To crash, at panics, or kills its own process. It is called for every
// transaction, those of an outbox's claims and marks too.
func Probe[T any](store worker.Store[T], at func(Point)) worker.Store[T] {
	return &probe[T]{store, at}
}

func (p *probe[T]) Transact(ctx context.Context, fn func(tx T) error) error {
	err := p.Store.Transact(ctx, func(tx T) error {
		err := fn(tx)
		if err == nil {
			p.at(BeforeCommit)
		}
		return err
	})
	if err == nil {
		p.at(AfterCommit)
	}
	return err
}

func (p *probe[T]) SettleIntents(ctx context.Context, tx T, claim string, now time.Time, results []worker.Settled) (int, error) {
	p.at(BeforeMark)
	return p.Store.SettleIntents(ctx, tx, claim, now, results)
}
