package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// emits is a job's input whose handler puts out three chunks.
const emits = `{"emit":[1,"two",{"three":3}]}`

// threeChunks are what its readers see.
const threeChunks = `{"output":1},{"output":"two"},{"output":{"three":3}}`

// streamRows is the contract's row on /stream, chunks included, and what its
// clients need of it (docs/design/product.md#methods-and-forms).
func streamRows() map[string]scenario {
	const mb = 1 << 20
	return map[string]scenario{
		"a GET gets an array": streamed("GET", "", nil, "["+threeChunks+"]", "[]"),
		"a POST gets an object": streamed("POST", "", nil,
			`{"status":"COMPLETED","stream":[`+threeChunks+`]}`, `{"status":"COMPLETED","stream":[]}`),
		"a GET with a JSON content type gets an object": streamed("GET", "", map[string]string{"Content-Type": "application/json"},
			`{"status":"COMPLETED","stream":[`+threeChunks+`]}`, `{"status":"COMPLETED","stream":[]}`),
		"a RunPod client gets an object": streamed("GET", "", map[string]string{"User-Agent": "RunPod-JS-SDK/1.1.2"},
			`{"status":"COMPLETED","stream":[`+threeChunks+`]}`, `{"status":"COMPLETED","stream":[]}`),
		"format=object": streamed("GET", "?format=object", nil,
			`{"status":"COMPLETED","stream":[`+threeChunks+`]}`, `{"status":"COMPLETED","stream":[]}`),
		"format=array": streamed("POST", "?format=array", nil, "["+threeChunks+"]", "[]"),
		"the endpoint's streamFormat": func(s *run) {
			p := s.endpoint(`"streamFormat":"object"`)
			p.want(p.do("GET", "/stream/"+p.submit(`{}`, "").text("id")+"?wait=1000", ""), http.StatusOK, "status", "IN_QUEUE", "stream", "[]")
		},
		"cursor reads again": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(emits, "").text("id")
			p.until(id, "COMPLETED")
			for range 2 {
				if a := p.do("GET", "/stream/"+id+"?format=array&cursor=0", ""); a.raw != "["+threeChunks+"]" || a.header.Get("X-Stream-Cursor") == "" {
					s.Errorf("got %s with %v", a.raw, a.header)
				}
			}
			a := p.do("GET", "/stream/"+id+"?format=array&cursor=0", "")
			if next := p.do("GET", "/stream/"+id+"?format=array&cursor="+a.header.Get("X-Stream-Cursor"), ""); next.raw != "[]" {
				s.Errorf("after the last cursor: got %s", next.raw)
			}
		},
		"holds while there is no news": func(s *run) {
			p := s.endpoint("")
			a := p.do("GET", "/stream/"+p.submit(`{}`, "").text("id")+"?format=object", "")
			p.want(a, http.StatusOK, "status", "IN_QUEUE", "stream", "[]")
			if took := a.answered.Sub(a.sent); took < 5*second || took >= 10*second {
				s.Errorf("took %v, want less than 10 s and not much", took)
			}
		},
		"wait bounds the holding": func(s *run) {
			p := s.endpoint("")
			a := p.do("GET", "/stream/"+p.submit(`{}`, "").text("id")+"?wait=1000&format=object", "")
			if took := a.answered.Sub(a.sent); took < 990*millisecond || took > 4*second {
				s.Errorf("took %v", took)
			}
		},
		"a chunk is sent at once": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(`{"emit":["now"],"sleepMs":5000}`, "").text("id")
			a := p.do("GET", "/stream/"+id+"?format=object&wait=30000", "")
			p.want(a, http.StatusOK, "status", "IN_PROGRESS", "stream", "now")
		},
		"a FAILED job": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(`{"emit":[1],"fail":"boom"}`, "").text("id")
			p.until(id, "FAILED")
			p.want(p.do("POST", "/stream/"+id, ""), http.StatusOK, "status", "FAILED", "error", "boom", "stream", "1")
		},
		"server-sent events, resumed":    events,
		"a string of 1 MB is one chunk":  chunked(mb-len(`{"output":""}`), 1),
		"a longer string is split":       chunked(mb+mb/2, 2),
		"a string of 3 MB is split more": chunked(3*mb, 4),
		"an object over 1 MB fails the job": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(fmt.Sprintf(`{"object":%d}`, mb), "").text("id")
			p.want(p.until(id, "FAILED"), http.StatusOK, "error", "chunk_too_large")
		},
		"an object below 1 MB does not": func(s *run) {
			p := s.endpoint("")
			p.work(1)
			id := p.submit(fmt.Sprintf(`{"object":%d}`, mb-100), "").text("id")
			p.until(id, "COMPLETED")
		},
	}
}

// streamed reads a finished job's stream twice.
func streamed(method, query string, header map[string]string, first, then string) scenario {
	return func(s *run) {
		p := s.endpoint("")
		p.work(1)
		id := p.submit(emits, "").text("id")
		p.until(id, "COMPLETED")
		for _, want := range []string{first, then} {
			a := p.send(call{method: method, path: p.path("/stream/" + id + query), header: header})
			if a.status != http.StatusOK || a.raw != want {
				s.Errorf("got %d %s, want %s", a.status, a.raw, want)
			}
			if want == first { // the server's cursor moves when the answer was written
				p.eventually("the chunks were answered", func() bool {
					return p.send(call{method: "GET", path: p.path("/stream/" + id + "?format=array")}).raw == "[]"
				})
			}
		}
	}
}

