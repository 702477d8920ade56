package api

import (
	"fmt"
	"strconv"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
)

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
	// holder is the worker that the job's record names.
	holder holder
	// failure is nil if no worker ended in the last day.
	failure *workerFailure
	now     time.Time
}

// reasonOf says in one sentence why the job is where it is.
func reasonOf(x explanation) string {
	j := x.position.Job
	switch j.Status {
	case job.InQueue:
		return "waiting: " + x.waitsFor()
	case job.InProgress:
		times := fmt.Sprintf("it times out in %s", lasting(max(0, j.Deadline.Sub(x.now))))
		if lost := x.lost(); lost != "" {
			return "waiting for a worker to take it over: " + lost + "; " + times + x.unmanned()
		}
		return fmt.Sprintf("running on worker %s for %s; %s", j.Worker, lasting(j.Execution(x.now)), times)
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

// unnamedTimeout is how long a worker that lives may run a job that no heartbeat
// of it names: one that speaks HTTP pings every 10 s.
const unnamedTimeout = 12 * time.Second

// lost says why the worker that runs the job has lost it, "" if it has not.
func (x explanation) lost() string {
	h, j := x.holder, x.position.Job
	switch {
	case h.names:
		return ""
	case h.seen.IsZero() && !h.ended.IsZero():
		return fmt.Sprintf("worker %s ended at %s: %s", j.Worker, web.Stamp(h.ended), h.why)
	case j.Execution(x.now) < unnamedTimeout:
		return "" // it may not have spoken since
	case h.seen.IsZero():
		return fmt.Sprintf("worker %s was not heard of for 15s", j.Worker)
	case h.seen.Sub(j.Started) < unnamedTimeout:
		return ""
	}
	return fmt.Sprintf("worker %s lives and does not name it, last at %s", j.Worker, web.Stamp(h.seen))
}

// unmanned says why no worker takes a job over, "" while there are some.
func (x explanation) unmanned() string {
	if x.workers[registry.WorkerIdle]+x.workers[registry.WorkerRunning] > 0 {
		return ""
	}
	return "; " + x.nobody()
}

// offered says what became of a job that was handed out.
func (x explanation) offered() string {
	text := "a worker was given it and has not picked it up"
	if x.position.Job.Run > 0 {
		text = "a worker gave it back"
	}
	return fmt.Sprintf("%s; it is handed out again within %s", text, lasting(x.endpoint.Lease)) + x.unmanned()
}

// waitsFor names what has to happen first.
func (x explanation) waitsFor() string {
	idle, busy := x.workers[registry.WorkerIdle], x.workers[registry.WorkerRunning]
	switch {
	case x.endpoint.Paused(x.now):
		return "the endpoint is paused until " + web.Stamp(x.endpoint.PausedUntil)
	case x.position.Offered:
		return x.offered()
	case idle+busy == 0:
		return x.ahead() + x.nobody()
	case idle > 0:
		return x.ahead() + fmt.Sprintf("%s of %d idle", workers(idle), idle+busy)
	case busy >= x.endpoint.WorkersMax && !x.endpoint.NoWorkers:
		return x.ahead() + fmt.Sprintf("%d of %d workers busy", busy, x.endpoint.WorkersMax)
	}
	return x.ahead() + workers(busy) + " busy" + x.fleet()
}

// ahead tells how many jobs are handed out first, and ends in a comma.
func (x explanation) ahead() string {
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

// nobody tells why no worker takes jobs.
func (x explanation) nobody() string {
	starting, throttled, sick := x.workers[registry.WorkerInitializing], x.workers[registry.WorkerThrottled], x.workers[registry.WorkerUnhealthy]
	switch {
	case starting > 0 && starting == 1:
		return "1 worker starts"
	case starting > 0:
		return workers(starting) + " start"
	case sick > 0:
		return workers(sick) + " unhealthy and none other" + x.fleet()
	case throttled > 0:
		return workers(throttled) + " throttled and none other" + x.fleet()
	}
	return "no worker is there" + x.fleet()
}

// fleet is what the autoscaler has to say.
func (x explanation) fleet() string {
	switch {
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
