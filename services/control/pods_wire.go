package control

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"time"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/web"
)

// specBody and podBody make or change a pod.
type (
	specBody api.Spec
	podBody  api.PodSpec
)

// applyTo returns s with what the body gives. A variable that is sent as it was
// shown, hidden, keeps its value.
func (b *specBody) applyTo(s pod.Spec) (pod.Spec, error) {
	set(&s.Image, b.ImageName)
	set(&s.Entrypoint, b.DockerEntrypoint)
	set(&s.Command, b.DockerStartCmd)
	set(&s.Ports, b.Ports)
	set(&s.DiskGB, b.ContainerDiskInGb)
	set(&s.VolumeGB, b.VolumeInGb)
	set(&s.VolumePath, b.VolumeMountPath)
	set(&s.RegistryAuthID, b.RegistryAuthID)
	set(&s.Capabilities, b.Capabilities)
	set(&s.ModelCache, b.ModelCache)
	if b.Env != nil {
		env, err := pod.Restore(*b.Env, s.Env)
		if err != nil {
			return s, err
		}
		s.Env = env
	}
	return s, nil
}

// defaultPodName is RunPod's.
const defaultPodName = "my pod"

// pod is a new pod of the body, on top of the template's spec.
func (b *podBody) pod(id string, template pod.Template) (pod.Pod, error) {
	made := pod.Pod{ID: id, Name: defaultPodName, Driver: pod.Docker, TemplateID: template.ID, Spec: template.Spec}
	if b.Driver != nil && *b.Driver != "" {
		made.Driver = pod.Driver(*b.Driver)
	}
	set(&made.VolumeID, b.NetworkVolumeID)
	set(&made.Interruptible, b.Interruptible)
	set(&made.Spec.VolumeEncrypted, b.VolumeEncrypted)
	inherited := maps.Clone(template.Spec.Env)
	made, err := b.applyTo(made)
	if err != nil {
		return made, err
	}
	for name, value := range inherited {
		if _, own := made.Spec.Env[name]; !own {
			made.Spec.Env[name] = value
		}
	}
	return made, made.Check()
}

// applyTo returns p with what the body gives of what can be changed.
func (b *podBody) applyTo(p pod.Pod) (pod.Pod, error) {
	var err error
	set(&p.Name, b.Name)
	set(&p.Locked, b.Locked)
	if p.Spec, err = (*specBody)(&b.Spec).applyTo(p.Spec); err != nil {
		return p, err
	}
	set(&p.Spec.GPUs, b.GPUCount)
	set(&p.Spec.GPUTypes, b.GPUTypeIDs)
	if b.GPUCount == nil && p.Spec.GPUs == 0 && b.GPUTypeIDs != nil && len(*b.GPUTypeIDs) > 0 {
		p.Spec.GPUs = 1 // as on RunPod
	}
	set(&p.Spec.VCPUs, b.VCPUCount)
	set(&p.Spec.MemoryGB, b.MemoryInGb)
	return p, nil
}

// change is applyTo for a pod that there is; it refuses what is fixed.
func (b *podBody) change(p pod.Pod) (pod.Pod, error) {
	for _, fixed := range []struct {
		field string
		other bool
	}{
		{"driver", differs(b.Driver, string(p.Driver))},
		{"templateId", differs(b.TemplateID, p.TemplateID)},
		{"networkVolumeId", differs(b.NetworkVolumeID, p.VolumeID)},
		{"volumeEncrypted", differs(b.VolumeEncrypted, p.Spec.VolumeEncrypted)},
		{"interruptible", differs(b.Interruptible, p.Interruptible)},
	} {
		if fixed.other {
			return p, web.Errorf(web.PodConflict, "%s can be set when the pod is made only", fixed.field)
		}
	}
	if p.Status == pod.Terminated {
		return p, web.Errorf(web.PodConflict, "the pod is TERMINATED, and stays it")
	}
	changed, err := b.applyTo(p)
	if err != nil {
		return p, err
	}
	if (p.Endpoint != "" || p.Driver == "") && !sameSpec(p.Spec, changed.Spec) {
		return p, web.Errorf(web.PodConflict, "only name and locked of a worker's pod can be changed; what it is started from is its endpoint's, or its owner's")
	}
	return changed, changed.Check()
}

func differs[T comparable](given *T, present T) bool { return given != nil && *given != present }

// sameSpec compares the specs as they are stored, where an empty list is as good as none.
func sameSpec(a, b pod.Spec) bool {
	storedA, errA := json.Marshal(a)
	storedB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(storedA, storedB)
}

