package worker

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"
)

const (
	// signalDelay is how much later than its command a worker may learn of a signal that both
	// got: systemd, a terminal and the end of a machine send theirs to each process.
	signalDelay = 500 * time.Millisecond
	// maxInterruptedRun is the last run of a job that is given back: a job that causes the
	// signal, by using up the memory of its unit, does not run for ever.
	maxInterruptedRun = 50
)

// workerStops reports whether the worker is asked to stop soon, or was.
func (c *command) workerStops(ctx context.Context) bool {
	late := time.NewTimer(signalDelay)
	defer late.Stop()
	select {
	case <-c.stopping:
		return true
	case <-ctx.Done():
	case <-late.C:
	}
	return false
}

// A shell ends with these codes if a signal ended what it ran.
const (
	codeHangup    = 128 + int(syscall.SIGHUP)
	codeInterrupt = 128 + int(syscall.SIGINT)
	codeTerminate = 128 + int(syscall.SIGTERM)
)

// wasAskedToEnd reports whether a command's error is that somebody asked it to end.
func wasAskedToEnd(err error) bool {
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	code := ended.ExitCode()
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return code == codeHangup || code == codeInterrupt || code == codeTerminate
}
