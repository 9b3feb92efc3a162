package simulation

import (
	"sync"
	"time"

	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
)

// lockedTwin is a twin for mode Real, where queues run on goroutines of their own: one
// call at a time, under the laboratory's lock.
type lockedTwin struct {
	lab  *lab
	twin actors.Ledger
	sync.Locker
}

func (t *lockedTwin) lock() func() {
	t.Lock()
	t.lab.catchUp()
	return t.Unlock
}

// Put implements [actors.Ledger].
func (t *lockedTwin) Put(now time.Time, p *ledger.Put) (ledger.PutResult, error) {
	defer t.lock()()
	return t.twin.Put(now, p)
}

// Hasher implements [actors.Ledger]; it reads nothing that changes.
func (t *lockedTwin) Hasher() func(id string) uint32 { return t.twin.Hasher() }

// HandOver implements [actors.Ledger].
func (t *lockedTwin) HandOver(now time.Time) {
	defer t.lock()()
	t.twin.HandOver(now)
}

// Ack implements [actors.Ledger].
func (t *lockedTwin) Ack(now time.Time, tag uint64) error {
	defer t.lock()()
	return t.twin.Ack(now, tag)
}

// AckReturned implements [actors.Ledger].
func (t *lockedTwin) AckReturned(now time.Time, consumer string, tag uint64) bool {
	defer t.lock()()
	return t.twin.AckReturned(now, consumer, tag)
}

// Nack implements [actors.Ledger].
func (t *lockedTwin) Nack(now time.Time, tag uint64, errText string) error {
	defer t.lock()()
	return t.twin.Nack(now, tag, errText)
}

// NackIn implements [actors.Ledger].
func (t *lockedTwin) NackIn(now time.Time, tag uint64, d time.Duration, errText string) error {
	defer t.lock()()
	return t.twin.NackIn(now, tag, d, errText)
}

// Reject implements [actors.Ledger].
func (t *lockedTwin) Reject(now time.Time, tag uint64, errText string) error {
	defer t.lock()()
	return t.twin.Reject(now, tag, errText)
}

// Release implements [actors.Ledger].
func (t *lockedTwin) Release(now time.Time, tag uint64) error {
	defer t.lock()()
	return t.twin.Release(now, tag)
}

// Touch implements [actors.Ledger].
func (t *lockedTwin) Touch(now time.Time, tag uint64) (time.Time, error) {
	defer t.lock()()
	return t.twin.Touch(now, tag)
}

// TouchFor implements [actors.Ledger].
func (t *lockedTwin) TouchFor(now time.Time, tag uint64, d time.Duration) (time.Time, error) {
	defer t.lock()()
	return t.twin.TouchFor(now, tag, d)
}

// LeaseEnd implements [actors.Ledger].
func (t *lockedTwin) LeaseEnd(tag uint64) (issued bool, end messages.LeaseEnd) {
	defer t.lock()()
	return t.twin.LeaseEnd(tag)
}

// RefuseForeign implements [actors.Ledger].
func (t *lockedTwin) RefuseForeign(verb messages.Verb, r messages.Receipt) error {
	defer t.lock()()
	return t.twin.RefuseForeign(verb, r)
}

// Attach implements [actors.Ledger].
func (t *lockedTwin) Attach(now time.Time, c *ledger.Consumer) error {
	defer t.lock()()
	return t.twin.Attach(now, c)
}

// Detach implements [actors.Ledger].
func (t *lockedTwin) Detach(now time.Time, tag string) bool {
	defer t.lock()()
	return t.twin.Detach(now, tag)
}

// HolderEnded implements [actors.Ledger].
func (t *lockedTwin) HolderEnded(now time.Time, holder string) {
	defer t.lock()()
	t.twin.HolderEnded(now, holder)
}

// SetPrefetch implements [actors.Ledger].
func (t *lockedTwin) SetPrefetch(now time.Time, tag string, n int) bool {
	defer t.lock()()
	return t.twin.SetPrefetch(now, tag, n)
}

// Started implements [actors.Ledger].
func (t *lockedTwin) Started(now time.Time, tag uint64) {
	defer t.lock()()
	t.twin.Started(now, tag)
}

// Returned implements [actors.Ledger].
func (t *lockedTwin) Returned(now time.Time, consumer string, tag uint64) {
	defer t.lock()()
	t.twin.Returned(now, consumer, tag)
}

// Crashed implements [actors.Ledger].
func (t *lockedTwin) Crashed(now time.Time, tag uint64, errText string) {
	defer t.lock()()
	t.twin.Crashed(now, tag, errText)
}

