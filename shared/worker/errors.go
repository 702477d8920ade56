package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/retry"
)

// Why a handler's context ended, as context.Cause returns. In all these cases
// the handler's result is dropped.
var (
	// ErrCancelled: a caller cancelled the job.
	ErrCancelled = errors.New("worker: job cancelled")
	// ErrDeadline: the job is TIMED_OUT. It is a context.DeadlineExceeded.
	ErrDeadline = fmt.Errorf("worker: execution timeout exceeded: %w", context.DeadlineExceeded)
	// ErrExpired: the job's ttl is over and the job gone. It is a
	// context.DeadlineExceeded.
	ErrExpired = fmt.Errorf("worker: ttl of the job is over: %w", context.DeadlineExceeded)
	// ErrLost: the job is no longer this worker's: another one has it, or it
	// is gone with its endpoint.
	ErrLost = errors.New("worker: job lost to another worker")
	// ErrDraining: the worker stops and the grace is over; the job was given
	// back and runs elsewhere. A handler that cannot go on because of what stops the worker
	// returns it, also within the grace.
	ErrDraining = errors.New("worker: stopping")
	// ErrChunkTooLarge: Emit was given a value, not a string, of more than
	// 1 MB. The job is FAILED.
	ErrChunkTooLarge = chunks.ErrTooLarge
)

// ErrStuck is what Run returns if, some seconds after the grace, a handler has
// not returned or NATS has not taken a result. The process should end.
var ErrStuck = errors.New("worker: jobs still running after the grace")

// ErrWake is what Run returns if the worker slept and could not wake.
var ErrWake = errors.New("worker: it could not wake")

// ErrConfig is what Run returns if the Config cannot be used.
var ErrConfig = errors.New("worker: configuration")

// outageBackoff is for the time that NATS is away: short at first, as most outages
// are, and short enough in the end that a job does not wait for its worker.
var outageBackoff = retry.Backoff{First: 50 * time.Millisecond, Max: time.Second}

// isOutage reports whether an error says that NATS was away: a repetition may succeed.
func isOutage(err error) bool { return errors.Is(err, bus.ErrUnavailable) }
