package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestReplace(t *testing.T) {
	const short = time.Second
	jobsOf := func(n int, s sample) sample {
		s.machines, s.running, s.allRunning = 1, n, n
		return s
	}
	long := func(all []member) []member { // each has a job that takes long
		for i := range all {
			all[i].jobs = 1
		}
		return all
	}
	checkDecisions(t, map[string]decisionTest{
		"an idle one before a busy one": {
			e: ep(bounds(2, 3)), s: jobsOf(1, sample{members: stale(crew(short, busy, idle))}),
			want: decision{wanted: 2, drain: []string{"w1"}, reason: registry.ScalingReplace},
		},
		"a busy one once no idle one is left": {
			e: ep(bounds(2, 3)), s: jobsOf(2, sample{members: append(stale(crew(short, busy)), member{id: "new", state: busy, jobs: 1})}),
			want: decision{wanted: 2, drain: []string{"w0"}, reason: registry.ScalingReplace},
		},
		"the only one goes first": {
			e: ep(bounds(1, 1)), s: jobsOf(1, sample{members: stale(crew(short, busy))}),
			want: decision{wanted: 1, drain: []string{"w0"}, reason: registry.ScalingReplace},
		},
		"no other while one drains": {
			e: ep(bounds(0, 3)), s: jobsOf(0, sample{members: stale(crew(short, idle, draining))}), replaced: []string{"w1"},
			want: decision{wanted: 1},
		},
		"its successor is not started before it has left": {
			e: ep(bounds(2, 9)), s: jobsOf(0, sample{members: stale(crew(short, idle, draining))}), replaced: []string{"w1"},
			want: decision{wanted: 2, reason: registry.ScalingLeaving},
		},
		"nor before its agent has stopped it": {
			e: ep(bounds(0, 9)), s: jobsOf(0, sample{members: stale(crew(short, idle)), leaving: []string{"gone"}}), replaced: []string{"gone"},
			want: decision{wanted: 1},
		},
		"nor while it does not look drained yet": {
			e: ep(bounds(0, 9)), s: jobsOf(0, sample{members: stale(crew(short, idle, idle))}), replaced: []string{"w1"},
			want: decision{wanted: 2},
		},
		"but what more jobs need is": {
			e: ep(requests(1), bounds(0, 9)), s: jobsOf(1, sample{queued: 3, members: stale(crew(short, busy, draining))}), replaced: []string{"w1"},
			want: decision{wanted: 4, start: 2, reason: registry.ScalingRequests},
		},
		"jobs that wait start no successor before it has left": {
			e: ep(bounds(0, 9)), s: jobsOf(1, sample{queued: 50, oldest: time.Second, members: long(stale(crew(short, draining)))}), replaced: []string{"w0"},
			want: decision{wanted: 1, reason: registry.ScalingLeaving},
		},
		"but more workers, once they have waited for long": {
			e: ep(bounds(0, 9)), s: jobsOf(1, sample{queued: 50, oldest: time.Minute, members: long(stale(crew(short, draining)))}), replaced: []string{"w0"},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingDelay},
		},
		"as many as if it stayed": {
			e: ep(bounds(0, 9)), s: jobsOf(3, sample{queued: 50, oldest: time.Minute, members: long(stale(crew(short, busy, busy, draining)))}), replaced: []string{"w2"},
			want: decision{wanted: 6, start: 3, reason: registry.ScalingDelay},
		},
		"also for one job that waits": {
			e: ep(bounds(0, 9)), s: jobsOf(2, sample{queued: 1, oldest: time.Minute, members: long(stale(crew(short, busy, draining)))}), replaced: []string{"w1"},
			want: decision{wanted: 3, start: 1, reason: registry.ScalingDelay},
		},
		"none for a job that the leaver would take if it stayed": {
			e: ep(bounds(0, 9)), s: jobsOf(1, sample{queued: 1, oldest: time.Minute, members: stale(crew(short, busy, draining))}), replaced: []string{"w1"},
			want: decision{wanted: 2, reason: registry.ScalingLeaving},
		},
		"not above workersMax": {
			e: ep(bounds(0, 1)), s: jobsOf(1, sample{queued: 50, oldest: time.Minute, members: long(stale(crew(short, draining)))}), replaced: []string{"w0"},
			want: decision{wanted: 1, reason: registry.ScalingLeaving},
		},
		"it is started once it has left, if no job asks for it too": {
			e: ep(bounds(0, 9)), s: jobsOf(0, sample{members: stale(crew(short, idle))}), replaced: []string{"gone"},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingReplace},
		},
		"not above a maximum that was lowered": {
			e: ep(bounds(0, 1)), s: jobsOf(0, sample{members: crew(short, idle)}), replaced: []string{"gone"},
			want: decision{wanted: 1},
		},
		"those that start from what holds no longer go first": {
			e: ep(bounds(2, 9)), s: jobsOf(1, sample{members: stale(crew(short, busy, idle, starting))}),
			want: decision{wanted: 3, drain: []string{"w2"}, reason: registry.ScalingReplace},
		},
		"none while another one starts from what holds": {
			e: ep(bounds(2, 9)), s: jobsOf(0, sample{members: append(stale(crew(short, starting)), member{id: "new"})}),
			want: decision{wanted: 2},
		},
		"nor while one starts that is locked": {
			e: ep(bounds(2, 9)), s: jobsOf(0, sample{members: append(locked(stale(crew(short, starting))), member{id: "old", state: idle, stale: true})}),
			want: decision{wanted: 2},
		},
		"not while the endpoint is paused": {
			e: ep(paused), s: jobsOf(0, sample{members: crew(short, idle)}), replaced: []string{"gone"},
			want: decision{wanted: 1, reason: registry.ScalingPaused},
		},
		"none is replaced where no machine could start the successor": {
			e: ep(bounds(2, 9)), s: sample{members: stale(crew(short, idle))},
			want: decision{wanted: 2, reason: registry.ScalingNoMachine},
		},
		"nor while more are started": {
			e: ep(bounds(2, 9)), s: jobsOf(0, sample{members: stale(crew(short, idle))}),
			want: decision{wanted: 2, start: 1, reason: registry.ScalingMinimum},
		},
		"nor without what it is to be started from": {
			e: ep(bounds(2, 9)), s: jobsOf(0, sample{invalid: "no template", members: stale(crew(short, idle))}),
			want: decision{wanted: 2, reason: registry.ScalingInvalid},
		},
		"none is replaced while new ones fail": {
			e: ep(bounds(0, 9)), s: jobsOf(0, sample{failures: 1, members: stale(crew(short, idle, busy))}),
			want: decision{wanted: 2},
		},
	})
}

