package webhook

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// putOffInterval is the pause between two lines about tasks that are put off, after the
	// first maxPutOffBurst.
	putOffInterval = time.Minute
	maxPutOffBurst = 10
)

// putOffLog logs why tasks are put off. While a stream takes no writes, each task is put off
// every few seconds: some of those are logged, and the others are counted in the next line
// (docs/adr/0070-log-of-an-outage.md).
type putOffLog struct {
	log     *slog.Logger
	lines   *rate.Limiter
	omitted atomic.Int64
}

func newPutOffLog(log *slog.Logger) *putOffLog {
	return &putOffLog{log: log, lines: rate.NewLimiter(rate.Every(putOffInterval), maxPutOffBurst)}
}

func (p *putOffLog) write(ctx context.Context, t *task, err error) {
	if !p.lines.Allow() {
		p.omitted.Add(1)
		return
	}
	attrs := []slog.Attr{slog.String("job", string(t.Job.ID)), slog.String("endpoint", t.Job.Endpoint), slog.Any("err", err)}
	if n := p.omitted.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("not_logged", n))
	}
	p.log.LogAttrs(ctx, slog.LevelWarn, "webhook put off", attrs...)
}
