package contract

import (
	"net/http"
	"strings"
)

// workerRows is who is let in over HTTP to work.
func workerRows() map[string]scenario {
	return map[string]scenario{
		"let in, drained, revoked": workersLife,
		"an id is made up": func(s *stage) {
			p := s.place("")
			a := s.send(call{method: "POST", path: p.workers("")})
			p.want(a, http.StatusOK, "endpoint", p.id, "token", "fw_", "draining", "false")
			if a.text("id") == "" {
				s.Errorf("got %s, want an id", a.raw)
			}
		},
		"a new token makes the earlier one worthless": func(s *stage) {
			p := s.place("")
			first := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"w"}`}).text("token")
			second := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"w"}`}).text("token")
			p.pinged("w", second, http.StatusOK)
			p.pinged("w", first, http.StatusUnauthorized)
		},
		"an id that cannot be": func(s *stage) {
			p := s.place("")
			for _, id := range []string{"a b", "é", strings.Repeat("w", 129)} {
				a := s.send(call{method: "POST", path: p.workers(""), body: `{"id":"` + id + `"}`, wrong: true})
				p.want(a, http.StatusBadRequest, "code", "invalid_request", "error", "id")
			}
			p.want(s.send(call{method: "POST", path: p.workers(""), body: `{"id":1}`, wrong: true}), http.StatusBadRequest, "error", "id")
			p.want(s.send(call{method: "POST", path: p.workers(""), body: `{"id":"` + strings.Repeat("w", 128) + `"}`}), http.StatusOK)
		},
		"what is unknown": func(s *stage) {
			p := s.place("")
			p.want(s.send(call{method: "GET", path: "/v1/endpoints/nobody/workers"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: "/v1/endpoints/nobody/workers"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: "/v1/endpoints/nobody/workers/w/drain"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "DELETE", path: "/v1/endpoints/nobody/workers/w"}), http.StatusNotFound, "code", "endpoint_not_found")
			p.want(s.send(call{method: "POST", path: p.workers("/w/drain")}), http.StatusNotFound, "code", "not_found")
			p.want(s.send(call{method: "DELETE", path: p.workers("/w")}), http.StatusNotFound, "code", "not_found")
		},
		"no permission": func(s *stage) {
			p := s.place("")
			p.refused(map[string]string{"GET " + p.workers(""): "", "POST " + p.workers(""): "", "POST " + p.workers("/w/drain"): "", "DELETE " + p.workers("/w"): ""})
		},
	}
}

func workersLife(s *stage) {
	p := s.place("")
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

func (p *place) workers(rest string) string { return "/v1/endpoints/" + p.id + "/workers" + rest }

// pinged waits until a ping with the token gets the status.
func (p *place) pinged(worker, token string, status int) {
	p.t.Helper()
	w := &remote{p, worker, token}
	p.eventually("a ping gets "+http.StatusText(status), func() bool { return w.send("GET", "/ping/"+worker, "").status == status })
}

// refused sends the requests, each a method, a path and a body, without a key
// and with one for all of the endpoint's queue, which does not suffice.
func (p *place) refused(requests map[string]string) {
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
