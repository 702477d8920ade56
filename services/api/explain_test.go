package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestExplainHasTheCanary(t *testing.T) {
	for state, want := range map[string]bool{"": false, endpoint.CanaryRunning: true, endpoint.CanaryPromoted: false, endpoint.CanaryRolledBack: true} {
		x := explanation{endpoint: endpoint.Endpoint{Canary: endpoint.Canary{State: state, Version: 3, FormerVersion: 1, Text: "3 of 3 jobs failed"}}}
		x.position.Job.Status = job.InQueue
		if got := explainViewOf(x).Endpoint.Canary; (got != nil) != want {
			t.Errorf("%q: got %+v, want one: %t", state, got, want)
		}
	}
}

func TestReasonOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	counts := func(idle, busy, starting, sick int) map[string]int {
		return map[string]int{
			registry.WorkerIdle: idle, registry.WorkerRunning: busy, registry.WorkerInitializing: starting, registry.WorkerUnhealthy: sick,
		}
	}
	waits := func(least, most int) queue.Position {
		return queue.Position{Job: job.Job{Status: job.InQueue}, Least: least, Most: most}
	}
	ran := func(status job.Status, text string) queue.Position {
		return queue.Position{Job: job.Job{
			Status: status, Worker: "w1", Error: text, Started: now.Add(-3 * time.Second), Deadline: now.Add(597 * time.Second),
			Finished: now.Add(-1500 * time.Millisecond), ExecutionTimeout: 10 * time.Minute,
		}}
	}
	short := ran(job.Completed, "")
	short.Job.Started = short.Job.Finished.Add(-28 * time.Millisecond)
	low := waits(0, 0)
	low.Job.Class = job.LowPriority
	running := ran(job.InProgress, "")
	running.Job.Finished = time.Time{}
	long := running
	long.Job.Started = now.Add(-15 * time.Second)
	names := registry.Holder{Worker: registry.Worker{Seen: now, Running: []string{string(long.Job.ID)}}}
	paused := endpoint.Endpoint{WorkersMax: 3, PausedUntil: now.Add(time.Minute)}
	spent := endpoint.Endpoint{WorkersMax: 3, PausedUntil: now.Add(time.Minute), PauseReason: "its failure budget is used up"}
	process := endpoint.Fleet{Driver: string(pod.Process)}
	three := endpoint.Endpoint{WorkersMax: 3, Lease: 30 * time.Second, Fleet: process}
	off := endpoint.Endpoint{NoWorkers: true, Fleet: process}
	own := endpoint.Endpoint{ID: "ep", WorkersMax: 3}
	backoff := &registry.Decision{Text: "starts again in 8 s, since 3 workers ended at once"}
	grown := &registry.Decision{Reason: registry.ScalingDelay, Text: "3 jobs wait"}
	starts := func(n, since, usual int) (all []workerStart) {
		for range n {
			all = append(all, workerStart{id: "w", phase: pod.Loading, since: now.Add(-time.Duration(since) * time.Second), usual: time.Duration(usual) * time.Second})
		}
		return all
	}
	crashed := func(n int) *api.WorkerFailure {
		return &api.WorkerFailure{Text: "it ended by itself with code 1: no such model", Count: n}
	}
	for name, tt := range map[string]struct {
		x    explanation
		want string
	}{
		"all busy":                {explanation{position: waits(12, 12), endpoint: three, workers: counts(0, 3, 0, 0)}, "waiting: 12 jobs ahead, 3 of 3 workers busy"},
		"one ahead":               {explanation{position: waits(1, 1), endpoint: three, workers: counts(0, 3, 0, 0)}, "waiting: 1 job ahead, 3 of 3 workers busy"},
		"a long queue":            {explanation{position: waits(700, 900), endpoint: three, workers: counts(0, 4, 0, 0)}, "waiting: 700 to 900 jobs ahead, 4 of 3 workers busy"},
		"idle ones":               {explanation{position: waits(0, 0), endpoint: three, workers: counts(1, 2, 0, 0)}, "waiting: it is next, 1 worker of 3 idle"},
		"more could be":           {explanation{position: waits(2, 2), endpoint: three, workers: counts(0, 1, 0, 0), alive: true, decision: backoff}, "waiting: 2 jobs ahead, 1 worker busy; the autoscaler: starts again in 8 s, since 3 workers ended at once"},
		"nobody decides":          {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 1, 0, 0)}, "waiting: it is next, 1 worker busy; no autoscaler runs"},
		"an old decision":         {explanation{position: waits(0, 0), endpoint: three, decision: backoff}, "waiting: it is next, no worker is there; no autoscaler runs"},
		"no decision yet":         {explanation{position: waits(0, 0), endpoint: three, alive: true}, "waiting: it is next, no worker is there; the autoscaler has not decided yet"},
		"it loads":                {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 0, 1, 0), starts: starts(1, 42, 35)}, "waiting: it is next, 1 worker has been loading for 42s, usually 35s"},
		"for the first time":      {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 0, 1, 0), starts: starts(1, 42, 0)}, "waiting: it is next, 1 worker has been loading for 42s"},
		"some begin":              {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 0, 4, 0), starts: append(starts(2, 42, 35), workerStart{id: "p", phase: pod.Pulling, since: now.Add(-2 * time.Minute)})}, "waiting: it is next, 1 worker has been pulling the image for 2m0s, 2 workers have been loading, the first for 42s, usually 35s, 1 worker starts"},
		"one more loads":          {explanation{position: waits(2, 2), endpoint: three, workers: counts(0, 1, 1, 0), starts: starts(1, 42, 35), alive: true, decision: grown}, "waiting: 2 jobs ahead, 1 worker busy, 1 worker has been loading for 42s, usually 35s; the autoscaler: 3 jobs wait"},
		"it crashed":              {explanation{position: waits(0, 0), endpoint: three, failure: crashed(1), alive: true, decision: grown}, "waiting: it is next, no worker is there; 1 worker failed in the last hour: it ended by itself with code 1: no such model; the autoscaler: 3 jobs wait"},
		"it crashes":              {explanation{position: waits(0, 0), endpoint: three, failure: crashed(3), workers: counts(0, 0, 1, 0), starts: starts(1, 42, 35)}, "waiting: it is next, 1 worker has been loading for 42s, usually 35s; 3 workers failed in the last hour, the last: it ended by itself with code 1: no such model"},
		"the autoscaler says it":  {explanation{position: waits(0, 0), endpoint: three, failure: crashed(3), alive: true, decision: &registry.Decision{Reason: registry.ScalingBackoff, Text: "workers failed"}}, "waiting: it is next, no worker is there; the autoscaler: workers failed"},
		"it crashed long ago":     {explanation{position: waits(0, 0), endpoint: three, failure: crashed(0), alive: true, decision: grown}, "waiting: it is next, no worker is there; the autoscaler: 3 jobs wait"},
		"low priority":            {explanation{position: low, endpoint: three, alive: true, decision: backoff}, "waiting: it is next, no worker is there; no worker is started for jobs of low priority: it runs when one is free"},
		"external":                {explanation{position: waits(0, 0), endpoint: own, alive: true, decision: backoff}, "waiting: it is next, no worker is there; the driver is external, so Flightline starts none: 'flightline worker ep -- COMMAND' or 'flightline worker env ep'"},
		"starting":                {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 0, 2, 0)}, "waiting: it is next, 2 workers start"},
		"one starts":              {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 0, 1, 3)}, "waiting: it is next, 1 worker starts"},
		"all unhealthy":           {explanation{position: waits(0, 0), endpoint: three, workers: counts(0, 0, 0, 2)}, "waiting: it is next, 2 workers unhealthy and none other; no autoscaler runs"},
		"throttled":               {explanation{position: waits(0, 0), endpoint: three, workers: map[string]int{registry.WorkerThrottled: 1}}, "waiting: it is next, 1 worker throttled and none other; no autoscaler runs"},
		"paused by its budget":    {explanation{position: waits(5, 5), endpoint: spent, workers: counts(3, 0, 0, 0)}, "waiting: the endpoint is paused until 2026-11-21T12:01:00.000Z: its failure budget is used up"},
		"paused":                  {explanation{position: waits(5, 5), endpoint: paused, workers: counts(3, 0, 0, 0)}, "waiting: the endpoint is paused until 2026-11-21T12:01:00.000Z"},
		"the fleet is off":        {explanation{position: waits(0, 0), endpoint: off, alive: true}, "waiting: it is next, no worker is there; none is started, as workersMax is 0"},
		"off, and busy":           {explanation{position: waits(0, 0), endpoint: off, workers: counts(0, 2, 0, 0)}, "waiting: it is next, 2 workers busy; none is started, as workersMax is 0"},
		"offered":                 {explanation{position: queue.Position{Job: job.Job{Status: job.InQueue}, Offered: true}, endpoint: three, workers: counts(1, 0, 0, 0)}, "waiting: a worker was given it and has not picked it up; it is handed out again within 30s"},
		"given back":              {explanation{position: queue.Position{Job: job.Job{Status: job.InQueue, Run: 1}, Offered: true}, endpoint: three, alive: true, decision: backoff}, "waiting: a worker gave it back; it is handed out again within 30s; no worker is there; the autoscaler: starts again in 8 s, since 3 workers ended at once"},
		"running":                 {explanation{position: running, endpoint: three}, "running on worker w1 for 3s; it times out in 9m57s"},
		"it says so":              {explanation{position: long, endpoint: three, holder: names, pod: pod.Pod{ID: "w1", Status: pod.Exited, Changed: now}}, "running on worker w1 for 15s; it times out in 9m57s"},
		"it has not spoken since": {explanation{position: long, endpoint: three, holder: registry.Holder{Worker: registry.Worker{Seen: now.Add(-4 * time.Second)}, Ago: 4 * time.Second}}, "running on worker w1 for 15s; it times out in 9m57s"},
		"its worker ended":        {explanation{position: running, endpoint: three, workers: counts(0, 0, 1, 0), pod: pod.Pod{ID: "w1", Status: pod.Exited, Changed: now.Add(-time.Second), Change: "signal: killed"}}, "waiting for a worker to take it over: worker w1 ended at 2026-11-21T11:59:59.000Z: signal: killed; another gets it when the lease of 30s is over; it times out in 9m57s; 1 worker starts"},
		"it left its poll":        {explanation{position: long, endpoint: three, holder: names, left: now.Add(-time.Minute)}, "running on worker w1 for 15s; it times out in 9m57s; the worker left its poll at 2026-11-21T11:59:00.000Z and has begun none since"},
		"it polls again soon":     {explanation{position: long, endpoint: three, holder: names, left: now.Add(-time.Second)}, "running on worker w1 for 15s; it times out in 9m57s"},
		"nobody knows":            {explanation{position: long, endpoint: three, holder: registry.Holder{Unknown: true}}, "running on worker w1 for 15s; it times out in 9m57s"},
		"its worker is silent":    {explanation{position: long, endpoint: three, workers: counts(0, 1, 0, 0)}, "waiting for a worker to take it over: worker w1 sends no heartbeats; another gets it when the lease of 30s is over; it times out in 9m57s"},
		"it fell silent":          {explanation{position: long, endpoint: three, workers: counts(0, 1, 0, 0), holder: registry.Holder{Worker: names.Worker, Ago: 50 * time.Second}}, "waiting for a worker to take it over: worker w1 was last heard of 50s ago; another gets it when the lease of 30s is over; it times out in 9m57s"},
		"its worker forgot it":    {explanation{position: long, endpoint: three, workers: counts(1, 0, 0, 0), holder: registry.Holder{Worker: registry.Worker{Seen: now}}}, "waiting for a worker to take it over: worker w1 lives, and its heartbeat of 0s ago does not name the job; another gets it when the lease of 30s is over; it times out in 9m57s"},
		"completed":               {explanation{position: ran(job.Completed, "")}, "completed by worker w1 in 1.5s"},
		"completed at once":       {explanation{position: short}, "completed by worker w1 in 28ms"},
		"failed":                  {explanation{position: ran(job.Failed, "out of memory")}, "failed: out of memory"},
		"failed, silently":        {explanation{position: ran(job.Failed, "")}, "failed on worker w1"},
		"timed out":               {explanation{position: ran(job.TimedOut, "")}, "timed out: it ran for longer than its execution timeout of 10m0s"},
		"cancelled":               {explanation{position: ran(job.Cancelled, "")}, "cancelled"},
	} {
		tt.x.now = now
		if got := reasonOf(tt.x); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// scaler says that an autoscaler is active, and what it decided.
func (s *env) scaler(d registry.Decision) {
	s.t.Helper()
	leaders, err := s.bus.JS.KeyValue(s.t.Context(), streams.BucketLeaders)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := leaders.Put(s.t.Context(), registry.RoleAutoscaler, []byte(`{}`)); err != nil {
		s.t.Fatal(err)
	}
	d.Endpoint, d.At = "ep", time.Now()
	if err := s.registry.Scaling.Append(s.t.Context(), d); err != nil {
		s.t.Fatal(err)
	}
}

func (s *env) explained(id string) (v api.Explanation) {
	s.t.Helper()
	got := s.do("GET", "/ep/explain/"+id, "")
	if got.status != 200 {
		s.t.Fatalf("got %d %s", got.status, got.raw)
	}
	if err := json.Unmarshal([]byte(got.raw), &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

func TestExplainFollowsAJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	first, second := s.submit(), s.submit()
	var v api.Explanation
	testenv.Eventually(t, "both jobs are counted", func() bool { // a moment after they were accepted
		v = s.explained(second)
		return v.Queue != nil && v.Queue.InQueue == 2 && v.Queue.Position == 2
	})
	if v.ID != job.ID(second) || v.Queue == nil || v.Queue.Position != 2 || v.Queue.JobsAhead != 1 || !v.Queue.Exact || v.Queue.InQueue != 2 || v.WorkerID != "" {
		t.Errorf("waiting: got %+v", v)
	}
	if v.Autoscaler || v.Scaling != nil || !strings.HasPrefix(v.Reason, "waiting: 1 job ahead, ") || !strings.HasSuffix(v.Reason, "the driver is external, so Flightline starts none: 'flightline worker ep -- COMMAND' or 'flightline worker env ep'") {
		t.Errorf("waiting, and nobody scales: got %+v", v)
	}
	s.scaler(registry.Decision{Wanted: 2, Current: 1, Reason: registry.ScalingBackoff, Text: "the last worker crashed"})
	v = s.explained(second)
	if !v.Autoscaler || v.Scaling == nil || v.Scaling.Wanted != 2 || v.Scaling.Reason != "backoff" || v.Endpoint.WorkersMax != 3 {
		t.Errorf("scaled: got %+v", v)
	}
	lease := s.take()
	if v = s.explained(first); v.Queue != nil || v.WorkerID == "" || v.DeadlineAt == "" || v.StartedAt == "" || !strings.HasPrefix(v.Reason, "running on worker ") {
		t.Errorf("running: got %+v", v)
	}
	if _, err := lease.Fail(t.Context(), "handler says no"); err != nil {
		t.Fatal(err)
	}
	if v = s.explained(first); v.Status != job.Failed || v.Error != "handler says no" || v.FinishedAt == "" || v.DeadlineAt != "" || v.Reason != "failed: handler says no" {
		t.Errorf("failed: got %+v", v)
	}
	finished, errFinished := time.Parse(time.RFC3339, v.FinishedAt)
	expires, errExpires := time.Parse(time.RFC3339, v.ExpiresAt)
	if errFinished != nil || errExpires != nil || expires.Sub(finished) != 30*time.Minute {
		t.Errorf("failed: it ended at %s and expires at %s, want its retention of 30 min later", v.FinishedAt, v.ExpiresAt)
	}
	for path, code := range map[string]string{"/ep/explain/nobody": "job_not_found", "/none/explain/" + first: "endpoint_not_found"} {
		if got := s.do("GET", path, ""); got.status != 404 || got.body["code"] != code {
			t.Errorf("%s: got %d %s, want 404 %s", path, got.status, got.raw, code)
		}
	}
}

func TestStatusHasTheVersionThatIsAskedFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	lease := s.take()
	plain := s.do("GET", "/ep/status/"+id, "").raw
	ask := "/ep/status/" + id + "?includeVersion=true"
	if got := s.do("GET", ask, "").raw; got != plain {
		t.Errorf("no pod of the worker: got %s, want %s", got, plain)
	}
	if err := s.registry.Pods.Create(t.Context(), pod.Pod{
		ID: lease.Job.Worker, Endpoint: "ep", EndpointVersion: 7, Driver: pod.Process, Status: pod.Running,
	}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "explain has the version", func() bool { return s.explained(id).Version == 7 })
	want := strings.TrimSuffix(plain, "}") + `,"version":7}`
	for _, path := range []string{ask, "/ep/status-sync/" + id + "?wait=1000&includeVersion=1"} {
		if got := s.do("GET", path, "").raw; got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if got := s.do("GET", "/ep/status/"+id, "").raw; got != plain {
		t.Errorf("not asked for: got %s, want %s", got, plain)
	}
	for _, path := range []string{"/ep/status/", "/ep/status-sync/"} {
		got := s.do("GET", path+id+"?includeVersion=maybe", "")
		if got.status != 400 || got.body["error"] != `includeVersion must be true or false, got "maybe"` {
			t.Errorf("%s: got %d %s", path, got.status, got.raw)
		}
	}
}

func TestExplainTellsOfTheLastWorkerThatFailed(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	for i, p := range []pod.Pod{
		{Endpoint: "ep", Status: pod.Exited, By: pod.Exit, Change: "exited with 1: no such model"},
		{Endpoint: "ep", Status: pod.Exited, Change: "exited with 2: earlier"},
		{Endpoint: "ep", Status: pod.Terminated, Change: "removed"},
		{Endpoint: "other", Status: pod.Exited, Change: "exited with 3"},
		{Endpoint: "ep", Status: pod.Exited, By: pod.Stop, Change: "stopped by request"},
		{Endpoint: "ep", Status: pod.Exited, By: pod.Leave, Change: "its worker left"},
	} {
		p.ID, p.Changed = fmt.Sprintf("w%d", i), time.Now().Add(time.Duration(4-i)*time.Minute)
		if i >= 3 {
			p.Changed = time.Now().Add(time.Hour)
		}
		if err := s.registry.Pods.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the error of w0 is explained", func() bool {
		v := s.explained(id)
		return v.LastWorkerError != nil && v.LastWorkerError.WorkerID == "w0" && v.LastWorkerError.Text == "exited with 1: no such model" && v.LastWorkerError.Count == 2
	})
	e, err := s.registry.Endpoints.Find(t.Context(), "ep")
	if err != nil {
		t.Fatal(err)
	}
	e.Created = time.Now().Add(time.Hour) // of the same id, made again
	pods, err := s.registry.Pods.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if failure := lastFailure(pods, e, time.Now()); failure != nil {
		t.Errorf("got %+v, want none of its workers", failure)
	}
}

func TestScaleCountsAFleetByItsPods(t *testing.T) {
	t.Parallel()
	s := start(t)
	for id, p := range map[string]pod.Pod{
		"new": {}, "idle": {}, "drained": {Drain: pod.Drain{At: time.Now()}}, "gone": {Status: pod.Exited}, "own": {Driver: "none"}, "other": {Endpoint: "else"},
	} {
		p.ID, p.Status = id, cmp.Or(p.Status, pod.Running)
		p.Endpoint, p.Driver = cmp.Or(p.Endpoint, "ep"), cmp.Or(p.Driver, pod.Process)
		if id == "own" {
			p.Driver = ""
		}
		if err := s.registry.Pods.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	all := []registry.Worker{{ID: "idle", State: registry.WorkerIdle}, {ID: "drained", State: registry.WorkerRunning}, {ID: "own", State: registry.WorkerIdle}}
	fleet, err := s.service.fleet(t.Context(), endpoint.Endpoint{ID: "ep"}, all)
	var got []string
	for _, w := range fleet {
		got = append(got, fmt.Sprintf("%s %v", w.State, w.Draining))
	}
	if want := "running true, idle false, initializing false"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
}

// The bounds are the endpoint's, though it was decided by others; and who was
// told to drain does not count, whether it knows or its token does.
func TestScaleIsAsItIsNow(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.scaler(registry.Decision{Wanted: 3, WorkersMin: 1, WorkersMax: 5, Reason: registry.ScalingDelay, Hold: true})
	if _, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.WorkersMin, e.WorkersMax = 2, 7
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
	for id, w := range map[string]registry.Worker{"told": {}, "stays": {}, "knows": {Native: true, Draining: true}, "native": {Native: true}} {
		w.ID, w.Endpoint, w.State = id, "ep", registry.WorkerIdle
		if err := s.registry.Workers.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if w.Native {
			continue
		}
		if _, _, err := s.registry.Tokens.Issue(t.Context(), "ep", id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.registry.Tokens.Drain(t.Context(), "ep", "told"); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"workersMin": 2.0, "workersMax": 7.0, "idle": 2.0, "current": 2.0, "hold": true}
	testenv.Eventually(t, "the present numbers", func() bool {
		got := s.do("GET", "/ep/scale", "")
		for field, want := range want {
			if got.status != 200 || got.body[field] != want {
				t.Logf("%s: got %d %s, want %v", field, got.status, got.raw, want)
				return false
			}
		}
		return true
	})
}

func TestScaleIsANumberOrNone(t *testing.T) {
	t.Parallel()
	s := start(t)
	if got := s.do("GET", "/ep/scale", ""); got.status != 200 || got.raw != `{"known":false,"text":"no autoscaler is active"}` {
		t.Errorf("nobody decides: got %d %s, want no number", got.status, got.raw)
	}
	s.scaler(registry.Decision{Wanted: 3, Current: 1, Queued: 7, QueuedLow: 2, InProgress: 1, WorkersMax: 5, Reason: registry.ScalingDelay, Text: "a job waits"})
	// What it was decided by is long ago: jobs and workers are counted now, and bounds read.
	s.submit()
	for id, state := range map[string]string{"a": registry.WorkerIdle, "b": registry.WorkerInitializing, "c": registry.WorkerUnhealthy} {
		if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: id, Endpoint: "ep", State: state}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]any{
		"known": true, "wanted": 3.0, "current": 2.0, "starting": 1.0, "idle": 1.0, "unhealthy": 1.0, "queued": 1.0,
		"queuedLowPriority": 0.0, "inProgress": 0.0, "workersMax": 3.0, "reason": "queue_delay", "hold": false,
	}
	testenv.Eventually(t, "the present numbers", func() bool {
		got := s.do("GET", "/ep/scale", "")
		for field, want := range want {
			if got.status != 200 || got.body[field] != want {
				t.Logf("%s: got %d %s, want %v", field, got.status, got.raw, want)
				return false
			}
		}
		return true
	})
	if got := s.do("GET", "/none/scale", ""); got.status != 404 {
		t.Errorf("got %d %s, want 404", got.status, got.raw)
	}
	e, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) { return e, nil })
	if err != nil {
		t.Fatal(err)
	}
	e.Created = time.Now().Add(time.Hour) // of the same id, made again
	if d, alive, err := s.service.decided(t.Context(), e); d != nil || !alive || err != nil {
		t.Errorf("got %+v, %v, %v; want no decision about it", d, alive, err)
	}
}
