package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"flightline/shared/placement"
	"flightline/shared/pod"
)

// device reads "m1/GPU-1 NVIDIA-L4 24576 50".
func device(t *testing.T, text string) placement.Device {
	t.Helper()
	d := placement.Device{GPU: pod.GPU{CUDA: "12.4"}}
	var at, name string
	if _, err := fmt.Sscan(text, &at, &name, &d.MemoryMB, &d.Used); err != nil {
		t.Fatal(text, err)
	}
	d.Machine, d.UUID, _ = strings.Cut(at, "/")
	d.Name = strings.ReplaceAll(name, "-", " ")
	return d
}

func TestChoose(t *testing.T) {
	l4 := func(used int) string { return fmt.Sprintf("m1/g1 NVIDIA-L4 24576 %d", used) }
	for name, tt := range map[string]struct {
		devices []string
		spec    pod.Spec
		want    string
	}{
		"the free one":               {[]string{l4(100), "m1/g2 NVIDIA-L4 24576 0"}, pod.Spec{GPUs: 1}, "m1 g2"},
		"none is free":               {[]string{l4(100), "m1/g2 NVIDIA-L4 24576 1"}, pod.Spec{GPUs: 1}, ""},
		"the smallest that fits":     {[]string{"m1/g1 H100 81920 0", "m2/g2 L4 24576 0", "m2/g3 T4 16384 0"}, pod.Spec{GPUs: 1, MinVRAMGB: 20}, "m2 g2"},
		"a type, in any case":        {[]string{l4(0), "m1/g2 NVIDIA-H100 81920 0"}, pod.Spec{GPUs: 1, GPUTypes: []string{"nvidia h100"}}, "m1 g2"},
		"no such type":               {[]string{l4(0)}, pod.Spec{GPUs: 1, GPUTypes: []string{"NVIDIA H100"}}, ""},
		"CUDA new enough":            {[]string{l4(0)}, pod.Spec{GPUs: 1, MinCUDA: "12.4"}, "m1 g1"},
		"CUDA too old":               {[]string{l4(0)}, pod.Spec{GPUs: 1, MinCUDA: "12.10"}, ""},
		"two of one machine":         {[]string{l4(0), "m2/g2 L4 24576 0", "m2/g3 L4 24576 0"}, pod.Spec{GPUs: 2}, "m2 g2 g3"},
		"two of two machines":        {[]string{l4(0), "m2/g2 L4 24576 0"}, pod.Spec{GPUs: 2}, ""},
		"a share of the fullest":     {[]string{l4(0), "m1/g2 NVIDIA-L4 24576 50"}, pod.Spec{GPUs: 1, GPUShare: 0.25}, "m1 g2"},
		"a share that fits no more":  {[]string{l4(80)}, pod.Spec{GPUs: 1, GPUShare: 0.25}, ""},
		"memory is that of a share":  {[]string{l4(0)}, pod.Spec{GPUs: 1, GPUShare: 0.5, MinVRAMGB: 13}, ""},
		"memory of a share suffices": {[]string{l4(0)}, pod.Spec{GPUs: 1, GPUShare: 0.5, MinVRAMGB: 12}, "m1 g1"},
		"less load of two alike":     {[]string{"a/g1 L4 24576 0", "b/g2 L4 24576 0"}, pod.Spec{GPUs: 1}, "b g2"},
		"no devices":                 {nil, pod.Spec{GPUs: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all []placement.Device
			for _, text := range tt.devices {
				all = append(all, device(t, text))
			}
			p, ok := placement.Choose(placement.RequestOf(tt.spec), all, map[string]int{"a": 1})
			if got := strings.TrimSpace(p.Machine + " " + strings.Join(p.UUIDs, " ")); got != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, tt.want)
			}
		})
	}
}

