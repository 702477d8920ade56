package conformance

import (
	"net/http"
	"sync"
	"time"
)

const sectionStates = "States and transitions"

func ending() []Scenario {
	return []Scenario{
		{Name: "cancel-queued", Section: sectionStates, Shows: "`/cancel` of a waiting job answers CANCELLED, and it stays so", Needs: []string{needIdle}, when: beforeWork, play: cancelQueued},
		{Name: "cancel-running", Section: sectionStates, Shows: "`/cancel` of a running job answers CANCELLED at once, and it stays so", Needs: []string{needSlow}, play: cancelRunning},
		{Name: "retry-failed", Section: sectionStates, Shows: "`/retry` of a FAILED job answers IN_QUEUE with the same id, and it runs again", Needs: []string{needFailing}, play: retryFailed},
		{Name: "retry-input", Section: sectionStates, Shows: "what is retried has its original input; the earlier result is removed", Needs: []string{needWorker}, play: retryInput},
		{Name: "retry-completed", Section: sectionStates, Shows: "`/retry` of a COMPLETED job is 400", play: retryCompleted},
		{Name: "retry-queued", Section: sectionStates, Shows: "`/retry` of a waiting job is 400", Needs: []string{needIdle}, when: beforeWork, play: retryQueued},
		{Name: "retry-cancelled", Section: sectionStates, Shows: "`/retry` of a CANCELLED job is 400", Needs: []string{needIdle}, when: beforeWork, play: retryCancelled},
		{Name: "retry-running", Section: sectionStates, Shows: "`/retry` of a running job is 400, and it runs on", Needs: []string{needSlow}, play: retryRunning},
		{Name: "purge", Section: "Purge result", Shows: "`/purge-queue` returns how many waiting jobs it removed; none of them waits on", Needs: []string{needPurge}, when: aloneBeforeWork, play: purge},
		{Name: "purge-running", Section: sectionStates, Shows: "`/purge-queue` leaves a job that runs alone", Needs: []string{needWorker}, when: lastAlone, play: purgeRunning},
		{Name: "rate-purge", Section: "Rate limits", Shows: "the third `/purge-queue` within 10 s is 429, with `Retry-After`", Needs: []string{needPurge, needRates}, when: lastAlone, play: ratePurge},
		{Name: "rate-cancel", Section: "Rate limits", Shows: "of 101 `/cancel` within 10 s one is 429, with `Retry-After`", Needs: []string{needRates}, when: lastAlone, play: rateCancel},
	}
}

func cancelQueued(p *play) {
	endpoint := p.w.cfg.Idle
	id := p.submit(endpoint, task{}, nil)
	p.cancel(endpoint, id)
}

// cancel cancels the job, and fails unless it is CANCELLED and stays so.
func (p *play) cancel(endpoint, id string) {
	a := p.post(endpoint, "/cancel/"+id, "")
	p.wantField("/cancel", a, "id", id)
	p.wantField("/cancel", a, "status", "CANCELLED")
	for range 2 {
		a = p.get(endpoint, "/status/"+id)
		p.wantField("/status", a, "status", "CANCELLED")
		p.sleep(time.Second)
	}
}

func cancelRunning(p *play) {
	endpoint := p.w.cfg.Slow
	id := p.submit(endpoint, task{SleepMs: 6000}, nil)
	p.awaitStatus(endpoint, id, "IN_PROGRESS")
	began := time.Now()
	p.cancel(endpoint, id)
	took := time.Since(began)
	p.failIf(took > 10*time.Second, "/cancel: took %v, want it at once", took.Round(time.Millisecond))
	if p.w.cfg.worker() {
		p.sleep(5 * time.Second) // by now the worker has told a result
		p.wantField("/status after the handler's end", p.get(endpoint, "/status/"+id), "status", "CANCELLED")
	}
}

// retry wants the job to be queued again.
func (p *play) retry(endpoint, id string) {
	a := p.post(endpoint, "/retry/"+id, "")
	p.wantField("/retry", a, "id", id)
	p.wantField("/retry", a, "status", "IN_QUEUE")
}

func retryFailed(p *play) {
	endpoint := p.w.cfg.Failing
	id := p.submit(endpoint, task{Fail: "each time"}, nil)
	p.awaitStatus(endpoint, id, "FAILED")
	p.retry(endpoint, id)
	p.awaitStatus(endpoint, id, "FAILED")
}

func retryInput(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.submit(endpoint, task{Fail: "the first time", Once: true, SleepMs: 3000}, nil)
	p.awaitStatus(endpoint, id, "FAILED")
	p.retry(endpoint, id)
	a := p.get(endpoint, "/status/"+id)
	p.wantField("/status after /retry", a, "status", "IN_QUEUE", "IN_PROGRESS")
	p.failIf(a.object["error"] != nil || a.object["output"] != nil, "/status after /retry: got %s, want the earlier result removed", a)
	a = p.awaitStatus(endpoint, id, "COMPLETED")
	p.wantJSON("output of the retry", a.object["output"], `{"conform":{"fail":"the first time","once":true,"sleepMs":3000}}`)
}

