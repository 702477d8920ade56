// Package pod says what a pod is: one container or process that runs a worker,
// the machine beneath it, and the templates and volumes it is made from. It
// imports the standard library only.
package pod

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	// that works for none. EndpointVersion is the endpoint.Endpoint.ReleaseVersion that
	// it was started from.
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
	// Devices are the UUIDs of the GPUs that were chosen for it. It holds them once they
	// are claimed, which is before it starts (docs/adr/0061).
	Devices []string `json:"devices,omitempty"`
	// MissingModels are those of Spec.ModelCache that its machine did not have when it was
	// chosen.
	MissingModels []string `json:"missingModels,omitempty"`
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
	// Refreshed is when its worker last ended a job and restarted itself.
	Refreshed time.Time `json:"refreshed,omitzero"`
	// Phases says how its last start went, if a driver started it.
	Phases Phases `json:"phases,omitzero"`
	// Change says in words what happened at Changed, By as what; By is "" of
	// pods that have only been made.
	Change string  `json:"change"`
	By     Trigger `json:"by,omitempty"`
	// Cut are the ids of the jobs that its worker said it held when its driver ended it by
	// request, or saw that it had ended. Gateways give them back.
	Cut []string `json:"cut,omitempty"`
	// Gone is when its driver saw that it had ended, with all of its processes, and had held a
	// job, or failed: its worker holds none any more, whatever is on record. It is zero while
	// that is not known, and of a worker that left nothing.
	Gone time.Time `json:"gone,omitzero"`
	// Drain asks its worker to end once it has no job.
	Drain Drain `json:"drain,omitzero"`
	// Sleep asks its worker to sleep, or to wake again. A start ends it.
	Sleep Sleep `json:"sleep,omitzero"`
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
	// GPUTypes are the kinds of GPU that were asked for, as their driver spells
	// them; nil for any.
	GPUTypes []string `json:"gpuTypes,omitempty"`
	// MinVRAMGB is the memory of the GPU (2^30 bytes) that the pod needs, MinCUDA the
	// oldest CUDA that will do, as "12.4"; 0 and "" for any. GPUShare is the part of one
	// GPU that it gets, by memory, 0.25 to 1; 0 is all of it.
	MinVRAMGB float64 `json:"minVramGb,omitempty"`
	MinCUDA   string  `json:"minCuda,omitempty"`
	GPUShare  float64 `json:"gpuShare,omitempty"`
	// Capabilities are those of Linux that a container keeps, as "CHOWN" or "ALL";
	// it has none of the others. The machine's operator says which may be asked for.
	Capabilities []string `json:"capabilities,omitempty"`
	// DiskGB is the container's disk; VolumeGB the pod's volume, mounted at VolumePath.
	DiskGB          int    `json:"diskGb,omitempty"`
	VolumeGB        int    `json:"volumeGb,omitempty"`
	VolumePath      string `json:"volumePath,omitempty"`
	VolumeEncrypted bool   `json:"volumeEncrypted,omitempty"`
	// ModelCache are the models, as "Qwen/Qwen3-8B", for which the pod uses the cache of its
	// machine; nil means that it does not have the cache.
	ModelCache []string `json:"modelCache,omitempty"`
	// RegistryAuthID names the credentials for the image.
	RegistryAuthID string `json:"registryAuthId,omitempty"`
}

// initTimeoutVariable is RunPod's, by which an owner says how long a worker may load.
const initTimeoutVariable = "RUNPOD_INIT_TIMEOUT"

// InitTimeout is how long a worker may take from its start until it asks for a job: the
// whole seconds of RUNPOD_INIT_TIMEOUT in Env, 1 s to MaxInitTimeout; 0 if Env does not say.
func (s Spec) InitTimeout() time.Duration { return initTimeoutOf(s.Env[initTimeoutVariable]) }

