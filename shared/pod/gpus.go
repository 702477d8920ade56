package pod

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Bounds of a quarantine of a GPU that was asked for.
const (
	MinQuarantine = time.Second
	MaxQuarantine = 7 * 24 * time.Hour
	// DefaultQuarantine is how long one lasts that was asked for without a time.
	DefaultQuarantine = time.Hour
	// MaxQuarantineReason bounds its reason, in characters.
	MaxQuarantineReason = 200
)

// WholeGPU is the share, in hundredths, of a pod that shares its GPU with none.
const WholeGPU = 100

// maxInventory bounds the accelerators of one machine.
const maxInventory = 64

var (
	gpuUUID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)
	vendor  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
)

// ValidGPU reports whether uuid may name an accelerator.
func ValidGPU(uuid string) bool { return gpuUUID.MatchString(uuid) }

// ParseGPUs reads the accelerators of a machine from JSON, a list of objects:
//
//	[{"uuid":"GPU-1","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576}]
//
// driver, cuda and health may be given too. An empty list is a machine without any. It
// returns a *FieldError that names the field as "[0].uuid".
func ParseGPUs(text []byte) ([]GPU, error) {
	var found []GPU
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		return nil, &FieldError{"", "must be a JSON list of GPUs: " + err.Error()}
	}
	if _, err := decoder.Token(); found == nil || !errors.Is(err, io.EOF) {
		return nil, &FieldError{"", "must be one JSON list of GPUs"}
	}
	if len(found) > maxInventory {
		return nil, &FieldError{"", fmt.Sprintf("must have at most %d GPUs, got %d", maxInventory, len(found))}
	}
	seen := map[string]bool{}
	for i, g := range found {
		if err := g.check(fmt.Sprintf("[%d].", i)); err != nil {
			return nil, err
		}
		if seen[g.UUID] {
			return nil, &FieldError{fmt.Sprintf("[%d].uuid", i), fmt.Sprintf("must differ from the others, got %q again", g.UUID)}
		}
		seen[g.UUID] = true
		found[i].MemoryGB = math.Round(float64(g.MemoryMB)/1024*100) / 100
	}
	return found, nil
}

func (g GPU) check(at string) error {
	switch {
	case !ValidGPU(g.UUID):
		return &FieldError{at + "uuid", fmt.Sprintf("must be 1 to 128 letters, digits, - and _, got %.50q", g.UUID)}
	case !vendor.MatchString(g.Vendor):
		return &FieldError{at + "vendor", fmt.Sprintf("must be a name in lower case like nvidia or amd, got %.50q", g.Vendor)}
	case g.Name == "" || len(g.Name) > MaxName:
		return &FieldError{at + "name", fmt.Sprintf("must have 1 to %d bytes, got %d", MaxName, len(g.Name))}
	case g.MemoryMB < 1 || g.MemoryMB > 1<<30:
		return &FieldError{at + "memoryMb", fmt.Sprintf("must be between 1 and %d, got %d", 1<<30, g.MemoryMB)}
	case g.CUDA != "" && !cudaVersion.MatchString(g.CUDA):
		return &FieldError{at + "cuda", fmt.Sprintf("must be a version like 12.4, got %.50q", g.CUDA)}
	case len(g.Driver) > MaxName:
		return &FieldError{at + "driver", fmt.Sprintf("must have at most %d bytes, got %d", MaxName, len(g.Driver))}
	case len(g.Health) > MaxText:
		return &FieldError{at + "health", fmt.Sprintf("must have at most %d bytes, got %d", MaxText, len(g.Health))}
	}
	for _, text := range []struct{ field, given string }{{"name", g.Name}, {"driver", g.Driver}, {"health", g.Health}} {
		if strings.ContainsFunc(text.given, unicode.IsControl) {
			return &FieldError{at + text.field, fmt.Sprintf("must hold no control characters, got %.50q", text.given)}
		}
	}
	return nil
}

// cudaVersion is a version of CUDA as "12.4".
var cudaVersion = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}$`)
