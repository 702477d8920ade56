//go:build !(nvml && cgo && linux)

package host

import (
	"context"
	"log/slog"

	"flightline/shared/pod"
)

// watchXIDs needs NVIDIA's library: nothing else reports these errors as they come.
func watchXIDs(context.Context, *slog.Logger, func(uuid string, code uint64)) {}

// nvidiaGPUs asks nvidia-smi, and where that is missing the driver, which does not
// know the memory.
func nvidiaGPUs(ctx context.Context, log *slog.Logger) (found []pod.GPU, driver string) {
	found, driver, err := smi(ctx)
	if err != nil {
		log.DebugContext(ctx, "gpus not asked for", "err", err)
	}
	if len(found) > 0 {
		return found, driver
	}
	return gpusIn(nvidia)
}
