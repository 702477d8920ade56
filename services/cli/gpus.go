package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/endpoint"
)

// addGPUFlags adds the flags that say which GPUs a worker needs, and who gets them first.
func addGPUFlags(f *pflag.FlagSet, spec *client.GPUSpec) {
	f.StringSliceVar(&spec.Types, "gpu-type", nil, "`name` of a GPU that will do, like 'NVIDIA L4'; repeat it for more; '' means any")
	optional(f, f.Float64Var, &spec.MinVRAMGB, "min-vram", "memory in `GB` that a worker needs of each GPU")
	optional(f, f.StringVar, &spec.MinCUDA, "min-cuda", "oldest CUDA `version` that will do, like 12.4; '' means any")
	optional(f, f.Float64Var, &spec.Share, "gpu-share", "part of one GPU that a worker gets, by memory (0.25 to 1; default 1)")
	optional(f, f.Float64Var, &spec.SleepShare, "sleep-gpu-share", "part of each GPU that a worker keeps while it sleeps, by memory (0 to 1; default 1: all that it has)")
	optional(f, f.IntVar, &spec.Priority, "priority", "whose jobs get a GPU first (-2 to 2)")
	bounded(f, &spec.MinHold, "min-hold", time.Second, endpoint.MaxGPUWait, "how long a worker keeps its GPU before it may have to yield it", "default 30s")
	bounded(f, &spec.MaxSwapWait, "max-swap-wait", time.Second, endpoint.MaxGPUWait, "how long jobs may wait while others have the GPUs busy", "default 2m")
	mayBeEmpty(f, "gpu-type", "min-cuda")
}

// sleepShareText is what a worker that sleeps keeps of its GPUs.
func sleepShareText(g client.GPUNeeds) string {
	if g.SleepShare == nil {
		return ""
	}
	return fmt.Sprintf("%v of each GPU", *g.SleepShare)
}

// gpuText is what a worker needs of its GPUs, "" for no more than any.
func gpuText(g client.GPUNeeds) string {
	var parts []string
	if g.Share > 0 && g.Share < 1 {
		parts = append(parts, fmt.Sprintf("%v of a GPU", g.Share))
	}
	if len(g.Types) > 0 {
		parts = append(parts, "one of "+strings.Join(g.Types, ", "))
	}
	if g.MinVRAMGB > 0 {
		parts = append(parts, fmt.Sprintf("%v GB of its memory", g.MinVRAMGB))
	}
	if g.MinCUDA != "" {
		parts = append(parts, "CUDA "+g.MinCUDA)
	}
	return strings.Join(parts, ", ")
}
