package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/services/api"
	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/web"
)

// Credentials of a bus that lives for one run on loopback.
const (
	busUser     = "chaos"
	busPassword = "chaos-password"
	apiKey      = "chaos-api-key" //nolint:gosec // as said
)

// again is the pause between two tries at something that is away.
const again = 50 * time.Millisecond

// roleConfig is the configuration of a child process.
type roleConfig struct {
	Name   string `json:"name"`   // of this process; no two have the same
	Ledger string `json:"ledger"` // the folder of the ledgers
	Bus    string `json:"bus"`    // addresses of the NATS nodes; "" means the site's

	// Of a NATS node, and Listen of an api instance.
	Dir    string   `json:"dir"`
	Listen string   `json:"listen"`
	Server string   `json:"server"`
	Route  string   `json:"route"`
	Routes []string `json:"routes"`
	File   string   `json:"file"` // says all about the cluster, instead of the two

	// Of a worker.
	Endpoints []endpoint.Endpoint `json:"endpoints"`
	Slots     []int               `json:"slots"` // per endpoint
	Seed      uint64              `json:"seed"`

	// DieAt is the crash point at which the process kills itself, when it
	// comes there for the DieAfter-th time. "" means never.
	DieAt    queue.Point `json:"dieAt"`
	DieAfter int64       `json:"dieAfter"`
}

// runRole is main of a child.
func runRole(ctx context.Context, role, text string) error {
	var cfg roleConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the harness
		os.Exit(0)
	}()
	switch role {
	case "nats":
		return runNATS(ctx, cfg)
	case "api":
		return runAPI(ctx, cfg)
	case "worker":
		return runWorker(ctx, cfg)
	case "recorder":
		return runRecorder(ctx, cfg)
	}
	return fmt.Errorf("no role %q", role)
}

func runNATS(ctx context.Context, cfg roleConfig) error {
	server := embedded.Config{
		Dir: cfg.Dir, Listen: cfg.Listen, User: busUser, Password: busPassword, ServerName: cfg.Server,
		Log: logTo(os.Stderr),
	}
	switch {
	case cfg.File != "":
		server.File = cfg.File
	case cfg.Route != "":
		server.Cluster = &embedded.Cluster{Name: "chaos", Listen: cfg.Route, Routes: cfg.Routes}
	}
	for {
		s, err := embedded.Start(ctx, server)
		if err == nil {
			<-ctx.Done()
			s.Stop()
			return nil
		}
		fmt.Fprintln(os.Stderr, err) // the port may still be in use by a connection of the one before
		if !wait(ctx, again) {
			return err
		}
	}
}

func runAPI(ctx context.Context, cfg roleConfig) error {
	books, err := openLedger(cfg.Ledger, cfg.Name)
	if err != nil {
		return err
	}
	nc, q, err := openQueue(ctx, cfg, deathAt(cfg, books))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	reg, err := persist(ctx, func() (*registry.Registry, error) { return registry.New(ctx, js, nil) })
	if err != nil {
		return err
	}
	log, err := events.New(nc, js, nil)
	if err != nil {
		return err
	}
	service, err := api.New(api.Config{Log: logTo(os.Stderr)}, api.Deps{Queue: q, Registry: reg, Events: log})
	if err != nil {
		return err
	}
	listener, err := persist(ctx, func() (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	})
	if err != nil {
		return err
	}
	app := web.New(web.Config{Log: logTo(os.Stderr)}) //nolint:contextcheck // a request has its own
	service.Routes(app)                               //nolint:contextcheck // as above
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.Run(ctx) })
	g.Go(func() error { return reg.Run(ctx) })
	g.Go(func() error { return service.Run(ctx) })
	g.Go(func() error { return q.Deadlines(ctx, 1) })
	g.Go(func() error { return web.Serve(ctx, app, listener) })
	return g.Wait()
}

// openQueue connects and binds a queue, as soon as NATS lets it.
func openQueue(ctx context.Context, cfg roleConfig, point func(queue.Point)) (*nats.Conn, *queue.Queue, error) {
	nc, err := bus.Connect(bus.Config{
		URL: cfg.Bus, User: busUser, Password: busPassword, Name: cfg.Name, Wait: true, Log: logTo(os.Stderr),
	})
	if err != nil {
		return nil, nil, err
	}
	q, err := persist(ctx, func() (*queue.Queue, error) {
		return queue.New(ctx, nc, queue.Config{Point: point, RemovalGrace: forgetGrace, Log: logTo(os.Stderr)})
	})
	if err != nil {
		nc.Close()
	}
	return nc, q, err
}

// persist repeats try until it succeeds or ctx ends.
func persist[T any](ctx context.Context, try func() (T, error)) (T, error) {
	for {
		v, err := try()
		if err == nil {
			return v, nil
		}
		if !wait(ctx, again) {
			return v, errors.Join(err, ctx.Err())
		}
	}
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool { return retry.Sleep(ctx, d) == nil }

// between draws a duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// child is a process of this program in one of its roles. It ends when its
// standard input closes, so none outlives the harness, however that ends.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	gone  chan struct{} // closed once it is gone
	hit   atomic.Bool   // the harness killed or stopped it
}

// spawn starts a child. What it says on standard error goes to a file beside
// the ledgers.
func (s *site) spawn(role string, cfg roleConfig) (*child, error) {
	cfg.Ledger, cfg.Bus = s.dir, cmp.Or(cfg.Bus, s.busURL())
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	stderr, err := os.Create(filepath.Join(s.dir, cfg.Name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	defer stderr.Close() //nolint:errcheck // the child has its own
	c := &child{name: cfg.Name, gone: make(chan struct{})}
	c.cmd = exec.Command(self, "-role", role, "-config", string(text)) //nolint:gosec,noctx // this program itself; it ends by its stdin
	c.cmd.Stderr = stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	s.children.Go(func() {
		defer close(c.gone)
		_ = c.cmd.Wait() // killed, as a rule
		s.ledger.write(entry{Kind: died, Who: c.name})
	})
	return c, nil
}

// kill ends the child without a word and waits until it is gone.
func (c *child) kill() {
	c.hit.Store(true)
	_ = c.cmd.Process.Kill() // gone already, else
	<-c.gone
}

// stop asks the child to stop.
func (c *child) stop() {
	c.hit.Store(true)
	_ = terminate(c.cmd.Process) // gone already, else
}
