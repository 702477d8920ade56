package worker

import (
	"context"
	"errors"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
)

const (
	// drainReturnTimeout is how long a handler may take to notice that the worker
	// stops before its job is given back while it still runs.
	drainReturnTimeout = 200 * time.Millisecond
	// lossLookupTimeout bounds finding out why a lease was lost.
	lossLookupTimeout = 500 * time.Millisecond
)

// limits are the instants that end a run, in server time.
type limits struct{ deadline, expires time.Time }

func limitsOf(l *queue.Lease) limits { return limits{l.Deadline(), l.Expires()} }

// first is when the run ends, and why.
func (l limits) first() (time.Time, error) {
	if l.deadline.Before(l.expires) {
		return l.deadline, ErrDeadline
	}
	return l.expires, ErrExpired
}

// runJob sees to one run of a job: the handler, its heartbeats, its limits and
// its outcome. The outcome is settled at once, and runJob returns when the
// handler has returned too. jobs ends when the worker gives its jobs up, and with it the
// handler's context; alive ends later, so that outcomes can still be written.
func (w *worker) runJob(alive, jobs context.Context, l *queue.Lease) {
	alive = w.cfg.Tracer.Process(alive, &l.Job)
	defer telemetry.End(alive, telemetry.Lost) // unless its end was recorded before
	ctx, end := context.WithCancelCause(telemetry.Within(jobs, alive))
	defer end(nil)
	w.presence.started(l.Job.ID)
	defer w.presence.finished(l.Job.ID)

	result := make(chan outcome, 1)
	go w.call(ctx, w.newJob(l, end), result) // waited for at the end

	beats := w.heartbeat(alive, l, end)
	out, err := w.await(ctx, alive, beats, result)
	if err == nil && out.givenBack {
		err = ErrDraining
	}
	if err == nil {
		w.deliver(alive, l, out)
	} else {
		w.conclude(alive, l, err)
	}
	beats.stop()
	<-result // an outcome, or closed by call: the handler has returned
}

// await returns what the handler made of the job, or why its context ended.
func (w *worker) await(ctx, alive context.Context, beats *heartbeat, result <-chan outcome) (outcome, error) {
	at, why := limitsOf(beats.lease).first()
	limit := time.NewTimer(w.q.Until(at))
	defer limit.Stop()
	for {
		select {
		case out := <-result:
			return out, whyUnwanted(out, context.Cause(ctx))
		case <-ctx.Done():
			return outcomeAtDrain(result, context.Cause(ctx))
		case <-beats.lease.Changed():
			beats.changed(alive)
		case lim := <-beats.moved:
			at, why = lim.first()
			limit.Reset(w.q.Until(at))
		case <-limit.C:
			beats.end(why)
		}
	}
}

// outcomeAtDrain waits, if the worker drains, for a handler that has returned or is about to. In
// any other case no outcome is wanted, and it returns why at once.
func outcomeAtDrain(result <-chan outcome, why error) (outcome, error) {
	if !errors.Is(why, ErrDraining) {
		return outcome{}, why
	}
	select {
	case out := <-result:
		return out, whyUnwanted(out, why)
	case <-time.After(drainReturnTimeout):
		return outcome{}, why
	}
}

// whyUnwanted is why an outcome is not taken once the context has ended. That of a handler
// that had returned before the worker gave its jobs up is taken.
func whyUnwanted(out outcome, why error) error {
	if out.ended == nil && errors.Is(why, ErrDraining) {
		return nil
	}
	return why
}

// whyLost reads the job to say which of ErrCancelled, ErrDeadline, ErrExpired and ErrLost it was.
func (w *worker) whyLost(ctx context.Context, l *queue.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, lossLookupTimeout)
	defer cancel()
	now, err := w.q.Status(ctx, w.endpoint, l.Job.ID)
	return lossOf(&l.Job, now, err)
}

// lossOf decides why a run was lost from what the job is now, or why that is
// not known.
func lossOf(held, now *job.Job, err error) error {
	switch {
	case errors.Is(err, job.ErrNotFound):
		return ErrExpired
	case err != nil || now.Attempt != held.Attempt:
		return ErrLost
	case now.Status == job.Cancelled:
		return ErrCancelled
	case now.Status == job.TimedOut:
		return ErrDeadline
	}
	return ErrLost
}

// conclude settles a run whose context ended: what the handler makes of it, or
// has already made, is not wanted. After ErrLost nothing is left to settle: another worker has
// the job, or it has ended.
func (w *worker) conclude(ctx context.Context, l *queue.Lease, why error) {
	w.log.DebugContext(ctx, "run ended", "job", l.Job.ID, "why", why)
	switch {
	case errors.Is(why, ErrDeadline):
		w.settle(ctx, l, func() error {
			now, err := l.TimeOut(ctx)
			return endSpan(ctx, now, err)
		})
	case errors.Is(why, ErrChunkTooLarge):
		w.settle(ctx, l, func() error {
			now, err := l.Fail(ctx, job.ErrTextChunkTooLarge)
			return endSpan(ctx, now, err)
		})
	case errors.Is(why, ErrDraining):
		w.settle(ctx, l, func() error { return release(ctx, l) })
	case errors.Is(why, ErrCancelled):
		telemetry.End(ctx, string(job.Cancelled))
	case errors.Is(why, ErrExpired):
		w.settle(ctx, l, func() error {
			if err := l.Extend(ctx); err != nil {
				return err // ErrLost: there is no outcome after the ttl
			}
			return release(ctx, l) // a caller made the ttl longer meanwhile
		})
	}
}

// release gives the job of the run back.
func release(ctx context.Context, l *queue.Lease) error {
	err := l.Release(ctx)
	if err == nil {
		telemetry.End(ctx, telemetry.GivenBack)
	}
	return err
}

// deliver stores the outcome of the handler: the job is FAILED or COMPLETED.
func (w *worker) deliver(ctx context.Context, l *queue.Lease, out outcome) {
	w.settle(ctx, l, func() error {
		var now *job.Job
		var err error
		if out.failed != "" {
			now, err = l.Fail(ctx, out.failed)
		} else {
			now, err = l.Complete(ctx, out.output)
		}
		switch {
		case err == nil && out.failed != "":
			w.log.InfoContext(ctx, "job failed", "job", l.Job.ID, "error", out.failed)
		case err == nil:
			w.log.DebugContext(ctx, "job ended", "job", l.Job.ID, "status", now.Status)
		}
		return endSpan(ctx, now, err)
	})
}

// endSpan ends the span of the run once its outcome is stored.
func endSpan(ctx context.Context, now *job.Job, err error) error {
	if err == nil {
		telemetry.End(ctx, string(now.Status))
	}
	return err
}

// settle repeats try until it succeeds, the lease is lost, or ctx ends, when
// the lease runs out and another worker takes over. An answer that cannot be
// understood is repeated like a missing answer: giving up would throw a
// result away, and the job's deadline ends it in any case.
func (w *worker) settle(ctx context.Context, l *queue.Lease, try func() error) {
	err := retry.Do(ctx, outageBackoff, func(err error) bool { return !errors.Is(err, queue.ErrLost) }, func() error {
		err := try()
		if err != nil && !errors.Is(err, queue.ErrLost) {
			w.log.DebugContext(ctx, "outcome not taken yet", "job", l.Job.ID, "err", err)
		}
		return err
	})
	switch {
	case errors.Is(err, queue.ErrLost):
		w.log.DebugContext(ctx, "outcome not wanted", "job", l.Job.ID)
	case err != nil:
		w.log.ErrorContext(ctx, "outcome lost with the worker", "job", l.Job.ID, "err", err)
	}
}
