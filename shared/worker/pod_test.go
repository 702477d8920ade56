package worker_test

import (
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/worker"
)

func (s *env) pod(t *testing.T, id string) pod.Pod {
	t.Helper()
	p, err := s.reg.Pods.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("pod %s: %v", id, err)
	}
	return p
}

func TestAWorkersPodIsTrue(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	w := s.run(t, worker.Config{ID: "pod-1", Version: "v1", Command: []string{"serve", "model"}}, returns(nil, nil))
	p := s.pod(t, "pod-1")
	if p.Status != pod.Running || p.Endpoint != s.e.ID || p.EndpointVersion != s.e.ReleaseVersion() || p.Driver != "" || p.Started.IsZero() {
		t.Errorf("got %+v, want it running", p)
	}
	m := p.Machine
	if m.Hostname == "" || m.OS == "" || m.VCPUs <= 0 || m.MemoryGB <= 0 || m.DiskGB <= 0 || m.CPU.Threads <= 0 || m.Version != "v1" {
		t.Errorf("got machine %+v, want the facts", m)
	}
	if len(p.Spec.Command) != 2 {
		t.Errorf("got command %q", p.Spec.Command)
	}
	w.stop()
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
	p = s.pod(t, "pod-1")
	if p.Status != pod.Exited || p.Change != "its worker left" || p.Failed() {
		t.Errorf("got %+v, want it exited", p)
	}
	s.run(t, worker.Config{ID: "pod-1"}, returns(nil, nil))
	if again := s.pod(t, "pod-1"); again.Status != pod.Running || !again.Started.After(p.Started) || !again.Created.Equal(p.Created) {
		t.Errorf("got %+v, want it running again", again)
	}
}

// Two endpoints may have workers of one id; the second one's end is not the first
// one's.
func TestAWorkerDoesNotEndThePodOfAnother(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	now := time.Now().UTC()
	others := pod.Pod{ID: "pod-1", Endpoint: "other", Status: pod.Running, Created: now, Changed: now}
	if err := s.reg.Pods.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	w := s.run(t, worker.Config{ID: "pod-1"}, returns(nil, nil))
	w.stop()
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
	if p, err := s.reg.Pods.At("other").Get(t.Context(), "pod-1"); err != nil || p.Status != pod.Running {
		t.Errorf("got %+v, %v, want it as it was", p, err)
	}
}

func TestHowAPodOfADriverEndedIsTheDriversToSay(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	now := time.Now().UTC()
	made := pod.Pod{ID: "pod-1", Endpoint: s.e.ID, Status: pod.Running, Driver: pod.Process, MachineID: "m", Created: now, Changed: now}
	if err := s.reg.Pods.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	w := s.run(t, worker.Config{ID: "pod-1"}, returns(nil, nil))
	if p := s.pod(t, "pod-1"); p.MachineID != "m" {
		t.Errorf("got %+v, want the driver's machine", p)
	}
	w.stop()
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
	if p := s.pod(t, "pod-1"); p.Status != pod.Running {
		t.Errorf("got %+v, want it as the driver left it", p)
	}
}
