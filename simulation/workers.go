package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/actors"
	"github.com/postroom/postroom/messages"
)

// Mode is what works on deliveries, and on which promise.
type Mode struct {
	kind    modeKind
	handler postroom.Handler
	work    time.Duration
	into    *External
}

type modeKind uint8

const (
	modeScript modeKind = iota
	modeInline
	modeBubble
	modeReal
)

// Script is a modelled worker without user code: it works for a drawn time up to
// work, has one effect on into (nil: one of its own), and acks, unless a fault of
// the plan says otherwise. Replay is exact.
func Script(work time.Duration, into *External) Mode {
	return Mode{kind: modeScript, work: work, into: into}
}

// Inline is the user's function, run on the simulation's one thread. It waits through
// [Sleep], the door, and contexts of [World.WithTimeout], and starts no goroutines.
// Replay is exact.
func Inline(handler postroom.Handler) Mode { return Mode{kind: modeInline, handler: handler} }

// pool is the workers of one name.
type pool struct {
	lab     *lab
	name    string
	queue   *Queue
	mode    Mode
	config  postroom.ConsumerConfig
	pull    *postroom.GetConfig // set for those that pull
	workers []*worker
}

// Workers adds up to n workers, name-1 to name-n: how many is drawn for each seed.
// Each is a consumer of its own with this configuration, so it can crash, be
// cancelled and come back by itself.
func (w *World) Workers(name string, n int, q *Queue, mode Mode, config postroom.ConsumerConfig) {
	l := w.describing("Workers")
	if n < 1 {
		panic(fmt.Sprintf("simulation: %d workers %q", n, name))
	}
	if err := config.Validate(); err != nil {
		panic(err)
	}
	if mode.kind != modeScript && mode.handler == nil {
		panic(fmt.Sprintf("simulation: workers %q have no handler", name))
	}
	if mode.kind == modeBubble && l.spec.host == nil {
		panic(fmt.Sprintf("simulation: workers %q run in a bubble, which only a test can host; use Check, or Spec.In", name))
	}
	if mode.kind == modeScript {
		l.scale()
	}
	if mode.kind == modeScript && mode.into == nil {
		mode.into = w.External(name+" effect", nil)
	}
	p := &pool{lab: l, name: name, queue: q, mode: mode, config: config}
	for i := range w.Between("workers "+name, 1, n) {
		p.workers = append(p.workers, &worker{pool: p, lab: l, name: fmt.Sprintf("%s-%d", name, i+1)})
	}
	l.pools = append(l.pools, p)
}

// worker is one consumer, over all its incarnations.
type worker struct {
	pool        *pool
	lab         *lab
	name        string
	incarnation int
	consumer    *postroom.Consumer // nil of one that pulls
	holder      string             // of one that pulls: its session
	waiting     bool               // in a Get
	tag         string             // of the consumer of this incarnation; the end of an older one is no news
	alive       bool               // attached, and not told to stop
	down        int                // crashed handlers that wait for their restart
	paused      int
	last        int // its latest event
	restarts    int
}

func (k *worker) event(kind Kind) Event {
	return Event{Kind: kind, Queue: k.pool.queue.name, Worker: k.name, Incarnation: k.incarnation, Cause: k.last}
}

func (k *worker) emit(e Event) int {
	k.last = k.lab.emit(e)
	return k.last
}

// emitOf is emit for an event of a message whose story is at hand.
func (k *worker) emitOf(s *story, e Event) int {
	k.last = k.lab.emitOf(s, e)
	return k.last
}

// state says in words what it does.
func (k *worker) state() string {
	switch {
	case !k.alive:
		return "is stopped"
	case k.down > 0:
		return "waits for its restart"
	case k.paused > 0:
		return "is paused"
	case k.running() > 0:
		return fmt.Sprintf("works on %d", k.running())
	}
	return "is idle"
}

func (k *worker) running() int {
	n := 0
	for _, j := range k.lab.jobs {
		if j.worker == k {
			n++
		}
	}
	return n
}

