package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/worker/workertest"
)

const labHelp = `Lab shows what at-least-once delivery means for an effect, with nothing simulated: a
real SQLite file, real transactions, and worker processes that are killed with
SIGKILL at the worst moments. This process holds the broker and hands each delivery
to a worker process over a pipe; when one dies its lease runs out and another worker
gets the message.

  unsafe     commits a credit of 10 and dies before the ack: credited twice
  safe       the same with the message's key in the same transaction: credited once
  receiver   told by an outbox whose dispatcher dies after sending and before it
             marked the row as sent: told twice, so it must know keys too
  admission  120 arrivals a second against work for 100, on virtual time
  kills      --jobs credits by --workers processes, of which --kills die at random
             instants: every credit is applied exactly once

Every figure is checked. --json ends with one line of them. Everything it makes lies
in a directory of its own and is removed.

Exit status: 0 as it should be, 1 a figure is off, 2 usage or no lab, 3 interrupted.`

// labConfig is what "postroom lab" was told.
type labConfig struct {
	jobs, kills, workers int
	seed                 uint64
	json                 bool
}

func (a *app) labCommand() *cobra.Command {
	c := &labConfig{}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Kill real workers at the worst moments and count what became of the money",
		Long:  labHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.jobs < 1 || c.kills < 0 || c.workers < 1 {
				return &usageError{problem: "--jobs and --workers must be at least 1, --kills at least 0"}
			}
			status, err := a.lab(cmd.Context(), c)
			a.status = status
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.jobs, "jobs", 1000, "credits that are worked off under fire")
	f.IntVar(&c.kills, "kills", 200, "worker processes killed at random instants meanwhile")
	f.IntVar(&c.workers, "workers", 4, "worker processes at once")
	f.Uint64Var(&c.seed, "seed", 1, "where the random instants come from")
	f.BoolVar(&c.json, "json", false, "end with one line of JSON")
	return cmd
}

// labReport is the last line of --json.
type labReport struct {
	Unsafe          int64 `json:"unsafe"`
	Safe            int64 `json:"safe"`
	ReceiverNoDedup int64 `json:"receiver_nodedup"`
	ReceiverDedup   int64 `json:"receiver_dedup"`
	Kills           int64 `json:"kills"`
	Lost            int64 `json:"lost"`
}

// Figures of the lab.
const (
	labAmount = 10
	// labLease is short so that a killed worker's message is soon somebody else's, and
	// long enough for a busy machine to keep a live worker's.
	labLease = 250 * time.Millisecond
	// labStoryLease is longer: a second lost lease would credit the unsafe account once more.
	labStoryLease = time.Second
	labClaim      = 300 * time.Millisecond
	labWork       = 2 * time.Millisecond
	// labPatience bounds the whole: what takes longer hangs.
	labPatience = 5 * time.Minute
)

// lab is one run.
type lab struct {
	config *labConfig
	out    io.Writer
	stderr io.Writer
	dir    string
	broker *postroom.Broker
	report labReport
	kills  atomic.Int64
	again  atomic.Int64 // redeliveries whose credit was there already
	wrong  int
}

