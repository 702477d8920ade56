package control

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/web"
)

const (
	// standardDeliveries and maxDeliveries bound a page of the log.
	standardDeliveries, maxDeliveries = 50, 500
	// standardOverlap is how long a secret that was replaced goes on signing
	// unless the request says, maxOverlap the longest that it may say.
	standardOverlap, maxOverlap = 24 * time.Hour, 30 * 24 * time.Hour
	// maxReason bounds the text of a pause.
	maxReason = 500
)

// endpointOf returns the endpoint that the route names, whose id outlives the request.
func (s *Service) endpointOf(c *fiber.Ctx) (endpoint.Endpoint, error) {
	return s.registry.Endpoints.Get(c.UserContext(), strings.Clone(c.Params("id")))
}

func (s *Service) listDeliveries(c *fiber.Ctx) error {
	e, err := s.endpointOf(c)
	if err != nil {
		return err
	}
	which, err := deliveriesOf(c, s.queue.Now())
	if err != nil {
		return err
	}
	list, next, err := s.deliveries.List(c.UserContext(), e.ID, which)
	if err != nil {
		return err
	}
	return c.JSON(deliveriesViewOf(list, next))
}

func deliveriesOf(c *fiber.Ctx, now time.Time) (which deliveries.Query, err error) {
	which = deliveries.Query{Job: job.ID(strings.Clone(c.Query("job")))}
	if which.Job != "" && !which.Job.Valid() {
		return which, web.Errorf(web.InvalidRequest, "job is no id: must be 1 to 128 letters, digits, '-' or '_', got %.50q", which.Job)
	}
	if which.Failed, err = web.QueryBool(c, "failed"); err != nil {
		return which, err
	}
	if which.Since, err = web.Since(c.Query("since"), now); err != nil {
		return which, err
	}
	if which.Most, err = limitOf(c, standardDeliveries, maxDeliveries); err != nil {
		return which, err
	}
	if text := c.Query("cursor"); text != "" {
		if which.Before, err = strconv.ParseUint(text, 10, 64); err != nil || which.Before == 0 {
			return which, web.Errorf(web.InvalidRequest, "cursor must be from an earlier answer, got %.20q", text)
		}
	}
	return which, nil
}

// replayWebhooks takes a job, whose webhook is sent again whatever became of
// it, or a time, since which all that were given up are.
func (s *Service) replayWebhooks(c *fiber.Ctx) error {
	e, err := s.endpointOf(c)
	if err != nil {
		return err
	}
	body, err := bindOwn[api.WebhookReplay](c)
	if err != nil {
		return err
	}
	since, err := web.Since(body.Since, s.queue.Now())
	switch {
	case err != nil:
		return err
	case (body.Job == "") == since.IsZero():
		return web.Errorf(web.InvalidRequest, "exactly one of job and since is required")
	case body.Job != "" && !body.Job.Valid():
		return job.ErrNotFound
	}
	which := deliveries.RedriveQuery{Job: body.Job, Since: since}
	if body.Job == "" {
		which.Reason = deliveries.ReasonGivenUp // what is paused waits for resume
	}
	n, err := s.deliveries.Redrive(c.UserContext(), e.ID, which)
	if err == nil && n == 0 && body.Job != "" {
		n, err = 1, s.deliveries.Reenqueue(c.UserContext(), e, body.Job)
	}
	if err != nil {
		return err
	}
	return c.JSON(api.WebhooksReplayed{Replayed: n})
}

func (s *Service) listDestinations(c *fiber.Ctx) error {
	e, err := s.endpointOf(c)
	if err != nil {
		return err
	}
	list, err := s.registry.Destinations.List(c.UserContext(), e.ID)
	if err != nil {
		return err
	}
	return answerList(c, list, destinationViewOf)
}

func (s *Service) pauseDestination(c *fiber.Ctx) error {
	e, body, origin, err := s.destination(c)
	if err != nil {
		return err
	}
	d, err := s.registry.Destinations.Pause(c.UserContext(), e.ID, origin, cmp.Or(body.Reason, "paused by hand"), s.queue.Now())
	if err != nil {
		return err
	}
	return c.JSON(destinationViewOf(d))
}

