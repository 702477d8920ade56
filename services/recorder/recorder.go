// Package recorder writes the events of all jobs to the log, enqueues the webhooks of
// jobs that have ended, counts, and removes the records whose retention is over.
//
// Reading order: session.go (one period between two failures), writer.go (a batch of
// changes), derive.go (the events of a change), logged_events.go (which of them the log
// has), retention.go (which record is removed when).
//
// Events follow from the contents of a record, not from its revisions: from
// whatever write of an attempt the recorder sees, it appends every event of
// the attempt that is not in the log. It knows what the log has: it is the only one
// that appends, remembers the attempts that may get further events, and reads what
// was appended since its last checkpoint when it begins, or when an append fails. The
// checkpoint is written once the events are on the disk, and no record behind it is
// removed. So a crash between any two steps, or two recorders that both believe to
// be active, cost time and nothing else (docs/adr/0057).
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/deliveries"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// Config is what may differ between installations. The zero value is good.
type Config struct {
	// Partitions is how many streams hold records. 0 means 1.
	Partitions int
	// EventsMaxBytes bounds the log of events: the oldest go first. 0 means no
	// bound but their age.
	EventsMaxBytes int64
	// Counted, if not nil, is called for each event once it is counted.
	Counted func(events.Event)
	// Log gets what no answer reports. nil means silence.
	Log *slog.Logger
	// Point, if not nil, is called at each named crash point, for tests that
	// end the recorder there.
	Point func(Point)
}

// Point names a place between two steps where a crash must lose nothing.
type Point string

// The crash points.
const (
	AfterAnnounce Point = "after the webhook's message"
	AfterEvents   Point = "after events, before the position"
	AfterPosition Point = "after the position"
	BeforeRemove  Point = "before a record is removed"
)

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue  *queue.Queue
	Events *events.Log
	// Registry knows the workers that the points of STATS count. nil leaves them out.
	Registry *registry.Registry
	// Election decides which instance is active. nil means that this one is.
	Election *registry.Election
}

// Service is one recorder, active or standing by.
type Service struct {
	cfg        Config
	log        *slog.Logger
	queue      *queue.Queue
	deliveries *deliveries.Store
	events     *events.Log
	election   *registry.Election
	registry   *registry.Registry
	parts      []partition
	// saveInterval is that of the counts, 0 but in a test.
	saveInterval time.Duration
}

// partition is how far one partition has been recorded.
type partition struct {
	number int
	// checkpoint is the last that this term has written or found.
	checkpoint events.Checkpoint
	// done is the last write whose events were acknowledged, saved the last that
	// the checkpoint says; records after it must stay, and so must the log's entries
	// after logged, which is the checkpoint's too.
	done, saved, logged atomic.Uint64
	// announced are the ends whose webhooks this term has queued and whose events the log
	// lacks: a webhook may be delivered before the log takes them, and is not queued again.
	announced map[attempt]bool
}

// start begins at a checkpoint.
func (p *partition) start(c events.Checkpoint) {
	p.done.Store(c.Records)
	p.noteSaved(c)
}

// noteSaved notes a checkpoint that was written.
func (p *partition) noteSaved(c events.Checkpoint) {
	p.checkpoint = c
	p.saved.Store(c.Records)
	p.logged.Store(c.Log)
}

func (p *partition) position() string { return "records_" + strconv.Itoa(p.number) }

// New returns a service that is ready for Run. It starts nothing, and fails
// only if Queue or Events is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Events == nil {
		return nil, errors.New("recorder: a queue and a log of events are needed")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	store, err := deliveries.New(deps.Queue, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	s := &Service{
		cfg: cfg, log: cfg.Log, queue: deps.Queue, deliveries: store, events: deps.Events, election: deps.Election, registry: deps.Registry,
		parts: make([]partition, max(1, cfg.Partitions)),
	}
	for i := range s.parts {
		s.parts[i].number, s.parts[i].announced = i, map[attempt]bool{}
	}
	return s, nil
}

// Run records whenever this instance is the active one, until ctx ends. It
// sits out outages.
func (s *Service) Run(ctx context.Context) error {
	if s.election == nil {
		return s.lead(ctx)
	}
	return s.election.Run(ctx, s.lead)
}

// lead is one term as the active one.
func (s *Service) lead(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	removals := newRemovalQueue(s)
	g.Go(func() error { return s.recordAll(ctx, removals) })
	g.Go(func() error { return removals.run(ctx) })
	g.Go(func() error { bus.KeepTrimmed(ctx, s.log, "events", s.cfg.EventsMaxBytes, s.trim); return nil })
	g.Go(func() error { return s.events.Count(ctx, s.counting()) })
	return g.Wait()
}

// trim removes the oldest entries of the log, but none behind a checkpoint: the next
// session reads them.
func (s *Service) trim(ctx context.Context, maxBytes int64) (uint64, error) {
	keep := uint64(math.MaxUint64)
	for i := range s.parts {
		keep = min(keep, s.parts[i].logged.Load()+1)
	}
	return s.events.Trim(ctx, maxBytes, keep)
}

// Lag is how far this recorder is behind; it means something only while it is
// active.
type Lag struct {
	// Writes are those to the records since the last one recorded; timers
	// count too, so it need not be 0 when all is recorded.
	Writes uint64
	// Age is the time since the oldest change that is not recorded; 0 if all are.
	Age time.Duration
}

// Lag returns the sum of all partitions' Writes, and the greatest Age. It
// returns bus.ErrUnavailable.
func (s *Service) Lag(ctx context.Context) (Lag, error) {
	var lag Lag
	for i := range s.parts {
		p := &s.parts[i]
		done := p.done.Load()
		last, err := s.queue.Changes.Last(ctx, p.number)
		if err != nil {
			return Lag{}, err
		}
		lag.Writes += last - min(last, done)
		if last <= done {
			continue
		}
		oldest, err := s.queue.Changes.Oldest(ctx, p.number, done)
		if err != nil {
			return Lag{}, err
		}
		if !oldest.IsZero() {
			lag.Age = max(lag.Age, s.queue.Now().Sub(oldest))
		}
	}
	return lag, nil
}

func (s *Service) point(p Point) {
	if s.cfg.Point != nil {
		s.cfg.Point(p)
	}
}
