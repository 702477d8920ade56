package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

func TestAWorkerIsStartedFromTheEndpointAndElseItsTemplate(t *testing.T) {
	template := pod.Spec{Image: "t", Command: []string{"t"}, GPUs: 1, MemoryGB: 2, Env: map[string]string{"A": "t", "B": "t"}, Ports: []string{"80/http"}, ModelCache: []string{"t/t"}}
	e := endpoint.Endpoint{Fleet: endpoint.Fleet{Image: "e", VCPUs: 3}, Env: map[string]string{"B": "e"}}
	want := pod.Spec{Image: "e", Command: []string{"t"}, GPUs: 1, VCPUs: 3, MemoryGB: 2, Env: map[string]string{"A": "t", "B": "e"}, Ports: []string{"80/http"}, ModelCache: []string{"t/t"}}
	if diff := cmp.Diff(want, specOf(e, template)); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	e.Fleet.ModelCache = []string{"e/e"}
	if got := specOf(e, template).ModelCache; !slices.Equal(got, []string{"e/e"}) {
		t.Errorf("got models %v, want the endpoint's in place of the template's", got)
	}
	if template.Env["B"] != "t" {
		t.Error("the template was changed")
	}
}

func TestAPodReadsItsSizeInItsEnvironment(t *testing.T) {
	machine := pod.Machine{VCPUs: 16, MemoryGB: 31.4}
	for name, tt := range map[string]struct {
		pod  pod.Pod
		env  map[string]string
		want map[string]string
	}{
		"no limits": {pod.Pod{ID: "p"}, nil, map[string]string{
			"RUNPOD_POD_ID": "p", "RUNPOD_GPU_COUNT": "0", "RUNPOD_CPU_COUNT": "16", "RUNPOD_MEM_GB": "31",
		}},
		"limits and a volume": {
			pod.Pod{ID: "p", VolumeID: "v", Spec: pod.Spec{GPUs: 2, VCPUs: 0.5, MemoryGB: 8}},
			map[string]string{"A": "b"},
			map[string]string{
				"A": "b", "RUNPOD_POD_ID": "p", "RUNPOD_GPU_COUNT": "2", "RUNPOD_CPU_COUNT": "1", "RUNPOD_MEM_GB": "8", "RUNPOD_VOLUME_ID": "v",
			},
		},
		"the owner's own": {pod.Pod{ID: "p"}, map[string]string{"RUNPOD_CPU_COUNT": "3"}, map[string]string{
			"RUNPOD_POD_ID": "p", "RUNPOD_GPU_COUNT": "0", "RUNPOD_CPU_COUNT": "3", "RUNPOD_MEM_GB": "31",
		}},
	} {
		before := maps.Clone(tt.env)
		if diff := cmp.Diff(tt.want, described(tt.env, tt.pod, machine)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !maps.Equal(before, tt.env) {
			t.Errorf("%s: the pod's own environment was changed to %v", name, tt.env)
		}
	}
}

func TestPlacesFollowFromWhatIsThere(t *testing.T) {
	pods := []pod.Pod{
		{ID: "ep-0-4", Status: pod.Running},
		{ID: "ep-1-2", Status: pod.Exited},
		{ID: "ep-1-7", Status: pod.Terminated},
		{ID: "ep-2-01", Status: pod.Running}, // not ours
		{ID: "ep-x-1", Status: pod.Running},
		{ID: "ep-3-1", Status: pod.Running},
		{ID: "other-2-9", Status: pod.Running},
	}
	want := []place{{1, 8}, {2, 1}, {4, 1}}
	if diff := cmp.Diff(want, freePlaces("ep", pods, 3), cmp.AllowUnexported(place{})); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestPodsAreSpreadOverMachines(t *testing.T) {
	a, b, c := placement.Placement{Machine: "a"}, placement.Placement{Machine: "b"}, placement.Placement{Machine: "c", MissingModels: []string{"m/n"}}
	for name, tt := range map[string]struct {
		machines []string
		load     map[string]int
		want     []placement.Placement
	}{
		"the fewest pods":              {[]string{"b", "a"}, map[string]int{"a": 2, "gone": 0}, []placement.Placement{b, b, a, b}},
		"of two alike, the models":     {[]string{"c", "b"}, map[string]int{"b": 1, "c": 1}, []placement.Placement{b, c, b}},
		"a machine without if need be": {[]string{"c"}, nil, []placement.Placement{c}},
		"fewer pods before the models": {[]string{"a", "c"}, map[string]int{"a": 1}, []placement.Placement{c, a}},
	} {
		got := spread(tt.machines, tt.load, map[string][]string{"c": {"m/n"}}, len(tt.want))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestStreak(t *testing.T) {
	ended := func(id string, lived, ago time.Duration, why string) pod.Pod {
		at := noon.Add(-ago)
		return pod.Pod{ID: id, Status: pod.Exited, Created: at.Add(-lived), Started: at.Add(-lived), Changed: at, Change: why}
	}
	short, long := 2*time.Second, 2*time.Minute
	with := func(p pod.Pod, phases pod.Phases) pod.Pod { p.Phases = phases; return p }
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	drained := func(id string) pod.Pod {
		p := ended(id, 10*time.Second, 30*time.Minute, "drained and stopped: 1 idle for 5s")
		p.Status, p.By, p.Drain.At = pod.Terminated, pod.Remove, p.Changed.Add(-short)
		return p
	}
	for name, test := range map[string]struct {
		pods []pod.Pod
		want int
		last string
	}{
		"none":       {nil, 0, ""},
		"in a row":   {[]pod.Pod{ended("a", short, time.Hour, "x"), ended("b", short, time.Minute, "y")}, 2, "b"},
		"proven":     {[]pod.Pod{ended("a", short, time.Hour, "x"), ended("b", long, time.Minute, "y"), ended("c", short, short, "z")}, 1, "c"},
		"vanished":   {[]pod.Pod{ended("a", short, time.Hour, vanished)}, 0, ""},
		"by request": {[]pod.Pod{{ID: "a", Status: pod.Exited, By: pod.Stop, Created: noon.Add(-short), Changed: noon}}, 0, ""},
		"removed":    {[]pod.Pod{{ID: "a", Status: pod.Terminated}}, 0, ""},
		"still runs": {[]pod.Pod{ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Running, Started: noon.Add(-30 * time.Minute)}}, 0, ""},
		"too young":  {[]pod.Pod{ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Running, Started: noon.Add(-short)}}, 1, "a"},
		"drained once it was ready": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), with(drained("b"), pod.Phases{Loading: at(31 * time.Minute), Ready: at(31 * time.Minute)}), ended("c", short, short, "z"),
		}, 1, "c"},
		"ended with its autoscaler": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Terminated, By: pod.Remove, Started: at(30 * time.Minute), Changed: at(time.Minute), Change: endedWithUs}, ended("c", short, short, "z"),
		}, 1, "c"},
		"ended so while it was young": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Terminated, By: pod.Remove, Started: at(time.Minute + short), Changed: at(time.Minute), Change: endedWithUs}, ended("c", short, short, "z"),
		}, 2, "c"},
		"drained before": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), with(drained("b"), pod.Phases{Loading: at(31 * time.Minute)}), ended("c", short, short, "z"),
		}, 2, "c"},
		"never ready": {[]pod.Pod{
			with(ended("a", 7*time.Minute, time.Hour, "x"), pod.Phases{Loading: at(67 * time.Minute)}),
			with(ended("b", long, time.Minute, "y"), pod.Phases{Pulling: at(3 * time.Minute)}),
		}, 2, "b"},
		"never started": {[]pod.Pod{{ID: "a", Status: pod.Exited, Created: at(time.Hour), Changed: at(time.Minute)}}, 1, "a"},
		"ready before its end": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), with(ended("b", long, time.Minute, "y"), pod.Phases{Loading: at(3 * time.Minute), Ready: at(2 * time.Minute)}),
		}, 0, ""},
		"restarts itself after each job": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Running, Started: at(short), Refreshed: at(short), Phases: pod.Phases{Loading: at(short)}},
		}, 0, ""},
		"fails since it restarted itself": {[]pod.Pod{
			ended("a", short, short, "x"), {ID: "b", Status: pod.Running, Started: at(time.Minute), Refreshed: at(time.Minute)},
		}, 1, "a"},
		"restarted itself, and ended": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Exited, Started: at(short), Refreshed: at(short), Changed: noon},
		}, 0, ""},
		"still loads": {[]pod.Pod{
			ended("a", short, time.Hour, "x"), {ID: "b", Status: pod.Running, Started: at(6 * time.Minute), Phases: pod.Phases{Loading: at(6 * time.Minute)}},
		}, 1, "a"},
		"ready since": {[]pod.Pod{
			ended("a", short, long, "x"), {ID: "b", Status: pod.Running, Started: at(time.Hour), Phases: pod.Phases{Loading: at(time.Hour), Ready: at(time.Minute)}},
		}, 0, ""},
		"ready before that": {[]pod.Pod{
			ended("a", short, time.Minute, "x"), {ID: "b", Status: pod.Running, Started: at(time.Hour), Phases: pod.Phases{Loading: at(time.Hour), Ready: at(long)}},
		}, 1, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			got, last := streak(test.pods, noon)
			if got != test.want || last.ID != test.last {
				t.Errorf("got %d, last %q, want %d, %q", got, last.ID, test.want, test.last)
			}
		})
	}
}

