// Package control is the REST API beneath /v1: it makes, changes and deletes
// endpoints, API keys, pods, templates and network volumes. Its shapes are those
// of RunPod's REST API where that has the field. Every request needs a key with
// the scope control; for a look at the last three the scope pods will do.
//
// Routes (control.go) lists the routes; each subject has a file, and its JSON
// is beside it. What an endpoint is, its defaults and bounds, is in package
// endpoint.
//
// Making an endpoint writes its record first and its queue second; deleting
// one marks the record, waits until every instance has seen that, removes the
// queue, and the record last. A crash in between leaves a record, and Run of
// any instance completes what it says.
package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/web"
	"flightline/streams"
)

// Config is what may differ between installations. The zero value is good.
type Config struct {
	// Partitions is how many there are for new endpoints; that of streams.Apply.
	// 0 means 1.
	Partitions int
	// VolumeRoot is the folder whose folders may be network volumes. "" means that
	// no volume has a path.
	VolumeRoot string
	// Version is that of this program, "" if it is not known.
	Version string
	// Catalog knows prices and places of machines. nil means that nothing is known.
	Catalog *pod.Catalog
	// Log receives what no answer says. nil discards it.
	Log *slog.Logger
}

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Events count the jobs of an endpoint, which begins again if one of the
	// same id is made again.
	Events *events.Log
	// System answers how the streams whose names contain the text are, without the
	// processes. nil answers without streams and findings.
	System func(ctx context.Context, stream string) (api.System, error)
}

// Service answers /v1.
type Service struct {
	cfg        Config
	log        *slog.Logger
	queue      *queue.Queue
	deliveries *deliveries.Store
	registry   *registry.Registry
	events     *events.Log
	system     func(ctx context.Context, stream string) (api.System, error)
	changing   keyedMutex // by endpoint: one at a time removes it or makes its queue
	named      keyedMutex // by template or volume: it is deleted, or something comes to name it
}

// New returns a service that is ready for Routes. It starts nothing, and fails
// only if one of deps is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil || deps.Events == nil {
		return nil, errors.New("control: a queue, a registry and a log of events are needed")
	}
	cfg.Partitions = max(1, cfg.Partitions)
	if deps.System == nil {
		deps.System = func(context.Context, string) (api.System, error) {
			return api.System{Streams: api.Streams{List: []api.Stream{}}, Consumers: api.Consumers{List: []api.Consumer{}}, Findings: []api.Finding{}}, nil
		}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	store, err := deliveries.New(deps.Queue, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return &Service{cfg: cfg, log: cfg.Log, queue: deps.Queue, deliveries: store, registry: deps.Registry, events: deps.Events, system: deps.System}, nil
}

// repairEvery is the pause between two looks for what a crash left undone, repairPause
// that between two endpoints, at the first look none.
const (
	repairEvery = time.Minute
	repairPause = 20 * time.Millisecond
)

// pauseApplied is how long after its end a pause is applied still: the instance that
// resumed the endpoint may have crashed before the queue had it.
const pauseApplied = 10 * time.Minute

// Run completes, until ctx ends, what this or another instance began and did
// not finish: endpoints without their queue, and deletions. It makes queues again
// that were lost.
func (s *Service) Run(ctx context.Context) error {
	for since := (time.Time{}); ctx.Err() == nil; since = s.queue.Now().Add(-pauseApplied) {
		if err := s.repair(ctx, since); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "endpoints not repaired, trying again later", "err", err)
		}
		_ = retry.Sleep(ctx, repairEvery) // the loop sees the end of ctx
	}
	return nil
}