// A machine that has the models is preferred among those that fit, whatever the size of
// its GPUs; none is refused for lacking them.
func TestMachinesWithTheModelsArePreferred(t *testing.T) {
	has := func(text string, models ...string) placement.Device {
		d := device(t, text)
		for _, name := range models {
			d.Models = append(d.Models, pod.Model{Name: name})
		}
		return d
	}
	on := func(d placement.Device) placement.Device { d.Probation = true; return d }
	spec := pod.Spec{GPUs: 1, ModelCache: []string{"m/one", "m/two"}}
	two := spec
	two.GPUs = 2
	for name, tt := range map[string]struct {
		spec    pod.Spec
		devices []placement.Device
		want    string // machine, GPUs; missing models
	}{
		"the machine with the models":            {spec, []placement.Device{has("a/g1 L4 24576 0"), has("b/g2 L4 24576 0", "m/one", "m/two")}, "b g2 []"},
		"though it has more pods":                {spec, []placement.Device{has("a/g1 L4 24576 0", "m/one", "m/two"), has("b/g2 L4 24576 0")}, "a g1 []"},
		"and a larger GPU":                       {spec, []placement.Device{has("a/g1 T4 16384 0"), has("b/g2 H100 81920 0", "m/two", "m/one")}, "b g2 []"},
		"one model is more than none":            {spec, []placement.Device{has("a/g1 T4 16384 0", "other"), has("b/g2 L4 24576 0", "m/two")}, "b g2 [m/one]"},
		"if it has room":                         {spec, []placement.Device{has("a/g1 L4 24576 0"), has("b/g2 L4 24576 100", "m/one", "m/two")}, "a g1 [m/one m/two]"},
		"if it is not on probation":              {spec, []placement.Device{has("a/g1 L4 24576 0"), on(has("b/g2 L4 24576 0", "m/one", "m/two"))}, "a g1 [m/one m/two]"},
		"if it has enough GPUs":                  {two, []placement.Device{has("a/g1 L4 24576 0"), has("a/g2 L4 24576 0"), has("b/g3 L4 24576 0", "m/one")}, "a g1 g2 [m/one m/two]"},
		"on the machine, the smallest GPU":       {spec, []placement.Device{has("b/g1 H100 81920 0", "m/one"), has("b/g2 L4 24576 0", "m/one")}, "b g2 [m/two]"},
		"none has it: the smallest GPU":          {spec, []placement.Device{has("a/g1 H100 81920 0"), has("b/g2 L4 24576 0")}, "b g2 [m/one m/two]"},
		"nobody asked for one: the smallest GPU": {pod.Spec{GPUs: 1}, []placement.Device{has("a/g1 H100 81920 0", "m/one"), has("b/g2 L4 24576 0")}, "b g2 []"},
	} {
		p, _ := placement.Choose(placement.RequestOf(tt.spec), tt.devices, map[string]int{"a": 1})
		if got := fmt.Sprint(p.Machine, " ", strings.Join(p.UUIDs, " "), " ", p.MissingModels); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestRefusalsSayWhatThereIs(t *testing.T) {
	sick := device(t, "m1/g9 NVIDIA-L4 24576 0")
	sick.Health = "lost"
	all := []placement.Device{device(t, "m1/g1 NVIDIA-L4 24576 100"), device(t, "m2/g1 NVIDIA-L4 24576 100"), device(t, "m1/g2 T4 16384 0"), sick}
	for _, tt := range []struct {
		spec     pod.Spec
		devices  []placement.Device
		want     string
		possible bool
	}{
		{pod.Spec{GPUs: 1}, nil, "no machine has a GPU", false},
		{pod.Spec{GPUs: 1, GPUTypes: []string{"NVIDIA L4"}}, all, "there are 3: 1 would do, 1 of another type, 1 unhealthy", true},
		{pod.Spec{GPUs: 1, MinVRAMGB: 40}, all, "there are 3: 0 would do, 2 with less memory, 1 unhealthy", false},
		{pod.Spec{GPUs: 3}, all, "there are 3: 2 would do, 1 unhealthy; no machine has 3 that would do", false},
		{pod.Spec{GPUs: 1, MinCUDA: "13.0"}, all[:1], "there is 1: 0 would do, 1 with an older CUDA, or an unknown one", false},
	} {
		if got, possible := placement.Refusal(placement.RequestOf(tt.spec), tt.devices); got != tt.want || possible != tt.possible {
			t.Errorf("%+v: got %q, %v, want %q, %v", tt.spec, got, possible, tt.want, tt.possible)
		}
	}
	r := placement.RequestOf(pod.Spec{GPUs: 1, GPUShare: 0.5, GPUTypes: []string{"A", "B"}, MinVRAMGB: 20, MinCUDA: "12.4"})
	if want := "0.5 of a GPU, one of A, B, with 20 GB, with CUDA 12.4"; r.String() != want {
		t.Errorf("got %q, want %q", r, want)
	}
}

func TestQuarantinedGPUsAreLeftOutAndNamed(t *testing.T) {
	const until = "until 2026-11-25 12:30:00 UTC: 3 workers in a row failed on it"
	held := device(t, "m1/g1 L4 24576 0")
	held.Quarantine, held.Health = until, "lost" // the text names the deadline
	trial := device(t, "m1/g2 T4 16384 0")
	trial.Probation = true
	good, shared := device(t, "m2/g3 H100 81920 0"), trial
	shared.Used = 25
	one, half := pod.Spec{GPUs: 1}, pod.Spec{GPUs: 1, GPUShare: 0.5}
	for name, tt := range map[string]struct {
		devices []placement.Device
		spec    pod.Spec
		want    string
	}{
		"only a quarantined one":        {[]placement.Device{held}, one, ""},
		"one on probation is last":      {[]placement.Device{held, trial, good}, one, "g3"},
		"one on probation if no other":  {[]placement.Device{held, trial}, half, "g2"},
		"one on probation has one pod":  {[]placement.Device{shared}, half, ""},
		"both of a machine if need be":  {[]placement.Device{trial, device(t, "m1/g4 T4 16384 0")}, pod.Spec{GPUs: 2}, "g4 g2"},
		"of a machine the good one":     {[]placement.Device{trial, device(t, "m1/g4 T4 81920 0")}, one, "g4"},
		"on two machines, without them": {[]placement.Device{held, device(t, "m2/g4 T4 16384 0")}, pod.Spec{GPUs: 2}, ""},
	} {
		if p, _ := placement.Choose(placement.RequestOf(tt.spec), tt.devices, nil); strings.Join(p.UUIDs, " ") != tt.want {
			t.Errorf("%s: got %v, want %q", name, p.UUIDs, tt.want)
		}
	}
	for _, tt := range []struct {
		spec     pod.Spec
		devices  []placement.Device
		want     string
		possible bool
	}{
		{one, []placement.Device{held, held}, "there is 1: 0 would do, 1 quarantined; g1 is quarantined " + until, true},
		{pod.Spec{GPUs: 1, GPUTypes: []string{"H100"}}, []placement.Device{held}, "there is 1: 0 would do, 1 of another type", false},
		{pod.Spec{GPUs: 2}, []placement.Device{held, good}, "there are 2: 1 would do, 1 quarantined; no machine has 2 that would do; g1 is quarantined " + until, false},
	} {
		if got, possible := placement.Refusal(placement.RequestOf(tt.spec), tt.devices); got != tt.want || possible != tt.possible {
			t.Errorf("%+v: got %q, %v, want %q, %v", tt.spec, got, possible, tt.want, tt.possible)
		}
	}
}
