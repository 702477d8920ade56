package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// Counts counts the jobs of an endpoint: those that wait and run, and those before one.
type Counts struct {
	q     *Queue
	cache statsCache
}

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
// something, and is asked for often. An open page of the console that is loaded after an
// event, and once more 0.7 s later, shows what happened within a second.
const statsAge = 250 * time.Millisecond

// statsKept is how long an answer is kept that is not asked for: its endpoint may be deleted.
const statsKept = time.Minute

type statsCache struct {
	mu    sync.Mutex
	of    map[string]*counted
	swept time.Time
}

type counted struct {
	used time.Time // when it was last asked for; under the lock of the cache

	mu    sync.Mutex
	asked time.Time
	stats Stats
	// byStatus is what Counts.ByStatus made of stats, nil before it has.
	byStatus *ByStatus
}

func (c *statsCache) entry(endpoint string, now time.Time) *counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) > statsKept {
		maps.DeleteFunc(c.of, func(_ string, e *counted) bool { return now.Sub(e.used) > statsKept })
		c.swept = now
	}
	e := c.of[endpoint]
	if e == nil {
		e = &counted{}
		c.of[endpoint] = e
	}
	e.used = now
	return e
}

// Stats counts the endpoint's jobs, at most 0.25 s ago. It returns
// bus.ErrUnavailable.
func (ct *Counts) Stats(ctx context.Context, e endpoint.Endpoint) (Stats, error) {
	return ct.since(ctx, e, time.Now().Add(-statsAge))
}

// StatsNow is Stats without an answer from before. It costs three requests. The
// server may count a job a moment after it was accepted.
func (ct *Counts) StatsNow(ctx context.Context, e endpoint.Endpoint) (Stats, error) {
	return ct.since(ctx, e, time.Now())
}

// IsEmpty reports whether the endpoint has no job that waits or was handed out. It
// costs one request, where Stats takes three.
func (ct *Counts) IsEmpty(ctx context.Context, e endpoint.Endpoint) (bool, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	state, err := ct.q.bus.StreamState(ctx, streams.Jobs(e.ID))
	return err == nil && state.Messages == 0, err
}

// fewQueues is how many queues are asked one by one: their answers are smaller than those of
// a list of all queues.
const fewQueues = 100

// Empty are those of the endpoints that IsEmpty is true of. Of many it costs a request for 256
// of the endpoints that there are.
func (ct *Counts) Empty(ctx context.Context, endpoints []endpoint.Endpoint) (map[string]bool, error) {
	if len(endpoints) <= fewQueues {
		return ct.emptyOf(ctx, endpoints)
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	all, err := ct.q.bus.StreamStates(ctx, streams.AllJobs("*"))
	empty := map[string]bool{}
	for stream, state := range all {
		if id, ok := streams.EndpointOfQueue(stream); ok && state.Messages == 0 {
			empty[id] = true
		}
	}
	return empty, err
}

// emptyOf asks each queue. A missing queue is not empty.
func (ct *Counts) emptyOf(ctx context.Context, endpoints []endpoint.Endpoint) (map[string]bool, error) {
	const concurrent = 16
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrent)
	is := make([]bool, len(endpoints))
	for i, e := range endpoints {
		g.Go(func() (err error) {
			if is[i], err = ct.IsEmpty(ctx, e); errors.Is(err, bus.ErrMissing) {
				return nil
			}
			return err
		})
	}
	err := g.Wait()
	empty := map[string]bool{}
	for i, e := range endpoints {
		empty[e.ID] = is[i]
	}
	return empty, err
}