// start attaches a new incarnation. A queue that is gone is no error: it may come back.
func (k *worker) start() {
	if k.alive {
		return
	}
	l := k.lab
	if k.pool.pull != nil {
		k.startPuller()
		return
	}
	k.alive = true
	var c *postroom.Consumer
	if err := insist(func() (err error) {
		c, err = l.broker.Consume(context.Background(), k.pool.queue.name, k.handle, k.pool.config)
		return err
	}); err != nil {
		k.alive = false
		return
	}
	if k.consumer = c; !k.alive { // stopped while it started
		return
	}
	k.known(c.Tag)
}

// known is called when its consumer tag is known, by Consume's answer or by its first
// delivery, whichever comes first.
func (k *worker) known(tag string) {
	l := k.lab
	if l.byConsumer[tag] == k || k.pool.pull != nil {
		return
	}
	k.incarnation++
	k.down = 0
	l.byConsumer[tag] = k
	k.tag = tag
	e := k.event(KindAttach)
	e.Consumer = tag
	k.emit(e)
}

// stop cancels its consumer; handlers that run end by themselves.
func (k *worker) stop() {
	if k.pool.pull != nil && k.alive {
		k.alive = false
		e := k.event(KindDetach)
		e.Cause = max(e.Cause, k.lab.doing)
		k.emit(e)
	}
	if !k.alive || k.consumer == nil {
		return
	}
	k.alive, k.tag = false, ""
	e := k.event(KindDetach)
	e.Consumer = k.consumer.Tag
	e.Cause = max(e.Cause, k.lab.doing)
	k.emit(e)
	_ = k.consumer.Cancel(context.Background())
}

// revive brings it back for the calm phase if it is gone for good.
func (k *worker) revive() {
	if k.paused > 0 {
		k.paused = 0
		k.emit(k.event(KindResume))
	}
	if !k.alive {
		k.start()
	}
}

// restarted is told that its crashed handler's worker runs again.
func (k *worker) restarted(after time.Duration) {
	k.down = max(0, k.down-1)
	k.incarnation++
	k.restarts++
	e := k.event(KindRestart)
	e.Detail = "after " + after.String()
	k.emit(e)
	if k.consumer != nil {
		if t := k.lab.byQueue[k.pool.queue.name]; t != nil && t.book.holds[k.consumer.Tag] > 0 {
			k.lab.hit(HitRestartHolding)
		}
	}
}

// stopped is told that its consumer ended.
func (k *worker) stopped(reason error) {
	if !k.alive {
		return
	}
	k.alive = false
	e := k.event(KindStopped)
	e.Reason = verdict(reason)
	if errors.Is(reason, actors.ErrCrashLoop) {
		e.Reason = actors.ErrCrashLoop.Error()
	}
	k.emit(e)
	if l := k.lab; l.calm && !l.ending && l.soak == nil && !errors.Is(reason, actors.ErrCrashLoop) {
		// Its queue was deleted in the storm and its handler has outlived that: the calm
		// has begun without it.
		l.rt.Go("return of "+k.name, k.revive)
	}
}

// nameWorker says in an event who the consumer is.
func (l *lab) nameWorker(e *Event) {
	if k := l.byConsumer[e.Consumer]; k != nil {
		e.Worker, e.Incarnation = k.name, k.incarnation
	}
}

// job is one delivery in the hands of a handler.
type job struct {
	worker      *worker
	incarnation int
	number      int // of its start event
	began       time.Time
	name        string
	story       *story
	d           *postroom.Delivery
	key         leaseKey
	last        int
	at          string // the point it is at

	ctx     *jobContext
	twin    *twin    // of its lease
	armed   []*armed // strike at the next point
	effects int
	over    bool // its lease is over
	how     messages.LeaseEnd
	ignores bool      // its context
	verdict error     // forced
	doomed  error     // why it must end at its next step
	killed  bool      // with its process
	excused bool      // from honouring its context
	told    time.Time // when its context had ended, for HandlerHonoursContext
	keep    int       // acks to wait for before its own
	bubble  *bubble
}

