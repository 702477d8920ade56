package contract

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/testenv/program"
	"flightline/shared/worker"
)

// task is what a job's input asks of the handler of the scenarios.
type task struct {
	Emit    []json.RawMessage `json:"emit"`
	String  int               `json:"string"` // emits a string of so many bytes
	Object  int               `json:"object"` // emits an object of so many bytes
	SleepMs int               `json:"sleepMs"`
	Forever bool              `json:"forever"`
	Fail    string            `json:"fail"`
}

// work runs so many handlers for the endpoint until the test ends.
func (p *testEndpoint) work(concurrency int) {
	p.t.Helper()
	p.t.Cleanup(p.workUntil(concurrency))
}

// workUntil is work until stop is called.
func (p *testEndpoint) workUntil(concurrency int) (stop func()) {
	p.t.Helper()
	return p.handleUntil(concurrency, handle)
}

// handleUntil is workUntil with another handler.
func (p *testEndpoint) handleUntil(concurrency int, handle worker.Handler) (stop func()) {
	p.t.Helper()
	cfg := p.nats
	cfg.Endpoint, cfg.Concurrency, cfg.Grace = p.id, concurrency, -1
	ready := make(chan struct{})
	cfg.OnReady = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = worker.Run(ctx, cfg, handle)
	}()
	stop = func() {
		cancel()
		if <-ended; err != nil && !errors.Is(err, endpoint.ErrNotFound) {
			p.t.Errorf("worker: %v", err)
		}
	}
	select {
	case <-ready:
	case <-ended:
		stop()
		p.t.Fatal("the worker ended at its start")
	case <-time.After(program.Soon):
		stop()
		p.t.Fatal("the worker is not ready")
	}
	return stop
}

// handle does its task and returns its input.
func handle(ctx context.Context, j *worker.Job) (any, error) {
	var do task
	if err := json.Unmarshal(j.Input, &do); err != nil {
		return nil, err
	}
	if do.String > 0 {
		if err := j.Emit(ctx, strings.Repeat("é", do.String/2)+strings.Repeat("x", do.String%2)); err != nil {
			return nil, err
		}
	}
	if do.Object > 0 {
		if err := j.Emit(ctx, map[string]string{"x": strings.Repeat("x", do.Object)}); err != nil {
			return nil, err
		}
	}
	for _, chunk := range do.Emit {
		if err := j.Emit(ctx, chunk); err != nil {
			return nil, err
		}
	}
	wait := time.Duration(do.SleepMs) * time.Millisecond
	if do.Forever {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if do.Fail != "" {
		return nil, errors.New(do.Fail)
	}
	if len(j.Input) > 1<<20 { // with more around it, it could be too large for an output
		return map[string]any{"bytes": len(j.Input)}, nil
	}
	return map[string]any{"input": j.Input}, nil
}

// workerRows is who is let in over HTTP to work.
func workerRows() map[string]scenario {
	return map[string]scenario{
		"let in, drained, revoked": workersLife,
		"an id is made up": func(s *run) {
			p := s.endpoint("")
			a := s.send(call{method: "POST", path: p.workers("")})
			p.want(a, http.StatusOK, "endpoint", p.id, "token", "fw_", "draining", "false")
			if a.text("id") == "" {
				s.Errorf("got %s, want an id", a.raw)
			}
		},
		"a new token makes the earlier one worthless": func(s *run) {
			p := s.endpoint("")
			first := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"w"}`}).text("token")
			second := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"w"}`}).text("token")
			p.pinged("w", second, http.StatusOK)
			p.pinged("w", first, http.StatusUnauthorized)
		},
		"an id that cannot be": func(s *run) {
			p := s.endpoint("")
			for _, id := range []string{"a b", "é", strings.Repeat("w", 129)} {
				a := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"` + id + `"}`, wrong: true})
				p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", "id")
			}
			p.want(s.send(call{method: "POST", path: p.workers(""), body: `{"id":1}`, wrong: true}), http.StatusBadRequest, "error", "id")
			p.want(s.send(call{method: "POST", path: p.workers(""), body: `{"id":"` + strings.Repeat("w", 128) + `"}`}), http.StatusOK)
		},
		"what is unknown": func(s *run) {
			p := s.endpoint("")
			p.want(s.send(call{method: "GET", path: "/v1/endpoints/nobody/workers"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: "/v1/endpoints/nobody/workers"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: "/v1/endpoints/nobody/workers/w/drain"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "DELETE", path: "/v1/endpoints/nobody/workers/w"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: p.workers("/w/drain")}), http.StatusNotFound, "code", "not_found")
			p.want(s.send(call{method: "DELETE", path: p.workers("/w")}), http.StatusNotFound, "code", "not_found")
		},
		"no permission": func(s *run) {
			p := s.endpoint("")
			p.refused(map[string]string{"GET " + p.workers(""): "", "POST " + p.workers(""): "", "POST " + p.workers("/w/drain"): "", "DELETE " + p.workers("/w"): ""})
		},
	}
}

func workersLife(s *run) {
	p := s.endpoint("")
	made := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"w"}`})
	token := made.text("token")
	p.want(made, http.StatusOK, "id", "w", "endpoint", p.id, "token", "fw_", "running", "[]")
	p.pinged("w", token, http.StatusOK)
	var list answer
	p.eventually("the worker is listed as idle", func() bool {
		list = s.send(call{method: "GET", path: p.workers("")})
		return strings.Contains(list.raw, `"state":"idle"`)
	})
	if strings.Contains(list.raw, token) || !strings.Contains(list.raw, made.text("last4")) {
		s.Errorf("got %s, want the last characters of %s alone", list.raw, token)
	}
	drained := s.send(call{method: "POST", path: p.workers("/w/drain")})
	p.want(drained, http.StatusOK, "id", "w", "draining", "true")
	if drained.text("token") != "" {
		s.Errorf("got %s, want no token", drained.raw)
	}
	p.want(s.send(call{method: "DELETE", path: p.workers("/w")}), http.StatusNoContent)
	p.pinged("w", token, http.StatusUnauthorized)
	if got := s.send(call{method: "GET", path: p.workers("")}); got.raw != "[]" {
		s.Errorf("got %s, want none", got.raw)
	}
}

