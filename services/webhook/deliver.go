package webhook

import (
	"context"
	"errors"
	"net/http"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

const (
	// troubleAway is how long a completion stays away when JetStream does not
	// answer, deletingAway while its endpoint is being deleted.
	troubleAway, deletingAway = time.Second, 3 * time.Second
	// extendAfter is when one that waited needs more time for an attempt.
	extendAfter = 5 * time.Second
)

// deliver takes one completion as far as it goes now. What goes wrong on our
// side puts it off.
func (s *Service) deliver(ctx context.Context, o *order) verdict {
	if time.Since(o.held) > extendAfter {
		o.Extend()
	}
	ctx = s.within(ctx, o)
	e, err := s.endpointOf(ctx, o)
	if errors.Is(err, endpoint.ErrNotFound) {
		s.log.WarnContext(ctx, "webhook dropped, its endpoint was deleted", "job", o.Job.ID, "endpoint", o.Job.Endpoint)
		o.Done(ctx) // without the endpoint's secret nothing can be signed
		return untried
	}
	if e.Deleting {
		o.Later(deletingAway) // it may be refused yet: then the endpoint lives on
		return untried
	}
	if err != nil {
		return s.putOff(ctx, o, err)
	}
	paused, err := s.park(ctx, o)
	if err != nil || paused {
		return s.putOff(ctx, o, err)
	}
	var last queue.Delivery
	if !o.Fresh {
		last, err = s.queue.LastDelivery(ctx, o.Completion)
	}
	if err != nil {
		return s.putOff(ctx, o, err)
	}
	now := s.queue.Now()
	switch do, n := stepOf(last, o.Replay, now); do {
	case finish:
		o.Done(ctx)
	case giveUp:
		return s.putOff(ctx, o, o.Keep(ctx, queue.GivenUp, o.to.origin))
	case wait:
		o.Later(last.Next.Sub(now))
	case try:
		return s.attempt(ctx, o, e, n, last.Seq)
	}
	return untried
}

// endpointOf is the endpoint that accepted the completion's job; it may be Deleting.
// That it is gone, endpoint.ErrNotFound, is said by the bucket only: what
// memory has may be 2 s old, and hides one that is being deleted.
func (s *Service) endpointOf(ctx context.Context, o *order) (endpoint.Endpoint, error) {
	e, err := s.registry.Endpoints.Get(ctx, o.Job.Endpoint)
	if errors.Is(err, endpoint.ErrNotFound) || err == nil && queue.OfEarlier(e, &o.Job) {
		e, err = s.registry.Endpoints.Find(ctx, o.Job.Endpoint)
	}
	if err == nil && queue.OfEarlier(e, &o.Job) {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	return e, err
}

// putOff is the end of a step that JetStream may have refused: then the
// completion comes again soon. The receiver has no part in it.
func (s *Service) putOff(ctx context.Context, o *order, err error) verdict {
	if err == nil {
		return untried
	}
	s.log.WarnContext(ctx, "webhook put off", "job", o.Job.ID, "endpoint", o.Job.Endpoint, "err", err)
	o.Later(troubleAway)
	return untried
}

// park keeps the completion aside if its destination is paused.
func (s *Service) park(ctx context.Context, o *order) (bool, error) {
	d, err := s.registry.Destinations.Get(ctx, o.Job.Endpoint, o.to.origin)
	if err != nil || !d.Paused {
		return false, err
	}
	return o.KeepIf(ctx, queue.DestinationPaused, o.to.origin, func(ctx context.Context) (bool, error) {
		d, err := s.registry.Destinations.Find(ctx, o.Job.Endpoint, o.to.origin)
		return d.Paused, err
	})
}

// attempt posts the completion and writes down what came of it.
func (s *Service) attempt(ctx context.Context, o *order, e endpoint.Endpoint, n int, after uint64) verdict {
	began, started := time.Now(), s.queue.Now()
	got, err := s.send(ctx, o, e, n)
	if ctx.Err() != nil {
		o.Later(0) // the service stops: another instance tries anew
		return untried
	}
	if errors.Is(err, job.ErrNotFound) {
		return untried // somebody else has delivered it
	}
	gone := errors.Is(err, queue.ErrPayloadGone)
	if err != nil && !gone {
		return s.putOff(ctx, o, err)
	}
	s.point(AfterPost)
	d := queue.Delivery{
		Endpoint: o.Job.Endpoint, Job: o.Job.ID, Attempt: o.Job.Attempt, Try: n, Replay: o.Replay,
		Started: started, Took: time.Since(began), URL: o.to.shown, Status: got.status, Answer: got.answer, Error: got.err,
		Outcome: queue.Delivered,
	}
	ended := started.Add(d.Took)
	if !got.ok() {
		pause, again := pauseAfter(n, e.WebhookRetries, got.retryAfter)
		d.Outcome, d.Next = queue.DeliveryFailed, ended.Add(pause)
		if !again || gone || !d.Next.Add(streams.WebhookWait).Before(o.Ends) {
			d.Outcome, d.Next = queue.DeliveryGivenUp, time.Time{}
		}
	}
	if got.ok() {
		s.book.add(entry{o, queue.Logged{Delivery: d, After: after}})
		return answered
	}
	if err := s.logDelivery(ctx, o, d, after); errors.Is(err, queue.ErrDeliveryLogged) {
		o.Later(0) // then the log decides
		return failed
	} else if err != nil {
		return s.putOff(ctx, o, err)
	}
	s.point(AfterLog)
	s.tried(d.Outcome)
	s.fail(ctx, o, d, got)
	return failed
}

// send loads, signs and posts the completion.
func (s *Service) send(ctx context.Context, o *order, e endpoint.Endpoint, try int) (result, error) {
	if err := o.Load(ctx); err != nil {
		return result{err: queue.ErrPayloadGone.Error()}, err
	}
	body, err := bodyOf(o.Completion, s.cfg.MaxBody, s.cfg.PublicURL)
	if err != nil {
		return result{}, err
	}
	now := s.queue.Now()
	header := http.Header{"Content-Type": contentType, "User-Agent": agent}
	s.signer.sign(header, e.WebhookSecrets(now), idOf(&o.Job), now, body)
	return s.traced(ctx, o, try, header, func(ctx context.Context) (result, error) { return s.post(ctx, o.to, header, body) })
}

// logDelivery appends the attempt. If another one was logged meanwhile, only a
// success is worth telling besides; a failure is ErrDeliveryLogged.
func (s *Service) logDelivery(ctx context.Context, o *order, d queue.Delivery, after uint64) error {
	for {
		err := s.queue.LogDelivery(ctx, d, after)
		if !errors.Is(err, queue.ErrDeliveryLogged) || d.Outcome != queue.Delivered {
			return err
		}
		last, err := s.queue.LastDelivery(ctx, o.Completion)
		if err != nil {
			return err
		}
		if last.Outcome == queue.Delivered && last.Replay == d.Replay || last.Seq == after {
			return nil
		}
		after = last.Seq
	}
}

// fail does in the queue what the log says of a failure.
func (s *Service) fail(ctx context.Context, o *order, d queue.Delivery, got result) {
	switch d.Outcome {
	case queue.Delivered: // the logbook's
	case queue.DeliveryFailed:
		o.Later(d.Next.Sub(s.queue.Now()))
	case queue.DeliveryGivenUp:
		s.log.InfoContext(ctx, "webhook given up", "job", d.Job, "endpoint", d.Endpoint, "attempts", d.Try, "to", o.to.origin, "reason", got.reason())
		s.putOff(ctx, o, o.Keep(ctx, queue.GivenUp, o.to.origin))
		at := s.queue.Now()
		now, err := s.registry.Destinations.GaveUp(ctx, d.Endpoint, o.to.origin, s.cfg.Patience, got.reason(), at)
		switch {
		case err != nil:
			s.log.WarnContext(ctx, "failure not counted", "endpoint", d.Endpoint, "to", o.to.origin, "err", err)
		case now.Paused && now.Since.Equal(at): // by this one
			s.log.WarnContext(ctx, "destination paused", "endpoint", d.Endpoint, "to", o.to.origin, "reason", now.Reason)
		}
	}
}

// answered forgets what was held against a destination.
func (s *Service) answered(ctx context.Context, o *order) {
	d, err := s.registry.Destinations.Get(ctx, o.Job.Endpoint, o.to.origin)
	if err == nil && d.Failures > 0 {
		err = s.registry.Destinations.Answered(ctx, o.Job.Endpoint, o.to.origin)
	}
	if err != nil {
		s.log.DebugContext(ctx, "failures not forgotten", "endpoint", o.Job.Endpoint, "to", o.to.origin, "err", err)
	}
}
