//go:build unix

package system

import (
	"fmt"
	"syscall"
)

// The signals that the test sends.
const (
	terminate = syscall.SIGTERM
	stop      = syscall.SIGSTOP
	resume    = syscall.SIGCONT
)

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s to %s: %w", s, p.name, err)
	}
	return nil
}

// killProcess ends a process that somebody else started.
func killProcess(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
