package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/supervisor"
)

// queueName is the one queue of a run.
const queueName = "lines"

// boardBytesMax bounds the bytes of all lines in work: a window of a thousand lines of
// a megabyte each would be a gigabyte.
const boardBytesMax = 64 << 20

// restarts is for commands that crash. The worker holds nothing that could need time
// to heal, and the line waits for its lease in any case, so the waits are only long
// enough for a storm of crashes not to spin, and it is never given up.
var restarts = supervisor.Policy{Base: time.Millisecond, Cap: 20 * time.Millisecond, MaxFailures: postroom.Unlimited}

// work is one run: an input, a board of the lines in work, a broker and a runner.
//
// Who does what, each in a goroutine of its own: read fills the board and the queue,
// the broker's workers run commands (handle), bury writes deaths, keepCredit keeps
// crashed commands from blocking the others, and run waits for the end or for
// an interruption.
type work struct {
	config  *runConfig
	files   *files
	console *console
	source  source
	runner  runner
	board   *board

	broker    *postroom.Broker
	publisher *postroom.Publisher
	consumer  *postroom.Consumer
	crashes   chan struct{} // of size 1: their number has changed

	stopNow chan struct{} // closed to kill what runs

	failOnce sync.Once
	failed   chan struct{} // closed when the run cannot go on; then why is set
	why      error

	mu    sync.Mutex // of the reader, see take
	next  int        // the number of the next line to be read
	atEnd bool       // there is none

	graves graveyard // of bury, until it has ended
}

// work carries a checked command line out. The error is a [*usageError]: nothing was
// begun.
func (a *app) work(ctx context.Context, c *runConfig) (status int, err error) {
	f, err := a.open(c)
	if err != nil {
		return exitUsage, err
	}
	defer f.Close()

	// From here on a signal is an interruption and no sudden end.
	signals := a.signals
	if signals == nil {
		var cancel func()
		signals, cancel = notifySignals()
		defer cancel()
	}

	w := &work{
		config: c, files: f,
		console: &console{stdout: a.stdout, stderr: a.stderr},
		board:   newBoard(2*c.window, boardBytesMax),
		crashes: make(chan struct{}, 1), stopNow: make(chan struct{}), failed: make(chan struct{}),
		next: 1,
	}
	w.console.onBroken = func(err error) { w.fail(fmt.Errorf("stdout: %w", err)) }
	w.board.onCrashes = func() {
		select {
		case w.crashes <- struct{}{}:
		default: // told already, and not looked yet
		}
	}
	if c.shellReadsLine() && !c.quiet {
		w.console.say(`warning: {} stands in a shell's program text, so lines run as programs; write: sh -c '… "$1"' _ {}`)
	}
	makeRunner := newCommander
	if a.runner != nil {
		makeRunner = a.runner
	}
	w.runner = makeRunner(c, w.console)
	run := newRunID()
	if c.fromDead != "" {
		w.source = newDeadLines(f.input, run, int(c.maxLine))
	} else {
		w.source = &plainLines{newLineReader(f.input, int(c.maxLine)), run, c.skipEmpty}
	}

	r, err := w.run(ctx, signals)
	if err != nil {
		return exitUsage, err // before any work
	}
	w.tell(r)
	return r.status(), nil
}

// notifySignals asks for the signals that end a run. A closed stdout is found by the
// write that fails, and must not kill us before the rest is written; to ignore
// SIGPIPE would be inherited by the commands.
func notifySignals() (<-chan os.Signal, func()) {
	signals, pipe := make(chan os.Signal, 4), make(chan os.Signal, 1)
	ask := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup has its way
		ask = append(ask, syscall.SIGHUP)
	}
	signal.Notify(signals, ask...)
	signal.Notify(pipe, syscall.SIGPIPE)
	return signals, func() { signal.Stop(signals); signal.Stop(pipe) }
}