// chunked emits a string of size bytes and expects at least so many chunks
// that are the string when put together.
func chunked(size, least int) scenario {
	return func(s *run) {
		heavy <- struct{}{}
		defer func() { <-heavy }()
		p := s.endpoint("")
		p.work(1)
		id := p.submit(fmt.Sprintf(`{"string":%d}`, size), "").text("id")
		p.until(id, "COMPLETED")
		var got []string
		for cursor := "0"; ; {
			a := p.do("GET", "/stream/"+id+"?format=array&cursor="+url.QueryEscape(cursor), "")
			var chunks []struct {
				Output string `json:"output"`
			}
			if err := json.Unmarshal([]byte(a.raw), &chunks); err != nil {
				s.Fatalf("%.200s: %v", a.raw, err)
			}
			for _, chunk := range chunks {
				got = append(got, chunk.Output)
			}
			if cursor = a.header.Get("X-Stream-Cursor"); len(chunks) == 0 {
				break
			}
		}
		whole := strings.Join(got, "")
		if len(whole) != size || strings.Trim(whole, "éx") != "" || len(got) < least || least == 1 && len(got) != 1 {
			s.Errorf("got %d chunks with %d bytes, want %d and %d", len(got), len(whole), least, size)
		}
	}
}

// events reads a job's server-sent events, leaves, and resumes after the first.
func events(s *run) {
	p := s.endpoint("")
	p.work(1)
	id := p.submit(`{"emit":["a","b"],"sleepMs":1500}`, "").text("id")
	first := p.listen(s.T, id, "")
	if len(first) < 3 || first[0].data != `{"output":"a"}` || first[1].data != `{"output":"b"}` || first[2].event != "status" || !strings.Contains(first[2].data, "COMPLETED") {
		s.Fatalf("got %+v", first)
	}
	again := p.listen(s.T, id, first[0].id)
	if len(again) < 2 || again[0] != first[1] || again[1].event != "status" {
		s.Errorf("after %s: got %+v", first[0].id, again)
	}
}

type serverEvent struct{ id, event, data string }

func (p *testEndpoint) listen(t *testing.T, id, after string) []serverEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), program.Soon)
	defer cancel()
	resp, _, err := p.open(ctx, call{method: "GET", path: p.path("/stream/" + id), header: map[string]string{"Accept": "text/event-stream", "Last-Event-ID": after}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("got %d %s", resp.StatusCode, kind)
	}
	return slices.Collect(serverEvents(resp.Body))
}

// serverEvents reads those that have data.
func serverEvents(r io.Reader) iter.Seq[serverEvent] {
	return func(yield func(serverEvent) bool) {
		var e serverEvent
		for scan := bufio.NewScanner(r); scan.Scan(); {
			field, value, _ := strings.Cut(scan.Text(), ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.event = value
			case "data":
				e.data = value
			case "":
				if e.data != "" && !yield(e) {
					return
				}
				e = serverEvent{}
			}
		}
	}
}

// eventRows are the events of jobs, live and from the log.
func eventRows() map[string]scenario {
	return map[string]scenario{
		"a job's life": func(s *run) {
			p := s.endpoint("")
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
		"an endpoint's jobs, by type": func(s *run) {
			p := s.endpoint("")
			for range 2 {
				p.want(p.do("POST", "/cancel/"+p.submit(`{}`, "").text("id"), ""), http.StatusOK)
			}
			p.heard("/events?since=10m&follow=false&type=job.cancelled", "job.cancelled", "job.cancelled")
			p.heard("/events?cursor=0&follow=false&type=job.failed,job.timed_out")
		},
		"resumed with a cursor and with Last-Event-ID": func(s *run) {
			p := s.endpoint("")
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
		"parameters that cannot be": func(s *run) {
			p := s.endpoint("")
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
		"what is unknown": func(s *run) {
			p := s.endpoint("")
			p.want(p.do("GET", "/events/nothing?follow=false", ""), http.StatusNotFound, "code", "job_not_found")
			for _, path := range []string{"/v2/nobody/events", "/v2/nobody/events/nothing"} {
				p.want(p.send(call{method: "GET", path: path}), http.StatusNotFound, "code", "endpoint_not_found")
			}
		},
		"no permission": func(s *run) {
			p := s.endpoint("")
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

// followed gets the events of a job that is submitted after the answer began.
func followed(s *run) {
	p := s.endpoint("")
	ctx, cancel := context.WithTimeout(s.Context(), program.Soon)
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

// heard waits until the log has these types of events and then its end.
func (p *testEndpoint) heard(path string, types ...string) {
	p.t.Helper()
	var got []serverEvent
	p.eventually(fmt.Sprintf("%s has %v", path, types), func() bool {
		got = p.told(path, nil)
		return names(got) == strings.Join(types, " ")
	})
}

// told are the events of an answer that does not follow.
func (p *testEndpoint) told(path string, header map[string]string) (found []serverEvent) {
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