// lab runs the experiments and returns the exit status.
func (a *app) lab(ctx context.Context, c *labConfig) (status int, err error) {
	ctx, cancel := a.labContext(ctx)
	defer cancel()
	l := &lab{config: c, out: a.stdout, stderr: a.stderr}
	if l.dir, err = os.MkdirTemp("", "postroom-lab-"); err != nil {
		return exitUsage, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if l.broker, err = postroom.Open(); err != nil {
		return exitUsage, err
	}
	defer func() { _ = l.broker.Close(ctx) }() // its handlers have returned

	return l.run(ctx, l.unsafe, l.safe, l.receiver, l.admission, l.underFire)
}

// run does one experiment after the other. One that cannot be brought to its figures
// counts as one that is off, and the others are still done: each stands alone.
func (l *lab) run(ctx context.Context, experiments ...func(context.Context) error) (status int, err error) {
	began := time.Now()
	for _, experiment := range experiments {
		err := experiment(ctx)
		switch {
		case err == nil:
		case errors.Is(err, errLabInterrupted) || errors.Is(context.Cause(ctx), errLabInterrupted):
			return exitInterrupted, nil
		default:
			l.wrong++
			fmt.Fprintf(l.out, "   ✗ %v\n", err)
		}
	}
	return l.verdict(time.Since(began))
}

// verdict says what it came to, and returns the exit status.
func (l *lab) verdict(took time.Duration) (status int, err error) {
	l.report.Kills = l.kills.Load()
	fmt.Fprintf(l.out, "%d processes killed in %s: ", l.report.Kills, took.Round(time.Millisecond))
	if l.wrong > 0 {
		fmt.Fprintf(l.out, "%d figures are off.\n", l.wrong)
		status = exitDied
	} else {
		fmt.Fprintln(l.out, "every figure as it should be.")
	}
	if l.config.json {
		text, err := json.Marshal(l.report)
		if err != nil {
			return exitDied, err
		}
		fmt.Fprintf(l.out, "%s\n", text)
	}
	return status, nil
}

// errLabInterrupted is the cause of the end by a signal.
var errLabInterrupted = errors.New("interrupted")

// labContext ends at a signal, or when the lab has taken far too long.
func (a *app) labContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancelTimeout := context.WithTimeout(ctx, labPatience)
	ctx, cancel := context.WithCancelCause(ctx)
	signals, stop := a.labSignals()
	go func() {
		select {
		case <-signals:
			cancel(errLabInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		cancelTimeout()
		stop()
	}
}

func (a *app) labSignals() (<-chan os.Signal, func()) {
	if a.signals != nil {
		return a.signals, func() {}
	}
	return notifySignals()
}

// title begins an experiment.
func (l *lab) title(text string) { fmt.Fprintf(l.out, "%s\n", text) }

// fact prints a figure and what it should be if it is not.
func (l *lab) fact(what string, got, want int64) {
	fmt.Fprintf(l.out, "   %-58s %6d\n", what, got)
	if got != want {
		l.wrong++
		fmt.Fprintf(l.out, "   ✗ should be %d\n", want)
	}
}

func (l *lab) files(name string) labFiles {
	return labFiles{filepath.Join(l.dir, name+"-bank.db"), filepath.Join(l.dir, name+"-receiver.db")}
}

// ---- one credit, and a death at each boundary ----

// deaths is a handler that gives a message to a new process each time, which dies at
// the next boundary of a list; then to one that lives. seen is called after each death.
func (l *lab) deaths(files labFiles, task labTask, at []workertest.Point, seen func(workertest.Point) error) postroom.Handler {
	return func(ctx context.Context, d *postroom.Delivery) error {
		order := labOrder{Do: task, Job: d.ID, Amount: labAmount}
		if d.Attempt <= len(at) {
			order.DieAt = at[d.Attempt-1]
		}
		err := l.inProcess(files, func(p *labProcess) error {
			_, err := p.ask(order)
			return err
		})
		switch {
		case errors.Is(err, errWorkerDied):
			if err := seen(order.DieAt); err != nil {
				return postroom.Permanent(err)
			}
			return nil // it settled nothing, so its lease runs out
		case err != nil:
			return d.Reject(ctx, err)
		}
		return d.Ack(ctx)
	}
}

// inProcess starts a worker process for fn and sees to its end.
func (l *lab) inProcess(files labFiles, fn func(p *labProcess) error) error {
	p, err := startLabProcess(files, l.stderr)
	if err != nil {
		return err
	}
	err = fn(p)
	p.end()
	if p.byKill {
		l.kills.Add(1)
	}
	return err
}

// oneCredit works off one message and returns when it is acked. Workers are processes:
// the handler's return settles nothing, it is the process's answer that does.
func (l *lab) oneCredit(ctx context.Context, queue string, handler postroom.Handler) error {
	if err := l.broker.DeclareQueue(ctx, queue, postroom.QueueConfig{AckTimeout: labStoryLease, MaxAttempts: 5}); err != nil {
		return err
	}
	if _, err := l.broker.Consume(ctx, queue, handler, postroom.ConsumerConfig{Manual: true}); err != nil {
		return err
	}
	if _, err := l.broker.Put(ctx, queue, postroom.Envelope{ID: "credit-17"}); err != nil {
		return err
	}
	if err := l.broker.Drain(ctx, queue); err != nil {
		return err
	}
	letters, err := l.broker.DeadLetters(ctx, queue, 0, 1)
	if err == nil && len(letters) > 0 {
		err = fmt.Errorf("credit-17 died: %s: %s", letters[0].Reason, letters[0].Error)
	}
	return err
}

func (l *lab) unsafe(ctx context.Context) error {
	l.title("unsafe: a credit of 10 is committed, and its worker killed before the ack")
	files := l.files("unsafe")
	handler := l.deaths(files, creditUnsafely, []workertest.Point{workertest.AfterCommit}, func(workertest.Point) error { return nil })
	if err := l.oneCredit(ctx, "unsafe", handler); err != nil {
		return err
	}
	return l.look(ctx, files.bank, func(b *bankFigures) {
		l.report.Unsafe = b.total
		l.fact("balance after the redelivery", b.total, 2*labAmount)
	})
}

func (l *lab) safe(ctx context.Context) error {
	l.title("safe: change, key and outbox row in one transaction, killed on both sides of the commit")
	files := l.files("safe")
	handler := l.deaths(files, creditSafely, []workertest.Point{workertest.BeforeCommit, workertest.AfterCommit}, func(at workertest.Point) error {
		want, has := int64(0), "none"
		if at == workertest.AfterCommit {
			want, has = 1, "all"
		}
		return l.look(ctx, files.bank, func(b *bankFigures) {
			l.fact("killed "+string(at)+", "+has+" of the three are there: change", b.credits, want)
			l.fact("   key", b.keys, want)
			l.fact("   outbox row", b.intents, want)
		})
	})
	if err := l.oneCredit(ctx, "safe", handler); err != nil {
		return err
	}
	return l.look(ctx, files.bank, func(b *bankFigures) {
		l.report.Safe = b.total
		l.fact("balance after two redeliveries", b.total, labAmount)
	})
}

// receiver sends one outbox row to another system. The first dispatcher is killed after
// the receiver has committed and before the row is marked.
func (l *lab) receiver(ctx context.Context) error {
	for _, with := range []struct {
		name   string
		dedupe bool
		want   int64
		into   *int64
	}{
		{"without", false, 2 * labAmount, &l.report.ReceiverNoDedup},
		{"with", true, labAmount, &l.report.ReceiverDedup},
	} {
		l.title("outbox: its dispatcher is killed after sending, before the mark; a receiver " + with.name + " keys")
		files := l.files("outbox-" + with.name)
		err := l.inProcess(files, func(p *labProcess) error {
			_, err := p.ask(labOrder{Do: creditSafely, Job: "credit-17", Amount: labAmount})
			return err
		})
		if err != nil {
			return err
		}
		order := labOrder{Do: dispatchOnce, Dedupe: with.dedupe, DieAt: workertest.BeforeMark}
		err = l.inProcess(files, func(p *labProcess) error {
			_, err := p.ask(order)
			return err
		})
		if !errors.Is(err, errWorkerDied) {
			return fmt.Errorf("the dispatcher should have died: %w", err)
		}
		// The next one sends it when the dead one's claim has run out.
		order.DieAt = ""
		sent := 0
		err = l.inProcess(files, func(p *labProcess) error {
			for sent == 0 {
				reply, err := p.ask(order)
				if err != nil {
					return err
				}
				sent = reply.Sent
				if err := sleep(ctx, labClaim/10); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = l.look(ctx, files.receiver, func(b *bankFigures) {
			*with.into = b.total
			l.fact("the receiver's balance", b.total, with.want)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bankFigures is what is in a database.
type bankFigures struct{ total, accounts, credits, twice, keys, intents int64 }

// look opens a database, as after a crash, and counts.
func (l *lab) look(ctx context.Context, path string, fn func(*bankFigures)) error {
	bank, err := openBank(ctx, path)
	if err != nil {
		return err
	}
	var b bankFigures
	err = bank.db.QueryRowContext(ctx, `SELECT coalesce(sum(total), 0), count(*), coalesce(sum(credits), 0), coalesce(sum(credits > 1), 0),
		(SELECT count(*) FROM postroom_keys), (SELECT count(*) FROM postroom_outbox) FROM account`).
		Scan(&b.total, &b.accounts, &b.credits, &b.twice, &b.keys, &b.intents)
	if err = errors.Join(err, bank.close()); err == nil {
		fn(&b)
	}
	return err
}

// ---- under fire ----

// slot is a place for a worker process.
type labSlot struct {
	mu      sync.Mutex
	process *labProcess // nil: none runs
}

func (s *labSlot) set(p *labProcess) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
}

func (s *labSlot) get() *labProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// underFire works off many credits while processes are killed at random instants.
func (l *lab) underFire(ctx context.Context) error {
	c := l.config
	l.title(fmt.Sprintf("under fire: %d credits, %d processes, %d of them killed at random instants", c.jobs, c.workers, c.kills))
	files := l.files("fire")
	slots := make(chan *labSlot, c.workers)
	all := make([]*labSlot, c.workers)
	for i := range all {
		all[i] = &labSlot{}
		slots <- all[i]
	}
	var done atomic.Int64
	progress := make(chan struct{}, 1)
	handler := func(ctx context.Context, d *postroom.Delivery) error {
		slot := <-slots
		defer func() { slots <- slot }()
		err := l.onSlot(slot, files, labOrder{Do: creditSafely, Job: d.ID, Amount: labAmount, Work: labWork})
		if errors.Is(err, errWorkerDied) {
			return nil // its lease runs out
		}
		if err != nil {
			return d.NackIn(ctx, labLease, err)
		}
		// Too late when the lease was lost meanwhile; then it comes again and is known.
		if err := d.Ack(ctx); err != nil && !errors.Is(err, postroom.ErrStale) {
			return err
		}
		done.Add(1)
		select {
		case progress <- struct{}{}:
		default:
		}
		return nil
	}
	err := l.broker.DeclareQueue(ctx, "fire", postroom.QueueConfig{AckTimeout: labLease, MaxAttempts: postroom.Unlimited})
	if err != nil {
		return err
	}
	consumer, err := l.broker.Consume(ctx, "fire", handler, postroom.ConsumerConfig{Manual: true, Concurrency: c.workers})
	if err != nil {
		return err
	}
	before := l.kills.Load()
	var shooting sync.WaitGroup
	fire, ceaseFire := context.WithCancel(ctx)
	defer ceaseFire()
	shooting.Go(func() { l.shoot(fire, all, &done, progress) })

	for i := range c.jobs {
		if _, err := l.broker.Put(ctx, "fire", postroom.Envelope{ID: fmt.Sprintf("credit-%04d", i)}); err != nil {
			return err
		}
	}
	drained := l.broker.Drain(ctx, "fire")
	if drained != nil {
		ceaseFire()
	}
	shooting.Wait()
	_ = consumer.Cancel(context.WithoutCancel(ctx)) // it fails only if the broker is gone
	for gone := false; !gone; {
		select {
		case <-consumer.Done():
			gone = true
		case <-time.After(labWork):
			if drained != nil { // interrupted: what runs is not waited for
				killAll(all)
			}
		}
	}
	for _, s := range all {
		if p := s.get(); p != nil {
			p.end()
			l.buried(p)
		}
	}
	if drained != nil {
		return drained
	}
	err = l.look(ctx, files.bank, func(b *bankFigures) {
		l.report.Lost = int64(c.jobs) - b.accounts
		l.fact("credits applied exactly once", b.accounts-b.twice, int64(c.jobs))
		l.fact("credits applied more than once", b.twice, 0)
		l.fact("credits lost", l.report.Lost, 0)
		l.fact("intents in the outbox", b.intents, int64(c.jobs))
		if c.jobs >= 4*c.kills { // otherwise the work may be over before
			l.fact("processes killed", l.kills.Load()-before, int64(c.kills))
		}
	})
	if err != nil {
		return err
	}
	stats, err := l.broker.QueueStats(ctx, "fire")
	if err == nil {
		fmt.Fprintf(l.out, "   (%d deliveries for %d credits: %d leases ran out, %d credits were there already, %d acks were late)\n",
			stats.Deliveries, c.jobs, stats.Expiries, l.again.Load(), stats.StaleBy[postroom.VerbAck])
	}
	return err
}

func killAll(slots []*labSlot) {
	for _, s := range slots {
		if p := s.get(); p != nil {
			p.kill()
		}
	}
}

// onSlot has an order carried out by the slot's process, a new one if the last has died.
func (l *lab) onSlot(slot *labSlot, files labFiles, order labOrder) error {
	p := slot.get()
	if p == nil {
		var err error
		if p, err = startLabProcess(files, l.stderr); err != nil {
			return err
		}
		slot.set(p)
	}
	reply, err := p.ask(order)
	if reply.Again {
		l.again.Add(1)
	}
	if errors.Is(err, errWorkerDied) {
		slot.set(nil)
		l.buried(p)
	}
	return err
}

func (l *lab) buried(p *labProcess) {
	if p.byKill {
		l.kills.Add(1)
	}
}

// shoot kills processes: one each time that a share of the work is done, after a
// random while, so that the shots fall all over the work however fast it is.
func (l *lab) shoot(ctx context.Context, slots []*labSlot, done *atomic.Int64, progress <-chan struct{}) {
	c := l.config
	random := rand.New(rand.NewPCG(c.seed, 0)) //nolint:gosec // instants, not secrets
	for shot := range c.kills {
		// The last tenth is left, so that there is somebody to hit to the end.
		for done.Load() < int64(shot)*int64(c.jobs)*9/10/int64(c.kills) {
			select {
			case <-progress:
			case <-ctx.Done():
				return
			}
		}
		for hit := false; !hit; {
			if sleep(ctx, time.Duration(random.Int64N(int64(4*labWork)))) != nil {
				return
			}
			// Starting takes a process longer than a credit. So that the shots do not all
			// fall there, every other one is for a process that has begun to work.
			if p := slots[random.IntN(len(slots))].get(); p != nil && (shot%2 == 0 || p.served.Load()) {
				hit = p.kill()
			}
			if !hit && done.Load() >= int64(c.jobs) {
				return // few jobs and many kills: the work is over
			}
		}
	}
}
