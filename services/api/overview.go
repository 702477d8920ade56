package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/stats"
	"flightline/shared/web"
)

const (
	// defaultOverview and maxOverview bound the endpoints of one answer.
	defaultOverview, maxOverview = 100, 1000
	// maxConcurrentLooks bounds the endpoints that one answer looks at side by side.
	maxConcurrentLooks = 16
	// overviewMinutes is how many minutes LastHour has.
	overviewMinutes = 60
)

// overview answers how the endpoints stand that the key may read, in one request.
func (s *Service) overview(ctx context.Context, c *fiber.Ctx) error {
	limit, err := limitOf(c, defaultOverview, maxOverview)
	if err != nil {
		return err
	}
	endpoints, err := s.readable(ctx, c)
	if err != nil {
		return err
	}
	needy, err := web.QueryBool(c, "attention")
	if err != nil {
		return err
	}
	after := strings.Clone(c.Query("cursor"))
	if c.Context().QueryArgs().Has("cursor") && !endpoint.ValidID(after) {
		return web.Errorf(web.InvalidRequest, "cursor is invalid; take it from the answer before")
	}
	endpoints = slices.DeleteFunc(endpoints, func(e endpoint.Endpoint) bool { return e.ID <= after })
	v, err := s.page(ctx, endpoints, limit, needy)
	if err != nil {
		return err
	}
	return c.JSON(v)
}

// page is the overview of the first endpoints, or of the first that need attention: all
// others are looked at for those, too.
func (s *Service) page(ctx context.Context, endpoints []endpoint.Endpoint, limit int, needy bool) (api.Overview, error) {
	v := api.Overview{Endpoints: []api.EndpointOverview{}}
	if !needy && len(endpoints) > limit {
		endpoints, v.Cursor = endpoints[:limit], endpoints[limit-1].ID
	}
	empty, err := s.queue.Counts.Empty(ctx, endpoints)
	if err != nil {
		return v, err
	}
	for some := range slices.Chunk(endpoints, maxOverview) {
		all, err := s.overviews(ctx, some, empty)
		if err != nil {
			return v, err
		}
		if needy {
			all = slices.DeleteFunc(all, func(e api.EndpointOverview) bool { return len(e.Attention) == 0 })
		}
		if v.Endpoints = append(v.Endpoints, all...); len(v.Endpoints) > limit {
			v.Endpoints, v.Cursor = v.Endpoints[:limit], v.Endpoints[limit-1].ID
			break
		}
	}
	v.At = api.FormatTime(s.queue.Now())
	return v, nil
}

// overviews looks at endpoints: what all of them have together first, then at the queue of
// each that is not empty.
func (s *Service) overviews(ctx context.Context, endpoints []endpoint.Endpoint, empty map[string]bool) ([]api.EndpointOverview, error) {
	now := s.queue.Now()
	first := now.Truncate(time.Minute).Add(-(overviewMinutes - 1) * time.Minute)
	points, err := s.events.PointsOf(ctx, endpointIDs(endpoints), first, now, time.Minute)
	if err != nil {
		return nil, err
	}
	totals, err := s.events.TotalsOf(ctx, endpointIDs(endpoints))
	if err != nil {
		return nil, err
	}
	workers, paused, err := s.allWorkers(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]api.EndpointOverview, len(endpoints))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentLooks)
	for i, e := range endpoints {
		g.Go(func() error {
			l := look{endpoint: e, now: now, empty: empty[e.ID], workers: registry.CountWorkers(workers[e.ID]), totals: totals[e.ID], pausedReceivers: paused[e.ID]}
			for _, p := range points[e.ID] {
				if !p.At.Before(e.Created.Truncate(time.Minute)) {
					l.points = append(l.points, p)
				}
			}
			err := s.lookAt(ctx, &l)
			l.noQueue = errors.Is(err, bus.ErrMissing) // its queue is being made, or is damaged: the others are shown
			all[i] = l.view(first)
			if l.noQueue {
				return nil
			}
			return err
		})
	}
	return all, g.Wait()
}

