package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// cards are n GPUs of a machine's name.
func cards(machine string, n int) []pod.GPU {
	var all []pod.GPU
	for i := range n {
		all = append(all, pod.GPU{UUID: fmt.Sprintf("GPU-%s-%d", machine, i), Vendor: pod.NVIDIA, Name: "NVIDIA L4", MemoryMB: 24576})
	}
	return all
}

// gpuHost runs an autoscaler whose machine has these GPUs.
func (s *env) gpuHost(gpus []pod.GPU, e driver.Driver) (stop func()) {
	s.t.Helper()
	return s.autoscalerOf(Config{GPUs: func() ([]pod.GPU, error) { return gpus, nil }}, e)
}

func needsGPU(change ...func(*endpoint.Fleet)) func(*endpoint.Endpoint) {
	return func(e *endpoint.Endpoint) {
		e.Fleet.GPUs = 1
		for _, f := range change {
			f(&e.Fleet)
		}
	}
}

// holders are the pods that hold GPUs, as "GPU-m-0:a-0-1", sorted.
func (s *env) holders() string {
	s.t.Helper()
	var claims map[string]registry.GPUClaims
	testenv.Retry(s.t, func() (err error) {
		claims, err = s.registry.GPUs.Claims(s.t.Context())
		return err
	})
	var all []string
	for uuid, c := range claims {
		for _, h := range c.Holders {
			all = append(all, uuid+":"+h.Pod)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// held waits until these pods hold GPUs.
func (s *env) held(want string) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		if got := s.holders(); got != want {
			return fmt.Sprintf("got holders %q, want %q", got, want)
		}
		return ""
	})
}

// decidedWith waits for a decision with this reason and words in its text.
func (s *env) decidedWith(id, reason string, words ...string) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		all, err := s.registry.Scaling.History(s.t.Context(), id, 20)
		for _, d := range all {
			if d.Reason == reason && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(d.Text, w) }) {
				return ""
			}
		}
		return fmt.Sprintf("got %+v, %v, want %s with %q", all, err, reason, words)
	})
}

func TestEachWorkerHasAGPUOfItsOwn(t *testing.T) {
	s := newEnv(t)
	e := s.engine("m")
	s.endpoint("a", bounds(3, 3), needsGPU())
	stop := s.gpuHost(cards("m", 2), e)
	s.held("GPU-m-0:a-0-1 GPU-m-1:a-1-1")
	s.decidedWith("a", registry.ScalingNoGPU, "a worker needs 1 GPU; there are 2: 2 would do", "GPU-m-0 is held by a-0-1 (of a")
	e.mu.Lock()
	for id, r := range e.running {
		if len(r.start.GPUs) != 1 || r.start.Env["CUDA_VISIBLE_DEVICES"] != r.start.GPUs[0].UUID || r.start.Env["FLIGHTLINE_GPU_MEMORY_MB"] != "24576" {
			t.Errorf("%s: got GPUs %v, environment %v", id, r.start.GPUs, r.start.Env)
		}
	}
	e.mu.Unlock()
	s.update("a", bounds(0, 0))
	s.held("")
	s.update("a", bounds(1, 1))
	testenv.EventuallyNone(t, func() string {
		if len(e.pods()) == 1 {
			return ""
		}
		return "no worker"
	})
	stop() // its workers end with it
	s.held("")
	if machines, err := s.registry.GPUs.Machines(t.Context()); err != nil || len(machines) != 0 {
		t.Errorf("got %v, %v, want that the machine has left", machines, err)
	}
}

