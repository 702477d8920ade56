package queue

import (
	"context"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// maxHandedOut bounds the jobs of a class that ListHandedOut reads.
const maxHandedOut = 500

// ListHandedOut returns the jobs of a class that were handed out to a worker at
// least once and are not acknowledged: the 500 that were queued last. Some may
// have been decided a moment ago. A queue message that cannot be read is left
// out. It costs about a request for each job. Any replica may answer, so the
// last writes may be missing. It returns ErrUnavailable.
func (q *Queue) ListHandedOut(ctx context.Context, e endpoint.Endpoint, class job.Class) ([]job.ID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	got, err := q.handedOut(ctx, placeOf(e), class)
	ids := make([]job.ID, len(got))
	for i, m := range got {
		ids[i] = streams.JobOf(m.Header.Get("Nats-Subject"))
	}
	return ids, err
}

// handedOut reads the queue messages of ListHandedOut, without their data.
func (q *Queue) handedOut(ctx context.Context, at place, class job.Class) ([]*nats.Msg, error) {
	info, err := q.consumerInfo(ctx, at.endpoint, class)
	if err != nil || info.Out == 0 {
		return nil, err
	}
	got, _, err := q.backwards(ctx, bus.Back{
		Stream: streams.DirectGet(streams.Jobs(at.endpoint)), Filter: streams.ClassFilter(at.endpoint, class),
		First: info.AckFloor.Stream + 1, Before: info.Delivered.Stream + 1, Most: min(info.Out, maxHandedOut),
	})
	readable := make([]*nats.Msg, 0, len(got))
	for _, m := range got {
		if _, err := q.waiting(at, m); err == nil { // else claim logs it at each delivery
			readable = append(readable, m)
		}
	}
	return readable, err
}

// CountByStatus is Stats with every job counted as Status shows it: a job that
// was handed out and is IN_QUEUE counts as Queued, not as Running. named is how
// many jobs the living workers of the endpoint name in their heartbeats: only
// while more are handed out are their records read, of the last 500 of each
// class. It returns ErrUnavailable.
func (q *Queue) CountByStatus(ctx context.Context, e endpoint.Endpoint, named int) (Stats, error) {
	s, err := q.Stats(ctx, e)
	if err != nil || s.Running <= named {
		return s, err
	}
	c := q.stats.entry(e.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of.Equal(c.asked) {
		return c.byStatus, nil
	}
	s = c.stats
	ctx, cancel := bounded(ctx)
	defer cancel()
	low, err := q.countWaiting(ctx, placeOf(e), job.LowPriority, s.RunningLow)
	if err != nil {
		return Stats{}, err
	}
	normal, err := q.countWaiting(ctx, placeOf(e), job.Normal, s.Running-s.RunningLow)
	if err != nil {
		return Stats{}, err
	}
	s.Queued, s.QueuedLow = s.Queued+normal+low, s.QueuedLow+low
	s.Running, s.RunningLow = s.Running-normal-low, s.RunningLow-low
	c.byStatus, c.of = s, c.asked
	return s, nil
}

// countWaiting returns how many jobs of a class are IN_QUEUE of those that were
// handed out, which are out.
func (q *Queue) countWaiting(ctx context.Context, at place, class job.Class, out int) (int, error) {
	if out == 0 {
		return 0, nil
	}
	got, err := q.handedOut(ctx, at, class)
	if err != nil {
		return 0, err
	}
	found, err := q.live(ctx, at, got)
	if err != nil {
		return 0, err
	}
	now, waiting := q.Now(), 0
	for _, r := range found {
		if r != nil && r.Visible(now) && r.Status == job.InQueue {
			waiting++
		}
	}
	return min(waiting, out), nil
}
