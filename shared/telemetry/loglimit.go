package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// LogLimit bounds how many lines are logged of one thing that fails again and again, as while
// something is away. The lines left out are counted in the next one (docs/adr/0070-log-of-an-outage.md).
type LogLimit struct {
	lines   *rate.Limiter
	omitted atomic.Int64
}

// NewLogLimit allows so many lines a second after the first burst.
func NewLogLimit(perSecond rate.Limit, burst int) *LogLimit {
	return &LogLimit{lines: rate.NewLimiter(perSecond, burst)}
}

// NewOutageLog allows a line a minute: for what is tried again until it can be done.
func NewOutageLog() *LogLimit { return NewLogLimit(rate.Every(time.Minute), 1) }

// Warn logs a warning, or counts it if there are too many.
func (l *LogLimit) Warn(ctx context.Context, log *slog.Logger, text string, attrs ...slog.Attr) {
	if !l.lines.Allow() {
		l.omitted.Add(1)
		return
	}
	log.LogAttrs(ctx, slog.LevelWarn, text, l.Attrs(attrs...)...) //nolint:sloglint // the callers' texts are constants
}

// Attrs are the attributes of a line that is logged, with not_logged if lines before it were
// left out. It begins to count again.
func (l *LogLimit) Attrs(attrs ...slog.Attr) []slog.Attr {
	if n := l.omitted.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("not_logged", n))
	}
	return attrs
}
