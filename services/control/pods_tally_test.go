package control

import (
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

func TestTallyOfAllPods(t *testing.T) {
	four := pod.Machine{GPUs: make([]pod.GPU, 4)}
	at := func(id string, status pod.Status, gpus int) pod.Pod {
		return pod.Pod{
			Status: status, Driver: pod.Docker, MachineID: id, Machine: four, Spec: pod.Spec{GPUs: gpus}, TemplateID: "t",
			Started: born, Changed: born.Add(time.Minute),
		}
	}
	all := tallyOf([]pod.Pod{
		at("m", pod.Running, 1), at("m", pod.Running, 2), at("m", pod.Exited, 4), at("full", pod.Running, 5), at("", pod.Running, 1),
		{Status: pod.Running, TemplateID: "t"}, // not started yet
	}, nil, born.Add(time.Hour))
	for id, want := range map[string]int{"m": 1, "full": 0, "alone": 4} {
		if got := all.free(at(id, pod.Running, 0)); got == nil || *got != want {
			t.Errorf("%s: got %v free, want %d", id, got, want)
		}
	}
	if got := all.free(at("", pod.Running, 0)); got != nil {
		t.Errorf("got %d free on a machine that nobody knows, want none told", *got)
	}
	if got := all.ran["t"]; got != 4*time.Hour+time.Minute {
		t.Errorf("got %v, want four that run for an hour, and one that ran for a minute", got)
	}
}

func TestWhichGPUsAreFree(t *testing.T) {
	two := pod.Machine{GPUs: make([]pod.GPU, 2)}
	on := func(id string, d pod.Driver, gpus int) pod.Pod {
		return pod.Pod{ID: id, Status: pod.Running, Driver: d, MachineID: "m", Machine: two, Spec: pod.Spec{GPUs: gpus}}
	}
	held := func(machine string, share int, pods ...string) registry.GPUClaims {
		var c registry.GPUClaims
		for _, id := range pods {
			c.Holders = append(c.Holders, registry.GPUHolder{Pod: id, Machine: machine, Share: share})
		}
		return c
	}
	for name, tc := range map[string]struct {
		pods   []pod.Pod
		claims map[string]registry.GPUClaims
		want   int
	}{
		"nothing runs":                  {nil, nil, 2},
		"two share one":                 {[]pod.Pod{on("a", pod.Docker, 1), on("b", pod.Docker, 1)}, map[string]registry.GPUClaims{"g0": held("m", 50, "a", "b")}, 1},
		"one has both":                  {[]pod.Pod{on("a", pod.Process, 2)}, map[string]registry.GPUClaims{"g0": held("m", 100, "a"), "g1": held("m", 100, "a")}, 0},
		"one sleeps and keeps nothing":  {[]pod.Pod{on("a", pod.Docker, 1)}, map[string]registry.GPUClaims{"g0": held("m", 0, "a")}, 2},
		"a claim whose pod is over":     {nil, map[string]registry.GPUClaims{"g0": held("m", 100, "gone")}, 1},
		"on another machine":            {nil, map[string]registry.GPUClaims{"g9": held("n", 100, "x"), "g8": {}}, 2},
		"a process that asked for none": {[]pod.Pod{on("a", pod.Process, 0)}, nil, 2},
		"a worker of its owner":         {[]pod.Pod{on("a", pod.External, 0)}, nil, 0},
		"it has not claimed yet":        {[]pod.Pod{on("a", pod.Docker, 1)}, nil, 1},
	} {
		if got := tallyOf(tc.pods, tc.claims, born).free(on("", pod.Docker, 0)); got == nil || *got != tc.want {
			t.Errorf("%s: got %v free, want %d", name, got, tc.want)
		}
	}
}
