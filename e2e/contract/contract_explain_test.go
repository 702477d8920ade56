package contract

import (
	"net/http"
	"strings"
)

// explainRows are why a job waits, what the autoscaler wants, and pauses.
func explainRows() map[string]scenario {
	return map[string]scenario{
		"a job that waits, and is cancelled": func(s *stage) {
			p := s.place(`"name":"explained"`)
			first, second := p.submit(`{}`, "").text("id"), p.submit(`{}`, `{"lowPriority":true}`).text("id")
			p.want(p.do("GET", "/explain/"+first, ""), http.StatusOK, "id", first, "status", "IN_QUEUE", "reason", "waiting: it is next", "queue", "position:1", "lowPriority", "false")
			p.want(p.do("GET", "/explain/"+second, ""), http.StatusOK, "reason", "waiting: 1 job ahead", "queue", "jobsAhead:1", "lowPriority", "true")
			p.do("POST", "/cancel/"+first, "")
			p.want(p.do("GET", "/explain/"+first, ""), http.StatusOK, "status", "CANCELLED", "reason", "cancelled", "finishedAt", "20")
		},
		"a paused endpoint": func(s *stage) {
			p := s.place("")
			one := "/v1/endpoints/" + p.id
			p.want(s.send(call{method: "POST", path: one + "/pause", body: `{"durationMs":600000}`}), http.StatusOK, "pausedUntil", "20")
			id := p.submit(`{}`, "").text("id")
			p.work(1)
			p.eventually("the explanation says so", func() bool {
				return strings.Contains(p.do("GET", "/explain/"+id, "").text("reason"), "the endpoint is paused until")
			})
			p.want(p.do("GET", "/status/"+id, ""), http.StatusOK, "status", "IN_QUEUE")
			resumed := s.send(call{method: "POST", path: one + "/resume"})
			if p.want(resumed, http.StatusOK, "id", p.id); resumed.text("pausedUntil") != "" {
				s.Errorf("got %s, want it not paused", resumed.raw)
			}
			p.until(id, "COMPLETED")
			p.want(p.do("GET", "/explain/"+id, ""), http.StatusOK, "reason", "completed by worker")
		},
		"a purge while paused": func(s *stage) {
			p := s.place("")
			s.send(call{method: "POST", path: "/v1/endpoints/" + p.id + "/pause"})
			p.submit(`{}`, "")
			p.submit(`{}`, `{"lowPriority":true}`)
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "2")
		},
		"a number of workers, or that there is none": func(s *stage) {
			p := s.place("")
			a := p.do("GET", "/scale", "")
			if p.want(a, http.StatusOK); a.body["known"] != (a.body["wanted"] != nil) {
				s.Errorf("got %s, want a number if and only if it is known", a.raw)
			}
			p.want(s.send(call{method: "GET", path: "/v1/endpoints/" + p.id + "/scaling?limit=5"}), http.StatusOK)
		},
		"how workers are started": func(s *stage) {
			p := s.place(`"scalerType":"REQUEST_COUNT","scalerValue":2,"idleTimeout":60,"env":{"API_TOKEN":"sesame-open","A":"b"}`)
			one := "/v1/endpoints/" + p.id
			got := s.send(call{method: "GET", path: one + "?includeWorkers=true&includeTemplate=true"})
			p.want(got, http.StatusOK, "scalerType", "REQUEST_COUNT", "scalerValue", "2", "idleTimeout", "60", "driver", "external", "workers", "[]", "env", "API_TOKEN:***")
			if strings.Contains(got.raw, "sesame") {
				s.Errorf("a secret is shown: %s", got.raw)
			}
			s.send(call{method: "GET", path: "/v1/endpoints?includeWorkers=false"})
			p.want(s.send(call{method: "PATCH", path: one, body: `{"idleTimeout":3601}`, wrong: true}), http.StatusBadRequest, "code", "invalid_request", "error", "idleTimeout")
			p.want(s.send(call{method: "PATCH", path: one, body: `{"templateId":"nobody"}`, wrong: true}), http.StatusBadRequest, "error", "templateId")
		},
		"what is wrong or unknown": func(s *stage) {
			p := s.place("")
			one := "/v1/endpoints/" + p.id
			p.want(p.do("GET", "/explain/nobody", ""), http.StatusNotFound, "code", "job_not_found")
			p.want(s.send(call{method: "GET", path: "/v2/nobody/scale"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: one + "/pause", body: `{"durationMs":999}`, wrong: true}), http.StatusBadRequest, "error", "durationMs must be between 1000")
			p.want(s.send(call{method: "GET", path: one + "/scaling?limit=101", wrong: true}), http.StatusBadRequest, "error", "limit must be")
			p.want(s.send(call{method: "GET", path: one + "?includeWorkers=perhaps", wrong: true}), http.StatusBadRequest, "error", "includeWorkers")
			for _, route := range []string{"POST pause", "POST resume", "GET scaling"} {
				method, rest, _ := strings.Cut(route, " ")
				p.want(s.send(call{method: method, path: "/v1/endpoints/nobody/" + rest}), http.StatusNotFound, "code", "endpoint_not_found")
			}
			p.refused(map[string]string{"POST " + one + "/pause": "", "POST " + one + "/resume": "", "GET " + one + "/scaling": ""})
		},
	}
}
