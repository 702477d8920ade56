package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/shared/bus"
	"flightline/shared/process"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/shared/tlsconfig"
	"flightline/streams"
)

// ServeCommand is `flightline serve`.
func ServeCommand(environment map[string]string, version string) *cobra.Command {
	cfg := new(ServeConfig)
	c := &cobra.Command{
		Use: "serve ROLE...", Short: "Run roles against a NATS that runs elsewhere",
		Long: "Run one or several roles in one process, against a NATS with JetStream that\n" +
			"runs elsewhere:\n\n" +
			"  api       the queue API, /v2\n" +
			"  control   endpoints and API keys, /v1\n" +
			"  gateway   RunPod's worker protocol, /v2\n" +
			"  recorder  the event log, counts and retention; one is active, others stand by\n" +
			"  autoscaler  starts and stops workers; one decides, others stand by\n" +
			"  webhook   reports ends of jobs to their receivers; several share the work\n" +
			"  console   the web console, /ui; it needs the address of the API\n" +
			"  all       all of them\n\n" +
			"The streams and buckets are made if they are not there.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, args []string) error {
		cfg.reaper = reaperOf(cmd)
		return traced(cmd, environment, "flightline-"+strings.Join(args, "-"), version, cfg.LogLevel, cfg.LogFormat, func(log *slog.Logger, tracer *telemetry.Tracer) error {
			return Serve(cmd.Context(), *cfg, version, args, cmd.OutOrStdout(), log, tracer)
		})
	})
	return c
}

// minRetention: readers may be away for a while. maxDrainDelay: supervisors
// kill what does not stop.
const (
	minRetention  = time.Hour
	maxDrainDelay = time.Minute
)

// Serve runs the roles until ctx ends or one of them fails. The line that says
// where HTTP is served goes to out. A nil tracer makes no traces.
func Serve(ctx context.Context, cfg ServeConfig, version string, names []string, out io.Writer, log *slog.Logger, tracer *telemetry.Tracer) error {
	p, err := cfg.read(names)
	if err != nil {
		return err
	}
	shown, err := openCerts(cfg.files(), log)
	if err != nil {
		return err
	}
	open, err := openListeners(ctx, cfg.Listen, cfg.MetricsListen, cfg.limit(log), shown, log)
	if err != nil {
		return err
	}
	defer open.close()
	if err := cfg.ownGateway(p.roles, open); err != nil {
		return err
	}
	p.bus = cfg.bus("serve "+strings.Join(p.roles, " "), log)
	if p.nc, err = bus.Connect(p.bus); err != nil {
		return err
	}
	defer p.nc.Close()
	p.fleets, err = cfg.plan(open.url())
	if err != nil {
		return err
	}
	p.fleets.warnUnused(p.roles, log)
	defer p.fleets.close(context.WithoutCancel(ctx)) //nolint:errcheck // the role has closed them, unless we failed before
	if p.console, err = cfg.reachAPI(open); err != nil {
		return err
	}
	p.listener, p.metricsAt, p.version, p.log, p.tracer = open.requests, open.scrapes, version, log, tracer
	n, err := assemblePatiently(ctx, p)
	if err != nil {
		return err
	}
	announce := func(context.Context) error {
		if err := open.announceMetrics(out); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "flightline ready: %s\n", open.url())
		return err
	}
	return process.Run(ctx, log, append(n.parts, process.Part{Name: "announce", Run: announce}, unready(n.health))...)
}

// read is the plan as far as the settings say it, or a *cli.UsageError.
func (c ServeConfig) read(names []string) (plan, error) {
	p := plan{
		replicas: c.Replicas, partitions: c.Partitions, eventsAge: c.EventsAge, logs: c.LogSizes, adminKey: c.BootstrapKey,
		streamFormat: c.StreamFormat, catalog: c.Catalog, drainDelay: c.DrainDelay,
	}
	var errs [6]error
	p.roles, errs[0] = rolesOf(names)
	errs[1] = c.inBounds(p.roles)
	p.limits, errs[2] = limitsOf(c.Limits)
	p.waitForStreams, errs[3] = c.waits()
	p.webhooks, errs[4] = c.config()
	_, errs[5] = catalogOf(c.Catalog)
	return p, cmp.Or(errs[:]...)
}

