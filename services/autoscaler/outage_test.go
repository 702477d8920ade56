package autoscaler

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestNothingIsStartedOrStoppedWhileTheBusIsAway(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(2, 3), func(e *endpoint.Endpoint) { e.IdleTimeout = time.Second })
	said := &testenv.Log{}
	s.autoscalerOf(Config{Log: slog.New(slog.NewTextHandler(said, nil))}, e)
	for _, id := range []string{"ep-0-1", "ep-1-1"} {
		testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", id, registry.WorkerIdle) })
	}
	s.Stop()
	// Both have looked in vain, the leader several times.
	testenv.EventuallyNone(s.t, func() string {
		leader, agent := strings.Count(said.String(), "fleets not looked at"), strings.Count(said.String(), "pods not looked at")
		if leader >= 3 && agent >= 1 {
			return ""
		}
		return fmt.Sprintf("got %d looks of the leader and %d of the agent that failed", leader, agent)
	})
	if got := e.pods(); len(got) != 2 {
		t.Errorf("got %v, want both workers as they were", got)
	}
	s.Start()
	// It leads on: what is asked for afterwards is done.
	testenv.EventuallyNone(s.t, func() string {
		_, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
			e.WorkersMin = 3
			return e, nil
		})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	s.status("ep-2-1", pod.Running)
	for _, id := range []string{"ep-0-1", "ep-1-1"} {
		if p := s.status(id, pod.Running); e.starts(id) != 1 {
			t.Errorf("pod %s: started %d times, %s, want it as it was", id, e.starts(id), p.Change)
		}
	}
}

func TestAnUnhealthyWorkerIsEndedAndTheNextWaits(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.newborn = registry.WorkerUnhealthy
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string {
		d, err := s.registry.Scaling.Last(t.Context(), "ep")
		if err != nil || d.Reason != registry.ScalingBackoff || !strings.Contains(d.Text, "unhealthy") || !strings.Contains(d.Text, "2 times") {
			return fmt.Sprintf("got %s: %s, %v, want back-off after two", d.Reason, d.Text, err)
		}
		return ""
	})
	for _, id := range []string{"ep-0-1", "ep-0-2"} {
		if p := s.status(id, pod.Exited); !strings.Contains(p.Change, "unhealthy") {
			t.Errorf("pod %s: got %q, want that it said so", id, p.Change)
		}
	}
	first, second := s.status("ep-0-1", pod.Exited), s.status("ep-0-2", pod.Exited)
	if pause := second.Created.Sub(first.Changed); pause < startBackoff.Delay(1) {
		t.Errorf("got the second %s after the end of the first, want %s at least", pause, startBackoff.Delay(1))
	}
}

func TestAWorkerThatIsNeverReadyIsEnded(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.newborn = mute
	s.endpoint("ep", bounds(1, 1))
	s.autoscalerOf(Config{Startup: time.Second}, e)
	if p := s.status("ep-0-1", pod.Exited); !strings.Contains(p.Change, "asked for no job within 1s") {
		t.Errorf("got %q, want that it was not ready", p.Change)
	}
	testenv.EventuallyNone(s.t, func() string {
		if slices.Contains(e.pods(), "ep-0-1") {
			return "it still runs"
		}
		return ""
	})
}
