package control

import (
	"context"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/streams"
)

// paused is what JetStream says of the endpoint's consumers, which must agree.
func (s *env) paused(id string) (paused bool, left time.Duration) {
	s.t.Helper()
	for _, class := range job.Classes() {
		c, err := s.bus.JS.Consumer(s.t.Context(), streams.Jobs(id), streams.Consumer(class))
		if err != nil {
			s.t.Fatal(err)
		}
		if info := c.CachedInfo(); class == job.Normal {
			paused, left = info.Paused, info.PauseRemaining
		} else if info.Paused != paused {
			s.t.Errorf("the classes differ: %v and %v", paused, info.Paused)
		}
	}
	return paused, left
}

func TestPauseAndResumeOfAnEndpoint(t *testing.T) {
	s := start(t)
	s.expect("create", s.do("POST", "/endpoints", `{"id":"ep"}`), 200, "", "")
	got := s.do("POST", "/endpoints/ep/pause", `{"durationMs":600000}`)
	s.expect("pause", got, 200, "", "")
	text, _ := got.body["pausedUntil"].(string)
	until, err := time.Parse(time.RFC3339, text)
	if wait := time.Until(until); err != nil || wait < 9*time.Minute || wait > 11*time.Minute {
		t.Errorf("got pausedUntil %q, want in ten minutes", text)
	}
	if paused, left := s.paused("ep"); !paused || left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("got %v for %v, want paused for ten minutes", paused, left)
	}
	s.expect("another change keeps it", s.do("PATCH", "/endpoints/ep", `{"leaseMs":20000}`), 200, "", "")
	if paused, _ := s.paused("ep"); !paused || s.do("GET", "/endpoints/ep", "").body["pausedUntil"] != text {
		t.Error("a change of the endpoint ended its pause")
	}
	if got := s.do("POST", "/endpoints/ep/resume", ""); got.status != 200 || got.body["pausedUntil"] != nil {
		t.Errorf("resume: got %d %s", got.status, got.raw)
	}
	if paused, _ := s.paused("ep"); paused {
		t.Error("still paused")
	}
	s.expect("resume again", s.do("POST", "/endpoints/ep/resume", "{}"), 200, "", "")
	s.expect("without an end", s.do("POST", "/endpoints/ep/pause", ""), 200, "", "")
	if _, left := s.paused("ep"); left < endpoint.MaxPause-time.Hour {
		t.Errorf("got %v, want the longest", left)
	}
	s.expect("delete", s.do("DELETE", "/endpoints/ep", ""), 204, "", "")
}

func TestAPauseByTheBudgetIsShownAndResumed(t *testing.T) {
	s := start(t)
	s.expect("create", s.do("POST", "/endpoints", `{"id":"ep","failureBudget":20}`), 200, "", "")
	if _, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.PausedUntil, e.PauseReason = time.Now().Add(time.Hour), "its failure budget is used up"
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := s.do("PATCH", "/endpoints/ep", `{"failureBudget":30}`); got.body["pauseReason"] != "its failure budget is used up" || got.body["failureBudget"] != 30.0 {
		t.Errorf("got %s, want the new budget, and the reason as it was", got.raw)
	}
	if got := s.do("POST", "/endpoints/ep/resume", ""); got.status != 200 || got.body["pauseReason"] != nil || got.body["failureBudget"] != 30.0 {
		t.Errorf("resume: got %s, want the budget and no reason", got.raw)
	}
	if got := s.do("PATCH", "/endpoints/ep", `{"failureBudget":0}`); got.body["failureBudget"] != nil {
		t.Errorf("got %s, want no budget", got.raw)
	}
}

// Failures from before a budget was set do not count for it: the count begins at the
// change, as it does at a resume.
func TestFailuresCountFromTheChangeOfTheBudget(t *testing.T) {
	now := time.Now()
	past, future := now.Add(-time.Hour), now.Add(time.Hour)
	for name, test := range map[string]struct {
		budget       int
		paused, want time.Time
	}{
		"another budget":             {6, time.Time{}, now},
		"no budget":                  {0, time.Time{}, now},
		"the same budget":            {20, time.Time{}, time.Time{}},
		"after a pause":              {6, past, now},
		"the same one after a pause": {20, past, past},
		"during a pause":             {6, future, future},
	} {
		body := endpointBody{FailureBudget: &test.budget}
		got, err := body.change(endpoint.Endpoint{ID: "ep", FailureBudget: 20, PausedUntil: test.paused}, now)
		if err != nil || !got.PausedUntil.Equal(test.want) || got.FailureBudget != test.budget {
			t.Errorf("%s: got a budget of %d from %v, %v, want %d from %v", name, got.FailureBudget, got.PausedUntil, err, test.budget, test.want)
		}
	}
	s := start(t)
	s.expect("create", s.do("POST", "/endpoints", `{"id":"ep"}`), 200, "", "")
	s.expect("set a budget", s.do("PATCH", "/endpoints/ep", `{"failureBudget":6}`), 200, "", "")
	e, err := s.registry.Endpoints.Find(t.Context(), "ep")
	if err != nil || e.PausedUntil.Before(e.Created) || e.PausedUntil.After(time.Now().Add(time.Minute)) {
		t.Errorf("failures count from %v, %v, want from the change on", e.PausedUntil, err)
	}
	if paused, _ := s.paused("ep"); paused {
		t.Error("the change of the budget paused the queue")
	}
}