// newRunID makes the first half of POSTROOM_ID: twelve hexadecimal digits, so that
// letters of different runs can be put together.
func newRunID() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// run does the work and says how it ended.
func (w *work) run(ctx context.Context, signals <-chan os.Signal) (*tally, error) {
	began := time.Now()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	reading, stopReading := context.WithCancel(context.Background())
	defer stopReading()
	var helpers sync.WaitGroup
	helping := make(chan struct{}) // closed when they are no longer needed
	helpers.Go(w.bury)
	helpers.Go(func() { w.keepCredit(helping) })
	if !w.config.quiet {
		p := newProgress(w.console, w.board, w.files.size)
		helpers.Go(func() { p.run(helping) })
	}
	finished := make(chan struct{})
	// Reading is not waited for at the end: it may hang in a terminal or a pipe.
	go func() {
		w.read(reading)
		if w.board.waitEmpty() {
			close(finished)
		}
	}()

	r := &tally{}
	w.wait(ctx, signals, finished, stopReading, r)

	// Every command has ended and told the broker so, which had its answer; so every
	// death that will be has been.
	w.board.close()
	close(helping)
	helpers.Wait()
	w.finish(r)
	r.took = time.Since(began)
	return r, nil
}

// wait returns when all is done, or was stopped and no command runs any more.
func (w *work) wait(ctx context.Context, signals <-chan os.Signal, finished <-chan struct{}, stopReading func(), r *tally) {
	var ended <-chan struct{} // of the consumer, once it was told to end
	stop := func() {
		if ended == nil {
			stopReading()
			w.board.stop()
			ended = w.consumer.Done()
			go func() { _ = w.consumer.Cancel(context.Background()) }() // Done says the rest
		}
	}
	var kill sync.Once
	gone, failed := ctx.Done(), w.failed
	for {
		select {
		case <-finished:
			return
		case <-ended:
			return
		case s := <-signals:
			r.interrupts++
			if r.interrupts == 1 && ended == nil {
				f, _ := w.board.look()
				w.console.say("%s: waiting for %s; again kills them", s, counted(f.running, "running command"))
				stop()
				break
			}
			w.console.say("%s: killing what runs", s)
			stop()
			kill.Do(func() { close(w.stopNow) })
		case <-failed:
			failed = nil
			w.console.say("%v: stopping when the running commands have ended", w.why)
			stop()
		case <-gone:
			gone = nil
			stop()
			kill.Do(func() { close(w.stopNow) })
		}
	}
}

// start opens the broker with its one queue.
func (w *work) start(ctx context.Context) (err error) {
	c := w.config
	// To the broker 0 is the default, so no wait at all is a nanosecond; and that would
	// still be minutes, doubled forty times, but for the cap.
	backoff, backoffCap := max(c.backoff, 1), max(c.backoffCap, 1)
	if c.backoff == 0 {
		backoffCap = 1
	}
	w.broker, err = postroom.Open(
		postroom.WithListener(w.notice),
		postroom.WithRestarts(restarts),
		postroom.WithLimits(postroom.Limits{BodyBytes: postroom.Unlimited}), // --max-line is the limit
	)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = w.broker.Close(ctx) // the error that counts is the first
		}
	}()
	if err = w.broker.DeclareQueue(ctx, queueName, postroom.QueueConfig{
		AckTimeout: c.lease, MaxAttempts: c.maxAttempts,
		BackoffBase: backoff, BackoffCap: backoffCap,
		// The board is the bound, and the dead file the store.
		MaxMessages: postroom.Unlimited, MaxBytes: postroom.Unlimited, DeadLetterLimit: 1,
	}); err != nil {
		return err
	}
	w.publisher, err = w.broker.Publisher(ctx, queueName, postroom.PublisherConfig{
		Window: c.window, UntilSettled: true,
		OnResult: func(r postroom.PutResult) {
			if r.Err != nil {
				w.fail(r.Err)
			}
		},
	})
	if err != nil {
		return err
	}
	w.consumer, err = w.broker.Consume(ctx, queueName, w.handle, postroom.ConsumerConfig{
		Name: "commands", Concurrency: c.workers,
		// --timeout is the runner's: the heartbeat must go on while a command is being
		// ended, or its lease would run out first and the attempt would be a crash.
		HandlerTimeout: postroom.Unlimited,
		// The handler settles by itself and waits for the answer, so that when it has
		// returned the board knows all that came of it.
		Manual: true,
	})
	return err
}

