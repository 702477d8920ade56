package control

import (
	"maps"
	"slices"

	"flightline/shared/pod"
	"flightline/shared/web"
)

// specBody is what pods and templates are made from. What is null or missing
// stays as it is.
type specBody struct {
	Name              *string            `json:"name"`
	ImageName         *string            `json:"imageName"`
	DockerEntrypoint  *[]string          `json:"dockerEntrypoint"`
	DockerStartCmd    *[]string          `json:"dockerStartCmd"`
	Env               *map[string]string `json:"env"`
	Ports             *[]string          `json:"ports"`
	ContainerDiskInGb *int               `json:"containerDiskInGb"`
	VolumeInGb        *int               `json:"volumeInGb"`
	VolumeMountPath   *string            `json:"volumeMountPath"`
	RegistryAuthID    *string            `json:"containerRegistryAuthId"`
	Capabilities      *[]string          `json:"capabilities"`
}

// onto returns s with what the body gives. A variable that is sent as it was
// shown, hidden, keeps its value.
func (b *specBody) onto(s pod.Spec) (pod.Spec, error) {
	set(&s.Image, b.ImageName)
	set(&s.Entrypoint, b.DockerEntrypoint)
	set(&s.Command, b.DockerStartCmd)
	set(&s.Ports, b.Ports)
	set(&s.DiskGB, b.ContainerDiskInGb)
	set(&s.VolumeGB, b.VolumeInGb)
	set(&s.VolumePath, b.VolumeMountPath)
	set(&s.RegistryAuthID, b.RegistryAuthID)
	set(&s.Capabilities, b.Capabilities)
	if b.Env != nil {
		env, err := pod.Restore(*b.Env, s.Env)
		if err != nil {
			return s, err
		}
		s.Env = env
	}
	return s, nil
}

// podBody makes or changes a pod. Unknown fields are RunPod's: they pass.
type podBody struct {
	specBody
	Driver          *string  `json:"driver"`
	TemplateID      *string  `json:"templateId"`
	NetworkVolumeID *string  `json:"networkVolumeId"`
	GPUCount        *int     `json:"gpuCount"`
	VCPUCount       *float64 `json:"vcpuCount"`
	MemoryInGb      *float64 `json:"memoryInGb"`
	VolumeEncrypted *bool    `json:"volumeEncrypted"`
	Interruptible   *bool    `json:"interruptible"`
	Locked          *bool    `json:"locked"`
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
	made, err := b.onto(made)
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

// onto returns p with what the body gives of what can be changed.
func (b *podBody) onto(p pod.Pod) (pod.Pod, error) {
	var err error
	set(&p.Name, b.Name)
	set(&p.Locked, b.Locked)
	if p.Spec, err = b.specBody.onto(p.Spec); err != nil {
		return p, err
	}
	set(&p.Spec.GPUs, b.GPUCount)
	set(&p.Spec.VCPUs, b.VCPUCount)
	set(&p.Spec.MemoryGB, b.MemoryInGb)
	return p, nil
}

// change is onto for a pod that there is; it refuses what is fixed.
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
			return p, web.Errorf(web.InvalidRequest, "%s can be set when the pod is made only", fixed.field)
		}
	}
	if p.Status == pod.Terminated {
		return p, web.Errorf(web.PodConflict, "the pod is TERMINATED, and stays it")
	}
	changed, err := b.onto(p)
	if err != nil {
		return p, err
	}
	if (p.Endpoint != "" || p.Driver == "") && !sameSpec(p.Spec, changed.Spec) {
		return p, web.Errorf(web.PodConflict, "only name and locked of a worker's pod can be changed; what it is started from is its endpoint's, or its owner's")
	}
	return changed, checkChanged(changed)
}

// checkChanged leaves out what Check wants of pods that a driver runs.
func checkChanged(p pod.Pod) error {
	if p.Driver == pod.External {
		p.Driver = ""
	}
	return p.Check()
}

func differs[T comparable](given *T, present T) bool { return given != nil && *given != present }

func sameSpec(a, b pod.Spec) bool {
	return a.Image == b.Image && slices.Equal(a.Entrypoint, b.Entrypoint) && slices.Equal(a.Command, b.Command) &&
		maps.Equal(a.Env, b.Env) && slices.Equal(a.Ports, b.Ports) && a.GPUs == b.GPUs && a.VCPUs == b.VCPUs &&
		a.MemoryGB == b.MemoryGB && a.DiskGB == b.DiskGB && a.VolumeGB == b.VolumeGB && a.VolumePath == b.VolumePath &&
		a.RegistryAuthID == b.RegistryAuthID && slices.Equal(a.Capabilities, b.Capabilities)
}
