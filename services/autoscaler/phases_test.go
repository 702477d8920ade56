package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// inPhase waits until the pod is in the phase, and returns it.
func (s *env) inPhase(id string, want pod.Phase) (p pod.Pod) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		var err error
		p, err = s.registry.Pods.Get(s.t.Context(), id)
		if got, _ := p.Phase(); err != nil || got != want {
			return fmt.Sprintf("pod %s: got the phase %q (%s), %v, want %s", id, got, p.Change, err, want)
		}
		return ""
	})
	return p
}

// speak lets a mute worker say that it is in a state.
func (e *engine) speak(id, state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.running[id]; r != nil {
		r.state = state
	}
}

func TestAWorkerIsReadyOnceItIsHeardOf(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.newborn, e.pulls = mute, true
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	const id = "ep-0-1"
	loading := s.inPhase(id, pod.Loading)
	if p := loading.Phases; p.Pulling.IsZero() || p.Starting.Before(p.Pulling) || p.Loading.Before(p.Starting) || !p.Ready.IsZero() {
		t.Errorf("got %+v, want the times of what it went through", p)
	}
	e.speak(id, registry.WorkerIdle)
	ready := s.inPhase(id, pod.Ready)
	want := loading.Phases
	want.Ready = ready.Phases.Ready
	if ready.Phases != want || ready.Phases.Ready.Before(want.Loading) {
		t.Errorf("got %+v, want the same and when it was ready", ready.Phases)
	}
}

func TestAPodWithoutAnEndpointIsReadyOnceItRuns(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	now := s.queue.Now().UTC()
	if err := s.registry.Pods.Create(t.Context(), pod.Pod{ID: "lone", Name: "lone", Status: pod.Running, Driver: pod.Process, Created: now, Changed: now}); err != nil {
		t.Fatal(err)
	}
	s.autoscaler(e)
	first := s.inPhase("lone", pod.Ready)
	// A restart begins again.
	if _, err := s.registry.Pods.Move(t.Context(), "lone", pod.Restart, "again", s.queue.Now(), nil); err != nil {
		t.Fatal(err)
	}
	if second := s.inPhase("lone", pod.Ready); second.Phases.Life != 1 || !second.Phases.Starting.After(first.Phases.Starting) {
		t.Errorf("got %+v after %+v, want those of the second start", second.Phases, first.Phases)
	}
}

func TestWhatMakesAWorkerReady(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	loads := pod.Pod{Status: pod.Running, Phases: pod.Phases{Starting: at(1), Loading: at(2)}}
	for name, tc := range map[string]struct {
		state string
		seen  int
		want  bool
	}{
		"idle":                {registry.WorkerIdle, 3, true},
		"busy":                {registry.WorkerRunning, 3, true},
		"before it ran":       {registry.WorkerIdle, 2, true}, // it spoke before that was noted
		"of an earlier start": {registry.WorkerIdle, 0, false},
		"the autoscaler's":    {registry.WorkerInitializing, 3, false},
		"unhealthy":           {registry.WorkerUnhealthy, 3, false},
		"none":                {"", 3, false},
	} {
		if got := readyBy(loads, registry.Worker{State: tc.state, Seen: at(tc.seen)}); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	idle := registry.Worker{State: registry.WorkerIdle, Seen: at(9)}
	for name, p := range map[string]pod.Pod{
		"ready already": {Status: pod.Running, Phases: pod.Phases{Starting: at(1), Ready: at(2)}},
		"an older one":  {Status: pod.Running},
		"it ended":      {Status: pod.Exited, Phases: loads.Phases},
	} {
		if readyBy(p, idle) {
			t.Errorf("%s: got true, want nothing to write", name)
		}
	}
}
