//go:build unix && !linux

package driver

import "syscall"

// leader makes a command the leader of a session.
func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
