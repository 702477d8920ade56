package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/stats"
	"flightline/shared/testenv"
)

// get is fetch that reads the answer into v.
func (s *env) get(key, path string, v any) answer {
	s.t.Helper()
	got := s.fetch(key, path)
	if got.status == http.StatusOK {
		if err := json.Unmarshal([]byte(got.raw), v); err != nil {
			s.t.Fatalf("%s: %v in %s", path, err, got.raw)
		}
	}
	return got
}

// fetch gets any path, with a key.
func (s *env) fetch(key, path string) answer {
	s.t.Helper()
	req := s.request("GET", "", nil)
	var err error
	if req.URL, err = url.Parse(strings.TrimSuffix(s.base, "/v2") + path); err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", key)
	return s.sendLoosely(req)
}

// record writes the end of a job to the log, as the recorder does.
func (s *env) record(id string) {
	s.t.Helper()
	j, err := s.queue.Status(s.t.Context(), s.endpoint, job.ID(id))
	if err != nil {
		s.t.Fatal(err)
	}
	e := eventOf(*j)
	e.Worker, e.Error = j.Worker, j.Error
	appendTo(s.t, s.service.events, e)
}

// What happened to four jobs, in every answer that shows it.
func TestWhatHappenedIsShown(t *testing.T) {
	t.Parallel()
	s := start(t)
	completed := s.submit()
	s.complete(`1`)
	s.record(completed)
	var failed []string
	for _, text := range []string{"no file 3", "KeyError: 'a'", "no file 4"} {
		failed = append(failed, s.submit())
		s.fail(text)
		s.record(failed[len(failed)-1])
	}
	running := s.submit()
	s.take()
	if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "worker-1", Endpoint: "ep", State: registry.WorkerRunning, Running: []string{running}}); err != nil {
		t.Fatal(err)
	}
	waiting := s.submit()
	noFile := stats.Fingerprint("no file 5")

	var v api.Stats
	testenv.Eventually(t, "the points are written", func() bool {
		s.get(adminKey, "/v2/ep/stats", &v)
		return len(v.Points) > 0
	})
	var done, bad, took int64
	for _, p := range v.Points {
		done, bad, took = done+p.Completed, bad+p.Failed, took+p.ExecutionMs.Count
	}
	if v.Step != 60 || done != 1 || bad != 3 || took != 4 {
		t.Errorf("got %+v, want 1 completed, 3 failed", v)
	}
	for _, path := range []string{"/v2/ep/failures", "/v1/failures?from=2h"} {
		var groups []api.FailureGroup
		got := s.get(adminKey, path, &groups)
		if len(groups) != 2 || groups[0].Fingerprint != noFile || groups[0].Count != 2 || groups[0].Error != "no file 4" || !slices.Equal(groups[0].LastJobs, []string{failed[2], failed[0]}) {
			t.Errorf("%s: got %s", path, got.raw)
		}
	}
	for name, want := range map[string][]string{
		"fingerprint=" + noFile:                       {failed[2], failed[0]},
		"fingerprint=" + noFile + "&limit=1":          {failed[2], failed[0]},
		"fingerprint=" + noFile + "&worker=worker-1":  {failed[2], failed[0]},
		"fingerprint=" + noFile + "&worker=nobody":    nil,
		"fingerprint=" + noFile + "&status=COMPLETED": nil,
		"worker=worker-1":                             {running, failed[2], failed[1], failed[0], completed},
		"worker=worker-1&limit=2":                     {running, failed[2], failed[1], failed[0], completed},
		"worker=worker-1&status=COMPLETED":            {completed},
		"worker=worker-1&status=IN_PROGRESS,IN_QUEUE": {running},
		"worker=worker-2":                             nil,
		"status=IN_QUEUE":                             {waiting},
	} {
		query, err := url.ParseQuery(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := idsOf(s.list(query)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if row := s.list(url.Values{"status": {"FAILED"}})[0]; row["error"] != "no file 4" || row["fingerprint"] != noFile || row["workerId"] != "worker-1" {
		t.Errorf("got %v", row)
	}
	var o api.Overview
	got := s.get(adminKey, "/v1/overview", &o)
	if len(o.Endpoints) != 1 || o.Endpoints[0].Jobs != (api.JobCounts{Completed: 1, Failed: 3, InProgress: 1, InQueue: 1}) || o.Endpoints[0].Workers.Running != 1 {
		t.Fatalf("got %s", got.raw)
	}
	var hour int64
	for _, n := range o.Endpoints[0].LastHour.Failed {
		hour += n
	}
	if hour != 3 || len(o.Endpoints[0].LastHour.Completed) != 60 || len(o.Endpoints[0].LastHour.DelayP95Ms) != 60 {
		t.Errorf("got %s", got.raw)
	}
}

// An endpoint whose queue is missing does not hide the others.
func TestTheOverviewShowsAnEndpointWithoutItsQueue(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit()
	other := s.endpoint
	other.ID = "zz"
	if _, err := s.registry.Endpoints.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "both endpoints are listed", func() bool {
		var o api.Overview
		got := s.get(adminKey, "/v1/overview", &o)
		return got.status == http.StatusOK && len(o.Endpoints) == 2 && o.Endpoints[0].Jobs.InQueue == 1 &&
			len(o.Endpoints[1].Attention) == 1 && o.Endpoints[1].Attention[0].Code == api.NeedsQueue
	})
}

// More endpoints than are asked one by one: the first is the one that all queues are listed for.
func TestTheOverviewOfWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	s := start(t)
	const others = 101
	var paused []string
	for i := range others {
		e := s.endpoint
		e.ID = fmt.Sprintf("q%03d", i)
		if i%50 == 0 {
			paused = append(paused, e.ID)
			e.PausedUntil = time.Now().Add(time.Hour)
		}
		if err := s.queue.CreateEndpoint(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if _, err := s.registry.Endpoints.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	s.submit() // at the endpoint ep, which has no worker
	testenv.Eventually(t, "all endpoints are known", func() bool {
		var o api.Overview
		return s.get(adminKey, "/v1/overview?limit=1000", &o).status == http.StatusOK && len(o.Endpoints) == others+1
	})
	for query, want := range map[string][]string{
		"attention=true":                   append([]string{"ep"}, paused...),
		"attention=true&limit=2":           {"ep", paused[0]},
		"attention=true&cursor=ep&limit=1": {paused[0]},
		"attention=false&limit=2":          {"ep", "q000"},
	} {
		var o api.Overview
		got := s.get(adminKey, "/v1/overview?"+query, &o)
		var ids []string
		for _, e := range o.Endpoints {
			ids = append(ids, e.ID)
			if e.ID == "ep" && e.Jobs.InQueue != 1 {
				t.Errorf("%s: got %+v, want a job that waits", query, e.Jobs)
			}
		}
		if !slices.Equal(ids, want) || (o.Cursor != "") != strings.Contains(query, "limit") || o.Cursor != "" && o.Cursor != want[len(want)-1] {
			t.Errorf("%s: got %v and cursor %q in %d %.300s, want %v", query, ids, o.Cursor, got.status, got.raw, want)
		}
	}
}

func TestAJobIsFoundWithoutItsEndpoint(t *testing.T) {
	t.Parallel()
	s := start(t)
	ended := s.submit()
	s.complete(`1`)
	running := s.submit()
	s.take()
	waiting := s.submit()
	other, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Read, Endpoint: "another"}}})
	if err != nil {
		t.Fatal(err)
	}
	reader, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Read, Endpoint: "ep"}}})
	if err != nil {
		t.Fatal(err)
	}
	writer, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Submit, Endpoint: "ep"}, {Permission: registry.Control}}})
	if err != nil {
		t.Fatal(err)
	}
	for id, status := range map[string]job.Status{ended: job.Completed, running: job.InProgress, waiting: job.InQueue} {
		var found api.FoundJob
		if got := s.get(reader, "/v1/jobs/"+id, &found); found != (api.FoundJob{Endpoint: "ep", ID: job.ID(id), Status: status}) {
			t.Errorf("got %d %s, want %s", got.status, got.raw, status)
		}
		if got := s.get(other, "/v1/jobs/"+id, &found); got.status != http.StatusNotFound {
			t.Errorf("a key of another endpoint: got %d %s", got.status, got.raw)
		}
	}
	for _, id := range []string{"nobody", string(queueID()), "a.b", "*", ">", strings.Repeat("x", 300)} {
		if got := s.get(reader, "/v1/jobs/"+url.PathEscape(id), nil); got.status != http.StatusNotFound {
			t.Errorf("%q: got %d %s", id, got.status, got.raw)
		}
	}
	for _, path := range []string{"/v1/overview", "/v1/failures"} {
		var empty any
		if got := s.get(other, path, &empty); got.status != http.StatusOK || strings.Contains(got.raw, `"ep"`) {
			t.Errorf("%s with a key of another endpoint: got %d %s", path, got.status, got.raw)
		}
		for _, key := range []string{writer, "nobody"} {
			if got := s.get(key, path, &empty); got.status != http.StatusUnauthorized {
				t.Errorf("%s with a key that may not read: got %d %s", path, got.status, got.raw)
			}
		}
	}
}