func TestTheEnvironmentNamesTheGPUs(t *testing.T) {
	t.Parallel()
	devices := []pod.GPU{{UUID: "GPU-1", Vendor: pod.NVIDIA, MemoryMB: 24576}, {UUID: "GPU-2", Vendor: pod.AMD, MemoryMB: 16384}, {UUID: "X-3", Vendor: "other", MemoryMB: 1000}}
	got := withGPUs(map[string]string{"A": "1"}, devices, pod.Spec{GPUs: 3, GPUShare: 0.5})
	want := map[string]string{
		"A": "1", "CUDA_VISIBLE_DEVICES": "GPU-1", "ROCR_VISIBLE_DEVICES": "GPU-2", "FLIGHTLINE_GPU_UUIDS": "GPU-1,GPU-2,X-3",
		"FLIGHTLINE_GPU_SHARE": "0.5", "FLIGHTLINE_GPU_MEMORY_MB": "20980",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	unknown := append(slices.Clone(devices), pod.GPU{UUID: "GPU-4", Vendor: pod.NVIDIA}) // as /proc has it
	if got, found := withGPUs(nil, unknown, pod.Spec{GPUs: 4})["FLIGHTLINE_GPU_MEMORY_MB"]; found {
		t.Errorf("got %s MB, want none: that of a GPU is unknown", got)
	}
	if got := withGPUs(nil, nil, pod.Spec{}); got != nil {
		t.Errorf("got %v for no GPU", got)
	}
}

func TestNoGPUThatWouldDo(t *testing.T) {
	s := newEnv(t)
	s.endpoint("a", bounds(1, 1), needsGPU(func(f *endpoint.Fleet) { f.GPUTypes, f.MinVRAMGB = []string{"NVIDIA H100"}, 40 }))
	s.gpuHost(cards("m", 1), s.engine("m"))
	s.decidedWith("a", registry.ScalingNoGPU, "a worker needs 1 GPU, one of NVIDIA H100, with 40 GB; there is 1: 0 would do, 1 of another type")
}

func TestSharesOfAGPU(t *testing.T) {
	s := newEnv(t)
	half := needsGPU(func(f *endpoint.Fleet) { f.GPUShare = 0.5 })
	s.endpoint("a", bounds(3, 3), half)
	s.gpuHost(cards("m", 1), s.engine("m"))
	s.held("GPU-m-0:a-0-1 GPU-m-0:a-1-1")
	s.decidedWith("a", registry.ScalingNoGPU, "0.5 of a GPU")
}

// Two programs on one host report the same card.
func TestOneCardOfTwoAutoscalersIsGivenOnce(t *testing.T) {
	s := newEnv(t)
	one, two := s.engine("one"), s.engine("two")
	s.endpoint("a", bounds(2, 2), needsGPU())
	s.gpuHost(cards("m", 1), one)
	s.gpuHost(cards("m", 1), two)
	s.decidedWith("a", registry.ScalingNoGPU)
	for range 20 {
		if n := len(one.pods()) + len(two.pods()); n > 1 {
			t.Fatalf("got %d workers on one GPU", n)
		}
		testenv.EventuallyNone(t, func() string { // as time passes
			if s.holders() == "" {
				return "nobody holds the GPU"
			}
			return ""
		})
	}
}

func TestAnIdleWorkerYieldsToWhoWaits(t *testing.T) {
	s := newEnv(t)
	e := s.engine("m")
	idle := func(e *endpoint.Endpoint) { e.Fleet.MinHold = time.Second }
	a := s.endpoint("a", bounds(0, 1), needsGPU(), idle)
	s.update("a", func(e *endpoint.Endpoint) { e.IdleTimeout = time.Hour })
	b := s.endpoint("b", bounds(0, 1), needsGPU(), idle)
	s.gpuHost(cards("m", 1), e)
	s.submit(a, false)
	s.held("GPU-m-0:a-0-1")
	if _, err := s.queue.Purge(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.submit(b, false)
	s.decidedWith("a", registry.ScalingYield, "its GPU goes to b")
	s.held("GPU-m-0:b-0-1")
}

// Jobs that wait while their endpoint is paused need no GPU.
func TestAWorkerOfAPausedEndpointYieldsToWhoWaits(t *testing.T) {
	s := newEnv(t)
	hold := func(e *endpoint.Endpoint) { e.Fleet.MinHold = time.Second }
	a, b := s.endpoint("a", bounds(0, 1), needsGPU(), hold), s.endpoint("b", bounds(0, 1), needsGPU(), hold)
	s.update("a", func(e *endpoint.Endpoint) { e.IdleTimeout = time.Hour })
	s.gpuHost(cards("m", 1), s.engine("m"))
	s.submit(a, false)
	s.held("GPU-m-0:a-0-1")
	s.update("a", func(e *endpoint.Endpoint) { e.PausedUntil = s.queue.Now().Add(time.Hour) })
	s.submit(b, false)
	s.decidedWith("a", registry.ScalingYield, "its GPU goes to b")
	s.held("GPU-m-0:b-0-1")
}

// When a worker has to yield does not depend on what its leader has seen of it.
func TestAWorkerYieldsByItsRecord(t *testing.T) {
	const never = -time.Second
	at := noon.Add
	started := pod.Pod{ID: "a-0-1", Status: pod.Running, Phases: pod.Phases{Starting: noon, Loading: at(time.Second), Ready: at(time.Minute)}}
	with := func(p pod.Pod, change func(*pod.Pod)) pod.Pod { change(&p); return p }
	slept := with(started, func(p *pod.Pod) { p.Sleep = pod.Sleep{Took: 2 * time.Second, Awoke: at(2 * time.Hour)} })
	for name, tc := range map[string]struct {
		p             pod.Pod
		state         state
		after         time.Duration // its claim
		held, startup time.Duration
		left          time.Duration // until it yields to a job that has waited for ten minutes
	}{
		"ready for a second":           {started, busy, 61 * time.Second, time.Second, time.Minute, 179 * time.Second},
		"ready for three starts":       {started, busy, 4 * time.Minute, 3 * time.Minute, time.Minute, 0},
		"not heard of":                 {started, starting, time.Hour, 0, 0, never},
		"heard of, not noted yet":      {with(started, func(p *pod.Pod) { p.Phases.Ready = time.Time{} }), busy, time.Minute, 0, time.Minute, 3 * time.Minute},
		"started by an older version":  {pod.Pod{ID: "a-0-1", Status: pod.Running}, busy, time.Minute, time.Minute, 0, 0},
		"woken a second ago":           {slept, busy, 2*time.Hour + time.Second, time.Second, 2 * time.Second, 29 * time.Second},
		"woken ten minutes ago":        {slept, busy, 2*time.Hour + 10*time.Minute, 10 * time.Minute, 2 * time.Second, 0},
		"asked to sleep after a wake":  {with(slept, func(p *pod.Pod) { p.Sleep.At = at(3 * time.Hour) }), sleeping, 4 * time.Hour, 2 * time.Hour, 2 * time.Second, 0},
		"awake, which is not noted":    {with(slept, func(p *pod.Pod) { p.Sleep.At, p.Sleep.Wake = at(3*time.Hour), at(4*time.Hour) }), busy, 4*time.Hour + 20*time.Second, 0, 20 * time.Second, time.Minute},
		"started again since its wake": {with(started, func(p *pod.Pod) { p.Sleep.Took = time.Second }), busy, 61 * time.Second, time.Second, time.Minute, 179 * time.Second},
	} {
		now := at(tc.after)
		s := &postponed{e: ep(), looked: now, in: fleetSample{sample: sample{members: []member{{id: "a-0-1", state: tc.state, rested: time.Minute}}}}}
		w := &arbiter.Worker{Pod: "a-0-1", Endpoint: "a", Machine: "m", Devices: []string{"g"}, Share: pod.WholeGPU, Held: now.Sub(noon)}
		tc.p.Endpoint = s.e.ID
		s.describe(map[string]*arbiter.Worker{w.Pod: w}, &view{now: now, pods: []pod.Pod{tc.p}})
		if w.Held != tc.held || w.Startup != tc.startup {
			t.Errorf("%s: got held %s, startup %s, want %s and %s", name, w.Held, w.Startup, tc.held, tc.startup)
		}
		out := arbiter.Decide(arbiter.Input{
			Devices: []placement.Device{{GPU: pod.GPU{UUID: "g", MemoryMB: 1}, Machine: "m", Used: pod.WholeGPU}}, Workers: []arbiter.Worker{*w},
			Demands: []arbiter.Demand{{Endpoint: "b", Workers: 1, Request: placement.RequestOf(pod.Spec{GPUs: 1}), Oldest: 10 * time.Minute, MaxSwapWait: 2 * time.Minute}},
		})
		if left := out.Waits["b"].Until; left != max(0, tc.left) || (len(out.Yields) > 0) != (tc.left == 0) {
			t.Errorf("%s: got %d that yield, or in %s, want in %s", name, len(out.Yields), left, tc.left)
		}
	}
}

// Its queue may be unreadable for long: a GPU that is free is another's then. But it is not
// taken for empty, and none of its workers yields.
func TestAnEndpointThatCannotBeLookedAtAsksForNoGPU(t *testing.T) {
	s := newEnv(t)
	l := &leader{Service: &Service{registry: s.registry}, gpus: map[string]*postponed{}}
	m := &endpointState{looked: noon}
	in := fleetSample{spec: pod.Spec{GPUs: 1}, sample: sample{queued: 1, members: []member{{id: "a-0-1", state: idle, rested: time.Hour}}}}
	l.postpone(ep(), m, in, decision{start: 1, wanted: 2})
	l.gpus["ep"].fresh = false
	for ago, demands := range map[time.Duration]int{0: 1, 29 * time.Second: 1, 30 * time.Second: 0, time.Hour: 0} {
		m.looked = noon.Add(ago)
		if l.postpone(ep(), m, fleetSample{sample: sample{unknown: "its jobs could not be counted"}}, decision{hold: true}) {
			t.Fatal("what is not known is arbitrated")
		}
		p := pod.Pod{ID: "a-0-1", Endpoint: "ep", Status: pod.Running, MachineID: "m", Devices: []string{"g"}}
		got, err := l.arbiterInput(t.Context(), &view{now: m.looked, pods: []pod.Pod{p}, claims: map[string]registry.GPUClaims{}})
		if err != nil || len(got.Demands) != demands || len(got.Workers) != 1 || got.Workers[0].Kept != (demands == 0) {
			t.Errorf("after %s: got %+v, %v, want %d demands", ago, got, err, demands)
		}
	}
}

// The number of workers that are wanted is of those that are awake.
func TestAWorkerThatYieldsIsWantedNoMore(t *testing.T) {
	for pod, want := range map[string]int{"awake": 1, "asleep": 2} {
		s := postponed{e: endpoint.Endpoint{ID: "a"}, out: decision{wanted: 2}, in: fleetSample{sample: sample{members: []member{
			{id: "awake", state: idle}, {id: "other", state: busy}, {id: "asleep", state: sleeping},
		}}}}
		s.yield(arbiter.Decision{Yields: []arbiter.Yield{{Pod: pod, Endpoint: "a", For: "b"}, {Pod: "x", Endpoint: "b", For: "a"}}}, nil)
		if s.out.wanted != want || !slices.Equal(s.out.drain, []string{pod}) || s.out.reason != registry.ScalingYield {
			t.Errorf("%s yields: got %+v, want %d wanted", pod, s.out, want)
		}
	}
}

func TestClaimsOfAMachineThatIsGoneAreReleased(t *testing.T) {
	s := newEnv(t)
	if err := s.registry.GPUs.Claim(t.Context(), "GPU-m-0", registry.GPUHolder{Pod: "gone", Machine: "gone", Driver: pod.Process, Share: pod.WholeGPU}); err != nil {
		t.Fatal(err)
	}
	// Containers of an engine whose autoscaler is away may go on.
	if err := s.registry.GPUs.Claim(t.Context(), "GPU-m-1", registry.GPUHolder{Pod: "container", Machine: "engine", Driver: pod.Docker, Share: pod.WholeGPU}); err != nil {
		t.Fatal(err)
	}
	s.endpoint("a", bounds(2, 2), needsGPU())
	s.gpuHost(cards("m", 2), s.engine("m"))
	s.held("GPU-m-0:a-0-1 GPU-m-1:container")
}

func TestAPodOfNoEndpointClaimsWhatIsFree(t *testing.T) {
	s := newEnv(t)
	s.gpuHost(cards("m", 1), s.engine("m"))
	s.pod("one", func(p *pod.Pod) { p.Spec.GPUs = 1 })
	s.held("GPU-m-0:one")
	s.pod("two", func(p *pod.Pod) { p.Spec.GPUs = 1 })
	if p := s.told("two", "it needs 1 GPU; on its machine there is 1: 1 would do"); p.Status != pod.Exited {
		t.Errorf("got %s, want EXITED", p.Status)
	}
}

// As when the driver of a card hangs.
func TestAMachineIsReportedWhileItsGPUsCannotBeRead(t *testing.T) {
	s := newEnv(t)
	hang := make(chan struct{})
	defer close(hang)
	var reads atomic.Int32
	s.autoscalerOf(Config{GPUs: func() ([]pod.GPU, error) {
		if reads.Add(1) > 1 {
			<-hang
		}
		return cards("m", 1), nil
	}}, s.engine("m"))
	testenv.Eventually(t, "the GPUs are read again", func() bool { return reads.Load() > 1 })
	reports, err := s.JS.KeyValue(t.Context(), streams.BucketMachines)
	if err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	testenv.EventuallyNone(t, func() string {
		r, err := reports.Get(t.Context(), "m")
		if err == nil && !slices.Contains(seen, r.Revision()) {
			seen = append(seen, r.Revision())
		}
		if len(seen) < 3 {
			return fmt.Sprintf("got reports %v, %v, want three", seen, err)
		}
		return ""
	})
}

func TestACardStaysAsItWasWhileItsDriverSaysLess(t *testing.T) {
	t.Parallel()
	before := cards("m", 2)
	for name, tc := range map[string]struct{ found, want []pod.GPU }{
		"as before":        {cards("m", 2), before},
		"none":             {nil, before},
		"without a memory": {[]pod.GPU{{UUID: "GPU-m-0", Vendor: pod.NVIDIA}, {UUID: "GPU-new"}}, []pod.GPU{before[0], {UUID: "GPU-new"}}},
		"one is unwell": {
			[]pod.GPU{{UUID: "GPU-m-0", Health: "lost"}, before[1]},
			[]pod.GPU{{UUID: "GPU-m-0", Vendor: pod.NVIDIA, Name: before[0].Name, MemoryMB: before[0].MemoryMB, Health: "lost"}, before[1]},
		},
		"others": {[]pod.GPU{{UUID: "GPU-new", MemoryMB: 1}}, []pod.GPU{{UUID: "GPU-new", MemoryMB: 1}}},
	} {
		if got := asKnown(tc.found, before); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}
