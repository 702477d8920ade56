package pod

import (
	"time"
)

// Template is what pods and endpoints can be made from.
type Template struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Spec Spec   `json:"spec"`
	// Serverless templates are for endpoints.
	Serverless bool `json:"serverless,omitempty"`
	// Category is "NVIDIA", "AMD" or "CPU"; Readme is text for people.
	Category string    `json:"category,omitempty"`
	Readme   string    `json:"readme,omitempty"`
	Created  time.Time `json:"created"`
}

// Volume is a network volume: storage that outlives pods.
type Volume struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	SizeGB       int    `json:"sizeGb"`
	DataCenterID string `json:"dataCenterId"`
	// Path is where it is on the hosts, for drivers that mount it.
	Path    string    `json:"path,omitempty"`
	Created time.Time `json:"created"`
}

// Machine is what a pod runs on, as far as it could find out; a zero value
// means unknown.
type Machine struct {
	// Hostname of the host or container.
	Hostname string `json:"hostname,omitempty"`
	// OS and Arch are spelled as Go spells them.
	OS   string `json:"os,omitempty"`
	Arch string `json:"arch,omitempty"`
	CPU  CPU    `json:"cpu,omitzero"`
	// VCPUs and MemoryGB (2^30 bytes) are the host's, or the container's limit
	// if that is less.
	VCPUs    float64 `json:"vcpus,omitempty"`
	MemoryGB float64 `json:"memoryGb,omitempty"`
	// DiskGB is the size of the file system that the worker runs in.
	DiskGB float64 `json:"diskGb,omitempty"`
	// Addresses are those of the host that are neither loopback nor link-local.
	Addresses []string `json:"addresses,omitempty"`
	GPUs      []GPU    `json:"gpus,omitempty"`
	// GPUDriver is the version of the GPU driver.
	GPUDriver string `json:"gpuDriver,omitempty"`
	// Version is that of the worker's program.
	Version string `json:"version,omitempty"`
}

// CPU is the host's processor.
type CPU struct {
	Model  string `json:"model,omitempty"`
	Vendor string `json:"vendor,omitempty"`
	// Cores are physical, of all sockets; Threads logical.
	Cores   int `json:"cores,omitempty"`
	Threads int `json:"threads,omitempty"`
}

// Vendors of accelerators that drivers know how to give to a pod. Others are given by
// their UUID in FLIGHTLINE_GPU_UUIDS alone.
const (
	NVIDIA = "nvidia"
	AMD    = "amd"
)

// GPU is one accelerator, as far as its machine could find out; a zero value means
// unknown.
type GPU struct {
	Name string `json:"name"`
	// UUID is the same on every machine and after a restart. A GPU without one cannot
	// be claimed.
	UUID     string  `json:"uuid,omitempty"`
	MemoryGB float64 `json:"memoryGb,omitempty"`
	// Vendor is NVIDIA, AMD or another name in lower case.
	Vendor string `json:"vendor,omitempty"`
	// MemoryMB is the memory in units of 2^20 bytes.
	MemoryMB int `json:"memoryMb,omitempty"`
	// Driver is the version of its driver, CUDA the newest CUDA that this runs, as "12.4".
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// Health says what is wrong, "" for nothing that is known.
	Health string `json:"health,omitempty"`
}
