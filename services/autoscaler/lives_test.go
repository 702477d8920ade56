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

// pod makes a pod that works for no endpoint.
func (s *env) pod(id string, change ...func(*pod.Pod)) {
	s.t.Helper()
	now := s.queue.Now().UTC()
	p := pod.Pod{ID: id, Name: id, Driver: pod.Process, Status: pod.Running, Created: now, Changed: now, Spec: pod.Spec{Command: []string{"x"}}}
	for _, c := range change {
		c(&p)
	}
	if err := s.registry.Pods.Create(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

// move stops or starts a pod, as a request does.
func (s *env) move(id string, by pod.Trigger, mutate func(*pod.Pod)) {
	s.t.Helper()
	change := func(p *pod.Pod) error {
		if mutate != nil {
			mutate(p)
		}
		return nil
	}
	if _, err := s.registry.Pods.Move(s.t.Context(), id, by, "by request", s.queue.Now(), change); err != nil {
		s.t.Fatal(err)
	}
}

// told waits until the pod's last change has these words.
func (s *env) told(id, words string) pod.Pod {
	s.t.Helper()
	var p pod.Pod
	testenv.EventuallyNone(s.t, func() string {
		var err error
		if p, err = s.registry.Pods.Get(s.t.Context(), id); err == nil && strings.Contains(p.Change, words) {
			return ""
		}
		return fmt.Sprintf("pod %s: got %s: %s, %v, want %q", id, p.Status, p.Change, err, words)
	})
	return p
}

func TestAPodWhoseMachineIsGoneEndsAndCanBeStartedElsewhere(t *testing.T) {
	s := newEnv(t)
	e := s.engine("alive")
	s.autoscaler(e)
	s.pod("lost", func(p *pod.Pod) { p.MachineID = "gone" })
	s.pod("kept", func(p *pod.Pod) { p.MachineID = "alive" })
	if p := s.status("lost", pod.Exited); p.Change != vanished {
		t.Errorf("got %q, want %q", p.Change, vanished)
	}
	if p := s.status("kept", pod.Running); p.By != "" {
		t.Errorf("got %q, want the other one left alone", p.Change)
	}
	s.move("lost", pod.Start, func(p *pod.Pod) { p.MachineID = "" })
	testenv.EventuallyNone(s.t, func() string {
		if slices.Contains(e.pods(), "lost") {
			return ""
		}
		return "it does not run"
	})
}

func TestAContainerThatOutlivedItsAutoscalerIsAdopted(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.pod("own", func(p *pod.Pod) { p.MachineID = "machine" })
	if err := e.Start(t.Context(), driver.Start{PodID: "own"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(t.Context()) })
	if _, err := s.registry.Pods.Move(t.Context(), "own", pod.Exit, vanished, s.queue.Now(), nil); err != nil {
		t.Fatal(err)
	}
	s.autoscaler(e)
	if p := s.told("own", "is back"); p.Status != pod.Running || e.starts("own") != 1 {
		t.Errorf("got %s, started %d times, want it as it was", p.Status, e.starts("own"))
	}
}

func TestAPodThatIsStoppedAndStartedAtOnceBeginsAnew(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.autoscaler(e)
	s.pod("p")
	testenv.EventuallyNone(s.t, func() string {
		if e.starts("p") == 1 {
			return ""
		}
		return "not started"
	})
	e.mu.Lock()
	e.away = true // nobody looks between the two requests
	e.mu.Unlock()
	s.move("p", pod.Stop, nil)
	s.move("p", pod.Start, func(p *pod.Pod) { p.Spec.Env = map[string]string{"NEW": "yes"} })
	e.mu.Lock()
	e.away = false
	e.mu.Unlock()
	testenv.EventuallyNone(s.t, func() string {
		e.mu.Lock()
		defer e.mu.Unlock()
		if r := e.running["p"]; r != nil && r.start.Env["NEW"] == "yes" {
			return ""
		}
		return "the old one runs"
	})
	if p := s.status("p", pod.Running); p.Starts != 1 || e.starts("p") != 2 {
		t.Errorf("got %d requests and %d starts, want 1 and 2", p.Starts, e.starts("p"))
	}
}

// What the driver said before a pod was started again says nothing of what runs now.
func TestAnOldLookStartsNothingAgain(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	reg, q := s.peer()
	service, err := New(Config{Grace: time.Second}, Deps{Queue: q, Registry: reg, Events: s.events()})
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(service, e)
	a.machine = e.id
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	s.pod("p")
	look := func() {
		if err := a.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.work.Wait()
	}
	again := func(starts int) {
		s.move("p", pod.Stop, nil)
		s.move("p", pod.Start, nil)
		testenv.EventuallyNone(t, func() string {
			if pods, err := reg.Pods.List(t.Context()); err != nil || len(pods) != 1 || pods[0].Starts != starts {
				return fmt.Sprintf("the agent's registry: got %+v, %v, want start %d", pods, err, starts)
			}
			return ""
		})
	}
	look()
	again(1)
	e.listed = func() {
		a.begin("p", func() { a.restart(t.Context(), "p") })
		a.work.Wait()
	}
	look()
	e.listed = nil
	if n := e.starts("p"); n != 2 {
		t.Errorf("got %d starts, want 2", n)
	}
	again(2)
	look()
	if n := e.starts("p"); n != 3 {
		t.Errorf("after another request: got %d starts, want 3", n)
	}
}

func TestARestartEndsWhatRunsAndStartsItAgain(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.autoscaler(e)
	s.pod("p")
	for life := range 3 {
		testenv.EventuallyNone(t, func() string {
			e.mu.Lock()
			defer e.mu.Unlock()
			if r := e.running["p"]; r == nil || r.start.Life != life {
				return fmt.Sprintf("want life %d of it to run", life)
			}
			return ""
		})
		if p := s.status("p", pod.Running); p.Starts != life || e.starts("p") != life+1 {
			t.Errorf("got %d requests and %d starts, want %d and %d", p.Starts, e.starts("p"), life, life+1)
		}
		s.move("p", pod.Restart, nil)
	}
}

func TestAPodThatNoMachineCanRunSaysSo(t *testing.T) {
	s := newEnv(t)
	s.autoscaler(s.engine("machine"))
	s.pod("waits", func(p *pod.Pod) { p.Driver = pod.Docker })
	s.pod("large", func(p *pod.Pod) { p.Spec.GPUs = 2 })
	if p := s.told("waits", "no autoscaler with the driver docker runs"); p.Status != pod.Running || p.MachineID != "" {
		t.Errorf("got %s on %q, want it to wait", p.Status, p.MachineID)
	}
	if p := s.told("large", "gpuCount is 2, and the machine has 0 GPUs"); p.Status != pod.Exited {
		t.Errorf("got %s, want it EXITED", p.Status)
	}
}

// docker is an engine by another name.
type docker struct{ *engine }

func (docker) Name() pod.Driver { return pod.Docker }

func TestAPodThatWaitedIsStartedOnceItCanBe(t *testing.T) {
	s := newEnv(t)
	s.autoscaler()
	s.pod("waits", func(p *pod.Pod) { p.Driver = pod.Docker })
	s.told("waits", "no autoscaler with the driver docker runs")
	e := s.engine("machine")
	s.autoscaler(docker{e})
	if p := s.told("waits", "started"); p.Status != pod.Running || p.MachineID != "machine" {
		t.Errorf("got %s on %q, want it to run", p.Status, p.MachineID)
	}
}

func TestAWorkerThatIsStoppedWithUsLeavesWordOfItsJobs(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	stop := s.autoscalerOf(Config{Closing: time.Second}, e)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	e.hold("ep-0-1", "a-job")
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerRunning) })
	stop()
	if p := s.status("ep-0-1", pod.Terminated); !slices.Equal(p.Cut, []string{"a-job"}) {
		t.Errorf("got %v, want its job", p.Cut)
	}
}

