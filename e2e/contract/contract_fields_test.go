package contract

import (
	"fmt"
	"net/http"
	"strings"
)

// jobFields is the tables of the submission body, the policy and s3Config.
func jobFields() map[string]scenario {
	return map[string]scenario{
		"input reaches the handler verbatim": func(s *stage) {
			p := s.place("")
			p.work(1)
			a := p.do("POST", "/runsync", `{"input":{"a":[1,2.5,"é\u0000"],"b":{"c":null}}}`)
			if !strings.Contains(a.raw, `{"a":[1,2.5,"é\u0000"],"b":{"c":null}}`) {
				s.Errorf("got %s", a.raw)
			}
		},
		"an empty input": accepted(`{"input":{}}`),
		"unknown keys":   accepted(`{"input":{},"webhookV2":"x","other":[1]}`),
		"webhook":        accepted(`{"input":{},"webhook":"https://example.com/hook?x=1"}`),
		"null fields":    accepted(`{"input":{},"webhook":null,"policy":null,"s3Config":null}`),
		"lowPriority": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, `{"lowPriority":true}`).text("id")
			p.work(1)
			p.until(id, "COMPLETED") // it runs when a worker is free
		},
		"s3Config is in no answer": func(s *stage) {
			p := s.place("")
			p.work(1)
			a := p.do("POST", "/runsync", `{"input":{},"s3Config":{"accessId":"an-id","accessSecret":"a-secret","bucketName":"b","endpointUrl":"https://s3.example.com"}}`)
			for _, answer := range []string{a.raw, p.status(a.text("id")).raw} {
				if strings.Contains(answer, "a-secret") || strings.Contains(answer, "an-id") {
					s.Errorf("got %s", answer)
				}
			}
		},
		"executionTimeout of 5 s":           accepted(`{"input":{},"policy":{"executionTimeout":5000}}`),
		"executionTimeout of 7 d":           accepted(`{"input":{},"policy":{"executionTimeout":604800000}}`),
		"executionTimeout below 5 s":        rejected("policy.executionTimeout", `{"executionTimeout":4999}`),
		"executionTimeout above 7 d":        rejected("policy.executionTimeout", `{"executionTimeout":604800001}`),
		"ttl of 10 s":                       accepted(`{"input":{},"policy":{"ttl":10000}}`),
		"ttl of 7 d":                        accepted(`{"input":{},"policy":{"ttl":604800000}}`),
		"ttl below 10 s":                    rejected("policy.ttl", `{"ttl":9999}`),
		"ttl above 7 d":                     rejected("policy.ttl", `{"ttl":604800001}`),
		"the endpoint's executionTimeoutMs": settingBounds("executionTimeoutMs", 5000, 604800000),
		"the endpoint's ttlMs":              settingBounds("ttlMs", 10000, 604800000),
		"the endpoint's retentionMs":        settingBounds("retentionMs", 1000, 604800000),
		"the endpoint's syncRetentionMs":    settingBounds("syncRetentionMs", 1000, 300000),
		"the endpoint's leaseMs":            settingBounds("leaseMs", 10000, 3600000),
		"the endpoint's name of 191 characters": func(s *stage) {
			p := s.place(`"name":"` + strings.Repeat("é", 191) + `"`)
			a := s.send(call{method: "PATCH", path: "/v1/endpoints/" + p.id, body: `{"name":"` + strings.Repeat("é", 192) + `"}`, wrong: true})
			p.want(a, http.StatusBadRequest, "error", "name")
		},
	}
}

// accepted is a body that /run and /runsync take.
func accepted(body string) scenario {
	return func(s *stage) {
		p := s.place("")
		p.want(p.do("POST", "/run", body), http.StatusOK, "status", "IN_QUEUE")
		p.want(p.do("POST", "/runsync?wait=1000", body), http.StatusOK, "status", "IN_QUEUE")
	}
}

// rejected is a policy that neither of them takes; the text names the field.
func rejected(field, policy string) scenario {
	return func(s *stage) {
		p := s.place("")
		for _, path := range []string{"/run", "/runsync"} {
			a := p.wrong("POST", path, `{"input":{},"policy":`+policy+`}`)
			p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", field+" must be between")
		}
		p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "0")
	}
}

// settingBounds is a setting of an endpoint at its bounds and beyond.
func settingBounds(field string, least, most int) scenario {
	return func(s *stage) {
		p := s.place("")
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
	with := func(key func(w *world) string, status int) scenario {
		return func(s *stage) {
			p := s.place("")
			a := p.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, header: map[string]string{"Authorization": key(s.world)}})
			if p.want(a, status); status == http.StatusUnauthorized {
				p.want(a, status, "code", "unauthorized")
			}
		}
	}
	return map[string]scenario{
		"Bearer KEY":         with(func(w *world) string { return "Bearer " + w.key }, http.StatusOK),
		"the bare key":       with(func(w *world) string { return w.key }, http.StatusOK),
		"bearer in any case": with(func(w *world) string { return "bEaReR  " + w.key }, http.StatusOK),
		"no key":             with(func(*world) string { return "" }, http.StatusUnauthorized),
		"a wrong key":        with(func(*world) string { return "Bearer nobodys-key" }, http.StatusUnauthorized),
		"Basic":              with(func(*world) string { return "Basic YTpi" }, http.StatusUnauthorized),
		"no permission": func(s *stage) {
			p := s.place("")
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
