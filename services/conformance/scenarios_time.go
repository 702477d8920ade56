package conformance

import (
	"net/http"
	"time"
)

// timing is the job's policy.
func timing() []Scenario {
	const section = "Job policy"
	return []Scenario{
		{Name: "low-priority", Section: section, Shows: "a job with `lowPriority` is taken and runs", play: lowPriority},
		{Name: "execution-timeout", Section: section, Shows: "what runs for longer than `executionTimeout` is TIMED_OUT, not before, and for good", Needs: []string{needSlow}, play: executionTimeout},
		{Name: "execution-timeout-retry", Section: sectionStates, Shows: "`/retry` of a TIMED_OUT job answers IN_QUEUE, and it runs again", Needs: []string{needWorker}, play: timeoutRetry},
		{Name: "ttl-queued", Section: section, Shows: "a job that waits when its `ttl` ends is 404", when: beforeWork, Needs: []string{needIdle}, play: func(p *play) { ttl(p, p.w.cfg.Idle, atOnce, "IN_QUEUE") }},
		{Name: "ttl-running", Section: section, Shows: "a job that runs when its `ttl` ends is 404", Needs: []string{needWorker}, play: func(p *play) { ttl(p, p.w.cfg.Endpoint, pastTTL, "IN_PROGRESS") }},
		{Name: "ttl-completed", Section: section, Shows: "a job that is done when its `ttl` ends is 404", play: func(p *play) { ttl(p, p.w.cfg.Endpoint, atOnce, "COMPLETED") }},
	}
}

// lowTimeout is how long a job of low priority may wait: those of the scenarios
// beside it go first.
const lowTimeout = 3 * time.Minute

func lowPriority(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.submit(endpoint, task{}, map[string]any{"policy": map[string]any{"lowPriority": true}})
	p.awaitStatusWithin(endpoint, id, "COMPLETED", lowTimeout)
}

var fiveSeconds = map[string]any{"policy": map[string]any{"executionTimeout": 5000}}

// timeOut plays a job into its timeout.
func (p *play) timeOut(endpoint string, do task) (id string) {
	submitted := time.Now() // it was picked up later
	id = p.submit(endpoint, do, fiveSeconds)
	p.awaitStatus(endpoint, id, "TIMED_OUT")
	took := time.Since(submitted)
	p.failIf(took < 5*time.Second, "/status: TIMED_OUT after %v, want it after 5 s", took.Round(time.Millisecond))
	return id
}

func executionTimeout(p *play) {
	endpoint := p.w.cfg.Slow
	id := p.timeOut(endpoint, task{SleepMs: 7000})
	p.sleep(4 * time.Second) // a handler that was not stopped has told its result
	p.wantField("/status later", p.get(endpoint, "/status/"+id), "status", "TIMED_OUT")
}

func timeoutRetry(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.timeOut(endpoint, task{SleepMs: 7000})
	p.retry(endpoint, id)
	p.awaitStatus(endpoint, id, "IN_PROGRESS")
	p.abandon(endpoint, id)
}

// lifetimes are what a scenario gives its job as ttl, in turn: on a busy
// installation a job may reach its status too late for the first.
var lifetimes = []time.Duration{10 * time.Second, 30 * time.Second}

// ttl wants a job that reaches the status in time to be gone when its ttl ends.
// work is how long the job runs, given its ttl.
func ttl(p *play, endpoint string, work func(time.Duration) time.Duration, status string) {
	for _, lifetime := range lifetimes {
		submitted := time.Now()
		id := p.submit(endpoint, task{SleepMs: int(work(lifetime).Milliseconds())}, map[string]any{"policy": map[string]any{"ttl": lifetime.Milliseconds()}})
		if last := p.awaitStatusOrGone(endpoint, id, status, submitted, lifetime-time.Second); last.text("status") != status && !p.done() {
			continue
		}
		p.awaitGone(endpoint, id, submitted, lifetime-time.Second, lifetime+p.w.cfg.FactTimeout)
		p.want("/cancel of what is gone", p.post(endpoint, "/cancel/"+id, ""), http.StatusNotFound)
		return
	}
	p.failf("/status: got 404 when the ttl of %v ended, want %s before that", lifetimes[len(lifetimes)-1], status)
}

// awaitStatusOrGone polls until the job has the status, or is not found, which it may
// be from early after its submission.
func (p *play) awaitStatusOrGone(endpoint, id, status string, submitted time.Time, early time.Duration) answer {
	ask := func() answer {
		a := p.get(endpoint, "/status/"+id)
		if a.status == http.StatusNotFound && time.Since(submitted) >= early {
			return a
		}
		p.wantStatusOrEarlier(a, status)
		return a
	}
	return p.eventually("/status until "+status, p.w.cfg.FactTimeout, ask, func(a answer) bool {
		return a.text("status") == status || a.status == http.StatusNotFound
	})
}

// atOnce, and pastTTL, are how long a job of ttl runs.
func atOnce(time.Duration) time.Duration      { return 0 }
func pastTTL(ttl time.Duration) time.Duration { return ttl + 3*time.Second }

// remembering is how long results are kept.
func remembering() []Scenario {
	return []Scenario{
		{Name: "kept", Section: sectionStates, Shows: "the results of both submissions are there half a minute later", play: kept},
		{Name: "forgotten", Section: sectionStates, Shows: "a synchronous result is 404 after 1 to 5 minutes, an asynchronous one is not", Needs: []string{needRetention}, play: forgotten},
	}
}

// completeBoth completes a job of each submission.
func (p *play) completeBoth(endpoint string) (sync, async string) {
	async = p.submit(endpoint, task{}, nil)
	p.awaitStatus(endpoint, async, "COMPLETED")
	a := p.post(endpoint, "/runsync", body(task{}, nil))
	p.wantField("/runsync", a, "status", "COMPLETED")
	return a.text("id"), async
}

func kept(p *play) {
	endpoint := p.w.cfg.Endpoint
	sync, async := p.completeBoth(endpoint)
	p.sleep(30 * time.Second)
	for _, id := range []string{sync, async} {
		p.wantField("/status", p.get(endpoint, "/status/"+id), "status", "COMPLETED")
	}
}

func forgotten(p *play) {
	endpoint := p.w.cfg.Endpoint
	sync, async := p.completeBoth(endpoint)
	p.awaitGone(endpoint, sync, time.Now(), 55*time.Second, 5*time.Minute+10*time.Second)
	p.wantField("/status", p.get(endpoint, "/status/"+async), "status", "COMPLETED")
	p.want("/retry of what is gone", p.post(endpoint, "/retry/"+sync, ""), http.StatusNotFound, http.StatusBadRequest)
}
