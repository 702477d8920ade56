package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
)

// explain answers why a job waits, runs or ended. explain_start.go has what it says of workers
// that start. The sentence about scaling is the autoscaler's, the Text of its last decision.
func (s *Service) explain(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	x, err := s.explanation(ctx, e, id)
	if err != nil {
		return err
	}
	return c.JSON(explainViewOf(x)) //nolint:contextcheck // it waits for nothing
}

func (s *Service) explanation(ctx context.Context, e endpoint.Endpoint, id job.ID) (explanation, error) {
	x := explanation{endpoint: e}
	var err error
	if x.position, err = s.queue.Counts.Position(ctx, e, id); err != nil {
		return x, err
	}
	workers, err := s.registry.Workers.List(ctx, e.ID)
	if err != nil {
		return x, err
	}
	counts, err := s.queue.Counts.ByStatus(ctx, e, registry.CountWorkers(workers).Jobs)
	if err != nil {
		return x, err
	}
	x.counts = counts.Stats
	if x.decision, x.alive, err = s.decided(ctx, e); err != nil {
		return x, err
	}
	known, err := s.registry.Pods.Known(ctx)
	if err != nil {
		return x, err
	}
	pods := known.Of[e.ID]
	x.holder, x.now = s.registry.Workers.Holder(&x.position.Job), s.queue.Now()
	x.workers, x.failure = registry.CountWorkers(workers).States, lastFailure(pods, e, x.now)
	x.starts, x.usualWake, x.pod = startsOf(pods, e.ID), pod.UsualWake(pods, e.ID), known.Find(e.ID, x.position.Job.Worker)
	token, err := s.registry.Tokens.Find(ctx, e.ID, x.position.Job.Worker)
	if err != nil && !errors.Is(err, registry.ErrNotFound) { // native workers have none
		return x, err
	}
	x.left = token.Disconnected
	return x, nil
}

// decided is the last decision about this endpoint, not about an earlier one of
// the same id; nil without one. alive reports whether an autoscaler is active.
func (s *Service) decided(ctx context.Context, e endpoint.Endpoint) (d *registry.Decision, alive bool, err error) {
	if alive, err = s.registry.Scaling.Alive(ctx); err != nil {
		return nil, false, err
	}
	last, err := s.registry.Scaling.Last(ctx, e.ID)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return nil, alive, nil
	case err != nil:
		return nil, alive, err
	case last.At.Before(e.Created):
		return nil, alive, nil
	}
	return &last, alive, nil
}

// lastFailure is the end of the worker of this endpoint that failed last, not of
// an earlier one of the same id; nil without one. Those that were removed,
// stopped, or drained have not failed.
func lastFailure(pods []pod.Pod, e endpoint.Endpoint, now time.Time) *api.WorkerFailure {
	var last pod.Pod
	for _, p := range pods {
		if failedFor(p, e) && p.Changed.After(last.Changed) {
			last = p
		}
	}
	if last.ID == "" {
		return nil
	}
	return &api.WorkerFailure{WorkerID: last.ID, At: api.FormatTime(last.Changed), Text: last.Change, Count: countFailures(pods, e, now)}
}

// explanation is all that is known about why a job stands where it does.
type explanation struct {
	position queue.Position
	endpoint endpoint.Endpoint
	// counts are the endpoint's jobs, at most a second ago.
	counts queue.Stats
	// workers are the living ones by state.
	workers map[string]int
	// decision is nil if nothing was decided about this endpoint.
	decision *registry.Decision
	// alive: an autoscaler is active.
	alive bool
	// holder is the worker that the job's record names, pod that worker's, the zero Pod if it
	// is not on record.
	holder registry.Holder
	pod    pod.Pod
	// left is when that worker left a poll; the zero time if it has polled since.
	left time.Time
	// failure is nil if no worker ended in the last day.
	failure *api.WorkerFailure
	// starts are of the endpoint's workers.
	starts []workerStart
	// usualWake is how long a worker usually takes to wake, 0 if that is unknown.
	usualWake time.Duration
	now       time.Time
}

