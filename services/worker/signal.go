package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	sdk "flightline/shared/worker"
)

const (
	// signalDelay is how much later than its command or server a worker may learn of a signal
	// that both got: systemd, a terminal and the end of a machine send theirs to each process.
	signalDelay = 500 * time.Millisecond
	// maxInterruptedRun is the last run of a job that is given back: a job that causes the
	// signal, by using up the memory of its unit, does not run for ever.
	maxInterruptedRun = 50
)

// interruption is an error of a job whose command or server may have been ended by a signal.
type interruption struct{ error }

// Unwrap implements errors.Unwrap.
func (i interruption) Unwrap() error { return i.error }

// unstartedTimeout is how long a worker tries to start a job, every signalDelay: somebody may
// be replacing the program, or the server may be starting.
const unstartedTimeout = time.Minute

// errUnstarted ends a worker that cannot start a job: it would fail all that wait.
var errUnstarted = errors.New("worker: no job can be started")

// unstarted is an error of a job that did not begin: its command could not be started, or its
// server took no connection.
type unstarted struct{ error }

// Unwrap implements errors.Unwrap.
func (u unstarted) Unwrap() error { return u.error }

// interruptible is a body whose errors are interruptions.
type interruptible struct{ io.Reader }

// Read implements io.Reader.
func (r interruptible) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = interruption{withoutAddress(err)}
	}
	return n, err
}

// givesBack is the worker's handler, except that a job is given back whose command or server
// was ended together with the worker, and that a job that is unstarted is tried again. After
// unstartedTimeout end ends the working of the worker, and the job is given back.
func (s *Service) givesBack(working context.Context, end context.CancelCauseFunc) sdk.Handler {
	return func(ctx context.Context, j *sdk.Job) (any, error) {
		for began, logged := time.Now(), false; ; logged = true {
			output, err := s.handler(ctx, j)
			_, unbegun := errors.AsType[unstarted](err)
			_, interrupted := errors.AsType[interruption](err)
			switch {
			case (unbegun || interrupted && j.Run <= maxInterruptedRun) && stopsSoon(ctx, s.stopping):
			case !unbegun || ctx.Err() != nil:
				return output, err
			case time.Since(began) < s.unstartedTimeout:
				if !logged {
					j.Logger().WarnContext(ctx, "the job cannot be started, trying again", "err", err)
				}
				continue
			default:
				end(fmt.Errorf("%w: %w", errUnstarted, err))
			}
			<-working.Done()
			return nil, sdk.ErrDraining
		}
	}
}

// stopsSoon reports whether the worker is asked to stop within signalDelay, or was.
func stopsSoon(ctx context.Context, stopping <-chan struct{}) bool {
	late := time.NewTimer(signalDelay)
	defer late.Stop()
	select {
	case <-stopping:
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