func TestHowOthersEndedTellsNothingOfTheNext(t *testing.T) {
	e := ep()
	spec := specOf(e, pod.Spec{})
	mended := spec
	mended.Command = []string{"mended"}
	e.Created = noon.Add(-10 * time.Second)
	former := pod.Pod{ID: "former", Driver: pod.Process, Status: pod.Exited, Created: e.Created.Add(-time.Second), Changed: noon, Spec: spec}
	pods := []pod.Pod{former}
	for i, s := range []pod.Spec{spec, spec, mended} {
		at := noon.Add(time.Duration(i-10) * time.Second)
		pods = append(pods, pod.Pod{ID: fmt.Sprint(i), Driver: pod.Process, Status: pod.Exited, Created: at, Changed: at, Spec: s})
	}
	for want, s := range map[int]pod.Spec{2: spec, 1: mended, 0: {Command: []string{"new"}}} {
		if got, _ := streak(podsMadeFrom(e, fleetSample{pods: pods, spec: s, from: e}), noon); got != want {
			t.Errorf("%v: got %d failures, want %d", s.Command, got, want)
		}
	}
	elsewhere(&e)
	if got := podsMadeFrom(e, fleetSample{pods: pods, spec: spec, from: e}); len(got) > 0 {
		t.Errorf("another driver: got %v, want none", got)
	}
}

