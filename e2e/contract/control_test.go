package contract

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"
)

// podRows is the contract's Pod lookup, and what is around it.
func podRows() map[string]scenario {
	return map[string]scenario{
		"made, changed, stopped, started, deleted": podsLife,
		"templates": func(s *run) {
			kept(s, "/v1/templates", `{"imageName":"i"}`, `{"name":"a","imageName":"i"}`, "templateId")
		},
		"network volumes": func(s *run) {
			kept(s, "/v1/networkvolumes", `{"name":"a"}`, `{"name":"a","size":10}`, "networkVolumeId")
		},
		"a list comes in pages": func(s *run) {
			p := s.endpoint("")
			query := "id=" + p.pod("") + "&id=" + p.pod("") + "&limit=1"
			first := s.send(call{method: "GET", path: "/v1/pods?" + query})
			next, _, linked := strings.Cut(strings.TrimPrefix(first.header.Get("Link"), "<"), `>; rel="next"`)
			if !linked || !strings.HasPrefix(next, "/v1/pods?") {
				s.Fatalf("got Link %q of %s, want the next page", first.header.Get("Link"), first.raw)
			}
			second := s.send(call{method: "GET", path: next})
			if second.header.Get("Link") != "" || second.raw == first.raw || strings.Count(first.raw+second.raw, `"desiredStatus"`) != 2 {
				s.Errorf("got %s and %s, want one pod each", first.raw, second.raw)
			}
			for _, path := range []string{"/v1/pods", "/v1/templates", "/v1/networkvolumes"} {
				p.want(s.send(call{method: "GET", path: path + "?limit=1001", wrong: true}), http.StatusBadRequest, "code", "invalid_request", "error", "limit")
			}
		},
		"the five parameters": func(s *run) {
			p := s.endpoint("")
			id := p.pod("")
			const all = "includeMachine=true&includeNetworkVolume=true&includeSavingsPlans=true&includeTemplate=true&includeWorkers=true"
			a := s.send(call{method: "GET", path: "/v1/pods/" + id + "?" + all})
			p.want(a, http.StatusOK, "id", id, "savingsPlans", "[]")
			for name := range strings.SplitSeq(strings.ReplaceAll(all, "=true", ""), "&") {
				for _, path := range []string{"/v1/pods/" + id, "/v1/pods"} {
					b := s.send(call{method: "GET", path: path + "?" + name + "=perhaps", wrong: true})
					p.want(b, http.StatusBadRequest, "code", "invalid_request", "error", name)
				}
			}
		},
		"a worker is a pod, listed on request": func(s *run) {
			p := s.endpoint("")
			for _, query := range []string{"endpointId=" + p.id, "endpointId=" + p.id + "&includeWorkers=true"} {
				if got := s.send(call{method: "GET", path: "/v1/pods?" + query}); got.raw != "[]" {
					s.Errorf("%s: got %s, want none", query, got.raw)
				}
			}
		},
		"names, at their bound": func(s *run) {
			p := s.endpoint("")
			body := func(n int) string { return `{"imageName":"i","locked":false,"name":"` + strings.Repeat("é", n) + `"}` }
			a := s.send(call{method: "POST", path: "/v1/pods", body: body(191)})
			p.want(a, http.StatusCreated)
			s.send(call{method: "DELETE", path: "/v1/pods/" + a.text("id")})
			for _, n := range []int{0, 192} {
				p.want(s.send(call{method: "POST", path: "/v1/pods", body: body(n), wrong: true}), http.StatusBadRequest, "error", "name")
			}
		},
		"what is unknown or cannot be": func(s *run) {
			p := s.endpoint("")
			p.want(s.send(call{method: "GET", path: "/v1/pods/nobody"}), http.StatusNotFound, "code", "pod_not_found")
			p.want(s.send(call{method: "GET", path: "/v1/pods/a.b", wrong: true}), http.StatusBadRequest, "code", "invalid_request")
			for _, request := range []string{"PATCH ", "DELETE ", "POST /start", "POST /stop", "POST /restart", "POST /reset", "POST /update"} {
				method, rest, _ := strings.Cut(request, " ")
				p.want(s.send(call{method: method, path: "/v1/pods/nobody" + rest, body: "{}"}), http.StatusNotFound, "code", "pod_not_found")
			}
		},
		"what RunPod's tools list and is not kept": func(s *run) {
			for _, path := range []string{"/containerregistryauth", "/billing/pods", "/billing/endpoints", "/billing/networkvolumes"} {
				if a := s.send(call{method: "GET", path: "/v1" + path}); a.status != http.StatusOK || strings.TrimSpace(a.raw) != "[]" {
					s.Errorf("%s: got %d %s, want an empty list", path, a.status, a.raw)
				}
			}
		},
		"no permission": func(s *run) {
			p := s.endpoint("")
			p.refused(map[string]string{
				"GET /v1/pods": "", "GET /v1/pods/x": "", "POST /v1/pods": `{"imageName":"i"}`, "PATCH /v1/pods/x": "{}", "DELETE /v1/pods/x": "",
				"POST /v1/pods/x/start": "", "POST /v1/pods/x/stop": "", "POST /v1/pods/x/restart": "", "POST /v1/pods/x/reset": "", "GET /v1/billing/pods": "", "GET /v1/templates": "", "GET /v1/networkvolumes": "",
			})
		},
		"a key of their own": func(s *run) {
			p := s.endpoint("")
			key := s.send(call{method: "POST", path: "/v1/keys", body: `{"scopes":["pods"]}`}).text("key")
			id := p.pod("")
			with := map[string]string{"Authorization": "Bearer " + key}
			p.want(s.send(call{method: "GET", path: "/v1/pods/" + id, header: with}), http.StatusOK, "id", id)
			p.want(s.send(call{method: "POST", path: "/v1/pods/" + id + "/stop", header: with}), http.StatusUnauthorized)
			p.want(s.send(call{method: "GET", path: "/v1/endpoints", header: with}), http.StatusUnauthorized)
		},
	}
}

