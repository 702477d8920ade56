package autoscaler

import (
	"context"
	"fmt"
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

// hooked is an engine that does something first.
type hooked struct {
	*engine
	starts func(context.Context, driver.Start) // nil for nothing
	stops  func(id string)
	forgot atomic.Int32
}

func (h *hooked) Start(ctx context.Context, start driver.Start) error {
	if h.starts != nil {
		h.starts(ctx, start)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.engine.Start(ctx, start)
}

func (h *hooked) Stop(ctx context.Context, id string, grace time.Duration) error {
	if h.stops != nil {
		h.stops(id)
	}
	return h.engine.Stop(ctx, id, grace)
}

func (h *hooked) Forget(context.Context, string) error {
	h.forgot.Add(1)
	return nil
}

// agentOf is an agent that looks at nothing by itself.
func (s *env) agentOf(d driver.Driver) *agent {
	s.t.Helper()
	service, err := New(Config{Grace: time.Second}, Deps{Queue: s.queue, Registry: s.registry, Events: s.events(), Drivers: []driver.Driver{d}})
	if err != nil {
		s.t.Fatal(err)
	}
	a := service.agents[0]
	a.machine = "machine"
	return a
}

func (s *env) get(id string) pod.Pod {
	s.t.Helper()
	p, err := s.registry.Pods.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// at puts the pod on the machine.
func at(p *pod.Pod) { p.MachineID = "machine" }

// of makes the pod a worker as ep says, so that it is not replaced.
func of(endpointID string) func(*pod.Pod) {
	return func(p *pod.Pod) { p.Endpoint, p.Spec.Command = endpointID, ep().Fleet.Command }
}

// What is forgotten before its end is on record would be started again.
func TestAnEndIsForgottenOnlyOnceItIsNoted(t *testing.T) {
	s := newEnv(t)
	h := &hooked{engine: s.engine("machine")}
	a := s.agentOf(h)
	s.pod("once", at)
	p := s.get("once")
	i := driver.Instance{PodID: "once", Started: time.Now()}
	s.Stop()
	within, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	a.ended(within, p, i)
	if n := h.forgot.Load(); n != 0 {
		t.Errorf("while the bus was away: got it forgotten %d times, want it remembered", n)
	}
	s.Start()
	testenv.EventuallyNone(s.t, func() string {
		if a.ended(t.Context(), p, i); h.forgot.Load() == 0 {
			return "not forgotten"
		}
		return ""
	})
	if p := s.get("once"); p.Status != pod.Exited || !strings.Contains(p.Change, "ended by itself") {
		t.Errorf("got %s: %s, want that it ended by itself", p.Status, p.Change)
	}
}

// The record is written first, and the token may never have been.
func TestAWorkerWhoseRecordAloneSaysThatItDrainsHasLeft(t *testing.T) {
	s := newEnv(t)
	a := s.agentOf(&hooked{engine: s.engine("machine")})
	for id, code := range map[string]int{"done": 0, "broken": 1} {
		s.pod(id, at, of("ep"), func(p *pod.Pod) { p.Drain.At = p.Created })
		a.ended(t.Context(), s.get(id), driver.Instance{PodID: id, Code: code, Started: time.Now()})
		if p := s.get(id); p.Failed() != (code != 0) {
			t.Errorf("code %d: got failed %v (%s: %s)", code, p.Failed(), p.By, p.Change)
		}
	}
}

func TestAJobThatIsTakenAtTheLastMomentIsNoted(t *testing.T) {
	s := newEnv(t)
	h := &hooked{engine: s.engine("machine")}
	a := s.agentOf(h)
	s.pod("w", at, of("ep"))
	if err := h.engine.Start(t.Context(), driver.Start{PodID: "w", Endpoint: "ep"}); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "w", registry.WorkerIdle) })
	h.stops = func(id string) {
		h.hold(id, "late")
		testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", id, registry.WorkerRunning) })
	}
	if !a.stop(t.Context(), s.get("w"), time.Second) {
		t.Fatal("got it not stopped")
	}
	if p := s.get("w"); !slices.Equal(p.Cut, []string{"late"}) {
		t.Errorf("got %v, want the job", p.Cut)
	}
}

