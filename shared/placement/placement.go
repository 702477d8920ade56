// Package placement chooses the GPUs of a pod: which machine has what its endpoint asks
// for, and is free. It decides on values only; who holds a GPU is in the registry.
package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"flightline/shared/pod"
)

// Request is what a pod asks for. The zero value asks for no GPU.
type Request struct {
	// Count is how many GPUs, all of one machine. Share is in hundredths of each, by
	// memory, pod.WholeGPU unless a card is shared; then Count is 1.
	Count, Share int
	// Types are the names that will do, nil for any.
	Types []string
	// MinMemoryMB is what of its memory the pod needs of each, 0 for any.
	MinMemoryMB int
	// MinCUDA is the oldest CUDA that will do, as "12.4", "" for any.
	MinCUDA string
	// Driver is what runs the pod, "" for any.
	Driver pod.Driver
	// Models are those that the pod loads, nil for none that are known.
	Models []string
}

// RequestOf is what a pod made from the spec asks for.
func RequestOf(s pod.Spec) Request {
	r := Request{Count: s.GPUs, Share: pod.WholeGPU, Types: s.GPUTypes, MinMemoryMB: int(math.Ceil(s.MinVRAMGB * 1024)), MinCUDA: s.MinCUDA, Models: s.ModelCache}
	if s.GPUShare > 0 {
		r.Share = int(math.Round(s.GPUShare * pod.WholeGPU))
	}
	return r
}

// String is the request for people: "1 GPU, one of NVIDIA L4, with 20 GB".
func (r Request) String() string {
	text := fmt.Sprintf("%d GPUs", r.Count)
	if r.Count == 1 {
		text = "1 GPU"
	}
	if r.Share < pod.WholeGPU {
		text = fmt.Sprintf("%v of a GPU", float64(r.Share)/pod.WholeGPU)
	}
	if len(r.Types) > 0 {
		text += ", one of " + strings.Join(r.Types, ", ")
	}
	if r.MinMemoryMB > 0 {
		text += fmt.Sprintf(", with %v GB", math.Round(float64(r.MinMemoryMB)/1024*100)/100)
	}
	if r.MinCUDA != "" {
		text += ", with CUDA " + r.MinCUDA
	}
	return text
}

// Device is a GPU of a machine. Two machines may have the same one: programs on one host.
type Device struct {
	pod.GPU
	Machine string
	// Driver is what runs pods there, Models are those that the machine has.
	Driver pod.Driver
	Models []pod.Model
	// Used is in hundredths. Above pod.WholeGPU it counts as pod.WholeGPU.
	Used int
	// Quarantine says until when no pod gets it and why, "" if it is not quarantined.
	Quarantine string
	// Probation means that one pod at a time may try it: it is chosen last.
	Probation bool
}

const (
	otherType  = "of another type"
	lessMemory = "with less memory"
	olderCUDA  = "with an older CUDA, or an unknown one"
	unhealthy  = "unhealthy"
	// quarantined is what a device lacks until a deadline.
	quarantined = "quarantined"
	// elsewhere is what a machine of another driver lacks.
	elsewhere = "where its driver does not run"
	// maxNamed bounds the quarantined devices that a text names.
	maxNamed = 3
)

// lack says why the device is not for the request even when nobody holds it, "" if it is.
func (r Request) lack(d Device) string {
	switch {
	case r.Driver != "" && d.Driver != "" && r.Driver != d.Driver:
		return elsewhere
	case d.Health != "" && d.Quarantine == "":
		return unhealthy
	case len(r.Types) > 0 && !slices.ContainsFunc(r.Types, func(t string) bool { return strings.EqualFold(t, d.Name) }):
		return otherType
	case r.MinMemoryMB > d.MemoryMB*r.Share/pod.WholeGPU:
		return lessMemory
	case r.MinCUDA != "" && !reaches(d.CUDA, r.MinCUDA):
		return olderCUDA
	case d.Quarantine != "":
		return quarantined
	}
	return ""
}

// takes reports whether the device has room for the request.
func (r Request) takes(d Device) bool {
	return r.lack(d) == "" && d.Used+r.Share <= pod.WholeGPU && (!d.Probation || d.Used == 0)
}

