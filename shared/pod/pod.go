// Package pod says what a pod is: one container or process that runs a worker,
// the machine beneath it, and the templates and volumes it is made from. It
// imports the standard library only.
package pod

import (
	"errors"
	"regexp"
	"time"
)

// Pod is what is known of one pod, alive or gone. A worker is a pod: the id of
// the worker is the pod's. A zero value of an optional field means that it is
// not known, and is left out of answers.
type Pod struct {
	// ID matches [A-Za-z0-9_-]{1,128}.
	ID string `json:"id"`
	// Name has at most 191 characters and need not be unique.
	Name string `json:"name"`
	// Status is what the pod should be, and by what is known of it is.
	Status Status `json:"status"`
	// Endpoint is the id of the endpoint whose worker this is, "" for a pod
	// that works for none. EndpointVersion is the version it was started with.
	Endpoint        string `json:"endpoint,omitempty"`
	EndpointVersion int    `json:"endpointVersion,omitempty"`
	// Owner is the id of the API key by which it was made, "" if it was not made
	// by request.
	Owner string `json:"owner,omitempty"`
	// Driver runs the pod; "" means that its owner does, and nothing here
	// starts or stops it.
	Driver Driver `json:"driver,omitempty"`
	// Spec is what it is started from.
	Spec Spec `json:"spec,omitzero"`
	// TemplateID and VolumeID are "" if it was made without.
	TemplateID string `json:"templateId,omitempty"`
	VolumeID   string `json:"volumeId,omitempty"`
	// Locked pods are neither stopped nor reset by request.
	Locked bool `json:"locked,omitempty"`
	// Interruptible pods may be stopped at any time.
	Interruptible bool `json:"interruptible,omitempty"`
	// MachineID is the id of the machine that it runs on, "" before it is known.
	MachineID string `json:"machineId,omitempty"`
	// Machine is what that machine is, as far as it could find out.
	Machine Machine `json:"machine,omitzero"`
	// PublicIP and PortMappings (internal to public) are empty while the pod initialises.
	PublicIP     string      `json:"publicIp,omitempty"`
	PortMappings map[int]int `json:"portMappings,omitempty"`
	// Starts counts the requests to start it again: what its driver has of a
	// lower number is an earlier life, and ends.
	Starts int `json:"starts,omitempty"`
	// Expires means that the record expires unless it is written again. The registry sets it.
	Expires bool `json:"expires,omitempty"`
	// Created, Started (the last start) and Changed are server times; Started
	// is zero before the first.
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	Changed time.Time `json:"changed"`
	// Change tells in words what happened at Changed, By as what; By is "" of
	// pods that have only been made.
	Change string  `json:"change"`
	By     Trigger `json:"by,omitempty"`
	// Cut are the ids of the jobs that its worker said it held when its driver
	// ended it by request. Gateways give them back.
	Cut []string `json:"cut,omitempty"`
	// Drain asks its worker to end once it has no job.
	Drain Drain `json:"drain,omitzero"`
}

// Failed reports whether the pod ended and nobody had asked it to.
func (p Pod) Failed() bool { return p.Status == Exited && (p.By == Exit || p.By == "") }

// Spec is what a pod is started from.
type Spec struct {
	// Image is the container's, "" for a process.
	Image string `json:"image,omitempty"`
	// Entrypoint and Command override the image's; for a process Command is what runs.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Command    []string `json:"command,omitempty"`
	// Env is what the owner set; secrets of it are shown to nobody.
	Env map[string]string `json:"env,omitempty"`
	// Ports are "<port>/<http or tcp>".
	Ports []string `json:"ports,omitempty"`
	// GPUs, VCPUs and MemoryGB are the limits, 0 for none.
	GPUs     int     `json:"gpus,omitempty"`
	VCPUs    float64 `json:"vcpus,omitempty"`
	MemoryGB float64 `json:"memoryGb,omitempty"`
	// Capabilities are those of Linux that a container keeps, as "CHOWN" or "ALL";
	// it has none of the others. The machine's operator says which may be asked for.
	Capabilities []string `json:"capabilities,omitempty"`
	// DiskGB is the container's disk; VolumeGB the pod's volume, mounted at VolumePath.
	DiskGB          int    `json:"diskGb,omitempty"`
	VolumeGB        int    `json:"volumeGb,omitempty"`
	VolumePath      string `json:"volumePath,omitempty"`
	VolumeEncrypted bool   `json:"volumeEncrypted,omitempty"`
	// RegistryAuthID names the credentials for the image.
	RegistryAuthID string `json:"registryAuthId,omitempty"`
}

// Driver is what runs a pod.
type Driver string

// The drivers.
const (
	// Process runs the endpoint's command on the host of the autoscaler.
	Process Driver = "process"
	// Docker runs the image by a Docker engine.
	Docker Driver = "docker"
	// External starts nothing: somebody else reads the wanted number.
	External Driver = "external"
)

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// ValidID reports whether id may name a pod.
func ValidID(id string) bool { return validID.MatchString(id) }

// Errors of pods, templates and volumes.
var (
	// ErrNotFound means that there is none of that id.
	ErrNotFound = errors.New("pod: not found")
	// ErrInvalid is what every FieldError unwraps to.
	ErrInvalid = errors.New("pod: invalid")
	// ErrConflict means that the pod's status does not allow it.
	ErrConflict = errors.New("pod: not possible in this status")
	// ErrLocked means that the pod is locked.
	ErrLocked = errors.New("pod: locked")
)
