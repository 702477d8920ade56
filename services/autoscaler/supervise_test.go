package autoscaler

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// awaitLine waits until a line of the log has all these words.
func awaitLine(t *testing.T, log *testenv.Log, words ...string) {
	t.Helper()
	testenv.EventuallyNone(t, func() string {
		for line := range strings.Lines(log.String()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return ""
			}
		}
		return fmt.Sprintf("no line of the log has %q", words)
	})
}

// quarantine waits for a quarantine of the GPU that fits, and returns it.
func (s *env) quarantine(uuid, want string, fits func(registry.Quarantine) bool) (q registry.Quarantine) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		claims, err := s.registry.GPUs.Claims(s.t.Context())
		if q = claims[uuid].Quarantine; err == nil && fits(q) {
			return ""
		}
		return fmt.Sprintf("%s: got %+v, %v, want %s", uuid, q, err, want)
	})
	return q
}

func (s *env) quarantineByHand(uuid string) {
	s.t.Helper()
	q := registry.Quarantine{Reason: "its fan is loud", By: "key", Since: s.queue.Now()}
	if _, _, err := s.registry.GPUs.Quarantine(s.t.Context(), uuid, q, func(int) time.Duration { return time.Hour }); err != nil {
		s.t.Fatal(err)
	}
}

func TestWorkersLeaveAQuarantinedGPU(t *testing.T) {
	s := newEnv(t)
	s.endpoint("a", bounds(1, 1), needsGPU())
	s.gpuHost(cards("m", 2), s.engine("m"))
	s.held("GPU-m-0:a-0-1")
	s.quarantineByHand("GPU-m-0")
	p := s.status("a-0-1", pod.Terminated)
	if want := "drained and stopped: its GPU GPU-m-0 is quarantined: its fan is loud"; p.Change != want {
		t.Errorf("got %q, want %q", p.Change, want)
	}
	s.held("GPU-m-1:a-0-2")
	s.quarantineByHand("GPU-m-1")
	s.held("")
	s.decidedWith("a", registry.ScalingNoGPU, "there are 2: 0 would do, 2 quarantined", "GPU-m-0 is quarantined until ", "its fan is loud")
	s.pod("lone", func(p *pod.Pod) { p.Spec.GPUs = 1 })
	s.told("lone", "2 quarantined; GPU-m-0 is quarantined until ")
	claims, err := s.registry.GPUs.Claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.registry.GPUs.Restore(t.Context(), "GPU-m-1", claims["GPU-m-1"].Quarantine.Since, s.queue.Now(), true); err != nil {
		t.Fatal(err)
	}
	s.held("GPU-m-1:a-0-3")
}

// A drain that failed halfway is made whole.
func TestAWorkerOnAQuarantinedGPUIsAskedToDrainAgain(t *testing.T) {
	s := newEnv(t)
	said := &testenv.Log{}
	s.endpoint("a", bounds(1, 1), needsGPU())
	s.autoscalerOf(Config{
		GPUs: func() ([]pod.GPU, error) { return cards("m", 1), nil }, Log: slog.New(slog.NewTextHandler(said, nil)),
	}, s.engine("m"))
	testenv.EventuallyNone(t, func() string { return s.stateOf("a", "a-0-1", registry.WorkerIdle) })
	s.limitTokens(1) // no write fits
	s.quarantineByHand("GPU-m-0")
	awaitLine(t, said, "GPUs and their claims not looked at")
	s.limitTokens(-1)
	s.status("a-0-1", pod.Terminated)
}

// A quarantine by the autoscaler ends in a probe. If the probe fails, the next quarantine
// is longer; if it works, the GPU is restored.
func TestAGPUOnWhichWorkersFailIsQuarantinedTriedAndRestored(t *testing.T) {
	s := newEnv(t)
	e, log := s.engine("m"), &testenv.Log{}
	e.broken.Store("GPU-m-0")
	s.endpoint("a", bounds(1, 2), needsGPU())
	s.autoscalerOf(Config{
		GPUs: func() ([]pod.GPU, error) { return cards("m", 2), nil }, Quarantine: 2 * time.Second, Log: slog.New(slog.NewTextHandler(log, nil)),
	}, e)
	q := s.quarantine("GPU-m-0", "that three failed", func(q registry.Quarantine) bool { return q.Exists() })
	if want := "3 workers in a row failed on it, the last a-0-3: it could not be started: the device is lost"; q.Reason != want || q.Count != 1 || q.Machine != "m" || q.By != "" {
		t.Errorf("got %+v, want %q", q, want)
	}
	awaitLine(t, log, "level=WARN", "GPU quarantined", "gpu=GPU-m-0", "machine=m", "until=")
	s.held("GPU-m-1:a-0-4")
	s.update("a", func(e *endpoint.Endpoint) { e.WorkersMin = 2 })
	q = s.quarantine("GPU-m-0", "that the probe failed", func(q registry.Quarantine) bool { return q.Exists() && q.Count == 2 })
	if !strings.HasPrefix(q.Reason, "the worker a-1-1 that tried it failed: ") || q.Until.Sub(q.Since) != 4*time.Second {
		t.Errorf("got %+v, want 4 s for the probe", q)
	}
	e.broken.Store("")
	s.quarantine("GPU-m-0", "that it is restored", func(q registry.Quarantine) bool { return !q.Restored.IsZero() })
	awaitLine(t, log, "level=WARN", "GPU restored", "gpu=GPU-m-0", "works on it")
	if got := s.holders(); !strings.HasPrefix(got, "GPU-m-0:a-1-") || !strings.HasSuffix(got, " GPU-m-1:a-0-4") {
		t.Errorf("got holders %q, want both GPUs in use", got)
	}
}

func TestAnUnhealthyGPUIsQuarantinedUntilAWorkerWorksOnIt(t *testing.T) {
	s := newEnv(t)
	var health atomic.Value
	health.Store("")
	s.endpoint("a", bounds(1, 1), needsGPU())
	s.autoscalerOf(Config{Quarantine: 2 * time.Second, GPUs: func() ([]pod.GPU, error) {
		all := cards("m", 1)
		all[0].Health, _ = health.Load().(string)
		return all, nil
	}}, s.engine("m"))
	s.held("GPU-m-0:a-0-1")
	health.Store("fell off the bus")
	q := s.quarantine("GPU-m-0", "that it holds", func(q registry.Quarantine) bool { return q.Exists() })
	if q.Reason != "it is unhealthy: fell off the bus" {
		t.Errorf("got %+v", q)
	}
	s.held("")
	s.quarantine("GPU-m-0", "a longer one", func(q registry.Quarantine) bool { return q.Count > 1 })
	health.Store("")
	s.quarantine("GPU-m-0", "that it is restored", func(q registry.Quarantine) bool { return !q.Restored.IsZero() })
	if got := s.holders(); !strings.HasPrefix(got, "GPU-m-0:a-0-") {
		t.Errorf("got holders %q, want a worker", got)
	}
}
