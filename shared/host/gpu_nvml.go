//go:build nvml && cgo && linux

package host

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"flightline/shared/pod"
)

// nvidiaGPUs asks NVIDIA's library. It is opened only now: where it is missing the
// driver is asked, and a machine without either has no GPUs, which is no error. The
// build tag nvml asks for this file: compiling the library's headers takes a C
// compiler and prints warnings.
func nvidiaGPUs(ctx context.Context, log *slog.Logger) (found []pod.GPU, driver string) {
	return readNVML(ctx, nvml.New(), log)
}

func readNVML(ctx context.Context, lib nvml.Interface, log *slog.Logger) (found []pod.GPU, driver string) {
	if code := lib.Init(); code != nvml.SUCCESS {
		log.DebugContext(ctx, "no gpu library", "why", code.Error())
		return gpusIn(nvidia)
	}
	defer lib.Shutdown()
	driver, _ = lib.SystemGetDriverVersion()
	var cuda string
	if version, code := lib.SystemGetCudaDriverVersion(); code == nvml.SUCCESS { // 12040 is 12.4
		cuda = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	}
	n, code := lib.DeviceGetCount()
	if code != nvml.SUCCESS {
		log.DebugContext(ctx, "no gpus", "why", code.Error())
		return nil, driver
	}
	for i := range n {
		device, code := lib.DeviceGetHandleByIndex(i)
		if code != nvml.SUCCESS {
			continue // in use by another container, say
		}
		g := pod.GPU{Vendor: pod.NVIDIA, Driver: driver, CUDA: cuda}
		g.Name, _ = device.GetName()
		g.UUID, _ = device.GetUUID()
		if memory, code := device.GetMemoryInfo(); code == nvml.SUCCESS {
			g.MemoryMB, g.MemoryGB = int(memory.Total>>20), inGB(float64(memory.Total))
		} else if code == nvml.ERROR_GPU_IS_LOST || code == nvml.ERROR_RESET_REQUIRED {
			g.Health = code.Error()
		}
		found = append(found, g)
	}
	return found, driver
}