func podsLife(s *run) {
	p := s.endpoint("")
	id := p.pod(`"env":{"MODEL":"small","HF_TOKEN":"hf_secret"},"locked":true`)
	one := "/v1/pods/" + id
	a := s.send(call{method: "GET", path: one})
	p.want(a, http.StatusOK, "desiredStatus", "RUNNING", "locked", "true", "endpointId", "nil", "publicIp", "nil", "portMappings", "map[]")
	if strings.Contains(a.raw, "hf_secret") {
		s.Errorf("got %s, want the secret hidden", a.raw)
	}
	p.eventually("it is listed", func() bool {
		list := s.send(call{method: "GET", path: "/v1/pods?id=" + id + "&desiredStatus=RUNNING"})
		return strings.Contains(list.raw, id)
	})
	for _, request := range []string{"POST /stop", "POST /restart", "POST /reset", "DELETE "} {
		method, rest, _ := strings.Cut(request, " ")
		p.want(s.send(call{method: method, path: one + rest}), http.StatusConflict, "code", "pod_conflict", "error", "locked")
	}
	p.want(s.send(call{method: "PATCH", path: one, body: `{"locked":false,"name":"second"}`}), http.StatusOK, "name", "second", "locked", "false")
	p.want(s.send(call{method: "POST", path: one + "/update", body: `{"name":"third"}`}), http.StatusOK, "name", "third")
	p.want(s.send(call{method: "POST", path: one + "/stop"}), http.StatusOK, "desiredStatus", "EXITED")
	p.want(s.send(call{method: "POST", path: one + "/start"}), http.StatusOK, "desiredStatus", "RUNNING")
	p.want(s.send(call{method: "POST", path: one + "/restart"}), http.StatusOK, "desiredStatus", "RUNNING")
	p.want(s.send(call{method: "POST", path: one + "/reset"}), http.StatusOK, "desiredStatus", "RUNNING", "imageName", "flightline.invalid/nothing")
	p.want(s.send(call{method: "DELETE", path: one}), http.StatusNoContent)
	p.want(s.send(call{method: "GET", path: one}), http.StatusOK, "desiredStatus", "TERMINATED", "lastStatusChange", "Deleted by request")
	p.want(s.send(call{method: "POST", path: one + "/start"}), http.StatusConflict, "code", "pod_conflict", "error", "TERMINATED")
}

// kept is the life of a template or a volume.
func kept(s *run, path, bad, good, field string) {
	p := s.endpoint("")
	p.want(s.send(call{method: "POST", path: path, body: bad, wrong: true}), http.StatusBadRequest, "code", "invalid_request")
	made := s.send(call{method: "POST", path: path, body: good})
	p.want(made, http.StatusOK, "name", "a")
	one := path + "/" + made.text("id")
	p.want(s.send(call{method: "GET", path: one}), http.StatusOK, "name", "a")
	p.want(s.send(call{method: "PATCH", path: one, body: `{"name":"b"}`}), http.StatusOK, "name", "b")
	p.want(s.send(call{method: "POST", path: one + "/update", body: `{"name":"c"}`}), http.StatusOK, "name", "c")
	if list := s.send(call{method: "GET", path: path}); !strings.Contains(list.raw, made.text("id")) {
		s.Errorf("got %s, want %s in it", list.raw, made.text("id"))
	}
	id := p.pod(`"` + field + `":"` + made.text("id") + `"`)
	p.eventually("it is in use", func() bool {
		a := s.send(call{method: "DELETE", path: one})
		return a.status == http.StatusConflict && a.text("code") == "in_use"
	})
	p.want(s.send(call{method: "GET", path: "/v1/pods/" + id + "?includeTemplate=true&includeNetworkVolume=true"}), http.StatusOK)
	p.want(s.send(call{method: "DELETE", path: "/v1/pods/" + id}), http.StatusNoContent)
	p.eventually("it can be deleted", func() bool { return s.send(call{method: "DELETE", path: one}).status == http.StatusNoContent })
	p.want(s.send(call{method: "GET", path: one}), http.StatusNotFound, "code", "not_found")
}

