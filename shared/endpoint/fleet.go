package endpoint

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// The scalers.
const (
	// QueueDelay adds workers when a job has waited for longer than ScalerValue seconds.
	QueueDelay = "QUEUE_DELAY"
	// RequestCount wants one worker per ScalerValue jobs, waiting and running.
	RequestCount = "REQUEST_COUNT"
)

// Bounds and defaults of scaling.
const (
	defaultScalerValue = 4
	maxScalerValue     = 100_000
	defaultIdleTimeout = 5 * time.Second
	MinIdleTimeout     = time.Second
	MaxIdleTimeout     = time.Hour
	minSleepTimeout    = time.Second
	MaxSleepTimeout    = 7 * 24 * time.Hour
	// MaxPause is the longest pause; one without an end is that long.
	MaxPause = 365 * 24 * time.Hour
	// MaxCommand bounds the words of a command, MaxCommandBytes their length
	// together, and MaxImage that of an image's name.
	MaxCommand      = 100
	MaxCommandBytes = 64 << 10
	MaxImage        = 1024
)

// What Fleet.Driver may be, besides "".
const (
	driverProcess  = "process"
	driverDocker   = "docker"
	driverExternal = "external"
)

// Fleet says how the workers of an endpoint are started. The zero Fleet starts
// none: its workers are their owner's.
type Fleet struct {
	// Driver is "process", "docker" or "external"; "" means external.
	Driver string `json:"driver,omitempty"`
	// TemplateID is the template whose image, command and limits hold where
	// the fields below are empty; "" for none.
	TemplateID string `json:"templateId,omitempty"`
	// Image is that of the worker's container.
	Image string `json:"image,omitempty"`
	// Command is what a worker runs, the program first.
	Command []string `json:"command,omitempty"`
	// GPUs (0 to 64), VCPUs (0 to 1024) and MemoryGB (0 to 65536) are one
	// worker's limits, 0 for none.
	GPUs     int     `json:"gpus,omitempty"`
	VCPUs    float64 `json:"vcpus,omitempty"`
	MemoryGB float64 `json:"memoryGb,omitempty"`
	// ModelCache are the models for which workers use the cache of their machine; they
	// replace those of the template. pod.CheckModels has their form.
	ModelCache []string `json:"modelCache,omitempty"`
	GPU
}

// GPU says which GPUs a worker needs, and how its endpoint shares them with others.
type GPU struct {
	// GPUTypes are the names of GPUs that will do, nil for any.
	GPUTypes []string `json:"gpuTypes,omitempty"`
	// MinVRAMGB (2^30 bytes) is the memory that a worker needs of each GPU, MinCUDA the
	// oldest CUDA, as "12.4"; 0 and "" for any.
	MinVRAMGB float64 `json:"minVramGb,omitempty"`
	MinCUDA   string  `json:"minCuda,omitempty"`
	// GPUShare is the part of one GPU that a worker gets, by memory: 0.25 to 1;
	// 0 means all of it.
	GPUShare float64 `json:"gpuShare,omitempty"`
	// Priority is -MaxPriority to MaxPriority: who gets a GPU first.
	Priority int `json:"priority,omitempty"`
	// MinHold is how long a worker keeps its GPU before it may have to yield it, MaxSwapWait
	// how long the endpoint's jobs may wait while other endpoints have the GPUs busy. 0
	// means the defaults; Hold and SwapWait know them.
	MinHold     time.Duration `json:"minHold,omitempty"`
	MaxSwapWait time.Duration `json:"maxSwapWait,omitempty"`
}

// Bounds and defaults of GPU.
const (
	minGPUShare        = 0.25
	MaxGPUTypes        = 100
	maxGPUTypeBytes    = 191
	MaxPriority        = 2
	MaxGPUWait         = 24 * time.Hour
	minGPUWait         = time.Second
	defaultMinHold     = 30 * time.Second
	defaultMaxSwapWait = 2 * time.Minute
)

// Hold is MinHold, or 30 s.
func (g GPU) Hold() time.Duration { return cmp.Or(g.MinHold, defaultMinHold) }

// SwapWait is MaxSwapWait, or 2 minutes.
func (g GPU) SwapWait() time.Duration { return cmp.Or(g.MaxSwapWait, defaultMaxSwapWait) }

