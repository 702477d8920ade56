package endpoint

import (
	"fmt"
	"math"
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
	MaxScalerValue     = 100_000
	defaultIdleTimeout = 5 * time.Second
	MinIdleTimeout     = time.Second
	MaxIdleTimeout     = time.Hour
	// MaxPause is the longest pause; one without an end is that long.
	MaxPause = 365 * 24 * time.Hour
	// MaxCommand bounds the words of a command, MaxCommandBytes their length
	// together, and MaxImage that of an image's name.
	MaxCommand      = 100
	MaxCommandBytes = 64 << 10
	MaxImage        = 1024
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
}

// Paused reports whether the endpoint hands out no jobs now.
func (e Endpoint) Paused(now time.Time) bool { return now.Before(e.PausedUntil) }

// External reports whether no driver starts the endpoint's workers: they are the
// user's own.
func (f Fleet) External() bool { return f.Driver == "" || f.Driver == "external" }

// completeFleet fills in the defaults of scaling and checks what starts workers.
func (e Endpoint) completeFleet() (Endpoint, error) {
	if e.ScalerType == "" {
		e.ScalerType = QueueDelay
	}
	if e.ScalerValue == 0 {
		e.ScalerValue = defaultScalerValue
	}
	if e.IdleTimeout == 0 {
		e.IdleTimeout = defaultIdleTimeout
	}
	switch {
	case e.ScalerType != QueueDelay && e.ScalerType != RequestCount:
		return e, &FieldError{"scalerType", `must be "QUEUE_DELAY" or "REQUEST_COUNT"`}
	case e.ScalerValue < 1 || e.ScalerValue > MaxScalerValue:
		return e, &FieldError{"scalerValue", fmt.Sprintf("must be between 1 and %d", MaxScalerValue)}
	case e.IdleTimeout < MinIdleTimeout || e.IdleTimeout > MaxIdleTimeout:
		return e, &FieldError{"idleTimeout", "must be between 1 and 3600 seconds"}
	}
	return e, e.Fleet.check()
}

func (f Fleet) check() error {
	switch f.Driver {
	case "", "external", "process", "docker":
	default:
		return &FieldError{"driver", `must be "process", "docker" or "external"`}
	}
	if err := checkCommand(f.Command); err != nil {
		return err
	}
	if len(f.Image) > MaxImage || strings.ContainsAny(f.Image, "\x00\r\n\t ") {
		return &FieldError{"imageName", fmt.Sprintf("must be at most %d bytes, without white space", MaxImage)}
	}
	if f.Driver == "process" && f.TemplateID == "" && len(f.Command) == 0 {
		return &FieldError{"command", "is needed by the driver process"}
	}
	if f.Driver == "docker" && f.TemplateID == "" && f.Image == "" {
		return &FieldError{"imageName", "is needed by the driver docker"}
	}
	for _, b := range []struct {
		field       string
		value, most float64
	}{{"gpuCount", float64(f.GPUs), 64}, {"vcpuCount", f.VCPUs, 1024}, {"memoryInGb", f.MemoryGB, 65536}} {
		if math.IsNaN(b.value) || b.value < 0 || b.value > b.most {
			return &FieldError{b.field, fmt.Sprintf("must be between 0 and %v", b.most)}
		}
	}
	return nil
}

// checkCommand refuses what no process can be started with.
func checkCommand(words []string) error {
	text := strings.Join(words, "")
	switch {
	case len(words) > MaxCommand:
		return &FieldError{"command", fmt.Sprintf("has more than %d words", MaxCommand)}
	case len(text) > MaxCommandBytes:
		return &FieldError{"command", fmt.Sprintf("is larger than %d bytes", MaxCommandBytes)}
	case strings.Contains(text, "\x00"):
		return &FieldError{"command", "must not hold NUL"}
	case len(words) > 0 && words[0] == "":
		return &FieldError{"command", "must begin with a program"}
	}
	return nil
}