// resumeDestination first lets new webhooks through and then those that were
// kept. Repeating it completes what was interrupted.
func (s *Service) resumeDestination(c *fiber.Ctx) error {
	e, _, origin, err := s.destination(c)
	if err != nil {
		return err
	}
	if err := s.registry.Destinations.Resume(c.UserContext(), e.ID, origin); err != nil {
		return err
	}
	n, err := s.deliveries.Redrive(c.UserContext(), e.ID, deliveries.RedriveQuery{Reason: deliveries.ReasonPaused, Destination: origin})
	if err != nil {
		return err
	}
	return c.JSON(api.WebhooksReplayed{Replayed: n})
}

func (s *Service) destination(c *fiber.Ctx) (e endpoint.Endpoint, body api.DestinationChange, origin string, err error) {
	if e, err = s.endpointOf(c); err != nil {
		return e, body, "", err
	}
	if body, err = bindOwn[api.DestinationChange](c); err != nil {
		return e, body, "", err
	}
	if len(body.Reason) > maxReason {
		return e, body, "", web.Errorf(web.InvalidRequest, "reason must have at most %d bytes, got %d", maxReason, len(body.Reason))
	}
	origin, ok := registry.OriginOf(body.Destination)
	if !ok {
		return e, body, "", web.Errorf(web.InvalidRequest, "destination must be an http or https address") // it may hold a password
	}
	return e, body, origin, nil
}

// rotateSecret makes a new webhook secret. The present one goes on signing
// beside it for the overlap.
func (s *Service) rotateSecret(c *fiber.Ctx) error {
	body, err := bindOwn[api.SecretRotation](c)
	if err != nil {
		return err
	}
	overlap := standardOverlap
	setMillis(&overlap, body.OverlapMs)
	if overlap < 0 || overlap > maxOverlap {
		return web.Errorf(web.InvalidRequest, "overlapMs must be between 0 and %d, got %d", maxOverlap.Milliseconds(), *body.OverlapMs)
	}
	secret, until := endpoint.NewWebhookSecret(), s.queue.Now().Add(overlap)
	e, err := s.registry.Endpoints.Update(c.UserContext(), strings.Clone(c.Params("id")), func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		if overlap > 0 && len(e.WebhookSecrets(s.queue.Now())) > 1 {
			return e, errOverlap
		}
		return e.WithNewSecret(secret, until), nil
	})
	if errors.Is(err, errOverlap) {
		return web.Errorf(web.InUse, "the secret before this one still signs: wait for the end of its overlap, or give overlapMs 0")
	}
	if err != nil {
		return err
	}
	return c.JSON(api.WebhookSecret{Secret: e.WebhookSecret, OverlapUntil: until.UTC().Truncate(time.Millisecond)})
}

var errOverlap = errors.New("control: two webhook secrets are in use already")

func deliveriesViewOf(list []deliveries.Attempt, next uint64) api.WebhookDeliveries {
	v := api.WebhookDeliveries{Deliveries: make([]api.WebhookDelivery, 0, len(list)), HasMore: next > 0}
	if next > 0 {
		v.Cursor = strconv.FormatUint(next, 10)
	}
	for _, d := range list {
		one := api.WebhookDelivery{
			Job: d.Job, Attempt: d.Attempt, Try: d.Try, Replay: d.Replay != "", Outcome: string(d.Outcome),
			Started: d.Started.UTC().Truncate(time.Millisecond), DurationMs: d.Took.Milliseconds(),
			URL: d.URL, Status: d.Status, Answer: d.Answer, Error: d.Error,
		}
		if !d.Next.IsZero() {
			one.Next = d.Next.UTC().Truncate(time.Millisecond)
		}
		v.Deliveries = append(v.Deliveries, one)
	}
	return v
}

func destinationViewOf(d registry.Destination) api.WebhookDestination {
	v := api.WebhookDestination{Destination: d.Origin, Failures: d.Failures, Paused: d.Paused, Reason: d.Reason}
	if d.Paused {
		v.Since = d.Since.UTC().Truncate(time.Millisecond)
	}
	return v
}
