package autoscaler

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
)

// specOf is what the endpoint's workers are started from: its own settings, and
// those of its template where it has none.
func specOf(e endpoint.Endpoint, template pod.Spec) pod.Spec {
	spec, own := template, e.Fleet
	spec.Image = cmp.Or(own.Image, spec.Image)
	spec.GPUs, spec.VCPUs, spec.MemoryGB = cmp.Or(own.GPUs, spec.GPUs), cmp.Or(own.VCPUs, spec.VCPUs), cmp.Or(own.MemoryGB, spec.MemoryGB)
	spec.MinVRAMGB, spec.MinCUDA = cmp.Or(own.MinVRAMGB, spec.MinVRAMGB), cmp.Or(own.MinCUDA, spec.MinCUDA)
	spec.GPUShare = cmp.Or(own.GPUShare, spec.GPUShare)
	if len(own.Command) > 0 {
		spec.Command = slices.Clone(own.Command)
	}
	if len(own.ModelCache) > 0 {
		spec.ModelCache = slices.Clone(own.ModelCache)
	}
	if len(own.GPUTypes) > 0 {
		spec.GPUTypes = slices.Clone(own.GPUTypes)
	}
	spec.Env = nil
	if len(template.Env)+len(e.Env) > 0 {
		spec.Env = map[string]string{}
		maps.Copy(spec.Env, template.Env)
		maps.Copy(spec.Env, e.Env)
	}
	return spec
}

// described is env with what images made for RunPod read of their pod and its size, unless
// env says it. What has no limit has the size of the machine m.
func described(env map[string]string, p pod.Pod, m pod.Machine) map[string]string {
	whole := func(n float64) string { return strconv.FormatFloat(max(1, math.Floor(n)), 'f', -1, 64) }
	all := map[string]string{
		"RUNPOD_POD_ID":    p.ID,
		"RUNPOD_GPU_COUNT": strconv.Itoa(p.Spec.GPUs),
		"RUNPOD_CPU_COUNT": whole(cmp.Or(p.Spec.VCPUs, m.VCPUs)),
		"RUNPOD_MEM_GB":    whole(cmp.Or(p.Spec.MemoryGB, m.MemoryGB)),
	}
	if p.VolumeID != "" {
		all["RUNPOD_VOLUME_ID"] = p.VolumeID
	}
	maps.Copy(all, env)
	return all
}

// runnable says why nothing can be started from spec, "" if it can.
func runnable(driver pod.Driver, spec pod.Spec) string {
	switch {
	case driver == pod.Process && len(spec.Command) == 0:
		return "neither the endpoint nor its template has a command"
	case driver == pod.Docker && spec.Image == "":
		return "neither the endpoint nor its template has an image"
	}
	return ""
}

// madeFrom reports whether the spec and the driver would make the same pod now.
func madeFrom(p pod.Pod, spec pod.Spec, driver string) bool {
	return string(p.Driver) == driver && reflect.DeepEqual(p.Spec, spec)
}

// place is a slot of an endpoint's fleet; two autoscalers that fill the same
// one make a pod of the same id, which one of them fails to create.
type place struct{ slot, generation int }

func (p place) id(endpointID string) string {
	return fmt.Sprintf("%s-%d-%d", endpointID, p.slot, p.generation)
}

// parsePlace is the inverse of id.
func parsePlace(endpointID, id string) (place, bool) {
	rest, ok := strings.CutPrefix(id, endpointID+"-")
	slot, generation, found := strings.Cut(rest, "-")
	s, err := strconv.Atoi(slot)
	g, err2 := strconv.Atoi(generation)
	p := place{s, g}
	return p, ok && found && err == nil && err2 == nil && s >= 0 && g >= 0 && p.id(endpointID) == id
}

// freePlaces returns n places that are not taken, given all pods of the endpoint.
func freePlaces(endpointID string, pods []pod.Pod, n int) []place {
	taken, last := map[int]bool{}, map[int]int{}
	for _, p := range pods {
		at, ok := parsePlace(endpointID, p.ID)
		if !ok {
			continue
		}
		taken[at.slot] = taken[at.slot] || p.Status == pod.Running
		last[at.slot] = max(last[at.slot], at.generation)
	}
	var places []place
	for slot := 0; len(places) < n; slot++ {
		if !taken[slot] {
			places = append(places, place{slot, last[slot] + 1})
		}
	}
	return places
}
