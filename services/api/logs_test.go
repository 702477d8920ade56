package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/api"
	"flightline/shared/logs"
	"flightline/shared/registry"
)

// print keeps what a worker prints, and returns when it is stored.
func (s *env) print(worker string, lines ...string) {
	s.t.Helper()
	r := logs.NewRecorder(s.queue.Bus(), logs.Source{Endpoint: "ep", Worker: worker}, nil)
	out := r.Stream(logs.Stdout)
	_, _ = out.Write([]byte(strings.Join(lines, "\n")))
	_ = out.Close()
	r.End()
	if err := r.Run(context.WithoutCancel(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}
}

// logLines reads n lines, as "id worker text".
func (e *eventReader) logLines(n int) (got []string) {
	e.t.Helper()
	for len(got) < n {
		block, err := e.next()
		if err != nil {
			e.t.Fatalf("after %q: %.200q, %v", got, block, err)
		}
		id, data, found := strings.Cut(block, "|data: ")
		if !found {
			continue
		}
		var l api.LogLine
		if err := json.Unmarshal([]byte(data), &l); err != nil || l.Time.IsZero() || l.Stream != logs.Stdout {
			e.t.Fatalf("got %s, %v", data, err)
		}
		got = append(got, strings.TrimPrefix(id, "id: ")+" "+l.WorkerID+" "+l.Text)
	}
	return got
}

func (e *eventReader) wantLines(want ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.logLines(len(want))); diff != "" {
		e.t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestLinesAreFollowedAndResumed(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.print("w1", "old a", "old b")
	e := s.readEvents("/ep/logs", "")
	e.want("retry: 1000|id: 1")
	s.print("w2", "new a", "new b")
	e.wantLines("2-0 w2 new a", "2-1 w2 new b")
	for path, want := range map[string][]string{
		"/ep/logs?since=1h&follow=false":                   {"1-0 w1 old a", "1-1 w1 old b", "2-0 w2 new a", "2-1 w2 new b"},
		"/ep/logs?cursor=1-0&follow=false":                 {"1-1 w1 old b", "2-0 w2 new a", "2-1 w2 new b"},
		"/ep/logs?cursor=0&worker=w1&follow=false":         {"1-0 w1 old a", "1-1 w1 old b"},
		"/ep/logs?cursor=2-1&follow=false":                 nil,
		"/ep/logs?follow=false":                            nil,
		"/ep/logs?cursor=99&follow=false":                  nil,
		"/ep/logs?since=2100-01-01T00:00:00Z&follow=false": nil,
	} {
		r := s.readEvents(path, "")
		r.wantBegun()
		r.wantLines(want...)
		r.want("event: end|data: {}")
		r.wantEnd()
	}
	resumed := s.readEvents("/ep/logs?cursor=0", "1-1") // the newer of the two counts
	resumed.wantBegun()
	resumed.wantLines("2-0 w2 new a", "2-1 w2 new b")
}

// The lines of a job come from the first on, and end with it.
func TestTheLinesOfAJobEndWithIt(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	line := func(text string) string { return `{"requestId":"` + id + `","message":"` + text + `"}` }
	s.print("w1", line("first"), "another's", line("second"))
	e := s.readEvents("/ep/logs/"+id, "")
	e.wantBegun()
	e.wantLines("1-0 w1 "+line("first"), "1-2 w1 "+line("second"))
	s.print("w2", line("third"))
	e.wantLines("2-0 w2 " + line("third"))
	s.complete(`1`)
	s.print("w2", line("late"))
	e.wantLines("3-0 w2 " + line("late"))
	e.want("event: end|data: {}")
	e.wantEnd()
	gone := s.readEvents("/ep/logs/"+id+"?follow=false", "3-0")
	gone.wantBegun()
	gone.want("event: end|data: {}")
}

func TestLogsRefuse(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.print("w", "the job=gone-job has a line")
	for path, want := range map[string]int{
		"/ep/logs?follow=no": 400, "/ep/logs?cursor=x": 400, "/ep/logs?cursor=01": 400, "/ep/logs?cursor=1-": 400, "/ep/logs?since=noon": 400, "/ep/logs?worker=a.b": 400, "/ep/logs?worker=*": 400,
		"/none/logs": 404, "/ep/logs/no-such-job": 404, "/ep/logs/no.job": 404, "/ep/logs/gone-job": 200,
	} {
		a := s.readEvents(path, "")
		if a.resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, a.resp.StatusCode, want)
		}
	}
	if _, err := s.registry.Keys.Put(t.Context(), "submits-only", registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Submit, Endpoint: "ep"}}}); err != nil {
		t.Fatal(err)
	}
	if a := s.readEventsAs("Bearer submits-only", "/ep/logs?follow=false", ""); a.resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a key that may not read: got %d", a.resp.StatusCode)
	}
}