func TestAWorkerRestsSinceItsLastJob(t *testing.T) {
	now := noon.Add(time.Minute)
	seen := now.Add(-2 * time.Second) // noon is when it was first seen without a job
	for name, test := range map[string]struct {
		w    registry.Worker
		want time.Duration
	}{
		"as far as the last ping tells":   {registry.Worker{Seen: seen}, 58 * time.Second},
		"a job in between":                {registry.Worker{Seen: seen, Rested: 3 * time.Second}, 3 * time.Second},
		"a job before":                    {registry.Worker{Seen: seen, Rested: time.Hour}, 58 * time.Second},
		"native":                          {registry.Worker{Native: true, Seen: seen}, time.Minute},
		"native, a job in between":        {registry.Worker{Native: true, Seen: seen, Rested: 3 * time.Second}, 5 * time.Second},
		"not heard of since it had a job": {registry.Worker{Seen: noon.Add(-time.Second), Rested: time.Second}, 0},
	} {
		if got := restedOf(test.w, noon, now); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestAWorkerIsStoppedOnlyOnceItIsKnownToHoldNothing(t *testing.T) {
	const job = "job"
	heard := func(seen time.Duration, w registry.Worker) registry.Holder {
		if w.State == "" {
			w.State = registry.WorkerIdle
		}
		w.Seen = noon.Add(seen)
		return registry.Holder{Worker: w}
	}
	silent := func(ago time.Duration) registry.Holder {
		return registry.Holder{Worker: registry.Worker{State: registry.WorkerRunning, Running: []string{job}, Seen: noon}, Ago: ago}
	}
	since := noon
	for name, test := range map[string]struct {
		last registry.Holder
		now  time.Duration
		want bool
	}{
		"heard of before":         {heard(-time.Second, registry.Worker{}), 10 * time.Second, false},
		"heard of too soon":       {heard(2*time.Second, registry.Worker{}), 10 * time.Second, false},
		"heard of, idle":          {heard(3*time.Second, registry.Worker{}), 3 * time.Second, true},
		"heard of, busy":          {heard(time.Hour, registry.Worker{Running: []string{job}}), time.Hour, false},
		"a native one, not told":  {heard(time.Hour, registry.Worker{Native: true}), time.Hour, false},
		"a native one, told":      {heard(0, registry.Worker{Native: true, Draining: true}), time.Second, true},
		"a native one, busy":      {heard(time.Hour, registry.Worker{Native: true, Draining: true, Running: []string{job}}), time.Hour, false},
		"never heard of":          {registry.Holder{}, 19 * time.Second, false},
		"never heard of for long": {registry.Holder{}, 20 * time.Second, true},
		"silent":                  {silent(silenceTimeout - time.Second), time.Hour, false},
		"silent for long":         {silent(silenceTimeout), time.Hour, true},
		"after an outage":         {registry.Holder{Unknown: true}, time.Hour, false},
		"starting":                {heard(time.Hour, registry.Worker{State: registry.WorkerInitializing}), time.Second, false},
		"it never got ready":      {heard(0, registry.Worker{State: registry.WorkerInitializing}), time.Minute, true},
		"an old beat of a gone w": {heard(-time.Hour, registry.Worker{}), time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := drained(test.last, since, noon.Add(test.now)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A fleet is what autoscalers start and stop; owners may start workers beside it.
func TestFleetOf(t *testing.T) {
	t.Parallel()
	ours, other := pod.Pod{ID: "a", Endpoint: "ep", Driver: pod.Process}, pod.Pod{ID: "c", Endpoint: "ep", Driver: pod.Docker}
	owners, alone := pod.Pod{ID: "b", Endpoint: "ep"}, pod.Pod{ID: "d", Driver: pod.Docker}
	for name, tt := range map[string]struct{ pods, want []pod.Pod }{
		"none":        {nil, nil},
		"all":         {[]pod.Pod{ours, other}, []pod.Pod{ours, other}},
		"owners only": {[]pod.Pod{owners}, nil},
		"both":        {[]pod.Pod{ours, owners, other}, []pod.Pod{ours, other}},
		"of none":     {[]pod.Pod{alone}, nil},
	} {
		if got := fleetOf(tt.pods); !cmp.Equal(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}