// repair copies endpoints for workers as they are now, makes the queues that they lack, and
// completes the deletions that were forced or hurt nobody. Another one with jobs waits
// for them to end, or for its deletion to be asked for again. What JetStream refuses
// for an endpoint is logged, and the others are repaired.
func (s *Service) repair(ctx context.Context, since time.Time) error {
	if err := s.registry.Endpoints.RepairWorkerCopies(ctx); err != nil {
		return err
	}
	endpoints, err := s.registry.Endpoints.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if err := logRefused(ctx, s.log, e, s.repairQueue(ctx, e, since)); err != nil {
			return err
		}
		if !since.IsZero() {
			_ = retry.Sleep(ctx, repairPause) // the next call sees the end of ctx
		}
	}
	deleting, err := s.registry.Endpoints.Deleting(ctx)
	if err != nil {
		return err
	}
	for _, e := range deleting {
		if err := s.remove(ctx, e.ID, false); err != nil && !errors.Is(err, endpoint.ErrBusy) {
			if err = logRefused(ctx, s.log, e, ignoreDeleted(err)); err != nil {
				return err
			}
		}
	}
	return nil
}

// logRefused logs an error that JetStream answered with, and returns any other: then it is
// away, for all endpoints.
func logRefused(ctx context.Context, log *slog.Logger, e endpoint.Endpoint, err error) error {
	if !bus.IsRefused(err) {
		return err
	}
	log.WarnContext(ctx, "endpoint not repaired, trying again later", "endpoint", e.ID, "err", err)
	return nil
}

// repairQueue makes the queue of an endpoint that was not made yet or was lost, at the
// first look each as it is to be by now, and applies a pause that lasts, or ended after
// since: by itself, or because it was resumed.
func (s *Service) repairQueue(ctx context.Context, e endpoint.Endpoint, since time.Time) error {
	apply := since.IsZero() || !e.QueueMade
	if !apply {
		exists, err := s.queue.QueueExists(ctx, e)
		if err != nil {
			return err
		}
		apply = !exists
	}
	if apply {
		if err := s.applyQueue(ctx, e); err != nil {
			return ignoreDeleted(err)
		}
	}
	if e.PausedUntil.IsZero() || e.PausedUntil.Before(since) {
		return nil
	}
	_, err := s.applyPause(ctx, e)
	return ignoreDeleted(err)
}

// ignoreDeleted passes over an endpoint that was deleted meanwhile.
func ignoreDeleted(err error) error {
	if errors.Is(err, endpoint.ErrNotFound) {
		return nil
	}
	return err
}

// applyQueue makes the queue of an endpoint as its record says by now, which somebody else
// may have changed since e was read, until both agree. It returns endpoint.ErrNotFound if
// the endpoint was deleted meanwhile: a queue made after that would be of no endpoint.
func (s *Service) applyQueue(ctx context.Context, e endpoint.Endpoint) error {
	unlock, err := s.changing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	for lease := time.Duration(-1); ; {
		now, err := s.registry.Endpoints.Find(ctx, e.ID)
		switch {
		case err != nil:
			return err
		case now.Deleting || !now.Created.Equal(e.Created):
			return endpoint.ErrNotFound
		case now.Lease == lease:
			return nil
		}
		if err := s.makeQueue(ctx, now); err != nil {
			return err
		}
		lease = now.Lease
	}
}

// makeQueue makes the endpoint's queue as its record says, and notes there that
// it exists; if the note fails, Run repeats it. Whatever goes wrong is
// JetStream's doing, and may be tried again. The endpoint must be locked in changing.
func (s *Service) makeQueue(ctx context.Context, e endpoint.Endpoint) error {
	if err := s.queue.CreateEndpoint(ctx, e); err != nil {
		return fmt.Errorf("make the queue of %s: %w: %w", e.ID, bus.ErrUnavailable, err)
	}
	if e.QueueMade || e.Deleting {
		return nil
	}
	if err := s.registry.Endpoints.MarkQueueMade(ctx, e); err != nil {
		s.log.WarnContext(ctx, "endpoint not marked as having a queue, trying again later", "endpoint", e.ID, "err", err)
	}
	return nil
}

