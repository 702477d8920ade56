package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Stats is what an endpoint's queue holds now.
type Stats struct {
	// Queued counts all waiting jobs, QueuedLow the low-priority ones of them.
	Queued, QueuedLow int
	// Running counts the jobs that were handed out to a worker, RunningLow the
	// low-priority ones of them: those that run, and those that wait to be handed
	// out again after a worker was lost or gave them back.
	Running, RunningLow int
}

// statsAge is how old an answer of Stats may be: counting costs the server
// something, and is asked for often.
const statsAge = time.Second

type statsCache struct {
	mu sync.Mutex
	of map[string]*counted
}

type counted struct {
	mu    sync.Mutex
	asked time.Time
	stats Stats
	// byStatus is what CountByStatus made of the stats that were asked for then.
	byStatus Stats
	of       time.Time
}

func (c *statsCache) entry(endpoint string) *counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]*counted)
	}
	if c.of[endpoint] == nil {
		c.of[endpoint] = &counted{}
	}
	return c.of[endpoint]
}

// Stats counts the endpoint's jobs, at most a second ago. It returns
// ErrUnavailable.
func (q *Queue) Stats(ctx context.Context, e endpoint.Endpoint) (Stats, error) {
	return q.statsSince(ctx, e, time.Now().Add(-statsAge))
}

// StatsNow is Stats without an answer from before. It costs three requests. The
// server may count a job a moment after it was accepted.
func (q *Queue) StatsNow(ctx context.Context, e endpoint.Endpoint) (Stats, error) {
	return q.statsSince(ctx, e, time.Now())
}

func (q *Queue) statsSince(ctx context.Context, e endpoint.Endpoint, since time.Time) (Stats, error) {
	c := q.stats.entry(e.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.After(since) {
		return c.stats, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	asked := time.Now()
	s, err := q.count(ctx, e.ID)
	if err != nil {
		return Stats{}, err
	}
	c.stats, c.asked = s, asked
	return s, nil
}

func (q *Queue) count(ctx context.Context, endpoint string) (Stats, error) {
	normal, low, err := q.bothClasses(ctx, endpoint)
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		Queued: normal.Pending + low.Pending, QueuedLow: low.Pending,
		Running: normal.Out + low.Out, RunningLow: low.Out,
	}, nil
}

// bothClasses counts the jobs of both classes. The server's count of those that
// wait stays too low once a consumer was looked at while a message was being
// removed (checkNumPending of nats-server 2.15.2): a job that waits alone would
// count as none, and start no worker. What the stream has beyond both counts is
// taken for normal jobs.
func (q *Queue) bothClasses(ctx context.Context, endpoint string) (normal, low consumerInfo, err error) {
	if normal, err = q.consumerInfo(ctx, endpoint, job.Normal); err != nil {
		return normal, low, err
	}
	if low, err = q.consumerInfo(ctx, endpoint, job.LowPriority); err != nil {
		return normal, low, err
	}
	// Asked last: what ends meanwhile is not taken for a job that waits.
	all, err := q.streamState(ctx, streams.Jobs(endpoint))
	if errors.Is(err, errNoMessage) {
		err = nil // deleted meanwhile
	}
	normal.Pending += max(0, int(all.Messages)-normal.Pending-normal.Out-low.Pending-low.Out)
	return normal, low, err
}
