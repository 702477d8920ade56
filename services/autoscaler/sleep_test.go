package autoscaler

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// dozes lets workers sleep for ten minutes.
func dozes(e *endpoint.Endpoint) { e.SleepTimeout = 10 * time.Minute }

// sleepers are members that can sleep.
func sleepers(all []member) []member {
	for i := range all {
		all[i].sleeps, all[i].asked = true, all[i].state == sleeping
	}
	return all
}

// taken are members whose GPUs others have.
func taken(all []member) []member {
	for i := range all {
		all[i].small, all[i].taken = true, true
	}
	return all
}

func TestDecideAboutSleep(t *testing.T) {
	const long, short = time.Hour, time.Second
	both := func(a, b []member) []member {
		b[0].id = "other"
		return append(a, b...)
	}
	checkDecisions(t, map[string]decisionTest{
		"an idle worker sleeps": {
			e: ep(dozes), s: sample{machines: 1, members: sleepers(crew(5*time.Second, idle))},
			want: decision{sleep: []string{"w0"}, reason: registry.ScalingIdle},
		},
		"one that cannot is stopped": {
			e: ep(dozes), s: sample{machines: 1, members: both(sleepers(crew(5*time.Second, idle)), crew(5*time.Second, idle))},
			want: decision{sleep: []string{"w0"}, drain: []string{"other"}, reason: registry.ScalingIdle},
		},
		"one of an endpoint whose workers are not to sleep is stopped": {
			e: ep(), s: sample{machines: 1, members: sleepers(crew(5*time.Second, idle))},
			want: decision{drain: []string{"w0"}, reason: registry.ScalingIdle},
		},
		"an outdated worker is stopped": {
			e: ep(dozes), s: sample{machines: 1, members: stale(sleepers(crew(5*time.Second, idle)))},
			want: decision{drain: []string{"w0"}, reason: registry.ScalingIdle},
		},
		"one above workersMax is stopped": {
			e: ep(dozes, bounds(0, 1)), s: sample{machines: 1, allRunning: 1, members: sleepers(crew(short, busy, idle))},
			want: decision{wanted: 1, drain: []string{"w1"}, reason: registry.ScalingBound},
		},
		"workersMin stay awake": {
			e: ep(dozes, bounds(1, 3)), s: sample{machines: 1, members: sleepers(crew(long, idle, idle))},
			want: decision{wanted: 1, sleep: []string{"w1"}, reason: registry.ScalingIdle},
		},
		"nobody wakes while no job waits": {
			e: ep(dozes), s: sample{machines: 1, members: sleepers(crew(short, sleeping))},
			want: decision{},
		},
		"a job wakes a worker, and starts none": {
			e: ep(dozes), s: sample{queued: 1, machines: 1, members: sleepers(crew(short, sleeping, sleeping))},
			want: decision{wanted: 1, wake: []string{"w0"}, reason: registry.ScalingFromZero},
		},
		"also while no machine could start one": {
			e: ep(dozes), s: sample{queued: 1, failures: 3, members: sleepers(crew(short, sleeping))},
			want: decision{wanted: 1, wake: []string{"w0"}, reason: registry.ScalingFromZero},
		},
		"more jobs wake all and start the rest": {
			e: ep(dozes, requests(1)), s: sample{queued: 9, machines: 1, members: sleepers(crew(short, sleeping))},
			want: decision{wanted: 3, start: 2, wake: []string{"w0"}, reason: registry.ScalingRequests},
		},
		"a worker that wakes counts": {
			e: ep(dozes), s: sample{queued: 1, machines: 1, members: sleepers(crew(short, starting, sleeping))},
			want: decision{wanted: 1},
		},
		"an outdated one is not woken": {
			e: ep(dozes), s: sample{queued: 1, machines: 1, members: stale(sleepers(crew(short, sleeping)))},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingFromZero},
		},
		"unless it is locked": {
			e: ep(dozes, bounds(0, 1)), s: sample{queued: 1, machines: 1, members: locked(stale(sleepers(crew(short, sleeping))))},
			want: decision{wanted: 1, wake: []string{"w0"}, reason: registry.ScalingFromZero},
		},
		"one whose GPU is taken is not woken": {
			e: ep(dozes), s: sample{queued: 1, machines: 1, members: taken(sleepers(crew(short, sleeping)))},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingFromZero},
		},
		"it waits for it if workersMax leaves no room": {
			e: ep(dozes, bounds(0, 1)), s: sample{queued: 1, machines: 1, members: taken(sleepers(crew(short, sleeping)))},
			want: decision{wanted: 1, wake: []string{"w0"}, reason: registry.ScalingFromZero},
		},
		"others are started as far as there is room": {
			e: ep(dozes, requests(1)), s: sample{queued: 9, machines: 1, members: taken(sleepers(crew(short, sleeping)))},
			want: decision{wanted: 3, start: 2, wake: []string{"w0"}, reason: registry.ScalingRequests},
		},
		"one that sleeps on its GPU is woken before": {
			e: ep(dozes, bounds(0, 2)), s: sample{queued: 1, machines: 1, members: both(taken(sleepers(crew(short, sleeping))), sleepers(crew(long, sleeping)))},
			want: decision{wanted: 1, wake: []string{"other"}, reason: registry.ScalingFromZero},
		},
		"an outdated one leaves first if workersMax leaves no room": {
			e: ep(dozes, bounds(0, 1)), s: sample{queued: 1, machines: 1, members: stale(sleepers(crew(short, sleeping)))},
			want: decision{wanted: 1, reason: registry.ScalingLeaving},
		},
		"a paused endpoint wakes none": {
			e: ep(dozes, paused), s: sample{queued: 1, machines: 1, members: sleepers(crew(short, sleeping))},
			want: decision{reason: registry.ScalingPaused},
		},
	})
}