// fail notes why the run cannot go on; the first reason counts.
func (w *work) fail(err error) {
	w.failOnce.Do(func() {
		w.why = err
		close(w.failed)
	})
}

// notice is the broker's listener. It runs on the queue's goroutine, so what it calls
// only takes the board's lock for a moment.
func (w *work) notice(n postroom.Notice) {
	switch n := n.(type) {
	case messages.Died:
		w.board.died(n.ID, n.Reason.String(), n.Attempts)
	case messages.LeaseRanOut:
		w.board.ranOut(n.Tag)
	case messages.Quarantined:
		w.fail(fmt.Errorf("queue quarantined: %w", n.Reason))
	case messages.ConsumerStopped:
		if n.Reason != nil && !errors.Is(n.Reason, postroom.ErrBrokerClosed) {
			w.fail(n.Reason)
		}
	}
}

// read takes lines on until the input ends or ctx does.
func (w *work) read(ctx context.Context) {
	for {
		l, err := w.source.next()
		if errors.Is(err, io.EOF) {
			w.mu.Lock()
			w.atEnd = true
			w.mu.Unlock()
			return
		}
		if err != nil {
			w.fail(fmt.Errorf("input: %w", err))
			return
		}
		if !w.take(ctx, l) {
			return
		}
	}
}

// take puts a line into work. It holds mu, so that whoever takes mu after the run was
// stopped finds the line in work or not yet read, and not in between.
func (w *work) take(ctx context.Context, l *line) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.board.add(l) {
		return false
	}
	if l.refusal != nil {
		w.console.say("%s", l.refusal.err)
		w.board.refuse(l)
	} else if _, err := w.publisher.Put(ctx, postroom.Envelope{ID: l.id, Body: l.body}); err != nil {
		w.board.forget(l)
		if ctx.Err() == nil {
			w.fail(err)
		}
		return false
	}
	w.next = l.number + 1
	return true
}

// handle runs the command for one delivery and settles it.
func (w *work) handle(ctx context.Context, d *postroom.Delivery) error {
	select {
	case <-w.stopNow:
		// What was given back comes again until the cancel has reached the consumer; a
		// command that has been killed must not be begun anew.
		return w.settle(d, nil, d.Release)
	default:
	}
	l := w.board.start(d.ID, d.Tag, d.Attempt)
	if l == nil {
		w.fail(fmt.Errorf("message %s is of no line in work", d.ID)) // a mistake of ours
		return w.settle(d, nil, d.Release)
	}
	out := w.runner.run(ctx, w.stopNow, task{id: d.ID, attempt: d.Attempt, body: d.Body})
	w.board.end(d.Tag, out)
	switch out.kind {
	case done:
		return w.settle(d, l, d.Ack)
	case crashed:
		panic(out.err)
	case permanent:
		return w.settle(d, nil, func(ctx context.Context) error { return d.Reject(ctx, out.err) })
	case stopped:
		return w.settle(d, nil, d.Release)
	default:
		return w.settle(d, nil, func(ctx context.Context) error { return d.Nack(ctx, out.err) })
	}
}

