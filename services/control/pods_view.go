package control

import (
	"time"

	"flightline/shared/pod"
	"flightline/shared/web"
)

// podView is a pod as the contract shows it, and after that what is ours. What
// is not known is absent, or null or empty where the contract says so.
type podView struct {
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Image             string            `json:"image,omitempty"`
	DesiredStatus     pod.Status        `json:"desiredStatus"`
	AdjustedCostPerHr *float64          `json:"adjustedCostPerHr,omitempty"`
	CostPerHr         *float64          `json:"costPerHr,omitempty"`
	AIApiID           *string           `json:"aiApiId"`
	EndpointID        *string           `json:"endpointId"`
	SLSVersion        int               `json:"slsVersion,omitempty"`
	ConsumerUserID    string            `json:"consumerUserId,omitempty"`
	ContainerDiskInGb *int              `json:"containerDiskInGb,omitempty"`
	RegistryAuthID    string            `json:"containerRegistryAuthId,omitempty"`
	CPUFlavorID       string            `json:"cpuFlavorId,omitempty"`
	DockerEntrypoint  []string          `json:"dockerEntrypoint"`
	DockerStartCmd    []string          `json:"dockerStartCmd"`
	Env               map[string]string `json:"env"`
	GPU               *gpuView          `json:"gpu,omitempty"`
	Interruptible     bool              `json:"interruptible"`
	LastStartedAt     string            `json:"lastStartedAt,omitempty"`
	LastStatusChange  string            `json:"lastStatusChange"`
	Locked            bool              `json:"locked"`
	Machine           *machineView      `json:"machine,omitempty"`
	MachineID         string            `json:"machineId,omitempty"`
	MemoryInGb        float64           `json:"memoryInGb,omitempty"`
	NetworkVolume     *volumeView       `json:"networkVolume,omitempty"`
	PortMappings      map[int]int       `json:"portMappings"`
	Ports             []string          `json:"ports"`
	PublicIP          *string           `json:"publicIp"`
	SavingsPlans      *[]planView       `json:"savingsPlans,omitempty"`
	Template          *templateView     `json:"template,omitempty"`
	TemplateID        *string           `json:"templateId"`
	VCPUCount         float64           `json:"vcpuCount,omitempty"`
	VolumeEncrypted   bool              `json:"volumeEncrypted"`
	VolumeInGb        *int              `json:"volumeInGb,omitempty"`
	VolumeMountPath   string            `json:"volumeMountPath,omitempty"`

	// Driver is "" if the pod's owner runs it.
	Driver    pod.Driver `json:"driver"`
	CreatedAt string     `json:"createdAt"`
	// Capabilities are those that a container keeps.
	Capabilities []string `json:"capabilities,omitempty"`
}

// planView is a savings plan of one pod.
type planView struct {
	ID        string  `json:"id"`
	PodID     string  `json:"podId"`
	GPUTypeID string  `json:"gpuTypeId"`
	CostPerHr float64 `json:"costPerHr"`
	StartTime string  `json:"startTime"`
	EndTime   string  `json:"endTime"`
}

// podViewOf is the pod without what an include parameter asks for.
func podViewOf(p pod.Pod, catalog *pod.Catalog, now time.Time) podView {
	view := podView{
		ID: p.ID, Name: p.Name, Image: p.Spec.Image, DesiredStatus: p.Status,
		AIApiID: orNull(p.Endpoint), EndpointID: orNull(p.Endpoint), SLSVersion: p.EndpointVersion,
		ConsumerUserID: p.Owner, RegistryAuthID: p.Spec.RegistryAuthID,
		DockerEntrypoint: orEmpty(p.Spec.Entrypoint), DockerStartCmd: orEmpty(p.Spec.Command),
		CPUFlavorID: flavorOf(p, catalog),
		Env:         pod.Redact(p.Spec.Env), GPU: gpuOf(p, catalog), Interruptible: p.Interruptible,
		LastStartedAt: web.Stamp(p.Started), LastStatusChange: p.Change + ": " + web.Stamp(p.Changed), Locked: p.Locked,
		MachineID: p.MachineID, MemoryInGb: p.MemoryGB(), PortMappings: p.PortMappings, Ports: orEmpty(p.Spec.Ports),
		PublicIP: orNull(p.PublicIP), TemplateID: orNull(p.TemplateID), VCPUCount: p.VCPUs(),
		VolumeEncrypted: p.Spec.VolumeEncrypted, VolumeMountPath: p.Spec.VolumePath,
		Driver: p.Driver, CreatedAt: web.Stamp(p.Created), Capabilities: p.Spec.Capabilities,
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

func plansOf(p pod.Pod, catalog *pod.Catalog, now time.Time) *[]planView {
	kind, _ := p.GPUs()
	views := []planView{}
	for _, plan := range catalog.Plans(p, now) {
		view := planView{
			ID: plan.ID, PodID: p.ID, GPUTypeID: plan.GPUTypeID, CostPerHr: plan.CostPerHr,
			StartTime: web.Stamp(plan.StartTime), EndTime: web.Stamp(plan.EndTime),
		}
		if view.GPUTypeID == "" {
			view.GPUTypeID = kind
		}
		views = append(views, view)
	}
	return &views
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
