package control

import (
	"strings"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// native puts a worker on record as a worker over NATS does.
func (s *env) native(id string, change ...func(*registry.Worker)) {
	s.t.Helper()
	now := s.queue.Now()
	w := registry.Worker{ID: id, Endpoint: "ep1", State: registry.WorkerRunning, Running: []string{"j1"}, Native: true, Started: now.UTC()}
	for _, c := range change {
		c(&w)
	}
	if _, err := s.registry.Pods.Appear(s.t.Context(), pod.Pod{ID: id, Endpoint: "ep1", Started: now}, now, now); err != nil {
		s.t.Fatal(err)
	}
	if err := s.registry.Workers.Beat(s.t.Context(), w); err != nil {
		s.t.Fatal(err)
	}
	testenv.Eventually(s.t, id+" is seen", func() bool {
		list, err := s.registry.Workers.List(s.t.Context(), "ep1")
		for _, seen := range list {
			if err == nil && seen.ID == id && seen.Draining == w.Draining {
				return true
			}
		}
		return false
	})
}

func TestAWorkerThatSpeaksNATSIsListedAndDrained(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints/ep1/workers", `{"id":"a"}`)
	s.native("b")
	if list := s.do("GET", "/endpoints/ep1/workers", "").raw; !strings.Contains(list, `{"id":"b","endpoint":"ep1","protocol":"nats","state":"running","running":["j1"],"draining":false,"last4":"",`) ||
		strings.Index(list, `"id":"a","endpoint":"ep1","protocol":"http"`) != 2 {
		t.Errorf("got %s, want both, by id", list)
	}
	got := s.do("POST", "/endpoints/ep1/workers/b/drain", "")
	if got.status != 200 || got.body["draining"] != true || got.body["protocol"] != "nats" || got.body["pingIntervalMs"] != 5000.0 {
		t.Errorf("got %d %s, want it draining", got.status, got.raw)
	}
	p, err := s.registry.Pods.Get(t.Context(), "b")
	if err != nil || p.Drain.At.IsZero() || p.Drain.Why != "by request" || p.Status != pod.Running {
		t.Errorf("got %+v, %v, want the request on record", p, err)
	}
	s.expect("again", s.do("POST", "/endpoints/ep1/workers/b/drain", ""), 200, "", "")
	if again, err := s.registry.Pods.Get(t.Context(), "b"); err != nil || !again.Drain.At.Equal(p.Drain.At) {
		t.Errorf("got %v, %v, want it as it was", again.Drain, err)
	}
	s.native("b", func(w *registry.Worker) { w.Draining = true })
	if list := s.do("GET", "/endpoints/ep1/workers", "").raw; !strings.Contains(list, `"running":["j1"],"draining":true`) {
		t.Errorf("got %s, want what it says itself", list)
	}
}

func TestWhoCannotBeDrained(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints", `{"id":"ep2"}`)
	s.native("b")
	s.expect("of another endpoint", s.do("POST", "/endpoints/ep2/workers/b/drain", ""), 404, "not_found", "no such worker")
	s.expect("no id", s.do("POST", "/endpoints/ep1/workers/a.b/drain", ""), 404, "not_found", "no such worker")
	s.expect("lock", s.do("PATCH", "/pods/b", `{"locked":true}`), 200, "", "")
	s.expect("locked", s.do("POST", "/endpoints/ep1/workers/b/drain", ""), 409, "pod_conflict", "locked")
	if _, err := s.registry.Pods.Move(t.Context(), "b", pod.Exit, "gone", s.queue.Now(), nil); err != nil {
		t.Fatal(err)
	}
	s.expect("gone", s.do("POST", "/endpoints/ep1/workers/b/drain", ""), 404, "not_found", "no such worker")
}

// A worker of a fleet may speak either: both are asked.
func TestAWorkerOfAFleetIsToldBothWays(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints/ep1/workers", `{"id":"f"}`)
	now := s.queue.Now().UTC()
	if err := s.registry.Pods.Create(t.Context(), pod.Pod{ID: "f", Endpoint: "ep1", Driver: pod.Process, Status: pod.Running, Created: now, Changed: now}); err != nil {
		t.Fatal(err)
	}
	s.expect("drain", s.do("POST", "/endpoints/ep1/workers/f/drain", ""), 200, "", "")
	p, err := s.registry.Pods.Get(t.Context(), "f")
	if err != nil || p.Drain.At.IsZero() {
		t.Errorf("got %+v, %v, want the request on record", p, err)
	}
	if token, err := s.registry.Tokens.Find(t.Context(), "ep1", "f"); err != nil || !token.Draining {
		t.Errorf("got %+v, %v, want it draining", token, err)
	}
}

// One of a fleet speaks HTTP as far as is known before its agent has let it in:
// while it is only on record, and once the autoscaler speaks for it.
func TestAWorkerOfAFleetIsDrainedBeforeItIsLetIn(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	now := s.queue.Now().UTC()
	if err := s.registry.Pods.Create(t.Context(), pod.Pod{ID: "f", Endpoint: "ep1", Driver: pod.Process, Status: pod.Running, Created: now, Changed: now}); err != nil {
		t.Fatal(err)
	}
	drained := func() answer {
		t.Helper()
		got := s.do("POST", "/endpoints/ep1/workers/f/drain", "")
		if got.status != 200 || got.body["draining"] != true || got.body["protocol"] != "http" || got.body["pingIntervalMs"] != 5000.0 ||
			got.body["createdAt"] != now.Format(time.RFC3339Nano) {
			t.Errorf("got %d %s, want it draining, and over HTTP", got.status, got.raw)
		}
		return got
	}
	drained()
	if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "f", Endpoint: "ep1", State: registry.WorkerInitializing, Started: now}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the autoscaler speaks for it", func() bool {
		return drained().body["state"] == registry.WorkerInitializing
	})
}
