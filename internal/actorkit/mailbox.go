package actorkit

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// inlineMessages is the room a mailbox has inside itself, twice: one for what is
// posted and one for what is being handled. A conversation one message at a time
// never needs more.
const inlineMessages = 4

// mailbox is one actor's queue of messages, ours instead of protoactor's because
// that drops a stopped actor's messages silently, loses the culprit of a panic
// and hands over one message at a time.
//
// Senders append to posted; an activation takes it all at once as its batch and
// goes through that with a cursor. A panic therefore leaves the rest of the batch
// where it is, before anything posted later.
//
// Invariants:
//
//   - busy means that exactly one activation is running or scheduled. Whoever sets
//     it schedules; only an activation that found nothing, under mu, clears it. So
//     no wake-up is lost and no two turns overlap.
//   - batch and cursor belong to the activation; everything else is under mu.
//   - Entries behind a cursor and beyond a length are nil: a mailbox keeps no
//     message alive that it has handed over.
//   - refusing is never taken back.
type mailbox struct {
	owner *Address

	mu        sync.Mutex
	posted    []any
	system    []any
	sysCursor int32
	taken     int32 // messages in the activation's hands, as of its last take
	busy      bool  // true from the start, until Start: nothing runs before the actor is wired up
	suspended bool  // crashed or restarting: user messages wait
	refusing  bool  // stopping or stopped: user messages are failed

	// systemWaiting is len(system)-sysCursor, readable without mu: a turn looks at
	// it before every message, else a stop would wait behind 256 handlers.
	systemWaiting atomic.Int32

	batch  []any
	cursor int

	inline [2][inlineMessages]any
}

var _ actor.Mailbox = (*mailbox)(nil)

func (m *mailbox) init(owner *Address) {
	m.owner = owner
	m.busy = true
	m.posted, m.batch = m.inline[0][:0], m.inline[1][:0]
}

// RegisterHandlers implements [actor.Mailbox]. The invoker is the context, which the
// address has, and the dispatcher ours, and asked directly.
func (m *mailbox) RegisterHandlers(actor.MessageInvoker, actor.Dispatcher) {}

// Start implements [actor.Mailbox]. Until now nothing was scheduled: an actor is
// in the registry before it is wired up, and whoever knows its name may have
// posted already.
func (m *mailbox) Start() {
	m.mu.Lock()
	m.release()
}

// UserMessageCount implements [actor.Mailbox]; it counts the messages of the turn
// under way as waiting.
func (m *mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.posted) + int(m.taken)
}

// PostUserMessage implements [actor.Mailbox].
func (m *mailbox) PostUserMessage(msg any) {
	m.mu.Lock()
	if m.refusing {
		m.mu.Unlock()
		m.owner.refuse(msg)
		return
	}
	if len(m.posted) == inlineMessages && cap(m.posted) == inlineMessages {
		m.posted = m.owner.system.slabs.outgrow(m.posted)
	}
	m.posted = append(m.posted, msg)
	if w := m.owner.system.watcher; w != nil {
		w.Posted(m.owner, false)
	}
	wake := !m.busy && !m.suspended
	if wake {
		m.busy = true
	}
	m.mu.Unlock()
	if wake {
		m.owner.schedule()
	}
}

// PostSystemMessage implements [actor.Mailbox].
func (m *mailbox) PostSystemMessage(msg any) {
	m.mu.Lock()
	m.system = append(m.system, msg)
	m.systemWaiting.Add(1)
	if w := m.owner.system.watcher; w != nil {
		w.Posted(m.owner, true)
	}
	wake := !m.busy
	if wake {
		m.busy = true
	}
	m.mu.Unlock()
	if wake {
		m.owner.schedule()
	}
}

// claim takes the right to run one turn over msg, ahead of everybody, if the actor
// has nothing else to do. The caller must run the turn and then call handOver.
func (m *mailbox) claim(msg any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy || m.suspended || m.refusing {
		return false
	}
	m.busy = true
	m.batch = append(m.batch, msg) // idle, so batch is empty and has its inline room
	m.taken = 1
	return true
}

// job is what an activation has to do next.
type job uint8

const (
	nothing   job = iota // idle; the activation is over
	userBatch            // from cursor on
	systemMessage
)

