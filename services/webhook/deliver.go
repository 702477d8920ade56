package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

const (
	// unavailableDelay is how long a task is released for when JetStream does not
	// answer, deletingDelay while its endpoint is being deleted.
	unavailableDelay, deletingDelay = time.Second, 3 * time.Second
	// extendAfter is the age of a lease at which an attempt extends it first.
	extendAfter = 5 * time.Second
	// defaultMaxMemory bounds the inputs and outputs of all attempts at once, in bytes.
	defaultMaxMemory = 256 << 20
	// putOffInterval is the pause between two lines about tasks that are put off, after the
	// first maxPutOffBurst.
	putOffInterval = time.Minute
	maxPutOffBurst = 10
)

// deliver takes a task as far as possible now. A failure of our own side
// postpones it.
func (s *Service) deliver(ctx context.Context, t *task) outcome {
	if time.Since(t.extended) > extendAfter {
		t.Extend()
	}
	ctx = s.withTrace(ctx, t)
	e, err := s.endpointOf(ctx, t)
	switch {
	case errors.Is(err, endpoint.ErrNotFound):
		s.log.WarnContext(ctx, "webhook dropped, its endpoint was deleted", "job", t.Job.ID, "endpoint", t.Job.Endpoint)
		t.Ack(ctx) // without the endpoint's secret nothing can be signed
		return untried
	case err != nil:
		return s.postpone(ctx, t, err)
	case e.Deleting:
		t.Nak(deletingDelay) // it may be refused yet: then the endpoint lives on
		return untried
	}
	var last deliveries.Attempt
	if !t.Fresh {
		if last, err = s.deliveries.Last(ctx, t.Task); err != nil {
			return s.postpone(ctx, t, err)
		}
	}
	now := s.queue.Now()
	do, n := stepOf(last, t.Replay, now)
	switch do { // what the log has ended is over, whether its destination is paused or not
	case finish:
		t.Ack(ctx)
		return untried
	case giveUp:
		return s.postpone(ctx, t, t.DeadLetter(ctx, deliveries.ReasonGivenUp, t.to.origin))
	case wait, try:
	}
	parked, err := s.park(ctx, t)
	if err != nil {
		return s.postpone(ctx, t, err)
	}
	if parked {
		return untried
	}
	if do == wait {
		t.Nak(last.Next.Sub(now))
		return untried
	}
	return s.attempt(ctx, t, e, n, last.Seq)
}