func retryCompleted(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.submit(endpoint, task{}, nil)
	p.awaitStatus(endpoint, id, "COMPLETED")
	p.want("/retry", p.post(endpoint, "/retry/"+id, ""), http.StatusBadRequest)
	p.wantField("/status", p.get(endpoint, "/status/"+id), "status", "COMPLETED")
}

func retryQueued(p *play) {
	endpoint := p.w.cfg.Idle
	id := p.submit(endpoint, task{}, nil)
	p.want("/retry", p.post(endpoint, "/retry/"+id, ""), http.StatusBadRequest)
	p.wantField("/status", p.get(endpoint, "/status/"+id), "status", "IN_QUEUE")
	p.abandon(endpoint, id)
}

func retryCancelled(p *play) {
	endpoint := p.w.cfg.Idle
	id := p.submit(endpoint, task{}, nil)
	p.wantField("/cancel", p.post(endpoint, "/cancel/"+id, ""), "status", "CANCELLED")
	p.want("/retry", p.post(endpoint, "/retry/"+id, ""), http.StatusBadRequest)
	p.wantField("/status", p.get(endpoint, "/status/"+id), "status", "CANCELLED")
}

func retryRunning(p *play) {
	endpoint := p.w.cfg.Slow
	id := p.submit(endpoint, task{SleepMs: 4000}, nil)
	p.awaitStatus(endpoint, id, "IN_PROGRESS")
	p.want("/retry", p.post(endpoint, "/retry/"+id, ""), http.StatusBadRequest)
	p.wantField("/status", p.get(endpoint, "/status/"+id), "status", "IN_PROGRESS", "COMPLETED")
	p.abandon(endpoint, id)
}

func purge(p *play) {
	endpoint := p.w.cfg.Idle
	p.purge(endpoint)
	var ids []string
	for range 3 {
		ids = append(ids, p.submit(endpoint, task{}, nil))
	}
	a := p.purge(endpoint)
	n := p.wantCount("/purge-queue", a.object, "removed")
	p.failIf(n != 3 || a.text("status") == "", "/purge-queue: got %s, want removed 3 and a status", a)
	for _, id := range ids {
		a := p.get(endpoint, "/status/"+id)
		p.want("/status of what was purged", a, http.StatusOK, http.StatusNotFound)
		got := a.text("status")
		p.failIf(got == "IN_QUEUE" || got == "IN_PROGRESS", "/status of what was purged: got %s", a)
	}
}

// limited is how long a rate limit is waited out.
const limited = 11 * time.Second

// purge purges the queue. If the limit of purges refuses it, it waits and tries once more.
func (p *play) purge(endpoint string) answer {
	a := p.post(endpoint, "/purge-queue", "")
	if a.status == http.StatusTooManyRequests {
		p.sleep(limited)
		a = p.post(endpoint, "/purge-queue", "")
	}
	p.want("/purge-queue", a, http.StatusOK)
	return a
}

func purgeRunning(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.submit(endpoint, task{SleepMs: 15_000}, nil) // longer than the limit of purges
	p.awaitStatus(endpoint, id, "IN_PROGRESS")
	p.purge(endpoint)
	p.wantField("/status of what runs", p.get(endpoint, "/status/"+id), "status", "IN_PROGRESS")
	p.abandon(endpoint, id)
}

func ratePurge(p *play) {
	p.sleep(limited) // what other scenarios did is forgotten
	for i := range 3 {
		a := p.post(p.w.cfg.Idle, "/purge-queue", "")
		if i < 2 {
			p.want("/purge-queue within its limit", a, http.StatusOK)
			continue
		}
		p.want("the third /purge-queue", a, http.StatusTooManyRequests)
		p.wantRetryAfter(a)
	}
}

// wantRetryAfter fails unless the answer has the header Retry-After.
func (p *play) wantRetryAfter(a answer) {
	p.failIf(a.header.Get("Retry-After") == "", "429: got no Retry-After")
}

func rateCancel(p *play) {
	p.sleep(limited)
	if p.done() {
		return
	}
	const lanes = 8 // all are to be within 10 s
	var wg sync.WaitGroup
	answers := make([]answer, 101)
	for lane := range lanes {
		wg.Go(func() {
			for i := lane; i < len(answers); i += lanes {
				answers[i], _ = p.w.send(p.ctx, call{method: "POST", path: "/v2/" + p.w.cfg.Endpoint + "/cancel/conform-unknown"}) // a request that failed was no 429
			}
		})
	}
	wg.Wait()
	refused := 0
	for _, a := range answers {
		p.want("/cancel of an unknown job", a, http.StatusNotFound, http.StatusTooManyRequests)
		if a.status == http.StatusTooManyRequests {
			refused++
			p.wantRetryAfter(a)
		}
	}
	p.failIf(refused == 0, "/cancel: got no 429 in %d requests", len(answers))
}
