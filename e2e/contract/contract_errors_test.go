package contract

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// errorRows is the contract's table of errors. 429 is in rates; 500 is our
// own failure, which nobody can ask for; a handler's is a FAILED job and a 200.
func errorRows() map[string]scenario {
	return map[string]scenario{
		"400 malformed request": func(s *stage) {
			p := s.place("")
			for _, body := range []string{"", "{", "[]", `{"input":1}`, `{}`} {
				p.want(p.wrong("POST", "/run", body), http.StatusBadRequest, "code", "invalid_request")
			}
		},
		"400 malformed parameters": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			for _, rest := range []string{"/status/" + id + "?ttl=1", "/status-sync/" + id + "?wait=x", "/stream/" + id + "?format=xml", "/requests?limit=0"} {
				p.want(p.wrong("GET", rest, ""), http.StatusBadRequest, "code", "invalid_request")
			}
		},
		"401 invalid key": func(s *stage) {
			a := s.send(call{method: "GET", path: "/v2/nobody/health", header: map[string]string{"Authorization": "nobody"}})
			if a.status != http.StatusUnauthorized || a.text("code") != "unauthorized" {
				s.Errorf("got %d %s", a.status, a.raw)
			}
		},
		"404 unknown endpoint": func(s *stage) {
			for path, method := range map[string]string{
				"/run": "POST", "/runsync": "POST", "/status/x": "GET", "/status-sync/x": "GET", "/stream/x": "GET", "/cancel/x": "POST", "/retry/x": "POST", "/purge-queue": "POST", "/health": "GET", "/requests": "GET",
			} {
				a := s.send(call{method: method, path: "/v2/nobody" + path, body: map[string]string{"POST": `{"input":{}}`}[method]})
				if a.status != http.StatusNotFound || a.text("code") != "endpoint_not_found" {
					s.Errorf("%s: got %d %s", path, a.status, a.raw)
				}
			}
		},
		"404 unknown job": func(s *stage) {
			p := s.place("")
			for path, method := range map[string]string{"/status/x": "GET", "/status-sync/x": "GET", "/stream/x": "GET", "/cancel/x": "POST", "/retry/x": "POST"} {
				p.want(p.do(method, path, ""), http.StatusNotFound, "code", "job_not_found")
			}
		},
		"404 a job of another endpoint": func(s *stage) {
			p, other := s.place(""), s.place("")
			id := p.submit(`{}`, "").text("id")
			p.want(other.status(id), http.StatusNotFound, "code", "job_not_found")
			p.want(other.do("POST", "/cancel/"+id, ""), http.StatusNotFound, "code", "job_not_found")
		},
		"a worker that fails is a 200 that says FAILED": func(s *stage) {
			p := s.place("")
			p.work(1)
			p.want(p.do("POST", "/runsync", `{"input":{"fail":"boom"}}`), http.StatusOK, "status", "FAILED", "error", "boom")
		},
		"a job stays queued while there is no worker": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			p.want(p.do("GET", "/status-sync/"+id+"?wait=1500", ""), http.StatusOK, "status", "IN_QUEUE")
		},
	}
}

// limitRows is the contract's table of other limits, as far as they are not
// in jobFields and retentions.
func limitRows() map[string]scenario {
	const mb = 1 << 20
	all := map[string]scenario{
		"wait of 1000 ms": func(s *stage) {
			p := s.place("")
			a := p.do("POST", "/runsync?wait=1000", `{"input":{}}`)
			if took := a.answered.Sub(a.sent); took < 990*millisecond || took > 60*second { // without it: 90 s
				s.Errorf("took %v", took)
			}
		},
		"wait of 300000 ms": func(s *stage) {
			p := s.place("")
			p.work(1)
			p.want(p.do("POST", "/runsync?wait=300000", `{"input":{"sleepMs":1500}}`), http.StatusOK, "status", "COMPLETED")
		},
	}
	for _, bad := range []string{"999", "300001", "", "x"} {
		all["wait of "+bad] = func(s *stage) {
			p := s.place("")
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
	return func(s *stage) {
		heavy <- struct{}{}
		defer func() { <-heavy }()
		p := s.place("")
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
