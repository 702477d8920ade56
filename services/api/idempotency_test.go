package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// twin is another instance of the API on the same bus, with the log of events.
func (s *system) twin() *system {
	s.t.Helper()
	log, err := events.New(s.bus.NC, s.bus.JS, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	nc := s.bus.Connect(s.t)
	served, err := queue.New(s.t.Context(), nc, queue.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	o := *s
	o.conn = nc
	if o.service, err = New(Config{}, Deps{Queue: served, Registry: s.registry, Events: log}); err != nil {
		s.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	app := web.New(web.Config{Log: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	o.service.Routes(app)
	o.base = "http://" + listener.Addr().String() + "/v2"
	background(s.t, served.Run)
	background(s.t, func(ctx context.Context) error { return web.Serve(ctx, app, listener) })
	return &o
}

// shorten gives the endpoint a retention and waits until that is known.
func (s *system) shorten(retention time.Duration) {
	s.t.Helper()
	changed, err := s.registry.Endpoints.Update(s.t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.Retention, e.SyncRetention = retention, retention
		return e, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the retention is known", patience, func() bool {
		e, err := s.registry.Endpoints.Get(s.t.Context(), "ep")
		return err == nil && e.Version == changed.Version
	})
}

// keyed sends a submission with an Idempotency-Key.
func (s *system) keyed(path, key, body string) answer {
	s.t.Helper()
	req := s.request("POST", path, strings.NewReader(body))
	req.Header.Set("Idempotency-Key", key)
	return s.send(req)
}

// worker completes every job with its run's number and counts the runs by job.
func (s *system) worker() (runs func() map[job.ID]int) {
	s.t.Helper()
	var mu sync.Mutex
	seen := map[job.ID]int{}
	taker, err := s.queue.Take(s.t.Context(), s.endpoint, "worker", 4)
	if err != nil {
		s.t.Fatal(err)
	}
	background(s.t, func(ctx context.Context) error {
		defer taker.Close()
		for {
			l, err := taker.Next(ctx)
			if err != nil {
				return err
			}
			mu.Lock()
			seen[l.Job.ID]++
			mu.Unlock()
			if _, err := l.Complete(ctx, json.RawMessage(`{"done":true}`)); err != nil {
				return err
			}
		}
	})
	return func() map[job.ID]int { mu.Lock(); defer mu.Unlock(); return maps.Clone(seen) }
}

// forget does what the recorder does once a job's retention is over.
func (s *system) forget(id string) {
	s.t.Helper()
	log, err := events.New(s.bus.NC, s.bus.JS, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	q, err := queue.New(s.t.Context(), s.bus.NC, queue.Config{ForgetGrace: time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	err = q.Facts(ctx, 0, 0, func(f queue.Fact) error {
		if string(f.Job.ID) != id || !f.Job.Status.Terminal() {
			return nil
		}
		if err := log.Append(ctx, eventOf(f.Job)); err != nil {
			return err
		}
		eventually(s.t, "the record is gone", patience, func() bool {
			done, err := q.Forget(ctx, 0, f.Seq)
			return err == nil && done
		})
		cancel()
		return nil
	})
	if err != nil || ctx.Err() == context.DeadlineExceeded {
		s.t.Fatalf("job %s is not forgotten: %v", id, err)
	}
}

func eventOf(j job.Job) events.Event {
	return events.Event{
		Kind: events.KindOf(j.Status), Endpoint: j.Endpoint, Job: j.ID, Attempt: j.Attempt, Run: j.Run, At: j.Finished,
		Mode: j.Mode, Class: j.Class, Status: j.Status, Submitted: j.Submitted, Queued: j.Queued, Started: j.Started,
		Finished: j.Finished, Expires: j.Expires, RetainUntil: j.RetainUntil,
	}
}

const someInput = `{"input":{"n":1}}`

func TestOneKeyIsOneJobWhoeverAsksAndHowever(t *testing.T) {
	s := start(t)
	instances := []*system{s.twin(), s.twin()}
	runs := s.worker()
	var all sync.WaitGroup
	answers := make([]answer, 64)
	for i := range answers {
		all.Go(func() { answers[i] = instances[i%2].keyed("/ep/run", "one", someInput) })
	}
	all.Wait()
	fresh := 0
	for _, a := range answers {
		if a.status != 200 || a.raw != answers[0].raw || a.header.Get("X-Job-Id") != a.id() || a.body["status"] != "IN_QUEUE" {
			t.Fatalf("got %d %s, want as the first: %s", a.status, a.raw, answers[0].raw)
		}
		if a.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("got %d answers that are no replay, want 1", fresh)
	}
	id := job.ID(answers[0].id())
	eventually(t, "the job ran", patience, func() bool { return runs()[id] > 0 })
	if again := s.keyed("/ep/run", "one", someInput); again.raw != answers[0].raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("after its end: got %d %s, want the first answer, replayed", again.status, again.raw)
	}
	if got := runs(); len(got) != 1 || got[id] != 1 {
		t.Errorf("got runs %v, want one of one job", got)
	}
}

func TestRunSyncIsRepeatedWithItsResult(t *testing.T) {
	s := start(t)
	first := s.keyed("/ep/runsync?wait=1000", "k", someInput)
	if first.body["status"] != "IN_QUEUE" {
		t.Fatalf("without a worker: got %s", first.raw)
	}
	runs := s.worker()
	var results []answer
	for range 3 {
		results = append(results, s.keyed("/ep/runsync", "k", someInput))
	}
	for _, r := range results {
		if r.status != 200 || r.id() != first.id() || r.body["status"] != "COMPLETED" || r.raw != results[0].raw || r.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %d %s, want the first job's result", r.status, r.raw)
		}
	}
	if got := runs(); len(got) != 1 || got[job.ID(first.id())] != 1 {
		t.Errorf("got runs %v, want one", got)
	}
}

func TestAKeyStandsForOneRequest(t *testing.T) {
	s := start(t)
	plain, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: registry.AllScopes()})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.queue.CreateEndpoint(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	first := s.keyed("/ep/run", "k", someInput)
	for name, test := range map[string]struct {
		path, key, body, caller string
		status                  int
		same                    bool
	}{
		"the same":                    {"/ep/run", "k", someInput, "Bearer " + adminKey, 200, true},
		"with the API key bare":       {"/ep/run", "k", someInput, adminKey, 200, true},
		"another body":                {"/ep/run", "k", `{"input":{"n":2}}`, adminKey, 422, false},
		"another operation":           {"/ep/runsync", "k", someInput, adminKey, 422, false},
		"another key":                 {"/ep/run", "K", someInput, adminKey, 200, false},
		"another endpoint":            {"/other/run", "k", someInput, adminKey, 200, false},
		"another caller":              {"/ep/run", "k", someInput, plain, 200, false},
		"the longest key":             {"/ep/run", strings.Repeat("~", 255), someInput, adminKey, 200, false},
		"a key that is too long":      {"/ep/run", strings.Repeat("k", 256), someInput, adminKey, 400, false},
		"an empty key":                {"/ep/run", "", someInput, adminKey, 400, false},
		"a key with a space":          {"/ep/run", "a b", someInput, adminKey, 400, false},
		"a key that is not ASCII":     {"/ep/run", "schlüssel", someInput, adminKey, 400, false},
		"a body that is no good":      {"/ep/run", "bad", `{"prompt":1}`, adminKey, 400, false},
		"an endpoint that is unknown": {"/nobody/run", "k", someInput, adminKey, 404, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := s.request("POST", test.path, strings.NewReader(test.body))
			req.Header["Idempotency-Key"] = []string{test.key}
			req.Header.Set("Authorization", test.caller)
			got := s.send(req)
			if got.status != test.status || (got.id() == first.id()) != test.same {
				t.Errorf("got %d %s, want %d; the same job: %t", got.status, got.raw, test.status, test.same)
			}
			if code := got.body["code"]; test.status == 422 && code != "idempotency_mismatch" {
				t.Errorf("got code %v", code)
			}
			if text, _ := got.body["error"].(string); test.status == 400 && strings.Contains(name, "key") && !strings.Contains(text, "Idempotency-Key") {
				t.Errorf("got %q, want the header named", text)
			}
		})
	}
}

// What a crash between two steps leaves behind is finished by the next request.
func TestAKeyWhoseJobWasNeverQueuedQueuesIt(t *testing.T) {
	s := start(t)
	runs := s.worker()
	e, err := s.registry.Endpoints.Get(t.Context(), "ep")
	if err != nil {
		t.Fatal(err)
	}
	for name, crash := range map[string]func(id job.ID) error{
		"before the job was queued": func(job.ID) error { return nil },
		"after it was queued": func(id job.ID) error {
			_, err := s.queue.Submit(t.Context(), e, id, job.Async, job.Request{Input: json.RawMessage(`{"n":1}`)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			id, key := queue.NewID(job.Async), "crash-"+strings.ReplaceAll(name, " ", "-")
			sum := sumOf(someInput)
			claimed, first, err := s.registry.Idempotency.Claim(t.Context(), registry.IdempotencyKey(e, adminKey, key), registry.Submission{Job: id, Mode: job.Async, Body: sum})
			if err != nil || !first || claimed.Job != id {
				t.Fatalf("got %+v, %t, %v", claimed, first, err)
			}
			if err := crash(id); err != nil {
				t.Fatal(err)
			}
			restarted := s.twin()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if got := restarted.keyed("/ep/run", key, someInput); got.status != 200 || got.id() != string(id) {
						t.Errorf("got %d %s, want job %s", got.status, got.raw, id)
					}
				})
			}
			all.Wait()
			eventually(t, "the job ran", patience, func() bool { return runs()[id] > 0 })
			if got := runs()[id]; got != 1 {
				t.Errorf("got %d runs, want 1", got)
			}
		})
	}
}

func TestAReplayAfterTheRetentionTellsTheLastKnownStatus(t *testing.T) {
	s := start(t)
	s.shorten(time.Second)
	api := s.twin()
	runs := s.worker()
	for _, path := range []string{"/ep/run", "/ep/runsync"} {
		first := api.keyed(path, "k"+strings.ReplaceAll(path, "/", "-"), someInput)
		if first.status != 200 {
			t.Fatalf("%s: got %d %s", path, first.status, first.raw)
		}
		eventually(t, "its retention is over", patience, func() bool { return api.do("GET", "/ep/status/"+first.id(), "").status == 404 })
		s.forget(first.id())
		want := fmt.Sprintf(`{"id":%q,"status":"COMPLETED"}`, first.id())
		for range 2 {
			again := api.keyed(path, "k"+strings.ReplaceAll(path, "/", "-"), someInput)
			if again.status != 200 || again.raw != want || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: got %d %s, want %s, replayed", path, again.status, again.raw, want)
			}
		}
		if got := runs()[job.ID(first.id())]; got != 1 {
			t.Errorf("%s: got %d runs, want 1", path, got)
		}
	}
}