// endpointOf returns the endpoint that accepted the task's job; it may be
// Deleting. Only the bucket decides endpoint.ErrNotFound: the cache may be 2 s
// old, and hides an endpoint that is being deleted.
func (s *Service) endpointOf(ctx context.Context, t *task) (endpoint.Endpoint, error) {
	e, err := s.registry.Endpoints.Get(ctx, t.Job.Endpoint)
	if errors.Is(err, endpoint.ErrNotFound) || err == nil && record.LocationOf(e).OfEarlier(&t.Job) {
		e, err = s.registry.Endpoints.Find(ctx, t.Job.Endpoint)
	}
	if err == nil && record.LocationOf(e).OfEarlier(&t.Job) {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	return e, err
}

// postpone releases the task for a moment if a step failed for a reason that is
// not the receiver's; err is nil if none failed.
func (s *Service) postpone(ctx context.Context, t *task, err error) outcome {
	if err == nil {
		return untried
	}
	s.logPutOff(ctx, t, err)
	t.Nak(unavailableDelay)
	return untried
}

// logPutOff logs why a task is put off. While a stream takes no writes, each task is put off
// every few seconds, and some of those are logged.
func (s *Service) logPutOff(ctx context.Context, t *task, err error) {
	s.putOffs.Warn(ctx, s.log, "webhook put off", slog.String("job", string(t.Job.ID)), slog.String("endpoint", t.Job.Endpoint), slog.Any("err", err))
}

// park moves the task to the dead letters if its destination is paused. It waits for
// the disk: a power loss could undo the pause, and no resume would return what it has parked.
func (s *Service) park(ctx context.Context, t *task) (bool, error) {
	d, err := s.registry.Destinations.Get(ctx, t.Job.Endpoint, t.to.origin)
	if err != nil || !d.Paused {
		return false, err
	}
	return t.DeadLetterIf(ctx, deliveries.ReasonPaused, t.to.origin, func(ctx context.Context) (bool, error) {
		d, err := s.registry.Destinations.Find(ctx, t.Job.Endpoint, t.to.origin)
		if err == nil && d.Paused {
			err = s.queue.Bus().Durable(ctx, streams.Bucket(streams.BucketDestinations))
		}
		return d.Paused, err
	})
}

// attempt posts the task and logs the outcome.
func (s *Service) attempt(ctx context.Context, t *task, e endpoint.Endpoint, n int, after uint64) outcome {
	began, started := time.Now(), s.queue.Now()
	got, err := s.send(ctx, t, e, n)
	if ctx.Err() != nil {
		t.Nak(0) // the service stops: another instance tries again
		return untried
	}
	if errors.Is(err, job.ErrNotFound) {
		return untried // another instance has delivered it
	}
	if err != nil && !got.gone {
		return s.postpone(ctx, t, err)
	}
	s.point(AfterPost)
	d := deliveries.Attempt{
		Endpoint: t.Job.Endpoint, Job: t.Job.ID, Attempt: t.Job.Attempt, Try: n, Replay: t.Replay,
		Started: started, Took: time.Since(began), URL: t.to.shown, Status: got.status, Answer: got.answer, Error: got.err,
	}
	d.Outcome, d.Next = outcomeOf(got, n, e.WebhookRetries, started.Add(d.Took), t.Ends)
	if got.ok() {
		s.successes.Go(func() error {
			s.logSuccess(ctx, t, d, after)
			return nil
		})
		return succeeded
	}
	if err := s.logDelivery(ctx, t, d, after); errors.Is(err, deliveries.ErrLogged) {
		t.Nak(0) // then the log decides
		return failed
	} else if err != nil {
		return s.postpone(ctx, t, err)
	}
	s.point(AfterLog)
	s.observe(d.Outcome)
	s.fail(ctx, t, d, got)
	if got.gone {
		return untried
	}
	return failed
}

// send loads, signs and posts the task.
func (s *Service) send(ctx context.Context, t *task, e endpoint.Endpoint, try int) (result, error) {
	began := time.Now()
	size := min(t.Size(), s.cfg.maxMemory)
	if err := s.waitForMemory(ctx, size); err != nil {
		return result{}, err
	}
	defer s.memory.Release(size)
	if err := t.Load(ctx); err != nil {
		return result{err: record.ErrPayloadGone.Error(), gone: errors.Is(err, record.ErrPayloadGone)}, err
	}
	body, err := encodeBody(t.Task, s.cfg.MaxBody, s.cfg.PublicURL)
	if err != nil {
		return result{}, err
	}
	t.Input, t.Job.Output = nil, nil // else they are held until the receiver answers
	if time.Since(began) > extendAfter {
		t.Extend()
	}
	now := s.queue.Now()
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", userAgent)
	if err := sign(header, e.WebhookSecrets(now), messageID(&t.Job), now, body); err != nil {
		return result{}, fmt.Errorf("sign the webhook of job %s: %w", t.Job.ID, err)
	}
	return s.traced(ctx, t, try, header, func(ctx context.Context) (result, error) { return s.post(ctx, t.to, header, body) })
}

// waitForMemory waits for room for so many bytes, which the caller releases.
func (s *Service) waitForMemory(ctx context.Context, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, staleTimeout/2)
	defer cancel()
	if err := s.memory.Acquire(ctx, size); err != nil {
		return fmt.Errorf("wait for other webhooks, which have %d bytes in memory: %w", s.cfg.maxMemory, err)
	}
	return nil
}

// fail releases the task until its next attempt, or gives it up, as the log
// says.
func (s *Service) fail(ctx context.Context, t *task, d deliveries.Attempt, got result) {
	switch d.Outcome {
	case deliveries.Delivered: // logSuccess does it
	case deliveries.Failed:
		t.Nak(d.Next.Sub(s.queue.Now()))
	case deliveries.GivenUp:
		s.log.InfoContext(ctx, "webhook given up", "job", d.Job, "endpoint", d.Endpoint, "attempts", d.Try, "to", t.to.origin, "reason", got.reason())
		s.postpone(ctx, t, t.DeadLetter(ctx, deliveries.ReasonGivenUp, t.to.origin))
		if got.gone {
			return // it is not the receiver's fault
		}
		at := s.queue.Now()
		now, err := s.registry.Destinations.GaveUp(ctx, d.Endpoint, t.to.origin, s.cfg.FailurePolicy, got.reason(), at)
		switch {
		case err != nil:
			s.log.WarnContext(ctx, "failure not counted", "endpoint", d.Endpoint, "to", t.to.origin, "err", err)
		case now.Paused && now.Since.Equal(at): // by this one
			s.log.WarnContext(ctx, "destination paused", "endpoint", d.Endpoint, "to", t.to.origin, "reason", now.Reason)
		}
	}
}

// resetFailures forgets the failures of a destination that answers.
func (s *Service) resetFailures(ctx context.Context, t *task) {
	d, err := s.registry.Destinations.Get(ctx, t.Job.Endpoint, t.to.origin)
	if err == nil && d.Failures > 0 {
		err = s.registry.Destinations.Answered(ctx, t.Job.Endpoint, t.to.origin)
	}
	if err != nil {
		s.log.DebugContext(ctx, "failures not forgotten", "endpoint", t.Job.Endpoint, "to", t.to.origin, "err", err)
	}
}
