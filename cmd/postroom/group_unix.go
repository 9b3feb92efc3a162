//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes a command the leader of a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// terminateGroup and killGroup signal all of the command's group. That nobody is left
// in it is no error.
func terminateGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func diedBySignal(state *os.ProcessState) (syscall.Signal, bool) {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal(), true
	}
	return 0, false
}
