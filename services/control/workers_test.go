package control

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestAWorkerIsLetInDrainedAndShutOut(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	made := s.do("POST", "/endpoints/ep1/workers", `{"id":"w1"}`)
	s.expect("create", made, 200, "", "")
	token, _ := made.body["token"].(string)
	if !strings.HasPrefix(token, "fw_") || made.body["id"] != "w1" || made.body["pingIntervalMs"] != 5000.0 || made.body["draining"] != false {
		t.Errorf("got an answer of another form with %d fields", len(made.body))
	}
	if _, err := s.registry.Tokens.Check(t.Context(), token, "ep1", "w1"); err != nil {
		t.Error(err)
	}
	if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "w1", Endpoint: "ep1", State: registry.WorkerRunning, Running: []string{"j1"}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the list has what it does", func() bool {
		list := s.do("GET", "/endpoints/ep1/workers", "")
		if strings.Contains(list.raw, token) || strings.Contains(list.raw, "hash") {
			t.Fatal("the list gives something away")
		}
		return strings.Contains(list.raw, `"state":"running","running":["j1"]`)
	})
	if got := s.do("POST", "/endpoints/ep1/workers/w1/drain", ""); got.status != 200 || got.body["draining"] != true {
		t.Errorf("drain: got %d %s", got.status, got.raw)
	}
	if got := s.do("DELETE", "/endpoints/ep1/workers/w1", ""); got.status != 204 {
		t.Errorf("revoke: got %d %s", got.status, got.raw)
	}
	s.expect("revoke for nobody", s.do("DELETE", "/endpoints/nobody/workers/w1", ""), 404, "endpoint_not_found", "no such endpoint")
	s.expect("revoke again", s.do("DELETE", "/endpoints/ep1/workers/w1", ""), 404, "not_found", "no such worker")
	s.expect("drain nobody", s.do("POST", "/endpoints/ep1/workers/w1/drain", ""), 404, "not_found", "no such worker")
}

// A token that is issued while its endpoint is deleted would let its worker in at the next
// endpoint of the id.
func TestATokenOfAnEndpointThatWasDeletedMeanwhileIsRevoked(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	s.expect("delete", s.do("DELETE", "/endpoints/ep1", ""), 204, "", "")
	for _, then := range []string{"deleted", "made again"} {
		if then == "made again" {
			s.expect("make it again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
		}
		if _, _, err := issueFor(t.Context(), s.registry, e, "w1"); !errors.Is(err, endpoint.ErrNotFound) {
			t.Errorf("%s: got %v, want endpoint.ErrNotFound", then, err)
		}
		if left, err := s.registry.Tokens.List(t.Context(), "ep1"); err != nil || len(left) > 0 {
			t.Errorf("%s: got %d tokens, %v, want none", then, len(left), err)
		}
	}
}

// What the endpoint sets for its workers is given to the caller who lets one in, and
// to nobody else.
func TestTheEndpointsEnvironmentGoesWithTheToken(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1","env":{"MODEL":"tiny","BUCKET_SECRET_ACCESS_KEY":"s3cret"}}`)
	made := s.do("POST", "/endpoints/ep1/workers", `{"id":"w1"}`)
	if env, _ := made.body["env"].(map[string]any); env["MODEL"] != "tiny" || env["BUCKET_SECRET_ACCESS_KEY"] != "s3cret" {
		t.Errorf("got %d %s, want the endpoint's environment", made.status, made.raw)
	}
	for _, request := range []string{
		"GET /endpoints/ep1/workers", "POST /endpoints/ep1/workers/w1/drain", "GET /endpoints/ep1", "GET /endpoints", "PATCH /endpoints/ep1",
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := s.do(method, path, "{}"); got.status != 200 || strings.Contains(got.raw, "s3cret") {
			t.Errorf("%s: got %d %s, want an answer without the secret", request, got.status, got.raw)
		}
	}
}

func TestAWorkersIDIsMadeUpOrChecked(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	for _, body := range []string{"", "{}", `{"id":null}`, `{"id":""}`} {
		if id, _ := s.do("POST", "/endpoints/ep1/workers", body).body["id"].(string); !regexp.MustCompile(`^[a-z0-9]{10}$`).MatchString(id) {
			t.Errorf("%q: got id %q", body, id)
		}
	}
	s.expect("bad id", s.do("POST", "/endpoints/ep1/workers", `{"id":"a.b"}`), 400, "invalid_request", "must match")
	s.expect("a number", s.do("POST", "/endpoints/ep1/workers", `{"id":1}`), 400, "invalid_request", "id must be")
	for _, method := range []string{"GET", "POST"} {
		s.expect("no endpoint", s.do(method, "/endpoints/nobody/workers", ""), 404, "endpoint_not_found", "no such endpoint")
	}
	s.expect("no endpoint", s.do("POST", "/endpoints/nobody/workers/w1/drain", ""), 404, "endpoint_not_found", "no such endpoint")
}

func TestTokensGoWithTheirEndpoint(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints/ep1/workers", `{"id":"w1"}`)
	if got := s.do("DELETE", "/endpoints/ep1", ""); got.status != 204 {
		t.Fatalf("got %d %s", got.status, got.raw)
	}
	if list, err := s.registry.Tokens.List(t.Context(), "ep1"); err != nil || len(list) != 0 {
		t.Errorf("got %+v, %v, want none", list, err)
	}
}

func TestPingInterval(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		10 * time.Second: 3 * time.Second, 12 * time.Second: 4 * time.Second, 30 * time.Second: 5 * time.Second,
		time.Hour: 5 * time.Second, time.Second: time.Second,
	} {
		if got := pingInterval(lease); got != want {
			t.Errorf("lease %s: got %s, want %s", lease, got, want)
		}
	}
}

// A heartbeat may be 5 s old; a job that ended since is not shown as running.
func TestAWorkerDoesNotRunAJobThatEnded(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e, err := s.registry.Endpoints.Get(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	waits, ended := s.submit(e), s.submit(e)
	s.native("b", func(w *registry.Worker) { w.Running = []string{string(ended), string(waits)} })
	s.native("c", func(w *registry.Worker) { w.Running = []string{string(ended)} })
	if _, err := s.queue.Cancel(t.Context(), e, ended); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the list has no job that ended", func() bool {
		list := s.do("GET", "/endpoints/ep1/workers", "").raw
		return strings.Contains(list, `"id":"b","endpoint":"ep1","protocol":"nats","state":"running","running":["`+string(waits)+`"]`) &&
			strings.Contains(list, `"id":"c","endpoint":"ep1","protocol":"nats","state":"idle","running":[]`)
	})
}
