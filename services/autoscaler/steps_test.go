package autoscaler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/logs"
	"flightline/shared/logs/logstest"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// A start that was asked for says nothing new of the one before, whose times are still in
// the record.
func TestARestartRepeatsNoStep(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep")
	now := s.queue.Now().UTC()
	s.pod("p", func(p *pod.Pod) {
		p.Endpoint, p.Phases = e.ID, pod.Phases{Starting: now, Loading: now.Add(time.Millisecond)}
	})
	reg, q := s.peer()
	service, err := New(Config{}, Deps{Queue: q, Registry: reg, Events: s.events()})
	if err != nil {
		t.Fatal(err)
	}
	n := stepNotes{Service: service, since: now.Add(-stepsWindow)}
	for starts := range 2 {
		testenv.EventuallyNone(t, func() string {
			if pods, err := reg.Pods.List(t.Context()); err != nil || len(pods) != 1 || pods[0].Starts != starts {
				return fmt.Sprintf("got %+v, %v, want start %d", pods, err, starts)
			}
			return ""
		})
		if err := n.noteAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := logstest.Texts(s.logged(e)), "starting|loading: its program runs"; got != want {
			t.Errorf("start %d: got %s, want %s", starts, got, want)
		}
		s.move("p", pod.Restart, nil)
	}
}

// What happens to a worker is in its log once, also while another leader writes the same,
// and in order.
func TestWhatHappensToAWorkerIsInItsLog(t *testing.T) {
	s := newEnv(t)
	machine := s.engine("machine")
	machine.newborn, machine.pulls = mute, true
	e := s.endpoint("ep", bounds(1, 1))
	s.pod("alone") // its steps belong to no log
	s.autoscaler(machine)
	const id = "ep-0-1"
	s.inPhase(id, pod.Loading)
	s.autoscaler() // it leads too
	machine.speak(id, registry.WorkerIdle)
	s.inPhase(id, pod.Ready)
	s.move(id, pod.Exit, nil)
	want := []string{"pulling", "starting", "loading", "ready", "ended: by request"}
	var steps []logs.Entry
	testenv.EventuallyNone(t, func() string {
		steps = slices.DeleteFunc(s.logged(e), func(l logs.Entry) bool {
			return l.Stream != logs.System || l.Worker != id || strings.HasPrefix(l.Text, "draining")
		})
		if len(steps) < len(want) {
			return fmt.Sprintf("got %s, want %v", logstest.Texts(steps), want)
		}
		return ""
	})
	for i, l := range steps {
		level := map[bool]string{false: "info", true: "warn"}[i == 4]
		if i >= len(want) || !strings.HasPrefix(l.Text, want[i]) || l.Level != level {
			t.Errorf("got %s, step %d of level %q, want %v, the last a warning", logstest.Texts(steps), i, l.Level, want)
		}
	}
}