// reasonOf says in one sentence why the job is where it is.
func reasonOf(x explanation) string {
	j := x.position.Job
	switch j.Status {
	case job.InQueue:
		return "waiting: " + x.waitingText()
	case job.InProgress:
		times := fmt.Sprintf("it times out in %s", lasting(max(0, j.Deadline.Sub(x.now))))
		if lost := x.lostText(); lost != "" {
			return fmt.Sprintf("waiting for a worker to take it over: %s; another gets it when the lease of %s is over; %s", lost, lasting(x.endpoint.Lease), times) + x.noOtherText()
		}
		return fmt.Sprintf("running on worker %s for %s; %s", j.Worker, lasting(j.Execution(x.now)), times) + x.unpolledText()
	case job.Completed:
		return fmt.Sprintf("completed by worker %s in %s", j.Worker, lasting(j.Execution(x.now)))
	case job.TimedOut:
		return "timed out: it ran for longer than its execution timeout of " + lasting(j.ExecutionTimeout)
	case job.Cancelled:
		return "cancelled"
	case job.Failed:
		if j.Error == "" {
			return "failed on worker " + j.Worker
		}
		return "failed: " + j.Error
	}
	return string(j.Status)
}

// lostText says why the worker that runs the job has lost it, "" if it has not.
func (x explanation) lostText() string {
	if x.pod.ID != "" && x.pod.Status != pod.Running && x.holder.Silent() {
		return fmt.Sprintf("worker %s ended at %s: %s", x.pod.ID, api.FormatTime(x.pod.Changed), x.pod.Change)
	}
	return x.holder.Lost(&x.position.Job, x.now)
}

// leftTimeout is how long a worker that left a poll may take to begin another one.
const leftTimeout = 5 * time.Second

// unpolledText says that the worker left a poll and began none since, if that is so.
func (x explanation) unpolledText() string {
	if x.left.IsZero() || x.now.Sub(x.left) < leftTimeout {
		return ""
	}
	return "; the worker left its poll at " + api.FormatTime(x.left) + " and has begun none since"
}

// noOtherText says why no worker takes a job over, "" while there are some.
func (x explanation) noOtherText() string {
	if x.workers[registry.WorkerIdle]+x.workers[registry.WorkerRunning] > 0 {
		return ""
	}
	return "; " + x.noWorkerText()
}

// offeredText says what became of a job that was handed out.
func (x explanation) offeredText() string {
	text := "a worker was given it and has not picked it up"
	if x.position.Job.Run > 0 {
		text = "a worker gave it back"
	}
	return fmt.Sprintf("%s; it is handed out again within %s", text, lasting(x.endpoint.Lease)) + x.noOtherText()
}

// waitingText names what has to happen first.
func (x explanation) waitingText() string {
	idle, busy := x.workers[registry.WorkerIdle], x.workers[registry.WorkerRunning]
	switch {
	case x.endpoint.Paused(x.now):
		return pausedText(x.endpoint)
	case x.position.Offered:
		return x.offeredText()
	case idle+busy == 0:
		return x.aheadText() + x.noWorkerText()
	case idle > 0:
		return x.aheadText() + fmt.Sprintf("%s of %d idle", workers(idle), idle+busy)
	case busy >= x.endpoint.WorkersMax && !x.endpoint.NoWorkers:
		return x.aheadText() + fmt.Sprintf("%d of %d workers busy", busy, x.endpoint.WorkersMax)
	}
	if begins := x.startingText(); begins != "" {
		return x.aheadText() + workers(busy) + " busy, " + begins + x.scalingText()
	}
	return x.aheadText() + workers(busy) + " busy" + x.scalingText()
}

// pausedText says until when a paused endpoint is, and why if it paused itself.
func pausedText(e endpoint.Endpoint) string {
	text := "the endpoint is paused until " + api.FormatTime(e.PausedUntil)
	if e.PauseReason != "" {
		text += ": " + e.PauseReason
	}
	return text
}

// aheadText says how many jobs are handed out first, and ends in a comma.
func (x explanation) aheadText() string {
	p := x.position
	switch {
	case p.Least != p.Most:
		return fmt.Sprintf("%d to %d jobs ahead, ", p.Least, p.Most)
	case p.Most == 0:
		return "it is next, "
	case p.Most == 1:
		return "1 job ahead, "
	}
	return strconv.Itoa(p.Most) + " jobs ahead, "
}

