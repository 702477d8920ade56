//go:build nvml && cgo && linux

package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"flightline/shared/pod"
	"flightline/shared/retry"
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

// xidWait is how long one wait for an event lasts, in milliseconds: ctx is looked at between
// two. xidPause is the pause after a wait that failed.
const (
	xidWait  = 1000
	xidPause = time.Second
)

// watchXIDs calls note for each XID error of a card until ctx ends. It returns at once where
// there are no cards, or none that reports them.
func watchXIDs(ctx context.Context, log *slog.Logger, note func(uuid string, code uint64)) {
	watchNVML(ctx, nvml.New(), log, note)
}

func watchNVML(ctx context.Context, lib nvml.Interface, log *slog.Logger, note func(uuid string, code uint64)) {
	if lib.Init() != nvml.SUCCESS {
		return
	}
	defer lib.Shutdown()
	set, code := lib.EventSetCreate()
	if code != nvml.SUCCESS {
		log.DebugContext(ctx, "no events of GPUs", "why", code.Error())
		return
	}
	defer set.Free()
	if registerXIDs(ctx, lib, set, log) == 0 {
		return
	}
	for ctx.Err() == nil {
		event, code := set.Wait(xidWait)
		switch {
		case code == nvml.ERROR_TIMEOUT:
		case code != nvml.SUCCESS: // a card is lost, say; what is wrong with it is read with the others
			log.DebugContext(ctx, "events of GPUs not read, trying again", "why", code.Error())
			_ = retry.Sleep(ctx, xidPause) // the loop ends with ctx
		case event.EventType == nvml.EventTypeXidCriticalError:
			if uuid, code := event.Device.GetUUID(); code == nvml.SUCCESS {
				note(uuid, event.EventData)
			}
		}
	}
}

// registerXIDs asks for the XID errors of all cards, and returns how many report them.
func registerXIDs(ctx context.Context, lib nvml.Interface, set nvml.EventSet, log *slog.Logger) (cards int) {
	n, _ := lib.DeviceGetCount() // 0 says that it is unknown
	for i := range n {
		device, code := lib.DeviceGetHandleByIndex(i)
		if code == nvml.SUCCESS {
			code = device.RegisterEvents(nvml.EventTypeXidCriticalError, set)
		}
		if code != nvml.SUCCESS {
			log.DebugContext(ctx, "a GPU reports no events", "index", i, "why", code.Error())
			continue
		}
		cards++
	}
	return cards
}
