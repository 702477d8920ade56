package autoscaler

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestWhatIsGoneCanBeReadForADayAndThenIsForgotten(t *testing.T) {
	s := newEnv(t)
	now := s.queue.Now().UTC()
	const day = 24 * time.Hour
	gone := func(id string, ago time.Duration, change ...func(*pod.Pod)) pod.Pod {
		p := pod.Pod{ID: id, Endpoint: "ep", Driver: pod.Process, Status: pod.Exited, Changed: now.Add(-ago)}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	alone := func(p *pod.Pod) { p.Endpoint = "" }
	removed := func(p *pod.Pod) { p.Status = pod.Terminated }
	runs := func(p *pod.Pod) { p.Status = pod.Running }
	all := []pod.Pod{
		gone("young", day-time.Minute), gone("old", day), gone("runs", 9*day, runs),
		gone("removed", day-time.Minute, removed), gone("long-removed", day, removed),
		gone("own", 9*day, alone), gone("own-removed", day-time.Minute, alone, removed), gone("own-long-removed", day, alone, removed),
	}
	kept := []string{"young", "runs", "removed", "own", "own-removed"}
	// Of a busy endpoint the last ones.
	for i := range maxEndedPods + 2 {
		all = append(all, gone(fmt.Sprintf("busy-%04d", i), time.Duration(i)*time.Second, func(p *pod.Pod) { p.Endpoint = "busy" }))
		if i < maxEndedPods {
			kept = append(kept, fmt.Sprintf("busy-%04d", i))
		}
	}
	var made sync.WaitGroup
	for part := range 16 {
		made.Go(func() {
			for i := part; i < len(all); i += 16 {
				if err := s.registry.Pods.Create(t.Context(), all[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	made.Wait()
	k := newReconciler(&Service{queue: s.queue, registry: s.registry, log: slog.New(slog.DiscardHandler)})
	k.removeOldRecords(t.Context(), &view{now: now, pods: all})
	left := map[string]bool{}
	testenv.EventuallyNone(s.t, func() string {
		pods, err := s.registry.Pods.List(t.Context())
		clear(left)
		for _, p := range pods {
			left[p.ID] = true
		}
		if err != nil || len(left) != len(kept) {
			return fmt.Sprintf("got %d pods, %v, want %d", len(left), err, len(kept))
		}
		return ""
	})
	for _, id := range kept {
		if !left[id] {
			t.Errorf("pod %s: got it forgotten, want it kept", id)
		}
	}
}

// A leader may see an endpoint before its queue is made.
func TestTheFirstDecisionIsNotThatNothingIsKnown(t *testing.T) {
	s := newEnv(t)
	e := ep(bounds(1, 1))
	e.ID, e.Created = "ep", s.queue.Now()
	s.autoscaler(s.engine("machine"))
	e, err := s.registry.Endpoints.Create(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(500 * time.Millisecond) // several looks; none of them leaves a trace that could be waited for
	if err := s.queue.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	s.status("ep-0-1", pod.Running)
	history, err := s.registry.Scaling.History(t.Context(), "ep", 100)
	if err != nil || len(history) == 0 || history[len(history)-1].Reason != registry.ScalingMinimum {
		t.Errorf("got %+v, %v, want the minimum first", history, err)
	}
}

// A worker that is replaced leaves a decision, though the number is the same.
func TestEveryStartIsDecided(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1), func(e *endpoint.Endpoint) { e.IdleTimeout = time.Second })
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	if _, err := s.registry.Pods.Move(t.Context(), "ep-0-1", pod.Stop, "Stopped by request", s.queue.Now(), nil); err != nil {
		t.Fatal(err)
	}
	s.status("ep-0-2", pod.Running) // at once: it did not fail
	history, err := s.registry.Scaling.History(t.Context(), "ep", 100)
	if err != nil || len(history) < 2 {
		t.Fatalf("got %+v, %v, want two decisions", history, err)
	}
	for _, d := range history {
		reasons := []string{registry.ScalingMinimum, registry.ScalingSteady, registry.ScalingNoMachine} // the last before the machine is on record
		if !slices.Contains(reasons, d.Reason) || d.Wanted != 1 {
			t.Errorf("got %d for %s: %s, want 1 for the minimum", d.Wanted, d.Reason, d.Text)
		}
	}
}

func TestALockedWorkerStaysAndIsCounted(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	lock := func(locked bool) {
		if _, err := s.registry.Pods.Update(t.Context(), "ep-0-1", func(p pod.Pod) (pod.Pod, error) {
			p.Locked = locked
			return p, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	lock(true)
	s.update("ep", func(e *endpoint.Endpoint) { e.Env = map[string]string{"NEW": "yes"} })
	s.update("ep", bounds(0, 2))
	s.update("ep", bounds(2, 2)) // a decision that can be waited for
	s.status("ep-1-1", pod.Running)
	if p := s.status("ep-0-1", pod.Running); !p.Drain.At.IsZero() || len(e.pods()) > 2 {
		t.Errorf("got %+v of %v, want it neither drained nor replaced", p, e.pods())
	}
	lock(false)
	s.status("ep-0-1", pod.Terminated)
}
