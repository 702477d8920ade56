// Package api is the queue API, /v2/{endpoint}: it accepts jobs, answers where
// they stand, lets clients wait, cancel, retry and purge, and tells how an
// endpoint does. The jobs live in package queue; nothing is kept here, so any
// number of instances may run side by side.
//
// What a request may do depends on its key (package registry): submit allows
// run, runsync, cancel, retry and changing a job's ttl; read allows status,
// status-sync and health; admin allows all of these and purge-queue.
package api

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"flightline/shared/queue"
	"flightline/shared/registry"
)

// Config is what may differ between instances. The zero value is good.
type Config struct {
	// Instance names this process among those that beat; it is new with each
	// start. "" means a random one.
	Instance string
	// Log hears of what no answer tells. nil means silence.
	Log *slog.Logger
}

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Counts knows what is over and done with. nil means that nobody counts,
	// and /health says 0.
	Counts Counts
}

// Counts tells how many jobs of an endpoint ended how, since it was made.
type Counts interface {
	Totals(ctx context.Context, endpointID string) (Totals, error)
}

// Totals are the jobs that are over, as /health shows them (product.md 11).
type Totals struct {
	// Completed counts attempts that ended COMPLETED.
	Completed int64
	// Failed counts attempts that ended FAILED or TIMED_OUT.
	Failed int64
	// Retried counts extra pick-ups and retries.
	Retried int64
}

// Service answers the queue API.
type Service struct {
	cfg      Config
	log      *slog.Logger
	queue    *queue.Queue
	registry *registry.Registry
	counts   Counts
}

// New returns a service that is ready for Routes. It starts nothing, and fails
// only if Queue or Registry is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil {
		return nil, errors.New("api: a queue and a registry are needed")
	}
	if cfg.Instance == "" {
		cfg.Instance = uuid.NewString()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, log: cfg.Log, queue: deps.Queue, registry: deps.Registry, counts: deps.Counts}, nil
}

// Run announces this instance until ctx ends, so that an endpoint is deleted
// only after every instance has seen that it takes no more jobs.
func (s *Service) Run(ctx context.Context) error {
	return s.registry.Instances.Announce(ctx, registry.Instance{ID: s.cfg.Instance, Role: "api"})
}
