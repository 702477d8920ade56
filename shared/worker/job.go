package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/logs"
	"flightline/shared/queue"
	"flightline/shared/retry"
)

var errInvalidJSON = errors.New("a json.RawMessage that is no JSON")

// Job is one run of a job. A Job that a test makes by hand works too: it has
// no s3Config, and what it emits goes nowhere.
type Job struct {
	// ID of the job; the same for all its runs.
	ID string
	// Input is the JSON object that the caller submitted.
	Input json.RawMessage
	// Webhook is the address that is called with the outcome, or "".
	Webhook string

	// Attempt counts from 1, one more for each retry that a caller asked for.
	Attempt int
	// Run counts the pick-ups of this attempt from 1; it is more than 1 after
	// a worker was lost or gave the job back.
	Run int
	// Deadline is when this run times out, or the job's ttl ends if that is
	// sooner, by this machine's clock. A caller may move it by changing the
	// ttl; the handler's context knows.
	Deadline time.Time

	// ExecutionTimeout, TTL and LowPriority are the policy in force.
	ExecutionTimeout, TTL time.Duration
	LowPriority           bool

	s3    json.RawMessage
	s3Net []netip.Prefix          // Config.S3AllowNetworks
	lease *queue.Lease            // nil for a job made by hand
	end   context.CancelCauseFunc // ends the run's context
	lines *logs.Recorder          // nil for a job made by hand, and if lines are kept already
	log   *slog.Logger            // nil for a job made by hand
}

func (w *worker) newJob(l *queue.Lease, end context.CancelCauseFunc) *Job {
	j := &l.Job
	ends, _ := limitsOf(l).first()
	return &Job{
		ID: string(j.ID), Input: l.Input, Webhook: j.Webhook, Attempt: j.Attempt, Run: j.Run,
		Deadline:         time.Now().Add(w.q.Until(ends)),
		ExecutionTimeout: j.ExecutionTimeout, TTL: j.Expires.Sub(j.Submitted), LowPriority: j.Class == job.LowPriority,
		s3: l.S3Config, s3Net: w.cfg.S3AllowNetworks, lease: l, end: end, lines: w.lines, log: w.log,
	}
}

// Emit appends v, encoded as a handler's output is, to the job's stream, where
// callers read it as {"output": v} while the job runs. nil is not told. Of a
// string over 1 MB, that object around it included, several chunks are made;
// any other value over 1 MB is ErrChunkTooLarge and fails the job.
//
// Emit returns before v is stored, which happens at once; up to 2048 chunks or
// 2 MB may wait for that. While they do Emit waits, until ctx ends: no chunk is
// lost to an outage, and none is there twice. The job's outcome is written after all
// its chunks, and a chunk that cannot be stored fails the job. Emit's other errors
// mean that, that v cannot be encoded, or that the job is no longer this worker's
// (ErrLost).
func (j *Job) Emit(ctx context.Context, v any) error {
	output, err := encode(v)
	if err != nil {
		return fmt.Errorf("emit a chunk: %w", err)
	}
	if j.lease == nil || len(output) == 0 {
		return nil
	}
	chunk := slices.Concat([]byte(`{"output":`), output, []byte(`}`))
	err = retry.Do(ctx, outageBackoff, isOutage, func() error { return j.lease.Emit(ctx, chunk) })
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case errors.Is(err, chunks.ErrTooLarge):
		j.end(ErrChunkTooLarge)
	case errors.Is(err, queue.ErrLost):
		return ErrLost
	}
	return err
}

// Progress makes v, encoded as a handler's output is, the job's output until
// the job ends; at most 64 KB. It is for people who look: while NATS is away
// it drops v and returns nil. Its errors are those of Emit, and
// queue.ErrProgressTooLarge, which changes nothing.
func (j *Job) Progress(ctx context.Context, v any) error {
	value, err := encode(v)
	if err != nil {
		return fmt.Errorf("report progress: %w", err)
	}
	if j.lease == nil || len(value) == 0 {
		return nil
	}
	err = j.lease.Progress(ctx, value)
	switch {
	case errors.Is(err, bus.ErrUnavailable):
		return nil
	case errors.Is(err, queue.ErrLost):
		return ErrLost
	}
	return err
}

// String names the job; its input and s3Config stay out of it.
func (j Job) String() string { return fmt.Sprintf("job %s attempt %d run %d", j.ID, j.Attempt, j.Run) }

// GoString is String.
func (j Job) GoString() string { return j.String() }

// LogValue has what String has, with keys.
func (j Job) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job", j.ID), slog.Int("attempt", j.Attempt), slog.Int("run", j.Run))
}
