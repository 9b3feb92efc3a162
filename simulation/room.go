package simulation

// room is what one run after the other of a campaign uses again, each when the one
// before has ended: coroutines, and the maps and slices of its notes, at the size that
// they grew to. It decides nothing: a run in a used room is the same run.
//
// Whoever makes one drives the runs in it and closes it, all on one goroutine; for an idle
// coroutine is one too. A run has it for itself, and nil is a room in which everything is
// new.
type room struct {
	idle  []*coroutine
	notes []notes // none while a run has them
	books []pages

	driver uint64 // the goroutine whose room it is; 0: not asked yet
}

// close ends the coroutines.
func (m *room) close() {
	for _, c := range m.idle {
		c.stop()
	}
	m.idle = nil
}

// goroutine is the id of the goroutine that drives a run, which is the same for all runs
// in one room: to ask for it takes as long as several steps.
func (m *room) goroutine() uint64 {
	if m == nil {
		return goroutineID()
	}
	if m.driver == 0 {
		m.driver = goroutineID()
	}
	return m.driver
}

// takeCoroutine returns one that was used before, or nil.
func (m *room) takeCoroutine(r *Runtime) *coroutine {
	if m == nil || len(m.idle) == 0 {
		return nil
	}
	last := len(m.idle) - 1
	c := m.idle[last]
	m.idle = m.idle[:last]
	if c.sleeper != nil {
		c.sleeper.runtime = r
	}
	return c
}

// takeNotes returns empty notes.
func (m *room) takeNotes() notes {
	if m == nil || len(m.notes) == 0 {
		return newNotes()
	}
	n := m.notes[len(m.notes)-1]
	m.notes = m.notes[:len(m.notes)-1]
	return n
}

// takePages returns empty pages for a book.
func (m *room) takePages() pages {
	if m == nil || len(m.books) == 0 {
		return newPages()
	}
	p := m.books[len(m.books)-1]
	m.books = m.books[:len(m.books)-1]
	return p
}

// giveBack takes what a run that is over has used.
func (m *room) giveBack(l *lab) {
	if m == nil {
		return
	}
	for _, t := range l.twins {
		t.book.pages.clear()
		m.books = append(m.books, t.book.pages)
		t.book.pages = pages{}
	}
	l.notes.clear()
	m.notes = append(m.notes, l.notes)
	l.notes = notes{}
}

// notes is what a run keeps of messages, leases and workers.
type notes struct {
	stories map[string]*story // by name
	told    []*story          // the same in the order they began; behind its length stand spare ones
	byID    map[string]*story
	bodies  map[*byte]*story // by body, for ids that the broker makes
	ops     []QueueOp

	jobs       map[leaseKey]*job
	byConsumer map[string]*worker
	pending    map[leaseKey][]*armed // faults for a handler that has not begun
	deaths     map[string]int        // announced deaths still to be heard of, by queue and id
}

func newNotes() notes {
	return notes{
		stories: map[string]*story{}, byID: map[string]*story{}, bodies: map[*byte]*story{},
		jobs: map[leaseKey]*job{}, byConsumer: map[string]*worker{}, pending: map[leaseKey][]*armed{}, deaths: map[string]int{},
	}
}

func (n *notes) clear() {
	clear(n.stories)
	clear(n.byID)
	clear(n.bodies)
	clear(n.ops)
	clear(n.jobs)
	clear(n.byConsumer)
	clear(n.pending)
	clear(n.deaths)
	n.told, n.ops = n.told[:0], n.ops[:0]
}

// story is what is known of one name, over all its generations.
type story struct {
	name      string
	attempts  int // puts
	accepted  int // accepted puts
	taken     int // those that were no redrive
	confirmed int // answers to puts that say it was taken, now or before
	last      int // its latest event
	acked     int
	finished  int // handlers that ended well

	sum    uint64 // hash of the contents
	summed bool
}

// story is that of a name; it begins when the name is first heard.
func (n *notes) story(name string) *story {
	if s := n.stories[name]; s != nil {
		return s
	}
	if len(n.told) < cap(n.told) {
		n.told = n.told[:len(n.told)+1]
	} else {
		n.told = append(n.told, nil)
	}
	s := n.told[len(n.told)-1]
	if s == nil {
		s = &story{}
		n.told[len(n.told)-1] = s
	}
	*s = story{name: name}
	n.stories[name] = s
	return s
}

// storyOf is that of a message by its id.
func (n *notes) storyOf(id string) *story {
	if s := n.byID[id]; s != nil {
		return s
	}
	return n.story(id)
}

// nameOf is the name of a message by its id.
func (n *notes) nameOf(id string) string {
	if s := n.byID[id]; s != nil {
		return s.name
	}
	return id
}
