package autoscaler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// The leader looks before the worker could speak again, and goes on with what it knew.
func TestAWorkerThatDrainsKeepsItsJobThroughAnOutage(t *testing.T) {
	s := newBusyWorker(t)
	s.drain()
	s.drains()
	s.staysFor(10) // the leader has seen it
	s.Server.Stop()
	away := time.Now()
	s.speak("busy", mute)
	testenv.Eventually(t, "nothing was heard for long", func() bool { return time.Since(away) > silentDrained })
	s.Server.Start()
	testenv.Eventually(t, "the store is back", func() bool {
		_, err := s.env.registry.Pods.Get(t.Context(), "busy")
		return err == nil
	})
	s.staysFor(40)
	if p := s.get("busy"); p.Status != pod.Running {
		t.Errorf("got %s: %s, want that it drains on", p.Status, p.Change)
	}
}

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

// An engine may be away for days, and is asked twice a second.
func TestAnEngineThatIsAwayIsOneLineOfTheLog(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	var looks atomic.Int64
	e.listed = func() { looks.Add(1) }
	said := &testenv.Log{}
	s.autoscalerOf(Config{Every: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(said, nil))}, e)
	for _, away := range []bool{true, false, true} {
		e.mu.Lock()
		e.away = away
		e.mu.Unlock()
		before := looks.Load()
		testenv.Eventually(t, "ten looks", func() bool { return looks.Load() >= before+10 })
	}
	if n := strings.Count(said.String(), driver.ErrUnavailable.Error()); n != 1 {
		t.Errorf("got %d lines of two outages within a minute, want one", n)
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

// The first look after an outage finds no heartbeat of a worker that woke meanwhile.
func TestAWorkerThatWokeInAnOutageIsNotEnded(t *testing.T) {
	s := newEnv(t)
	r := newReconciler(s.agentOf(s.engine("machine")).Service)
	now := s.queue.Now()
	p := pod.Pod{ID: "w", Endpoint: "ep", Driver: pod.Process, Status: pod.Running, MachineID: "machine", Created: now.Add(-time.Hour)}
	p.Sleep.At, p.Sleep.Wake = now.Add(-time.Hour), now.Add(-pod.WakeTimeout)
	v := &view{now: now, pods: []pod.Pod{p}, machines: map[pod.Driver][]string{pod.Process: {"machine"}}}
	r.begin()
	if found := r.examine(v, p, true); found.by != "" {
		t.Errorf("at the first look: got %s: %s, want none", found.by, found.why)
	}
	v.now = now.Add(absenceTimeout)
	r.begin()
	if found := r.examine(v, p, true); found.by != pod.Exit {
		t.Errorf("later: got %q, want that it did not wake", found.why)
	}
}

// The leader's word that a worker starts does not replace what the worker said since.
func TestAWorkerThatSpeaksDoesNotStartAnyMore(t *testing.T) {
	s := newEnv(t)
	l := &leader{Service: s.agentOf(s.engine("machine")).Service}
	e := s.endpoint("ep", bounds(0, 1))
	s.pod("w", at, of("ep"))
	v := &view{now: s.queue.Now(), workers: map[string]registry.Worker{}} // read before this:
	if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "w", Endpoint: "ep", State: registry.WorkerRunning, Running: []string{"job"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.beatForStarting(t.Context(), v, e, fleetSample{pods: []pod.Pod{s.get("w")}}); err != nil {
		t.Fatal(err)
	}
	bucket, err := registry.New(t.Context(), s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := bucket.Workers.List(t.Context(), "ep"); err != nil || len(list) != 1 || list[0].State != registry.WorkerRunning {
		t.Errorf("got %+v, %v, want what the worker said", list, err)
	}
}

// A host has both drivers, which report the same card. A worker of the one drains with its
// job while the bus is away: the other starts none on its card until it has ended.
func TestAGPUOfADrainingWorkerIsNotGivenAwayAfterAnOutage(t *testing.T) {
	s := newEnv(t)
	p, d := s.engine("m"), s.engine("docker-m")
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	s.endpoint("a", bounds(1, 1), needsGPU())
	s.autoscalerOf(Config{GPUs: func() ([]pod.GPU, error) { return cards("card", 1), nil }, DrainTime: never}, p, docker{d})
	testenv.EventuallyNone(t, func() string {
		p.hold("a-0-1", "job")
		return s.stateOf("a", "a-0-1", registry.WorkerRunning)
	})
	s.update("a", func(e *endpoint.Endpoint) { e.WorkersMin, e.WorkersMax = 0, 0 })
	s.move("a-0-1", pod.Remove, nil)
	testenv.EventuallyNone(t, func() string { return s.asked("a", "a-0-1") })
	s.endpoint("b", bounds(1, 1), needsGPU(func(f *endpoint.Fleet) { f.Driver, f.Image, f.Command = "docker", "image", nil }))
	s.decidedWith("b", registry.ScalingNoGPU)
	s.Stop()
	away := time.Now()
	testenv.Eventually(t, "the machine's report has expired", func() bool { return time.Since(away) > 3*registry.BeatEvery })
	s.Start()
	testenv.Eventually(t, "both drivers report again", func() bool {
		if slices.Contains(d.pods(), "b-0-1") {
			t.Fatal("two pods run on one card")
		}
		machines, err := s.registry.GPUs.Machines(t.Context())
		return err == nil && len(machines) == 2
	})
	p.hold("a-0-1")
	testenv.Eventually(t, "the card is given to the other", func() bool { return slices.Contains(d.pods(), "b-0-1") })
	if got := p.pods(); len(got) > 0 {
		t.Errorf("got %v, want that the former worker has ended", got)
	}
}