func queueID() job.ID { return job.ID("01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f") }

// A client counts the longest span back from its own now, before the server looks at its clock.
func TestTheLongestSpanMayBeginAtAnInstant(t *testing.T) {
	t.Parallel()
	s := start(t)
	for path, ago := range map[string]time.Duration{
		"/v1/failures?from=": 7 * 24 * time.Hour, "/v2/ep/failures?from=": 7 * 24 * time.Hour, "/v2/ep/stats?from=": 90 * 24 * time.Hour,
	} {
		from := s.queue.Now().Add(-ago)
		if got := s.get(adminKey, path+from.Format(time.RFC3339Nano), new(any)); got.status != http.StatusOK {
			t.Errorf("%s %v ago: got %s", path, ago, got.raw)
		}
		longer := from.Add(-2 * time.Minute) // one is the bound, and a measurement may set the server's time back by some ms
		if got := s.get(adminKey, path+longer.Format(time.RFC3339Nano), new(any)); got.status != http.StatusBadRequest {
			t.Errorf("%s two minutes longer ago: got %s", path, got.raw)
		}
	}
	var v api.Stats
	got := s.get(adminKey, "/v2/ep/stats?from="+s.queue.Now().Add(-24*time.Hour).Format(time.RFC3339Nano), &v)
	if v.Step != 60 {
		t.Errorf("24 hours: got %s, want the step 60", got.raw)
	}
}

