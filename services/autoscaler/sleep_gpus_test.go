package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// keeps is what a worker keeps of its GPU while it sleeps.
func keeps(share float64) func(*endpoint.Endpoint) {
	return func(e *endpoint.Endpoint) { e.SleepGPUShare = &share }
}

func TestWhatASleeperFreesOfItsGPU(t *testing.T) {
	t.Parallel()
	spec := func(gpus int, share float64) pod.Spec { return pod.Spec{GPUs: gpus, GPUShare: share} }
	for name, tc := range map[string]struct {
		e    endpoint.Endpoint
		spec pod.Spec
		want int
	}{
		"all that it does not keep": {ep(keeps(0.05)), spec(1, 0), 95},
		"of two, each":              {ep(keeps(0)), spec(2, 0), 100},
		"of a share":                {ep(keeps(0.1)), spec(1, 0.5), 40},
		"nothing of a small share":  {ep(keeps(0.5)), spec(1, 0.25), 0},
		"nothing without a GPU":     {ep(keeps(0)), spec(0, 0), 0},
		"nothing unless it says so": {ep(), spec(1, 0), 0},
	} {
		if got := freedGPU(tc.e, tc.spec); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestWhetherASleeperMayWake(t *testing.T) {
	t.Parallel()
	claims := func(own, others int) map[string]registry.GPUClaims {
		return map[string]registry.GPUClaims{"g": {Holders: []registry.GPUHolder{{Pod: "p", Share: own}, {Pod: "other", Share: others}}}}
	}
	for name, tc := range map[string]struct {
		state        state
		claims       map[string]registry.GPUClaims
		small, taken bool
	}{
		"it has all":            {sleeping, claims(50, 50), false, false},
		"it has room":           {sleeping, claims(10, 50), true, false},
		"others have the room":  {sleeping, claims(10, 60), true, true},
		"it keeps nothing":      {sleeping, claims(0, 50), true, false},
		"no claim":              {sleeping, nil, false, false},
		"one that wakes is not": {starting, claims(10, 60), false, false},
	} {
		p := pod.Pod{ID: "p", Spec: pod.Spec{GPUs: 1, GPUShare: 0.5}}
		if got := withFreedGPUs(member{id: "p", state: tc.state}, ep(), p, tc.claims); got.small != tc.small || got.taken != tc.taken {
			t.Errorf("%s: got small %v, taken %v", name, got.small, got.taken)
		}
	}
}

// shares are the claims of a GPU, as "a-0-1=100 b-0-1=0", sorted.
func (s *env) shares(uuid string) string {
	s.t.Helper()
	claims, err := s.registry.GPUs.Claims(s.t.Context())
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, h := range claims[uuid].Holders {
		all = append(all, fmt.Sprintf("%s=%d", h.Pod, h.Share))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// shared waits until the GPU is claimed like this.
func (s *env) shared(uuid, want string) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		if got := s.shares(uuid); got != want {
			return fmt.Sprintf("%s: got %q, want %q", uuid, got, want)
		}
		return ""
	})
}

// auditGPUs fails the test if a GPU is claimed beyond its whole at any look, until it ends.
func (s *env) auditGPUs() {
	s.t.Helper()
	r, _ := s.peer()
	testenv.Background(s.t, func(ctx context.Context) error {
		for each := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				each.Stop()
				return nil
			case <-each.C:
			}
			claims, err := r.GPUs.Claims(ctx)
			for uuid, c := range claims {
				if err == nil && c.Used() > pod.WholeGPU {
					s.t.Errorf("GPU %s: got claims %+v, want the whole at most", uuid, c.Holders)
				}
			}
		}
	})
}

