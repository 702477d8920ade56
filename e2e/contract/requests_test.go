package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// requestRows is /requests, which the contract names only.
func requestRows() map[string]scenario {
	listed := func(p *testEndpoint, query string) (ids []string, a answer) {
		a = p.do("GET", "/requests"+query, "")
		p.want(a, http.StatusOK)
		list, _ := a.body["requests"].([]any)
		for _, item := range list {
			one, _ := item.(map[string]any)
			id, _ := one["id"].(string)
			ids = append(ids, id)
		}
		return ids, a
	}
	return map[string]scenario{
		"newest first, page by page": func(s *run) {
			p := s.endpoint("")
			var want []string
			for range 5 {
				want = append([]string{p.submit(`{}`, "").text("id")}, want...)
			}
			var got []string
			query := "?limit=2"
			for range 4 {
				ids, a := listed(p, query)
				got = append(got, ids...)
				if a.body["hasMore"] != true {
					break
				}
				query = "?limit=2&cursor=" + url.QueryEscape(a.text("cursor"))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				s.Errorf("got %v, want %v", got, want)
			}
		},
		"by status": func(s *run) {
			p := s.endpoint(`"limits":{"requests":{"requests":0,"concurrent":0}}`)
			p.work(1)
			failed := p.submit(`{"fail":"x"}`, "").text("id")
			p.until(failed, "FAILED")
			done := p.submit(`{}`, "").text("id")
			p.until(done, "COMPLETED")
			running := p.submit(`{"forever":true}`, "").text("id")
			p.until(running, "IN_PROGRESS")
			waiting := p.submit(`{}`, "").text("id")
			for query, want := range map[string][]string{
				"?status=FAILED": {failed}, "?status=COMPLETED": {done}, "?status=IN_PROGRESS": {running}, "?status=IN_QUEUE": {waiting},
				"?status=COMPLETED,FAILED": {done, failed}, "?status=CANCELLED": nil, "?status=TIMED_OUT": nil, "?id=" + failed: {failed}, "?id=" + waiting + "&status=FAILED": nil,
				"?from=1h&status=FAILED": {failed}, "?to=1h": nil, "?from=1h&limit=100": {waiting, running, done, failed}, "?limit=100": {waiting, running, done, failed},
			} {
				var got []string
				p.eventually("requests"+query+" lists them", func() bool { got, _ = listed(p, query); return fmt.Sprint(got) == fmt.Sprint(want) })
			}
		},
		"limit of 1 and 100": func(s *run) {
			p := s.endpoint("")
			for _, limit := range []string{"1", "100"} {
				_, a := listed(p, "?limit="+limit)
				p.want(a, http.StatusOK, "limit", limit)
			}
			for _, limit := range []string{"0", "101", "x", "-1"} {
				p.want(p.wrong("GET", "/requests?limit="+limit, ""), http.StatusBadRequest, "code", "invalid_request", "error", "limit")
			}
		},
		"a status that is none": func(s *run) {
			p := s.endpoint("")
			p.want(p.wrong("GET", "/requests?status=RUNNING", ""), http.StatusBadRequest, "error", "IN_QUEUE")
		},
	}
}