func (p *testEndpoint) workers(rest string) string {
	return "/v1/endpoints/" + p.id + "/workers" + rest
}

// pinged waits until a ping with the token gets the status.
func (p *testEndpoint) pinged(worker, token string, status int) {
	p.t.Helper()
	w := &remote{p, worker, token}
	p.eventually("a ping gets "+http.StatusText(status), func() bool { return w.send("GET", "/ping/"+worker, "").status == status })
}

// refused sends the requests, each a method, a path and a body, without a key
// and with one for all of the endpoint's queue, which does not suffice.
func (p *testEndpoint) refused(requests map[string]string) {
	p.t.Helper()
	scopes := `"submit:` + p.id + `","read:` + p.id + `","admin:` + p.id + `"`
	key := p.send(call{method: "POST", path: "/v1/keys", body: `{"scopes":[` + scopes + `]}`}).text("key")
	for request, body := range requests {
		method, path, _ := strings.Cut(request, " ")
		for _, key := range []string{"", key} {
			a := p.send(call{method: method, path: path, body: body, header: map[string]string{"Authorization": key}})
			if a.status != http.StatusUnauthorized || a.text("code") != "unauthorized" {
				p.t.Errorf("%s: got %d %s, want 401", request, a.status, a.raw)
			}
		}
	}
}

// gatewayRows is the worker protocol, as RunPod's SDK speaks it.
func gatewayRows() map[string]scenario {
	return map[string]scenario{
		"taken, pinged, streamed and done": gatewayLife,
		"a batch": func(s *run) {
			p := s.endpoint("")
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
		"a job that was cancelled is to be stopped": func(s *run) {
			p := s.endpoint("")
			w := p.letIn("w")
			id := p.submit(`{}`, "").text("id")
			w.take(id)
			p.want(w.send("GET", "/ping/w?job_id="+id, ""), http.StatusOK) // from now on its jobs are watched
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "status", "CANCELLED")
			p.want(w.send("GET", "/job-stop/w?gpu=any", ""), http.StatusOK, "jobsToStop", id)
			p.want(w.send("POST", "/job-done/w/"+id+"?isStream=false", `{"output":"late"}`), http.StatusOK)
			p.want(p.status(id), http.StatusOK, "status", "CANCELLED")
		},
		"what a drained worker asks for is not there": func(s *run) {
			p := s.endpoint("")
			w := p.letIn("w")
			p.want(s.send(call{method: "POST", path: p.workers("/w/drain")}), http.StatusOK)
			p.submit(`{}`, "")
			for _, path := range []string{"/job-take/w?gpu=any&job_in_progress=0", "/job-take-batch/w?batch_size=2", "/job-stop/w"} {
				if a := w.send("GET", path, ""); a.status != http.StatusNoContent || a.raw != "" || a.answered.Sub(a.sent) < time.Second/2 {
					s.Errorf("%s: got %d %q after %v, want 204 after a second", path, a.status, a.raw, a.answered.Sub(a.sent))
				}
			}
		},
		"what is late, unknown or no JSON": func(s *run) {
			p := s.endpoint("")
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
		"an unhealthy worker": func(s *run) {
			p := s.endpoint("")
			p.want(p.letIn("w").send("GET", "/ping/w?status=unhealthy&check=gpu&reason=none&runpod_version=1.12.0", ""), http.StatusOK)
			p.eventually("it is counted", func() bool { return strings.Contains(p.do("GET", "/health", "").raw, `"unhealthy":1`) })
		},
		"a token is good for its worker alone": func(s *run) {
			p := s.endpoint("")
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

func gatewayLife(s *run) {
	p := s.endpoint("")
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
	p         *testEndpoint
	id, token string
}

func (p *testEndpoint) letIn(id string) *remote {
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
