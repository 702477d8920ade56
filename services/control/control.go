// Package control is the REST API beneath /v1: it makes, changes and deletes
// endpoints, API keys, pods, templates and network volumes. Its shapes are those
// of RunPod's REST API where that has the field. Every request needs a key with
// the scope control; for a look at the last three the scope pods will do.
//
// Making an endpoint writes its record first and its queue second; deleting
// one marks the record, waits until every instance has seen that, removes the
// queue, and the record last. A crash in between leaves a record, and Run of
// any instance completes what it says.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// Config is what may differ between installations. The zero value is good.
type Config struct {
	// Partitions is how many there are for new endpoints; that of streams.Apply.
	// 0 means 1.
	Partitions int
	// VolumeRoot is the folder whose folders may be network volumes. "" means that
	// no volume has a path.
	VolumeRoot string
	// Catalog knows prices and places of machines. nil means that nothing is known.
	Catalog *pod.Catalog
	// Log hears of what no answer tells. nil means silence.
	Log *slog.Logger
}

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Events count the jobs of an endpoint, which begins anew if one of the
	// same id is made again.
	Events *events.Log
}

// Service answers /v1.
type Service struct {
	cfg      Config
	log      *slog.Logger
	queue    *queue.Queue
	registry *registry.Registry
	events   *events.Log
	removing turns // by endpoint
}

// New returns a service that is ready for Routes. It starts nothing, and fails
// only if one of deps is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil || deps.Events == nil {
		return nil, errors.New("control: a queue, a registry and a log of events are needed")
	}
	cfg.Partitions = max(1, cfg.Partitions)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, log: cfg.Log, queue: deps.Queue, registry: deps.Registry, events: deps.Events}, nil
}

// repairEvery is the pause between two looks for what a crash left undone.
const repairEvery = time.Minute

// young is the age up to which an endpoint may lack its queue because the
// instance that made it crashed; older ones are looked at when we start.
const young = 10 * time.Minute

// Run completes, until ctx ends, what this or another instance began and did
// not finish: endpoints without their queue, and deletions. It makes queues again
// that were lost.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	for since := (time.Time{}); ; since = time.Now().Add(-young) {
		if err := s.repair(ctx, since); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "endpoints not repaired, trying again later", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// repair shows endpoints to workers as they are now, makes the queues of those made after since, and completes the
// deletions that hurt nobody. One with jobs was perhaps not forced: it waits
// for them to end, or for its deletion to be asked for again.
func (s *Service) repair(ctx context.Context, since time.Time) error {
	if err := s.registry.Endpoints.ShowAll(ctx); err != nil {
		return err
	}
	endpoints, err := s.registry.Endpoints.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if err := s.repairQueue(ctx, e, since); err != nil {
			return err
		}
	}
	deleting, err := s.registry.Endpoints.Deleting(ctx)
	if err != nil {
		return err
	}
	for _, e := range deleting {
		if err := s.remove(ctx, e.ID, false); err != nil && !errors.Is(err, endpoint.ErrBusy) {
			return err
		}
	}
	return nil
}

// repairQueue makes the queue of an endpoint made after since, or of one that
// was lost, and tells it of a pause that lasts, or ended after since: by itself,
// or because it was resumed.
func (s *Service) repairQueue(ctx context.Context, e endpoint.Endpoint, since time.Time) error {
	apply := !e.Created.Before(since)
	if !apply {
		exists, err := s.queue.QueueExists(ctx, e)
		if err != nil {
			return err
		}
		if apply = !exists; apply {
			if now, err := s.registry.Endpoints.Find(ctx, e.ID); err != nil || now.Deleting || !now.Created.Equal(e.Created) {
				return ignoreDeleted(err)
			}
		}
	}
	if apply {
		if err := s.applyQueue(ctx, e); err != nil {
			return err
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

// applyQueue makes the endpoint's queue as its record says, and notes there that
// it exists; if the note fails, Run repeats it. Whatever goes wrong is
// JetStream's doing, and may be tried again.
func (s *Service) applyQueue(ctx context.Context, e endpoint.Endpoint) error {
	if err := s.queue.CreateEndpoint(ctx, e); err != nil {
		return fmt.Errorf("make the queue of %s: %w: %w", e.ID, queue.ErrUnavailable, err)
	}
	if e.QueueMade || e.Deleting {
		return nil
	}
	if err := s.registry.Endpoints.MarkQueueMade(ctx, e); err != nil {
		s.log.WarnContext(ctx, "endpoint not marked as having a queue, trying again later", "endpoint", e.ID, "err", err)
	}
	return nil
}
