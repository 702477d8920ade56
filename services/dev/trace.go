package dev

import (
	"context"
	"errors"
	"log/slog"

	"flightline/services/cli"
	"flightline/shared/telemetry"
	"flightline/shared/telemetry/otlp"
)

// traced runs what the environment may want traces of, as service unless the
// environment has a name for it. tracer is nil without traces.
func traced(ctx context.Context, environment map[string]string, service, version string, log *slog.Logger, run func(log *slog.Logger, tracer *telemetry.Tracer) error) error {
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
