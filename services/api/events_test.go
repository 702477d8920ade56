package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// startTelling starts an env with a log of events.
func startTelling(t *testing.T) (*env, *events.Log) {
	t.Helper()
	var log *events.Log
	s := startWith(t, func(s *env) *events.Log {
		var err error
		if log, err = events.New(s.conn, s.bus.JS, nil); err != nil {
			t.Fatal(err)
		}
		return log
	})
	testenv.Background(t, s.service.tail.Run)
	return s, log
}

// lifeOf is what the recorder logs of a job that fails.
func lifeOf(id string) []events.Event { return lifeFrom(time.UnixMilli(time.Now().UnixMilli()), id) }

func lifeFrom(begun time.Time, id string) []events.Event {
	e := events.Event{
		Endpoint: "ep", Job: job.ID(id), Attempt: 1, Mode: job.Async, Class: job.Normal,
		Submitted: begun, Queued: begun, Expires: begun.Add(time.Hour),
	}
	queued, started, end := e, e, e
	queued.Kind, queued.At, queued.Status = events.Queued, begun, job.InQueue
	started.Kind, started.Run, started.At, started.Status, started.Worker = events.Started, 1, begun.Add(time.Second), job.InProgress, "w"
	started.Started = started.At
	end.Kind, end.Run, end.At, end.Status, end.Worker, end.Error = events.Failed, 1, begun.Add(3*time.Second), job.Failed, "w", "no\nway"
	end.Started, end.Finished, end.RetainUntil = started.At, end.At, begun.Add(time.Minute)
	return []events.Event{queued, started, end}
}

func appendTo(t *testing.T, log *events.Log, list ...events.Event) {
	t.Helper()
	if err := log.Append(t.Context(), list...); err != nil {
		t.Fatal(err)
	}
}

// names reads n events, as "seq type job".
func (e *eventReader) names(n int) (got []string) {
	e.t.Helper()
	for len(got) < n {
		block, err := e.next()
		if err != nil {
			e.t.Fatalf("after %q: %.200q, %v", got, block, err)
		}
		if lines := strings.Split(block, "|"); len(lines) == 3 {
			_, rest, _ := strings.Cut(lines[2], `"subject":"`)
			id, _, _ := strings.Cut(rest, `"`)
			got = append(got, lines[0][len("id: "):]+" "+lines[1][len("event: "):]+" "+id)
		}
	}
	return got
}

// wantBegun reads the first block, which says where it begins.
func (e *eventReader) wantBegun() {
	e.t.Helper()
	if got, err := e.next(); err != nil || !strings.HasPrefix(got, "retry: 1000|id: ") {
		e.t.Fatalf("got %.200q, %v, want the begin", got, err)
	}
}

func (e *eventReader) wantNames(want ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.names(len(want))); diff != "" {
		e.t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestSubscribersHearWhatIsNewAndResume(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	old, life := lifeOf("old"), lifeOf("new")
	appendTo(t, log, old...)
	e := s.readEvents("/ep/events", "")
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := e.resp.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	e.wantBegun()
	appendTo(t, log, life...)
	e.wantNames("2.4093 job.queued new", "2.4094 job.started new", "2 job.failed new")

	other := life[0]
	other.Endpoint = "other"
	appendTo(t, log, other)
	for path, want := range map[string][]string{
		"/ep/events?since=1h&follow=false":                            {"1.4093 job.queued old", "1.4094 job.started old", "1 job.failed old", "2.4093 job.queued new", "2.4094 job.started new", "2 job.failed new"},
		"/ep/events?cursor=0&follow=false&type=job.failed":            {"1 job.failed old", "2 job.failed new"},
		"/ep/events?cursor=2.4093&follow=false":                       {"2.4094 job.started new", "2 job.failed new"},
		"/ep/events/old?cursor=1.4093&follow=false":                   {"1.4094 job.started old", "1 job.failed old"},
		"/ep/events/new?since=2000-01-01T00:00:00Z&follow=false":      {"2.4093 job.queued new", "2.4094 job.started new", "2 job.failed new"},
		"/ep/events?follow=false":                                     nil,
		"/ep/events?cursor=0&follow=false&type=job.failed,job.queued": {"1.4093 job.queued old", "1 job.failed old", "2.4093 job.queued new", "2 job.failed new"},
	} {
		r := s.readEvents(path, "")
		r.wantBegun()
		r.wantNames(want...)
		r.want("event: end|data: {}")
		r.wantEnd()
	}
	resumed := s.readEvents("/ep/events?cursor=1", "2.4094") // the newer of the two counts
	resumed.want("retry: 1000|id: 2.4094")
	resumed.wantNames("2 job.failed new")
}

func TestGeneratedEventStream(t *testing.T) {
	s, log := startTelling(t)
	life := lifeFrom(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), "1")
	appendTo(t, log, life...)
	got := s.sendLoosely(s.request("GET", "/ep/events/1?since=1h&follow=false", nil)).raw
	const file = "testdata/events.sse"
	testenv.Golden(t, *update, file, got)
}

