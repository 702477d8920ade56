package api

import "flightline/shared/pod"

// Spec is what pods and templates are made from. What is null or missing
// stays as it is.
type Spec struct {
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
	ModelCache        *[]string          `json:"modelCache"`
}

// PodSpec makes or changes a pod. Unknown fields are RunPod's: they pass.
type PodSpec struct {
	Spec
	Driver          *string `json:"driver"`
	TemplateID      *string `json:"templateId"`
	NetworkVolumeID *string `json:"networkVolumeId"`
	GPUCount        *int    `json:"gpuCount"`
	// GPUTypeIDs are the kinds of GPU that the pod asks for.
	GPUTypeIDs      *[]string `json:"gpuTypeIds"`
	VCPUCount       *float64  `json:"vcpuCount"`
	MemoryInGb      *float64  `json:"memoryInGb"`
	VolumeEncrypted *bool     `json:"volumeEncrypted"`
	Interruptible   *bool     `json:"interruptible"`
	Locked          *bool     `json:"locked"`
}

// Pod is a pod as the contract shows it, and after that what is ours. What
// is not known is absent, or null or empty where the contract says so.
type Pod struct {
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
	GPU               *GPU              `json:"gpu,omitempty"`
	Interruptible     bool              `json:"interruptible"`
	LastStartedAt     string            `json:"lastStartedAt,omitempty"`
	LastStatusChange  string            `json:"lastStatusChange"`
	Locked            bool              `json:"locked"`
	Machine           *Machine          `json:"machine,omitempty"`
	MachineID         string            `json:"machineId,omitempty"`
	MemoryInGb        float64           `json:"memoryInGb,omitempty"`
	NetworkVolume     *Volume           `json:"networkVolume,omitempty"`
	PortMappings      map[int]int       `json:"portMappings"`
	Ports             []string          `json:"ports"`
	PublicIP          *string           `json:"publicIp"`
	SavingsPlans      *[]SavingsPlan    `json:"savingsPlans,omitempty"`
	Template          *Template         `json:"template,omitempty"`
	TemplateID        *string           `json:"templateId"`
	VCPUCount         float64           `json:"vcpuCount,omitempty"`
	VolumeEncrypted   bool              `json:"volumeEncrypted"`
	VolumeInGb        *int              `json:"volumeInGb,omitempty"`
	VolumeMountPath   string            `json:"volumeMountPath,omitempty"`

	// Driver is "" if the pod's owner runs it.
	Driver    pod.Driver `json:"driver"`
	CreatedAt string     `json:"createdAt"`
	// Startup is how its last start went, absent before, and of a pod that its owner runs.
	Startup *Startup `json:"startup,omitempty"`
	// Sleep is absent while its worker is awake.
	Sleep *Sleep `json:"sleep,omitempty"`
	// Capabilities are those that a container keeps.
	Capabilities []string `json:"capabilities,omitempty"`
	// ModelCache are the models for which it uses the cache of its machine.
	ModelCache []string `json:"modelCache,omitempty"`
	// ImageName is Image, and GPUCount is GPU.Count, where runpodctl reads them.
	ImageName string `json:"imageName,omitempty"`
	GPUCount  int    `json:"gpuCount,omitempty"`
}

// SavingsPlan is a savings plan of one pod.
type SavingsPlan struct {
	ID        string  `json:"id"`
	PodID     string  `json:"podId"`
	GPUTypeID string  `json:"gpuTypeId"`
	CostPerHr float64 `json:"costPerHr"`
	StartTime string  `json:"startTime"`
	EndTime   string  `json:"endTime"`
}

// GPU is one kind of GPU with how many there are, and prices in credits.
type GPU struct {
	ID    string `json:"id,omitempty"`
	Count int    `json:"count"`
	pod.GPUType
}

// Machine is the contract's Machine, and after that what is ours.
type Machine struct {
	MinPodGPUCount *int     `json:"minPodGpuCount,omitempty"` // Place's, which is hidden
	GPUTypeID      string   `json:"gpuTypeId,omitempty"`
	GPUType        *GPU     `json:"gpuType,omitempty"`
	CPUCount       int      `json:"cpuCount,omitempty"`
	CPUTypeID      string   `json:"cpuTypeId,omitempty"`
	CPUType        *CPUType `json:"cpuType,omitempty"`
	pod.Place
	CurrentPricePerGPU *float64 `json:"currentPricePerGpu,omitempty"`
	GPUAvailable       *int     `json:"gpuAvailable,omitempty"`
	GPUDisplayName     string   `json:"gpuDisplayName,omitempty"`

	Hostname   string   `json:"hostname,omitempty"`
	OS         string   `json:"os,omitempty"`
	Arch       string   `json:"arch,omitempty"`
	Addresses  []string `json:"addresses,omitempty"`
	MemoryInGb float64  `json:"memoryInGb,omitempty"`
	DiskInGb   float64  `json:"diskInGb,omitempty"`
	GPUDriver  string   `json:"gpuDriver,omitempty"`
	Version    string   `json:"version,omitempty"`
}

// CPUType is a kind of processor.
type CPUType struct {
	ID             string  `json:"id"`
	DisplayName    string  `json:"displayName"`
	Cores          int     `json:"cores,omitempty"`
	ThreadsPerCore float64 `json:"threadsPerCore,omitempty"`
	GroupID        string  `json:"groupId,omitempty"`
}

// TemplateSpec makes or changes a template. Unknown fields are RunPod's: they pass.
type TemplateSpec struct {
	Spec
	IsServerless *bool   `json:"isServerless"`
	Category     *string `json:"category"`
	Readme       *string `json:"readme"`
}

// Template is a template as RunPod's REST API shows it.
type Template struct {
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Capabilities      []string          `json:"capabilities,omitempty"`
	Category          string            `json:"category,omitempty"`
	ContainerDiskInGb int               `json:"containerDiskInGb"`
	RegistryAuthID    string            `json:"containerRegistryAuthId,omitempty"`
	DockerEntrypoint  []string          `json:"dockerEntrypoint"`
	DockerStartCmd    []string          `json:"dockerStartCmd"`
	Earned            float64           `json:"earned"`
	Env               map[string]string `json:"env"`
	ImageName         string            `json:"imageName,omitempty"`
	IsPublic          bool              `json:"isPublic"`
	IsRunpod          bool              `json:"isRunpod"`
	IsServerless      bool              `json:"isServerless"`
	ModelCache        []string          `json:"modelCache,omitempty"`
	Ports             []string          `json:"ports"`
	Readme            string            `json:"readme"`
	// RuntimeInMin is how long the pods of it that there still are have run
	// since their last start.
	RuntimeInMin    int    `json:"runtimeInMin"`
	VolumeInGb      int    `json:"volumeInGb"`
	VolumeMountPath string `json:"volumeMountPath"`
}

// VolumeSpec makes or changes a network volume.
type VolumeSpec struct {
	Name         *string `json:"name"`
	Size         *int    `json:"size"`
	DataCenterID *string `json:"dataCenterId"`
	Path         *string `json:"path"`
}

// Volume is storage that outlives pods.
type Volume struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Size is in GB.
	Size       int    `json:"size"`
	DataCenter string `json:"dataCenterId"`
	// Path is where it is on the hosts, "" if a driver decides.
	Path string `json:"path,omitempty"`
}