// inBounds checks the settings of a process with these roles.
func (c ServeConfig) inBounds(roles []string) error {
	return cmp.Or(
		replicasInBounds(c.Replicas), partitionsInBounds(c.Partitions), retentionInBounds("events-retention", c.EventsAge), c.LogSizes.check(), c.StreamForm.check(), upTo("drain-delay", c.DrainDelay, maxDrainDelay),
		addressOf("listen", c.Listen), addressOf("metrics-listen", c.MetricsListen, metricsOff), keyOf("bootstrap-key", c.BootstrapKey),
		c.Connections.check(), c.NATS.check(), c.Webhooks.check(), c.Fleets.check(roles), c.Console.check(roles),
	)
}

// bus is the connection that the settings describe. It is made in the
// background if NATS is away: services start in any order.
func (n NATS) bus(name string, log *slog.Logger) bus.Config {
	return bus.Config{
		URL: n.NATSURL, CredsFile: n.NATSCreds, User: n.NATSUser, Password: n.NATSPassword,
		InboxPrefix: n.NATSInbox, TLS: n.tls(),
		Name: name, Wait: true, Log: log,
	}
}

func (c ServeConfig) files() tlsconfig.Files {
	return tlsconfig.Files{Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA}
}

func (n NATS) tls() bus.TLS { return bus.TLS{CA: n.NATSCA, Cert: n.NATSCert, Key: n.NATSKey} }

// waits reports whether the process waits for streams that another one makes.
// make and wait are the values of the setting's old name, --streams.
func (c ServeConfig) waits() (bool, error) {
	switch c.CreateStreams {
	case "", "true", "make":
		return false, nil
	case "false", "wait":
		return true, nil
	}
	return false, &cli.UsageError{Err: fmt.Errorf("--create-streams must be true or false, got %q", c.CreateStreams)}
}

// rolesOf is names without repetition, and with all spelled out.
func rolesOf(names []string) ([]string, error) {
	if slices.Contains(names, roleAll) {
		return roles(), nil
	}
	var wanted []string
	for _, name := range names {
		if !slices.Contains(roles(), name) {
			return nil, &cli.UsageError{Err: fmt.Errorf("no role %q: must be of %s, %s", name, strings.Join(roles(), ", "), roleAll)}
		}
		if !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	return wanted, nil
}

const (
	// assembleTimeout is how long NATS may take to come up after us.
	assembleTimeout = 2 * time.Minute
	// attemptTimeout bounds one attempt, assembleRetryDelay is the pause to the next.
	attemptTimeout     = 10 * time.Second
	assembleRetryDelay = time.Second
)

// assemblePatiently tries again while NATS is away, or has no leader yet. What
// NATS refuses, it refuses at once.
func assemblePatiently(ctx context.Context, p plan) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, assembleTimeout)
	defer cancel()
	retryable := func(err error) bool {
		if !mayHeal(err) {
			return false
		}
		p.log.WarnContext(ctx, "NATS is not ready, trying again", "err", err)
		return true
	}
	var n *node
	err := retry.Do(ctx, retry.Every(assembleRetryDelay), retryable, func() (err error) {
		attempt, done := context.WithTimeout(ctx, attemptTimeout)
		defer done()
		if n, err = assemble(attempt, p); err != nil && mayHeal(err) {
			err = p.explainOutage(err)
		}
		return err
	})
	switch {
	case err == nil:
		return n, nil
	case mayHeal(err):
		return nil, fmt.Errorf("NATS is not ready: %w", err)
	}
	return nil, err
}

// explainOutage is err, or what it comes from if there is no connection, or no JetStream: that
// alone helps people.
func (p plan) explainOutage(err error) error {
	if p.nc.IsConnected() {
		if errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("JetStream does not answer; nats-server has it with -js, or with jetstream in its configuration: %w", err)
		}
		return err
	}
	if why := bus.Why(p.bus); why != nil {
		return why
	}
	return err
}

// mayHeal reports whether time may heal the error: it is none of those that only a person mends.
func mayHeal(err error) bool {
	if _, usage := errors.AsType[*cli.UsageError](err); usage {
		return false
	}
	return !errors.Is(err, errDriver) && !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrJetStreamNotEnabled) &&
		!errors.Is(err, streams.ErrSchema) && !errors.Is(err, streams.ErrReplicas) && !errors.Is(err, streams.ErrRestoring)
}