// since returns the last answer of the server if it was asked for after since, and asks
// again otherwise. Calls for one endpoint at the same time share an answer.
func (ct *Counts) since(ctx context.Context, e endpoint.Endpoint, since time.Time) (Stats, error) {
	c := ct.cache.entry(e.ID, time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.After(since) {
		return c.stats, nil
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	asked := time.Now()
	s, err := ct.q.read.count(ctx, e.ID)
	if err != nil {
		return Stats{}, err
	}
	c.stats, c.asked, c.byStatus = s, asked, nil
	return s, nil
}

// ByStatus counts every job as Status shows it: a job that was handed out and is IN_QUEUE
// counts as Queued, not as Running.
type ByStatus struct {
	Stats
	// Held are the jobs that are IN_PROGRESS, as far as their records were read.
	Held []job.Job
}

// ByStatus is Stats by status. named is how many jobs the living workers of the
// endpoint name in their heartbeats: only while more are handed out are their records
// read, of the last 500 of each class. It returns bus.ErrUnavailable.
func (ct *Counts) ByStatus(ctx context.Context, e endpoint.Endpoint, named int) (ByStatus, error) {
	s, err := ct.Stats(ctx, e)
	if err != nil || s.Running <= named {
		return ByStatus{Stats: s}, err
	}
	c := ct.cache.entry(e.ID, time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byStatus != nil {
		return *c.byStatus, nil
	}
	s = c.stats
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	low, held, err := ct.q.read.countWaiting(ctx, record.LocationOf(e), job.LowPriority, s.RunningLow)
	if err != nil {
		return ByStatus{}, err
	}
	normal, more, err := ct.q.read.countWaiting(ctx, record.LocationOf(e), job.Normal, s.Running-s.RunningLow)
	if err != nil {
		return ByStatus{}, err
	}
	s.Queued, s.QueuedLow = s.Queued+normal+low, s.QueuedLow+low
	s.Running, s.RunningLow = s.Running-normal-low, s.RunningLow-low
	c.byStatus = &ByStatus{s, append(held, more...)}
	return *c.byStatus, nil
}

// OldestWait returns how long the first waiting job of a class has waited, 0 if
// none waits. A job that comes back from a lost worker does not count as
// waiting. It takes two or three requests, whose cost does not grow with the jobs of
// the class, and returns bus.ErrUnavailable.
func (ct *Counts) OldestWait(ctx context.Context, e endpoint.Endpoint, class job.Class) (time.Duration, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	info, err := ct.q.read.consumer(ctx, e.ID, class)
	if err != nil {
		return 0, err
	}
	// The server's count of those that wait may be too low: see reader.consumers.
	// Jobs are handed out in the order of their sequences.
	found, err := ct.q.read.firstOf(ctx, e.ID, class, info)
	if errors.Is(err, bus.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stored, err := bus.StoredAt(found)
	if err != nil {
		return 0, fmt.Errorf("find the oldest job of %s: %w", e.ID, err)
	}
	return max(0, -ct.q.Until(stored)), nil
}

// fewPending is how many messages of a class the server finds faster by their subjects than
// by looking at those before them.
const fewPending = 1000

// firstOf reads the first message of a class that its consumer has not handed out. A search by
// the class makes the server look at all subjects of the class if it begins at the first
// message of the stream, and each job has its own; if it begins later, at all messages of
// another class that come before. So the first message of any class is read before.
func (rd reader) firstOf(ctx context.Context, endpoint string, c job.Class, info consumerInfo) (*nats.Msg, error) {
	stream, filter, from := streams.Jobs(endpoint), streams.ClassFilter(endpoint, c), info.Delivered.Stream+1
	first, err := rd.bus.DirectNext(ctx, stream, ">", from)
	if err != nil {
		return nil, err
	}
	if bus.Covers(filter, bus.SubjectOf(first)) {
		return first, nil
	}
	if info.Pending >= fewPending {
		from = bus.Sequence(first) + 1
	}
	return rd.bus.DirectNext(ctx, stream, filter, from)
}

// consumers counts the jobs of both classes. The server's count of those that
// wait stays too low once a consumer was looked at while a message was being
// removed (checkNumPending of nats-server 2.15.2): a job that waits alone would
// count as none, and start no worker. What the stream has beyond both counts waits
// too, unless it is acknowledged. It is of the normal class if such jobs wait by the
// count, or by the stream: a job that has just come is not counted yet either.
func (rd reader) consumers(ctx context.Context, endpoint string) (normal, low consumerInfo, err error) {
	if normal, err = rd.consumer(ctx, endpoint, job.Normal); err != nil {
		return normal, low, err
	}
	if low, err = rd.consumer(ctx, endpoint, job.LowPriority); err != nil {
		return normal, low, err
	}
	ofNormal, ofLow, err := rd.uncounted(ctx, endpoint, normal, low)
	normal.Pending += ofNormal
	low.Pending += ofLow
	return normal, low, err
}

// uncounted is how many jobs of each class wait that the consumers do not count.
func (rd reader) uncounted(ctx context.Context, endpoint string, normal, low consumerInfo) (ofNormal, ofLow int, err error) {
	// Asked last: what ends meanwhile is not taken for a job that waits.
	all, err := rd.bus.StreamState(ctx, streams.Jobs(endpoint))
	if errors.Is(err, bus.ErrNoMessage) { // deleted meanwhile
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	beyond := int(all.Messages) - normal.Pending - normal.Out - low.Pending - low.Out
	// A single server that stopped between an ack and the removal keeps messages up to the
	// ack floor, and hands them out no more (docs/design/jetstream.md#f14); each goes
	// before its record.
	for _, acked := range [...]struct {
		class job.Class
		floor uint64
	}{{job.Normal, normal.AckFloor.Stream}, {job.LowPriority, low.AckFloor.Stream}} {
		if beyond <= 0 {
			return 0, 0, nil
		}
		left, err := rd.stored(ctx, endpoint, acked.class, all.FirstSeq, acked.floor, beyond)
		if err != nil {
			return 0, 0, err
		}
		beyond -= left
	}
	if beyond <= 0 || normal.Pending > 0 {
		return max(0, beyond), 0, nil
	}
	waiting, err := rd.stored(ctx, endpoint, job.Normal, normal.Delivered.Stream+1, all.LastSeq, beyond)
	return waiting, beyond - waiting, err
}

// stored counts, up to most, the messages of a class from first to last.
func (rd reader) stored(ctx context.Context, endpoint string, c job.Class, first, last uint64, most int) (int, error) {
	found, _, err := rd.bus.Backwards(ctx, bus.Back{
		Stream: streams.Jobs(endpoint), Filter: streams.ClassFilter(endpoint, c), First: first, Before: last + 1, Most: most,
	})
	return len(found), err
}

func (rd reader) count(ctx context.Context, endpoint string) (Stats, error) {
	normal, low, err := rd.consumers(ctx, endpoint)
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		Queued: normal.Pending + low.Pending, QueuedLow: low.Pending,
		Running: normal.Out + low.Out, RunningLow: low.Out,
	}, nil
}

// countWaiting returns how many jobs of a class are IN_QUEUE of those that were
// handed out, which are out, and the jobs of them that are IN_PROGRESS.
func (rd reader) countWaiting(ctx context.Context, at record.Location, class job.Class, out int) (waiting int, held []job.Job, err error) {
	if out == 0 {
		return 0, nil, nil
	}
	got, err := rd.handedOut(ctx, at, class)
	if err != nil {
		return 0, nil, err
	}
	found, err := rd.live(ctx, at, got)
	if err != nil {
		return 0, nil, err
	}
	now := rd.bus.Now()
	for _, r := range found {
		switch {
		case r == nil || !r.Visible(now):
		case r.Status == job.InQueue:
			waiting++
		case r.Status == job.InProgress:
			held = append(held, r.Job)
		}
	}
	return min(waiting, out), held, nil
}
