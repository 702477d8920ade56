package web

import (
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/telemetry"
)

const (
	// maxUnavailableRate is how many requests a second that failed as Unavailable are
	// logged, after the first maxUnavailableBurst.
	maxUnavailableRate, maxUnavailableBurst = 10, 100
)

// failureLog logs requests that failed by our own fault. While something is away,
// thousands a second fail as Unavailable: of those it logs some, and counts the others
// in the next line (docs/adr/0070-log-of-an-outage.md). All else it logs.
type failureLog struct {
	log         *slog.Logger
	unavailable *telemetry.LogLimit
}

func newFailureLog(log *slog.Logger) *failureLog {
	return &failureLog{log: log, unavailable: telemetry.NewLogLimit(maxUnavailableRate, maxUnavailableBurst)}
}

// write logs the error that the request is answered with.
func (f *failureLog) write(c *fiber.Ctx, code Code, err error) {
	attrs := []slog.Attr{
		slog.String("request_id", RequestID(c)), slog.String("method", strings.Clone(c.Method())),
		slog.String("route", strings.Clone(c.Route().Path)), slog.String("endpoint", param(c, "endpoint")),
		slog.String("job", jobNamed(c)), slog.String("code", string(code)), slog.Any("err", err),
	}
	if code == Unavailable {
		f.unavailable.Warn(c.UserContext(), f.log, "request failed", attrs...)
		return
	}
	f.log.LogAttrs(c.UserContext(), slog.LevelError, "request failed", attrs...)
}