// noWorkerText says why no worker takes jobs.
func (x explanation) noWorkerText() string {
	begins, asleep, throttled, sick := x.startingText(), x.asleepText(), x.workers[registry.WorkerThrottled], x.workers[registry.WorkerUnhealthy]
	switch {
	case begins != "":
		return begins + x.failureText()
	case asleep != "":
		return asleep + x.scalingText()
	case sick > 0:
		return workers(sick) + " unhealthy and none other" + x.scalingText()
	case throttled > 0:
		return workers(throttled) + " throttled and none other" + x.scalingText()
	}
	return "no worker is there" + x.failureText() + x.scalingText()
}

// scalingText is who starts workers, and what the autoscaler has to say.
func (x explanation) scalingText() string {
	switch {
	case x.endpoint.Fleet.External():
		return fmt.Sprintf("; the driver is external, so Flightline starts none: 'flightline worker %[1]s -- COMMAND' or 'flightline worker env %[1]s'", x.endpoint.ID)
	case x.endpoint.NoWorkers:
		return "; none is started, as workersMax is 0"
	case x.alive && x.position.Job.Class == job.LowPriority:
		return "; no worker is started for jobs of low priority: it runs when one is free"
	case x.alive && x.decision != nil && x.decision.Text != "":
		return "; the autoscaler: " + x.decision.Text
	case x.alive:
		return "; the autoscaler has not decided yet"
	}
	return "; no autoscaler runs"
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return strconv.Itoa(n) + " workers"
}

func explainViewOf(x explanation) api.Explanation {
	j := x.position.Job
	v := api.Explanation{
		ID: j.ID, Status: j.Status, Reason: reasonOf(x), Workers: workersOf(x.workers), Autoscaler: x.alive,
		LastWorkerError: x.failure, Retries: j.Retries(), LowPriority: j.Class == job.LowPriority,
		SubmittedAt: api.FormatTime(j.Submitted), FinishedAt: api.FormatTime(j.Finished), ExpiresAt: api.FormatTime(j.GoneAt()),
		Endpoint: api.ExplainedEndpoint{
			WorkersMin: x.endpoint.WorkersMin, WorkersMax: x.endpoint.WorkersMax, ScalerType: x.endpoint.ScalerType,
			ScalerValue: x.endpoint.ScalerValue, LeaseMs: x.endpoint.Lease.Milliseconds(),
		},
	}
	if sc := telemetry.Of(&j); sc.IsSampled() {
		v.TraceID = sc.TraceID().String()
	}
	if x.endpoint.Paused(x.now) {
		v.Endpoint.PausedUntil, v.Endpoint.PauseReason = api.FormatTime(x.endpoint.PausedUntil), x.endpoint.PauseReason
	}
	if c := x.endpoint.Canary; c.Lasts() || c.State == endpoint.CanaryRolledBack {
		v.Endpoint.Canary = api.CanaryOf(c)
	}
	if x.decision != nil {
		v.Scaling = decisionOf(*x.decision)
	}
	if j.Status == job.InQueue {
		v.Queue, v.Starting = placeOf(x), startingOf(x.starts)
		return v // what an earlier run left behind is no news
	}
	v.WorkerID, v.Version, v.StartedAt, v.ColdStart = j.Worker, x.pod.EndpointVersion, api.FormatTime(j.Started), coldStart(&j, x.pod)
	if j.Status == job.InProgress {
		v.DeadlineAt = api.FormatTime(j.Deadline)
	} else {
		v.Error = j.Error
	}
	return v
}

func placeOf(x explanation) *api.QueuePlace {
	p := x.position
	return &api.QueuePlace{
		Position: p.Least + 1, PositionMost: p.Most + 1, JobsAhead: p.Least, JobsAheadMost: p.Most, Exact: p.Least == p.Most,
		InQueue: x.counts.Queued, InQueueLowPriority: x.counts.QueuedLow, Offered: p.Offered,
	}
}

func decisionOf(d registry.Decision) *api.LastDecision {
	return &api.LastDecision{At: api.FormatTime(d.At), Wanted: d.Wanted, Current: d.Current, Reason: d.Reason, Text: d.Text, Hold: d.Hold}
}

// lasting is a length of time for people.
func lasting(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
