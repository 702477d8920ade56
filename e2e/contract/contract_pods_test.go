package contract

import (
	"net/http"
	"strings"
)

// podRows is the contract's Pod lookup, and what is around it.
func podRows() map[string]scenario {
	return map[string]scenario{
		"made, changed, stopped, started, deleted": podsLife,
		"templates": func(s *stage) {
			kept(s, "/v1/templates", `{"imageName":"i"}`, `{"name":"a","imageName":"i"}`, "templateId")
		},
		"network volumes": func(s *stage) {
			kept(s, "/v1/networkvolumes", `{"name":"a"}`, `{"name":"a","size":10}`, "networkVolumeId")
		},
		"a list comes in pages": func(s *stage) {
			p := s.place("")
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
		"the five parameters": func(s *stage) {
			p := s.place("")
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
		"a worker is a pod, listed on request": func(s *stage) {
			p := s.place("")
			for _, query := range []string{"endpointId=" + p.id, "endpointId=" + p.id + "&includeWorkers=true"} {
				if got := s.send(call{method: "GET", path: "/v1/pods?" + query}); got.raw != "[]" {
					s.Errorf("%s: got %s, want none", query, got.raw)
				}
			}
		},
		"names, at their bound": func(s *stage) {
			p := s.place("")
			body := func(n int) string { return `{"imageName":"i","locked":false,"name":"` + strings.Repeat("é", n) + `"}` }
			a := s.send(call{method: "POST", path: "/v1/pods", body: body(191)})
			p.want(a, http.StatusCreated)
			s.send(call{method: "DELETE", path: "/v1/pods/" + a.text("id")})
			for _, n := range []int{0, 192} {
				p.want(s.send(call{method: "POST", path: "/v1/pods", body: body(n), wrong: true}), http.StatusBadRequest, "error", "name")
			}
		},
		"what is unknown or cannot be": func(s *stage) {
			p := s.place("")
			p.want(s.send(call{method: "GET", path: "/v1/pods/nobody"}), http.StatusNotFound, "code", "pod_not_found")
			p.want(s.send(call{method: "GET", path: "/v1/pods/a.b", wrong: true}), http.StatusBadRequest, "code", "invalid_request")
			for _, request := range []string{"PATCH ", "DELETE ", "POST /start", "POST /stop", "POST /update"} {
				method, rest, _ := strings.Cut(request, " ")
				p.want(s.send(call{method: method, path: "/v1/pods/nobody" + rest, body: "{}"}), http.StatusNotFound, "code", "pod_not_found")
			}
		},
		"no permission": func(s *stage) {
			p := s.place("")
			p.refused(map[string]string{
				"GET /v1/pods": "", "GET /v1/pods/x": "", "POST /v1/pods": `{"imageName":"i"}`, "PATCH /v1/pods/x": "{}", "DELETE /v1/pods/x": "",
				"POST /v1/pods/x/start": "", "POST /v1/pods/x/stop": "", "GET /v1/templates": "", "GET /v1/networkvolumes": "",
			})
		},
		"a key of their own": func(s *stage) {
			p := s.place("")
			key := s.send(call{method: "POST", path: "/v1/keys", body: `{"scopes":["pods"]}`}).text("key")
			id := p.pod("")
			with := map[string]string{"Authorization": "Bearer " + key}
			p.want(s.send(call{method: "GET", path: "/v1/pods/" + id, header: with}), http.StatusOK, "id", id)
			p.want(s.send(call{method: "POST", path: "/v1/pods/" + id + "/stop", header: with}), http.StatusUnauthorized)
			p.want(s.send(call{method: "GET", path: "/v1/endpoints", header: with}), http.StatusUnauthorized)
		},
	}
}

func podsLife(s *stage) {
	p := s.place("")
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
	for _, request := range []string{"POST /stop", "DELETE "} {
		method, rest, _ := strings.Cut(request, " ")
		p.want(s.send(call{method: method, path: one + rest}), http.StatusConflict, "code", "pod_conflict", "error", "locked")
	}
	p.want(s.send(call{method: "PATCH", path: one, body: `{"locked":false,"name":"second"}`}), http.StatusOK, "name", "second", "locked", "false")
	p.want(s.send(call{method: "POST", path: one + "/update", body: `{"name":"third"}`}), http.StatusOK, "name", "third")
	p.want(s.send(call{method: "POST", path: one + "/stop"}), http.StatusOK, "desiredStatus", "EXITED")
	p.want(s.send(call{method: "POST", path: one + "/start"}), http.StatusOK, "desiredStatus", "RUNNING")
	p.want(s.send(call{method: "DELETE", path: one}), http.StatusNoContent)
	p.want(s.send(call{method: "GET", path: one}), http.StatusOK, "desiredStatus", "TERMINATED", "lastStatusChange", "Deleted by request")
	p.want(s.send(call{method: "POST", path: one + "/start"}), http.StatusConflict, "code", "pod_conflict", "error", "TERMINATED")
}

// kept is the life of a template or a volume.
func kept(s *stage, path, bad, good, field string) {
	p := s.place("")
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
func (p *place) pod(fields string) string {
	p.t.Helper()
	if fields != "" {
		fields = "," + fields
	}
	a := p.send(call{method: "POST", path: "/v1/pods", body: `{"imageName":"flightline.invalid/nothing"` + fields + `}`})
	p.want(a, http.StatusCreated, "desiredStatus", "RUNNING")
	return a.text("id")
}