// allWorkers are the living workers by endpoint, and how many receivers of webhooks are
// paused.
func (s *Service) allWorkers(ctx context.Context) (workers map[string][]registry.Worker, paused map[string]int, err error) {
	living, err := s.registry.Workers.List(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	workers, paused = map[string][]registry.Worker{}, map[string]int{}
	for _, w := range living {
		workers[w.Endpoint] = append(workers[w.Endpoint], w)
	}
	destinations, err := s.registry.Destinations.List(ctx, "")
	for _, d := range destinations {
		if d.Paused {
			paused[d.Endpoint]++
		}
	}
	return workers, paused, err
}

// look is what is known of one endpoint for its overview.
type look struct {
	endpoint        endpoint.Endpoint
	now             time.Time
	workers         registry.WorkerCounts
	totals          events.Totals
	pausedReceivers int
	points          []events.PointAt
	jobs            api.JobCounts
	empty           bool // no job waits or runs
	noQueue         bool // its queue cannot be read: jobs is zero
	// oldest is how long the first waiting job has waited, decision the autoscaler's
	// last one; both are looked for while jobs wait.
	oldest   time.Duration
	decision *registry.Decision
}

// lookAt asks for what the endpoint's own queue knows, unless it is empty, as most are of many
// endpoints.
func (s *Service) lookAt(ctx context.Context, l *look) (err error) {
	var counts queue.ByStatus
	if !l.empty {
		if counts, err = s.queue.Counts.ByStatus(ctx, l.endpoint, l.workers.Jobs); err != nil {
			return err
		}
	}
	health := healthOf(counts.Stats, l.totals, l.workers.States)
	l.jobs = health.Jobs
	l.jobs.WorkerLost = s.registry.Workers.CountLost(counts.Held, l.now)
	if l.jobs.InQueue == 0 {
		return nil
	}
	if l.oldest, err = s.queue.Counts.OldestWait(ctx, l.endpoint, job.Normal); err != nil {
		return err
	}
	l.decision, _, err = s.decided(ctx, l.endpoint)
	return err
}

// view is the overview of the hour whose first minute is first.
func (l *look) view(first time.Time) api.EndpointOverview {
	return api.EndpointOverview{
		ID: l.endpoint.ID, Name: l.endpoint.Name, Paused: l.endpoint.Paused(l.now), Jobs: l.jobs, Workers: workersOf(l.workers.States),
		LastHour: lastHourOf(l.points, first), Attention: l.attention(),
	}
}

func lastHourOf(points []events.PointAt, first time.Time) api.LastHour {
	h := api.LastHour{
		Completed: make([]int64, overviewMinutes), Failed: make([]int64, overviewMinutes), DelayP50Ms: make([]int64, overviewMinutes),
		DelayP95Ms: make([]int64, overviewMinutes), ExecutionP50Ms: make([]int64, overviewMinutes), ExecutionP95Ms: make([]int64, overviewMinutes),
	}
	for _, p := range points {
		i := int(p.At.Sub(first) / time.Minute)
		if i < 0 || i >= overviewMinutes {
			continue
		}
		h.Completed[i], h.Failed[i] = p.Completed, p.Failed+p.TimedOut
		h.DelayP50Ms[i], h.DelayP95Ms[i] = p.Delay.Quantile(0.5).Milliseconds(), p.Delay.Quantile(0.95).Milliseconds()
		h.ExecutionP50Ms[i], h.ExecutionP95Ms[i] = p.Execution.Quantile(0.5).Milliseconds(), p.Execution.Quantile(0.95).Milliseconds()
	}
	return h
}

const (
	// longWait is how long a job waits before a person is asked to look.
	longWait = 5 * time.Minute
	// minFailures and failureShare are how many of the last hour's attempts have to fail,
	// and which share of them.
	minFailures, failureShare = 5, 0.1
)

// attention says what needs a person, the most urgent first.
func (l *look) attention() []api.Attention {
	list := []api.Attention{}
	add := func(when bool, code, format string, args ...any) {
		if when {
			list = append(list, api.Attention{Code: code, Text: fmt.Sprintf(format, args...)})
		}
	}
	alive := l.workers.States[registry.WorkerIdle] + l.workers.States[registry.WorkerRunning] + l.workers.States[registry.WorkerInitializing] + l.workers.States[registry.WorkerSleeping]
	paused := l.endpoint.Paused(l.now)
	backoff := l.decision != nil && l.decision.Reason == registry.ScalingBackoff
	add(l.noQueue, api.NeedsQueue, "its queue is missing or cannot be read: see the doctor")
	add(l.jobs.WorkerLost > 0, api.NeedsWorkerLost, "jobs in progress that have lost their worker: %d", l.jobs.WorkerLost)
	if l.decision != nil && !paused {
		add(backoff, api.NeedsBackoff, "workers end soon after their start: %s", l.decision.Text)
		add(slices.Contains([]string{registry.ScalingNoMachine, registry.ScalingInvalid, registry.ScalingUnknown}, l.decision.Reason),
			api.NeedsScaling, "the autoscaler: %s", l.decision.Text)
		add(l.decision.Reason == registry.ScalingNoGPU, api.NeedsGPU, "jobs that wait: %d; %s", l.jobs.InQueue, l.decision.Text)
	}
	add(alive == 0 && l.jobs.InQueue > 0 && !paused && !backoff, api.NeedsNoWorker, "no worker lives; jobs that wait: %d", l.jobs.InQueue)
	var hour stats.Point
	for _, p := range l.points {
		hour.Merge(p.Point)
	}
	failed, over := hour.Failed+hour.TimedOut, hour.Failed+hour.TimedOut+hour.Completed
	add(failed >= minFailures && float64(failed) >= failureShare*float64(over), api.NeedsFailures, "%d of %d attempts failed in the last hour", failed, over)
	add(l.oldest >= longWait && !paused, api.NeedsOldestWait, "the first job has waited for %s", lasting(l.oldest))
	add(l.pausedReceivers > 0, api.NeedsWebhooksPaused, "paused receivers of webhooks: %d", l.pausedReceivers)
	add(paused, api.NeedsPaused, "%s; jobs that wait: %d", pausedText(l.endpoint), l.jobs.InQueue)
	return list
}

// findJob answers which endpoint a job is of, among those that the key may read.
func (s *Service) findJob(ctx context.Context, c *fiber.Ctx) error {
	endpoints, err := s.readable(ctx, c)
	if err != nil {
		return err
	}
	j, err := s.queue.Lists.Find(ctx, endpoints, job.ID(strings.Clone(c.Params("id"))))
	if err != nil {
		return err
	}
	return c.JSON(api.FoundJob{Endpoint: j.Endpoint, ID: j.ID, Status: j.Status})
}
