package gateway

import (
	"net/http"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

func (s *env) pod(id string) pod.Pod {
	s.t.Helper()
	p, err := s.registry.Pods.Get(s.t.Context(), id)
	must(s.t, err)
	return p
}

// end says of the pod that it ended.
func (s *env) end(id string, by pod.Trigger) {
	s.t.Helper()
	_, err := s.registry.Pods.Move(s.t.Context(), id, by, "in the test", s.queue.Now(), nil)
	must(s.t, err)
}

func TestAPingPutsTheWorkersPodOnRecord(t *testing.T) {
	s := newEnv(t)
	one, two := s.gateway(Config{}), s.gateway(Config{})
	w := s.worker("w1", one, two)
	w.ping()
	p := s.pod("w1")
	if p.Status != pod.Running || p.Endpoint != "ep" || p.Driver != "" || p.Machine.Version != "1.12.0" || p.Started.IsZero() {
		t.Errorf("got %+v, want it running", p)
	}
	w.ping()
	w.ping()
	if again := s.pod("w1"); !again.Started.Equal(p.Started) || !again.Changed.Equal(p.Changed) {
		t.Errorf("got %+v, want %+v left alone", again, p)
	}
}

func TestAWorkerThatIsBackRunsAgain(t *testing.T) {
	s := newEnv(t)
	one, two := s.gateway(Config{}), s.gateway(Config{})
	w := s.worker("w1", one)
	w.ping()
	s.end("w1", pod.Exit)
	w.ping()
	if p := s.pod("w1"); p.Status != pod.Exited {
		t.Errorf("got %s, want no look at the record while it is heard", p.Status)
	}
	w.gates = []*instance{two} // which has not heard of it
	w.ping()
	if p := s.pod("w1"); p.Status != pod.Running || p.Change != "its worker is back" {
		t.Errorf("got %+v, want it running", p)
	}
}

func TestARemovedPodIsBackOnlyWithANewToken(t *testing.T) {
	s := newEnv(t)
	one, two, three := s.gateway(Config{}), s.gateway(Config{}), s.gateway(Config{})
	w := s.worker("w1", one)
	w.ping()
	s.end("w1", pod.Remove)
	w.gates = []*instance{two}
	w.ping()
	removed := s.pod("w1")
	if removed.Status != pod.Terminated {
		t.Errorf("got %+v, want it gone", removed)
	}
	testenv.Eventually(t, "a later time", func() bool { return s.queue.Now().Sub(removed.Changed) > 100*time.Millisecond })
	fresh := s.worker("w1", three)
	testenv.Eventually(t, "the new token holds", func() bool {
		a, err := fresh.try(t.Context(), "GET", "/ping/%w?gpu=any", nil)
		return err == nil && a.status == http.StatusOK
	})
	if p := s.pod("w1"); p.Status != pod.Running {
		t.Errorf("got %+v, want another pod of that id", p)
	}
}

func TestAPodOfADriverIsLeftToIt(t *testing.T) {
	s := newEnv(t)
	now := time.Now().UTC()
	must(t, s.registry.Pods.Create(t.Context(), pod.Pod{ID: "w1", Endpoint: "ep", Driver: pod.Docker, Status: pod.Exited, Created: now, Changed: now}))
	s.worker("w1", s.gateway(Config{})).ping()
	if p := s.pod("w1"); p.Status != pod.Exited {
		t.Errorf("got %+v, want it as it was", p)
	}
}