// pod makes a pod that no driver of the test's site starts, since none has it.
func (p *testEndpoint) pod(fields string) string {
	p.t.Helper()
	if fields != "" {
		fields = "," + fields
	}
	a := p.send(call{method: "POST", path: "/v1/pods", body: `{"imageName":"flightline.invalid/nothing"` + fields + `}`})
	p.want(a, http.StatusCreated, "desiredStatus", "RUNNING")
	return a.text("id")
}

// webhookRows is what becomes of webhooks, and what an operator does about it.
func webhookRows() map[string]scenario {
	return map[string]scenario{
		"delivered and listed":           delivered,
		"given up, and replayed since":   givenUp,
		"paused and resumed":             paused,
		"a new secret beside the old":    rotated,
		"parameters that cannot be":      webhookParameters,
		"what is unknown, no permission": webhooksDenied,
	}
}

func delivered(s *run) {
	p, r := s.endpoint(""), s.receiver()
	for range 2 {
		p.ended(r)
	}
	id := p.ended(r)
	p.eventually("all are listed", func() bool {
		return len(p.deliveries("?limit=500")) == 3 && len(p.deliveries("?job="+id)) == 1
	})
	one := p.deliveries("?job=" + id)[0]
	if one["outcome"] != "delivered" || one["status"] != 200.0 || one["replay"] != false || r.got.Load() < 3 {
		s.Errorf("got %v and %d received, want it delivered", one, r.got.Load())
	}
	first := s.send(call{method: "GET", path: p.webhooks("deliveries?limit=2")})
	p.want(first, http.StatusOK, "hasMore", "true")
	if rest := p.deliveries("?limit=2&cursor=" + first.text("cursor")); len(rest) != 1 {
		s.Errorf("second page: got %v, want one", rest)
	}
	if failed := p.deliveries("?failed=true"); len(failed) != 0 {
		s.Errorf("got %v, want none that failed", failed)
	}
	p.want(s.send(call{method: "POST", path: p.webhooks("replay"), body: `{"job":"` + id + `"}`}), http.StatusOK, "replayed", "1")
	p.eventually("the replay is listed", func() bool {
		list := p.deliveries("?job=" + id)
		return len(list) == 2 && list[0]["replay"] == true
	})
}

func givenUp(s *run) {
	p, r := s.endpoint(`"webhookRetriesMs":[]`), s.receiver()
	r.status.Store(http.StatusInternalServerError)
	began := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	id := p.ended(r)
	p.eventually("it is given up", func() bool {
		list := p.deliveries("?failed=true&since=" + began)
		return len(list) == 1 && list[0]["outcome"] == "given_up" && list[0]["status"] == 500.0
	})
	p.eventually("the destination is listed", func() bool {
		a := s.send(call{method: "GET", path: p.webhooks("destinations")})
		return a.status == http.StatusOK && strings.Contains(a.raw, r.URL) && strings.Contains(a.raw, `"failures":1`)
	})
	r.status.Store(http.StatusOK)
	p.eventually("it is sent again", func() bool {
		return s.send(call{method: "POST", path: p.webhooks("replay"), body: `{"since":"` + began + `"}`}).number("replayed") == 1
	})
	p.eventually("it is delivered", func() bool {
		list := p.deliveries("?job=" + id)
		return len(list) == 2 && list[0]["outcome"] == "delivered" && list[0]["replay"] == true
	})
}

func paused(s *run) {
	p, r, other := s.endpoint(""), s.receiver(), s.receiver()
	a := s.send(call{method: "POST", path: p.webhooks("pause"), body: fmt.Sprintf(`{"destination":"%s/hook","reason":"moves house"}`, r.URL)})
	p.want(a, http.StatusOK, "destination", r.URL, "paused", "true", "reason", "moves house")
	p.ended(r)
	p.ended(other)
	p.eventually("others get theirs", func() bool { return other.got.Load() == 1 })
	if n := r.got.Load(); n != 0 {
		s.Errorf("got %d webhooks while paused, want none", n)
	}
	resume := call{method: "POST", path: p.webhooks("resume"), body: `{"destination":"` + r.URL + `"}`}
	p.want(s.send(resume), http.StatusOK)
	p.eventually("what was kept back is sent", func() bool { return r.got.Load() == 1 })
	p.want(s.send(resume), http.StatusOK, "replayed", "0")
	if list := s.send(call{method: "GET", path: p.webhooks("destinations")}); list.raw != "[]" {
		s.Errorf("got %s, want no destination", list.raw)
	}
}