// maxBody bounds the bodies beneath /v1.
const maxBody = 1 << 20

// Routes adds /v1 to the app.
func (s *Service) Routes(app *fiber.App) {
	guard := []fiber.Handler{web.Auth(s.registry.Keys, registry.Control), web.MaxBody(maxBody)}
	guarded := func(h fiber.Handler) []fiber.Handler { return append(slices.Clip(guard), h) }

	v1 := app.Group("/v1")
	v1.Post("/endpoints", guarded(web.InTime(s.createEndpoint))...)
	v1.Get("/endpoints", guarded(web.InTime(s.listEndpoints))...)
	v1.Get("/endpoints/:id", guarded(web.InTime(s.getEndpoint))...)
	v1.Patch("/endpoints/:id", guarded(web.InTime(s.updateEndpoint))...)
	v1.Post("/endpoints/:id/update", guarded(web.InTime(s.updateEndpoint))...) // RunPod's older spelling
	v1.Delete("/endpoints/:id", guarded(s.durably(s.deleteEndpoint, streams.BucketEndpoints))...)

	v1.Post("/endpoints/:id/pause", guarded(s.durably(web.InTime(s.pauseEndpoint), streams.BucketEndpoints))...)
	v1.Post("/endpoints/:id/resume", guarded(s.durably(web.InTime(s.resumeEndpoint), streams.BucketEndpoints))...)
	v1.Get("/endpoints/:id/scaling", guarded(web.InTime(s.listScaling))...)

	v1.Get("/endpoints/:id/workers", guarded(web.InTime(s.listWorkers))...)
	v1.Post("/endpoints/:id/workers", guarded(s.durably(web.InTime(s.issueToken), streams.BucketTokens))...)
	v1.Delete("/endpoints/:id/workers/:worker", guarded(s.durably(web.InTime(s.revokeToken), streams.BucketTokens, streams.BucketPods, streams.BucketWorkerPods))...)
	v1.Post("/endpoints/:id/workers/:worker/drain", guarded(s.durably(web.InTime(s.drainWorker), streams.BucketTokens, streams.BucketPods, streams.BucketWorkerPods))...)

	v1.Get("/endpoints/:id/webhooks/deliveries", guarded(s.listDeliveries)...)
	v1.Post("/endpoints/:id/webhooks/replay", guarded(s.replayWebhooks)...)
	v1.Get("/endpoints/:id/webhooks/destinations", guarded(s.listDestinations)...)
	v1.Post("/endpoints/:id/webhooks/pause", guarded(s.durably(s.pauseDestination, streams.BucketDestinations))...)
	v1.Post("/endpoints/:id/webhooks/resume", guarded(s.durably(s.resumeDestination, streams.BucketDestinations))...)
	v1.Post("/endpoints/:id/webhooks/secret", guarded(s.durably(s.rotateSecret, streams.BucketEndpoints))...)

	s.podRoutes(v1, guarded)
	v1.Get("/system", guarded(web.InTime(s.getSystem))...)

	v1.Post("/keys", guarded(s.durably(s.createKey, streams.BucketKeys))...)
	v1.Get("/keys", guarded(s.listKeys)...)
	v1.Get("/key", web.AuthAny(s.registry.Keys), web.MaxBody(maxBody), ownKey)
	v1.Patch("/keys/:id", guarded(s.durably(s.updateKey, streams.BucketKeys))...)
	v1.Delete("/keys/:id", guarded(s.durably(s.revokeKey, streams.BucketKeys))...)
}

// durably answers only once what h wrote to the buckets is on the disk: a key
// that was revoked must not come back with the power. Where an endpoint is made or
// changed, queue.CreateEndpoint waits for that.
func (s *Service) durably(h fiber.Handler, buckets ...string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := h(c)
		if err != nil && c.Method() != fiber.MethodDelete {
			return err
		}
		for _, bucket := range buckets { // also for a deletion that finds nothing: it may repeat another
			if err := s.queue.Bus().Durable(c.UserContext(), streams.Bucket(bucket)); err != nil {
				return err
			}
		}
		return err
	}
}