// errKilled is the cause with which a killed worker's handlers end.
var errKilled = errors.New("worker killed")

type jobKey struct{}

// jobOf is the delivery that ctx belongs to; nil outside of the simulation.
func jobOf(ctx context.Context) *job {
	j, _ := ctx.Value(jobKey{}).(*job)
	return j
}

// jobContext is the context of a handler in the simulation: the broker's, by which the
// job is found, and which a kill can end.
type jobContext struct {
	context.Context
	job    *job
	cancel context.CancelCauseFunc // nil when no fault of the plan can kill it
}

// Value implements [context.Context].
func (c *jobContext) Value(key any) any {
	if key == (jobKey{}) {
		return c.job
	}
	return c.Context.Value(key)
}

func (l *lab) jobContext(ctx context.Context, j *job) *jobContext {
	c := &jobContext{Context: ctx, job: j}
	if l.kills { // a context of its own for each delivery would cost more than the rest of it
		c.Context, c.cancel = context.WithCancelCause(ctx)
	}
	return c
}

func (c *jobContext) kill(*lab) {
	if c.cancel != nil {
		c.cancel(errKilled)
	}
}

func (c *jobContext) end() {
	if c.cancel != nil {
		c.cancel(nil)
	}
}

// twinOf is the twin that lent this lease; nil when its queue is gone.
func (l *lab) twinOf(key leaseKey) *twin {
	for _, t := range l.twins {
		if t.source.Queue == key.queue && t.source.Incarnation == key.incarnation {
			return t
		}
	}
	return nil
}

// noteWork makes the job's latest event the cause of what is done with its lease.
func (j *job) noteWork() {
	if j.twin != nil {
		j.twin.worked(j.d.Tag, j.last)
	}
}

// handle is the handler that the broker calls, for every mode.
func (k *worker) handle(ctx context.Context, d *postroom.Delivery) (err error) {
	l := k.lab
	if t := l.byQueue[d.Queue()]; t != nil && t.source.Incarnation == d.From.Incarnation {
		if at := t.of(d.Tag).deadline; !at.IsZero() && !l.rt.now.Before(at) {
			l.object("safety", "I11", "handler begins after its lease", fmt.Sprintf("%s begins on %s by tag %d at %v, its lease ended at %v", k.name, l.nameOf(d.ID), d.Tag, l.now(), since(at)))
		}
	}
	if k.paused > 0 && !l.calm {
		_ = l.wait("the worker's pause to end", nil, func() bool { return k.paused == 0 || l.calm })
	}
	key := leaseKey{d.Queue(), d.From.Incarnation, d.Tag}
	s := l.storyOf(d.ID)
	j := &job{worker: k, name: s.name, story: s, d: d, key: key, twin: l.twinOf(key)}
	t := l.byQueue[d.Queue()]
	if t != nil {
		if n := t.book.byTag[d.Tag]; n == nil || t.source.Incarnation != d.From.Incarnation {
			j.over = true
		} else {
			k.known(n.holder)
		}
	}
	j.ctx = l.jobContext(ctx, j)
	l.jobs[key] = j
	defer j.end(&err)
	l.checkBody(j)
	j.armed = l.pending[key]
	delete(l.pending, key)
	j.began = l.rt.now
	j.number = j.emit(KindStart, "")
	j.incarnation = k.incarnation
	j.point("start")
	switch k.pool.mode.kind {
	case modeScript:
		err = j.script(k.pool.mode)
	case modeInline:
		err = k.pool.mode.handler(j.ctx, l.overhear(d))
	case modeBubble:
		err = l.inBubble(j, k.pool.mode.handler)
	}
	if j.doomed != nil { // user code has swallowed the crash
		panic(&crash{j.doomed.Error()})
	}
	j.emit(KindReturn, errorRole(err))
	j.point("return")
	err = j.answer(err)
	l.failed(j, err)
	return err
}

