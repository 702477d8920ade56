package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// runsOn makes the engine run a pod on the GPUs.
func (s *env) runsOn(e *engine, id string, gpus []pod.GPU) {
	s.t.Helper()
	if err := e.Start(s.t.Context(), driver.Start{PodID: id, GPUs: gpus}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = e.Close(context.Background()) })
}

// claims makes the pod of the machine hold a GPU.
func (s *env) claims(uuid, id, machine string) {
	s.t.Helper()
	h := registry.GPUHolder{Pod: id, Machine: machine, Driver: pod.Process, Share: pod.WholeGPU}
	if err := s.registry.GPUs.Claim(s.t.Context(), uuid, h); err != nil {
		s.t.Fatal(err)
	}
}

// The leader has released the claims of a machine that was cut off.
func TestAPodIsAdoptedOnlyIfItCanClaimItsGPUsAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		other   bool // another pod has its GPU now
		adopted bool
	}{"still free": {false, true}, "given to another": {true, false}} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			e := s.engine("m")
			s.pod("own", func(p *pod.Pod) { p.MachineID, p.Spec.GPUs = "m", 1 })
			s.runsOn(e, "own", cards("m", 1))
			s.move("own", pod.Exit, func(p *pod.Pod) { p.Change = vanished })
			if tt.other {
				s.claims("GPU-m-0", "other", "m2")
			}
			s.gpuHost(cards("m", 1), e)
			if tt.adopted {
				s.told("own", "is back")
				s.held("GPU-m-0:own")
				return
			}
			testenv.EventuallyNone(t, func() string { return strings.Join(e.pods(), " ") })
			if p := s.get("own"); p.Status != pod.Exited || e.starts("own") != 1 {
				t.Errorf("got %s (%s), %d starts, want it EXITED", p.Status, p.Change, e.starts("own"))
			}
		})
	}
}

func TestNoPodIsStartedOnAGPUThatAnotherPodStillUses(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.agentOf(e)
	a.inventory = cards("machine", 1)
	s.runsOn(e, "old", a.inventory)
	s.pod("new", at, func(p *pod.Pod) { p.Spec.GPUs = 1 })
	a.start(t.Context(), "new")
	if p := s.get("new"); e.starts("new") != 0 || p.Status != pod.Running {
		t.Errorf("got %d starts, %s (%s), want it to wait", e.starts("new"), p.Status, p.Change)
	}
	if err := e.Stop(t.Context(), "old", 0); err != nil {
		t.Fatal(err)
	}
	a.start(t.Context(), "new")
	if e.starts("new") != 1 {
		t.Errorf("got %d starts once the GPU is free, want 1", e.starts("new"))
	}
}

// Pods that share a GPU have claims of it.
func TestPodsThatShareAGPUAreStartedSideBySide(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.agentOf(e)
	a.inventory = cards("machine", 1)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	for i := range 2 {
		id := fmt.Sprint("p", i)
		s.pod(id, at, func(p *pod.Pod) { p.Spec.GPUs, p.Spec.GPUShare = 1, 0.5 })
		if a.start(t.Context(), id); e.starts(id) != 1 {
			t.Errorf("%s: got %d starts, want 1", id, e.starts(id))
		}
	}
}

func TestAPodThatIsStoppedHoldsItsGPUsUntilItHasEnded(t *testing.T) {
	s := newEnv(t)
	h := &hooked{engine: s.engine("machine")}
	a := s.agentOf(h)
	gpus := cards("machine", 1)
	s.runsOn(h.engine, "old", gpus)
	held := ""
	h.stops = func(string) { held = s.holders() }
	a.stopSurplus(t.Context(), "old", driver.Instance{PodID: "old", Running: true, GPUs: uuidsOf(gpus)})
	if want := "GPU-machine-0:old"; held != want {
		t.Errorf("got %q held when it was asked to end, want %q", held, want)
	}
	a.release(t.Context(), "old")
	s.held("")
}