// initTimeoutOf reads the value of the variable; 0 if it is none.
func initTimeoutOf(value string) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 32)
	if most := uint64(MaxInitTimeout / time.Second); err != nil || seconds > most {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// Driver is what runs a pod.
type Driver string

// The drivers.
const (
	// Process runs the endpoint's command on the host of the autoscaler.
	Process Driver = "process"
	// Docker runs the image by a Docker engine.
	Docker Driver = "docker"
	// External is of endpoints only, and starts nothing: somebody else reads the wanted number.
	External Driver = "external"
)

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// ValidID reports whether id may name a pod, and so a worker, or an instance of a service.
func ValidID(id string) bool { return validID.MatchString(id) }

// Errors of pods, templates and volumes.
var (
	// ErrNotFound means that no pod, template or volume has the id.
	ErrNotFound = errors.New("pod: not found")
	// ErrInvalid is what every FieldError unwraps to.
	ErrInvalid = errors.New("pod: invalid")
	// ErrConflict means that the pod's status does not allow it.
	ErrConflict = errors.New("pod: not possible in this status")
	// ErrLocked means that the pod is locked.
	ErrLocked = errors.New("pod: locked")
)

// Status is desiredStatus of the contract.
type Status string

// The statuses.
const (
	Running    Status = "RUNNING"
	Exited     Status = "EXITED"
	Terminated Status = "TERMINATED"
)

// Trigger is what happens to a pod.
type Trigger string

// The triggers.
const (
	// Start is a request to run again.
	Start Trigger = "start"
	// Restart is a request to end what runs and to run again, in one write.
	Restart Trigger = "restart"
	// Stop is a request to stop.
	Stop Trigger = "stop"
	// Exit is that it ended by itself, or vanished.
	Exit Trigger = "exit"
	// Leave is that its worker was done, and said so.
	Leave Trigger = "leave"
	// Remove is its deletion.
	Remove Trigger = "remove"
)

// transitions is the table.
var transitions = map[Status]map[Trigger]Status{
	Running: {Start: Running, Restart: Running, Stop: Exited, Exit: Exited, Leave: Exited, Remove: Terminated},
	Exited:  {Start: Running, Restart: Running, Stop: Exited, Exit: Exited, Leave: Exited, Remove: Terminated},
	// A pod that is gone stays gone.
	Terminated: {Exit: Terminated, Leave: Terminated, Remove: Terminated},
}

// Next is the status after the trigger, or a *TransitionError, which is an
// ErrConflict.
func (s Status) Next(by Trigger) (Status, error) {
	next, ok := transitions[s][by]
	if !ok {
		return s, &TransitionError{From: s, By: by}
	}
	return next, nil
}

// TransitionError says that a trigger is not possible in a status.
type TransitionError struct {
	From Status
	By   Trigger
}

func (e *TransitionError) Error() string { return fmt.Sprintf("pod: cannot %s while %s", e.By, e.From) }

// Unwrap makes errors.Is(err, ErrConflict) hold.
func (e *TransitionError) Unwrap() error { return ErrConflict }

// Drain asks the worker of a pod to take no more jobs, to finish those that it
// runs, and to leave. The zero value asks for nothing. A worker over NATS
// reads it here; a worker over HTTP gets no more jobs.
type Drain struct {
	// At is when it was asked, in server time.
	At time.Time `json:"at,omitzero"`
	// Why is the reason, for people.
	Why string `json:"why,omitempty"`
}

// Drains reports whether a worker that began at began is to drain. What was
// asked of an earlier life of it is past, unless a driver runs the pod: that
// starts no worker that is to drain.
func (p Pod) Drains(began time.Time) bool {
	return !p.Drain.At.IsZero() && (p.Driver != "" || !p.Drain.At.Before(began))
}

// Worker is what the environment of a worker is made from that is built on
// RunPod's SDK.
type Worker struct {
	// BaseURL is where it reaches the gateway, as "http://host:port".
	BaseURL string
	// Endpoint and ID are ids; the worker's is that of its pod.
	Endpoint, ID string
	// Token lets it in.
	Token string
	// PingInterval is how often it should ping, in whole milliseconds.
	PingInterval time.Duration
	// Env is set besides. What the platform sets itself wins.
	Env map[string]string
}

// Variable is one of an environment.
type Variable struct{ Name, Value string }

// WorkerEnvironment is the whole environment that a worker needs: first what
// RunPod's SDK reads, then Env by name. The addresses have the worker's id in
// them and need a ?, since the SDK appends its parameters; it puts the job's id
// in place of $ID.
func WorkerEnvironment(w Worker) []Variable {
	at := func(operation, rest string) string {
		return fmt.Sprintf("%s/v2/%s/%s/%s%s?gpu=any", strings.TrimRight(w.BaseURL, "/"), w.Endpoint, operation, w.ID, rest)
	}
	all := []Variable{
		{"RUNPOD_WEBHOOK_GET_JOB", at("job-take", "")},
		{"RUNPOD_WEBHOOK_POST_OUTPUT", at("job-done", "/$ID")},
		{"RUNPOD_WEBHOOK_POST_STREAM", at("job-stream", "/$ID")},
		{"RUNPOD_WEBHOOK_PING", at("ping", "")},
		{"RUNPOD_PING_INTERVAL", fmt.Sprint(w.PingInterval.Milliseconds())},
		{"RUNPOD_AI_API_KEY", w.Token},
		{"RUNPOD_POD_ID", w.ID},
		{"RUNPOD_ENDPOINT_ID", w.Endpoint},
	}
	for _, v := range []Variable{
		{"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS", "true"},
		{"RUNPOD_LOG_LEVEL", "INFO"},
		{"RUNPOD_DEBUG_LEVEL", "INFO"},
	} {
		if _, own := w.Env[v.Name]; !own {
			all = append(all, v)
		}
	}
	given := len(all)
	for _, name := range slices.Sorted(maps.Keys(w.Env)) {
		if !slices.ContainsFunc(all[:given], func(v Variable) bool { return v.Name == name }) {
			all = append(all, Variable{name, w.Env[name]})
		}
	}
	return all
}
