package control

import (
	"testing"
	"time"

	"flightline/shared/pod"
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
	}, born.Add(time.Hour))
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
