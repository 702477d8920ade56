package autoscaler

import (
	"maps"
	"slices"
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
	size := "A RUNPOD_CPU_COUNT RUNPOD_GPU_COUNT RUNPOD_MEM_GB RUNPOD_POD_ID"
	for id, want := range map[string]struct{ volume, variables string }{
		"with": {"/srv/v1", size + " RUNPOD_VOLUME_ID"}, "without": {"", size},
	} {
		got := e.with(id)
		if names := strings.Join(slices.Sorted(maps.Keys(got.Env)), " "); got.Volume != want.volume || got.Endpoint != "" || names != want.variables {
			t.Errorf("%s: got %+v, want volume %q and the variables %s alone: nothing lets it in", id, got, want.volume, want.variables)
		}
	}
}

// with is what the pod was started with.
func (e *engine) with(id string) driver.Start {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[id].start
}
