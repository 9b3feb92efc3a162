package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	bodyBytes = 100
	// ahead is how far the producer may be in front of the workers, with each peer.
	ahead = 4096
	// prefetch is how many leases a worker may hold, where a peer has such a bound.
	prefetch = 256
	// patience bounds one part of one round. A peer that is slower than that is
	// measured by what it did until then.
	patience = 15 * time.Second
)

// backlogs are what is worked off: a shallow and a deep one.
var backlogs = [2]int{1_000, 200_000}

// peer is one of those compared.
type peer struct {
	name, version string
	settings      string // as its own documents advise for this work
	beyond        string // what it does for its price that Postroom does not
	lacks         string // what it leaves out
	// share of the messages that it gets, so that a round of a slow one ends and one of a
	// fast one is not over before it is warm.
	share float64
	// missing says why it cannot run here; "" when it can. nil: it always can.
	missing func() string
	// start makes an empty queue. dir is a directory of its own.
	start func(ctx context.Context, dir string) (session, error)
}

// session is a peer with one empty queue.
type session interface {
	// put puts one message, and may return before it is accepted.
	put(ctx context.Context, body []byte) error
	// flush waits until all were accepted.
	flush(ctx context.Context) error
	// work starts the workers; each message is leased, given to fn and acked.
	work(ctx context.Context, fn func(body []byte)) error
	// close ends everything.
	close() error
}

// readier is a session that makes something for n messages before the clock starts.
type readier interface {
	ready(n int)
}

// filler is a session that has a faster way to make a backlog.
type filler interface {
	fill(ctx context.Context, bodies [][]byte) error
}

type result struct {
	Name     string  `json:"name"`
	Version  string  `json:"version"`
	Settings string  `json:"settings"`
	Beyond   string  `json:"does_beyond"`
	Lacks    string  `json:"lacks,omitempty"`
	NS       spread  `json:"ns_per_message"`
	Shallow  *spread `json:"drain_1000_ns"`
	Deep     *spread `json:"drain_200000_ns"`
	Rounds   int     `json:"rounds"`
	Skipped  string  `json:"skipped,omitempty"`
	Error    string  `json:"error,omitempty"`

	life, shallow, deep []float64
}

type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]}
}

// measureAll has the peers take turns, round by round.
func measureAll(ctx context.Context, c *config, stderr io.Writer) (results []*result) {
	var chosen []peer
	for _, p := range peers() {
		if len(c.only) == 0 || slices.Contains(c.only, p.name) {
			chosen = append(chosen, p)
			results = append(results, &result{Name: p.name, Version: p.version, Settings: p.settings, Beyond: p.beyond, Lacks: p.lacks})
		}
	}
	for i, p := range chosen {
		if p.missing != nil {
			results[i].Skipped = p.missing()
		}
	}
	for round := range c.rounds {
		for i, p := range chosen {
			r := results[i]
			if r.Skipped != "" || r.Error != "" || ctx.Err() != nil {
				continue
			}
			fmt.Fprintf(stderr, "round %d of %d: %s\n", round+1, c.rounds, p.name)
			if err := r.round(ctx, p, int(float64(c.messages)*p.share), backlogs); err != nil {
				r.Error = err.Error()
				fmt.Fprintf(stderr, "postroom-peers: %s: %v\n", p.name, err)
			}
			settle()
		}
	}
	for _, r := range results {
		if r.Rounds = len(r.life); r.Rounds == 0 {
			continue
		}
		r.NS = spreadOf(r.life)
		if len(r.shallow) > 0 {
			s := spreadOf(r.shallow)
			r.Shallow = &s
		}
		if len(r.deep) > 0 {
			s := spreadOf(r.deep)
			r.Deep = &s
		}
	}
	return results
}

// round measures all three parts of one peer, each on an empty queue of its own.
func (r *result) round(ctx context.Context, p peer, messages int, backlogs [2]int) error {
	ns, err := inSession(ctx, p, func(s session) (float64, error) { return lifecycle(ctx, s, messages) })
	if err != nil {
		return err
	}
	r.life = append(r.life, ns)
	for i, into := range []*[]float64{&r.shallow, &r.deep} {
		ns, err := inSession(ctx, p, func(s session) (float64, error) { return drain(ctx, s, backlogs[i]) })
		if errors.Is(err, errNoBacklog) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("a backlog of %d: %w", backlogs[i], err)
		}
		*into = append(*into, ns)
	}
	return nil
}

// errNoBacklog is of a peer that keeps nothing for a worker that is not there yet.
var errNoBacklog = errors.New("keeps no backlog")

