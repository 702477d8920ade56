package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"flightline/e2e/site"
)

// eventRows is what is told of jobs, live and from the log.
func eventRows() map[string]scenario {
	return map[string]scenario{
		"a job's life": func(s *stage) {
			p := s.place("")
			p.work(1)
			id := p.submit(`{}`, "").text("id")
			p.heard("/events/"+id+"?cursor=0&follow=false", "job.queued", "job.started", "job.completed")
			first := p.told("/events/"+id+"?cursor=0&follow=false", nil)[0]
			var cloud map[string]any
			if err := json.Unmarshal([]byte(first.data), &cloud); err != nil {
				s.Fatal(err)
			}
			for field, want := range map[string]string{"specversion": "1.0", "source": "/v2/" + p.id, "type": "job.queued", "subject": id} {
				if cloud[field] != want {
					s.Errorf("%s: got %v, want %s", field, cloud[field], want)
				}
			}
		},
		"an endpoint's jobs, by type": func(s *stage) {
			p := s.place("")
			for range 2 {
				p.want(p.do("POST", "/cancel/"+p.submit(`{}`, "").text("id"), ""), http.StatusOK)
			}
			p.heard("/events?since=10m&follow=false&type=job.cancelled", "job.cancelled", "job.cancelled")
			p.heard("/events?cursor=0&follow=false&type=job.failed,job.timed_out")
		},
		"resumed with a cursor and with Last-Event-ID": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			p.do("POST", "/cancel/"+id, "")
			p.heard("/events?cursor=0&follow=false", "job.queued", "job.cancelled")
			first := p.told("/events?cursor=0&follow=false", nil)[0]
			byCursor := p.told("/events?follow=false&cursor="+first.id, nil)
			byHeader := p.told("/events?follow=false", map[string]string{"Last-Event-ID": first.id})
			for _, got := range [][]serverEvent{byCursor, byHeader} {
				if names(got) != "job.cancelled" {
					s.Errorf("after %s: got %v, want the one behind it", first.id, got)
				}
			}
		},
		"followed live": followed,
		"parameters that cannot be": func(s *stage) {
			p := s.place("")
			id := p.submit(`{}`, "").text("id")
			for _, query := range []string{"type=job.lost", "since=yesterday", "follow=perhaps", "cursor=-1", "cursor=x"} {
				name, _, _ := strings.Cut(query, "=")
				for _, path := range []string{"/events", "/events/" + id} {
					p.want(p.wrong("GET", path+"?"+query, ""), http.StatusBadRequest, "code", "invalid_request", "error", name)
				}
			}
			a := p.send(call{method: "GET", path: p.path("/events"), header: map[string]string{"Last-Event-ID": "x"}, wrong: true})
			p.want(a, http.StatusBadRequest, "error", "Last-Event-ID")
		},
		"what is unknown": func(s *stage) {
			p := s.place("")
			p.want(p.do("GET", "/events/nothing?follow=false", ""), http.StatusNotFound, "code", "job_not_found")
			for _, path := range []string{"/v2/nobody/events", "/v2/nobody/events/nothing"} {
				p.want(p.send(call{method: "GET", path: path}), http.StatusNotFound, "code", "endpoint_not_found")
			}
		},
		"no permission": func(s *stage) {
			p := s.place("")
			key := s.send(call{method: "POST", path: "/v1/keys", body: `{"scopes":["read:another"]}`}).text("key")
			for _, key := range []string{"", key} {
				for _, path := range []string{"/events", "/events/nothing"} {
					a := p.send(call{method: "GET", path: p.path(path), header: map[string]string{"Authorization": key}})
					p.want(a, http.StatusUnauthorized, "code", "unauthorized")
				}
			}
		},
	}
}

// followed hears of a job that is submitted after the answer began.
func followed(s *stage) {
	p := s.place("")
	ctx, cancel := context.WithTimeout(s.Context(), site.Soon)
	defer cancel()
	resp, _, err := p.open(ctx, call{method: "GET", path: p.path("/events?type=job.queued,job.cancelled")})
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	id := p.submit(`{}`, "").text("id")
	p.do("POST", "/cancel/"+id, "")
	var got []string
	for e := range serverEvents(resp.Body) {
		if got = append(got, e.event); len(got) == 2 {
			break
		}
	}
	if want := "[job.queued job.cancelled]"; fmt.Sprint(got) != want {
		s.Errorf("got %v, want %s", got, want)
	}
}

// heard waits until the log tells these types of events and then its end.
func (p *place) heard(path string, types ...string) {
	p.t.Helper()
	var got []serverEvent
	p.eventually(fmt.Sprintf("%s tells %v", path, types), func() bool {
		got = p.told(path, nil)
		return names(got) == strings.Join(types, " ")
	})
}

// told are the events of an answer that does not follow.
func (p *place) told(path string, header map[string]string) (found []serverEvent) {
	p.t.Helper()
	a := p.send(call{method: "GET", path: p.path(path), header: header})
	p.want(a, http.StatusOK)
	ended := false
	for e := range serverEvents(strings.NewReader(a.raw)) {
		if ended = e.event == "end"; !ended {
			found = append(found, e)
		}
	}
	if kind := a.header.Get("Content-Type"); !ended || !strings.HasPrefix(kind, "text/event-stream") {
		p.t.Fatalf("got %s %q, want events and their end", kind, a.raw)
	}
	return found
}

func names(list []serverEvent) string {
	var types []string
	for _, e := range list {
		types = append(types, e.event)
	}
	return strings.Join(types, " ")
}
