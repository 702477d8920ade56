//go:build !(nvml && cgo && linux)

package worker

import (
	"context"
	"log/slog"
	"path/filepath"
	"regexp"

	"flightline/shared/registry"
)

// gpus reads what NVIDIA's driver shows without its library: all but the
// memory. A machine without the driver has none.
func gpus(_ context.Context, _ *slog.Logger) (found []registry.GPU, driver string) {
	return gpusIn("/proc/driver/nvidia")
}

var driverVersion = regexp.MustCompile(`\b\d+(\.\d+)+\b`)

func gpusIn(dir string) (found []registry.GPU, driver string) {
	cards, _ := filepath.Glob(filepath.Join(dir, "gpus", "*", "information")) // the pattern is good
	for _, card := range cards {
		found = append(found, registry.GPU{Name: fact(card, "Model"), UUID: fact(card, "GPU UUID")})
	}
	return found, driverVersion.FindString(fact(filepath.Join(dir, "version"), "NVRM version"))
}
