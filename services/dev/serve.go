package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/shared/bus"
	"flightline/shared/process"
)

// ServeCommand is `flightline serve`.
func ServeCommand(environment map[string]string) *cobra.Command {
	cfg := new(ServeConfig)
	c := &cobra.Command{
		Use: "serve ROLE...", Short: "Run roles against a NATS that runs elsewhere", Args: cobra.MinimumNArgs(1),
		Long: "Run one or several roles in one process, against a NATS with JetStream that\n" +
			"runs elsewhere:\n\n" +
			"  api       the queue API, /v2\n" +
			"  control   endpoints and API keys, /v1\n" +
			"  gateway   RunPod's worker protocol, /v2\n" +
			"  recorder  the event log, counts and retention; one is active, others stand by\n" +
			"  webhook   tells receivers that jobs ended; several share the work\n" +
			"  all       all of them\n\n" +
			"The streams and buckets are made if they are not there.",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, args []string) error {
		log, err := newLogger(cmd.ErrOrStderr(), cfg.LogLevel, cfg.LogFormat)
		if err != nil {
			return err
		}
		return Serve(cmd.Context(), *cfg, args, cmd.OutOrStdout(), log)
	})
	return c
}

// Serve runs the roles until ctx ends or one of them fails. The line that says
// where HTTP is served goes to out.
func Serve(ctx context.Context, cfg ServeConfig, names []string, out io.Writer, log *slog.Logger) error {
	wanted, err := rolesOf(names)
	if err != nil {
		return err
	}
	if cfg.Replicas != 1 && cfg.Replicas != 3 {
		return &cli.UsageError{Err: fmt.Errorf("--replicas %d: must be 1 or 3", cfg.Replicas)}
	}
	limits, err := limitsOf(cfg.Limits)
	if err != nil {
		return err
	}
	webhooks, err := cfg.config()
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close() //nolint:errcheck // web.Serve has closed it, unless we failed before
	nc, err := bus.Connect(cfg.bus("serve "+strings.Join(wanted, " "), log))
	if err != nil {
		return err
	}
	defer nc.Close()
	n, err := assemblePatiently(ctx, plan{
		nc: nc, listener: listener, roles: wanted, replicas: cfg.Replicas, partitions: cfg.Partitions,
		adminKey: cfg.BootstrapKey, webhooks: webhooks, limits: limits, log: log,
	})
	if err != nil {
		return err
	}
	announce := func(context.Context) error {
		_, err := fmt.Fprintf(out, "flightline ready: %s\n", nearby("http://"+listener.Addr().String()))
		return err
	}
	return process.Run(ctx, log, append(n.parts, process.Part{Name: "announce", Run: announce})...)
}

// bus is the connection that the settings describe. It is made in the
// background if NATS is away: services start in any order.
func (n NATS) bus(name string, log *slog.Logger) bus.Config {
	return bus.Config{
		URL: n.NATSURL, CredsFile: n.NATSCreds, User: n.NATSUser, Password: n.NATSPassword,
		Name: name, Wait: true, Log: log,
	}
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
	// assembleWithin is how long NATS may take to come up after us.
	assembleWithin = 2 * time.Minute
	// attemptWithin bounds one attempt, assembleAgain is the pause to the next.
	attemptWithin = 10 * time.Second
	assembleAgain = time.Second
)

// assemblePatiently tries again while NATS is away, or has no leader yet. What
// NATS refuses, it refuses at once.
func assemblePatiently(ctx context.Context, p plan) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, assembleWithin)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, attemptWithin)
		n, err := assemble(attempt, p)
		done()
		if err == nil || !away(err) {
			return n, err
		}
		p.log.WarnContext(ctx, "NATS is not ready, trying again", "err", err)
		select {
		case <-time.After(assembleAgain):
		case <-ctx.Done():
			return nil, fmt.Errorf("NATS is not ready: %w", err)
		}
	}
}

// away tells errors that time may heal from those it will not.
func away(err error) bool {
	if _, usage := errors.AsType[*cli.UsageError](err); usage {
		return false
	}
	return !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrJetStreamNotEnabled)
}