var cudaVersion = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}$`)

func (g GPU) check(gpuCount int) error {
	if len(g.GPUTypes) > MaxGPUTypes {
		return &FieldError{"gpuTypeIds", fmt.Sprintf("must have at most %d names, got %d", MaxGPUTypes, len(g.GPUTypes))}
	}
	for i, name := range g.GPUTypes {
		if name == "" || len(name) > maxGPUTypeBytes {
			return &FieldError{fmt.Sprintf("gpuTypeIds[%d]", i), fmt.Sprintf("must have 1 to %d bytes, got %d", maxGPUTypeBytes, len(name))}
		}
	}
	switch {
	case math.IsNaN(g.MinVRAMGB) || g.MinVRAMGB < 0 || g.MinVRAMGB > 1024:
		return &FieldError{"minVramGb", fmt.Sprintf("must be between 0 and 1024, got %v", g.MinVRAMGB)}
	case g.MinCUDA != "" && !cudaVersion.MatchString(g.MinCUDA):
		return &FieldError{"minCudaVersion", fmt.Sprintf("must be a version like 12.4, got %.50q", g.MinCUDA)}
	case g.GPUShare != 0 && !(g.GPUShare >= minGPUShare && g.GPUShare <= 1):
		return &FieldError{"gpuShare", fmt.Sprintf("must be between %v and 1, got %v", minGPUShare, g.GPUShare)}
	case g.GPUShare != 0 && g.GPUShare < 1 && gpuCount > 1:
		return &FieldError{"gpuShare", fmt.Sprintf("must be 1 where gpuCount is more than 1, got %v with %d GPUs", g.GPUShare, gpuCount)}
	case g.Priority < -MaxPriority || g.Priority > MaxPriority:
		return &FieldError{"priority", fmt.Sprintf("must be between %d and %d, got %d", -MaxPriority, MaxPriority, g.Priority)}
	case g.MinHold != 0 && (g.MinHold < minGPUWait || g.MinHold > MaxGPUWait):
		return &FieldError{"minHoldMs", fmt.Sprintf("must be between %d and %d, got %d", minGPUWait.Milliseconds(), MaxGPUWait.Milliseconds(), g.MinHold.Milliseconds())}
	case g.MaxSwapWait != 0 && (g.MaxSwapWait < minGPUWait || g.MaxSwapWait > MaxGPUWait):
		return &FieldError{"maxSwapWaitMs", fmt.Sprintf("must be between %d and %d, got %d", minGPUWait.Milliseconds(), MaxGPUWait.Milliseconds(), g.MaxSwapWait.Milliseconds())}
	}
	return nil
}

// Paused reports whether the endpoint hands out no jobs now.
func (e Endpoint) Paused(now time.Time) bool { return now.Before(e.PausedUntil) }

// External reports whether no driver starts the endpoint's workers: they are the
// user's own.
func (f Fleet) External() bool { return f.Driver == "" || f.Driver == driverExternal }

// completeFleet fills in the defaults of scaling and checks what starts workers.
func (e Endpoint) completeFleet() (Endpoint, error) {
	e.ScalerType = cmp.Or(e.ScalerType, QueueDelay)
	e.ScalerValue = cmp.Or(e.ScalerValue, defaultScalerValue)
	e.IdleTimeout = cmp.Or(e.IdleTimeout, defaultIdleTimeout)
	switch {
	case e.ScalerType != QueueDelay && e.ScalerType != RequestCount:
		return e, &FieldError{"scalerType", fmt.Sprintf(`must be "QUEUE_DELAY" or "REQUEST_COUNT", got %.50q`, e.ScalerType)}
	case e.ScalerValue < 1 || e.ScalerValue > maxScalerValue:
		return e, &FieldError{"scalerValue", fmt.Sprintf("must be between 1 and %d, got %d", maxScalerValue, e.ScalerValue)}
	case e.IdleTimeout < MinIdleTimeout || e.IdleTimeout > MaxIdleTimeout:
		return e, &FieldError{"idleTimeout", fmt.Sprintf("must be between 1 and 3600 seconds, got %v", e.IdleTimeout.Seconds())}
	case e.SleepTimeout != 0 && (e.SleepTimeout < minSleepTimeout || e.SleepTimeout > MaxSleepTimeout):
		return e, &FieldError{"sleepTimeout", fmt.Sprintf("must be 0, or between 1 and %d seconds, got %v", int(MaxSleepTimeout.Seconds()), e.SleepTimeout.Seconds())}
	case e.SleepGPUShare != nil && !(*e.SleepGPUShare >= 0 && *e.SleepGPUShare <= 1):
		return e, &FieldError{"sleepGpuShare", fmt.Sprintf("must be between 0 and 1, got %v", *e.SleepGPUShare)}
	}
	return e, e.Fleet.check()
}

func (f Fleet) check() error {
	switch f.Driver {
	case "", driverExternal, driverProcess, driverDocker:
	default:
		return &FieldError{"driver", fmt.Sprintf(`must be "process", "docker" or "external", got %.50q`, f.Driver)}
	}
	if err := checkCommand(f.Command); err != nil {
		return err
	}
	if len(f.Image) > MaxImage || strings.ContainsAny(f.Image, "\x00\r\n\t ") {
		return &FieldError{"imageName", fmt.Sprintf("must be at most %d bytes, without white space, got %.300q", MaxImage, f.Image)}
	}
	if f.Driver == driverProcess && f.TemplateID == "" && len(f.Command) == 0 {
		return &FieldError{"command", "is needed by the driver process"}
	}
	if f.Driver == driverDocker && f.TemplateID == "" && f.Image == "" {
		return &FieldError{"imageName", "is needed by the driver docker"}
	}
	for _, b := range []struct {
		field       string
		value, most float64
	}{{"gpuCount", float64(f.GPUs), 64}, {"vcpuCount", f.VCPUs, 1024}, {"memoryInGb", f.MemoryGB, 65536}} {
		if math.IsNaN(b.value) || b.value < 0 || b.value > b.most {
			return &FieldError{b.field, fmt.Sprintf("must be between 0 and %v, got %v", b.most, b.value)}
		}
	}
	return f.GPU.check(f.GPUs)
}

// checkCommand refuses what no process can be started with.
func checkCommand(words []string) error {
	text := strings.Join(words, "")
	switch {
	case len(words) > MaxCommand:
		return &FieldError{"command", fmt.Sprintf("must have at most %d words, got %d", MaxCommand, len(words))}
	case len(text) > MaxCommandBytes:
		return &FieldError{"command", fmt.Sprintf("must have at most %d bytes, got %d", MaxCommandBytes, len(text))}
	case strings.Contains(text, "\x00"):
		return &FieldError{"command", "must not hold NUL"}
	case len(words) > 0 && words[0] == "":
		return &FieldError{"command", "must begin with a program"}
	}
	return nil
}
