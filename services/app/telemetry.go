package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/services/recorder"
	"flightline/shared/metrics"
	"flightline/shared/process"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/shared/telemetry/otlp"
	"flightline/streams"
)

// traced runs a command with a logger of this level and format, which the environment may
// want traces of, as service unless the environment has a name for it. tracer is nil
// without traces.
func traced(cmd *cobra.Command, environment map[string]string, service, version, level, format string, run func(log *slog.Logger, tracer *telemetry.Tracer) error) error {
	ctx := cmd.Context()
	log, err := newLogger(cmd.ErrOrStderr(), level, format)
	if err != nil {
		return err
	}
	sender, err := otlp.Open(ctx, environment, service, version, log)
	if errors.Is(err, otlp.ErrConfig) {
		return &cli.UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	err = run(sender.Logs(log), sender.Tracer())
	if left := sender.Close(ctx); left != nil {
		log.WarnContext(ctx, "last spans not sent", "err", left)
	}
	return err
}

const (
	metricsOff     = "off"
	metricsDefault = "127.0.0.1:9464"
	metricsAnyPort = "127.0.0.1:0"
)

// listenMetrics listens where metrics are to be scraped, nil if nowhere. Only
// the default may be swapped for a free port, as that of NATS.
func listenMetrics(ctx context.Context, asked string) (net.Listener, error) {
	var listening net.ListenConfig
	switch asked {
	case metricsOff:
		return nil, nil //nolint:nilnil // not wanted is no error
	case "":
		if l, err := listening.Listen(ctx, "tcp", metricsDefault); err == nil {
			return l, nil
		}
		asked = metricsAnyPort
	}
	l, err := listening.Listen(ctx, "tcp", asked)
	if err != nil {
		return nil, notListening("--metrics-listen", err)
	}
	return l, nil
}

// expose adds the part that answers scrapes, and what is read then.
func (n *node) expose(p plan) {
	if p.metricsAt == nil {
		return
	}
	switch {
	case slices.Contains(p.roles, roleAPI):
		p.metrics.AddFleet(metrics.Fleet{Queue: n.queue, Registry: n.registry, Log: p.log})
	case slices.Contains(cachesOf(p.roles), streams.BucketEndpoints):
		p.metrics.AddEndpoints(n.registry.Endpoints.Known)
	}
	n.parts = append(n.parts, process.Part{Name: "metrics", Optional: true, Run: func(ctx context.Context) error { return p.metrics.Serve(ctx, p.metricsAt, p.metricsHosts.Allow) }})
}

// lagOf is how far the recorder is behind, while it is the active one.
func lagOf(s *recorder.Service, election *registry.Election, instance string) func(context.Context) (time.Duration, uint64, bool) {
	return func(ctx context.Context) (time.Duration, uint64, bool) {
		if leader, err := election.Active(ctx); err != nil || leader.Instance != instance {
			return 0, 0, false
		}
		lag, err := s.Lag(ctx)
		return lag.Age, lag.Writes, err == nil
	}
}