// Its record says that it is gone, and it still works.
func TestAWorkerThatIsBeingRemovedLeavesWordOfItsJobsToo(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	stop := s.autoscalerOf(Config{Closing: time.Second, DrainTime: never}, e)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	e.hold("ep-0-1", "a-job")
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerRunning) })
	s.move("ep-0-1", pod.Remove, nil)
	testenv.EventuallyNone(s.t, func() string { return s.asked("ep", "ep-0-1") })
	stop()
	if p := s.get("ep-0-1"); !slices.Equal(p.Cut, []string{"a-job"}) {
		t.Errorf("got %v, want its job", p.Cut)
	}
}

// asked says that the worker was not told yet to take no more jobs, "" if it was.
func (s *env) asked(endpointID, id string) string {
	token, err := s.registry.Tokens.Find(s.t.Context(), endpointID, id)
	if err == nil && token.Draining {
		return ""
	}
	return fmt.Sprintf("worker %s: got %+v, %v, want it to drain", id, token, err)
}

// Other hosts soon take a pod for gone whose autoscaler is.
func TestAPodOfNoEndpointIsNotKeptUpByWorkersWhenWeStop(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	stop := s.autoscalerOf(Config{Closing: patience}, e)
	s.pod("alone")
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	e.hold("ep-0-1", "a-job")
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerRunning) })
	testenv.EventuallyNone(s.t, func() string {
		if e.starts("alone") == 0 {
			return "not started"
		}
		return ""
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	if p := s.status("alone", pod.Exited); p.Change != "its autoscaler was stopped" || slices.Contains(e.pods(), "alone") {
		t.Errorf("got %q, %v, want it ended with its autoscaler", p.Change, e.pods())
	}
	if p := s.get("ep-0-1"); p.Status != pod.Running {
		t.Errorf("got %s (%s), want that its worker goes on", p.Status, p.Change)
	}
	e.hold("ep-0-1")
	<-stopped
}

// Images may take long to come, and jobs to end; the machine does the rest meanwhile.
func TestSlowStartsAndDrainsKeepNothingWaiting(t *testing.T) {
	s := newEnv(t)
	const many = 8
	h := &hooked{engine: s.engine("machine"), starts: func(ctx context.Context, start driver.Start) {
		if strings.HasPrefix(start.PodID, "slow") {
			<-ctx.Done()
		}
	}}
	s.endpoint("ep", bounds(0, many))
	s.update("ep", func(e *endpoint.Endpoint) { e.IdleTimeout = time.Hour }) // they are idle until they hold a job
	s.autoscalerOf(Config{Closing: -1, DrainTime: never}, h)
	for i := range many {
		s.pod(fmt.Sprint("slow", i))
		s.pod(fmt.Sprint("busy", i), of("ep"))
	}
	for i := range many {
		id := fmt.Sprint("busy", i)
		testenv.EventuallyNone(s.t, func() string {
			h.hold(id, "job"+id)
			return s.stateOf("ep", id, registry.WorkerRunning)
		})
		s.move(id, pod.Remove, nil)
	}
	s.pod("quick")
	testenv.EventuallyNone(s.t, func() string {
		if h.engine.starts("quick") == 0 {
			return "not started"
		}
		return ""
	})
	s.move("quick", pod.Stop, nil)
	testenv.EventuallyNone(s.t, func() string {
		if slices.Contains(h.pods(), "quick") {
			return "not stopped"
		}
		return ""
	})
	if got := h.pods(); len(got) != many {
		t.Errorf("got %v, want the %d that finish their jobs", got, many)
	}
}
