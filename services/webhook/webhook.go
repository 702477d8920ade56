// Package webhook posts the ends of jobs to their webhooks. Tasks wait in
// the work queue WEBHOOKS; each is posted with a Standard Webhooks signature
// until a 2xx, or the end of the retry schedule (schedule.go has the default; an
// endpoint may have its own).
//
// The log of deliveries decides how often a task was tried. An attempt is
// appended to it by compare-and-set before the message is acked or nacked. So a
// crash between two steps, or two instances with the same task, repeat an
// attempt at worst: a receiver recognises it by its webhook-id.
//
// What is read stays in memory until it is posted, without its payload. Each
// origin (scheme, host, port) has a queue with a few attempts at once, fewer the
// more of them fail. The leases of waiting tasks are extended. When memory is
// full, half of the queue that is expected to take longest is released; if all
// are expected to be done soon, reading waits. Half of all attempts at once are
// for hosts that answered last time. So a receiver that hangs delays only its own
// queue. (Released tasks return late: while acks stream in and more than 1024
// messages are out, the server does not look for what is due.)
//
// Reading order: host_queues.go (which task is next), deliver.go (one attempt, and the nak whose
// delay is the pause until the next one), schedule.go (what to do, and how long a pause is),
// sign.go and post.go (the request), attempt_log.go (the log).
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"flightline/shared/bus"
	"flightline/shared/deliveries"
	"flightline/shared/process"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
)

// Config is the configuration of a Service. The zero value is strict: https to
// public addresses only.
type Config struct {
	// AllowHTTP lets webhooks go to http addresses too.
	AllowHTTP bool
	// AllowNetworks may be reached besides public addresses.
	AllowNetworks []netip.Prefix
	// Timeout bounds an attempt up to the answer's headers. 0 means 15 s; at
	// most 20 s.
	Timeout time.Duration
	// MaxPerHost bounds the attempts at once to one origin. 0 means 8.
	MaxPerHost int
	// MaxConcurrency bounds all attempts at once. 0 means an eighth of the files that the
	// process may open, since a receiver that hangs holds one, and at most 1024.
	MaxConcurrency int
	// MaxBody is the largest body, in bytes; a larger one has a link instead of
	// the output. 0 means 10 MB.
	MaxBody int
	// PublicURL begins those links, as "https://flightline.example". If it is
	// "", links begin with the path.
	PublicURL string
	// DeliveriesMaxBytes bounds the log of deliveries: the oldest go first. 0 means
	// no bound but their age.
	DeliveriesMaxBytes int64
	// UndeliveredMaxBytes bounds the webhooks that were given up or wait for a paused
	// destination: the oldest go first, and are never sent. 0 means no bound but
	// their age.
	UndeliveredMaxBytes int64
	// FailurePolicy is when a destination is paused. The zero value means 20 webhooks
	// in an hour.
	FailurePolicy registry.FailurePolicy
	// Tracer makes a span for each attempt and passes it to the receiver. nil
	// means none.
	Tracer *telemetry.Tracer
	// OnAttempt, if not nil, is called after each attempt that was logged.
	OnAttempt func(deliveries.Outcome)
	// Log gets what no answer shows. nil means no log.
	Log *slog.Logger
	// Point, if not nil, is called at each named crash point, for tests that
	// end the service there.
	Point func(Point)

	resolver   *net.Resolver // of a test; nil: the system's
	maxWaiting int           // of a test; 0: defaultMaxWaiting
	maxMemory  int64         // of a test; 0: defaultMaxMemory
}

// Point is a crash point: a place between two steps where a crash loses nothing.
type Point string

// The crash points.
const (
	AfterPost Point = "after the post, before the log"
	AfterLog  Point = "after the log, before the queue"
)

// MaxTimeout is the longest Config.Timeout: an attempt must end before its lease.
const MaxTimeout = 20 * time.Second