func TestBadQuestionsAboutWhatHappened(t *testing.T) {
	t.Parallel()
	s := start(t)
	for path, text := range map[string]string{
		"/v2/ep/stats?from=yesterday":          "from is invalid; must be an instant as",
		"/v2/ep/stats?to=-1m":                  "to is invalid; must be an instant as",
		"/v2/ep/stats?from=1h&to=2h":           "the time between from and to is invalid; must be more than 0s and at most 2160h0m0s, got -1h0m0s",
		"/v2/ep/stats?from=2200h":              "got 2200h0m0s",
		"/v2/ep/stats?step=61":                 "step is invalid; must be 60 or 3600, in seconds",
		"/v2/ep/stats?from=72h&step=60":        "the time between from and to has 4320 steps of 60 s; must be at most 2880",
		"/v2/ep/failures?from=200h":            "at most 168h0m0s, got 200h0m0s",
		"/v1/failures?from=x":                  "from is invalid",
		"/v1/overview?limit=1001":              "limit is invalid; must be between 1 and 1000",
		"/v1/overview?cursor=a.b":              "cursor is invalid",
		"/v1/overview?attention=some":          "attention must be true or false, got",
		"/v2/ep/requests?worker=a.b":           "worker is invalid; must be 1 to 128 of",
		"/v2/ep/requests?worker=":              "worker is invalid",
		"/v2/ep/requests?fingerprint=other":    "fingerprint is invalid; must be 16 hexadecimal digits in lower case",
		"/v2/ep/requests?worker=a&cursor=AQEA": "cursor is invalid; take it from the page before",
	} {
		if got := s.get(adminKey, path, nil); got.status != http.StatusBadRequest || !strings.Contains(got.raw, text) {
			t.Errorf("%s: got %d %s, want %q", path, got.status, got.raw, text)
		}
	}
}

// What needs a person, and in which order.
func TestAttention(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	failing := events.PointAt{At: now, Point: stats.Point{Completed: 40, Failed: 3, TimedOut: 2}}
	healthy := failing
	healthy.Completed = 60
	for name, tt := range map[string]struct {
		l    look
		want []string
	}{
		"nothing":              {look{}, nil},
		"some failures":        {look{points: []events.PointAt{healthy}}, nil},
		"many failures":        {look{points: []events.PointAt{failing}}, []string{api.NeedsFailures}},
		"no worker":            {look{jobs: api.JobCounts{InQueue: 1}}, []string{api.NeedsNoWorker}},
		"a worker starts":      {look{jobs: api.JobCounts{InQueue: 1}, workers: registry.WorkerCounts{States: map[string]int{registry.WorkerInitializing: 1}}}, nil},
		"backoff":              {look{jobs: api.JobCounts{InQueue: 1}, decision: &registry.Decision{Reason: registry.ScalingBackoff}}, []string{api.NeedsBackoff}},
		"no machine":           {look{jobs: api.JobCounts{InQueue: 1}, decision: &registry.Decision{Reason: registry.ScalingNoMachine}}, []string{api.NeedsScaling, api.NeedsNoWorker}},
		"no GPU":               {look{jobs: api.JobCounts{InQueue: 1}, decision: &registry.Decision{Reason: registry.ScalingNoGPU}, workers: registry.WorkerCounts{States: map[string]int{registry.WorkerRunning: 1}}}, []string{api.NeedsGPU}},
		"long and lost":        {look{jobs: api.JobCounts{WorkerLost: 2}, oldest: longWait}, []string{api.NeedsWorkerLost, api.NeedsOldestWait}},
		"a receiver is paused": {look{pausedReceivers: 1}, []string{api.NeedsWebhooksPaused}},
	} {
		tt.l.now = now
		var got []string
		for _, a := range tt.l.attention() {
			got = append(got, a.Code)
			if a.Text == "" || strings.Contains(a.Text, "%!") {
				t.Errorf("%s: got text %q", name, a.Text)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
