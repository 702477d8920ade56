package contract

import (
	"context"
	"net/http"
	"strings"

	"flightline/shared/worker"
)

// statisticsRows are the counts of what happened, the search without an endpoint, and
// what workers print (docs/statistics.md, docs/logs.md).
func statisticsRows() map[string]scenario {
	const unlimited = `"limits":{"stats":{"requests":0,"concurrent":0}}`
	return map[string]scenario{
		"a failure is counted, and found by its cause": func(s *run) {
			p := s.endpoint(unlimited)
			p.work(1)
			id := p.submit(`{"fail":"no model 7"}`, "").text("id")
			p.until(id, "FAILED")
			p.eventually("the failure is counted", func() bool {
				a := p.do("GET", "/stats?from=10m&step=60", "")
				return a.status == http.StatusOK && strings.Contains(a.raw, `"failed":1`)
			})
			p.want(p.do("GET", "/stats", ""), http.StatusOK, "endpoint", p.id, "step", "60")
			p.want(p.do("GET", "/stats?from=48h", ""), http.StatusOK, "step", "3600")
			p.eventually("its cause is listed", func() bool { return strings.Contains(p.do("GET", "/failures", "").raw, id) })
			a := s.send(call{method: "GET", path: "/v1/failures?from=10m"})
			if p.want(a, http.StatusOK); !strings.Contains(a.raw, id) {
				s.Errorf("got %s, want the failure of %s", a.raw, p.id)
			}
		},
		"the version of a job's worker": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(`{}`, "").text("id")
			p.until(id, "COMPLETED")
			p.eventually("the answer has the worker's version", func() bool {
				return strings.Contains(p.do("GET", "/status/"+id+"?includeVersion=true", "").raw, `"version":1`)
			})
			if a := p.do("GET", "/status/"+id, ""); strings.Contains(a.raw, "version") {
				s.Errorf("got %s, want no version that was not asked for", a.raw)
			}
		},
		"a job without its endpoint": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			p.want(s.send(call{method: "GET", path: "/v1/jobs/" + id}), http.StatusOK, "endpoint", p.id, "id", id, "status", "IN_QUEUE")
			p.want(s.send(call{method: "GET", path: "/v1/jobs/nobody"}), http.StatusNotFound, "code", "job_not_found")
		},
		"all endpoints, workers, machines and events": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(`{}`, "").text("id")
			p.until(id, "COMPLETED")
			for path, part := range map[string]string{
				"/v1/overview?limit=1000": `"id":"` + p.id + `"`, "/v1/workers?endpoint=" + p.id: `"endpoint":"` + p.id + `"`, "/v1/machines": "[",
				"/v1/events?since=10m&follow=false": id,
			} {
				p.eventually(path+" has "+part, func() bool {
					a := s.send(call{method: "GET", path: path})
					return a.status == http.StatusOK && strings.Contains(a.raw, part)
				})
			}
			p.want(s.send(call{method: "GET", path: "/v1/key"}), http.StatusOK, "scopes", "*")
		},
		"the system": func(s *run) {
			p := s.endpoint("")
			p.submit(`{}`, "")
			p.eventually("the queue and its consumers are listed", func() bool {
				a := s.send(call{method: "GET", path: "/v1/system?stream=jobs_" + p.id})
				return a.status == http.StatusOK && strings.Contains(a.raw, `"endpoint":"`+p.id+`","messages":1`) && strings.Contains(a.raw, `"pending":1`) && strings.Contains(a.raw, `"role":"control"`)
			})
			p.want(s.send(call{method: "GET", path: "/v1/system?stream=" + strings.Repeat("x", 256), wrong: true}), http.StatusBadRequest, "error", "stream must be of at most 255 bytes, got 256")
		},
		"what workers print": func(s *run) {
			p := s.endpoint("")
			s.Cleanup(p.handleUntil(1, func(ctx context.Context, j *worker.Job) (any, error) {
				j.Logger().InfoContext(ctx, "loads the model")
				return nil, nil
			}))
			id := p.submit(`{}`, "").text("id")
			p.until(id, "COMPLETED")
			for _, path := range []string{"/logs?cursor=0&follow=false", "/logs/" + id + "?follow=false"} {
				p.eventually(path+" has the line", func() bool { return strings.Contains(p.do("GET", path, "").raw, "loads the model") })
			}
			p.want(p.do("GET", "/logs/nobody?follow=false", ""), http.StatusNotFound, "code", "job_not_found")
		},
		"what is wrong or unknown": func(s *run) {
			p := s.endpoint("")
			p.want(p.wrong("GET", "/stats?step=61", ""), http.StatusBadRequest, "code", "invalid_request", "error", "step")
			p.want(p.do("GET", "/stats?from=1h&to=2h", ""), http.StatusBadRequest, "code", "invalid_request", "error", "from")
			p.want(s.send(call{method: "GET", path: "/v1/overview?limit=1001", wrong: true}), http.StatusBadRequest, "error", "limit")
			for _, path := range []string{"/v2/nobody/stats", "/v2/nobody/failures", "/v2/nobody/logs"} {
				p.want(s.send(call{method: "GET", path: path}), http.StatusNotFound, "code", "endpoint_not_found")
			}
			for _, path := range []string{p.path("/stats"), p.path("/failures"), p.path("/logs"), "/v1/overview", "/v1/failures", "/v1/jobs/nobody", "/v1/workers", "/v1/events", "/v1/key", "/v1/system"} {
				p.want(s.send(call{method: "GET", path: path, header: map[string]string{"Authorization": ""}}), http.StatusUnauthorized, "code", "unauthorized")
			}
		},
	}
}
