package autoscaler

import (
	"strings"
	"testing"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/testenv"
)

// plain makes the record of a pod that works for no endpoint, as a request does.
func (s *env) plain(id, volume string) {
	s.t.Helper()
	now := s.queue.Now()
	err := s.registry.Pods.Create(s.t.Context(), pod.Pod{
		ID: id, Name: id, Status: pod.Running, Driver: pod.Process, VolumeID: volume,
		Spec: pod.Spec{Command: []string{"work"}, Env: map[string]string{"A": "1"}}, Created: now, Changed: now,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestAPodGetsItsNetworkVolume(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	if err := s.registry.Volumes.Create(t.Context(), "v1", pod.Volume{ID: "v1", Path: "/srv/v1"}); err != nil {
		t.Fatal(err)
	}
	s.plain("with", "v1")
	s.plain("without", "")
	s.plain("lost", "v2")
	s.autoscaler(e)
	if p := s.status("lost", pod.Exited); !strings.Contains(p.Change, "network volume is not there") {
		t.Errorf("got %q, want why", p.Change)
	}
	testenv.EventuallyNone(s.t, func() string {
		if got := e.pods(); len(got) != 2 {
			return "got " + strings.Join(got, ", ") + ", want two"
		}
		return ""
	})
	for id, want := range map[string]string{"with": "/srv/v1", "without": ""} {
		if got := e.with(id); got.Volume != want || got.Endpoint != "" || len(got.Env) != 1 {
			t.Errorf("%s: got %+v, want volume %q and its own environment alone", id, got, want)
		}
	}
}

// with is what the pod was started with.
func (e *engine) with(id string) driver.Start {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[id].start
}