func TestAPodThatIsChangedHoldsTheGPUsThatItNeedsNow(t *testing.T) {
	for name, tt := range map[string]struct {
		cards, from, to int
		want            string
		runs            bool
	}{
		"fewer":                {2, 2, 1, "GPU-m-0:p", true},
		"fewer, others free":   {4, 2, 1, "GPU-m-0:p", true},
		"more":                 {2, 1, 2, "GPU-m-0:p GPU-m-1:p", true},
		"the same":             {2, 1, 1, "GPU-m-0:p", true},
		"more than there were": {1, 1, 2, "", false},
		"none":                 {2, 2, 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			e := s.engine("m")
			s.gpuHost(cards("m", tt.cards), e)
			s.pod("p", func(p *pod.Pod) { p.Spec.GPUs = tt.from })
			s.inPhase("p", pod.Ready)
			s.move("p", pod.Restart, func(p *pod.Pod) { p.Spec.GPUs = tt.to })
			testenv.EventuallyNone(t, func() string {
				if p := s.get("p"); e.starts("p") < 2 && p.Status == pod.Running {
					return "not started again"
				}
				return ""
			})
			if p := s.get("p"); p.Status == pod.Running != tt.runs {
				t.Errorf("got %s: %s", p.Status, p.Change)
			}
			s.held(tt.want)
			if tt.runs && len(e.with("p").GPUs) != tt.to {
				t.Errorf("got %v, want %d", e.with("p").GPUs, tt.to)
			}
		})
	}
}

// A change of what will do holds from the next start on, also where the claim is not over.
func TestAPodThatIsRestartedLeavesAGPUThatWillNotDo(t *testing.T) {
	for name, change := range map[string]func(*env, *pod.Pod){
		"another type": func(_ *env, p *pod.Pod) { p.Spec.GPUTypes = []string{"AMD B"} },
		"more memory":  func(_ *env, p *pod.Pod) { p.Spec.MinVRAMGB = 40 },
		"quarantined": func(s *env, _ *pod.Pod) {
			q := registry.Quarantine{Machine: "m", Reason: "test", Since: s.queue.Now()}
			if _, _, err := s.registry.GPUs.Quarantine(s.t.Context(), "GPU-m-0", q, func(int) time.Duration { return time.Hour }); err != nil {
				s.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			e := s.engine("m")
			s.gpuHost(append(cards("m", 1), pod.GPU{UUID: "B", Vendor: pod.AMD, Name: "AMD B", MemoryMB: 49152}), e)
			s.pod("p", func(p *pod.Pod) { p.Spec.GPUs = 1 })
			s.inPhase("p", pod.Ready)
			s.held("GPU-m-0:p")
			s.move("p", pod.Restart, func(p *pod.Pod) { change(s, p) })
			s.held("B:p")
			testenv.EventuallyNone(t, func() string {
				if e.starts("p") < 2 {
					return "not started again"
				}
				return ""
			})
			if got := uuidsOf(e.with("p").GPUs); !slices.Equal(got, []string{"B"}) {
				t.Errorf("got it started with %v, want B", got)
			}
		})
	}
}

// Others may have a GPU that is free.
func TestAPodIsTakenByAMachineThatHasGPUsForIt(t *testing.T) {
	s := newEnv(t)
	a := s.agentOf(s.engine("machine"))
	a.inventory = cards("machine", 2)
	now := s.queue.Now().UTC()
	recent := func(id string, gpus int) pod.Pod {
		s.pod(id, func(p *pod.Pod) { p.Changed, p.Spec.GPUs = now.Add(time.Hour), gpus })
		return s.get(id)
	}
	for _, tt := range []struct {
		p    pod.Pod
		want bool
	}{
		{recent("one", 1), true}, {recent("two", 2), false}, {recent("none", 0), true}, {recent("last", 1), true}, {recent("late", 1), false},
	} {
		if got := a.claim(t.Context(), tt.p); got != tt.want || got != (s.get(tt.p.ID).MachineID == "machine") {
			t.Errorf("%s: got it taken %v, want %v", tt.p.ID, got, tt.want)
		}
	}
	s.held("GPU-machine-0:one GPU-machine-1:last")
	s.pod("waits", func(p *pod.Pod) { p.Changed, p.Spec.GPUs = now.Add(-time.Hour), 1 })
	if !a.claim(t.Context(), s.get("waits")) {
		t.Error("no machine has a GPU for long: got it left, want it taken to say so")
	}
}

func TestAPodThatAnotherMachineHasTakenHoldsNothingHere(t *testing.T) {
	s := newEnv(t)
	a := s.agentOf(s.engine("machine"))
	a.inventory = cards("machine", 1)
	s.pod("p", func(p *pod.Pod) { p.Changed, p.Spec.GPUs = p.Changed.Add(time.Hour), 1 })
	seen := s.get("p")
	if _, err := s.registry.Pods.Update(t.Context(), "p", func(p pod.Pod) (pod.Pod, error) {
		p.MachineID = "another"
		return p, nil
	}); err != nil {
		t.Fatal(err)
	}
	if a.claim(t.Context(), seen) {
		t.Error("got it taken")
	}
	a.releaseGone(t.Context(), nil, nil)
	a.work.Wait()
	s.held("")
}
