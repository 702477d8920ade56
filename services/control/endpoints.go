package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/web"
)

const (
	// undoTimeout bounds the deletion of an endpoint whose queue could not be made.
	undoTimeout = 10 * time.Second
	// idLength is how many characters an id has where none is given.
	idLength = 10
)

func (s *Service) createEndpoint(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[endpointBody](c)
	if err != nil {
		return err
	}
	made, err := body.endpoint()
	if err != nil {
		return err
	}
	if err := mustDifferInMoreThanCase(ctx, s.registry.Endpoints, made.ID); err != nil {
		return err
	}
	if made.Owner, err = s.owner(ctx, c); err != nil {
		return err
	}
	made.Partition = partitionOf(made.ID, s.cfg.Partitions)
	made.WebhookSecret = endpoint.NewWebhookSecret()
	if err := s.outlive(ctx, made.ID); err != nil {
		return err
	}
	if err := mustHaveNoJobs(ctx, s.queue.Counts, s.registry.Endpoints, made); err != nil {
		return err
	}
	made.Created = s.queue.Now().UTC().Truncate(time.Millisecond) // as precise as a job's
	id := made.ID
	if err := whileNamed(ctx, &s.named, body.TemplateID, s.registry.Templates.Get, noTemplate, func() (err error) {
		made, err = s.registry.Endpoints.Create(ctx, made)
		return err
	}); err != nil {
		if there, findErr := s.registry.Endpoints.Find(ctx, id); errors.Is(err, endpoint.ErrExists) && findErr == nil && there.Deleting {
			return web.Errorf(web.EndpointExists, "endpoint %s is being deleted; create it again once that is over", id)
		}
		return err
	}
	if err := s.applyQueue(ctx, made); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		_ = s.withdraw(undo, made, false) // else Run makes the queue, or ends the deletion
		return err
	}
	return c.JSON(viewOf(made, s.queue.Now()))
}

// mustDifferInMoreThanCase refuses an id that is that of another endpoint but for the case of
// letters. NATS keeps each queue in a folder of the stream's name, and file systems that
// ignore case, the default of macOS, would have both in one. Requests at about the same time
// may pass.
func mustDifferInMoreThanCase(ctx context.Context, endpoints *registry.Endpoints, id string) error {
	known, err := endpoints.Known(ctx)
	for _, e := range known {
		if e.ID != id && strings.EqualFold(e.ID, id) {
			return web.Errorf(web.EndpointExists, "the id %q differs only in case from that of the endpoint %q, which exists already", id, e.ID)
		}
	}
	return err
}

// owner is the key that creates an endpoint. It is refused if as many of its own
// exist as its quota allows; requests at about the same time may exceed that. The
// endpoints are counted in memory: to read all of them for each new one would take
// most of the time and memory that a thousand take to make.
func (s *Service) owner(ctx context.Context, c *fiber.Ctx) (id string, err error) {
	key := web.Caller(c)
	bound := key.Quota.MaxEndpoints()
	if bound == 0 {
		return key.ID, nil
	}
	own, err := s.registry.Endpoints.KnownOf(ctx, key.ID)
	if err == nil && own >= bound { // memory may have what was deleted a moment ago
		own, err = s.registry.Endpoints.CountOf(ctx, key.ID)
	}
	if err != nil {
		return "", err
	}
	if own >= bound {
		return "", web.Errorf(web.TooManyRequests, "too many endpoints: this key has created %d that exist, and its quota is %d", own, bound)
	}
	return key.ID, nil
}

func (s *Service) listEndpoints(ctx context.Context, c *fiber.Ctx) error {
	show, err := s.endpointShower(ctx, c)
	if err != nil {
		return err
	}
	endpoints, err := s.registry.Endpoints.List(ctx)
	if err != nil {
		return err
	}
	return answerList(c, endpoints, show)
}

func (s *Service) getEndpoint(ctx context.Context, c *fiber.Ctx) error {
	show, err := s.endpointShower(ctx, c)
	if err != nil {
		return err
	}
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	return c.JSON(show(e))
}

func (s *Service) updateEndpoint(ctx context.Context, c *fiber.Ctx) error {
	body, err := bind[endpointBody](c)
	if err != nil {
		return err
	}
	id := strings.Clone(c.Params("id"))
	if body.ID != nil && *body.ID != id {
		return web.Errorf(web.InvalidRequest, "id cannot be changed")
	}
	if err := body.check(); err != nil {
		return err
	}
	now := s.queue.Now().UTC().Truncate(time.Millisecond)
	var e endpoint.Endpoint
	if err := whileNamed(ctx, &s.named, body.TemplateID, s.registry.Templates.Get, noTemplate, func() (err error) {
		e, err = s.registry.Endpoints.Update(ctx, id, func(e endpoint.Endpoint) (endpoint.Endpoint, error) { return body.change(e, now) })
		return err
	}); err != nil {
		return err
	}
	if err := s.applyQueue(ctx, e); err != nil { // the lease; the same again is fine
		return err
	}
	return c.JSON(viewOf(e, s.queue.Now()))
}

