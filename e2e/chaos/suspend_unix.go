//go:build unix

package main

import (
	"os"
	"syscall"
)

// suspend makes a process hang, as a network partition does for its peers;
// resume ends that.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
