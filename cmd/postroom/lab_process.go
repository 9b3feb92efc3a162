package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
)

// labProcess is a worker process as its parent sees it.
type labProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	orders *json.Encoder
	lines  *bufio.Scanner
	served atomic.Bool // it has answered an order
	doomed atomic.Bool // somebody has killed it, or it was told to die
	ended  sync.Once
	byKill bool // it did not end by itself
}

// errWorkerDied is a worker process that ended before it answered.
var errWorkerDied = errors.New("the worker process died")

func startLabProcess(files labFiles, stderr io.Writer) (*labProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &labProcess{cmd: exec.Command(self, "lab-worker", "--bank", files.bank, "--receiver", files.receiver)}
	p.cmd.Env = labEnviron()
	p.cmd.Stderr = stderr
	p.cmd.SysProcAttr = ownGroup() // a Ctrl-C on the terminal is the parent's to handle
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.orders, p.lines = json.NewEncoder(p.stdin), bufio.NewScanner(stdout)
	return p, p.cmd.Start()
}

// ask gives an order and waits for the answer. Errors: [errWorkerDied]; an error that
// the worker answered.
func (p *labProcess) ask(order labOrder) (reply labReply, err error) {
	if order.DieAt != "" {
		p.doomed.Store(true)
	}
	if err := p.orders.Encode(order); err != nil || !p.lines.Scan() {
		p.wait()
		return reply, errWorkerDied
	}
	if err := json.Unmarshal(p.lines.Bytes(), &reply); err != nil {
		return reply, fmt.Errorf("answer of a worker process: %w", err)
	}
	p.served.Store(true)
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// kill ends the process at whatever it is doing, and reports whether it was the one to
// do so.
func (p *labProcess) kill() bool {
	return !p.doomed.Swap(true) && p.cmd.Process.Kill() == nil
}

// wait returns when the process has ended. Its answers must have been read.
func (p *labProcess) wait() {
	p.ended.Do(func() {
		_ = p.stdin.Close()
		err := p.cmd.Wait()
		var exit *exec.ExitError
		p.byKill = errors.As(err, &exit) && p.doomed.Load()
	})
}

// end lets the process end by itself.
func (p *labProcess) end() {
	_ = p.stdin.Close()
	for p.lines.Scan() { // until it closes its side
	}
	p.wait()
}