func TestARolloutAndItsCanaryAreShown(t *testing.T) {
	s := start(t)
	s.expect("create", s.do("POST", "/endpoints", `{"id":"ep","driver":"docker","imageName":"worker:1","rollout":"canary:10%"}`), 200, "", "")
	got := s.do("PATCH", "/endpoints/ep", `{"imageName":"worker:2"}`)
	canary, _ := got.body["canary"].(map[string]any)
	if got.body["rollout"] != "canary:10%" || canary["state"] != "running" || canary["version"] != 2.0 || canary["formerVersion"] != 1.0 || canary["beganAt"] != nil {
		t.Errorf("got %s, want the rollout, and version 2 beside version 1", got.raw)
	}
	s.expect("wrong", s.do("PATCH", "/endpoints/ep", `{"rollout":"canary"}`), 400, "invalid_request", "rollout must be")
	if got := s.do("PATCH", "/endpoints/ep", `{"rollout":"replace"}`); got.body["rollout"] != nil {
		t.Errorf("got %s, want no rollout but the default", got.raw)
	}
}

func TestBadPauses(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	for name, tc := range map[string]struct{ path, body, code, text string }{
		"too short":   {"/endpoints/ep/pause", `{"durationMs":999}`, "invalid_request", "durationMs must be between 1000 and"},
		"negative":    {"/endpoints/ep/pause", `{"durationMs":-9223372036854775808}`, "invalid_request", "durationMs must be between"},
		"too long":    {"/endpoints/ep/pause", `{"durationMs":9223372036854775807}`, "invalid_request", "durationMs must be between"},
		"a bit":       {"/endpoints/ep/pause", `{"durationMs":31536000001}`, "invalid_request", "and 31536000000"},
		"a word":      {"/endpoints/ep/pause", `{"durationMs":"10m"}`, "invalid_request", "durationMs must be a whole number"},
		"no object":   {"/endpoints/ep/pause", `[]`, "invalid_request", "JSON object"},
		"no endpoint": {"/endpoints/none/pause", ``, "endpoint_not_found", "no such endpoint"},
		"nor that":    {"/endpoints/none/resume", ``, "endpoint_not_found", "no such endpoint"},
	} {
		status := map[string]int{"invalid_request": 400, "endpoint_not_found": 404}[tc.code]
		s.expect(name, s.do("POST", tc.path, tc.body), status, tc.code, tc.text)
	}
}

// The process that wrote the record crashed before the consumers heard of it.
func TestRepairTellsTheQueueOfAPause(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	write := func(until time.Time) {
		t.Helper()
		_, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
			e.PausedUntil = until
			return e, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.service.repair(t.Context(), time.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	write(time.Now().Add(time.Hour))
	if paused, _ := s.paused("ep"); !paused {
		t.Error("a pause was not repaired")
	}
	write(time.Now())
	if paused, _ := s.paused("ep"); paused {
		t.Error("a resume was not repaired")
	}
}

// However many change the pause at once, and those of them that are asked to try
// again: record and queue agree in the end.
func TestPausesAtOnceAgreeWithTheRecord(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	done := make(chan answer)
	const n = 8
	for i := range n {
		go func() { done <- s.do("POST", "/endpoints/ep/"+[]string{"pause", "resume"}[i%2], "") }()
	}
	for range n {
		<-done
	}
	e, err := s.registry.Endpoints.Find(t.Context(), "ep")
	if err != nil {
		t.Fatal(err)
	}
	if paused, _ := s.paused("ep"); paused != e.Paused(time.Now()) {
		t.Errorf("the queue is paused: %v, the record says until %v", paused, e.PausedUntil)
	}
}

func TestAPausedEndpointWithJobsIsDeletedByForce(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	s.do("POST", "/endpoints/ep/pause", "")
	e := s.endpoint("ep")
	id := s.submit(e)
	s.expect("without force", s.do("DELETE", "/endpoints/ep", ""), 409, "endpoint_busy", "")
	s.expect("by force", s.do("DELETE", "/endpoints/ep?force=true", ""), 204, "", "")
	if j, err := s.queue.Status(t.Context(), e, id); err != nil || j.Status != job.Cancelled {
		t.Errorf("got %+v, %v; want it cancelled", j, err)
	}
}

func TestScalingHistory(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	if got := s.do("GET", "/endpoints/ep/scaling", ""); got.status != 200 || got.raw != "[]" {
		t.Errorf("got %d %s, want none", got.status, got.raw)
	}
	for i := range 3 {
		decision := registry.Decision{Endpoint: "ep", At: time.Date(2100, 1, 2, 3, 4, i, 0, time.UTC), Wanted: i, OldestWait: 1500 * time.Millisecond, Reason: registry.ScalingDelay, Text: "a job has waited for 1.5 s"}
		if err := s.registry.Scaling.Append(context.Background(), decision); err != nil {
			t.Fatal(err)
		}
	}
	got := s.do("GET", "/endpoints/ep/scaling?limit=2", "")
	golden(t, "testdata/scaling.json", got.raw)
	for _, limit := range []string{"0", "101", "x", "-1"} {
		s.expect(limit, s.do("GET", "/endpoints/ep/scaling?limit="+limit, ""), 400, "invalid_request", "limit must be between 1 and 100")
	}
	s.expect("none", s.do("GET", "/endpoints/none/scaling", ""), 404, "endpoint_not_found", "")
}