// Want implements [actors.Ledger].
func (t *lockedTwin) Want(now time.Time, w *ledger.Waiter) {
	defer t.lock()()
	t.twin.Want(now, w)
}

// Unwant implements [actors.Ledger].
func (t *lockedTwin) Unwant(w *ledger.Waiter) bool {
	defer t.lock()()
	return t.twin.Unwant(w)
}

// Pause implements [actors.Ledger].
func (t *lockedTwin) Pause(now time.Time) {
	defer t.lock()()
	t.twin.Pause(now)
}

// Resume implements [actors.Ledger].
func (t *lockedTwin) Resume(now time.Time) {
	defer t.lock()()
	t.twin.Resume(now)
}

// Drain implements [actors.Ledger].
func (t *lockedTwin) Drain(now time.Time) {
	defer t.lock()()
	t.twin.Drain(now)
}

// Purge implements [actors.Ledger].
func (t *lockedTwin) Purge(now time.Time) int {
	defer t.lock()()
	return t.twin.Purge(now)
}

// Peek implements [actors.Ledger].
func (t *lockedTwin) Peek(n int) []messages.Delivery {
	defer t.lock()()
	return t.twin.Peek(n)
}

// Close implements [actors.Ledger].
func (t *lockedTwin) Close(now time.Time) (messagesDropped, lettersDropped int) {
	defer t.lock()()
	return t.twin.Close(now)
}

// Quarantine implements [actors.Ledger].
func (t *lockedTwin) Quarantine() {
	defer t.lock()()
	t.twin.Quarantine()
}

// DeadLetters implements [actors.Ledger].
func (t *lockedTwin) DeadLetters(after uint64, n int) []messages.DeadLetter {
	defer t.lock()()
	return t.twin.DeadLetters(after, n)
}

// LastLetter implements [actors.Ledger].
func (t *lockedTwin) LastLetter() uint64 {
	defer t.lock()()
	return t.twin.LastLetter()
}

// Discard implements [actors.Ledger].
func (t *lockedTwin) Discard(now time.Time, ids []string) int {
	defer t.lock()()
	return t.twin.Discard(now, ids)
}

// RemoveLetter implements [actors.Ledger].
func (t *lockedTwin) RemoveLetter(now time.Time, number uint64) bool {
	defer t.lock()()
	return t.twin.RemoveLetter(now, number)
}

// Redrive implements [actors.Ledger].
func (t *lockedTwin) Redrive(now time.Time, number uint64) (ledger.PutResult, error) {
	defer t.lock()()
	return t.twin.Redrive(now, number)
}

// Tick implements [actors.Ledger].
func (t *lockedTwin) Tick(now time.Time) {
	defer t.lock()()
	t.twin.Tick(now)
}

// NextDeadline implements [actors.Ledger].
func (t *lockedTwin) NextDeadline() (time.Time, bool) {
	defer t.lock()()
	return t.twin.NextDeadline()
}

// Behind implements [actors.Ledger].
func (t *lockedTwin) Behind() bool {
	defer t.lock()()
	return t.twin.Behind()
}

// Stats implements [actors.Ledger].
func (t *lockedTwin) Stats(now time.Time) messages.QueueStats {
	defer t.lock()()
	return t.twin.Stats(now)
}

// Trim implements [actors.Ledger].
func (t *lockedTwin) Trim() {
	defer t.lock()()
	t.twin.Trim()
}

// Effects implements [actors.Ledger].
func (t *lockedTwin) Effects() []ledger.Effect {
	defer t.lock()()
	return t.twin.Effects()
}

// ClearEffects implements [actors.Ledger].
func (t *lockedTwin) ClearEffects() {
	defer t.lock()()
	t.twin.ClearEffects()
}

// Fill implements [actors.Ledger].
func (t *lockedTwin) Fill(e *ledger.Effect, d *messages.Delivery) {
	defer t.lock()()
	t.twin.Fill(e, d)
}

// CountBusy implements [actors.Ledger].
func (t *lockedTwin) CountBusy() {
	defer t.lock()()
	t.twin.CountBusy()
}

// CountLostNotice implements [actors.Ledger].
func (t *lockedTwin) CountLostNotice() {
	defer t.lock()()
	t.twin.CountLostNotice()
}

// CheckInvariants implements [actors.Ledger].
func (t *lockedTwin) CheckInvariants() error {
	defer t.lock()()
	return t.twin.CheckInvariants()
}