func rotated(s *run) {
	p, r := s.endpoint(""), s.receiver()
	a := s.send(call{method: "POST", path: p.webhooks("secret"), body: `{"overlapMs":3600000}`})
	p.want(a, http.StatusOK, "webhookSecret", "whsec_", "overlapUntil", "T")
	p.eventually("both secrets sign", func() bool {
		before := r.got.Load()
		p.ended(r)
		p.eventually("a webhook comes", func() bool { return r.got.Load() > before })
		signature, _ := r.signature.Load().(string)
		return strings.Count(signature, "v1,") == 2
	})
	again := call{method: "POST", path: p.webhooks("secret"), body: `{"overlapMs":1000}`}
	p.want(s.send(again), http.StatusConflict, "code", "in_use", "error", "still signs")
	b := s.send(call{method: "POST", path: p.webhooks("secret"), body: `{"overlapMs":0}`})
	if p.want(b, http.StatusOK, "webhookSecret", "whsec_"); b.text("webhookSecret") == a.text("webhookSecret") {
		s.Errorf("got %s twice", b.raw)
	}
}

func webhookParameters(s *run) {
	p := s.endpoint("")
	for query, text := range map[string]string{"limit=0": "limit", "limit=501": "limit", "since=now": "since", "cursor=x": "cursor", "job=a.b": "job"} {
		a := s.send(call{method: "GET", path: p.webhooks("deliveries?" + query), wrong: true})
		p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", text)
	}
	for _, row := range [][3]string{
		{"replay", `{}`, "job and since"},
		{"replay", `{"since":"now"}`, "since"},
		{"replay", `[]`, "JSON object"},
		{"pause", `{"destination":"nowhere"}`, "destination"},
		{"pause", `{"destination":"http://h/","reason":"` + strings.Repeat("x", 501) + `"}`, "reason"},
		{"resume", `{"destination":"ftp://h/"}`, "destination"},
		{"secret", `{"overlapMs":-1}`, "overlapMs"},
		{"secret", `{"overlapMs":2592000001}`, "overlapMs"},
	} {
		a := s.send(call{method: "POST", path: p.webhooks(row[0]), body: row[1], wrong: true})
		p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", row[2])
	}
}

func webhooksDenied(s *run) {
	p := s.endpoint("")
	requests := map[string]string{
		"GET deliveries": "", "GET destinations": "", "POST replay": `{"job":"nothing"}`, "POST secret": `{}`,
		"POST pause": `{"destination":"http://h/"}`, "POST resume": `{"destination":"http://h/"}`,
	}
	full := map[string]string{}
	for request, body := range requests {
		method, rest, _ := strings.Cut(request, " ")
		full[method+" "+p.webhooks(rest)] = body
		a := s.send(call{method: method, path: "/v1/endpoints/nobody/webhooks/" + rest, body: body})
		p.want(a, http.StatusNotFound, "code", "endpoint_not_found")
	}
	p.refused(full)
	p.want(s.send(call{method: "POST", path: p.webhooks("replay"), body: requests["POST replay"]}), http.StatusNotFound, "code", "job_not_found")
}

func (p *testEndpoint) webhooks(rest string) string {
	return "/v1/endpoints/" + p.id + "/webhooks/" + rest
}

func (p *testEndpoint) deliveries(query string) (found []map[string]any) {
	p.t.Helper()
	a := p.send(call{method: "GET", path: p.webhooks("deliveries" + query)})
	p.want(a, http.StatusOK)
	list, _ := a.body["deliveries"].([]any)
	for _, item := range list {
		one, _ := item.(map[string]any)
		found = append(found, one)
	}
	return found
}

// ended is a job that ends and has a webhook to the receiver.
func (p *testEndpoint) ended(r *receiver) (id string) {
	p.t.Helper()
	a := p.do("POST", "/run", `{"input":{},"webhook":"`+r.URL+`/hook"}`)
	p.want(a, http.StatusOK)
	p.want(p.do("POST", "/cancel/"+a.text("id"), ""), http.StatusOK)
	return a.text("id")
}

// receiver takes webhooks.
type receiver struct {
	*httptest.Server
	status    atomic.Int64 // that it answers, 0 for 200
	got       atomic.Int64
	signature atomic.Value // of the last one
}

func (s *run) receiver() *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.signature.Store(req.Header.Get("Webhook-Signature"))
		r.got.Add(1)
		w.WriteHeader(max(http.StatusOK, int(r.status.Load())))
	}))
	s.Cleanup(r.Close)
	return r
}