// event begins an event of the handler, which belongs to the incarnation that began it.
func (j *job) event(kind Kind) Event {
	e := j.worker.event(kind)
	if j.incarnation > 0 {
		e.Incarnation = j.incarnation
	}
	return e
}

// emit tells of the handler.
func (j *job) emit(kind Kind, reason string) int {
	e := j.event(kind)
	e.Queue, e.Message, e.Tag, e.Attempt, e.Deliveries = j.d.Queue(), j.name, j.d.Tag, j.d.Attempt, j.d.Deliveries
	e.Reason = reason
	if e.Cause = j.last; e.Cause == 0 {
		e.Cause = j.story.last
	}
	j.last = j.worker.emitOf(j.story, e)
	j.noteWork()
	return j.last
}

// errorRole is a handler's error without its text.
func errorRole(err error) string {
	switch {
	case err == nil:
		return ""
	case messages.IsPermanent(err):
		return "permanent"
	case errors.Is(err, context.Canceled), errors.Is(err, postroom.ErrLeaseLost), errors.Is(err, postroom.ErrHandlerTimeout), errors.Is(err, postroom.ErrBrokerClosed):
		return "cancelled"
	}
	return "error"
}

// answer is what the handler's return becomes by the plan.
func (j *job) answer(err error) error {
	l := j.worker.lab
	if j.verdict != nil && err == nil {
		err = j.verdict
	}
	if err == nil && !l.calm && l.rt.now.Before(l.stormTill) {
		err = errors.New("nack storm")
	}
	if j.keep > 0 {
		until := l.acks + j.keep
		_ = l.wait("later acks", nil, func() bool { return l.acks >= until || j.over || l.calm })
	}
	if err == nil {
		if j.story.finished++; j.story.finished > 1 && j.over {
			l.hit(HitTwoFinish)
		}
	}
	return err
}

// end is the end of the job, also by a panic.
func (j *job) end(err *error) {
	l := j.worker.lab
	if l.honours != nil {
		l.honours.check(l, j)
	}
	delete(l.jobs, j.key)
	j.ctx.end()
	value := recover()
	if value == nil {
		l.poke()
		return
	}
	text := "handler panics"
	if c, ours := value.(*crash); ours {
		text = c.why
	}
	if j.effects > 0 && !j.over {
		l.hit(HitCrashAfterEffect)
	}
	j.worker.down++
	j.emit(KindCrash, text)
	panic(value)
}

// crash is the panic of a fault.
type crash struct{ why string }

func (c *crash) Error() string { return c.why }

// script is the modelled worker.
func (j *job) script(m Mode) error {
	l := j.worker.lab
	d := Draw{l.plan.Seed, j.name + "/" + strconv.Itoa(j.d.Deliveries)}
	work := d.Duration("work", m.work) * time.Duration(l.scale())
	if err := j.sleep(work / 2); err != nil {
		return err
	}
	if err := m.into.Do(j.ctx, j.name, ""); err != nil {
		return err
	}
	return j.sleep(work - work/2)
}

// scale is 1; a shrinker sets the work of scripts to 0.
func (l *lab) scale() int64 {
	return l.setting("work", 0, 1, func(v int64) string { return [...]string{"none", "drawn"}[v] })
}

// sleep is a wait of the handler. It ends with the cause of its context, unless that
// is ignored.
func (j *job) sleep(d time.Duration) error {
	var ctx context.Context = j.ctx
	if j.ignores {
		ctx = context.Background()
	}
	err := j.worker.lab.rt.Sleep(ctx, d)
	j.stepOn()
	return err
}

// stepOn crashes the handler if it was killed meanwhile.
func (j *job) stepOn() {
	if j.doomed != nil {
		panic(&crash{j.doomed.Error()})
	}
}