// reaches reports whether a version, as "12.4", is at least the other.
func reaches(have, want string) bool {
	a, b := version(have), version(want)
	return cmp.Or(a[0]-b[0], a[1]-b[1]) >= 0
}

func version(text string) [2]int {
	major, minor, _ := strings.Cut(text, ".")
	x, _ := strconv.Atoi(major) // 0 for what is unknown
	y, _ := strconv.Atoi(minor)
	return [2]int{x, y}
}

// Placement is where a pod goes.
type Placement struct {
	Machine string
	// UUIDs are the GPUs that it gets, in order.
	UUIDs []string
	// MissingModels are those that it loads and that the machine does not have.
	MissingModels []string
}

// Choose finds the GPUs for one pod. Of the machines that fit it takes the one that lacks
// the fewest models. Of several GPUs that fit it takes the smallest, so that the larger
// stay for those who need them; a share goes to the card that is fullest; of machines that
// are alike, the one with less load, in pods. A GPU on probation is taken only if no other
// fits. It reports false if none fits.
func Choose(r Request, devices []Device, load map[string]int) (Placement, bool) {
	byMachine := map[string][]Device{}
	for _, d := range devices {
		if r.takes(d) {
			byMachine[d.Machine] = append(byMachine[d.Machine], d)
		}
	}
	var best Placement
	var bestCost [4]int
	for machine, fit := range byMachine {
		if len(fit) < r.Count || r.Count == 0 {
			continue
		}
		slices.SortFunc(fit, func(a, b Device) int {
			return cmp.Or(one(a.Probation)-one(b.Probation), a.MemoryMB-b.MemoryMB, b.Used-a.Used, strings.Compare(a.UUID, b.UUID))
		})
		p := Placement{Machine: machine, MissingModels: pod.MissingModels(r.Models, fit[0].Models)}
		cost := [4]int{0, len(p.MissingModels), 0, load[machine]}
		for _, d := range fit[:r.Count] {
			p.UUIDs = append(p.UUIDs, d.UUID)
			cost[0] += one(d.Probation)
			cost[2] += d.MemoryMB - d.MemoryMB*d.Used/pod.WholeGPU
		}
		if best.Machine == "" || cmp.Or(slices.Compare(cost[:], bestCost[:]), strings.Compare(machine, best.Machine)) < 0 {
			best, bestCost = p, cost
		}
	}
	return best, best.Machine != ""
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Refusal says what there is, for a request that Choose finds nothing for: how many GPUs
// are unsuitable, by why, how many would do and are held, and until when others are
// quarantined. possible is false if no waiting helps.
func Refusal(r Request, devices []Device) (text string, possible bool) {
	seen, lacks := map[string]bool{}, map[string]int{}
	fit, most := 0, map[string]int{}
	var named []string
	for _, d := range devices {
		lack := r.lack(d)
		if lack == "" || lack == quarantined {
			most[d.Machine]++
			possible = possible || most[d.Machine] >= r.Count
		}
		if seen[d.UUID] {
			continue
		}
		seen[d.UUID] = true
		switch {
		case lack == "":
			fit++
			continue
		case lack == quarantined && len(named) < maxNamed:
			named = append(named, fmt.Sprintf("; %s is quarantined %s", d.UUID, d.Quarantine))
		}
		lacks[lack]++
	}
	if len(seen) == 0 {
		return "no machine has a GPU", false
	}
	parts := []string{fmt.Sprintf("%d would do", fit)}
	for _, lack := range []string{otherType, lessMemory, olderCUDA, unhealthy, quarantined, elsewhere} {
		if n := lacks[lack]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, lack))
		}
	}
	text = fmt.Sprintf("there are %d: %s", len(seen), strings.Join(parts, ", "))
	if len(seen) == 1 {
		text = "there is 1: " + strings.Join(parts, ", ")
	}
	if fit > 0 && !possible {
		text += fmt.Sprintf("; no machine has %d that would do", r.Count)
	}
	return text + strings.Join(named, ""), possible
}