// podRoutes adds pods, templates and network volumes to /v1. To look at them a
// key needs the scope pods; to change them control, since what a pod runs, runs
// on somebody's machine.
func (s *Service) podRoutes(v1 fiber.Router, guarded func(fiber.Handler) []fiber.Handler) {
	look := []fiber.Handler{web.Auth(s.registry.Keys, registry.LookUp), web.MaxBody(maxBody)}
	seen := func(h fiber.Handler) []fiber.Handler { return append(slices.Clip(look), h) }
	kept := func(h fiber.Handler, buckets ...string) []fiber.Handler { return guarded(s.durably(h, buckets...)) }

	v1.Get("/machines", seen(web.InTime(s.listMachines))...)
	v1.Post("/machines/:machine/gpus/:gpu/quarantine", kept(web.InTime(s.quarantineGPU), streams.BucketGPUs)...)
	v1.Post("/machines/:machine/gpus/:gpu/restore", kept(web.InTime(s.restoreGPU), streams.BucketGPUs)...)
	v1.Get("/pods", seen(web.InTime(s.listPods))...)
	v1.Get("/pods/:pod", seen(web.InTime(s.getPod))...)
	v1.Post("/pods", kept(web.InTime(s.createPod), streams.BucketPods)...)
	v1.Patch("/pods/:pod", kept(web.InTime(s.updatePod), streams.BucketPods, streams.BucketWorkerPods)...)
	v1.Post("/pods/:pod/update", kept(web.InTime(s.updatePod), streams.BucketPods, streams.BucketWorkerPods)...) // RunPod's older spelling
	v1.Post("/pods/:pod/start", kept(web.InTime(s.startPod), streams.BucketPods)...)
	v1.Post("/pods/:pod/stop", kept(web.InTime(s.stopPod), streams.BucketPods)...)
	v1.Post("/pods/:pod/restart", kept(web.InTime(s.restartPod), streams.BucketPods)...)
	v1.Post("/pods/:pod/reset", kept(web.InTime(s.restartPod), streams.BucketPods)...)
	v1.Delete("/pods/:pod", kept(web.InTime(s.deletePod), streams.BucketTokens, streams.BucketPods, streams.BucketWorkerPods)...)

	// What RunPod's tools list and Flightline has none of: it bills nobody, and
	// pulls images without credentials.
	for _, nothing := range []string{"/containerregistryauth", "/billing/pods", "/billing/endpoints", "/billing/networkvolumes"} {
		v1.Get(nothing, seen(func(c *fiber.Ctx) error { return c.JSON([]any{}) })...)
	}

	for _, kind := range []struct {
		name, bucket                         string
		create, list, get, update, deleteOne fiber.Handler
	}{
		{"/templates", streams.BucketTemplates, web.InTime(s.createTemplate), web.InTime(s.listTemplates), web.InTime(s.getTemplate), web.InTime(s.updateTemplate), web.InTime(s.deleteTemplate)},
		{"/networkvolumes", streams.BucketVolumes, web.InTime(s.createVolume), web.InTime(s.listVolumes), web.InTime(s.getVolume), web.InTime(s.updateVolume), web.InTime(s.deleteVolume)},
	} {
		v1.Get(kind.name, seen(kind.list)...)
		v1.Get(kind.name+"/:id", seen(kind.get)...)
		v1.Post(kind.name, kept(kind.create, kind.bucket)...)
		v1.Patch(kind.name+"/:id", kept(kind.update, kind.bucket)...)
		v1.Post(kind.name+"/:id/update", kept(kind.update, kind.bucket)...)
		v1.Delete(kind.name+"/:id", kept(kind.deleteOne, kind.bucket)...)
	}
}