func TestWhichSleepersAreStopped(t *testing.T) {
	const slept = "it slept for 10m0s"
	over := "workersMax is 1, those that sleep included"
	for name, tc := range map[string]struct {
		e    endpoint.Endpoint
		s    sample
		v    decision
		want map[string]string
	}{
		"none before its time": {e: ep(dozes), s: sample{members: crew(9*time.Minute, sleeping)}},
		"after sleepTimeout":   {e: ep(dozes), s: sample{members: crew(10*time.Minute, sleeping)}, want: map[string]string{"w0": slept}},
		"none that is woken":   {e: ep(dozes), s: sample{members: crew(time.Hour, sleeping)}, v: decision{wake: []string{"w0"}}},
		"none that is locked":  {e: ep(dozes), s: sample{members: locked(crew(time.Hour, sleeping))}},
		"none on a hold":       {e: ep(dozes), s: sample{members: crew(time.Hour, sleeping)}, v: decision{hold: true}},
		"sleep was turned off": {e: ep(), s: sample{members: crew(0, sleeping)}, want: map[string]string{"w0": "it slept for 0s"}},
		"the endpoint changed": {e: ep(dozes), s: sample{members: stale(crew(0, sleeping))}, want: map[string]string{"w0": "the endpoint has changed since it was started"}},
		"too many": {
			e: ep(dozes, bounds(0, 1)), s: sample{members: crew(time.Minute, sleeping, sleeping)}, want: map[string]string{"w0": over},
		},
		"one starts in its place": {e: ep(dozes, bounds(0, 1)), s: sample{members: crew(time.Minute, sleeping)}, v: decision{start: 1}, want: map[string]string{"w0": over}},
		"one that falls asleep":   {e: ep(dozes, bounds(0, 1)), s: sample{members: crew(time.Minute, idle)}, v: decision{sleep: []string{"w0"}}},
		"one leaves":              {e: ep(dozes, bounds(0, 1)), s: sample{members: crew(time.Minute, sleeping, idle)}, v: decision{drain: []string{"w1"}}},
	} {
		if got := retireSleepers(tc.e, tc.s, tc.v, noon); !maps.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestTheStateOfAWorkerThatSleeps(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	asked, wakes := pod.Sleep{At: at(1)}, pod.Sleep{At: at(1), Wake: at(3)}
	for name, tc := range map[string]struct {
		now        state
		sleep      pod.Sleep
		w          registry.Worker
		want       state
		fell, woke bool
	}{
		"awake":                         {now: idle, w: registry.Worker{State: registry.WorkerIdle}, want: idle},
		"asked to sleep":                {now: idle, sleep: asked, w: registry.Worker{State: registry.WorkerIdle, Seen: at(2)}, want: sleeping},
		"asleep":                        {now: idle, sleep: asked, w: registry.Worker{State: registry.WorkerSleeping, Seen: at(2)}, want: sleeping, fell: true},
		"asleep, by an older heartbeat": {now: idle, sleep: asked, w: registry.Worker{State: registry.WorkerSleeping, Seen: at(0)}, want: sleeping},
		"silent":                        {now: starting, sleep: asked, want: sleeping},
		"it took a job first":           {now: busy, sleep: asked, w: registry.Worker{State: registry.WorkerRunning, Seen: at(2)}, want: busy},
		"asked to wake":                 {now: idle, sleep: wakes, w: registry.Worker{State: registry.WorkerSleeping, Seen: at(4)}, want: starting},
		"awake, by an older heartbeat":  {now: idle, sleep: wakes, w: registry.Worker{State: registry.WorkerIdle, Seen: at(2)}, want: idle},
		"awake again":                   {now: idle, sleep: wakes, w: registry.Worker{State: registry.WorkerIdle, Seen: at(4)}, want: idle, woke: true},
		"busy again":                    {now: busy, sleep: wakes, w: registry.Worker{State: registry.WorkerRunning, Seen: at(4)}, want: busy, woke: true},
		"it fell asleep too late":       {now: idle, w: registry.Worker{State: registry.WorkerSleeping, Seen: at(4)}, want: starting},
	} {
		p := pod.Pod{Sleep: tc.sleep}
		if got := withSleep(tc.now, p, tc.w); got != tc.want || fellAsleep(p, tc.w) != tc.fell || sleepOver(p, tc.w) != tc.woke {
			t.Errorf("%s: got %v, %v, %v, want %v, %v, %v", name, got, fellAsleep(p, tc.w), sleepOver(p, tc.w), tc.want, tc.fell, tc.woke)
		}
		if late := wakes.Wake.Add(pod.WakeTimeout); overslept(p, tc.w, late) != (tc.sleep.Wakes() && !tc.woke) || overslept(p, tc.w, late.Add(-1)) {
			t.Errorf("%s: want it ended if it is not awake after %s", name, pod.WakeTimeout)
		}
	}
}

// slept waits until the pod's sleep is in the state, "" for awake, and returns the pod.
func (s *env) slept(id string, want pod.Phase) (p pod.Pod) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		var err error
		p, err = s.registry.Pods.Get(s.t.Context(), id)
		got, _ := p.Sleep.State()
		if err == nil && p.Status == pod.Running && got == want && (want != pod.Sleeping || !p.Sleep.Asleep.IsZero()) {
			return ""
		}
		return fmt.Sprintf("pod %s: got %s, %+v (%s), %v, want %q", id, p.Status, p.Sleep, p.Change, err, want)
	})
	return p
}