func TestAChangedCommandReplacesTheFleetOneByOne(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(3, 9))
	s.autoscaler(e)
	s.runs("ep", map[int]int{1: 3})
	testenv.Eventually(t, "the engine has all of them", func() bool { return len(e.pods()) == 3 })
	busy := []string{"ep-0-1", "ep-2-1"}
	for _, id := range busy {
		e.hold(id, "job-of-"+id)
		testenv.EventuallyNone(t, func() string { return s.stateOf("ep", id, registry.WorkerRunning) })
	}
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--new"} })
	// The idle one goes first, then a busy one, which takes its time.
	if p := s.status("ep-1-1", pod.Terminated); p.EndpointVersion != 1 {
		t.Errorf("got version %d of the first, want 1", p.EndpointVersion)
	}
	testenv.EventuallyNone(t, func() string {
		token, err := s.registry.Tokens.Find(t.Context(), "ep", busy[0])
		if err != nil || !token.Draining {
			return fmt.Sprintf("%s drains: %t, %v, want that it does", busy[0], token.Draining, err)
		}
		return ""
	})
	s.runs("ep", map[int]int{1: 2, 2: 1})
	for _, id := range busy {
		e.hold(id)
	}
	s.runs("ep", map[int]int{2: 3})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.peak != 3 {
		t.Errorf("got %d workers at once, want 3", e.peak)
	}
	// What changes no worker makes no new version.
	s.update("ep", bounds(3, 8))
	if e, err := s.registry.Endpoints.Get(t.Context(), "ep"); err != nil || e.Version != 3 || e.ReleaseVersion() != 2 {
		t.Errorf("got version %d and release %d, %v, want 3 and 2", e.Version, e.ReleaseVersion(), err)
	}
}

