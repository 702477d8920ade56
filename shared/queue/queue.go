package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Config is what differs between the processes that use a queue.
type Config struct {
	// Replicas is that of the streams made for endpoints, 1 or 3. 0 means 1.
	Replicas int
	// Log receives what no caller is waiting for. Nil discards it.
	Log *slog.Logger
	// Now is the local clock. Nil means time.Now. Only its pace matters: every
	// instant in a record is the server's time.
	Now func() time.Time
	// Durable returns once what was written to a stream is on the disk; every
	// write of the queue waits for it. A process that runs the server without
	// SyncAlways passes embedded.Barrier.Sync. Nil asks on the bus for such a
	// process; without one, the server's own sync setting decides.
	Durable func(ctx context.Context, stream string) error
	// RemovalGrace is how long after the end of its retention a record stays at
	// least, for calls that still saw it. 0 means 10 s.
	RemovalGrace time.Duration
	// TrustAbsence: a job that the leader does not have counts as absent, though
	// in a cluster it may be a leader that was cut off. For a process that may not
	// ask for more, as a worker's user of NATS.
	TrustAbsence bool
	// HasSpace, if not nil, is asked before a job is accepted or retried: its error
	// refuses that. It must not block.
	HasSpace func() error
	// EndpointsBucket is where endpoints are looked up: whether a queue that is missing
	// should exist, and the settings that hold now. "" means streams.BucketEndpoints,
	// which workers may not read.
	EndpointsBucket string
	// Observer is called with what this process did.
	Observer Observer
	// Point, if not nil, is called at each named crash point, for tests that
	// end the process there.
	Point func(Point)
}

// Point names a place between two steps where a crash must lose nothing.
type Point string

// The crash points of the chaos harness.
const (
	AfterDelivery      Point = "after delivery"
	AfterRecord        Point = "after record"
	AfterPayload       Point = "after payload parts"
	AfterTerminalWrite Point = "after the terminal write"
	BeforeDelete       Point = "before the delete"
)

// Queue is how a process submits, runs and reads jobs. It is safe for concurrent use.
type Queue struct {
	// Lists, Counts, Changes and Remote are views of the same queue, each for one
	// kind of user.
	Lists   *Lists
	Counts  *Counts
	Changes *Changes
	Remote  *Remote

	bus      *bus.Client
	nc       *nats.Conn // the client's
	read     reader
	js       jetstream.JetStream
	cfg      Config
	log      *slog.Logger
	usage    *usageTable
	missing  *missingStreams
	payloads *payloads
}

// New binds a queue to a connection and measures the server's time; the shared
// streams must exist (streams.Apply). It starts nothing. It returns
// bus.ErrUnavailable if JetStream does not answer.
func New(ctx context.Context, nc *nats.Conn, cfg Config) (*Queue, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.EndpointsBucket = cmp.Or(cfg.EndpointsBucket, streams.BucketEndpoints)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.HasSpace == nil {
		cfg.HasSpace = func() error { return nil }
	}
	q := &Queue{nc: nc, cfg: cfg, log: cfg.Log, missing: newMissingStreams(cfg.Log, cfg.Now)}
	q.Lists, q.Counts, q.Changes, q.Remote = &Lists{q}, &Counts{q: q, cache: statsCache{of: map[string]*counted{}}}, &Changes{q}, &Remote{q: q}
	var err error
	if q.bus, err = bus.NewClient(ctx, nc, bus.ClientConfig{
		ClockStream: streams.Records(0), DurablePrefix: streams.DurablePrefix, Durable: cfg.Durable,
		Log: cfg.Log, Now: cfg.Now, Missing: q.explainMissing,
		Unanswered: cfg.Observer.Unanswered, Unwritten: cfg.Observer.Unwritten,
	}); err != nil {
		return nil, err
	}
	q.read = reader{q.bus, cfg.TrustAbsence, cfg.EndpointsBucket}
	q.payloads = &payloads{q.bus, semaphore.NewWeighted(maxPayloadsRead), q.Reach}
	q.usage = &usageTable{read: q.read, log: cfg.Log}
	if q.js, err = q.bus.JetStream(); err != nil {
		return nil, err
	}
	return q, nil
}