// settle carries out a verb, and again while it is unknown whether the queue has. A
// lease that is over is no error here: the message is somebody else's, and the broker
// has counted it. done is the line that is finished when its ack is taken; nil: none.
func (w *work) settle(d *postroom.Delivery, done *line, verb func(context.Context) error) error {
	for {
		err := verb(context.Background())
		if errors.Is(err, postroom.ErrOutcomeUnknown) {
			continue // the queue crashed on it and has restarted
		}
		var stale *postroom.StaleError
		if done != nil && (err == nil || errors.As(err, &stale) && stale.Ended == messages.LeaseAcked) {
			w.board.acked(done)
		}
		return err
	}
}

// bury writes every death and then takes its line off the board.
func (w *work) bury() {
	for {
		l := w.board.nextDeath()
		if l == nil {
			return
		}
		if w.files.dead == nil {
			w.graves.add(l)
		} else if err := w.files.dead.write(l.death); err != nil {
			w.fail(err)
			return // this line and those that die after it are unfinished
		}
		w.board.buried()
	}
}

// keepCredit gives the consumer a place more for each crashed command whose lease
// still runs. Such a lease counts against its prefetch, so that without this as many
// crashes as there are workers would stop all work for the rest of a lease.
func (w *work) keepCredit(stop <-chan struct{}) {
	now := w.config.workers
	for {
		select {
		case <-stop:
			return
		case <-w.crashes:
		}
		want := w.config.workers + w.board.crashedLeases()
		if want == now {
			continue
		}
		now = want
		// A consumer that is ending has no use for it.
		_ = w.broker.SetPrefetch(context.Background(), w.consumer.Tag, want)
	}
}

// closeGrace bounds the broker's own end; no command runs any more by then.
const closeGrace = 5 * time.Second

// finish gathers the tally, writes the rest and closes the broker.
func (w *work) finish(r *tally) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	stats, err := w.broker.QueueStats(ctx, queueName)
	if err != nil {
		w.console.say("figures: %v", err)
	}
	f, _ := w.board.look()
	r.Put = stats.Puts + uint64(f.refused)
	r.Acked, r.Dead = stats.Acks, uint64(f.dead)
	r.Redelivered, r.StaleAcks = uint64(f.again), stats.StaleBy[messages.VerbAck]
	w.mu.Lock()
	r.next, r.atEnd = w.next, w.atEnd
	w.mu.Unlock()
	r.unfinished = w.board.open()

	if w.files.dead != nil {
		if err := w.files.dead.Sync(); err != nil {
			w.console.say("%v", err)
		}
	}
	if err := w.broker.Close(ctx); err != nil {
		w.console.say("%v", err)
	}
}

// tell says how the run ended, and where what is left of it can be found.
func (w *work) tell(r *tally) {
	c := w.console
	if w.files.dead == nil && w.graves.count > 0 {
		c.say("%s died:", counted(w.graves.count, "line"))
		for _, text := range w.graves.first {
			c.say("  %s", text)
		}
		if more := w.graves.count - len(w.graves.first); more > 0 {
			c.say("  and %d more", more)
		}
		c.say("  --dead FILE keeps them, to be worked again")
	}
	if r.cut() {
		w.tellRest(r)
	}
	if !w.config.quiet {
		c.say("%s", r)
	}
	if w.config.json {
		c.lastLine(r.encode())
	}
}

func (w *work) tellRest(r *tally) {
	c := w.console
	switch n := len(r.unfinished); {
	case n == 0:
		c.say("no line is unfinished")
	case w.files.rest == nil:
		c.say("%s: %s; --rest FILE would keep them", counted(n, "unfinished line"), numbers(r.unfinished))
	default:
		if err := w.files.rest.write(r.unfinished); err != nil {
			c.say("%v; %s: %s", err, counted(n, "unfinished line"), numbers(r.unfinished))
			break
		}
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		c.say("%s %s in %s", counted(n, "unfinished line"), verb, w.files.rest.name)
	}
	switch {
	case r.atEnd:
		c.say("next input line: none, all were read")
	case w.config.input == "-":
		c.say("next input line: %d", r.next)
	default:
		c.say("next input line: %d (tail -n +%d %s)", r.next, r.next, w.config.input)
	}
}
