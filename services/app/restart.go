package app

import (
	"context"
	"log/slog"
	"time"

	"flightline/shared/retry"
	"flightline/shared/storehealth"
)

const (
	// restartCheckInterval is the pause between two looks at the streams, and between
	// two tests of the data folder while a stream refuses writes.
	restartCheckInterval = time.Second
	// minRestartPause is the pause after the first restart; it doubles with each
	// one up to maxRestartPause, and begins again after restartsForgotten.
	minRestartPause   = 10 * time.Second
	maxRestartPause   = 5 * time.Minute
	restartsForgotten = 10 * time.Minute
)

// restartable is the server that restarter restarts.
type restartable interface {
	CheckPlace() error
	JetStream() bool
	TestWrite() error
	Restart(ctx context.Context, streams ...string) error
}

// restarter restarts the embedded server when a stream refuses writes and the data
// folder takes them.
type restarter struct {
	server restartable
	failed func() []storehealth.Failure
	// restarted is called after a restart: failures from before it are over.
	restarted func()
	log       *slog.Logger

	pause  time.Duration // after the last restart
	last   time.Time     // the last restart, zero for none
	waits  bool          // it was logged that the folder takes no writes
	closed bool          // the last restart failed: the server is down
}

// run restarts the server where that helps, until ctx ends.
func (r *restarter) run(ctx context.Context) error {
	for retry.Sleep(ctx, restartCheckInterval) == nil {
		r.restart(ctx, time.Now())
	}
	return nil
}

// restart restarts the server if it has to be, can be, and was not a moment ago.
func (r *restarter) restart(ctx context.Context, now time.Time) {
	failed := r.failed()
	if len(failed) == 0 && r.server.JetStream() && !r.closed && r.server.CheckPlace() == nil {
		r.waits = false
		return
	}
	if !r.due(now) {
		return
	}
	if err := r.server.TestWrite(); err != nil {
		if !r.waits {
			r.log.ErrorContext(ctx, "the data folder takes no writes; NATS is restarted once it does", "err", err)
		}
		r.waits = true
		return
	}
	names := make([]string, 0, len(failed))
	for _, f := range failed {
		names = append(names, f.Stream)
	}
	r.log.WarnContext(ctx, "restarting the embedded NATS server: streams refuse writes, and the data folder takes them again", "streams", names)
	err := r.server.Restart(ctx, names...)
	r.postpone(now)
	if r.closed = err != nil; r.closed {
		r.log.ErrorContext(ctx, "the embedded NATS server did not come up, trying again", "err", err, "pause", r.pause)
		return
	}
	r.waits = false
	r.restarted()
	r.log.WarnContext(ctx, "embedded NATS server restarted", "took", time.Since(now).Round(time.Millisecond))
}

// due reports whether the pause after the last restart is over.
func (r *restarter) due(now time.Time) bool { return r.last.IsZero() || now.Sub(r.last) >= r.pause }

// postpone sets the pause until the next restart.
func (r *restarter) postpone(now time.Time) {
	r.pause = min(maxRestartPause, 2*r.pause)
	if r.last.IsZero() || now.Sub(r.last) >= restartsForgotten {
		r.pause = minRestartPause
	}
	r.last = now
}