const (
	defaultTimeout        = 15 * time.Second
	defaultMaxPerHost     = 8
	defaultMaxConcurrency = 1024
	defaultMaxBody        = 10 << 20
	defaultGivenUp        = 20
	defaultFailing        = time.Hour
	// stopGrace is how long attempts that run may go on when the service stops.
	stopGrace = 5 * time.Second
)

// Deps are the dependencies of a Service. The caller runs their Run methods.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
}

// Service is one instance; several share the work.
type Service struct {
	cfg        Config
	log        *slog.Logger
	queue      *queue.Queue
	deliveries *deliveries.Store
	registry   *registry.Registry
	client     *http.Client
	memory     *semaphore.Weighted // in bytes, see defaultMaxMemory
	putOffs    *telemetry.LogLimit
	// successes are written down beside the posts that follow them, so that a host's next
	// post does not wait for the disk. It is set while the service runs.
	successes *errgroup.Group
}

// New returns a service that is ready for Run. It starts nothing, and fails
// only if one of deps is missing or the timeout is too long.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil {
		return nil, errors.New("webhook: a queue and a registry are needed")
	}
	if cfg.Timeout > MaxTimeout {
		return nil, errors.New("webhook: the timeout must be at most " + MaxTimeout.String())
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.FailurePolicy == (registry.FailurePolicy{}) {
		cfg.FailurePolicy = registry.FailurePolicy{Webhooks: defaultGivenUp, For: defaultFailing}
	}
	cfg.Timeout, cfg.MaxBody = cmp.Or(cfg.Timeout, defaultTimeout), cmp.Or(cfg.MaxBody, defaultMaxBody)
	cfg.MaxPerHost, cfg.MaxConcurrency = cmp.Or(cfg.MaxPerHost, defaultMaxPerHost), cmp.Or(cfg.MaxConcurrency, concurrencyFor(process.MaxFiles()))
	cfg.maxMemory, cfg.maxWaiting = cmp.Or(cfg.maxMemory, defaultMaxMemory), cmp.Or(cfg.maxWaiting, defaultMaxWaiting)
	store, err := deliveries.New(deps.Queue, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	return &Service{
		cfg: cfg, log: cfg.Log, queue: deps.Queue, deliveries: store, registry: deps.Registry,
		client: newClient(cfg), memory: semaphore.NewWeighted(cfg.maxMemory), putOffs: telemetry.NewLogLimit(rate.Every(putOffInterval), maxPutOffBurst),
	}, nil
}

// Run delivers until ctx ends, through outages. Attempts that run when ctx ends
// may go on for 5 s; other tasks return to the queue.
func (s *Service) Run(ctx context.Context) error {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer s.client.CloseIdleConnections()
	s.successes = new(errgroup.Group)
	s.successes.SetLimit(maxUnlogged)
	var workers sync.WaitGroup
	hosts := newHostQueues(s.cfg, func(t *task) outcome { return s.deliver(work, t) }, workers.Go)
	workers.Go(func() { hosts.extendUntil(ctx) })
	workers.Go(func() { bus.KeepTrimmed(ctx, s.log, "deliveries", s.cfg.DeliveriesMaxBytes, s.deliveries.Trim) })
	workers.Go(func() {
		bus.KeepTrimmed(ctx, s.log, "undelivered", s.cfg.UndeliveredMaxBytes, s.deliveries.TrimUndelivered)
	})
	stop := context.AfterFunc(ctx, hosts.close)
	defer stop()
	err := s.deliveries.Consume(ctx, func(c *deliveries.Task) { hosts.add(newTask(c)) })
	hosts.close()
	late := time.AfterFunc(stopGrace, abandon)
	defer late.Stop()
	workers.Wait()
	_ = s.successes.Wait() // none returns an error
	return err
}

func (s *Service) observe(o deliveries.Outcome) {
	if s.cfg.OnAttempt != nil {
		s.cfg.OnAttempt(o)
	}
}

func (s *Service) point(p Point) {
	if s.cfg.Point != nil {
		s.cfg.Point(p)
	}
}
