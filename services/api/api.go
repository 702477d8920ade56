// Package api is the queue API, /v2/{endpoint}: it accepts jobs, answers where
// they stand, lets clients wait, cancel, retry and purge, and tells how an
// endpoint does. The jobs live in package queue; nothing is kept here, so any
// number of instances may run side by side.
//
// What a request may do depends on its key (package registry): submit allows
// run, runsync, cancel, retry and changing a job's ttl; read allows status,
// status-sync, stream, requests and health; admin allows all of these and purge-queue.
package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"flightline/shared/events"
	"flightline/shared/limit"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// Config is what may differ between instances. The zero value is good.
type Config struct {
	// Instance names this process among those that beat; it is new with each
	// start. "" means a random one.
	Instance string
	// Limits are the rates and concurrent bounds of operations, for each endpoint
	// that names none of its own. nil means no limits at all, limit.Defaults()
	// those of the contract.
	Limits limit.Table
	// Log hears of what no answer tells. nil means silence.
	Log *slog.Logger
}

// instanceRole is what instances of this service announce.
const instanceRole = "api"

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Events tell of jobs that are gone, and count what is over. nil does
	// without: then /health says 0.
	Events *events.Log
}

// Service answers the queue API.
type Service struct {
	cfg      Config
	log      *slog.Logger
	queue    *queue.Queue
	registry *registry.Registry
	events   *events.Log
	tail     *events.Tail // nil without events
	plain    submitter    // queue.Submit, traced
	limits   *limits
	quiet    time.Duration  // the longest silence of a stream beneath /openai
	aside    sync.WaitGroup // what goes on after its answer, for AnswerWithin at most
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
	s := &Service{
		cfg: cfg, log: cfg.Log, queue: deps.Queue, registry: deps.Registry, events: deps.Events, plain: traced(deps.Queue.Submit),
		limits: newLimits(cfg, deps.Registry), quiet: keepAlive,
	}
	if deps.Events != nil {
		s.tail = events.NewTail(deps.Events, deps.Queue.Durable)
	}
	return s, nil
}

// Run announces this instance until ctx ends, so that an endpoint is deleted
// only after every instance has seen that it takes no more jobs, learns who
// else shares the limits, and reads the events that clients follow. Requests
// have to be over when ctx ends: it waits for what they left behind.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.registry.Instances.Announce(ctx, registry.Instance{ID: s.cfg.Instance, Role: instanceRole})
	})
	if s.cfg.Limits != nil {
		g.Go(func() error { return s.limits.run(ctx) })
	}
	if s.tail != nil {
		g.Go(func() error { return s.tail.Run(ctx) })
	}
	defer s.aside.Wait()
	return g.Wait()
}