// A job that expired in the queue left no trace but the mark at its key.
func TestAJobThatExpiredUnseenIsNotQueuedAgain(t *testing.T) {
	s := start(t)
	api := s.twin()
	first := api.keyed("/ep/run", "k", someInput)
	if got := api.do("GET", "/ep/status/"+first.id()+"?ttl=1000", ""); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.raw)
	}
	eventually(t, "it expires", patience, func() bool { return api.do("GET", "/ep/status/"+first.id(), "").status == 404 })
	if again := api.keyed("/ep/run", "k", someInput); again.raw != first.raw {
		t.Errorf("got %d %s, want %s", again.status, again.raw, first.raw)
	}
	if got := api.do("GET", "/ep/status/"+first.id(), ""); got.status != 404 {
		t.Errorf("got %d %s, want it not queued again", got.status, got.raw)
	}
}

func TestARequestRefusedInAnOutageIsRepeatedAsOneJob(t *testing.T) {
	s := start(t)
	api := s.twin()
	s.bus.Stop()
	if got := api.keyed("/ep/run", "k", someInput); got.status != http.StatusServiceUnavailable {
		t.Fatalf("without JetStream: got %d %s", got.status, got.raw)
	}
	s.bus.Start()
	runs := s.worker()
	var ids []string
	eventually(t, "three requests got through", patience, func() bool {
		if got := api.keyed("/ep/run", "k", someInput); got.status == 200 {
			ids = append(ids, got.id())
		}
		return len(ids) == 3
	})
	eventually(t, "the job ran", patience, func() bool { return runs()[job.ID(ids[0])] > 0 })
	if got := runs(); len(got) != 1 || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("got jobs %v and runs %v, want one", ids, got)
	}
}

func sumOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// Requests that are repeated until they get through, while JetStream comes and
// goes, are one job for each key, and each runs once.
func TestKeysOutliveOutages(t *testing.T) {
	s := start(t)
	instances := []*system{s.twin(), s.twin()}
	runs := s.worker()
	const keys = 24
	ids := make([]string, keys)
	var clients sync.WaitGroup
	for k := range keys {
		clients.Go(func() {
			deadline := time.Now().Add(patience)
			for try := 0; time.Now().Before(deadline); try++ {
				got := instances[(k+try)%2].keyed("/ep/run", fmt.Sprintf("key-%d", k), someInput)
				switch {
				case got.status == http.StatusOK && ids[k] != "" && ids[k] != got.id():
					t.Errorf("key %d: got jobs %s and %s", k, ids[k], got.id())
					return
				case got.status == http.StatusOK && ids[k] != "":
					return // twice is enough
				case got.status == http.StatusOK:
					ids[k] = got.id()
				case got.status != http.StatusServiceUnavailable:
					t.Errorf("key %d: got %d %s", k, got.status, got.raw)
				}
			}
			t.Errorf("key %d never got through twice", k)
		})
	}
	for range 4 {
		<-time.After(30 * time.Millisecond)
		s.bus.Stop()
		<-time.After(100 * time.Millisecond)
		s.bus.Start()
	}
	clients.Wait()
	eventually(t, "all jobs ran", patience, func() bool { return len(runs()) == keys })
	for _, id := range ids {
		if n := runs()[job.ID(id)]; n != 1 {
			t.Errorf("job %s: got %d runs, want 1", id, n)
		}
	}
}
