// Package api is the queue API, /v2/{endpoint}, and what /v1 shows of all endpoints
// together (overview, failures, workers, events, jobs); the rest of /v1 is package control.
// It accepts jobs, answers their status, lets clients wait, cancel, retry and purge, and
// counts an endpoint's jobs. The jobs are in package queue; nothing is kept here, so any
// number of instances may run side by side.
//
// A new route: its line in Routes (api.go), its handler in the file of its
// subject, its limit in package ratelimit, its description in package openapi.
// Error codes are in package web.
//
// A submission (submit.go) with an idempotency key claims the key, queues the job under the id
// of the claim, and marks the key as accepted. A later request with the key is answered by that
// job; where that is not there, it looks for traces of it, and queues it only if it finds none.
//
// What a request may do depends on its key (package registry): submit allows run, runsync,
// cancel, retry, the OpenAI route and changing a job's ttl; read allows the
// routes that change nothing; admin allows all of these and purge-queue. Routes has the
// permission of each.
package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"flightline/services/api/openai"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// Config is what may differ between instances. The zero value is good.
type Config struct {
	// Limits are the rates and concurrent bounds of operations, for each endpoint
	// that names none of its own. nil means no limits at all, ratelimit.Defaults()
	// those of the contract.
	Limits ratelimit.Table
	// StreamFormat is the form of /stream where neither the request nor its
	// endpoint decides: "array" (also ""), as the contract says, or "object".
	StreamFormat string
	// MaxSubmitting bounds the submissions that are being written to the bus at a time.
	// Others wait for a second at most, and are then answered 503. 0 means 256.
	MaxSubmitting int
	// Log gets what no answer reports. nil discards it.
	Log *slog.Logger
}

// instanceRole is what instances of this service announce.
const instanceRole = string(streams.RoleAPI)

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Events has the ends of jobs that are gone, and counts what is over.
	Events *events.Log
}

// Service answers the queue API.
type Service struct {
	cfg      Config
	instance string // names this process among those that send heartbeats
	log      *slog.Logger
	queue    *queue.Queue
	registry *registry.Registry
	events   *events.Log
	tail     *events.Tail
	// recentFor is the constant; tests shorten it.
	recentFor time.Duration
	limits    *limits
	turns     *semaphore.Weighted // of submissions
	openAI    *openai.Handler
}

// New returns a service that is ready for Routes. It starts nothing, and fails
// only if one of the deps is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil || deps.Events == nil {
		return nil, errors.New("api: a queue, a registry and a log of events are needed")
	}
	cfg.MaxSubmitting = cmp.Or(cfg.MaxSubmitting, maxSubmitting)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Service{
		cfg: cfg, instance: uuid.NewString(), log: cfg.Log, queue: deps.Queue, registry: deps.Registry, events: deps.Events,
		tail: events.NewTail(deps.Events, deps.Queue.Bus().Durable), recentFor: recentFor, turns: semaphore.NewWeighted(int64(cfg.MaxSubmitting)),
	}
	s.limits = newLimits(cfg, s.instance, deps.Registry)
	s.openAI = openai.New(openai.Config{
		Queue: deps.Queue, Registry: deps.Registry, Submit: s.queueInTurn, Caller: s.limits.caller,
		SendEvents: sendAsItComes, MaxSilence: keepAlive, Log: cfg.Log,
	})
	return s, nil
}

// Run announces this instance until ctx ends, so that an endpoint is deleted
// only after every instance has seen that it takes no more jobs, learns who
// else shares the limits, and reads the events that clients follow. Requests
// have to be over when ctx ends: it waits for what they left behind.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.registry.Instances.Announce(ctx, registry.Instance{ID: s.instance, Role: instanceRole})
	})
	if s.cfg.Limits != nil {
		g.Go(func() error { return s.limits.run(ctx) })
	}
	g.Go(func() error { return s.tail.Run(ctx) })
	defer s.openAI.Wait()
	return g.Wait()
}

