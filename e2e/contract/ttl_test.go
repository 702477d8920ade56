package contract

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"flightline/shared/testenv/program"
)

// span is when an instant was, as far as a client can tell.
type span struct{ earliest, latest time.Time }

func (s span) after(d time.Duration) span { return span{s.earliest.Add(d), s.latest.Add(d)} }

// skew is how far the clocks of two of our processes may be apart: each takes
// its time from NATS, and is wrong by half of an answer's trip at most, which
// takes its time on a machine that is busy with other tests.
const skew = 50 * time.Millisecond

// gone polls the job from several sides across the instant end, until it is
// gone: no 200 answers a request sent after it, no 404 is answered before it.
func (p *testEndpoint) gone(id string, end span) {
	p.t.Helper()
	<-time.After(time.Until(end.earliest) - 300*time.Millisecond)
	var wg sync.WaitGroup
	problems := make(chan string, 20)
	for range 4 {
		wg.Go(func() {
			for time.Now().Before(end.latest.Add(300 * time.Millisecond)) {
				a, err := p.try(p.t.Context(), call{method: "GET", path: p.path("/status/" + id)})
				problem := ""
				switch {
				case err != nil:
					problem = err.Error()
				case a.status == http.StatusOK && a.sent.After(end.latest.Add(skew)):
					problem = fmt.Sprintf("200 to a request sent %v after the end: %s", a.sent.Sub(end.latest), a.raw)
				case a.status == http.StatusNotFound && a.answered.Before(end.earliest.Add(-skew)):
					problem = fmt.Sprintf("404 %v before the end", end.earliest.Sub(a.answered))
				case a.status != http.StatusOK && a.text("code") != "job_not_found":
					problem = a.raw
				}
				if problem != "" && len(problems) < cap(problems)/2 {
					problems <- problem
				}
				<-time.After(5 * time.Millisecond) // below the limit of the rate
			}
		})
	}
	wg.Wait()
	close(problems)
	for problem := range problems {
		p.t.Error(problem)
	}
	p.want(p.status(id), http.StatusNotFound, "code", "job_not_found")
}

// submitted is a job with this ttl, and when that ends.
func (p *testEndpoint) submitted(input string, ttl time.Duration) (string, span) {
	p.t.Helper()
	a := p.submit(input, fmt.Sprintf(`{"ttl":%d}`, ttl.Milliseconds()))
	return a.text("id"), span{a.sent.Truncate(time.Millisecond), a.answered}.after(ttl)
}

// ttls is the row "any state, ttl expires": the job is deleted, even while
// running, and status checks return 404 from then on.
func ttls() map[string]scenario {
	const ttl = 10 * time.Second
	return map[string]scenario{
		"ends a queued job": func(s *run) {
			p := s.endpoint("")
			id, end := p.submitted(`{}`, ttl)
			p.gone(id, end)
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusNotFound, "code", "job_not_found")
		},
		"ends a running job": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id, end := p.submitted(`{"forever":true}`, ttl)
			p.until(id, "IN_PROGRESS")
			p.gone(id, end)
			p.until(p.submit(`{}`, "").text("id"), "COMPLETED") // its worker is free
		},
		"ends a finished job": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id, end := p.submitted(`{}`, ttl)
			p.until(id, "COMPLETED")
			p.gone(id, end)
		},
		"ends a failed job, which cannot be retried then": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id, end := p.submitted(`{"fail":"x"}`, ttl)
			p.until(id, "FAILED")
			p.gone(id, end)
			p.want(p.do("POST", "/retry/"+id, ""), http.StatusNotFound, "code", "job_not_found")
		},
		"of the endpoint holds for jobs that name none": func(s *run) {
			p := s.endpoint(`"ttlMs":10000`)
			a := p.submit(`{}`, "")
			p.gone(a.text("id"), span{a.sent.Truncate(time.Millisecond), a.answered}.after(ttl))
		},
		"changed by status counts from the submission": func(s *run) {
			p := s.endpoint("")
			a := p.submit(`{}`, "")
			id := a.text("id")
			p.want(p.do("GET", "/status/"+id+"?ttl=3000", ""), http.StatusOK, "status", "IN_QUEUE")
			p.gone(id, span{a.sent.Truncate(time.Millisecond), a.answered}.after(3*time.Second))
		},
		"changed to less than has passed ends the job at once": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			<-time.After(1200 * time.Millisecond)
			p.do("GET", "/status/"+id+"?ttl=1000", "")
			p.want(p.status(id), http.StatusNotFound, "code", "job_not_found")
		},
		"time in the queue counts against it": func(s *run) {
			p := s.endpoint("")
			id, end := p.submitted(`{"forever":true}`, ttl)
			<-time.After(3 * time.Second)
			p.work(1)
			p.until(id, "IN_PROGRESS")
			p.gone(id, end)
		},
	}
}

