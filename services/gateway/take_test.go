package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestAJobIsTakenAndDone(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit(func(r *job.Request) {
		r.Webhook = "http://127.0.0.1:1/hook"
		r.S3Config = json.RawMessage(`{"accessId":"a"}`)
		r.Policy = job.Policy{ExecutionTimeout: 7 * time.Second, TTL: time.Hour}
	})
	got := w.take()
	if got.ID != id || string(got.Input) != `{"n": 1}` || got.Webhook != "http://127.0.0.1:1/hook" || string(got.S3Config) != `{"accessId":"a"}` {
		t.Errorf("got %+v", got)
	}
	if string(got.Policy) != `{"executionTimeout":7000,"ttl":3600000}` {
		t.Errorf("got policy %s", got.Policy)
	}
	if j := s.status(id); j.Status != job.InProgress || j.Worker != "w1" {
		t.Errorf("got %s held by %q, want IN_PROGRESS by w1", j.Status, j.Worker)
	}
	w.done(id, `{"output": {"ok": true, "text": "ä<&>"}}`)
	s.is(id, job.Completed, `{"ok":true,"text":"ä<&>"}`, "")
	testenv.Eventually(t, "the queue is empty", func() bool {
		stats, err := s.queue.Counts.Stats(t.Context(), s.endpoint)
		must(t, err)
		return stats.Queued+stats.Running == 0
	})
}

func TestAnEmptyInputIsThere(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	s.submit(func(r *job.Request) { r.Input = json.RawMessage(`{}`) })
	if got := w.take(); string(got.Input) != `{}` {
		t.Errorf("got input %s, want {}", got.Input)
	}
}

func TestAPollIsHeldAndThenEmpty(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	for _, path := range []string{"/job-take/%w?gpu=any&job_in_progress=0", "/job-take-batch/%w?gpu=any&batch_size=3&job_in_progress=1", "/job-stop/%w?gpu=any"} {
		began := time.Now()
		if a := w.send("GET", path, nil); a.status != http.StatusNoContent || a.raw != "" || time.Since(began) < shortHold {
			t.Errorf("%s: got %d %q after %s, want 204 after %s", path, a.status, a.raw, time.Since(began), shortHold)
		}
	}
}