// Run keeps the server's time and watches whether JetStream serves without a
// gap, until ctx ends. It must run while the queue is used.
func (q *Queue) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.bus.Run(ctx) })
	g.Go(func() error { return q.usage.run(ctx) })
	return g.Wait()
}

// Bus is the client that the queue writes and reads through.
func (q *Queue) Bus() *bus.Client { return q.bus }

// Now is the server's time as this process knows it.
func (q *Queue) Now() time.Time { return q.bus.Now() }

// Until is how long it is until the server's clock shows t; negative once past.
func (q *Queue) Until(t time.Time) time.Duration { return q.bus.Until(t) }

// CreateEndpoint makes the endpoint's work queue and consumers exist and
// applies its present lease. It returns once the queue and the endpoint's record are on
// the disk. It may be repeated. A queue that was lost is made again, with an error in the
// log. It returns bus.ErrUnavailable.
func (q *Queue) CreateEndpoint(ctx context.Context, e endpoint.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, 2*bus.CallTimeout) // three replicas take their time
	defer cancel()
	var server string // that answered
	lost, err := bus.UntilAnswered(ctx, func() (*jetstream.StreamInfo, error) {
		server = q.nc.ConnectedServerId()
		lost, err := streams.RecoverEndpoint(ctx, q.js, streams.Config{Replicas: q.cfg.Replicas}, e)
		return lost, bus.Unavailable(err)
	})
	if err != nil {
		return err
	}
	q.missing.recovered(ctx, e.ID, lost)
	for _, stream := range []string{streams.Jobs(e.ID), streams.Bucket(streams.BucketEndpoints)} {
		if err := q.bus.WaitDurable(ctx, stream, server); err != nil {
			return err
		}
	}
	return nil
}

// ApplyPause pauses the endpoint until its PausedUntil, or resumes it if that is not in the
// future, as its record says. A paused endpoint hands out no jobs. Jobs are
// accepted meanwhile, those that run go on, and cancel, ttl and timeout hold.
// It may be repeated. It returns bus.ErrUnavailable.
func (q *Queue) ApplyPause(ctx context.Context, e endpoint.Endpoint) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	_, err := bus.UntilAnswered(ctx, func() (struct{}, error) {
		return struct{}{}, bus.Unavailable(streams.ApplyPause(ctx, q.js, e, q.Now()))
	})
	return err
}

// Reach calls Config.Point, for packages that store beside the queue.
func (q *Queue) Reach(p Point) {
	if q.cfg.Point != nil {
		q.cfg.Point(p)
	}
}

// Observer is called with what this process did, in the goroutine that did it: its
// functions must be quick and safe for concurrent use. A nil one is not
// called.
type Observer struct {
	// Submitted: a job was accepted.
	Submitted func(endpoint string, mode job.Mode)
	// Stale: the outcome of a run came when the run no longer held its job, and
	// was dropped.
	Stale func(endpoint string)
	// Unanswered: JetStream did not answer a request.
	Unanswered func()
	// Unwritten: a write to the stream was not acknowledged.
	Unwritten func(stream string)
}

func (o Observer) submitted(j *job.Job) {
	if o.Submitted != nil {
		o.Submitted(j.Endpoint, j.Mode)
	}
}

// observed reports the outcome of a run to the observer.
func (l *Lease) observed(j *job.Job, err error) (*job.Job, error) {
	if err != nil && errors.Is(err, ErrLost) && l.consumer.q.cfg.Observer.Stale != nil {
		l.consumer.q.cfg.Observer.Stale(l.consumer.at.Endpoint)
	}
	return j, err
}

var (
	// ErrLost means that the lease is over: the job was cancelled, timed out,
	// expired, or given to another worker. What the handler produced is not wanted.
	ErrLost = errors.New("queue: the lease is lost")
	// ErrClosed means that the Consumer was closed.
	ErrClosed = errors.New("queue: the consumer is closed")
	// ErrProgressTooLarge means that a progress value exceeds job.MaxProgress.
	ErrProgressTooLarge = errors.New("queue: the progress value is larger than 64 KB")
)
