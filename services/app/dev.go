package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/shared/process"
	"flightline/shared/ratelimit"
	"flightline/shared/telemetry"
)

// Command is `flightline dev`; program is how the user started it.
func Command(environment map[string]string, version, program string) *cobra.Command {
	cfg := new(Config)
	c := &cobra.Command{
		Use: "dev", Short: "Run everything in one process, to try it and to develop against",
		Long: "Run everything in one process: the API, a durable JetStream in the data folder,\n" +
			"and, to have something to look at, the endpoint echo with a worker that returns\n" +
			"its input. Other commands started in the same folder find it by themselves.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, _ []string) error {
		cfg.reaper, cfg.program = reaperOf(cmd), program
		return traced(cmd, environment, "flightline-dev", version, cfg.LogLevel, cfg.LogFormat, func(log *slog.Logger, tracer *telemetry.Tracer) error {
			return Run(cmd.Context(), *cfg, version, cmd.OutOrStdout(), log, tracer)
		})
	})
	return c
}

// check returns the limits of the settings, which must be good.
func (c Config) check() (ratelimit.Table, error) {
	if c.Data == "" {
		return nil, &cli.UsageError{Err: errors.New("--data must name a folder")}
	}
	if !slices.Contains([]string{syncAuto, syncAlways, syncGroup, syncInterval}, c.Sync) {
		return nil, wrong("sync", c.Sync, "auto, always, group or interval")
	}
	_, unknown := c.fleets().names()
	_, unread := catalogOf(c.Catalog)
	if err := cmp.Or(
		addressOf("listen", c.Listen), addressOf("metrics-listen", c.MetricsListen, metricsOff), addressOf("nats-listen", c.NATSListen, natsOff),
		namesOf("host", c.Host, "names or IPv4 addresses without a port, with commas between them"), keyOf("api-key", c.APIKey), unknown, c.Engine.check(), c.Connections.check(), c.LogSizes.check(), c.StreamForm.check(), c.Traces.check(), unread,
	); err != nil {
		return nil, err
	}
	return limitsOf(c.Limits)
}

// completePlan is p with what the settings, the data folder, its NATS and the listeners say.
func (c Config) completePlan(p plan, d *dataDir, b *busServer, open *listeners) plan {
	p.roles, p.logs, p.streamFormat, p.catalog = roles(), c.LogSizes, c.StreamFormat, c.Catalog
	p.nc, p.own, p.durable = b.nc, b.own(filepath.Join(c.Data, storeDir)), b.durable()
	p.adminKey, p.replaceKey = d.APIKey, d.replaceKey
	p.listener, p.hosts = open.requests, c.hosts(open.requests)
	p.metricsAt, p.metricsHosts = open.scrapes, c.hosts(open.scrapes)
	p.webhooks = loopbackWebhooks(open.url())
	p.console = consolePlan{
		url: open.url(), control: open.url(), ca: d.TLSCert, secure: open.shown != nil,
		hosts: p.hosts, traceURL: c.TraceURL,
	}
	return p
}

// Run runs everything until ctx ends or a part fails. What people should know
// goes to out. A nil tracer makes no traces.
func Run(ctx context.Context, cfg Config, version string, out io.Writer, log *slog.Logger, tracer *telemetry.Tracer) (err error) {
	limits, err := cfg.check()
	if err != nil {
		return err
	}
	d, err := openDataDir(cfg)
	if err != nil {
		return err
	}
	shown, err := cfg.certificate(log)
	if err != nil {
		return err
	}
	b, err := startBus(ctx, cfg, d.Running, shown, out, log)
	if err != nil {
		return err
	}
	defer b.stop(ctx)
	open, err := openListeners(ctx, cfg.Listen, cfg.MetricsListen, cfg.limit(log), shown, log)
	if err != nil {
		return err
	}
	defer open.close()
	fleet, err := cfg.fleets().plan(open.url())
	if err != nil {
		return err
	}
	defer fleet.close(context.WithoutCancel(ctx)) //nolint:errcheck // the role has closed them, unless we failed before
	n, err := assemble(ctx, cfg.completePlan(
		plan{limits: limits, fleets: fleet, version: version, log: log, tracer: tracer}, d, b, open))
	if err != nil {
		return err
	}
	if err := b.applySubscriber(ctx); err != nil {
		return err
	}
	d.URL, d.MetricsURL, d.NATSURL = open.url(), open.metricsURL(), open.named(localURL(b.server.URL()))
	if err := d.Announce(d.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	c, err := d.client(version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "flightline console: %s%s\n", d.URL, n.console.OnceLink(d.APIKey))
	if err := errors.Join(err, open.announceMetrics(out)); err != nil {
		return err
	}
	intro := &demo{client: c, nc: b.nc, url: d.URL, data: cfg.Data, program: cfg.program, enabled: !cfg.NoDemo, version: version, out: out, log: log, tracer: tracer}
	parts := append([]process.Part{
		{Name: "bus", Run: b.run, Waiting: func() string { return "NATS closes its streams" }},
		{Name: "barrier", Run: b.serveBarrier},
		{Name: "restarter", Run: (&restarter{server: b.server, failed: n.storage.Failed, restarted: n.storage.Recheck, log: log}).run},
	}, n.parts...)
	return process.Run(ctx, log, append(parts, process.Part{Name: "demo", Run: intro.run}, unready(n.health))...)
}