// How many a poll brings is the machine's affair; that it brings several is not.
func TestABatchIsAnArrayOfNoMoreThanAsked(t *testing.T) {
	s := newSiteAlone(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	for round, most := 0, 0; most < 3; round++ {
		if round == 20 {
			t.Fatalf("no poll of %d rounds brought three jobs, the most was %d", round, most)
		}
		for range 5 {
			s.submit()
		}
		for left := 5; left > 0; {
			var got []taken
			a := w.send("GET", "/job-take-batch/%w?gpu=any&job_in_progress=0&batch_size=3", nil)
			if err := json.Unmarshal([]byte(a.raw), &got); err != nil || len(got) < 1 || len(got) > min(3, left) {
				t.Fatalf("got %d %s, %v, want 1 to 3 of %d jobs", a.status, a.raw, err, left)
			}
			most, left = max(most, len(got)), left-len(got)
			for _, j := range got {
				w.done(j.ID, `{"output":1}`)
				s.is(j.ID, job.Completed, `1`, "")
			}
		}
	}
}

// A poll takes no further job once it has 32 MiB of inputs.
func TestABatchIsBoundedByItsBytes(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	const size = maxBatchBytes/2 + 1
	for range 4 {
		s.submit(func(r *job.Request) { r.Input = json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`) })
	}
	for left := 4; left > 0; {
		var got []taken
		a := w.send("GET", "/job-take-batch/%w?batch_size=10", nil)
		if err := json.Unmarshal([]byte(a.raw), &got); err != nil || len(got) < 1 || len(got) > 2 {
			t.Fatalf("got %d with %d jobs, %v, want 1 or 2", a.status, len(got), err)
		}
		left -= len(got)
	}
}

// RunPod's own stand-in gives an address without a ?, to which the SDK appends.
func TestParametersMayBePartOfThePath(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	if a := w.send("GET", "/job-take/%w&job_in_progress=0", nil); a.status != 200 || !strings.Contains(a.raw, id) {
		t.Errorf("got %d %s, want the job", a.status, a.raw)
	}
	w.ok("POST", "/job-done/%w/"+id+"&isStream=false", `{"output":1}`)
	s.is(id, job.Completed, `1`, "")
	s.submit()
	if a := w.send("GET", "/job-take-batch/%w&job_in_progress=0&batch_size=2", nil); strings.Count(a.raw, `"id"`) != 1 || !strings.HasPrefix(a.raw, "[") {
		t.Errorf("got %d %s, want an array of the job", a.status, a.raw)
	}
}

func TestHeadTakesNothing(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	if a := w.send("HEAD", "/job-take/%w?gpu=any", nil); a.status != http.StatusMethodNotAllowed && a.status != http.StatusNotFound {
		t.Errorf("got %d, want no such route", a.status)
	}
	s.is(id, job.InQueue, "", "")
}

// A worker that closes its connection while it waits gets no job.
func TestAWorkerThatLeftGetsNoJob(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := w.try(ctx, "GET", "/job-take/w1?gpu=any&job_in_progress=0", nil)
		left <- err
	}()
	testenv.Eventually(t, "the poll waits", func() bool { return s.pulls() > 0 })
	leave()
	if err := <-left; err == nil {
		t.Error("the poll was answered, want it cut off")
	}
	id := s.submit()
	other := s.worker("w2", w.gates...)
	if got := other.take(); got.ID != id {
		t.Fatalf("got %s, want %s", got.ID, id)
	}
	if j := s.status(id); j.Worker != "w2" || j.Retries() != 0 {
		t.Errorf("got %q after %d retries, want w2 at once", j.Worker, j.Retries())
	}
}

// pulls counts the open polls of the endpoint's queue.
func (s *env) pulls() int {
	s.t.Helper()
	stream, err := s.bus.JS.Stream(s.t.Context(), "JOBS_ep")
	must(s.t, err)
	consumer, err := stream.Consumer(s.t.Context(), "normal")
	must(s.t, err)
	return consumer.CachedInfo().NumWaiting
}

func TestTokensAreBoundToTheEndpointAndTheWorker(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	w := s.worker("w1", g)
	other := s.worker("w2", g)
	id := s.submit()
	for name, token := range map[string]string{"none": "", "unknown": "fw_unknown", "another worker's": other.token, "bearer of an unknown one": "Bearer x"} {
		bad := &worker{s: s, id: "w1", token: token, gates: w.gates}
		for _, path := range []string{"/job-take/%w?gpu=any", "/job-take-batch/%w?gpu=any", "/job-stop/%w?gpu=any", "/ping/%w?gpu=any&job_id=" + id} {
			if a := bad.send("GET", path, nil); a.status != http.StatusUnauthorized {
				t.Errorf("%s, %s: got %d, want 401", name, path, a.status)
			}
		}
		for _, path := range []string{"/job-done/%w/" + id, "/job-stream/%w/" + id} {
			if a := bad.send("POST", path, strings.NewReader(`{"output":1}`)); a.status != http.StatusUnauthorized {
				t.Errorf("%s, %s: got %d, want 401", name, path, a.status)
			}
		}
	}
	s.is(id, job.InQueue, "", "")
	bearer := &worker{s: s, id: "w1", token: "Bearer " + w.token, gates: w.gates}
	bearer.ping()
	must(t, s.registry.Tokens.Revoke(t.Context(), "ep", "w1"))
	testenv.Eventually(t, "the token is refused", func() bool { return w.send("GET", "/ping/%w?gpu=any", nil).status == 401 })
}

func TestADrainingWorkerIsAnsweredAtOnceAndGetsNoMore(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{Hold: patience})
	w := s.worker("w1", g)
	running := s.submit()
	if got := w.take(); got.ID != running {
		t.Fatalf("got %s, want %s", got.ID, running)
	}
	polls := make(chan answer, 2)
	for _, path := range []string{"/job-take/w1?gpu=any", "/job-stop/w1?gpu=any"} {
		one := &worker{s: s, id: "w1", token: w.token, gates: w.gates}
		go func() { a, _ := one.try(t.Context(), "GET", path, nil); polls <- a }()
	}
	testenv.Eventually(t, "the poll waits", func() bool { return s.pulls() > 0 })
	began := time.Now()
	_, err := s.registry.Tokens.Drain(t.Context(), "ep", "w1")
	must(t, err)
	for range 2 {
		if a := <-polls; a.status != http.StatusNoContent || time.Since(began) > patience/2 {
			t.Errorf("got %d after %s, want 204 at once", a.status, time.Since(began))
		}
	}
	waiting := s.submit()
	if a := w.send("GET", "/job-take/%w?gpu=any", nil); a.status != http.StatusNoContent {
		t.Errorf("got %d %s, want no job", a.status, a.raw)
	}
	s.is(waiting, job.InQueue, "", "")
	w.ping(running)
	w.done(running, `{"output":1}`)
	s.is(running, job.Completed, "1", "")
}

func TestAWorkerThatRestartsItselfIsLetGo(t *testing.T) {
	s := newEnv(t)
	one, two := s.gateway(Config{Hold: patience}), s.gateway(Config{Hold: patience})
	w := s.worker("w1", one)
	id := s.submit()
	w.take()
	poll := make(chan answer, 1)
	waiting := &worker{s: s, id: "w1", token: w.token, gates: []*instance{two}}
	go func() { a, _ := waiting.try(t.Context(), "GET", "/job-take/w1?gpu=any", nil); poll <- a }()
	testenv.Eventually(t, "the poll waits", func() bool { return s.pulls() > 0 })
	began := time.Now()
	w.done(id, `{"output":1,"stopPod":true}`)
	if a := <-poll; a.status != http.StatusNoContent || time.Since(began) > patience/2 {
		t.Errorf("got %d after %s, want 204 at once", a.status, time.Since(began))
	}
	s.is(id, job.Completed, "1", "")
	again := s.submit()
	if got := w.take(); got.ID != again { // it is back
		t.Errorf("got %s, want %s", got.ID, again)
	}
}

// RunPod's SDK goes on after a handler returned refresh_worker. A fleet's worker that got the
// next job 3 s later asked for a restart every 4 s, and its autoscaler waits for 5 s.
func TestWhoAskedForARestartWaitsForIt(t *testing.T) {
	at := time.Now()
	for _, tc := range []struct {
		fleet bool
		after time.Duration
		want  bool
	}{
		{false, time.Second, false},
		{false, 4 * time.Second, true}, // its owner's container may have been started again
		{true, 4 * time.Second, false},
		{true, 20 * time.Second, false},
		{true, time.Minute, true}, // no autoscaler is there
	} {
		token := registry.Token{Hash: "h", Refreshed: at, Expires: tc.fleet}
		if got := mayTake(token, "h", at.Add(tc.after)); got != tc.want {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
}

func TestADeletedEndpointAnswersItsPollsAndLosesNothing(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	poll := make(chan answer, 1)
	go func() { a, _ := w.try(t.Context(), "GET", "/job-take/w1?gpu=any", nil); poll <- a }()
	testenv.Eventually(t, "the poll waits", func() bool { return s.pulls() > 0 })
	_, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), s.endpoint)
	must(t, err)
	if a := <-poll; a.status != http.StatusNoContent {
		t.Errorf("got %d %s, want 204", a.status, a.raw)
	}
	w.ping("some-job")
	w.done("some-job", `{"output":1}`)
	w.emit("some-job", `{"output":1}`)
}

// A ping that names more than it has room for is refused, and all leases would be lost.
func TestAWorkerWithAThousandJobsGetsNoMore(t *testing.T) {
	s := newEnv(t)
	g, other := s.gateway(Config{}), s.gateway(Config{})
	w := s.worker("w1", g)
	ids := make([]job.ID, maxHeld)
	running := make([]string, maxHeld)
	for i := range ids {
		ids[i], running[i] = queue.NewID(job.Async), strconv.Itoa(i)
	}
	w.ping() // the token is known to the gateway
	must(t, s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "w1", Endpoint: "ep", State: registry.WorkerRunning, Running: running}))
	g.service.named.set("ep.w1", ids, time.Now(), time.Minute)
	testenv.Eventually(t, "the heartbeat is seen", func() bool {
		return len(s.registry.Workers.Last("ep", "w1").Worker.Running) == maxHeld
	})
	for range 3 {
		s.submit()
	}
	for name, at := range map[string]*instance{"pinged": g, "another instance was pinged": other} {
		w.gates = []*instance{at}
		for _, path := range []string{"/job-take/%w?gpu=any", "/job-take-batch/%w?batch_size=3"} {
			if a := w.send("GET", path, nil); a.status != http.StatusNoContent {
				t.Errorf("%s: %s: got %d %s, want nothing", name, path, a.status, a.raw)
			}
		}
	}
	w.gates = []*instance{g}
	w.done(string(ids[0]), `{"output":1}`)
	testenv.Eventually(t, "jobs are handed out", func() bool {
		a := w.send("GET", "/job-take-batch/%w?batch_size=3", nil)
		if a.status != http.StatusNoContent && strings.Count(a.raw, `"id"`) != 1 {
			t.Errorf("got %d %s, want the one job that it may still hold", a.status, a.raw)
		}
		return a.status != http.StatusNoContent
	})
	if a := w.send("GET", "/job-take/%w?gpu=any", nil); a.status != http.StatusNoContent {
		t.Errorf("got %d %s, want nothing after that", a.status, a.raw)
	}
}
