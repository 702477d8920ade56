package api

import "time"

// WorkerSpec is a worker to admit. Without an ID the server chooses one.
type WorkerSpec struct {
	ID *string `json:"id,omitempty"`
}

// Worker is a worker that was admitted with a token of its own, or that lives and
// speaks NATS.
type Worker struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	// Protocol is "http" or "nats".
	Protocol string `json:"protocol"`
	// State is "initializing", "idle", "running", "throttled", "unhealthy" or "sleeping" by its
	// last ping, "" without a recent one.
	State string `json:"state,omitempty"`
	// Running are the ids of the jobs it holds.
	Running []string `json:"running"`
	// Draining means that it gets no more jobs.
	Draining bool `json:"draining"`
	// Startup is how it started, if the autoscaler started it.
	Startup *Startup `json:"startup,omitempty"`
	// Last4 are the last characters of the token, "" for a worker that speaks NATS.
	Last4   string    `json:"last4"`
	Created time.Time `json:"createdAt"`
	// PingIntervalMs is how often it should ping, in milliseconds.
	PingIntervalMs int64 `json:"pingIntervalMs"`
	// Token is the token itself. Only the answer that makes it has it.
	Token string `json:"token,omitempty"`
	// Env is what the endpoint sets for its workers, secrets included. Only the answer
	// that makes the token has it.
	Env map[string]string `json:"env,omitempty"`
}

// LivingWorkers is a page of the workers that live, by endpoint and id.
type LivingWorkers struct {
	Workers []LivingWorker `json:"workers"`
	// Cursor brings the next page, if there is one.
	Cursor string `json:"cursor,omitempty"`
}

// LivingWorker is a worker as its last heartbeat shows it. Instants are RFC 3339 in UTC.
type LivingWorker struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	// Protocol is "http" or "nats".
	Protocol string `json:"protocol"`
	// State is "initializing", "idle", "running", "throttled", "unhealthy" or "sleeping".
	State string `json:"state"`
	// Concurrency is how many jobs it takes at once.
	Concurrency int `json:"concurrency"`
	// Running are the ids of the jobs that it holds.
	Running []string `json:"running"`
	// Draining means that it takes no more jobs; a worker that speaks HTTP does not
	// report it.
	Draining  bool       `json:"draining"`
	StartedAt string     `json:"startedAt"`
	SeenAt    string     `json:"seenAt"`
	Host      WorkerHost `json:"host"`
	// Startup is how it started, if the autoscaler started it.
	Startup *Startup `json:"startup,omitempty"`
}

// WorkerHost is the machine of a worker, as far as the worker could find out.
type WorkerHost struct {
	Name        string      `json:"name,omitempty"`
	OS          string      `json:"os,omitempty"`
	Arch        string      `json:"arch,omitempty"`
	CPUModel    string      `json:"cpuModel,omitempty"`
	CPUs        int         `json:"cpus,omitempty"`
	MemoryBytes uint64      `json:"memoryBytes,omitempty"`
	GPUs        []WorkerGPU `json:"gpus"`
	// GPUDriver is the version of the GPU driver, Version that of the worker's program.
	GPUDriver string `json:"gpuDriver,omitempty"`
	Version   string `json:"version,omitempty"`
}

// WorkerGPU is one accelerator of a worker's machine.
type WorkerGPU struct {
	Name        string `json:"name"`
	UUID        string `json:"uuid,omitempty"`
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
}