// drowsy is an engine whose workers sleep and wake as their records say.
func (s *env) drowsy(id string) *engine {
	s.t.Helper()
	mine, err := registry.NewForWorker(s.t.Context(), s.JS, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	e := s.engine(id)
	e.records = mine.Pods
	return e
}

func TestAWorkerSleepsAndIsWokenByAJob(t *testing.T) {
	s := newEnv(t)
	e := s.drowsy("machine")
	at := s.endpoint("ep", bounds(0, 1), dozes)
	s.autoscaler(e)
	submit := func() job.ID {
		id := queue.NewID(job.Async)
		if _, err := s.queue.Submit(t.Context(), at, id, job.Async, job.Request{Input: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := submit()
	s.inPhase("ep-0-1", pod.Ready)
	if _, err := s.queue.Cancel(t.Context(), at, first); err != nil {
		t.Fatal(err)
	}
	s.slept("ep-0-1", pod.Sleeping)
	submit()
	if p := s.slept("ep-0-1", ""); p.Sleep.Took <= 0 || e.starts("ep-0-1") != 1 || e.peak != 1 {
		t.Errorf("got %+v, %d starts, %d at once, want the same worker awake", p.Sleep, e.starts("ep-0-1"), e.peak)
	}
}

func TestAWorkerThatHasSleptForLongIsStopped(t *testing.T) {
	s := newEnv(t)
	s.endpoint("ep", bounds(1, 1), dozes)
	s.autoscaler(s.drowsy("machine"))
	s.inPhase("ep-0-1", pod.Ready)
	s.update("ep", func(e *endpoint.Endpoint) { e.WorkersMin = 0 })
	s.slept("ep-0-1", pod.Sleeping)
	s.update("ep", func(e *endpoint.Endpoint) { e.SleepTimeout = time.Second })
	if p := s.status("ep-0-1", pod.Terminated); p.Change != "drained and stopped: it slept for 1s" {
		t.Errorf("got %q, want why it was stopped", p.Change)
	}
}

// A worker that sleeps keeps its GPU until another endpoint's job needs that.
func TestASleepingWorkerYieldsItsGPU(t *testing.T) {
	s := newEnv(t)
	s.endpoint("a", bounds(1, 1), dozes, needsGPU(func(f *endpoint.Fleet) { f.MinHold = time.Second }))
	s.gpuHost(cards("m", 1), s.drowsy("m"))
	s.inPhase("a-0-1", pod.Ready)
	s.update("a", func(e *endpoint.Endpoint) { e.WorkersMin = 0 })
	s.slept("a-0-1", pod.Sleeping)
	s.held("GPU-m-0:a-0-1")
	s.endpoint("b", bounds(1, 1), needsGPU())
	s.held("GPU-m-0:b-0-1")
	if p := s.status("a-0-1", pod.Terminated); !strings.HasPrefix(p.Change, "drained and stopped: its GPU goes to b") {
		t.Errorf("got %q, want why it was stopped", p.Change)
	}
}
