package ledger

import "github.com/postroom/postroom/messages"

// admits says whether a message of this size and priority may come in (A1):
// whether it fits as it is, or only after makeRoom. Only a put is asked; a message
// that returns always fits, because it never stopped counting.
//
// Errors: [*messages.QueueFullError], and then nothing is to be killed: a large
// message must not cost others their place and be refused all the same.
func (l *Ledger) admits(size int64, priority uint8) (fits bool, err error) {
	overCount := l.config.MaxMessages >= 0 && l.total()+1 > l.config.MaxMessages
	overBytes := l.config.MaxBytes >= 0 && size > l.config.MaxBytes-l.bytes
	if !overCount && !overBytes {
		return true, nil
	}
	if l.config.Overflow == messages.DropOldest {
		count, bytes := l.lanes.upTo(priority)
		if (!overCount || l.total()+1-count <= l.config.MaxMessages) &&
			(!overBytes || size <= l.config.MaxBytes-(l.bytes-bytes)) {
			return false, nil
		}
	}
	full := &messages.QueueFullError{Queue: l.source.Queue, Limit: "messages", Max: int64(l.config.MaxMessages), Current: int64(l.total())}
	if !overCount {
		full.Limit, full.Max, full.Current = "bytes", l.config.MaxBytes, l.bytes
	}
	return false, full
}

// makeRoom kills the head of the lowest non-empty priority, fresh lane first, until
// the bounds hold again. The newcomer is in already and is passed over: admits has
// seen that the others suffice. In this order a redrive has taken its letter before
// a death can trim it.
func (l *Ledger) makeRoom(newcomer *entry) {
	for (l.config.MaxMessages >= 0 && l.total() > l.config.MaxMessages) ||
		(l.config.MaxBytes >= 0 && l.bytes > l.config.MaxBytes) {
		l.die(l.lanes.lowest(newcomer), death{reason: messages.Overflowed})
	}
}
