// Package webhook tells receivers that jobs ended. Completions wait in the work
// queue WEBHOOKS; each is posted, signed as Standard Webhooks has it, until a
// 2xx or the end of the endpoint's schedule.
//
// How often a completion was tried is said by the log of deliveries, which an
// attempt is added to by compare-and-set before the completion leaves the
// queue or is put off. So a crash between any two steps, or two instances that
// hold the same completion, repeat an attempt at worst: the receiver tells it
// by its webhook-id.
//
// What is read stays in memory until it is posted: each origin (scheme, host,
// port) has a lane, with a few attempts at once, fewer the more it fails. The
// queue hears every few seconds what is still in hand, so that it sends it to
// nobody else. Payloads beyond a total are dropped and read again before the
// post. Only when all lanes together are full does anything go back: half of
// the lane that is expected to take longest, and nothing if all lanes are soon
// done; reading waits then. So a receiver that hangs holds up its own lane
// only, and no completion is sent away because others wait before it. (What
// is sent away comes back late: while acknowledgements stream in, the server
// does not look for what is due if more than 1024 are out.)
package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"flightline/shared/bus"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
)

// Config is what may differ between installations. The zero value is strict:
// https to public addresses only.
type Config struct {
	// AllowHTTP lets webhooks go to http addresses too.
	AllowHTTP bool
	// AllowNetworks may be reached besides public addresses.
	AllowNetworks []netip.Prefix
	// Timeout bounds an attempt up to the answer's headers. 0 means 15 s; at
	// most 20 s.
	Timeout time.Duration
	// PerHost bounds the attempts at once to one origin. 0 means 8.
	PerHost int
	// AtOnce bounds all attempts at once. 0 means 1024.
	AtOnce int
	// MaxBody is the largest body, in bytes; a larger one has a link instead of
	// the output. 0 means 10 MB.
	MaxBody int
	// PublicURL begins those links, as "https://flightline.example". If it is
	// "", links begin with the path.
	PublicURL string
	// DeliveriesMaxBytes bounds the log of deliveries: the oldest go first. 0 means
	// no bound but their age.
	DeliveriesMaxBytes int64
	// Patience before a destination is paused. The zero value means 20 webhooks
	// in an hour.
	Patience registry.Patience
	// Tracer makes a span of each attempt, and tells the receiver of it. nil means
	// none.
	Tracer *telemetry.Tracer
	// Tried, if not nil, is called after each attempt that was logged.
	Tried func(queue.DeliveryOutcome)
	// Log hears of what no answer tells. nil means silence.
	Log *slog.Logger
	// Point, if not nil, is called at each named crash point, for tests that
	// end the service there.
	Point func(Point)

	resolver *net.Resolver // of a test; nil: the system's
	waiting  int           // of a test; 0: allWaiting
	bytes    int           // of a test; 0: allBytes
}

// Point names a place between two steps where a crash must lose nothing.
type Point string

// The crash points.
const (
	AfterPost Point = "after the post, before the log"
	AfterLog  Point = "after the log, before the queue"
)

// MaxTimeout is the longest Config.Timeout: attempts are to end while the queue
// knows them to be in hand.
const MaxTimeout = 20 * time.Second

const (
	defaultTimeout = 15 * time.Second
	defaultPerHost = 8
	defaultAtOnce  = 1024
	defaultMaxBody = 10 << 20
	defaultGivenUp = 20
	defaultFailing = time.Hour
	// stopGrace is how long attempts that run may go on when the service stops.
	stopGrace = 5 * time.Second
)

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
}

// Service is one instance; several share the work.
type Service struct {
	cfg      Config
	log      *slog.Logger
	queue    *queue.Queue
	registry *registry.Registry
	client   *http.Client
	targets  targets
	signer   signer
	clocks   clocks
	book     *logbook // while it runs
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Patience == (registry.Patience{}) {
		cfg.Patience = registry.Patience{Webhooks: defaultGivenUp, For: defaultFailing}
	}
	cfg.Timeout = orDefault(cfg.Timeout, defaultTimeout)
	cfg.PerHost = orDefault(cfg.PerHost, defaultPerHost)
	cfg.AtOnce = orDefault(cfg.AtOnce, defaultAtOnce)
	cfg.MaxBody = orDefault(cfg.MaxBody, defaultMaxBody)
	cfg.waiting, cfg.bytes = orDefault(cfg.waiting, allWaiting), orDefault(cfg.bytes, allBytes)
	return &Service{cfg: cfg, log: cfg.Log, queue: deps.Queue, registry: deps.Registry, client: newClient(cfg)}, nil
}

func orDefault[T int | time.Duration](v, standard T) T {
	if v <= 0 {
		return standard
	}
	return v
}

// Run delivers until ctx ends. It sits out outages. Attempts that run then may
// go on for 5 s; the rest goes back to the queue.
func (s *Service) Run(ctx context.Context) error {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer s.client.CloseIdleConnections()
	defer s.clocks.close()
	s.book = s.openBook(work)
	var workers sync.WaitGroup
	l := newLanes(s.cfg, func(o *order) verdict { return s.deliver(work, o) }, workers.Go)
	workers.Go(func() { extendUntil(ctx, l) })
	if s.cfg.DeliveriesMaxBytes > 0 {
		workers.Go(func() { bus.KeepTrimmed(ctx, s.log, "deliveries", s.cfg.DeliveriesMaxBytes, s.queue.TrimDeliveries) })
	}
	unhold := context.AfterFunc(ctx, l.close)
	defer unhold()
	err := s.queue.Completions(ctx, func(c *queue.Completion) { l.offer(orderOf(c, s.targets.of(c.Job.Webhook))) })
	l.close()
	late := time.AfterFunc(stopGrace, abandon)
	defer late.Stop()
	workers.Wait()
	s.book.close()
	return err
}

func extendUntil(ctx context.Context, l *lanes) {
	ticks := time.NewTicker(extendEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			l.extend(now)
		}
	}
}

func (s *Service) tried(outcome queue.DeliveryOutcome) {
	if s.cfg.Tried != nil {
		s.cfg.Tried(outcome)
	}
}

func (s *Service) point(p Point) {
	if s.cfg.Point != nil {
		s.cfg.Point(p)
	}
}
