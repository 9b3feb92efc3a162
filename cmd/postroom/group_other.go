//go:build !unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// Where there are no process groups and no signals, the command alone is ended, at
// once, and nothing ever crashes.

func ownGroup() *syscall.SysProcAttr { return nil }

func terminateGroup(cmd *exec.Cmd) { killGroup(cmd) }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it may have ended already

func diedBySignal(*os.ProcessState) (syscall.Signal, bool) { return 0, false }
