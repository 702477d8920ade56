package contract

import (
	"net/http"
	"time"
)

// states is the contract's table of states and transitions. The rows about
// time are in ttls and retentions.
func states() map[string]scenario {
	return map[string]scenario{
		"submission is IN_QUEUE": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.status(id), http.StatusOK, "status", "IN_QUEUE")
		},
		"picked up is IN_PROGRESS": func(s *stage) {
			p := s.place("")
			id := p.submit(`{"forever":true}`, "").text("id")
			p.work(1)
			if a := p.until(id, "IN_PROGRESS"); a.body["delayTime"] == nil || a.text("workerId") == "" {
				s.Errorf("got %s, want delayTime and workerId", a.raw)
			}
		},
		"success is COMPLETED": func(s *stage) {
			p := s.place("")
			p.work(1)
			if a := p.until(p.submit(`{"n":1}`, "").text("id"), "COMPLETED"); a.body["output"] == nil {
				s.Errorf("got %s, want output", a.raw)
			}
		},
		"handler error is FAILED": func(s *stage) {
			p := s.place("")
			p.work(1)
			a := p.until(p.submit(`{"fail":"bad input"}`, "").text("id"), "FAILED")
			p.want(a, http.StatusOK, "error", "bad input")
		},
		"execution over executionTimeout is TIMED_OUT": func(s *stage) {
			p := s.place("")
			p.work(1)
			began := time.Now()
			id := p.submit(`{"forever":true}`, `{"executionTimeout":5000}`).text("id")
			a := p.until(id, "TIMED_OUT")
			if took := time.Since(began); took < 4900*time.Millisecond {
				s.Errorf("took %v, want 5 s or more", took)
			}
			p.want(a, http.StatusOK, "error", "executionTimeout exceeded")
		},
		"the job's executionTimeout overrides the endpoint's": func(s *stage) {
			p := s.place(`"executionTimeoutMs":5000`)
			p.work(1)
			id := p.submit(`{"sleepMs":6000}`, `{"executionTimeout":60000}`).text("id")
			p.until(id, "COMPLETED")
		},
		"cancel while IN_QUEUE": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "status", "CANCELLED")
			p.work(1) // it never starts
			p.until(p.submit(`{}`, "").text("id"), "COMPLETED")
			p.want(p.status(id), http.StatusOK, "status", "CANCELLED")
		},
		"cancel while IN_PROGRESS": func(s *stage) {
			p := s.place("")
			p.work(1)
			id := p.submit(`{"forever":true}`, "").text("id")
			p.until(id, "IN_PROGRESS")
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "status", "CANCELLED")
			began := time.Now()
			p.until(p.submit(`{}`, "").text("id"), "COMPLETED") // the slot is free again
			if took := time.Since(began); took > 4*time.Second {
				s.Errorf("the handler held its slot for %v", took)
			}
		},
		"cancel when COMPLETED is refused":   refused("/cancel/", `{}`, "COMPLETED", "job_finished"),
		"cancel when FAILED is refused":      refused("/cancel/", `{"fail":"x"}`, "FAILED", "job_finished"),
		"retry when COMPLETED is refused":    refused("/retry/", `{}`, "COMPLETED", "not_retryable"),
		"retry while IN_PROGRESS is refused": refused("/retry/", `{"forever":true}`, "IN_PROGRESS", "not_retryable"),
		"retry while IN_QUEUE is refused": func(s *stage) {
			p := s.place("")
			p.want(p.do("POST", "/retry/"+p.submit(`{}`, "").text("id"), ""), http.StatusBadRequest, "code", "not_retryable")
		},
		"retry when CANCELLED is refused": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			p.do("POST", "/cancel/"+id, "")
			p.want(p.do("POST", "/retry/"+id, ""), http.StatusBadRequest, "code", "not_retryable")
		},
		"retry of a FAILED job removes its error": func(s *stage) {
			p := s.place("")
			id := p.submit(`{"fail":"x"}`, "").text("id")
			stop := p.workUntil(1)
			p.until(id, "FAILED")
			stop()
			p.want(p.do("POST", "/retry/"+id, ""), http.StatusOK, "id", id, "status", "IN_QUEUE")
			if a := p.status(id); a.text("status") != "IN_QUEUE" || a.body["error"] != nil || a.body["output"] != nil {
				s.Errorf("got %s, want neither error nor output", a.raw)
			}
		},
		"retry of a TIMED_OUT job": func(s *stage) {
			p := s.place("")
			p.work(1)
			id := p.submit(`{"forever":true}`, `{"executionTimeout":5000}`).text("id")
			p.until(id, "TIMED_OUT")
			p.want(p.do("POST", "/retry/"+id, ""), http.StatusOK, "id", id, "status", "IN_QUEUE")
			p.until(id, "IN_PROGRESS")
		},
		"purge leaves what is IN_PROGRESS": func(s *stage) {
			p := s.place("")
			p.work(1)
			running := p.submit(`{"forever":true}`, "").text("id")
			p.until(running, "IN_PROGRESS")
			waiting := p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "1")
			p.want(p.status(running), http.StatusOK, "status", "IN_PROGRESS")
			p.want(p.status(waiting), http.StatusOK, "status", "CANCELLED")
		},
	}
}

// refused is a job that got as far as this status and then meets an operation.
func refused(operation, input, status, code string) scenario {
	return func(s *stage) {
		p := s.place("")
		p.work(1)
		id := p.submit(input, "").text("id")
		p.until(id, status)
		p.want(p.do("POST", operation+id, ""), http.StatusBadRequest, "code", code)
		p.want(p.status(id), http.StatusOK, "status", status)
	}
}
