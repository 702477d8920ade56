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
	listed := func(p *place, query string) (ids []string, a answer) {
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
		"newest first, page by page": func(s *stage) {
			p := s.place("")
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
		"by status": func(s *stage) {
			p := s.place(`"limits":{"requests":{"requests":0,"concurrent":0}}`)
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
				"?status=COMPLETED,FAILED": {done, failed}, "?status=CANCELLED": nil, "?status=TIMED_OUT": nil, "?limit=100": {waiting, running, done, failed},
			} {
				var got []string
				p.eventually("requests"+query+" lists them", func() bool { got, _ = listed(p, query); return fmt.Sprint(got) == fmt.Sprint(want) })
			}
		},
		"limit of 1 and 100": func(s *stage) {
			p := s.place("")
			for _, limit := range []string{"1", "100"} {
				_, a := listed(p, "?limit="+limit)
				p.want(a, http.StatusOK, "limit", limit)
			}
			for _, limit := range []string{"0", "101", "x", "-1"} {
				p.want(p.wrong("GET", "/requests?limit="+limit, ""), http.StatusBadRequest, "code", "invalid_request", "error", "limit")
			}
		},
		"a status that is none": func(s *stage) {
			p := s.place("")
			p.want(p.wrong("GET", "/requests?status=RUNNING", ""), http.StatusBadRequest, "error", "IN_QUEUE")
		},
	}
}

// idempotencyRows is Idempotency-Key (product.md 12) and Prefer.
func idempotencyRows() map[string]scenario {
	keyed := func(p *place, path, body, key string) answer {
		return p.send(call{method: "POST", path: p.path(path), body: body, header: map[string]string{"Idempotency-Key": key}})
	}
	return map[string]scenario{
		"the same key and body at run": func(s *stage) {
			p := s.place("")
			first := keyed(p, "/run", `{"input":{}}`, "k")
			again := keyed(p, "/run", `{"input":{}}`, "k")
			p.want(again, http.StatusOK, "id", first.text("id"))
			if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
				s.Errorf("got %v and %v", first.header, again.header)
			}
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "1")
		},
		"the same key and body at runsync": func(s *stage) {
			p := s.place("")
			p.work(1)
			first := keyed(p, "/runsync", `{"input":{}}`, "k")
			again := keyed(p, "/runsync", `{"input":{}}`, "k")
			p.want(again, http.StatusOK, "id", first.text("id"), "status", "COMPLETED")
		},
		"32 at once are one job": func(s *stage) {
			p := s.place("")
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
		"another body": func(s *stage) {
			p := s.place("")
			keyed(p, "/run", `{"input":{}}`, "k")
			p.want(keyed(p, "/run", `{"input":{"n":1}}`, "k"), http.StatusUnprocessableEntity, "code", "idempotency_mismatch")
		},
		"another operation": func(s *stage) {
			p := s.place("")
			keyed(p, "/run", `{"input":{}}`, "k")
			p.want(keyed(p, "/runsync?wait=1000", `{"input":{}}`, "k"), http.StatusUnprocessableEntity, "code", "idempotency_mismatch")
		},
		"a key of another endpoint is another key": func(s *stage) {
			p, other := s.place(""), s.place("")
			if a, b := keyed(p, "/run", `{"input":{}}`, "k"), keyed(other, "/run", `{"input":{}}`, "k"); a.text("id") == b.text("id") {
				s.Errorf("got %s twice", a.raw)
			}
		},
		"a key of 255 characters, and one more": func(s *stage) {
			p := s.place("")
			p.want(keyed(p, "/run", `{"input":{}}`, strings.Repeat("k", 255)), http.StatusOK)
			a := p.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, wrong: true, header: map[string]string{"Idempotency-Key": strings.Repeat("k", 256)}})
			p.want(a, http.StatusBadRequest, "error", "Idempotency-Key")
		},
		"Prefer: wait": func(s *stage) {
			p := s.place("")
			p.work(1)
			a := p.send(call{method: "POST", path: p.path("/run"), body: `{"input":{}}`, header: map[string]string{"Prefer": "wait=20"}})
			p.want(a, http.StatusOK, "status", "COMPLETED")
			if a.header.Get("Preference-Applied") == "" {
				s.Errorf("got %v", a.header)
			}
		},
	}
}