// maxSmallBody bounds the bodies of operations that read none; clients send
// "{}" with them all the same.
const maxSmallBody = 64 << 10

// Routes adds the queue API to the app. The order within a route is: may the
// caller, may it now (limits), is the body too large, do it.
func (s *Service) Routes(app *fiber.App) {
	submit := web.Auth(s.registry.Keys, registry.Submit)
	read := web.Auth(s.registry.Keys, registry.Read)
	admin := web.Auth(s.registry.Keys, registry.Admin)
	small := web.MaxBody(maxSmallBody)
	both := []string{fiber.MethodGet, fiber.MethodPost} // some clients poll with POST

	v2 := app.Group("/v2/:endpoint")
	v2.Post("/run", submit, s.limited(ratelimit.Run), web.MaxBody(job.MaxRunBody), s.run)
	v2.Post("/runsync", submit, s.limited(ratelimit.RunSync), web.MaxBody(job.MaxRunSyncBody), s.runSync)
	for _, method := range both {
		v2.Add(method, "/status/:id", read, s.limited(ratelimit.Status), small, s.forJob(s.status))
		v2.Add(method, "/status-sync/:id", read, s.limited(ratelimit.Status), small, s.statusSync)
		v2.Add(method, "/stream/:id", read, s.limited(ratelimit.Stream), small, s.stream)
	}
	v2.Post("/cancel/:id", submit, s.limited(ratelimit.Cancel), small, s.forJob(s.cancel))
	v2.Post("/retry/:id", submit, s.limited(ratelimit.Retry), small, s.forJob(s.retry))
	v2.Post("/purge-queue", admin, s.limited(ratelimit.PurgeQueue), small, s.purge)
	for _, method := range both { // not Get, which would take HEAD for a job
		v2.Add(method, "/openai/+", submit, s.limited(ratelimit.OpenAI), web.MaxBody(job.MaxRunSyncBody), s.openAI.Handle)
	}
	v2.Get("/requests", read, s.limited(ratelimit.Requests), small, s.forEndpoint(s.requests))
	v2.Get("/events", read, s.limited(ratelimit.Stream), small, s.forEndpoint(s.eventsOfEndpoint))
	v2.Get("/events/:id", read, s.limited(ratelimit.Stream), small, s.forJob(s.eventsOfJob))
	v2.Get("/logs", read, s.limited(ratelimit.Stream), small, s.forEndpoint(s.logsOfEndpoint))
	v2.Get("/logs/:id", read, s.limited(ratelimit.Stream), small, s.forJob(s.logsOfJob))
	v2.Get("/explain/:id", read, s.limited(ratelimit.Explain), small, s.forJob(s.explain))
	v2.Get("/input/:id", read, s.limited(ratelimit.Status), small, s.forJob(s.input))
	v2.Get("/scale", read, s.limited(ratelimit.Scale), small, s.forEndpoint(s.scale))
	v2.Get("/health", read, small, s.forEndpoint(s.health))
	v2.Get("/stats", read, s.limited(ratelimit.Stats), small, s.forEndpoint(s.stats))
	v2.Get("/failures", read, s.limited(ratelimit.Stats), small, s.forEndpoint(s.failures))

	some := web.AuthSome(s.registry.Keys, registry.Read)
	v1 := app.Group("/v1")
	v1.Get("/overview", some, s.limited(ratelimit.Key), small, web.InTime(s.overview))
	v1.Get("/failures", some, s.limited(ratelimit.Key), small, web.InTime(s.allFailures))
	v1.Get("/workers", some, s.limited(ratelimit.Key), small, web.InTime(s.workers))
	v1.Get("/events", some, s.limited(ratelimit.Key), small, web.InTime(s.eventsOfAll))
	v1.Get("/jobs/:id", some, s.limited(ratelimit.Key), small, web.InTime(s.findJob))
}
