package worker

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	sdk "flightline/shared/worker"
)

// interruption is the error of a handler that what stops the worker may have caused, too:
// systemd, a terminal and the end of a machine send their signal to each process.
type interruption struct{ error }

func (i interruption) Unwrap() error { return i.error }

// signalDelay is how much later than its command, or than a server, a worker may learn of a
// signal that both got.
const signalDelay = 500 * time.Millisecond

// orGiveBack is handler, except that an interruption gives the job back if the worker stops:
// another one runs it.
func orGiveBack(stopping <-chan struct{}, handler sdk.Handler) sdk.Handler {
	return func(ctx context.Context, j *sdk.Job) (any, error) {
		output, err := handler(ctx, j)
		if _, ok := errors.AsType[interruption](err); !ok {
			return output, err
		}
		late := time.NewTimer(signalDelay)
		defer late.Stop()
		select {
		case <-stopping:
			return nil, sdk.ErrDraining
		case <-ctx.Done():
		case <-late.C:
		}
		return output, err
	}
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
