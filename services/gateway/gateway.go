// Package gateway speaks RunPod's worker protocol, so that a worker written for
// RunPod runs here unmodified: it is handed jobs by a long poll, says by a ping
// which of them it still has, posts chunks and results, and learns which jobs
// to stop.
//
// An instance keeps nothing that another one could not take over. A lease is
// (job, attempt, run), and the record names the worker, so ping, chunk and
// result may land on any instance, before and after a restart (package queue).
// A result is answered 200 only once it is durable, and everything that a worker
// may rightly post is answered 200, also what is late, stale or repeated: it is
// dropped, logged and counted. A 4xx would make the worker forget the result, a
// 5xx makes it try again.
//
// Reading order: routes.go, bind.go (which worker asks), take.go (a job is handed
// out), hold.go (for how long a poll is held), ping.go (the worker has it), done.go
// and result.go (its end), stop.go (job-stop).
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/streams"
)

// Config is what may differ between instances. The zero value is good.
type Config struct {
	// Hold is how long a poll is held when there is nothing to say. 0 means
	// 20 s; workers give up after 30 s at the earliest.
	Hold time.Duration
	// Confirm is how long a worker may take to name a job, that it was handed,
	// in a ping; then somebody else gets it, and no worker counts as lost. The
	// endpoint's lease is the most. 0 means 30 s.
	Confirm time.Duration
	// Tracer makes the spans of what workers ran. nil means none.
	Tracer *telemetry.Tracer
	// Stale, if not nil, is called when a result is dropped because its worker
	// does not hold the job.
	Stale func(endpoint string)
	// HasSpace, if not nil, is asked before a chunk is stored: its error fails the job,
	// since chunks without end would take the space that the ends of all jobs need.
	HasSpace func() error
	// Log gets what no answer says. nil means silence.
	Log *slog.Logger

	// leftLeases is for how many leases a worker that left a poll may begin none. 0 means 3.
	leftLeases int
}

const (
	defaultHold    = 20 * time.Second
	defaultConfirm = 30 * time.Second

	defaultLeftLeases = 3
	// instanceRole is what instances of this service announce.
	instanceRole = string(streams.RoleGateway)
)

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
}

// Service answers the workers.
type Service struct {
	cfg         Config
	log         *slog.Logger
	queue       *queue.Queue
	registry    *registry.Registry
	stopSignals *stopSignals
	pods        *lastSeen // whose records are there
	served      *lastSeen // who took a job or ended one
	warned      *lastSeen // who pings and does not poll
	named       *namedJobs
	counts      counts
}

// counts is what happened since the start of this instance. Tests read it: none of it is
// to be seen in an answer.
type counts struct {
	dropped   atomic.Int64 // results, chunks and progress that came late or twice
	oversized atomic.Int64 // results that were too large to read
	retried   atomic.Int64 // repeated writes that JetStream had not answered
}

// New returns a service that is ready for Routes. It starts nothing, and fails
// only if Queue or Registry is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil {
		return nil, errors.New("gateway: a queue and a registry are needed")
	}
	cfg.Hold, cfg.Confirm = cmp.Or(cfg.Hold, defaultHold), cmp.Or(cfg.Confirm, defaultConfirm)
	cfg.leftLeases = cmp.Or(cfg.leftLeases, defaultLeftLeases)
	if cfg.HasSpace == nil {
		cfg.HasSpace = func() error { return nil }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Service{
		cfg: cfg, log: cfg.Log, queue: deps.Queue, registry: deps.Registry,
		stopSignals: newStopSignals(deps.Queue, cfg.Log), pods: newLastSeen(podKnownTimeout), served: newLastSeen(servedKnownTimeout),
		warned: newLastSeen(warnedTimeout), named: newNamedJobs(),
	}, nil
}

// Run announces this instance until ctx ends, so that an endpoint is deleted
// only after every instance has seen that it hands out no more jobs.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.registry.Instances.Announce(ctx, registry.Instance{ID: uuid.NewString(), Role: instanceRole})
	})
	g.Go(func() error { return s.stopSignals.run(ctx) })
	g.Go(func() error {
		s.releaseEndedWorkers(ctx)
		return nil
	})
	return g.Wait()
}
