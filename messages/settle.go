package messages

import (
	"context"
	"time"
	"unicode/utf8"
)

// Verb is what is done to a lease.
type Verb uint8

// The verbs of a settle. Touch is here because a stale touch counts like a stale
// ack (SPEC R10), although it settles nothing.
const (
	VerbAck     Verb = iota // done: the message is gone
	VerbNack                // failed: back, with the queue's own retry delay
	VerbNackIn              // failed: back after exactly the given delay
	VerbReject              // never again: dead at once
	VerbRelease             // interrupted: back, and no attempt is spent
	VerbTouch               // still working: the lease runs on
	verbs
)

// Verbs is how many verbs there are, for tables indexed by Verb.
const Verbs = int(verbs)

var verbNames = [Verbs]string{"ack", "nack", "nack_in", "reject", "release", "touch"}

func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "unknown verb"
}

// Settler carries out a delivery's verbs. The door implements it.
type Settler interface {
	SettleDelivery(ctx context.Context, s Settlement) (time.Time, error)
}

// Settlement is one verb for one lease.
type Settlement struct {
	Receipt Receipt
	Verb    Verb
	// Delay is for VerbNackIn (0 = ready now) and VerbTouch (0 = the queue's
	// AckTimeout; more = exactly that).
	Delay time.Duration
	// Error says why, for VerbNack, VerbNackIn and VerbReject. It is kept with the
	// message, cut at [ErrorBytesMax].
	Error string
}

// Ack finishes the delivery and removes the message (SPEC Q5).
//
// Errors: [*StaleError] when the lease is over; the message may then be in
// another's hands. [*OutcomeError] when ctx ended first: the ack may have
// happened, and repeating it is harmless.
func (d *Delivery) Ack(ctx context.Context) error {
	_, err := d.settle(ctx, Settlement{Verb: VerbAck})
	return err
}

// Nack gives the message back, to be tried again after the queue's retry delay
// (SPEC R1). cause may be nil. Errors as for [Delivery.Ack].
func (d *Delivery) Nack(ctx context.Context, cause error) error {
	_, err := d.settle(ctx, Settlement{Verb: VerbNack, Error: errorText(cause)})
	return err
}

// NackIn gives the message back, to be tried again after exactly delay; 0 means
// now, behind the other failed ones. Errors as for [Delivery.Ack], and
// [*ArgumentError] for a negative delay.
func (d *Delivery) NackIn(ctx context.Context, delay time.Duration, cause error) error {
	if delay < 0 {
		return &ArgumentError{Op: "nack", Argument: "delay", Problem: "must not be negative"}
	}
	_, err := d.settle(ctx, Settlement{Verb: VerbNackIn, Delay: delay, Error: errorText(cause)})
	return err
}

// Reject kills the message at once, with reason [Rejected] (SPEC Q6). Errors as
// for [Delivery.Ack].
func (d *Delivery) Reject(ctx context.Context, cause error) error {
	_, err := d.settle(ctx, Settlement{Verb: VerbReject, Error: errorText(cause)})
	return err
}

// Release gives the message back untried: no attempt is spent (SPEC R10). Errors
// as for [Delivery.Ack].
func (d *Delivery) Release(ctx context.Context) error {
	_, err := d.settle(ctx, Settlement{Verb: VerbRelease})
	return err
}

// Touch renews the lease to now + AckTimeout, never backwards, and answers the
// new deadline (SPEC Q7). Errors as for [Delivery.Ack].
func (d *Delivery) Touch(ctx context.Context) (time.Time, error) {
	return d.settle(ctx, Settlement{Verb: VerbTouch})
}

// TouchFor makes the lease end exactly at now + extension, which must be positive,
// clipped to the queue's MaxLease. Errors as for [Delivery.NackIn].
func (d *Delivery) TouchFor(ctx context.Context, extension time.Duration) (time.Time, error) {
	if extension <= 0 {
		return time.Time{}, &ArgumentError{Op: "touch", Argument: "extension", Problem: "must be more than zero"}
	}
	return d.settle(ctx, Settlement{Verb: VerbTouch, Delay: extension})
}

func (d *Delivery) settle(ctx context.Context, s Settlement) (time.Time, error) {
	s.Receipt = d.Receipt()
	if d.From == nil || d.From.Settler == nil {
		return time.Time{}, ErrNoDoor
	}
	return d.From.Settler.SettleDelivery(ctx, s)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return CutError(err.Error())
}

// CutError cuts an error text at [ErrorBytesMax] bytes, at a rune's edge.
func CutError(s string) string {
	if len(s) <= ErrorBytesMax {
		return s
	}
	cut := ErrorBytesMax
	// Inside a rune. What is still inside after three steps back is no text, and
	// looking on for an edge could cut all of it away.
	for cut > ErrorBytesMax-utf8.UTFMax+1 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
