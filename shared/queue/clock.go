package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"flightline/streams"
)

// probeInterval is how often Run asks the server for its time, which shows at
// the same time that JetStream serves.
const probeInterval = time.Second

// clock is server time: an instant that the server told, plus what passed
// since by the local clock. A local clock that is wrong by hours does no harm,
// and a server's that is set moves no deadline (clock_step.go).
type clock struct {
	local  func() time.Time
	anchor atomic.Pointer[anchor]
}

type anchor struct {
	local, server time.Time
	trip          time.Duration
	steps         []step // of the server's clock up to now
}

func newClock(local func() time.Time) *clock { return &clock{local: local} }

func (c *clock) now() time.Time {
	a := c.anchor.Load()
	if a == nil {
		return c.local()
	}
	return a.server.Add(c.local().Sub(a.local))
}

// maxAnchorAge makes a measurement replace a better but old one: clocks drift.
const maxAnchorAge = 30 * time.Second

// maxDrift is what two clocks may differ by within maxAnchorAge for no reason.
const maxDrift = 10 * time.Millisecond

// set takes a measurement: the server said server between sent and received.
// The one with the shortest trip within maxAnchorAge is kept, since its error
// is at most half of the trip; unless the new one contradicts it. It returns how
// far the server's clock was set since, 0 if it was not.
func (c *clock) set(server, sent, received time.Time) (by time.Duration) {
	fresh := &anchor{local: received, trip: received.Sub(sent)}
	fresh.server = server.Add(fresh.trip / 2)
	if old := c.anchor.Load(); old != nil {
		agrees := old.agrees(fresh)
		if agrees && fresh.trip > old.trip && received.Sub(old.local) < maxAnchorAge {
			return 0
		}
		fresh.steps = old.steps
		if off := old.off(fresh); !agrees && off.Abs() >= minStep {
			by = off
			fresh.steps = append(slices.Clone(old.steps), step{fresh.server, by})
			fresh.steps = fresh.steps[max(0, len(fresh.steps)-maxSteps):]
		}
	}
	c.anchor.Store(fresh)
	return by
}

// off is by how much the later measurement differs from what this one led to
// expect.
func (a *anchor) off(later *anchor) time.Duration {
	return later.server.Sub(a.server.Add(later.local.Sub(a.local)))
}

// agrees reports whether one clock can have been measured both times. It is
// another if a new leader keeps another time, the server's was set, or the local
// one stood still with a suspended machine.
func (a *anchor) agrees(later *anchor) bool {
	return a.off(later).Abs() <= (a.trip+later.trip)/2+maxDrift
}

// probe asks the records' leader for its time, and whether it could write. It
// returns for how long that leader has heard no majority, and ErrUnavailable.
func (q *Queue) probe(ctx context.Context) (silent time.Duration, err error) {
	sent := q.cfg.Now()
	answer, err := q.request(ctx, streams.StreamInfo(streams.Records(0)), nil)
	if err != nil {
		return 0, err
	}
	received := q.cfg.Now()
	var info struct {
		Time    time.Time `json:"ts"`
		Cluster cluster   `json:"cluster"`
		Error   *apiError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return 0, fmt.Errorf("read stream info: %w", err)
	}
	if info.Error != nil {
		return 0, q.explain(ctx, info.Error, streams.Records(0), "ask for the server's time")
	}
	if by := q.clock.set(info.Time, sent, received); by != 0 {
		// The server counts by its clock when a lease ends: what comes again now
		// proves no silence.
		q.service.failed()
		q.log.WarnContext(ctx, "the clock of the NATS server was set; running jobs keep the time that they have", "by", by)
	}
	q.clustered.Store(info.Cluster.Name != "")
	if !info.Cluster.quorum() {
		return info.Cluster.silence(), fmt.Errorf("%w: %w", ErrUnavailable, errNoQuorum)
	}
	q.service.answered()
	return info.Cluster.silence(), nil
}

// measure probes until one trip was short, a few times at most: what a busy
// machine makes of a single one would be this process's error for a while.
func (q *Queue) measure(ctx context.Context) error {
	const most, short = 5, time.Millisecond
	for range most {
		if _, err := q.probe(ctx); err != nil && !errors.Is(err, errNoQuorum) { // the time it told
			return err
		}
		if q.clock.anchor.Load().trip <= short {
			break
		}
	}
	return nil
}

// probeEvery asks until ctx ends.
func (q *Queue) probeEvery(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	node := newAttendance(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, probeTimeout)
		silent, err := q.probe(within)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			q.service.failed()
			q.log.DebugContext(ctx, "jetstream did not answer", "err", err)
		}
		q.attend(ctx, node, silent, err)
	}
}
