package contract

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"
)

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

func delivered(s *stage) {
	p, r := s.place(""), s.receiver()
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

func givenUp(s *stage) {
	p, r := s.place(`"webhookRetriesMs":[]`), s.receiver()
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

func paused(s *stage) {
	p, r, other := s.place(""), s.receiver(), s.receiver()
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

func rotated(s *stage) {
	p, r := s.place(""), s.receiver()
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
	p.want(s.send(again), http.StatusBadRequest, "code", "invalid_request", "error", "still signs")
	b := s.send(call{method: "POST", path: p.webhooks("secret"), body: `{"overlapMs":0}`})
	if p.want(b, http.StatusOK, "webhookSecret", "whsec_"); b.text("webhookSecret") == a.text("webhookSecret") {
		s.Errorf("got %s twice", b.raw)
	}
}

func webhookParameters(s *stage) {
	p := s.place("")
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

func webhooksDenied(s *stage) {
	p := s.place("")
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

func (p *place) webhooks(rest string) string { return "/v1/endpoints/" + p.id + "/webhooks/" + rest }

func (p *place) deliveries(query string) (found []map[string]any) {
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
func (p *place) ended(r *receiver) (id string) {
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

func (s *stage) receiver() *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.signature.Store(req.Header.Get("Webhook-Signature"))
		r.got.Add(1)
		w.WriteHeader(max(http.StatusOK, int(r.status.Load())))
	}))
	s.Cleanup(r.Close)
	return r
}