// deleteEndpoint takes as long as the jobs take to cancel.
func (s *Service) deleteEndpoint(c *fiber.Ctx) error {
	force, err := web.QueryBool(c, "force")
	if err != nil {
		return err
	}
	return noContent(c, s.remove(c.UserContext(), strings.Clone(c.Params("id")), force))
}

// partitionOf spreads endpoints over the partitions that exist when they are made.
func partitionOf(id string, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))                 // never fails
	return int(h.Sum32() % uint32(partitions)) //nolint:gosec // at most 1023, and at least 1 by New
}

// newID is a random id of lower-case letters and digits.
func newID() string { return strings.ToLower(rand.Text()[:idLength]) }

// minPause is the shortest pause.
const minPause = time.Second

// pauseEndpoint makes the endpoint hand out no jobs. It goes on taking them.
func (s *Service) pauseEndpoint(ctx context.Context, c *fiber.Ctx) error {
	body, err := bindOptional[api.Pause](c)
	if err != nil {
		return err
	}
	length := endpoint.MaxPause.Milliseconds()
	set(&length, body.DurationMs)
	if length < minPause.Milliseconds() || length > endpoint.MaxPause.Milliseconds() {
		return web.Errorf(web.InvalidRequest, "durationMs must be between %d and %d, got %d", minPause.Milliseconds(), endpoint.MaxPause.Milliseconds(), length)
	}
	return s.setPause(ctx, c, s.queue.Now().Add(time.Duration(length)*time.Millisecond))
}

// resumeEndpoint ends a pause, if there is one. The record keeps the moment, so
// that a crash before the queue knows of it is repaired.
func (s *Service) resumeEndpoint(ctx context.Context, c *fiber.Ctx) error {
	return s.setPause(ctx, c, s.queue.Now())
}

func (s *Service) setPause(ctx context.Context, c *fiber.Ctx, until time.Time) error {
	until = until.UTC().Truncate(time.Millisecond)
	e, err := s.registry.Endpoints.Update(ctx, strings.Clone(c.Params("id")), func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.PausedUntil, e.PauseReason = until, ""
		return e, nil
	})
	if err != nil {
		return err
	}
	if e, err = s.applyPause(ctx, e); err != nil {
		return err
	}
	return c.JSON(viewOf(e, s.queue.Now()))
}

// applyPause applies the pause of the endpoint's record to its queue.
func (s *Service) applyPause(ctx context.Context, e endpoint.Endpoint) (endpoint.Endpoint, error) {
	return s.registry.Endpoints.ApplyPause(ctx, e, func(ctx context.Context, e endpoint.Endpoint) error {
		if err := s.queue.ApplyPause(ctx, e); err != nil {
			return fmt.Errorf("pause %s: %w: %w", e.ID, bus.ErrUnavailable, err)
		}
		return nil
	})
}

// standardDecisions and maxDecisions bound the history of scaling.
const standardDecisions, maxDecisions = 20, 100

func decisionViewOf(d registry.Decision) api.ScalingDecision {
	return api.ScalingDecision{
		At: api.FormatTime(d.At), Wanted: d.Wanted, Current: d.Current, Starting: d.Starting, Idle: d.Idle, Running: d.Running,
		Unhealthy: d.Unhealthy, Draining: d.Draining, Queued: d.Queued, QueuedLow: d.QueuedLow, InProgress: d.InProgress,
		OldestWaitMs: d.OldestWait.Milliseconds(), Reason: d.Reason, Text: d.Text, Hold: d.Hold,
		ScalerType: d.ScalerType, ScalerValue: d.ScalerValue, WorkersMin: d.WorkersMin, WorkersMax: d.WorkersMax,
	}
}

// listScaling lists what the autoscaler decided about the endpoint, the newest first.
func (s *Service) listScaling(ctx context.Context, c *fiber.Ctx) error {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	most, err := limitOf(c, standardDecisions, maxDecisions)
	if err != nil {
		return err
	}
	decisions, err := s.registry.Scaling.History(ctx, e.ID, most)
	if err != nil {
		return err
	}
	views := make([]api.ScalingDecision, 0, len(decisions))
	for _, d := range decisions {
		if !d.At.Before(e.Created) { // not those about another of the same id
			views = append(views, decisionViewOf(d))
		}
	}
	return c.JSON(views)
}
