package dev

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"flightline/shared/bus/embedded"
	"flightline/shared/metrics"
	"flightline/shared/queue"
	"flightline/shared/storage"
	"flightline/shared/web"
	"flightline/streams"
)

// monitorOf is the monitor of the streams that the plan's roles write.
func monitorOf(p plan) *storage.Monitor {
	var written []string
	for _, role := range p.roles {
		for _, name := range streams.Written(streams.Config{Partitions: p.partitions}, streams.Role(role)) {
			if name != streams.Any { // a queue is checked once a write to it was not answered
				written = append(written, name)
			}
		}
	}
	slices.Sort(written)
	return storage.NewMonitor(storage.Config{NC: p.nc, Streams: slices.Compact(written), More: p.alsoFailed, Log: p.log})
}

// observer tells the metrics what the queue did, and the monitor of writes that
// were not answered.
func (n *node) observer(r *metrics.Registry) queue.Observer {
	r.AddStorage(func() int { return len(n.storage.Failed()) })
	o := r.Observer()
	o.Unwritten = n.storage.Suspect
	return o
}

// takesWrites is the check of readiness.
func (n *node) takesWrites(restarts bool) error {
	summary := storage.Summary(n.storage.Failed())
	switch {
	case summary == "":
		return nil
	case restarts:
		return web.ShownError(summary + "; NATS is restarted once the data folder takes writes")
	}
	return web.ShownError(summary + "; restart NATS once its disk takes writes")
}

const (
	// mendInterval is the pause between two looks at the streams, and between
	// two tests of the data folder while a stream refuses writes.
	mendInterval = time.Second
	// minRestartPause is the pause after the first restart; it doubles with each
	// one up to maxRestartPause, and begins again after restartsForgotten.
	minRestartPause   = 10 * time.Second
	maxRestartPause   = 5 * time.Minute
	restartsForgotten = 10 * time.Minute
)

// mendable is the server that mender restarts.
type mendable interface {
	JetStream() bool
	TestWrite() error
	Restart(ctx context.Context, streams ...string) error
}

// mender restarts the embedded server when a stream refuses writes and the data
// folder takes them.
type mender struct {
	server mendable
	failed func() []storage.Failure
	// restarted is called after a restart: failures from before it are over.
	restarted func()
	log       *slog.Logger

	pause  time.Duration // after the last restart
	last   time.Time     // the last restart, zero for none
	waits  bool          // it was logged that the folder takes no writes
	closed bool          // the last restart failed: the server is down
}

// run mends until ctx ends.
func (m *mender) run(ctx context.Context) error {
	tick := time.NewTicker(mendInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m.mend(ctx, time.Now())
	}
}

// mend restarts the server if it has to be, can be, and was not a moment ago.
func (m *mender) mend(ctx context.Context, now time.Time) {
	failed := m.failed()
	if len(failed) == 0 && m.server.JetStream() && !m.closed {
		m.waits = false
		return
	}
	if !m.due(now) {
		return
	}
	if err := m.server.TestWrite(); err != nil {
		if !m.waits {
			m.log.ErrorContext(ctx, "the data folder takes no writes; NATS is restarted once it does", "err", err)
		}
		m.waits = true
		return
	}
	names := make([]string, 0, len(failed))
	for _, f := range failed {
		names = append(names, f.Stream)
	}
	m.log.WarnContext(ctx, "restarting the embedded NATS server: streams refuse writes, and the data folder takes them again", "streams", names)
	err := m.server.Restart(ctx, names...)
	m.postpone(now)
	if m.closed = err != nil; m.closed {
		m.log.ErrorContext(ctx, "the embedded NATS server did not come up, trying again", "err", err, "pause", m.pause)
		return
	}
	m.waits = false
	m.restarted()
	m.log.WarnContext(ctx, "embedded NATS server restarted", "took", time.Since(now).Round(time.Millisecond))
}

// due reports whether the pause after the last restart is over.
func (m *mender) due(now time.Time) bool { return m.last.IsZero() || now.Sub(m.last) >= m.pause }

// postpone sets the pause until the next restart.
func (m *mender) postpone(now time.Time) {
	m.pause = min(maxRestartPause, 2*m.pause)
	if m.last.IsZero() || now.Sub(m.last) >= restartsForgotten {
		m.pause = minRestartPause
	}
	m.last = now
}

// unsynced are the streams of which an fsync has failed.
func unsynced(b *embedded.Barrier) []storage.Failure {
	var all []storage.Failure
	for stream, reason := range b.Failed() {
		all = append(all, storage.Failure{Stream: stream, Reason: reason})
	}
	return all
}
