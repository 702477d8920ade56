package main

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

const (
	// busyEndpoint has the worker, quietEndpoint has none.
	busyEndpoint  = "busy"
	quietEndpoint = "quiet"
	// slots is how many jobs the worker runs at once, and how many clients
	// submit.
	slots = 64
	// stepWithin bounds every measurement of one round, and every preparation.
	stepWithin = 90 * time.Second
)

// link is this process's own way to a server.
type link struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func dial(cfg config) (l link, err error) {
	if l.nc, err = cfg.connect("bench"); err != nil {
		return l, err
	}
	l.js, err = jetstream.New(l.nc)
	return l, err
}

// env is a whole installation: its processes, and this process's own ways in.
type env struct {
	link
	children []*child
	http     *caller
	bare     link // to the server of the bare pipeline
	q        *queue.Queue
	reg      *registry.Registry
	stop     context.CancelFunc
	running  *errgroup.Group
}

// envConfig says what an env is made of.
type envConfig struct {
	name     string
	sync     string // "" means interval
	embedded bool   // the server runs in the API's process
	slots    int    // of the worker
	bare     bool   // with the bare pipeline
	crowd    int    // endpoints with a waiting worker each, besides
}

func (b *bench) newEnv(ctx context.Context, sc envConfig) (_ *env, err error) {
	s := &env{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	cfg := config{
		User: "bench", Password: rand.Text(), Key: "bench-" + rand.Text(),
		SyncAlways: sc.sync == syncAlways, Barrier: sc.sync == syncGroup,
		Dir: filepath.Join(b.dir, sc.name), Endpoint: busyEndpoint, Slots: sc.slots, Crowd: sc.crowd,
	}
	first := []string{roleServer, roleAPI}
	if sc.embedded {
		first = []string{roleEmbedded}
	}
	if err := b.start(ctx, s, sc, &cfg, first...); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.endpoints(ctx, sc); err != nil {
		return nil, err
	}
	if err := b.start(ctx, s, sc, &cfg, roleWorker); err != nil {
		return nil, err
	}
	if sc.crowd > 0 {
		if err := b.start(ctx, s, sc, &cfg, roleCrowd); err != nil {
			return nil, err
		}
	}
	if !sc.bare {
		return s, nil
	}
	return s, b.startBare(ctx, s, sc, cfg)
}

// startBare starts the bare pipeline, whose server fsyncs each write if ours
// waits for an fsync at all.
func (b *bench) startBare(ctx context.Context, s *env, sc envConfig, cfg config) error {
	cfg.Dir, cfg.Barrier, cfg.SyncAlways = cfg.Dir+"-bare", false, cfg.SyncAlways || cfg.Barrier
	first := []string{roleBareServer, rolePublisher}
	if sc.embedded {
		first = []string{roleBareEmbedded}
	}
	if err := b.start(ctx, s, sc, &cfg, first...); err != nil {
		return err
	}
	var err error
	if s.bare, err = dial(cfg); err != nil {
		return err
	}
	if err := streams.Apply(ctx, s.bare.js, streams.Config{}); err != nil {
		return err
	}
	e := endpoint.Endpoint{ID: bareEndpoint, Lease: endpoint.DefaultLease}
	if err := streams.ApplyEndpoint(ctx, s.bare.js, streams.Config{}, e); err != nil {
		return err
	}
	return b.start(ctx, s, sc, &cfg, roleConsumer)
}

// start starts children one after the other and notes in cfg what they say.
func (b *bench) start(ctx context.Context, s *env, sc envConfig, cfg *config, roles ...string) error {
	for _, role := range roles {
		if b.opts.profiles != "" {
			cfg.Profile = filepath.Join(b.opts.profiles, sc.name+"-"+strings.ReplaceAll(role, " ", "-")+".pprof")
		}
		c, up, err := start(ctx, role, *cfg)
		if err != nil {
			return err
		}
		s.children = append(s.children, c)
		if up.NATS != "" {
			cfg.NATS = up.NATS
		}
		if up.HTTP != "" {
			s.http = newCaller(up.HTTP, cfg.Key)
		}
	}
	return nil
}

func (s *env) connect(ctx context.Context, cfg config) (err error) {
	if s.link, err = dial(cfg); err != nil {
		return err
	}
	if s.q, err = queue.New(ctx, s.nc, queue.Config{}); err != nil {
		return err
	}
	if s.reg, err = registry.New(ctx, s.js, nil); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.running = stop, &errgroup.Group{}
	s.running.Go(func() error { return s.q.Run(running) })
	return nil
}

func (s *env) endpoints(ctx context.Context, sc envConfig) error {
	ids := []string{busyEndpoint, quietEndpoint}
	for i := range sc.crowd {
		ids = append(ids, crowdEndpoint(i))
	}
	const atOnce = 8
	_, err := load(ctx, len(ids), atOnce, func(ctx context.Context, i int) error {
		e, err := s.reg.Endpoints.Create(ctx, endpoint.Endpoint{ID: ids[i], Created: time.Now(), MaxQueueJobs: endpoint.MaxMaxQueueJobs})
		if err != nil {
			return err
		}
		return s.q.CreateEndpoint(ctx, e)
	})
	return err
}

func (s *env) close() {
	for _, c := range slices.Backward(s.children) {
		c.stop()
	}
	if s.stop != nil {
		s.stop()
		_ = s.running.Wait()
	}
	for _, l := range []link{s.link, s.bare} {
		if l.nc != nil {
			l.nc.Close()
		}
	}
}

// publisher is the bare process that takes orders.
func (s *env) publisher() *child {
	for _, c := range s.children {
		if c.role == rolePublisher || c.role == roleBareEmbedded {
			return c
		}
	}
	return nil
}
