package storehealth

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/retry"
)

const (
	// checkInterval is the pause between two checks of the streams that are
	// suspected or known to refuse writes.
	checkInterval = time.Second
	// sweepEvery is how many of these intervals pass between two checks of all
	// of Config.Streams.
	sweepEvery = 5
	// answerTimeout bounds one check, roundTimeout all checks of one interval.
	answerTimeout = time.Second
	roundTimeout  = 5 * time.Second
	// silentFor is how long a stream is left out of the sweep after a check of
	// it was not answered: this user may not be allowed to ask.
	silentFor = 5 * time.Minute
)

// Config is what a Monitor watches.
type Config struct {
	// NC may purge the streams. Required.
	NC *nats.Conn
	// Streams are checked every 5 s, unless the server is one of a cluster,
	// where each check is a write of all replicas. Any other stream is checked
	// once it is suspected.
	Streams []string
	// More are failures that the server does not know of. Nil means none.
	More func() []Failure
	// Log gets each stream that refuses writes, and when it takes them
	// again. Nil discards it.
	Log *slog.Logger
}

// Monitor knows which streams refuse writes. It is safe for concurrent use.
type Monitor struct {
	cfg Config
	log *slog.Logger

	mu        sync.Mutex
	suspected map[string]bool
	failed    map[string]Failure
	silent    map[string]time.Time // streams that did not answer, until when they are not asked
}

// NewMonitor returns a monitor that knows of no failure. It starts nothing.
func NewMonitor(cfg Config) *Monitor {
	return &Monitor{cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), suspected: map[string]bool{}, failed: map[string]Failure{}, silent: map[string]time.Time{}}
}

// Suspect has the stream checked within a second: a write to it was not
// answered. It costs next to nothing.
func (m *Monitor) Suspect(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suspected[stream] = true
}

// Recheck forgets all failures: the server was restarted. Each stream of them is
// checked again within a second.
func (m *Monitor) Recheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for stream := range m.failed {
		m.suspected[stream] = true
	}
	clear(m.failed)
}

// Failed are the streams that refuse writes, by name.
func (m *Monitor) Failed() []Failure {
	var all []Failure
	if m.cfg.More != nil {
		all = m.cfg.More()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.failed {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Failure) int { return cmp.Compare(a.Stream, b.Stream) })
	return all
}

// Run checks until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		m.check(ctx, n%sweepEvery == 0)
		_ = retry.Sleep(ctx, checkInterval) // the loop sees the end of ctx
	}
	return nil
}

// check asks for the streams that are due, as long as there is a connection.
func (m *Monitor) check(ctx context.Context, sweep bool) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	for _, stream := range m.due(sweep && m.cfg.NC.ConnectedClusterName() == "") {
		if ctx.Err() != nil || !m.cfg.NC.IsConnected() {
			return
		}
		asked, done := context.WithTimeout(ctx, answerTimeout)
		f, err := Check(asked, m.cfg.NC, stream)
		done()
		m.note(ctx, stream, f, err)
	}
}

func (m *Monitor) due(sweep bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := make([]string, 0, len(m.suspected)+len(m.failed))
	for stream := range m.suspected {
		due = append(due, stream)
	}
	for stream := range m.failed {
		due = append(due, stream)
	}
	if sweep {
		for _, stream := range m.cfg.Streams {
			if time.Now().After(m.silent[stream]) {
				due = append(due, stream)
			}
		}
	}
	slices.Sort(due)
	return slices.Compact(due)
}

// note keeps what came of a check: f is nil for a stream that takes writes, err
// not nil for a stream that did not answer.
func (m *Monitor) note(ctx context.Context, stream string, f *Failure, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.suspected, stream)
	_, known := m.failed[stream]
	switch {
	case err != nil:
		m.silent[stream] = time.Now().Add(silentFor)
		m.log.DebugContext(ctx, "store not checked", "stream", stream, "err", err)
	case f != nil:
		m.failed[stream] = *f
		if !known {
			m.log.ErrorContext(ctx, "stream refuses writes until NATS is restarted", "stream", stream, "err", f.Reason)
		}
	case known:
		delete(m.failed, stream)
		m.log.WarnContext(ctx, "stream takes writes again", "stream", stream)
	}
}
