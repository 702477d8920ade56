package api

import (
	"encoding/json"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

func TestExplainSaysWhoSleeps(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	asleep := pod.Pod{ID: "a", Endpoint: "ep", Status: pod.Running, Sleep: pod.Sleep{At: now.Add(-time.Minute)}}
	woken := asleep
	woken.ID, woken.Sleep.Wake = "b", now.Add(-2*time.Second)
	before := pod.Pod{ID: "c", Endpoint: "ep", Status: pod.Exited, Sleep: pod.Sleep{Took: 3 * time.Second}}
	ended := woken
	ended.Status = pod.Exited
	for want, pods := range map[string][]pod.Pod{
		"waiting: it is next, 1 worker sleeps; no autoscaler runs":                          {asleep},
		"waiting: it is next, 1 worker sleeps; it wakes in about 3s; no autoscaler runs":    {asleep, before},
		"waiting: it is next, 2 workers sleep; it wakes in about 3s; no autoscaler runs":    {asleep, asleep, before},
		"waiting: it is next, 1 worker has been waking for 2s":                              {woken},
		"waiting: it is next, 1 worker has been waking for 2s, usually 3s":                  {woken, before},
		"waiting: it is next, no worker is there; no autoscaler runs":                       {ended},
		"waiting: it is next, 1 worker has been waking for 2s, usually 3s, 2 workers start": {woken, before, {}, {}},
	} {
		x := explanation{
			now: now, endpoint: endpoint.Endpoint{ID: "ep", WorkersMax: 3, Fleet: endpoint.Fleet{Driver: "process"}},
			position: queue.Position{Job: job.Job{Status: job.InQueue}}, workers: map[string]int{},
			starts: startsOf(pods, "ep"), usualWake: pod.UsualWake(pods, "ep"),
		}
		for _, p := range pods {
			switch {
			case p.ID == "":
				x.workers[registry.WorkerInitializing]++
			case p.Status == pod.Running:
				x.workers[registry.WorkerSleeping]++
			}
		}
		if got := reasonOf(x); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A worker that sleeps and whose GPU others have does not wake soon: the autoscaler says why.
func TestExplainSaysThatASleepersGPUIsTaken(t *testing.T) {
	t.Parallel()
	x := explanation{
		endpoint: endpoint.Endpoint{ID: "ep", WorkersMax: 3, Fleet: endpoint.Fleet{Driver: "process"}}, alive: true,
		position: queue.Position{Job: job.Job{Status: job.InQueue}}, workers: map[string]int{registry.WorkerSleeping: 1},
		usualWake: 3 * time.Second, decision: &registry.Decision{Reason: registry.ScalingNoGPU, Text: "a worker needs 1 GPU; there is 1: 1 would do"},
	}
	const want = "waiting: it is next, 1 worker sleeps; the autoscaler: a worker needs 1 GPU; there is 1: 1 would do"
	if got := reasonOf(x); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// RunPod's clients see the numbers that they know, and nothing else unless a worker sleeps.
func TestHealthCountsWorkersThatSleep(t *testing.T) {
	t.Parallel()
	for want, states := range map[string]map[string]int{
		`{"idle":1,"initializing":0,"ready":1,"running":0,"throttled":0,"unhealthy":0}`:              {registry.WorkerIdle: 1},
		`{"idle":0,"initializing":0,"ready":0,"running":0,"throttled":0,"unhealthy":0,"sleeping":2}`: {registry.WorkerSleeping: 2},
	} {
		if got, err := json.Marshal(workersOf(states)); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
