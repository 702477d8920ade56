package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestTwoLeadersStartNoWorkerTwice(t *testing.T) {
	s := newEnv(t)
	a, b := s.engine("machine-a"), s.engine("machine-b")
	s.endpoint("ep", bounds(7, 7))
	s.autoscaler(a)
	s.autoscaler(b)
	testenv.EventuallyNone(s.t, func() string {
		if n := len(a.pods()) + len(b.pods()); n != 7 {
			return fmt.Sprintf("got %d workers, want 7", n)
		}
		return ""
	})
	testenv.EventuallyNone(s.t, func() string { // this registry may be behind
		pods, err := s.registry.Pods.List(t.Context())
		if err != nil || len(pods) != 7 {
			return fmt.Sprintf("got %d pods, %v, want 7 ever made", len(pods), err)
		}
		return ""
	})
	for _, e := range []*engine{a, b} {
		for id, n := range e.started {
			if n != 1 {
				t.Errorf("pod %s was started %d times, want once", id, n)
			}
		}
	}
	// A new number is one for both, too.
	s.update("ep", bounds(9, 9))
	testenv.EventuallyNone(s.t, func() string {
		if n := len(a.pods()) + len(b.pods()); n != 9 {
			return fmt.Sprintf("got %d workers, want 9", n)
		}
		return ""
	})
}

// Both have made a token for it when the first one starts it.
func TestAWorkerOfTwoAutoscalersOnOneEngineIsLetIn(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(0, 1))
	s.pod("w", at, of("ep"))
	begun, both, started := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := s.agentOf(&hooked{engine: e, starts: func(context.Context, driver.Start) { close(begun); <-both }})
	second := s.agentOf(&hooked{engine: e, starts: func(context.Context, driver.Start) { close(both); <-started }})
	t.Cleanup(func() { _ = e.Close(context.Background()); first.logs.close(); second.logs.close() })
	var starts sync.WaitGroup
	starts.Go(func() {
		first.start(t.Context(), "w")
		close(started)
	})
	<-begun
	starts.Go(func() { second.start(t.Context(), "w") })
	starts.Wait()
	e.mu.Lock()
	plain := e.running["w"].start.Env["RUNPOD_AI_API_KEY"]
	e.mu.Unlock()
	if _, err := s.registry.Tokens.Check(t.Context(), plain, "ep", "w"); err != nil || e.starts("w") != 1 {
		t.Errorf("got %v, %d starts, want that the worker's token is good", err, e.starts("w"))
	}
	noted := s.get("w")
	third := s.agentOf(e)
	t.Cleanup(third.logs.close)
	third.start(t.Context(), "w") // its look at the engine was old
	if diff := cmp.Diff(noted, s.get("w")); diff != "" {
		t.Errorf("a start that does nothing is noted: %s", diff)
	}
}

func TestABusyWorkerIsDrainedAndNotStopped(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 3))
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string {
		if len(e.pods()) == 1 {
			return ""
		}
		return "no worker"
	})
	const id = "ep-0-1"
	e.hold(id, "a-job")
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", id, registry.WorkerRunning) })
	s.update("ep", bounds(0, 3))
	// Drained by hand, it gets no more jobs, and ends the one it has.
	if _, err := s.registry.Tokens.Drain(t.Context(), "ep", id); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNone(s.t, func() string {
		d, err := s.registry.Scaling.Last(t.Context(), "ep")
		if err != nil || d.Wanted != 0 {
			return fmt.Sprintf("got %d wanted, %v, want 0", d.Wanted, err)
		}
		return ""
	})
	for range 20 {
		if p := s.status(id, pod.Running); !slices.Contains(e.pods(), id) {
			t.Fatalf("pod %s: a busy worker was stopped: %s", p.ID, p.Change)
		}
		testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", id, registry.WorkerRunning) })
	}
	e.hold(id)
	if p := s.status(id, pod.Terminated); !strings.HasPrefix(p.Change, "drained") {
		t.Errorf("got %q, want that it was drained", p.Change)
	}
	testenv.EventuallyNone(s.t, func() string { return strings.Join(e.pods(), " ") })
}

// RunPod's SDK goes on after a handler has returned refresh_worker.
func TestAWorkerThatAskedForARestartAndGoesOnIsReplaced(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	const id = "ep-0-1"
	testenv.Eventually(t, "a worker runs", func() bool { return slices.Contains(e.pods(), id) })
	e.hold(id, "another-job")
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", id, registry.WorkerRunning) })
	if err := s.registry.Tokens.Refresh(t.Context(), "ep", id, s.queue.Now().Add(-refreshTimeout)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it gets no more jobs", func() bool {
		token, err := s.registry.Tokens.Find(t.Context(), "ep", id)
		return err == nil && token.Draining
	})
	if p := s.status(id, pod.Running); !slices.Contains(e.pods(), id) {
		t.Fatalf("pod %s: a busy worker was stopped: %s", p.ID, p.Change)
	}
	e.hold(id)
	if p := s.status(id, pod.Terminated); !strings.Contains(p.Change, "refresh_worker") {
		t.Errorf("got %q, want why", p.Change)
	}
	testenv.Eventually(t, "another worker runs", func() bool { return slices.Contains(e.pods(), "ep-0-2") })
}