// take decides the next turn: system messages first, then what is left of the
// batch, then a new one. With nothing to do it ends the activation under the same
// lock that senders look at busy with.
func (m *mailbox) take() (job, any) {
	m.mu.Lock()
	for int(m.sysCursor) < len(m.system) {
		msg := m.system[m.sysCursor]
		m.system[m.sysCursor] = nil
		m.sysCursor++
		m.systemWaiting.Add(-1)
		if w := m.owner.system.watcher; w != nil {
			w.Taken(m.owner, true)
		}
		if int(m.sysCursor) == len(m.system) {
			m.system, m.sysCursor = nil, 0 // they are rare, most actors get one and no more
		}
		switch msg.(type) {
		case *actor.SuspendMailbox:
			m.suspended = true
			continue
		case *actor.ResumeMailbox:
			m.suspended = false
			continue
		case *actor.Restart:
			if m.refusing {
				// A restart that was decided before the stop was known would bring a
				// second instance to life that no registry knows.
				continue
			}
			// Until the new instance stands, user messages wait. Without it a healthy
			// actor that has children would handle some in its old instance.
			m.suspended = true
		case *actor.Stop:
			m.refusing = true
		}
		m.mu.Unlock()
		return systemMessage, msg
	}
	if !m.suspended {
		if m.cursor == len(m.batch) && len(m.posted) > 0 {
			m.batch, m.posted = m.posted, m.batch[:0]
			m.cursor = 0
		}
		if m.cursor < len(m.batch) {
			m.taken = int32(len(m.batch) - m.cursor)
			m.mu.Unlock()
			return userBatch, nil
		}
	}
	m.settle()
	m.busy = false
	m.mu.Unlock()
	return nothing, nil
}

// next hands over the next message of the batch, unless a system message waits.
func (m *mailbox) next() (msg any, ok bool) {
	if m.cursor == len(m.batch) || m.systemWaiting.Load() > 0 {
		return nil, false
	}
	msg = m.batch[m.cursor]
	m.batch[m.cursor] = nil
	m.cursor++
	if w := m.owner.system.watcher; w != nil {
		w.Taken(m.owner, false)
	}
	return msg, true
}

// putBack undoes next. Only who holds busy calls it, after a next.
func (m *mailbox) putBack(msg any) {
	m.cursor--
	m.batch[m.cursor] = msg
	if w := m.owner.system.watcher; w != nil {
		w.Posted(m.owner, false)
	}
}

// handOver ends an activation that must not go on by itself: what is left is
// scheduled.
func (m *mailbox) handOver() {
	m.mu.Lock()
	m.release()
}

// release is called with mu held by whoever holds busy, and gives both back.
func (m *mailbox) release() {
	more := int(m.sysCursor) < len(m.system) ||
		!m.suspended && (len(m.posted) > 0 || m.cursor < len(m.batch))
	if !more {
		m.settle()
		m.busy = false
	}
	m.mu.Unlock()
	if more {
		m.owner.schedule()
	}
}

// settle makes an idle mailbox small again. Only slices that were borrowed for a
// burst go back: a mailbox that wakes for every message keeps its inline room and
// allocates nothing.
func (m *mailbox) settle() {
	m.taken = int32(len(m.batch) - m.cursor) // more than 0 only while suspended
	if m.taken > 0 || len(m.posted) > 0 {
		return
	}
	m.cursor = 0
	m.batch = m.batch[:0]
	if cap(m.posted) > inlineMessages || cap(m.batch) > inlineMessages {
		m.owner.system.slabs.giveBack(m.posted, m.batch)
		m.posted, m.batch = m.inline[0][:0], m.inline[1][:0]
	}
}

// drain takes out all user messages, in order. Only who holds busy calls it, and
// only when refusing is set, so nothing comes after.
func (m *mailbox) drain() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := make([]any, 0, len(m.batch)-m.cursor+len(m.posted))
	left = append(append(left, m.batch[m.cursor:]...), m.posted...)
	m.inline = [2][inlineMessages]any{}
	m.posted, m.batch, m.cursor, m.taken = nil, nil, 0, 0
	return left
}

// shut is drain for a mailbox that will never be looked at again.
func (m *mailbox) shut() []any {
	m.mu.Lock()
	m.refusing = true
	m.mu.Unlock()
	return m.drain()
}

// refuses reports whether the actor is stopping or has stopped.
func (m *mailbox) refuses() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refusing
}

// Room for bursts. Slabs are lent to mailboxes that outgrew their inline room and
// come back when they are idle, so that a thousand queues that were all busy once
// do not each keep the room for it, and a queue in its next burst need not
// allocate again.
const (
	slabMessages    = 64   // the first size; append doubles it from there
	slabMessagesMax = 4096 // larger ones are left to the garbage collector
	slabsMax        = 64   // kept per system: 64 KiB each at most
)

type slabs struct {
	mu   sync.Mutex
	free [][]any
}

// outgrow returns a slab with the messages of small, which it clears.
func (s *slabs) outgrow(small []any) []any {
	s.mu.Lock()
	var slab []any
	if last := len(s.free) - 1; last >= 0 {
		slab = s.free[last]
		s.free[last] = nil
		s.free = s.free[:last]
	}
	s.mu.Unlock()
	if slab == nil {
		slab = make([]any, 0, slabMessages)
	}
	slab = append(slab, small...)
	clear(small)
	return slab
}

// giveBack keeps the larger ones of empty slices whose entries are all nil.
func (s *slabs) giveBack(empty ...[]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slab := range empty {
		if cap(slab) > inlineMessages && cap(slab) <= slabMessagesMax && len(s.free) < slabsMax {
			s.free = append(s.free, slab[:0])
		}
	}
}
