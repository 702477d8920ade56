package bus

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/barrier"
)

// CallTimeout bounds every call of a Client and of the packages above it, so that
// no caller hangs while JetStream is away.
const CallTimeout = 4500 * time.Millisecond

// ClientConfig is what differs between the processes that use a Client.
type ClientConfig struct {
	// ClockStream is the stream whose leader is asked for the server's time, and
	// whether it has a quorum.
	ClockStream string
	// DurablePrefix is the subject prefix at which another process may serve a
	// barrier (package barrier).
	DurablePrefix string
	// Durable, if not nil, is the barrier of this process; none is looked for then.
	Durable barrier.Func
	// Log receives what no caller waits for. Nil discards it.
	Log *slog.Logger
	// Now is the local clock. Nil means time.Now. Only its pace matters.
	Now func() time.Time
	// Missing, if not nil, explains that a stream or a consumer of it does not
	// exist while doing something. Nil means a *MissingError.
	Missing func(ctx context.Context, stream, doing string) error
	// Unanswered is called when JetStream did not answer a request, Unwritten when
	// a write to the stream was not acknowledged. Both may be nil.
	Unanswered func()
	Unwritten  func(stream string)
}

// Client is a process's access to JetStream: requests that only a stream's leader
// answers, writes with compare-and-set that a lost answer does not repeat, batch
// reads, the server's clock, and since when the server has answered without a gap.
// It is safe for concurrent use.
type Client struct {
	nc            *nats.Conn
	cfg           ClientConfig
	log           *slog.Logger
	clock         *Clock
	availability  *Availability
	requester     requester
	confirmations barrier.Groups               // by stream: of its leader; no fsync
	barrier       atomic.Pointer[barrier.Func] // nil while none is known
	single        atomic.Bool                  // the server that was asked last is the only one
}

// NewClient binds a client to a connection and measures the server's time. It
// starts nothing. It returns ErrUnavailable if JetStream does not answer.
func NewClient(ctx context.Context, nc *nats.Conn, cfg ClientConfig) (*Client, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{nc: nc, cfg: cfg, log: cfg.Log, clock: newClock(cfg.Now), availability: newAvailability()}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := c.measure(ctx); err != nil {
		return nil, err
	}
	if cfg.Durable != nil {
		c.barrier.Store(&cfg.Durable)
	}
	c.knownBarrier()
	return c, nil
}

// Bind returns a client that asks nothing at first and need not run. It knows neither the
// server's clock nor a barrier: it is for reads, and for writes that wait for the disk
// elsewhere, or need not.
func Bind(nc *nats.Conn) *Client {
	return &Client{nc: nc, log: slog.New(slog.DiscardHandler), clock: newClock(time.Now), availability: newAvailability()}
}

// JetStream opens the API of nats.go on the client's connection.
func (c *Client) JetStream() (jetstream.JetStream, error) {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	return js, nil
}

// Run keeps the server's time, and watches whether JetStream serves without a gap and
// whether there is a barrier, until ctx ends. It must run while the client is used.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.probeEvery(ctx, probeInterval) })
	g.Go(func() error { return c.watchConnection(ctx) })
	return g.Wait()
}

// Conn is the connection.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Clock is the server's clock.
func (c *Client) Clock() *Clock { return c.clock }

// Now is the server's time as this process knows it.
func (c *Client) Now() time.Time { return c.clock.Now() }

// Until is how long it is until the server's clock shows t; negative once past.
func (c *Client) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Availability is since when JetStream has answered this process.
func (c *Client) Availability() *Availability { return c.availability }

// Clustered reports whether the server that answered last is, or may be, one of several.
func (c *Client) Clustered() bool { return !c.single.Load() }

// HasBarrier reports whether writes wait at a barrier.
func (c *Client) HasBarrier() bool { return c.knownBarrier() != nil }

// Bounded ends a call after CallTimeout, unless ctx ends before.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) { return BoundedFor(ctx, 0) }

// BoundedFor ends a call after CallTimeout and more, unless ctx ends before.
func BoundedFor(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	most := CallTimeout + more
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= most {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, most)
}