// An image may take long to come.
func TestAPodThatIsDeletedWhileItStartsIsNotStarted(t *testing.T) {
	for _, by := range []pod.Trigger{pod.Remove, pod.Stop} {
		t.Run(string(by), func(t *testing.T) {
			s := newEnv(t)
			begun := make(chan struct{})
			h := &hooked{engine: s.engine("m"), starts: func(ctx context.Context, _ driver.Start) {
				close(begun)
				<-ctx.Done()
			}}
			s.gpuHost(cards("m", 1), h)
			s.pod("p", func(p *pod.Pod) { p.Spec.GPUs = 1 })
			<-begun
			s.move("p", by, nil)
			s.held("")
			if n := h.engine.starts("p"); n != 0 {
				t.Errorf("got %d starts, want none", n)
			}
		})
	}
}

// published is a docker whose containers get another port of the host with each start.
type published struct{ docker }

func (d published) List(ctx context.Context) ([]driver.Instance, error) {
	all, err := d.docker.List(ctx)
	for i := range all {
		all[i].PublicIP, all[i].PortMappings = "192.0.2.1", map[int]int{8080: 30000 + d.starts(all[i].PodID)}
	}
	return all, err
}

func TestTheAddressesOfAPodAreThoseOfItsLastStart(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	s.autoscaler(published{docker{e}})
	s.pod("p", func(p *pod.Pod) { p.Driver = pod.Docker })
	for port := 30001; port <= 30003; port++ {
		testenv.EventuallyNone(t, func() string {
			if got := s.get("p").PortMappings; got[8080] != port {
				return fmt.Sprintf("got %v, want port %d", got, port)
			}
			return ""
		})
		s.move("p", pod.Restart, nil)
	}
}
