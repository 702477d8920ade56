package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"flightline/shared/bus/barrier"
	"flightline/shared/endpoint"
	"flightline/streams"
)

// Config is what differs between the processes that use a queue.
type Config struct {
	// Replicas is that of the streams made for endpoints, 1 or 3. 0 means 1.
	Replicas int
	// Log receives what nobody is waiting to hear. Nil discards it.
	Log *slog.Logger
	// Now is the local clock. Nil means time.Now. Only its pace matters: every
	// instant in a record is the server's time.
	Now func() time.Time
	// Durable returns once what was written to a stream is on the disk; every
	// write of the queue waits for it. A process that runs the server without
	// SyncAlways passes embedded.Barrier.Sync. Nil asks on the bus for such a
	// process; without one, the server's own sync setting decides.
	Durable func(ctx context.Context, stream string) error
	// ForgetGrace is how long after the end of its retention a record stays at
	// least, for calls that still saw it. 0 means 10 s.
	ForgetGrace time.Duration
	// TrustAbsence: a job that the leader does not have counts as absent, though
	// in a cluster it may be a leader that was cut off. For a process that may not
	// ask for more, as a worker's user of NATS.
	TrustAbsence bool
	// HasSpace, if not nil, is asked before a job is accepted or retried: its error
	// refuses that. It must not block.
	HasSpace func() error
	// EndpointsBucket is where endpoints are looked up whose queue is missing. ""
	// means streams.BucketEndpoints, which workers may not read.
	EndpointsBucket string
	// Observer hears what this process did.
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

// answerWithin bounds every call, so that nobody hangs while JetStream is away
// (the issue promises 5 s).
const answerWithin = 4500 * time.Millisecond

// Queue is a process's door to the jobs. It is safe for concurrent use.
type Queue struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	cfg     Config
	log     *slog.Logger
	clock   *clock
	service *service
	stats   statsCache
	lines   lines
	rooms   rooms
	missing missing
	commits commits
	kept    keptRuns
	outputs *semaphore.Weighted          // bytes of outputs that are read at a time
	barrier atomic.Pointer[barrier.Func] // nil while there is none
	// clustered: the server that was asked last is one of several.
	clustered atomic.Bool
}

// New binds a queue to a connection and measures the server's time; the shared
// streams must exist (streams.Apply). It starts nothing. It returns
// ErrUnavailable if JetStream does not answer.
func New(ctx context.Context, nc *nats.Conn, cfg Config) (*Queue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	q := &Queue{nc: nc, js: js, cfg: cfg, log: cfg.Log, clock: newClock(cfg.Now), service: newService(), outputs: semaphore.NewWeighted(maxOutputsRead)}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := q.measure(ctx); err != nil {
		return nil, err
	}
	if cfg.Durable != nil {
		q.barrier.Store((*barrier.Func)(&cfg.Durable))
	}
	if err := q.findBarrier(ctx); err != nil {
		return nil, err
	}
	return q, nil
}

// Run keeps the server's time and watches whether JetStream serves without a
// gap, until ctx ends. It must run while the queue is used.
func (q *Queue) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.probeEvery(ctx, probeInterval) })
	g.Go(func() error { return q.watchConnection(ctx) })
	g.Go(func() error { return q.lookForBarrier(ctx) })
	g.Go(func() error { return q.measureRooms(ctx) })
	return g.Wait()
}

// Now is the server's time as this process knows it.
func (q *Queue) Now() time.Time { return q.clock.now() }

// Until is how long it is until the server's clock shows t; negative once past.
func (q *Queue) Until(t time.Time) time.Duration { return t.Sub(q.Now()) }

// CreateEndpoint makes the endpoint's work queue and consumers exist and
// applies its present lease. It may be repeated. A queue that was lost is made
// again, with an error in the log. It returns ErrUnavailable.
func (q *Queue) CreateEndpoint(ctx context.Context, e endpoint.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, 2*answerWithin) // three replicas take their time
	defer cancel()
	lost, err := untilAnswered(ctx, func() (*jetstream.StreamInfo, error) {
		lost, err := streams.RecoverEndpoint(ctx, q.js, streams.Config{Replicas: q.cfg.Replicas}, e)
		return lost, foreign(err)
	})
	if err != nil {
		return err
	}
	q.recovered(ctx, e.ID, lost)
	for _, stream := range []string{streams.Jobs(e.ID), streams.Bucket(streams.BucketEndpoints)} {
		if err := q.durable(ctx, stream, q.nc.ConnectedServerId()); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) point(p Point) {
	if q.cfg.Point != nil {
		q.cfg.Point(p)
	}
}

// bounded gives a call its end, if its caller's is later.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= answerWithin {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerWithin)
}

// place is where an endpoint's messages lie.
type place struct {
	endpoint  string
	partition int
}

func placeOf(e endpoint.Endpoint) place { return place{e.ID, e.Partition} }