// podViewOf is the pod without what an include parameter asks for.
func podViewOf(p pod.Pod, catalog *pod.Catalog, now time.Time) api.Pod {
	view := api.Pod{
		ID: p.ID, Name: p.Name, Image: p.Spec.Image, ImageName: p.Spec.Image, DesiredStatus: p.Status,
		AIApiID: orNull(p.Endpoint), EndpointID: orNull(p.Endpoint), SLSVersion: p.EndpointVersion,
		ConsumerUserID: p.Owner, RegistryAuthID: p.Spec.RegistryAuthID,
		DockerEntrypoint: orEmpty(p.Spec.Entrypoint), DockerStartCmd: orEmpty(p.Spec.Command),
		CPUFlavorID: flavorOf(p, catalog),
		Env:         pod.Redact(p.Spec.Env), GPU: gpuOf(p, catalog), Interruptible: p.Interruptible,
		LastStartedAt: api.FormatTime(p.Started), LastStatusChange: p.Change + ": " + api.FormatTime(p.Changed), Locked: p.Locked,
		MachineID: p.MachineID, MemoryInGb: p.MemoryGB(), PortMappings: p.PortMappings, Ports: orEmpty(p.Spec.Ports),
		PublicIP: orNull(p.PublicIP), TemplateID: orNull(p.TemplateID), VCPUCount: p.VCPUs(),
		VolumeEncrypted: p.Spec.VolumeEncrypted, VolumeMountPath: p.Spec.VolumePath,
		Driver: p.Driver, CreatedAt: api.FormatTime(p.Created), Capabilities: p.Spec.Capabilities, ModelCache: p.Spec.ModelCache,
		Startup: api.StartupOf(p), Sleep: api.SleepOf(p),
	}
	if view.PortMappings == nil {
		view.PortMappings = map[int]int{}
	}
	if disk := diskOf(p); disk > 0 {
		view.ContainerDiskInGb = &disk
	}
	if p.Driver != "" { // else nobody told
		view.VolumeInGb = &p.Spec.VolumeGB
	}
	_, view.GPUCount = p.GPUs()
	view.CostPerHr, view.AdjustedCostPerHr = catalog.Cost(p, now)
	return view
}

// diskOf is the container's disk, or that of the machine if nothing limits it.
func diskOf(p pod.Pod) int {
	if p.Spec.DiskGB > 0 {
		return p.Spec.DiskGB
	}
	return int(p.Machine.DiskGB)
}

func plansOf(p pod.Pod, catalog *pod.Catalog, now time.Time) *[]api.SavingsPlan {
	kind, _ := p.GPUs()
	views := []api.SavingsPlan{}
	for _, plan := range catalog.Plans(p, now) {
		views = append(views, api.SavingsPlan{
			ID: plan.ID, PodID: p.ID, GPUTypeID: cmp.Or(plan.GPUTypeID, kind), CostPerHr: plan.CostPerHr,
			StartTime: api.FormatTime(plan.StartTime), EndTime: api.FormatTime(plan.EndTime),
		})
	}
	return &views
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// flavorOf is "" for a pod with GPUs.
func flavorOf(p pod.Pod, catalog *pod.Catalog) string {
	if _, gpus := p.GPUs(); gpus > 0 {
		return ""
	}
	return catalog.CPUType(p.Machine.CPU.Model).FlavorID
}

// gpuOf is nil for a pod without GPUs.
func gpuOf(p pod.Pod, catalog *pod.Catalog) *api.GPU {
	kind, count := p.GPUs()
	return gpuViewOf(kind, count, catalog)
}

func gpuViewOf(kind string, count int, catalog *pod.Catalog) *api.GPU {
	if count == 0 {
		return nil
	}
	t := catalog.GPUType(kind)
	t.DisplayName = cmp.Or(t.DisplayName, kind)
	return &api.GPU{ID: kind, Count: count, GPUType: t}
}

// machineOf is what is known of the pod's machine, nil if that is nothing.
func machineOf(p pod.Pod, all tally, catalog *pod.Catalog) *api.Machine {
	m := p.Machine
	place, placed := catalog.Place(p)
	if p.MachineID == "" && m.Hostname == "" && !placed {
		return nil
	}
	view := &api.Machine{
		MinPodGPUCount: place.MinPodGPUCount, Place: place, CPUCount: m.CPU.Threads, CPUTypeID: m.CPU.Model, CPUType: cpuTypeOf(m.CPU, catalog),
		Hostname: m.Hostname, OS: m.OS, Arch: m.Arch, Addresses: m.Addresses, MemoryInGb: m.MemoryGB, DiskInGb: m.DiskGB,
		GPUDriver: m.GPUDriver, Version: m.Version,
	}
	if len(m.GPUs) > 0 {
		view.GPUTypeID = m.GPUs[0].Name
		view.GPUType = gpuViewOf(view.GPUTypeID, len(m.GPUs), catalog)
		view.GPUDisplayName = view.GPUType.DisplayName
		view.CurrentPricePerGPU = catalog.GPUPrice(p)
		view.GPUAvailable = all.free(p)
	}
	return view
}

func cpuTypeOf(cpu pod.CPU, catalog *pod.Catalog) *api.CPUType {
	if cpu.Model == "" {
		return nil
	}
	t := catalog.CPUType(cpu.Model)
	view := &api.CPUType{ID: cpu.Model, DisplayName: cmp.Or(t.DisplayName, cpu.Model), Cores: cpu.Cores, GroupID: t.GroupID}
	if cpu.Cores > 0 {
		view.ThreadsPerCore = float64(cpu.Threads) / float64(cpu.Cores)
	}
	return view
}
