package contract

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"flightline/shared/testenv/program"
)

// operations is the contract's table of operations, and its neighbours that
// clients need (docs/design/product.md#methods-and-forms).
func operations() map[string]scenario {
	return map[string]scenario{
		"runsync names its job in a header": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			if a := p.do("POST", "/runsync", `{"input":{"n":1}}`); a.status != http.StatusOK || a.header.Get("X-Job-Id") != a.text("id") {
				s.Errorf("got %s with %v", a.raw, a.header)
			}
		},
		"run answers an id and IN_QUEUE": func(s *run) {
			p := s.endpoint("")
			if a := p.submit(`{"n":1}`, ""); len(a.body) != 2 {
				s.Errorf("got %s, want an id and a status", a.raw)
			}
		},
		"cancel": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			for range 2 {
				p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "id", id, "status", "CANCELLED")
			}
		},
		"retry": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(`{"fail":"no"}`, "").text("id")
			p.until(id, "FAILED")
			p.want(p.do("POST", "/retry/"+id, ""), http.StatusOK, "id", id, "status", "IN_QUEUE")
			p.eventually("it failed again", func() bool { a := p.status(id); return a.text("status") == "FAILED" && a.number("retries") == 1 })
		},
		"purge-queue": func(s *run) {
			p := s.endpoint("")
			first, second := p.submit(`{}`, "").text("id"), p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "2", "status", "completed")
			for _, id := range []string{first, second} {
				p.want(p.status(id), http.StatusOK, "status", "CANCELLED")
			}
		},
		"health counts": healthCounts,
		"bodies of {} where none is read": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/status/"+id, "{}"), http.StatusOK)
			p.want(p.do("POST", "/cancel/"+id, "{}"), http.StatusOK)
			p.want(p.do("POST", "/purge-queue", "{}"), http.StatusOK)
		},
		"doubled slashes": func(s *run) {
			p := s.endpoint("")
			a := s.send(call{method: "POST", path: "//v2//" + p.id + "//run", body: `{"input":{}}`, wrong: true})
			p.want(a, http.StatusOK, "status", "IN_QUEUE")
		},
		"odd content types": func(s *run) {
			p := s.endpoint("")
			for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense", "application/json; charset=utf-8"} {
				a := s.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, header: map[string]string{"Content-Type": kind}, wrong: true})
				p.want(a, http.StatusOK, "status", "IN_QUEUE")
			}
		},
		"control": controlOperations,
		"openapi.json": func(s *run) {
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
		"the root": func(s *run) {
			a := s.send(call{method: "GET", path: "/", header: map[string]string{"Authorization": ""}})
			if a.status != http.StatusOK || a.text("name") != "flightline" || a.text("openapi") != "/openapi.json" {
				s.Errorf("got %d %s, want what this is, without a key", a.status, a.raw)
			}
		},
		"healthz and readyz": func(s *run) {
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

func healthCounts(s *run) {
	p := s.endpoint("")
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

func controlOperations(s *run) {
	p := s.endpoint(`"name":"first"`)
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

// jobFields is the tables of the submission body, the policy and s3Config.
func jobFields() map[string]scenario {
	return map[string]scenario{
		"input reaches the handler verbatim": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			a := p.do("POST", "/runsync", `{"input":{"a":[1,2.5,"é\u0000"],"b":{"c":null}}}`)
			if !strings.Contains(a.raw, `{"a":[1,2.5,"é\u0000"],"b":{"c":null}}`) {
				s.Errorf("got %s", a.raw)
			}
		},
		"null fields":                       accepted(`{"input":{},"webhook":null,"policy":null,"s3Config":null}`),
		"executionTimeout below 5 s":        rejected("policy.executionTimeout", `{"executionTimeout":4999}`),
		"executionTimeout above 7 d":        rejected("policy.executionTimeout", `{"executionTimeout":604800001}`),
		"ttl below 10 s":                    rejected("policy.ttl", `{"ttl":9999}`),
		"ttl above 7 d":                     rejected("policy.ttl", `{"ttl":604800001}`),
		"the endpoint's executionTimeoutMs": settingBounds("executionTimeoutMs", 5000, 604800000),
		"the endpoint's ttlMs":              settingBounds("ttlMs", 10000, 604800000),
		"the endpoint's retentionMs":        settingBounds("retentionMs", 1000, 604800000),
		"the endpoint's syncRetentionMs":    settingBounds("syncRetentionMs", 1000, 300000),
		"the endpoint's leaseMs":            settingBounds("leaseMs", 10000, 3600000),
		"the endpoint's name of 191 characters": func(s *run) {
			p := s.endpoint(`"name":"` + strings.Repeat("é", 191) + `"`)
			a := s.send(call{method: "PATCH", path: "/v1/endpoints/" + p.id, body: `{"name":"` + strings.Repeat("é", 192) + `"}`, wrong: true})
			p.want(a, http.StatusBadRequest, "error", "name")
		},
	}
}

// accepted is a body that /run and /runsync take.
func accepted(body string) scenario {
	return func(s *run) {
		p := s.endpoint("")
		p.want(p.do("POST", "/run", body), http.StatusOK, "status", "IN_QUEUE")
		p.want(p.do("POST", "/runsync?wait=1000", body), http.StatusOK, "status", "IN_QUEUE")
	}
}

// rejected is a policy that neither of them takes; the text names the field.
func rejected(field, policy string) scenario {
	return func(s *run) {
		p := s.endpoint("")
		for _, path := range []string{"/run", "/runsync"} {
			a := p.wrong("POST", path, `{"input":{},"policy":`+policy+`}`)
			p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", field+" must be between")
		}
		p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "0")
	}
}

// settingBounds is a setting of an endpoint at its bounds and beyond.
func settingBounds(field string, least, most int) scenario {
	return func(s *run) {
		p := s.endpoint("")
		for _, value := range []int{least, most, least - 1, most + 1} {
			bad := value < least || value > most
			a := s.send(call{method: "PATCH", path: "/v1/endpoints/" + p.id, body: fmt.Sprintf(`{%q:%d}`, field, value), wrong: bad})
			if bad {
				p.want(a, http.StatusBadRequest, "error", field+" must be between")
			} else {
				p.want(a, http.StatusOK)
			}
		}
	}
}

// authentication is the contract's section of that name.
func authentication() map[string]scenario {
	with := func(key func(w *env) string, status int) scenario {
		return func(s *run) {
			p := s.endpoint("")
			a := p.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, header: map[string]string{"Authorization": key(s.env)}})
			if p.want(a, status); status == http.StatusUnauthorized {
				p.want(a, status, "code", "unauthorized")
			}
		}
	}
	return map[string]scenario{
		"bearer in any case": with(func(w *env) string { return "bEaReR  " + w.key }, http.StatusOK),
		"Basic":              with(func(*env) string { return "Basic YTpi" }, http.StatusUnauthorized),
		"no permission": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			key := s.send(call{method: "POST", path: "/v1/keys", body: `{"scopes":["read:` + p.id + `"]}`}).text("key")
			for path, status := range map[string]int{
				"GET /status/" + id: 200, "GET /health": 200, "GET /status/" + id + "?ttl=600000": 401, "POST /cancel/" + id: 401, "POST /retry/" + id: 401, "POST /purge-queue": 401,
				"GET /stream/" + id + "?wait=1000": 200, "GET /requests": 200,
			} {
				method, rest, _ := strings.Cut(path, " ")
				a := p.send(call{method: method, path: p.path(rest), header: map[string]string{"Authorization": key}})
				if a.status != status {
					s.Errorf("%s: got %d %s, want %d", path, a.status, a.raw, status)
				}
			}
			a := s.send(call{method: "GET", path: "/v1/keys", header: map[string]string{"Authorization": key}})
			p.want(a, http.StatusUnauthorized)
		},
	}
}