// The remedy does not wait for a worker that is never ready.
func TestAWorkerThatHangsAtItsStartIsReplaced(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.newborn = mute
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	testenv.Eventually(t, "it runs", func() bool { return len(e.pods()) == 1 })
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--mended"} })
	s.runs("ep", map[int]int{2: 1})
}

// An endpoint that wants more workers than its GPUs hold is rolled out too. Each worker's GPU
// goes to its successor, also while another endpoint waits for one.
func TestAnEndpointThatLacksAGPUIsRolledOut(t *testing.T) {
	s := newEnv(t)
	e := s.engine("m")
	s.endpoint("b", bounds(3, 3), needsGPU())
	s.gpuHost(cards("m", 2), e)
	s.held("GPU-m-0:b-0-1 GPU-m-1:b-1-1")
	s.decidedWith("b", registry.ScalingNoGPU)
	other := s.endpoint("a", bounds(1, 1), needsGPU(func(f *endpoint.Fleet) { f.MaxSwapWait = time.Second }))
	s.submit(other, false)
	s.decidedWith("a", registry.ScalingNoGPU)
	s.update("b", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--new"} })
	s.runs("b", map[int]int{2: 2})
	s.held("GPU-m-0:b-0-2 GPU-m-1:b-1-2") // each was replaced once
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.peak > 2 {
		t.Errorf("got %d workers at once on 2 GPUs", e.peak)
	}
}

// A worker that made room is owed no successor once its GPU is gone, or another endpoint's:
// the next one is replaced.
func TestARolloutGoesOnWithoutALostGPU(t *testing.T) {
	for name, test := range map[string]struct {
		members []member
		coming  bool
		want    []string
	}{
		"it is lost":     {stale(crew(time.Hour, idle)), false, []string{"w0"}},
		"it is coming":   {stale(crew(time.Hour, idle)), true, nil},
		"it is not left": {append(stale(crew(time.Hour, idle)), member{id: "former", state: draining}), false, nil},
	} {
		s := postponed{
			e: ep(bounds(2, 2)), m: &endpointState{memory: memory{replaced: []string{"former"}}},
			in: fleetSample{sample: sample{machines: 1, members: test.members}}, out: decision{start: 1, wanted: 2},
		}
		s.grant(arbiter.Input{}, arbiter.Decision{Waits: map[string]arbiter.Wait{"ep": {Coming: test.coming}}}, noon)
		if got := replace(s.e, s.in.sample, s.out, noon); !slices.Equal(got.drain, test.want) {
			t.Errorf("%s: got %v replaced next, want %v", name, got.drain, test.want)
		}
	}
}

// Of the workers that an endpoint asks for, those are successors whose predecessors have left.
// Their GPUs are kept for them also in a round that looks at other endpoints alone.
func TestADemandSaysHowManyAreSuccessors(t *testing.T) {
	replaced := []string{"runs", "heard", "over", "gone"}
	v := &view{
		fleets: map[string][]pod.Pod{"ep": {
			{ID: "runs", Endpoint: "ep", Status: pod.Running}, {ID: "heard", Endpoint: "ep", Status: pod.Terminated}, {ID: "over", Endpoint: "ep", Status: pod.Terminated},
		}},
		workers: map[string]registry.Worker{"ep.heard": {}},
	}
	for name, test := range map[string]struct {
		start   int
		fresh   bool
		workers int
	}{
		"some of all":              {5, true, 5},
		"none is to start":         {0, true, 0},
		"it was not looked at now": {0, false, 2},
	} {
		s := postponed{
			e: ep(bounds(2, 9)), m: &endpointState{memory: memory{replaced: replaced}}, fresh: test.fresh,
			in: fleetSample{sample: sample{machines: 1, members: crew(time.Hour, idle)}}, unmet: test.start,
		}
		if d := s.demand(v, nil); d.Workers != test.workers || d.Replaces != 2 || d.Kept != 1 {
			t.Errorf("%s: got %+v, want %d of which 2 replace and 1 is kept", name, d, test.workers)
		}
	}
}

// Workers of a version that was rolled back are owed successors, also if none can start now.
func TestWithoutAGPUSuccessorsAreStillOwed(t *testing.T) {
	members := crew(time.Hour, idle)
	members[0].bad, members[0].stale = true, true
	in := fleetSample{sample: sample{machines: 1, members: members}}
	s := postponed{e: ep(bounds(2, 2)), m: &endpointState{}, in: in, out: decide(ep(bounds(2, 2)), in.sample, memory{}, noon)}
	s.grant(arbiter.Input{}, arbiter.Decision{}, noon)
	if got := s.out; !slices.Equal(got.drain, []string{"w0"}) || !slices.Equal(got.memory.replaced, got.drain) || got.reason != registry.ScalingReplace {
		t.Errorf("got %+v, want w0 replaced", got)
	}
}

// A worker that wakes takes the place of a replaced one: no other is started for that.
func TestAWorkerThatWakesIsASuccessor(t *testing.T) {
	s := sample{machines: 1, queued: 1, members: crew(time.Second, sleeping)}
	woke := decide(ep(), s, memory{replaced: []string{"gone"}}, noon)
	s.members = crew(time.Second, starting)
	if got := decide(ep(), s, woke.memory, noon.Add(time.Second)); len(woke.wake) != 1 || got.start != 0 {
		t.Errorf("got %+v, then %+v, want one woken and none started", woke, got)
	}
}

func TestACanaryMakesRoomForItselfOnAGPU(t *testing.T) {
	s := newEnv(t)
	s.endpoint("ep", bounds(3, 3), needsGPU(), func(e *endpoint.Endpoint) { e.CanaryPercent = 50 })
	s.gpuHost(cards("m", 2), s.engine("m"))
	s.decidedWith("ep", registry.ScalingNoGPU)
	s.runs("ep", map[int]int{1: 2})
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--new"} })
	s.runs("ep", map[int]int{1: 1, 2: 1})
}

// The new version may be the remedy.
func TestAnEndpointWhoseJobsAllFailIsRolledOut(t *testing.T) {
	s := newEnv(t)
	log := s.events()
	made := s.endpoint("ep", requests(1), bounds(0, 9))
	for range 3 {
		s.submit(made, false)
	}
	for n := range minSameFailures {
		s.writeEnd(log, n, ended(fmt.Sprint("worker-", n%2), "RuntimeError: no model"))
	}
	s.autoscaler(s.engine("machine"))
	s.decidedWith("ep", registry.ScalingFailing)
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--new"} })
	s.runs("ep", map[int]int{2: 1})
}

// runs waits until the fleet has these workers, by version.
func (s *env) runs(id string, want map[int]int) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		pods, err := s.registry.Pods.List(s.t.Context())
		if err != nil {
			return err.Error()
		}
		got := map[int]int{}
		for _, p := range pods {
			if p.Endpoint == id && p.Status == pod.Running {
				got[p.EndpointVersion]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("workers by version: got %v, want %v", got, want)
		}
		return ""
	})
}