func TestWhatSubscribersAreRefused(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	appendTo(t, log, lifeOf("told")...)
	other, err := s.registry.Keys.Put(t.Context(), "submits-only", registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Submit, Endpoint: "ep"}}})
	if err != nil {
		t.Fatal(err, other)
	}
	for path, want := range map[string]string{
		"/ep/events?type=job.lost":   `400 type is invalid; must be one or several, separated by commas, of job.queued, job.started, job.completed, job.failed, job.cancelled, job.timed_out, got "job.lost"`,
		"/ep/events?type=,":          `400 type is invalid; must be one or several, separated by commas, of job.queued, job.started, job.completed, job.failed, job.cancelled, job.timed_out, got ""`,
		"/ep/events?since=yesterday": `400 since is invalid; must be an instant as 2026-01-31T12:00:00Z, or how long ago as 90s, 10m or 24h, got "yesterday"`,
		"/ep/events?since=-1h":       `400 since is invalid; must be an instant as 2026-01-31T12:00:00Z, or how long ago as 90s, 10m or 24h, got "-1h"`,
		"/ep/events?follow=yes":      `400 follow is invalid; must be true or false, got "yes"`,
		"/ep/events?cursor=":         `400 cursor is invalid; must be the id of an event, or 0, got ""`,
		"/ep/events?cursor=-1":       `400 cursor is invalid; must be the id of an event, or 0, got "-1"`,
		"/ep/events/nobody":          `404 no such job: it never existed, or its ttl or retention is over`,
		"/ep/events/not.an.id":       `404 no such job: it never existed, or its ttl or retention is over`,
		"/nobody/events":             `404 no such endpoint`,
		"/nobody/events/told":        `404 no such endpoint`,
	} {
		a := s.do("GET", path, "")
		if got := fmt.Sprint(a.status, " ", a.body["error"]); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for _, key := range []string{"", "Bearer nobody", "Bearer submits-only"} {
		req := s.request("GET", "/ep/events", nil)
		req.Header.Set("Authorization", key)
		if a := s.send(req); a.status != http.StatusUnauthorized {
			t.Errorf("key %q: got %d, want 401", key, a.status)
		}
	}
}

func TestEventsOfAJobThatWaitsMayBeFollowed(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	id := s.submit()
	e := s.readEvents("/ep/events/"+id, "")
	e.wantBegun()
	appendTo(t, log, lifeOf("another")...)
	appendTo(t, log, lifeOf(id)...)
	e.wantNames("2.4093 job.queued "+id, "2.4094 job.started "+id, "2 job.failed "+id)
}

func TestAnEndpointMadeAgainDoesNotTellOfTheOneBefore(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	before := lifeOf("before")
	for i := range before {
		before[i].Submitted = s.endpoint.Created.Add(-time.Millisecond)
	}
	first := lifeFrom(s.endpoint.Created.Truncate(time.Millisecond), "first")
	appendTo(t, log, before...)
	appendTo(t, log, first...)
	e := s.readEvents("/ep/events?cursor=0", "")
	e.wantBegun()
	e.wantNames("2.4093 job.queued first", "2.4094 job.started first", "2 job.failed first")
	if a := s.do("GET", "/ep/events/before", ""); a.status != http.StatusNotFound {
		t.Errorf("its job: got %d, want 404", a.status)
	}
}
