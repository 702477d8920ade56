package api

import "flightline/shared/pod"

// MachineInventory is a machine that runs pods, with its GPUs and its cached models.
type MachineInventory struct {
	// ID is the machineId of its pods.
	ID string `json:"id"`
	// Driver is what runs pods there: "process" or "docker".
	Driver   string       `json:"driver"`
	Hostname string       `json:"hostname,omitempty"`
	GPUs     []MachineGPU `json:"gpus"`
	// Models are those of its cache, by name.
	Models []pod.Model `json:"models"`
}

// MachineGPU is one GPU of a machine; what is not known is absent.
type MachineGPU struct {
	UUID     string `json:"uuid"`
	Vendor   string `json:"vendor,omitempty"`
	Name     string `json:"name,omitempty"`
	MemoryMb int    `json:"memoryMb,omitempty"`
	// DriverVersion is that of the GPU's driver, CUDAVersion the newest CUDA that it runs.
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	// Healthy is false if Problem says what is wrong.
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`
	// FreeShare is what no pod holds, 0 to 1.
	FreeShare float64    `json:"freeShare"`
	Claims    []GPUClaim `json:"claims"`
	// Quarantine is nil unless the GPU is quarantined or on probation.
	Quarantine *GPUQuarantine `json:"quarantine,omitempty"`
}

// The states of a quarantine.
const (
	// Quarantined GPUs get no pod until the deadline.
	Quarantined = "quarantined"
	// Probation is that of a GPU whose deadline is over: one pod at a time may try it.
	Probation = "probation"
)

// GPUQuarantine keeps pods off a GPU.
type GPUQuarantine struct {
	// State is Quarantined or Probation.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// By is "autoscaler" or "request".
	By    string `json:"by"`
	Since string `json:"since"`
	// Until is the deadline.
	Until string `json:"until"`
	// Count is how often in a row the autoscaler decided it.
	Count int `json:"count"`
}

// Quarantine asks for a quarantine of a GPU. Without DurationMs it lasts for
// pod.DefaultQuarantine.
type Quarantine struct {
	DurationMs *int64 `json:"durationMs,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// GPUClaim is a pod that holds a GPU, or a share of it.
type GPUClaim struct {
	PodID      string `json:"podId"`
	EndpointID string `json:"endpointId,omitempty"`
	// Share is more than 0 and at most 1, by memory.
	Share     float64 `json:"share"`
	ClaimedAt string  `json:"claimedAt"`
}
