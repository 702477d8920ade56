package autoscaler

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
)

const (
	// announceDelay is how long after the leader began to listen a job may
	// still come that is not announced to it, and that the last count lacks.
	announceDelay = 2 * time.Second
	// restingTime is how long the queue of an endpoint with workers must have
	// been empty until the leader listens instead of counting.
	restingTime = 5 * time.Second
	// recountInterval is how long the leader relies on announcements.
	recountInterval = 30 * time.Second
	// hastyFirst is the pause after a look in haste that found no job yet; it
	// doubles with each, maxHastyRounds times.
	hastyFirst     = 5 * time.Millisecond
	maxHastyRounds = 6
)

// jobCount is what the leader knows of an endpoint's queue. A queue that asks for no
// worker is not counted again before a job comes.
type jobCount struct {
	// hasty means that a job was announced, hurried when the leader last
	// gave up or found it.
	hasty   bool
	hurried time.Time   // local clock
	stats   queue.Stats // of the last count
	// counted is when that was, empty since when nothing was there.
	counted, empty time.Time
	// listens is since when jobs are announced to the leader; quiet, that stats hold
	// until one is.
	listens time.Time
	quiet   bool
}

// waiting is how many jobs ask for a worker.
func (n *jobCount) waiting() int { return n.stats.Queued - n.stats.QueuedLow }

// count is how many jobs the endpoint has. Low-priority ones are of no account
// while there is no worker to run them.
func (l *leader) count(ctx context.Context, now time.Time, e endpoint.Endpoint, m *endpointState) (queue.Stats, error) {
	n, all := &m.count, m.alive > 0
	listens := l.arrivals.Awaits(e.ID, all)
	if n.quiet && listens && !n.hasty && now.Sub(n.counted) < recountInterval {
		return n.stats, nil
	}
	n.quiet = n.quiet && listens
	if l.stillEmpty(ctx, e, n) {
		n.counted = now
		return n.stats, nil
	}
	ask := l.queue.Counts.Stats
	if n.hasty {
		ask = l.queue.Counts.StatsNow
	}
	stats, err := ask(ctx, e)
	if err != nil {
		n.quiet = false
		return stats, err
	}
	n.stats, n.counted = stats, now
	if stats != (queue.Stats{}) {
		n.empty = time.Time{}
	} else if n.empty.IsZero() {
		n.empty = now
	}
	calm := !all && n.waiting() == 0 || !n.empty.IsZero() && now.Sub(n.empty) >= restingTime
	switch {
	case !calm:
		if n.quiet { // the announcement is lost, and no other comes
			l.arrivals.Forget(e.ID)
		}
		n.quiet = false
	case listens:
		n.quiet = stats.Running == 0 && (n.quiet || now.Sub(n.listens) >= announceDelay)
	case n.hasty: // the next look that is due listens again
	default:
		n.listens = now
		if err := l.arrivals.Await(e.ID, all); err != nil {
			l.log.DebugContext(ctx, "arrivals not awaited, the jobs are counted", "endpoint", e.ID, "err", err)
		}
	}
	return stats, nil
}

// stillEmpty reports whether a queue that was empty is empty, and no job was announced.
func (l *leader) stillEmpty(ctx context.Context, e endpoint.Endpoint, n *jobCount) bool {
	if !n.quiet || n.hasty || n.stats != (queue.Stats{}) {
		return false
	}
	empty, err := l.queue.Counts.IsEmpty(ctx, e)
	return err == nil && empty
}

// noteArrivals puts the endpoints that got a job that a worker is to be started for into hasty,
// as not looked at since.
func (l *leader) noteArrivals(first *nats.Msg, hasty map[string]int) {
	for m := first; ; {
		id := l.arrivals.Read(m)
		if m := l.endpoints[id]; m != nil && l.urgent(m) {
			hasty[id] = 0
		}
		select {
		case m = <-l.arrivals.Notifications():
		default:
			return
		}
	}
}

// urgent reports whether a job that came is to be looked for now. Where there are
// workers, or never any, and where the leader hurried a moment ago, as it does
// for jobs that others took first, the next look that is due is soon enough.
func (l *leader) urgent(m *endpointState) bool {
	rest := l.cfg.Every
	if m.of.Fleet.External() {
		rest = externalInterval
	}
	return m.alive == 0 && m.of.WorkersMax > 0 && time.Since(m.count.hurried) >= rest
}

// hurry looks at these endpoints at once. A job is announced before it is
// stored, so it looks again at those where none waits, and returns after which
// pause; 0 means that there is nothing to look for.
func (l *leader) hurry(ctx context.Context, hasty map[string]int) (pause time.Duration) {
	if len(hasty) == 0 {
		return 0
	}
	l.runRound(ctx, hasty)
	for id, times := range hasty {
		m := l.endpoints[id]
		if m == nil || m.count.waiting() > 0 || times+1 >= maxHastyRounds {
			if delete(hasty, id); m != nil {
				m.count.hurried = time.Now()
			}
			continue
		}
		hasty[id] = times + 1
		if next := hastyFirst << times; pause == 0 || next < pause {
			pause = next
		}
	}
	return pause
}
