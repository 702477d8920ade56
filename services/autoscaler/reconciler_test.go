package autoscaler

import (
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// look is the reconciler's of one pod, so long after noon.
type look struct {
	after time.Duration
	state string    // what the worker says, "" for nothing
	alone bool      // the pod's machine is not there
	again bool      // the pod is started again just before
	enter pod.Phase // that it comes to just before
	want  pod.Trigger
}

func TestTheKeeperFindsWhoIsGone(t *testing.T) {
	t.Parallel()
	const idle = registry.WorkerIdle
	ours := func(p *pod.Pod) { p.Driver, p.MachineID = pod.Process, "m" }
	owners := func(*pod.Pod) {}
	loads := func(seconds string) func(*pod.Pod) {
		return func(p *pod.Pod) {
			ours(p)
			p.Spec.Env = map[string]string{"RUNPOD_INIT_TIMEOUT": seconds}
		}
	}
	for name, tt := range map[string]struct {
		pod      func(*pod.Pod)
		endpoint func(*endpoint.Endpoint) // nil for a deleted endpoint
		looks    []look
	}{
		"it works":  {ours, bounds(0, 1), []look{{state: idle}, {after: time.Hour, state: idle}}},
		"unhealthy": {ours, bounds(0, 1), []look{{state: idle}, {after: time.Second, state: registry.WorkerUnhealthy, want: pod.Exit}}},
		"silent for a minute, once it spoke": {ours, bounds(0, 1), []look{
			{state: idle}, {after: time.Minute}, {after: 119 * time.Second}, {after: 2 * time.Minute, want: pod.Exit},
		}},
		"silent for a minute, and ready before this term": {ours, bounds(0, 1), []look{
			{enter: pod.Ready}, {after: 59 * time.Second}, {after: time.Minute, want: pod.Exit},
		}},
		"it speaks again in time": {ours, bounds(0, 1), []look{
			{state: idle}, {after: time.Minute}, {after: 119 * time.Second, state: idle}, {after: 2 * time.Minute}, {after: 179 * time.Second},
		}},
		"never ready": {ours, bounds(0, 1), []look{
			{}, {after: 6 * time.Minute, state: registry.WorkerInitializing}, {after: 7 * time.Minute, want: pod.Exit},
		}},
		"never ready, with an init timeout": {loads("1800"), bounds(0, 1), []look{
			{}, {after: 29 * time.Minute, state: registry.WorkerInitializing}, {after: 30 * time.Minute, want: pod.Exit},
		}},
		"never ready, with one of a minute": {loads("60"), bounds(0, 1), []look{{}, {after: 59 * time.Second}, {after: time.Minute, want: pod.Exit}}},
		"it restarts itself, and loads for minutes": {ours, bounds(0, 1), []look{
			{state: idle},
			{after: time.Minute, state: idle},
			{after: 61 * time.Second, again: true},
			{after: 3 * time.Minute},
			{after: 8 * time.Minute},
			{after: 481 * time.Second, want: pod.Exit},
		}},
		"it speaks after its restart": {ours, bounds(0, 1), []look{
			{state: idle}, {after: time.Minute, again: true}, {after: 2 * time.Minute, state: idle}, {after: 3 * time.Minute}, {after: 4 * time.Minute, want: pod.Exit},
		}},
		"its image comes after minutes": {ours, bounds(0, 1), []look{
			{enter: pod.Pulling},
			{after: 29 * time.Minute},
			{after: 30 * time.Minute, enter: pod.Starting},
			{after: 31 * time.Minute, enter: pod.Loading},
			{after: 37 * time.Minute},
			{after: 38 * time.Minute, want: pod.Exit},
		}},
		"its image is fetched again": {ours, bounds(0, 1), []look{
			{state: idle}, {after: time.Minute, enter: pod.Pulling}, {after: 2 * time.Minute}, {after: 9 * time.Minute},
		}},
		"its machine is gone": {ours, bounds(0, 1), []look{{state: idle}, {after: time.Second, alone: true}, {after: 6 * time.Second, alone: true, want: pod.Exit}}},
		"its machine was away": {ours, bounds(0, 1), []look{
			{state: idle}, {after: time.Second, alone: true}, {after: 3 * time.Second, state: idle}, {after: 6 * time.Second, alone: true},
		}},
		"its endpoint is gone":            {ours, nil, []look{{state: idle, want: pod.Remove}}},
		"the owner's fell silent":         {owners, bounds(0, 1), []look{{state: idle}, {after: time.Second}, {after: 6 * time.Second, want: pod.Exit}}},
		"the owner's says it is not well": {owners, bounds(0, 1), []look{{state: registry.WorkerUnhealthy}}},
		"the owner's, and no endpoint":    {owners, nil, []look{{}, {after: 5 * time.Second, want: pod.Remove}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod.Pod{ID: "p", Endpoint: "ep", Status: pod.Running, Created: noon, Started: noon}
			tt.pod(&p)
			k := &reconciler{Service: &Service{cfg: Config{Startup: defaultStartup}}, heard: map[string]time.Time{}, began: noon}
			for _, l := range tt.looks {
				k.begin()
				v := &view{now: noon.Add(l.after), workers: map[string]registry.Worker{}, machines: map[pod.Driver][]string{pod.Process: {"m"}}}
				if l.alone {
					v.machines = nil
				}
				if l.again {
					p.Started = v.now
				}
				p.Phases = p.Phases.Enter(l.enter, p.Starts, v.now)
				if l.state != "" {
					v.workers["ep.p"] = registry.Worker{ID: "p", Endpoint: "ep", State: l.state, Seen: v.now}
				}
				if got := k.examine(v, p, tt.endpoint != nil); got.by != l.want {
					t.Errorf("after %s: got %q (%s), want %q", l.after, got.by, got.why, l.want)
				}
			}
		})
	}
}