// states is the contract's table of states and transitions. The rows about
// time are in ttls and retentions.
func states() map[string]scenario {
	return map[string]scenario{
		"picked up is IN_PROGRESS": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{"forever":true}`, "").text("id")
			p.work(1)
			if a := p.until(id, "IN_PROGRESS"); a.body["delayTime"] == nil || a.text("workerId") == "" {
				s.Errorf("got %s, want delayTime and workerId", a.raw)
			}
		},
		"execution over executionTimeout is TIMED_OUT": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			began := time.Now()
			id := p.submit(`{"forever":true}`, `{"executionTimeout":5000}`).text("id")
			a := p.until(id, "TIMED_OUT")
			if took := time.Since(began); took < 4900*time.Millisecond {
				s.Errorf("took %v, want 5 s or more", took)
			}
			p.want(a, http.StatusOK, "error", "executionTimeout exceeded")
		},
		"the job's executionTimeout overrides the endpoint's": func(s *run) {
			p := s.endpoint(`"executionTimeoutMs":5000`)
			p.work(1)
			id := p.submit(`{"sleepMs":6000}`, `{"executionTimeout":60000}`).text("id")
			p.until(id, "COMPLETED")
		},
		"cancel while IN_QUEUE": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "status", "CANCELLED")
			p.work(1) // it never starts
			p.until(p.submit(`{}`, "").text("id"), "COMPLETED")
			p.want(p.status(id), http.StatusOK, "status", "CANCELLED")
		},
		"cancel while IN_PROGRESS": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(`{"forever":true}`, "").text("id")
			p.until(id, "IN_PROGRESS")
			p.want(p.do("POST", "/cancel/"+id, ""), http.StatusOK, "status", "CANCELLED")
			began := time.Now()
			p.until(p.submit(`{}`, "").text("id"), "COMPLETED") // the slot is free again
			if took := time.Since(began); took > program.Soon/2 {
				s.Errorf("the handler held its slot for %v", took)
			}
		},
		"cancel when COMPLETED is refused":   refused("/cancel/", `{}`, "COMPLETED", "job_finished"),
		"cancel when FAILED is refused":      refused("/cancel/", `{"fail":"x"}`, "FAILED", "job_finished"),
		"retry when COMPLETED is refused":    refused("/retry/", `{}`, "COMPLETED", "not_retryable"),
		"retry while IN_PROGRESS is refused": refused("/retry/", `{"forever":true}`, "IN_PROGRESS", "not_retryable"),
		"purge leaves what is IN_PROGRESS": func(s *run) {
			p := s.endpoint("")
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
	return func(s *run) {
		p := s.endpoint("")
		p.work(1)
		id := p.submit(input, "").text("id")
		p.until(id, status)
		p.want(p.do("POST", operation+id, ""), http.StatusBadRequest, "code", code)
		p.want(p.status(id), http.StatusOK, "status", status)
	}
}

// errorRows is the contract's table of errors. 429 is in rates; 500 is our
// own failure, which nobody can ask for; a handler's is a FAILED job and a 200.
func errorRows() map[string]scenario {
	return map[string]scenario{
		"404 unknown endpoint": func(s *run) {
			for path, method := range map[string]string{
				"/run": "POST", "/runsync": "POST", "/status/x": "GET", "/status-sync/x": "GET", "/stream/x": "GET", "/cancel/x": "POST", "/retry/x": "POST", "/purge-queue": "POST", "/health": "GET", "/requests": "GET",
			} {
				a := s.send(call{method: method, path: "/v2/nobody" + path, body: map[string]string{"POST": `{"input":{}}`}[method]})
				if a.status != http.StatusNotFound || a.text("code") != "endpoint_not_found" {
					s.Errorf("%s: got %d %s", path, a.status, a.raw)
				}
			}
		},
		"404 unknown job": func(s *run) {
			p := s.endpoint("")
			for path, method := range map[string]string{"/status/x": "GET", "/status-sync/x": "GET", "/stream/x": "GET", "/cancel/x": "POST", "/retry/x": "POST"} {
				p.want(p.do(method, path, ""), http.StatusNotFound, "code", "job_not_found")
			}
		},
		"404 a job of another endpoint": func(s *run) {
			p, other := s.endpoint(""), s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			p.want(other.status(id), http.StatusNotFound, "code", "job_not_found")
			p.want(other.do("POST", "/cancel/"+id, ""), http.StatusNotFound, "code", "job_not_found")
		},
		"a worker that fails is a 200 that says FAILED": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			p.want(p.do("POST", "/runsync", `{"input":{"fail":"boom"}}`), http.StatusOK, "status", "FAILED", "error", "boom")
		},
		"a job stays queued while there is no worker": func(s *run) {
			p := s.endpoint("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.do("GET", "/status-sync/"+id+"?wait=1500", ""), http.StatusOK, "status", "IN_QUEUE")
		},
	}
}

// limitRows is the contract's table of other limits, as far as they are not
// in jobFields and retentions.
func limitRows() map[string]scenario {
	const mb = 1 << 20
	all := map[string]scenario{}
	for _, bad := range []string{"999", "300001", "", "x"} {
		all["wait of "+bad] = func(s *run) {
			p := s.endpoint("")
			const text = "wait is invalid; must be between 1000 and 300000"
			id := p.submit(`{}`, "").text("id")
			p.want(p.wrong("POST", "/runsync?wait="+bad, `{"input":{}}`), http.StatusBadRequest, "error", text)
			p.want(p.wrong("GET", "/status-sync/"+id+"?wait="+bad, ""), http.StatusBadRequest, "error", text)
			p.want(p.wrong("GET", "/stream/"+id+"?wait="+bad, ""), http.StatusBadRequest, "error", text)
		}
	}
	for _, row := range []struct {
		path string
		most int
	}{{"/run", 10 * mb}, {"/runsync?wait=1000", 20 * mb}} {
		for _, size := range []int{row.most - 1, row.most, row.most + 1} {
			all[fmt.Sprintf("body of %d bytes at %s", size, row.path)] = sized(row.path, size, row.most)
		}
	}
	return all
}

// heavy lets the scenarios with large bodies run one after the other.
var heavy = make(chan struct{}, 1)

// sized posts a body of exactly size bytes.
func sized(path string, size, most int) scenario {
	return func(s *run) {
		heavy <- struct{}{}
		defer func() { <-heavy }()
		p := s.endpoint("")
		const head, tail = `{"input":{"x":"`, `"}}`
		body := io.MultiReader(strings.NewReader(head), strings.NewReader(strings.Repeat("x", size-len(head)-len(tail))), strings.NewReader(tail))
		a := p.send(call{method: "POST", path: p.path(path), reader: body, wrong: size > most})
		if size > most {
			p.want(a, http.StatusRequestEntityTooLarge, "code", "body_too_large")
			return
		}
		p.want(a, http.StatusOK, "status", "IN_QUEUE")
		if size == most {
			p.work(1)
			a = p.until(a.text("id"), "COMPLETED")
			if want := fmt.Sprintf(`"bytes":%d}`, size-len(`{"input":}`)); !strings.Contains(a.raw, want) {
				s.Errorf("got %.200s, want %s", a.raw, want)
			}
		}
	}
}
