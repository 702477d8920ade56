package contract

import (
	"net/http"
)

// operations is the contract's table of operations, and its neighbours that
// clients need (product.md 3).
func operations() map[string]scenario {
	return map[string]scenario{
		"runsync answers with the result": func(s *stage) {
			p := s.place("")
			p.work(1)
			a := p.do("POST", "/runsync", `{"input":{"n":1}}`)
			p.want(a, http.StatusOK, "status", "COMPLETED", "id", "sync-")
			if a.body["output"] == nil || a.body["delayTime"] == nil || a.body["executionTime"] == nil || a.header.Get("X-Job-Id") != a.text("id") {
				s.Errorf("got %s with %v", a.raw, a.header)
			}
		},
		"runsync with wait over answers how the job stands": func(s *stage) {
			p := s.place("")
			p.want(p.do("POST", "/runsync?wait=1000", `{"input":{}}`), http.StatusOK, "status", "IN_QUEUE", "id", "sync-")
		},
		"run answers an id and IN_QUEUE": func(s *stage) {
			p := s.place("")
			if a := p.submit(`{"n":1}`, ""); len(a.body) != 2 {
				s.Errorf("got %s, want an id and a status", a.raw)
			}
		},
		"status by GET and POST": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			for _, method := range []string{"GET", "POST"} {
				p.want(p.do(method, "/status/"+id, ""), http.StatusOK, "status", "IN_QUEUE", "id", id)
			}
		},
		"status with ttl": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			for range 2 {
				p.want(p.do("GET", "/status/"+id+"?ttl=600000", ""), http.StatusOK, "status", "IN_QUEUE")
			}
		},
		"status-sync by GET and POST": func(s *stage) {
			p := s.place("")
			p.work(1)
			for _, method := range []string{"GET", "POST"} {
				id := p.submit(`{"sleepMs":300}`, "").text("id")
				p.want(p.do(method, "/status-sync/"+id+"?wait=30000", ""), http.StatusOK, "status", "COMPLETED")
			}
		},
		"cancel": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			for range 2 {
				p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "id", id, "status", "CANCELLED")
			}
		},
		"retry": func(s *stage) {
			p := s.place("")
			p.work(1)
			id := p.submit(`{"fail":"no"}`, "").text("id")
			p.until(id, "FAILED")
			p.want(p.do("POST", "/retry/"+id, ""), http.StatusOK, "id", id, "status", "IN_QUEUE")
			p.eventually("it failed again", func() bool { a := p.status(id); return a.text("status") == "FAILED" && a.number("retries") == 1 })
		},
		"purge-queue": func(s *stage) {
			p := s.place("")
			first, second := p.submit(`{}`, "").text("id"), p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "2", "status", "completed")
			for _, id := range []string{first, second} {
				p.want(p.status(id), http.StatusOK, "status", "CANCELLED")
			}
		},
		"health counts": healthCounts,
		"bodies of {} where none is read": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/status/"+id, "{}"), http.StatusOK)
			p.want(p.do("POST", "/cancel/"+id, "{}"), http.StatusOK)
			p.want(p.do("POST", "/purge-queue", "{}"), http.StatusOK)
		},
		"doubled slashes": func(s *stage) {
			p := s.place("")
			a := s.send(call{method: "POST", path: "//v2//" + p.id + "//run", body: `{"input":{}}`, wrong: true})
			p.want(a, http.StatusOK, "status", "IN_QUEUE")
		},
		"odd content types": func(s *stage) {
			p := s.place("")
			for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense", "application/json; charset=utf-8"} {
				a := s.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, header: map[string]string{"Content-Type": kind}, wrong: true})
				p.want(a, http.StatusOK, "status", "IN_QUEUE")
			}
		},
		"control": controlOperations,
		"openapi.json": func(s *stage) {
			for _, base := range append([]string{s.control}, s.bases...) {
				resp, err := http.Get(base + "/openapi.json")
				if err != nil {
					s.Fatal(err)
				}
				if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
					s.Errorf("got %d, want 200 without a key", resp.StatusCode)
				}
			}
			s.send(call{method: "GET", path: "/openapi.json"})
		},
		"healthz and readyz": func(s *stage) {
			for _, path := range []string{"/healthz", "/readyz"} {
				a := s.send(call{method: "GET", path: path, header: map[string]string{"Authorization": ""}})
				checks, _ := a.body["checks"].(map[string]any)
				if a.status != http.StatusOK || a.text("status") != "ok" || checks["nats"] != "ok" || checks["jetstream"] != "ok" || a.text("version") == "" {
					s.Errorf("%s: got %d %s, want that all is well", path, a.status, a.raw)
				}
			}
		},
	}
}

func healthCounts(s *stage) {
	p := s.place("")
	p.work(1)
	p.until(p.submit(`{}`, "").text("id"), "COMPLETED")
	p.until(p.submit(`{"fail":"no"}`, "").text("id"), "FAILED")
	p.until(p.submit(`{"forever":true}`, "").text("id"), "IN_PROGRESS")
	p.submit(`{}`, "")
	want := map[string]float64{"completed": 1, "failed": 1, "inProgress": 1, "inQueue": 1, "retried": 0}
	var a answer
	p.eventually("health tells it all", func() bool {
		a = p.do("GET", "/health", "")
		jobs, _ := a.body["jobs"].(map[string]any)
		workers, _ := a.body["workers"].(map[string]any)
		same := workers["running"] == 1.0 && workers["idle"] == 0.0
		for name, n := range want {
			same = same && jobs[name] == n
		}
		return same
	})
}

func controlOperations(s *stage) {
	p := s.place(`"name":"first"`)
	one := "/v1/endpoints/" + p.id
	p.want(s.send(call{method: "GET", path: one}), http.StatusOK, "name", "first", "executionTimeoutMs", "600000", "ttlMs", "8.64e+07")
	p.want(s.send(call{method: "PATCH", path: one, body: `{"name":"second"}`}), http.StatusOK, "name", "second", "version", "2")
	p.want(s.send(call{method: "POST", path: one + "/update", body: `{"name":"third"}`}), http.StatusOK, "name", "third")
	p.want(s.send(call{method: "POST", path: "/v1/endpoints", body: `{"id":"` + p.id + `"}`}), http.StatusConflict, "code", "endpoint_exists")
	s.send(call{method: "GET", path: "/v1/endpoints"})
	p.submit(`{}`, "")
	p.want(s.send(call{method: "DELETE", path: one}), http.StatusConflict, "code", "endpoint_busy")
	p.want(s.send(call{method: "DELETE", path: one + "?force=true"}), http.StatusNoContent)
	p.want(s.send(call{method: "GET", path: one}), http.StatusNotFound, "code", "endpoint_not_found")

	key := s.send(call{method: "POST", path: "/v1/keys", body: `{"name":"ci","scopes":["submit:x"]}`})
	p.want(key, http.StatusOK, "key", "fl_")
	s.send(call{method: "GET", path: "/v1/keys"})
	p.want(s.send(call{method: "PATCH", path: "/v1/keys/" + key.text("id"), body: `{"quota":{"requests":9,"endpoints":null}}`}), http.StatusOK, "name", "ci")
	p.want(s.send(call{method: "DELETE", path: "/v1/keys/" + key.text("id")}), http.StatusNoContent)
	p.want(s.send(call{method: "DELETE", path: "/v1/keys/" + key.text("id")}), http.StatusNotFound, "code", "not_found")
}