func inSession(ctx context.Context, p peer, fn func(session) (float64, error)) (ns float64, err error) {
	dir, err := os.MkdirTemp("", "postroom-peers-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := p.start(ctx, dir)
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	defer func() {
		if closed := s.close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", closed))
		}
	}()
	runtime.GC()
	return fn(s)
}

// counter counts what the workers have seen and checks it: each message has its number
// in its body.
type counter struct {
	target  int64
	handled atomic.Int64
	sum     atomic.Int64
	awaited atomic.Int64
	room    chan struct{}
}

func newCounter(target int) *counter {
	return &counter{target: int64(target), room: make(chan struct{}, 1)}
}

func (c *counter) see(body []byte) {
	c.sum.Add(int64(binary.LittleEndian.Uint64(body)))
	if c.handled.Add(1) == c.awaited.Load() {
		select {
		case c.room <- struct{}{}:
		default:
		}
	}
}

// await waits until n were handled.
func (c *counter) await(ctx context.Context, n int64) error {
	c.awaited.Store(n)
	for c.handled.Load() < n {
		select {
		case <-c.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *counter) check(n int64) error {
	if got, sum := c.handled.Load(), c.sum.Load(); got != n || sum != n*(n-1)/2 {
		return fmt.Errorf("%d messages handled, want %d; their numbers sum to %d, want %d", got, n, sum, n*(n-1)/2)
	}
	return nil
}

// numbered is the bodies of n messages in one piece: that they are made costs none of
// the peers anything, and they are no work for the collector.
type numbered []byte

func makeNumbered(n int) numbered {
	b := make(numbered, n*bodyBytes)
	for i := range n {
		binary.LittleEndian.PutUint64(b[i*bodyBytes:], uint64(i))
	}
	return b
}

func (b numbered) at(i int) []byte { return b[i*bodyBytes : (i+1)*bodyBytes : (i+1)*bodyBytes] }

// errSlow ends a part that takes too long; it is measured by what it has done.
var errSlow = errors.New("slow")

// lifecycle is nanoseconds a message with producer and worker at work together.
func lifecycle(ctx context.Context, s session, n int) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	c := newCounter(n)
	if err := s.work(ctx, c.see); err != nil {
		return 0, err
	}
	messages := makeNumbered(n)
	if r, ok := s.(readier); ok {
		r.ready(n)
	}
	began := time.Now()
	err := func() error {
		for i := range n {
			if sent := int64(i); sent%64 == 0 && sent-c.handled.Load() >= ahead {
				if err := c.await(ctx, sent-ahead/2); err != nil {
					return err
				}
			}
			if err := s.put(ctx, messages.at(i)); err != nil {
				return err
			}
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
		return c.await(ctx, int64(n))
	}()
	return c.figure(ctx, began, n, err)
}

// figure is the time of a message, by all of them or by what a slow peer has done.
func (c *counter) figure(ctx context.Context, began time.Time, n int, err error) (float64, error) {
	took, handled := time.Since(began), c.handled.Load()
	if err != nil {
		if errors.Is(context.Cause(ctx), errSlow) && handled > 0 {
			return float64(took.Nanoseconds()) / float64(handled), nil
		}
		return 0, err
	}
	return float64(took.Nanoseconds()) / float64(n), c.check(int64(n))
}

// drain is nanoseconds a message for a backlog that is there before the worker starts.
func drain(ctx context.Context, s session, n int) (float64, error) {
	fill, cancel := context.WithTimeoutCause(ctx, 8*patience, errors.New("the backlog took too long to put"))
	defer cancel()
	messages, bodies := makeNumbered(n), make([][]byte, n)
	for i := range bodies {
		bodies[i] = messages.at(i)
	}
	if r, ok := s.(readier); ok {
		r.ready(n)
	}
	if f, ok := s.(filler); ok {
		if err := f.fill(fill, bodies); err != nil {
			return 0, err
		}
	} else {
		for _, body := range bodies {
			if err := s.put(fill, body); err != nil {
				return 0, err
			}
		}
	}
	if err := s.flush(fill); err != nil {
		return 0, err
	}
	ctx, cancelWork := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancelWork()
	c := newCounter(n)
	began := time.Now()
	err := s.work(ctx, c.see)
	if err == nil {
		err = c.await(ctx, int64(n))
	}
	return c.figure(ctx, began, n, err)
}

// machine is what the figures are worth nothing without.
func machine() string {
	cpu, commit := "unknown CPU", "unknown"
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += " with changes"
			}
		}
	}
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("%s, %d CPUs, %s/%s, %s, commit %s, load of the last minute %s",
		cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), commit, load)
}
