package contract

import (
	"net/http"
	"strings"
	"time"
)

// gatewayRows is the worker protocol, as RunPod's SDK speaks it.
func gatewayRows() map[string]scenario {
	return map[string]scenario{
		"taken, pinged, streamed and done": gatewayLife,
		"a batch": func(s *stage) {
			p := s.place("")
			w := p.letIn("w")
			first, second := p.submit(`{"n":1}`, "").text("id"), p.submit(`{"n":2}`, "").text("id")
			got := map[string]bool{}
			p.eventually("both are handed out", func() bool {
				a := w.send("GET", "/job-take-batch/w?gpu=any&batch_size=5&job_in_progress=0", "")
				for _, id := range []string{first, second} {
					got[id] = got[id] || strings.HasPrefix(a.raw, "[") && strings.Contains(a.raw, `"id":"`+id+`"`)
				}
				return got[first] && got[second]
			})
		},
		"a job that was cancelled is to be stopped": func(s *stage) {
			p := s.place("")
			w := p.letIn("w")
			id := p.submit(`{}`, "").text("id")
			w.take(id)
			p.want(w.send("GET", "/ping/w?job_id="+id, ""), http.StatusOK) // from now on its jobs are watched
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "status", "CANCELLED")
			p.want(w.send("GET", "/job-stop/w?gpu=any", ""), http.StatusOK, "jobsToStop", id)
			p.want(w.send("POST", "/job-done/w/"+id+"?isStream=false", `{"output":"late"}`), http.StatusOK)
			p.want(p.status(id), http.StatusOK, "status", "CANCELLED")
		},
		"what a drained worker asks for is not there": func(s *stage) {
			p := s.place("")
			w := p.letIn("w")
			p.want(s.send(call{method: "POST", path: p.workers("/w/drain")}), http.StatusOK)
			p.submit(`{}`, "")
			for _, path := range []string{"/job-take/w?gpu=any&job_in_progress=0", "/job-take-batch/w?batch_size=2", "/job-stop/w"} {
				if a := w.send("GET", path, ""); a.status != http.StatusNoContent || a.raw != "" || a.answered.Sub(a.sent) < time.Second/2 {
					s.Errorf("%s: got %d %q after %v, want 204 after a second", path, a.status, a.raw, a.answered.Sub(a.sent))
				}
			}
		},
		"what is late, unknown or no JSON": func(s *stage) {
			p := s.place("")
			w := p.letIn("w")
			id := p.submit(`{}`, "").text("id")
			const unknown = "01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f"
			for _, to := range []string{id, unknown} { // w holds neither
				p.want(w.send("POST", "/job-done/w/"+to, `{"output":1}`), http.StatusOK)
				p.want(w.send("POST", "/job-stream/w/"+to, `{"output":1}`), http.StatusOK)
			}
			p.want(p.status(id), http.StatusOK, "status", "IN_QUEUE")
			w.take(id)
			p.want(w.odd("POST", "/job-done/w/"+id, "no JSON"), http.StatusOK)
			p.want(p.status(id), http.StatusOK, "status", "FAILED", "error", "invalid_result")
		},
		"an unhealthy worker": func(s *stage) {
			p := s.place("")
			p.want(p.letIn("w").send("GET", "/ping/w?status=unhealthy&check=gpu&reason=none&runpod_version=1.12.0", ""), http.StatusOK)
			p.eventually("it is counted", func() bool { return strings.Contains(p.do("GET", "/health", "").raw, `"unhealthy":1`) })
		},
		"a token is good for its worker alone": func(s *stage) {
			p := s.place("")
			w, other := p.letIn("w"), p.letIn("other")
			w.token = other.token
			for _, request := range []string{
				"GET /job-take/w", "GET /job-take-batch/w", "GET /job-stop/w", "GET /ping/w", "POST /job-done/w/x", "POST /job-stream/w/x",
			} {
				method, path, _ := strings.Cut(request, " ")
				p.want(w.odd(method, path, "{}"), http.StatusUnauthorized, "code", "unauthorized")
			}
		},
	}
}

func gatewayLife(s *stage) {
	p := s.place("")
	w := p.letIn("w")
	const body = `{"input":{"n": 1},"webhook":"http://127.0.0.1:1/hook","policy":{"executionTimeout":7000,"ttl":600000},"s3Config":{"accessSecret":"hush"}}`
	id := p.do("POST", "/run", body).text("id")
	taken := w.take(id)
	for _, want := range []string{`"input":{"n": 1}`, `"executionTimeout":7000`, `"ttl":600000`, `"webhook":"http://127.0.0.1:1/hook"`, `"accessSecret":"hush"`} {
		if !strings.Contains(taken.raw, want) {
			s.Errorf("got %s, want %s in it", taken.raw, want)
		}
	}
	p.want(w.send("GET", "/ping/w?gpu=any&job_id="+id+"&runpod_version=1.12.0", ""), http.StatusOK)
	for _, chunk := range []string{`"a"`, `{"b":1}`} {
		p.want(w.send("POST", "/job-stream/w/"+id+"?gpu=any&isStream=false", `{"output":`+chunk+`}`), http.StatusOK)
	}
	p.want(w.send("POST", "/job-done/w/"+id+"?gpu=any&isStream=false", `{"status":"IN_PROGRESS","output":"half"}`), http.StatusOK)
	p.want(p.status(id), http.StatusOK, "status", "IN_PROGRESS", "output", "half")
	p.want(w.odd("POST", "/job-done/w/"+id+"?gpu=any&isStream=true", `{"output": [NaN]}`), http.StatusOK)
	p.want(p.until(id, "COMPLETED"), http.StatusOK, "output", "[<nil>]", "workerId", "w")
	if got := p.do("GET", "/stream/"+id+"?cursor=0&format=object", "").raw; !strings.Contains(got, `[{"output":"a"},{"output":{"b":1}}]`) {
		s.Errorf("got %s, want both chunks", got)
	}
	for _, a := range []answer{p.status(id), p.do("GET", "/requests", "")} {
		if strings.Contains(a.raw, "hush") {
			s.Errorf("got %s, want no secret of s3Config", a.raw)
		}
	}
}

// remote is a worker that speaks HTTP.
type remote struct {
	p         *place
	id, token string
}

func (p *place) letIn(id string) *remote {
	p.t.Helper()
	a := p.send(call{method: "POST", path: p.workers(""), body: `{"id":"` + id + `"}`})
	p.want(a, http.StatusOK, "token", "fw_")
	return &remote{p, id, a.text("token")}
}

// send sends a request to a gateway, with the bare token as the SDK does.
func (w *remote) send(method, path, body string) answer {
	w.p.t.Helper()
	return w.p.send(w.call(method, path, body))
}

// odd is send for what does not fit openapi.json; its answer has to.
func (w *remote) odd(method, path, body string) answer {
	w.p.t.Helper()
	c := w.call(method, path, body)
	c.wrong = true
	return w.p.send(c)
}

func (w *remote) call(method, path, body string) call {
	return call{method: method, path: w.p.path(path), body: body, gateway: true, header: map[string]string{"Authorization": w.token}}
}

// take polls until it is handed the job.
func (w *remote) take(id string) (a answer) {
	w.p.t.Helper()
	w.p.eventually("the job is handed out", func() bool {
		a = w.send("GET", "/job-take/"+w.id+"?gpu=any&job_in_progress=0", "")
		return a.status == http.StatusOK
	})
	if a.text("id") != id {
		w.p.t.Fatalf("take: got %d %s, want job %s", a.status, a.raw, id)
	}
	return a
}
