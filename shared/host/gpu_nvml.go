//go:build nvml && cgo && linux

package host

import (
	"context"
	"log/slog"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"flightline/shared/pod"
)

// gpus asks NVIDIA's library, which also knows the memory. It is opened only
// now: where it is missing the driver is asked, and a machine without either
// has no GPUs, which is no error. The build tag nvml asks for this file:
// compiling the library's headers takes a C compiler and prints warnings.
func gpus(ctx context.Context, log *slog.Logger) (found []pod.GPU, driver string) {
	if code := nvml.Init(); code != nvml.SUCCESS {
		log.DebugContext(ctx, "no gpu library", "why", code.String())
		return gpusIn(nvidia)
	}
	defer nvml.Shutdown()
	driver, _ = nvml.SystemGetDriverVersion()
	n, code := nvml.DeviceGetCount()
	if code != nvml.SUCCESS {
		log.DebugContext(ctx, "no gpus", "why", code.String())
		return nil, driver
	}
	for i := range n {
		device, code := nvml.DeviceGetHandleByIndex(i)
		if code != nvml.SUCCESS {
			continue // in use by another container, say
		}
		var g pod.GPU
		g.Name, _ = device.GetName()
		g.UUID, _ = device.GetUUID()
		if memory, code := device.GetMemoryInfo(); code == nvml.SUCCESS {
			g.MemoryGB = inGB(float64(memory.Total))
		}
		found = append(found, g)
	}
	return found, driver
}