// finished is when the job of this answer ended, to the millisecond that the
// system says.
func (p *testEndpoint) finished(a answer) span {
	p.t.Helper()
	var at time.Time
	p.eventually("the job is listed", func() bool {
		list, _ := p.do("GET", "/requests", "").body["requests"].([]any)
		for _, item := range list {
			one, _ := item.(map[string]any)
			if text, _ := one["finishedAt"].(string); one["id"] == a.text("id") && text != "" {
				at, _ = time.Parse(time.RFC3339Nano, text)
			}
		}
		return !at.IsZero()
	})
	if late := a.answered.Sub(at); late < -skew || late > program.Soon {
		p.t.Errorf("got an end at %v, want it before %v, when it was answered", at, a.answered)
	}
	return span{at, at.Add(time.Millisecond)}
}

// retentions is the rows about results: 30 minutes async, 1 minute sync, which
// a shortened configuration makes bearable. They count from finishedAt, which
// /requests says: the clock of the worker that finished the job wrote it.
func retentions() map[string]scenario {
	const settings = `"retentionMs":3000,"syncRetentionMs":1500,"limits":{"requests":{"requests":0,"concurrent":0}}`
	return map[string]scenario{
		"is 30 min and 1 min unless set": func(s *run) {
			p := s.endpoint("")
			a := s.send(call{method: "GET", path: "/v1/endpoints/" + p.id})
			if a.number("retentionMs") != 30*60*1000 || a.number("syncRetentionMs") != 60*1000 {
				s.Errorf("got %s", a.raw)
			}
		},
		"sync is at most 5 min": func(s *run) {
			p := s.endpoint(`"syncRetentionMs":300000`)
			a := s.send(call{method: "PATCH", path: "/v1/endpoints/" + p.id, body: `{"syncRetentionMs":300001}`, wrong: true})
			p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", "syncRetentionMs")
		},
		"of an async result": func(s *run) {
			p := s.endpoint(settings)
			p.work(1)
			a := p.until(p.submit(`{}`, "").text("id"), "COMPLETED")
			p.gone(a.text("id"), p.finished(a).after(3*time.Second))
		},
		"of a sync result": func(s *run) {
			p := s.endpoint(settings)
			p.work(1)
			a := p.do("POST", "/runsync", `{"input":{}}`)
			p.want(a, http.StatusOK, "status", "COMPLETED")
			p.gone(a.text("id"), p.finished(a).after(1500*time.Millisecond))
		},
		"of a failed job; then it cannot be retried": func(s *run) {
			p := s.endpoint(settings)
			p.work(1)
			a := p.submit(`{"fail":"x"}`, "")
			p.gone(a.text("id"), p.finished(p.until(a.text("id"), "FAILED")).after(3*time.Second))
			p.want(p.do("POST", "/retry/"+a.text("id"), ""), http.StatusNotFound, "code", "job_not_found")
		},
		"of a cancelled job": func(s *run) {
			p := s.endpoint(settings)
			id := p.submit(`{}`, "").text("id")
			a := p.do("POST", "/cancel/"+id, "")
			p.gone(id, span{a.sent.Truncate(time.Millisecond), a.answered}.after(3*time.Second))
		},
		"does not outlast the ttl": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			a := p.submit(`{}`, "")
			p.until(a.text("id"), "COMPLETED")
			p.do("GET", "/status/"+a.text("id")+"?ttl=4000", "")
			p.gone(a.text("id"), span{a.sent.Truncate(time.Millisecond), a.answered}.after(4*time.Second))
		},
	}
}