// waiting submits a job that no worker of an engine takes, and returns how to cancel it.
func (s *env) waiting(e endpoint.Endpoint) (cancel func()) {
	s.t.Helper()
	id := queue.NewID(job.Async)
	if _, err := s.queue.Submit(s.t.Context(), e, id, job.Async, job.Request{Input: []byte(`1`)}); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if _, err := s.queue.Cancel(s.t.Context(), e, id); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Two models take turns on one card, and neither is started twice.
func TestAnIdleWorkerThatYieldsSleepsAndWakesOnItsGPU(t *testing.T) {
	s := newEnv(t)
	e := s.drowsy("m")
	quick := needsGPU(func(f *endpoint.Fleet) { f.MinHold = time.Second })
	change := func(e *endpoint.Endpoint) { e.IdleTimeout = time.Hour }
	a, b := s.endpoint("a", bounds(0, 1), dozes, keeps(0), quick), s.endpoint("b", bounds(0, 1), dozes, keeps(0), quick)
	s.update("a", change)
	s.update("b", change)
	s.auditGPUs()
	s.gpuHost(cards("m", 1), e)
	cancel := s.waiting(a)
	s.inPhase("a-0-1", pod.Ready)
	cancel()
	cancel = s.waiting(b)
	s.decidedWith("a", registry.ScalingYield, "its GPU goes to b", "put to sleep: 1")
	s.shared("GPU-m-0", "a-0-1=0 b-0-1=100")
	s.inPhase("b-0-1", pod.Ready)
	waiting := s.waiting(a)
	s.decidedWith("a", registry.ScalingNoGPU, "workers that sleep and wait for room on their GPUs: 1", "GPU-m-0 is held by b-0-1")
	cancel()
	s.shared("GPU-m-0", "a-0-1=100 b-0-1=0")
	s.slept("a-0-1", "")
	waiting()
	s.waiting(b)
	s.shared("GPU-m-0", "a-0-1=0 b-0-1=100")
	s.slept("b-0-1", "")
	if e.starts("a-0-1") != 1 || e.starts("b-0-1") != 1 || len(e.pods()) != 2 {
		t.Errorf("got %v, started %d and %d times, want two workers that were started once", e.pods(), e.starts("a-0-1"), e.starts("b-0-1"))
	}
}

// What a sleeper keeps may be in the way of a worker that needs the whole card.
func TestASleeperInTheWayIsStopped(t *testing.T) {
	s := newEnv(t)
	s.endpoint("a", bounds(1, 1), dozes, keeps(0.05), needsGPU(func(f *endpoint.Fleet) { f.MinHold = time.Second }))
	s.gpuHost(cards("m", 1), s.drowsy("m"))
	s.inPhase("a-0-1", pod.Ready)
	s.update("a", func(e *endpoint.Endpoint) { e.WorkersMin = 0 })
	s.slept("a-0-1", pod.Sleeping)
	s.shared("GPU-m-0", "a-0-1=5")
	s.endpoint("b", bounds(1, 1), needsGPU())
	s.shared("GPU-m-0", "b-0-1=100")
}

// While another has its card, a worker is started on a free one in place of the sleeper.
func TestAWorkerIsStartedWhereTheSleepersGPUIsTaken(t *testing.T) {
	s := newEnv(t)
	a := s.endpoint("a", bounds(1, 2), dozes, keeps(0), needsGPU())
	s.endpoint("b", bounds(0, 1), needsGPU())
	s.gpuHost(cards("m", 1), s.drowsy("m"))
	s.inPhase("a-0-1", pod.Ready)
	s.update("a", bounds(0, 2))
	s.shared("GPU-m-0", "a-0-1=0")
	s.update("b", bounds(1, 1))
	s.shared("GPU-m-0", "a-0-1=0 b-0-1=100")
	s.gpuHost(cards("n", 1), s.drowsy("n"))
	s.waiting(a)
	s.shared("GPU-n-0", "a-1-1=100")
	s.slept("a-0-1", pod.Sleeping)
}

// outliving is a driver whose pods do not end with its autoscaler.
type outliving struct{ driver.Driver }

// An autoscaler may be killed after each write of a sleep and of a wake. The next one goes
// on from there, and the card is never claimed twice.
func TestASleepGoesOnFromEachStep(t *testing.T) {
	t.Parallel()
	const asleep, awake, taken = "a-0-1=0", "a-0-1=100", "a-0-1=0 other=100"
	at := func(s *env, p *pod.Pod) { p.Sleep = pod.Sleep{At: s.queue.Now().UTC(), GPUFreed: pod.WholeGPU} }
	woken := func(s *env, p *pod.Pod) { p.Sleep.Wake = s.queue.Now().UTC() }
	for name, tc := range map[string]struct {
		change func(*env, *pod.Pod) // of a record that says that it sleeps
		// whole means that the claim is; aware that its worker knows what the record says;
		// other that another pod has the card.
		whole, aware, other bool
		want                string
	}{
		"asked to sleep":              {at, true, false, false, asleep},
		"its worker knows":            {at, true, true, false, asleep},
		"the claim is smaller":        {at, false, true, false, asleep},
		"it is noted":                 {nil, false, true, false, asleep},
		"asked to wake":               {woken, false, false, false, awake},
		"the claim is whole":          {woken, true, false, false, awake},
		"its worker knows of it":      {woken, true, true, false, awake},
		"asked to wake on taken card": {woken, false, false, true, taken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openEnv(t, 0)
			e := s.drowsy("m")
			a := s.endpoint("a", bounds(1, 1), dozes, keeps(0), needsGPU())
			s.auditGPUs()
			stop := s.gpuHost(cards("m", 1), outliving{e})
			s.inPhase("a-0-1", pod.Ready)
			t.Cleanup(func() { _ = e.Close(context.Background()) })
			s.update("a", bounds(0, 1))
			s.shared("GPU-m-0", asleep)
			p := s.slept("a-0-1", pod.Sleeping)
			stop()
			s.interrupt(p, tc.change, tc.whole, tc.aware, tc.other)
			if tc.want != asleep {
				s.waiting(a)
			}
			s.gpuHost(cards("m", 1), outliving{e})
			if tc.want == awake {
				s.slept("a-0-1", "")
			} else {
				s.slept("a-0-1", pod.Sleeping)
			}
			s.shared("GPU-m-0", tc.want)
			if e.starts("a-0-1") != 1 {
				t.Errorf("got %d starts, want the same worker", e.starts("a-0-1"))
			}
		})
	}
}

