package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"flightline/services/cli"
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
	if !slices.Contains([]string{syncAlways, syncGroup, syncInterval}, cfg.Sync) {
		return &cli.UsageError{Err: fmt.Errorf("--sync %q: must be always, group or interval", cfg.Sync)}
	}
	limits, err := limitsOf(cfg.Limits)
	if err != nil {
		return err
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
		nc: b.nc, listener: listener, roles: roles(), adminKey: h.APIKey, webhooks: homely(nearby("http://" + listener.Addr().String())), durable: b.durable(cfg.Sync), limits: limits, log: log,
	})
	if err != nil {
		return err
	}
	if err := b.letRead(ctx); err != nil {
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
	parts := append([]process.Part{{Name: "bus", Run: b.run}, {Name: "barrier", Run: b.serveBarrier(cfg.Sync)}}, n.parts...)
	return process.Run(ctx, log, append(parts, process.Part{Name: "demo", Run: t.run})...)
}
