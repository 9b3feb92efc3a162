package actorkit

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postroom/postroom/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// part is an actor made of functions; each may be nil.
type part struct {
	started     func(c *Context)
	receive     func(c *Context, msg any)
	endTurn     func(c *Context)
	ended       func(c *Context)
	childFailed func(c *Context, child *Address, reason, msg any)
	childEnded  func(c *Context, child *Address)
}

func (p *part) Started(c *Context) { call(p.started, c) }
func (p *part) EndTurn(c *Context) { call(p.endTurn, c) }
func (p *part) Ended(c *Context)   { call(p.ended, c) }
func (p *part) Receive(c *Context, msg any) {
	if p.receive != nil {
		p.receive(c, msg)
	}
}

func (p *part) ChildFailed(c *Context, child *Address, reason, msg any) {
	if p.childFailed == nil {
		c.Restart(child)
		return
	}
	p.childFailed(c, child, reason, msg)
}

func (p *part) ChildEnded(c *Context, child *Address) {
	if p.childEnded != nil {
		p.childEnded(c, child)
	}
}

func call(f func(*Context), c *Context) {
	if f != nil {
		f(c)
	}
}

// spec names an actor that is the same object in all its lives.
func spec(name string, p *part) Spec {
	return Spec{Name: name, New: func() Actor { return p }}
}

// ask is a command. crash makes its actor panic.
type ask struct {
	messages.Asked
	n     int64
	crash any
}

// diary collects what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.lines...)
}

var executors = []Executor{GoroutinePerActor, Lanes}

// eachExecutor runs the test once per executor, on a system of its own.
func eachExecutor(t *testing.T, test func(t *testing.T, s *System)) {
	for _, executor := range executors {
		t.Run(executor.String(), func(t *testing.T) {
			rt := NewReal(RealConfig{Executor: executor})
			s := NewSystem(rt, nil)
			test(t, s)
			rt.Close()
			goleak.VerifyNone(t, goleak.IgnoreCurrent())
		})
	}
}

func mustSpawn(t testing.TB, s *System, spec Spec) *Address {
	t.Helper()
	a, err := s.Spawn(spec)
	require.NoError(t, err)
	return a
}

// get waits for a value; the bound is for a test that would hang otherwise.
func get[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// put sends an ask and waits for its answer.
func put(t testing.TB, rt Runtime, send func(any), m *ask) (messages.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cell := rt.NewCell()
	m.Reply = cell.Ref()
	send(m)
	return cell.Wait(ctx)
}

func stopAndWait(t testing.TB, s *System, a *Address) {
	t.Helper()
	s.Stop(a)
	get(t, a.Done(), "the end of "+a.Name())
}

// echo answers every ask with its own number.
func echo() *part {
	return &part{receive: func(c *Context, msg any) {
		if m, ok := msg.(*ask); ok {
			if m.crash != nil {
				panic(m.crash)
			}
			c.Answer(m, messages.Answer{N: m.n})
		}
	}}
}