// stateOf returns "" if the worker says it is in this state.
func (s *env) stateOf(endpointID, id, want string) string {
	workers, err := s.registry.Workers.List(s.t.Context(), endpointID)
	for _, w := range workers {
		if w.ID == id && w.State == want {
			return ""
		}
	}
	return fmt.Sprintf("got %v, %v, want %s to be %s", workers, err, id, want)
}

func TestWhatNobodyKnowsIsStopped(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep")
	if err := e.Start(t.Context(), driver.Start{PodID: "orphan", Endpoint: "ep"}); err != nil {
		t.Fatal(err)
	}
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string { return strings.Join(e.pods(), " ") })
}

func TestAWorkerThatCannotBeStartedIsTriedAgainLater(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.refuse = errRefused
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string {
		d, err := s.registry.Scaling.Last(t.Context(), "ep")
		if err != nil || d.Reason != registry.ScalingBackoff || !strings.Contains(d.Text, errRefused.Error()) {
			return fmt.Sprintf("got %s: %s, %v, want back-off that names the error", d.Reason, d.Text, err)
		}
		return ""
	})
	if p := s.status("ep-0-1", pod.Exited); !strings.Contains(p.Change, errRefused.Error()) {
		t.Errorf("got %q, want why", p.Change)
	}
	s.status("ep-0-2", pod.Exited)
}

// The machine that fails has the fewest workers.
func TestAWorkerThatCannotBeStartedIsTriedOnAnotherMachine(t *testing.T) {
	s := newEnv(t)
	full, free := s.engine("a-full"), s.engine("b-free")
	full.refuse = errRefused
	s.autoscaler(full, free)
	testenv.EventuallyNone(t, func() string {
		if there, err := s.registry.Instances.Machines(t.Context()); err != nil || len(there[pod.Process]) != 2 {
			return fmt.Sprintf("got machines %v, %v, want both", there, err)
		}
		return ""
	})
	s.endpoint("ep", bounds(3, 3))
	testenv.Eventually(t, "three workers run", func() bool { return len(free.pods()) == 3 })
}

func TestADeletedEndpointsWorkersAreRemoved(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	made := s.endpoint("ep", bounds(2, 2))
	s.autoscaler(e)
	s.status("ep-1-1", pod.Running)
	if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	s.status("ep-0-1", pod.Terminated)
	s.status("ep-1-1", pod.Terminated)
	testenv.EventuallyNone(s.t, func() string { return strings.Join(e.pods(), " ") })
}

// Another endpoint may have the id before anybody has looked. Its jobs would wait for
// workers that no gateway lets in.
func TestAnEndpointThatIsMadeAgainGetsWorkersOfItsOwn(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	made := s.endpoint("ep", bounds(1, 1), func(e *endpoint.Endpoint) { e.Created = s.queue.Now() })
	s.autoscaler(e)
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	testenv.EventuallyNone(t, func() string {
		if s.get("ep-0-1").Started.IsZero() {
			return "its start is not noted"
		}
		return ""
	})
	if err := s.registry.Tokens.Drop(t.Context(), "ep"); err != nil {
		t.Fatal(err)
	}
	bucket, err := registry.OpenTable[endpoint.Endpoint](t.Context(), s.JS, streams.BucketEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	made.Created = s.queue.Now()
	if err := bucket.Put(t.Context(), "ep", made); err != nil { // in one step: no look falls in between
		t.Fatal(err)
	}
	if p := s.status("ep-0-1", pod.Terminated); p.Change != "its endpoint was deleted" {
		t.Errorf("got %q", p.Change)
	}
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "ep-0-2", registry.WorkerIdle) })
}

func TestAnAutoscalerThatIsStoppedSaysThatItsPodsAreGone(t *testing.T) {
	s := newEnv(t)
	stop := s.autoscaler(s.engine("machine"))
	s.endpoint("ep", bounds(1, 1))
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	stop()
	if p := s.status("ep-0-1", pod.Terminated); p.Machine.Hostname != "machine" {
		t.Errorf("got machine %q, want its facts kept", p.Machine.Hostname)
	}
}

func TestAPodThatStartsWhileItsAutoscalerStopsIsNoted(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.starting = make(chan struct{})
	stop := s.autoscaler(e)
	s.endpoint("ep", bounds(1, 1))
	<-e.starting
	stop()
	if p := s.status("ep-0-1", pod.Terminated); p.Machine.Hostname != "machine" || p.Started.IsZero() {
		t.Errorf("got machine %q, started %v, want the facts of the pod that ran", p.Machine.Hostname, p.Started)
	}
}

func TestNothingIsStoppedWhileTheEngineIsAway(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	e.mu.Lock()
	e.away = true
	e.mu.Unlock()
	s.update("ep", func(e *endpoint.Endpoint) { e.Env = map[string]string{"NEW": "yes"} })
	s.status("ep-0-1", pod.Terminated) // replaced, as its record says
	if got := e.pods(); len(got) != 1 {
		t.Errorf("got %v, want the old one only", got)
	}
	e.mu.Lock()
	e.away = false
	e.mu.Unlock()
	testenv.EventuallyNone(s.t, func() string {
		if got := e.pods(); len(got) != 1 || got[0] == "ep-0-1" {
			return fmt.Sprintf("got %v, want the new one only", got)
		}
		return ""
	})
}
