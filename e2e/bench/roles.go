package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/services/api"
	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/shared/bus/embedded"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/shared/worker"
	"flightline/streams"
)

// The roles of the processes. Embedded is the API and the server in one, as
// `flightline dev` has them. The bare pipeline has a server of its own, so that
// it can fsync in its own way.
const (
	roleServer       = "server"
	roleAPI          = "api"
	roleEmbedded     = "embedded"
	roleWorker       = "worker"
	roleCrowd        = "crowd"
	roleBareServer   = "bare server"
	rolePublisher    = "publisher"
	roleBareEmbedded = "bare embedded"
	roleConsumer     = "consumer"
)

var roles = map[string]func(context.Context, config, *wire) error{
	roleServer: serveNATS, roleAPI: serveAPI, roleEmbedded: serveEmbedded,
	roleWorker: serveWorker, roleCrowd: serveCrowd,
	roleBareServer: serveNATS, rolePublisher: servePublisher, roleBareEmbedded: serveBareEmbedded,
	roleConsumer: serveConsumer,
}

const anyPort = "127.0.0.1:0"

func startServer(ctx context.Context, cfg config) (*embedded.Server, error) {
	return embedded.Start(ctx, embedded.Config{
		Dir: cfg.Dir, Listen: anyPort, User: cfg.User, Password: cfg.Password, SyncAlways: cfg.SyncAlways, Barrier: cfg.Barrier,
	})
}

func (c config) connect(name string) (*nats.Conn, error) {
	return bus.Connect(bus.Config{URL: c.NATS, User: c.User, Password: c.Password, Name: name})
}

func serveNATS(ctx context.Context, cfg config, w *wire) error {
	srv, err := startServer(ctx, cfg)
	if err != nil {
		return err
	}
	defer srv.Stop()
	up := func() error { return w.ready(ready{NATS: srv.URL()}, noOrders) }
	if !cfg.Barrier {
		return up()
	}
	nc, err := srv.Connect("barrier")
	if err != nil {
		return err
	}
	defer nc.Close()
	return together(ctx, up, serveBarrier(nc, srv))
}

// serveBarrier lets other processes wait at the server's barrier.
func serveBarrier(nc *nats.Conn, srv *embedded.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		return barrier.Serve(ctx, nc, streams.DurablePrefix, srv.Barrier().Sync)
	}
}

func serveAPI(ctx context.Context, cfg config, w *wire) error {
	nc, err := cfg.connect("api")
	if err != nil {
		return err
	}
	defer nc.Close()
	return runAPI(ctx, nc, queue.Config{}, cfg, w, ready{})
}

func serveEmbedded(ctx context.Context, cfg config, w *wire) error {
	srv, err := startServer(ctx, cfg)
	if err != nil {
		return err
	}
	defer srv.Stop()
	nc, err := srv.Connect("api")
	if err != nil {
		return err
	}
	defer nc.Close()
	var qc queue.Config
	var parts []func(context.Context) error
	if cfg.Barrier {
		qc.Durable = srv.Barrier().Sync
		parts = append(parts, serveBarrier(nc, srv))
	}
	return runAPI(ctx, nc, qc, cfg, w, ready{NATS: srv.URL()}, parts...)
}

// runAPI is an API instance as `flightline serve` runs it.
func runAPI(ctx context.Context, nc *nats.Conn, qc queue.Config, cfg config, w *wire, r ready, besides ...func(context.Context) error) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := streams.Apply(ctx, js, streams.Config{}); err != nil {
		return err
	}
	q, err := queue.New(ctx, nc, qc)
	if err != nil {
		return err
	}
	reg, err := registry.New(ctx, js, nil)
	if err != nil {
		return err
	}
	scopes := []registry.Scope{{Permission: registry.Admin, Endpoint: registry.AllEndpoints}}
	if _, err := reg.Keys.Put(ctx, cfg.Key, registry.KeySpec{Name: "bench", Scopes: scopes}); err != nil {
		return err
	}
	log, err := events.New(nc, js, nil)
	if err != nil {
		return err
	}
	service, err := api.New(api.Config{}, api.Deps{Queue: q, Registry: reg, Events: log})
	if err != nil {
		return err
	}
	app := web.New(web.Config{}) //nolint:contextcheck // requests bring their own
	service.Routes(app)          //nolint:contextcheck // requests bring their own
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", anyPort)
	if err != nil {
		return err
	}
	r.HTTP = listener.Addr().String()
	parts := slices.Concat(besides, []func(context.Context) error{
		q.Run, reg.Run, service.Run,
		func(ctx context.Context) error { return q.Deadlines(ctx, 1) },
		func(ctx context.Context) error { return web.Serve(ctx, app, listener) },
	})
	return together(ctx, func() error { return w.ready(r, noOrders) }, parts...)
}

// together runs the parts for as long as the last one, line, does.
func together(ctx context.Context, line func() error, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	err := line()
	stop()
	return errors.Join(err, g.Wait())
}

// serveWorker runs jobs that do nothing: their output is their input.
func serveWorker(ctx context.Context, cfg config, w *wire) error {
	nc, err := cfg.connect("worker")
	if err != nil {
		return err
	}
	defer nc.Close()
	echo := func(_ context.Context, j *worker.Job) (any, error) { return j.Input, nil }
	up, failed := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		failed <- worker.Run(ctx, worker.Config{
			Endpoint: cfg.Endpoint, NC: nc, ID: "bench", Concurrency: cfg.Slots, OnReady: func() { close(up) },
		}, echo)
	}()
	select {
	case <-up:
	case err := <-failed:
		stop()
		return fmt.Errorf("worker: %w", err)
	}
	err = w.ready(ready{}, noOrders)
	stop()
	return errors.Join(err, <-failed)
}

// crowdEndpoint names the endpoints that only have a worker waiting.
func crowdEndpoint(i int) string { return fmt.Sprintf("crowd-%d", i) }

// serveCrowd has one worker wait on each of many endpoints, over one
// connection.
func serveCrowd(ctx context.Context, cfg config, w *wire) error {
	in, err := newInsider(ctx, cfg, "crowd", queue.Config{})
	if err != nil {
		return err
	}
	defer in.nc.Close()
	parts := []func(context.Context) error{in.q.Run}
	for i := range cfg.Crowd {
		e, err := in.reg.Endpoints.Get(ctx, crowdEndpoint(i))
		if err != nil {
			return err
		}
		consumer, err := in.q.Consume(ctx, e, "crowd", 1)
		if err != nil {
			return err
		}
		defer consumer.Close()
		parts = append(parts, func(ctx context.Context) error {
			if _, err := consumer.Next(ctx); ctx.Err() == nil {
				return fmt.Errorf("a job came to %s: %w", e.ID, err)
			}
			return nil
		})
	}
	return together(ctx, func() error { return w.ready(ready{}, noOrders) }, parts...)
}

// insider is what a child stands on that works with the queue itself. Close its
// nc.
type insider struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	q   *queue.Queue
	reg *registry.Registry
}

func newInsider(ctx context.Context, cfg config, name string, qc queue.Config) (in insider, err error) {
	if in.nc, err = cfg.connect(name); err != nil {
		return in, err
	}
	defer func() {
		if err != nil {
			in.nc.Close()
		}
	}()
	if in.js, err = jetstream.New(in.nc); err != nil {
		return in, err
	}
	if in.q, err = queue.New(ctx, in.nc, qc); err != nil {
		return in, err
	}
	in.reg, err = registry.New(ctx, in.js, nil)
	return in, err
}