// sum is a hash of what must not change between a put and its deliveries.
func (l *lab) sum(body []byte, headers map[string]string, contentType string, extra []byte) uint64 {
	h := maphash.Bytes(l.sumSeed, body) ^ maphash.Bytes(l.sumSeed, extra)<<1 ^ maphash.String(l.sumSeed, contentType)<<2
	for k, v := range headers {
		h += maphash.String(l.sumSeed, k+"\x00"+v)
	}
	return h
}

// checkBody compares what is delivered with what was put (I6).
func (l *lab) checkBody(j *job) {
	if _, isCopy := j.d.Headers["postroom-death-count"]; isCopy {
		return // of a dead letter: the message with the story of its death
	}
	if s := j.story; s.summed && s.sum != l.sum(j.d.Body, j.d.Headers, j.d.ContentType, j.d.Extra) {
		l.object("safety", "I6", "another body at delivery", fmt.Sprintf("%s was put with other contents than it is delivered with: body %q", j.name, j.d.Body))
	}
}

// leaseOver is told of the end of a lease.
func (l *lab) leaseOver(t *twin, tag uint64, how messages.LeaseEnd) {
	key := leaseKey{t.source.Queue, t.source.Incarnation, tag}
	if j := l.jobs[key]; j != nil {
		j.over, j.how = true, how
	}
	delete(l.pending, key)
	if how == messages.LeaseAcked {
		l.acks++
	}
}

// hitExpire notes an expiry while the handler lives.
func (l *lab) hitExpire(t *twin, tag uint64) {
	if l.jobs[leaseKey{t.source.Queue, t.source.Incarnation, tag}] != nil {
		l.hit(HitExpireAlive)
	}
}

// settling is told that a settle of this lease reaches the ledger, and returns the
// event that caused it.
func (l *lab) settling(t *twin, tag uint64) int {
	return t.of(tag).worked
}

// settledBy is told what the ledger said to a settle.
func (l *lab) settledBy(t *twin, verb messages.Verb, tag uint64, at time.Time, err error) {
	e := Event{Queue: t.source.Queue, Tag: tag, Verb: verb.String(), Cause: t.settleBy}
	key := leaseKey{t.source.Queue, t.source.Incarnation, tag}
	if n := t.book.byTag[tag]; n != nil {
		e.Message, e.Put, e.Generation, e.Consumer, e.Attempt, e.Deliveries = n.message, n.put, n.generation, n.holder, n.attempt, n.deliveries
		if verb == messages.VerbTouch && err == nil {
			t.book.touched(n, at)
			e.Kind, e.Deadline, e.Verb = KindTouch, since(at), ""
			if e.Cause == 0 { // it waits for its worker, and the heartbeat keeps what was granted
				e.Cause = n.last
			}
			l.nameWorker(&e)
			n.last = l.emit(e)
			return
		}
	}
	if err == nil {
		return
	}
	var stale *messages.StaleError
	if !errors.As(err, &stale) {
		return
	}
	if t.book.byTag[tag] != nil {
		l.object("safety", "I9", "settle of a running lease called stale", fmt.Sprintf("tag %d runs and its %v is called stale", tag, verb))
		return
	}
	if j := l.jobs[key]; j != nil {
		e.Message, e.Worker, e.Incarnation = j.name, j.worker.name, j.worker.incarnation
	} else {
		e.Message = t.of(tag).message
	}
	e.Kind, e.Reason = KindStale, stale.Ended.String()
	if e.Cause == 0 && e.Message != "" {
		e.Cause = l.story(e.Message).last
	}
	l.emit(e)
	l.hit(HitStale)
	if verb == messages.VerbAck {
		l.result.Categories.LateAcks++
	}
	if deadline := t.of(tag).deadline; stale.Ended == messages.LeaseExpired && deadline.Equal(l.rt.now) {
		if verb == messages.VerbTouch {
			l.hit(HitExtendRace)
		} else {
			l.hit(HitSameInstant)
		}
	}
}