// interrupt leaves the records of a worker that sleeps as an autoscaler that was killed.
func (s *env) interrupt(p pod.Pod, change func(*env, *pod.Pod), whole, aware, other bool) {
	s.t.Helper()
	do := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	knows := p // what its worker read
	if change != nil {
		before := p.Sleep
		changed, err := s.registry.Pods.Update(s.t.Context(), p.ID, func(x pod.Pod) (pod.Pod, error) {
			change(s, &x)
			return x, nil
		})
		do(err)
		if p = changed; p.Sleep.Sleeps() {
			before = pod.Sleep{} // it was awake
		}
		if knows.Sleep = before; aware {
			knows = p
		}
	}
	do(s.registry.Pods.ShowSleep(s.t.Context(), knows, s.queue.Now()))
	if whole {
		do(s.registry.GPUs.Claim(s.t.Context(), "GPU-m-0", registry.GPUHolder{Pod: p.ID, Machine: "m", Share: pod.WholeGPU, Woken: p.Sleep.Wake}))
	}
	if other {
		now := s.queue.Now().UTC()
		do(s.registry.Pods.Create(s.t.Context(), pod.Pod{ID: "other", Status: pod.Running, Driver: pod.Process, MachineID: "elsewhere", Created: now, Changed: now}))
		do(s.registry.GPUs.Claim(s.t.Context(), "GPU-m-0", registry.GPUHolder{Pod: "other", Machine: "elsewhere", Driver: pod.Docker, Share: pod.WholeGPU}))
	}
}
