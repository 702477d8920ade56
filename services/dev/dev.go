package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/shared/bus/embedded"
	"flightline/shared/client"
	"flightline/shared/process"
)

// Command is `flightline dev`.
func Command(environment map[string]string, version string) *cobra.Command {
	cfg := new(Config)
	c := &cobra.Command{
		Use: "dev", Short: "Run everything in one process, to try it and to develop against", Args: cobra.NoArgs,
		Long: "Run everything in one process: the API, a durable JetStream in the data folder,\n" +
			"and, to have something to look at, the endpoint echo with a worker that returns\n" +
			"its input. Other commands started in the same folder find it by themselves.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, _ []string) error {
		log, err := newLogger(cmd.ErrOrStderr(), cfg.LogLevel, cfg.LogFormat)
		if err != nil {
			return err
		}
		return Run(cmd.Context(), *cfg, version, cmd.OutOrStdout(), log)
	})
	return c
}

// Run runs everything until ctx ends or a part fails. What people should know
// goes to out.
func Run(ctx context.Context, cfg Config, version string, out io.Writer, log *slog.Logger) (err error) {
	if cfg.Sync != "always" && cfg.Sync != "interval" {
		return &cli.UsageError{Err: fmt.Errorf("--sync %q: must be always or interval", cfg.Sync)}
	}
	h, err := openHome(cfg)
	if err != nil {
		return err
	}
	b, err := startBus(ctx, cfg, h.Running, out, log)
	if err != nil {
		return err
	}
	defer b.stop()
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close() //nolint:errcheck // web.Serve has closed it, unless we failed before
	n, err := assemble(ctx, plan{
		nc: b.nc, listener: listener, roles: roles(), adminKey: h.APIKey, log: log,
	})
	if err != nil {
		return err
	}
	h.URL, h.NATSURL = nearby("http://"+listener.Addr().String()), nearby(b.server.URL())
	if err := h.open(ctx, n.registry); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	c, err := client.New(h.URL, h.APIKey, client.WithUserAgent("flightline-dev/"+version))
	if err != nil {
		return err
	}
	t := &tour{client: c, nc: b.nc, url: h.URL, data: cfg.Data, demo: !cfg.NoDemo, version: version, out: out, log: log}
	parts := append([]process.Part{{Name: "bus", Run: b.run}}, n.parts...)
	return process.Run(ctx, log, append(parts, process.Part{Name: "demo", Run: t.run})...)
}

// busServer is the embedded NATS and our own connection to it.
type busServer struct {
	server *embedded.Server
	nc     *nats.Conn
}

func startBus(ctx context.Context, cfg Config, r cli.Running, out io.Writer, log *slog.Logger) (*busServer, error) {
	address, swapped, err := natsAddress(ctx, cfg.NATSListen)
	if err != nil {
		return nil, err
	}
	server, err := embedded.Start(ctx, embedded.Config{
		Dir: filepath.Join(cfg.Data, "jetstream"), Listen: address, User: r.NATSUser, Password: r.NATSPassword,
		SyncAlways: cfg.Sync == "always", Log: log,
	})
	if errors.Is(err, embedded.ErrInUse) {
		return nil, inUse(cfg.Data)
	}
	if err != nil {
		return nil, err
	}
	nc, err := server.Connect("dev")
	if err == nil && swapped {
		_, err = fmt.Fprintf(out, "NATS listens at %s, as %s is taken\n", server.URL(), natsDefault)
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	return &busServer{server, nc}, nil
}

// run keeps the bus up for as long as the other parts need it.
func (b *busServer) run(ctx context.Context) error {
	<-ctx.Done()
	b.stop()
	return nil
}

// stop may be called twice.
func (b *busServer) stop() {
	b.nc.Close()
	b.server.Stop()
}

// inUse tells who has the data folder.
func inUse(data string) error {
	who := "another process"
	if r, err := cli.FindRunning(data); err == nil {
		who = fmt.Sprintf("the process %d, at %s", r.PID, r.URL)
	}
	return fmt.Errorf("'flightline dev' runs already with the data folder %s: %s. Stop it, or choose another folder with --data", data, who)
}

const (
	natsOff     = "off"
	natsDefault = "127.0.0.1:4222"
	natsAnyPort = "127.0.0.1:0"
)

// natsAddress is where NATS is to listen, "" for nowhere. Only the default may
// be swapped for a free port: an address that was asked for is meant.
func natsAddress(ctx context.Context, asked string) (address string, swapped bool, err error) {
	switch asked {
	case natsOff:
		return "", false, nil
	case "":
	default:
		return asked, false, nil
	}
	var listening net.ListenConfig
	probe, err := listening.Listen(ctx, "tcp", natsDefault)
	if err != nil {
		return natsAnyPort, true, nil //nolint:nilerr // taken, or not to be had: any other will do
	}
	return natsDefault, false, probe.Close()
}

// nearby is the URL of what listens on all addresses for those on this
// machine, or the URL itself.
func nearby(address string) string {
	u, err := url.Parse(address)
	if err != nil || !net.ParseIP(u.Hostname()).IsUnspecified() {
		return address
	}
	u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	return u.String()
}
