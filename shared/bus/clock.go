package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// probeInterval is how often Run asks the server for its time, which shows at
// the same time that JetStream serves.
const probeInterval = time.Second

// Clock is server time: an instant that the server gave, plus what passed
// since by the local clock. A local clock that is wrong by hours does no harm,
// and a server's that is set moves no deadline (see step).
type Clock struct {
	local  func() time.Time
	anchor atomic.Pointer[anchor]
}

type anchor struct {
	local, server time.Time
	trip          time.Duration
	steps         []step // of the server's clock up to now
}

func newClock(local func() time.Time) *Clock { return &Clock{local: local} }

// Now is the server's time as this process knows it.
func (c *Clock) Now() time.Time {
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
func (c *Clock) set(server, sent, received time.Time) (by time.Duration) {
	fresh := &anchor{local: received, trip: received.Sub(sent)}
	fresh.server = server.Add(fresh.trip / 2)
	if old := c.anchor.Load(); old != nil {
		agrees := old.fitsOneClock(fresh)
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

// fitsOneClock reports whether both measurements can be of one clock, within
// their error. They are not after a change of the leader, a step of a clock, or a
// suspend of this machine.
func (a *anchor) fitsOneClock(later *anchor) bool {
	return a.off(later).Abs() <= (a.trip+later.trip)/2+maxDrift
}

// probe asks the records' leader for its time, and whether it could write. It
// returns for how long that leader has heard no majority, and ErrUnavailable.
func (c *Client) probe(ctx context.Context) (silent time.Duration, err error) {
	sent := c.cfg.Now()
	answer, err := c.Request(ctx, StreamInfo(c.cfg.ClockStream), nil)
	if err != nil {
		return 0, err
	}
	received := c.cfg.Now()
	var info struct {
		Time    time.Time `json:"ts"`
		Cluster cluster   `json:"cluster"`
		Error   *APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return 0, fmt.Errorf("read stream info: %w", err)
	}
	if info.Error != nil {
		return 0, c.explain(ctx, info.Error, c.cfg.ClockStream, "ask for the server's time")
	}
	if by := c.clock.set(info.Time, sent, received); by != 0 {
		// The server counts by its clock when a lease ends: what comes again now
		// proves no silence.
		c.availability.Failed()
		c.log.WarnContext(ctx, "the clock of the NATS server was set; running jobs keep the time that they have", "by", by)
	}
	c.single.Store(info.Cluster.Name == "")
	if !info.Cluster.quorum() {
		return info.Cluster.silence(), fmt.Errorf("%w: %w", ErrUnavailable, errNoQuorum)
	}
	c.availability.answered()
	return info.Cluster.silence(), nil
}

// measure probes until one trip was short, a few times at most: what a busy
// machine makes of a single one would be this process's error for a while.
func (c *Client) measure(ctx context.Context) error {
	const most, short = 5, time.Millisecond
	for range most {
		if _, err := c.probe(ctx); err != nil && !errors.Is(err, errNoQuorum) { // it gave its time
			return err
		}
		if c.clock.anchor.Load().trip <= short {
			break
		}
	}
	return nil
}

// probeEvery asks until ctx ends.
func (c *Client) probeEvery(ctx context.Context, every time.Duration) error {
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
		silent, err := c.probe(within)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			c.availability.Failed()
			c.log.DebugContext(ctx, "jetstream did not answer", "err", err)
		}
		c.attend(ctx, node, silent, err)
	}
}

// The server's clock may be set while jobs run. Deadlines are server time, so a
// step of an hour would end every run at once, or let each go on for an hour
// more. A process sees a step because the server's time no longer goes on from
// what it measured, and counts deadlines that were reckoned before it by its own
// clock, which is not set. A ttl is the server's affair: it moves with the step.

const (
	// minStep is what the server's clock has to move at once by to count as set.
	// Less is drift, or the difference between two servers.
	minStep = time.Second
	// stepLag is how much later than this process another may notice a step, and
	// still write times of before.
	stepLag = 4 * time.Second
	// maxSteps bounds the steps that are remembered, the last ones.
	maxSteps = 64
)

// step is a change of the server's clock.
type step struct {
	at time.Time     // what it showed after it
	by time.Duration // how far it was set, forward if positive
}

// before reports whether the server's clock showed t before the step, given that
// it shows now, or did until a later step. A clock that was set back shows a time
// twice: what it has shown again counts as after the step, so that a deadline
// comes late by the step at most, and never early.
func (s step) before(t, now time.Time) bool {
	if s.by < 0 {
		return t.After(now.Add(stepLag)) || t.Before(s.at.Add(-stepLag))
	}
	return t.Before(s.at.Add(-s.by).Add(min(stepLag, s.by/2)))
}

// stepped is how far the server's clock, which shows now, was set since it
// showed t.
func stepped(steps []step, t, now time.Time) (by time.Duration) {
	for _, s := range slices.Backward(steps) {
		if !s.before(t, now) {
			break
		}
		by += s.by
		now = s.at.Add(-s.by)
	}
	return by
}

// StepSince is how far the server's clock was set since it showed t, as far as
// this process has seen it. A nil clock has seen nothing.
func (c *Clock) StepSince(t time.Time) time.Duration {
	if c == nil {
		return 0
	}
	a := c.anchor.Load()
	if a == nil || len(a.steps) == 0 {
		return 0
	}
	return stepped(a.steps, t, c.Now())
}