// idempotencyRows is Idempotency-Key (docs/design/product.md#idempotency-keys) and Prefer.
func idempotencyRows() map[string]scenario {
	keyed := func(p *testEndpoint, path, body, key string) answer {
		return p.send(call{method: "POST", path: p.path(path), body: body, header: map[string]string{"Idempotency-Key": key}})
	}
	return map[string]scenario{
		"the same key and body at run": func(s *run) {
			p := s.endpoint("")
			first := keyed(p, "/run", `{"input":{}}`, "k")
			again := keyed(p, "/run", `{"input":{}}`, "k")
			p.want(again, http.StatusOK, "id", first.text("id"))
			if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
				s.Errorf("got %v and %v", first.header, again.header)
			}
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "1")
		},
		"the same key and body at runsync": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			first := keyed(p, "/runsync", `{"input":{}}`, "k")
			again := keyed(p, "/runsync", `{"input":{}}`, "k")
			p.want(again, http.StatusOK, "id", first.text("id"), "status", "COMPLETED")
		},
		"32 at once are one job": func(s *run) {
			p := s.endpoint("")
			var mu sync.Mutex
			ids := map[string]bool{}
			p.side(32, func() {
				for {
					a := keyed(p, "/run", `{"input":{}}`, "k")
					if a.status == http.StatusConflict || a.status == http.StatusServiceUnavailable {
						<-time.After(100 * millisecond)
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					ids[a.text("id")] = a.status == http.StatusOK
					return
				}
			})
			if len(ids) != 1 {
				s.Errorf("got %v, want one job", ids)
			}
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "1")
		},
		"another body": func(s *run) {
			p := s.endpoint("")
			keyed(p, "/run", `{"input":{}}`, "k")
			p.want(keyed(p, "/run", `{"input":{"n":1}}`, "k"), http.StatusUnprocessableEntity, "code", "idempotency_mismatch")
		},
		"another operation": func(s *run) {
			p := s.endpoint("")
			keyed(p, "/run", `{"input":{}}`, "k")
			p.want(keyed(p, "/runsync?wait=1000", `{"input":{}}`, "k"), http.StatusUnprocessableEntity, "code", "idempotency_mismatch")
		},
		"a key of another endpoint is another key": func(s *run) {
			p, other := s.endpoint(""), s.endpoint("")
			if a, b := keyed(p, "/run", `{"input":{}}`, "k"), keyed(other, "/run", `{"input":{}}`, "k"); a.text("id") == b.text("id") {
				s.Errorf("got %s twice", a.raw)
			}
		},
		"a key of 255 characters, and one more": func(s *run) {
			p := s.endpoint("")
			p.want(keyed(p, "/run", `{"input":{}}`, strings.Repeat("k", 255)), http.StatusOK)
			a := p.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, wrong: true, header: map[string]string{"Idempotency-Key": strings.Repeat("k", 256)}})
			p.want(a, http.StatusBadRequest, "error", "Idempotency-Key")
		},
		"Prefer: wait": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			a := p.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, header: map[string]string{"Prefer": "wait=20"}})
			p.want(a, http.StatusOK, "status", "COMPLETED")
			if a.header.Get("Preference-Applied") == "" {
				s.Errorf("got %v", a.header)
			}
		},
	}
}

// explainRows are why a job waits, what the autoscaler wants, and pauses.
func explainRows() map[string]scenario {
	return map[string]scenario{
		"a job that waits, and is cancelled": func(s *run) {
			p := s.endpoint(`"name":"explained"`)
			first, second := p.submit(`{}`, "").text("id"), p.submit(`{}`, `{"lowPriority":true}`).text("id")
			p.want(p.do("GET", "/explain/"+first, ""), http.StatusOK, "id", first, "status", "IN_QUEUE", "reason", "waiting: it is next", "queue", "position:1", "lowPriority", "false")
			p.want(p.do("GET", "/explain/"+second, ""), http.StatusOK, "reason", "waiting: 1 job ahead", "queue", "jobsAhead:1", "lowPriority", "true")
			p.do("POST", "/cancel/"+first, "")
			p.want(p.do("GET", "/input/"+second, ""), http.StatusOK, "id", second, "status", "IN_QUEUE", "input", "")
			p.want(p.do("GET", "/explain/"+first, ""), http.StatusOK, "status", "CANCELLED", "reason", "cancelled", "finishedAt", "20")
		},
		"a paused endpoint": func(s *run) {
			p := s.endpoint("")
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
		"a purge while paused": func(s *run) {
			p := s.endpoint("")
			s.send(call{method: "POST", path: "/v1/endpoints/" + p.id + "/pause"})
			p.submit(`{}`, "")
			p.submit(`{}`, `{"lowPriority":true}`)
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "2")
		},
		"a number of workers, or that there is none": func(s *run) {
			p := s.endpoint("")
			a := p.do("GET", "/scale", "")
			if p.want(a, http.StatusOK); a.body["known"] != (a.body["wanted"] != nil) {
				s.Errorf("got %s, want a number if and only if it is known", a.raw)
			}
			p.want(s.send(call{method: "GET", path: "/v1/endpoints/" + p.id + "/scaling?limit=5"}), http.StatusOK)
		},
		"how workers are started": func(s *run) {
			p := s.endpoint(`"scalerType":"REQUEST_COUNT","scalerValue":2,"idleTimeout":60,"env":{"API_TOKEN":"sesame-open","A":"b"}`)
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
		"what is wrong or unknown": func(s *run) {
			p := s.endpoint("")
			one := "/v1/endpoints/" + p.id
			p.want(p.do("GET", "/explain/nobody", ""), http.StatusNotFound, "code", "job_not_found")
			p.want(p.do("GET", "/input/nobody", ""), http.StatusNotFound, "code", "job_not_found")
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
