package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/endpoint"
)

// gpuFlags say which GPUs a worker needs, and who gets them first.
type gpuFlags struct {
	spec              client.GPUSpec
	cuda              string
	vram, share, keep float64
	priority          int
}

func (g *gpuFlags) add(f *pflag.FlagSet) {
	f.StringSliceVar(&g.spec.Types, "gpu-type", nil, "`name` of a GPU that will do, like 'NVIDIA L4'; repeat it for more; '' means any")
	f.Float64Var(&g.vram, "min-vram", 0, "memory in `GB` that a worker needs of each GPU")
	f.StringVar(&g.cuda, "min-cuda", "", "oldest CUDA `version` that will do, like 12.4; '' means any")
	f.Float64Var(&g.share, "gpu-share", 0, "part of one GPU that a worker gets, by memory (0.25 to 1; default 1)")
	f.Float64Var(&g.keep, "sleep-gpu-share", 1, "part of each GPU that a worker keeps while it sleeps, by memory (0 to 1; 1: all that it has)")
	f.IntVar(&g.priority, "priority", 0, "whose jobs get a GPU first (-2 to 2)")
	bounded(f, &g.spec.MinHold, "min-hold", time.Second, endpoint.MaxGPUWait, "how long a worker keeps its GPU before it may have to yield it", "default 30s")
	bounded(f, &g.spec.MaxSwapWait, "max-swap-wait", time.Second, endpoint.MaxGPUWait, "how long jobs may wait while others have the GPUs busy", "default 2m")
	mayBeEmpty(f, "gpu-type", "min-cuda")
}

// given is the spec of the flags that were typed.
func (g *gpuFlags) given(f *pflag.FlagSet) client.GPUSpec {
	g.spec.MinVRAMGB, g.spec.Share, g.spec.Priority = typed(f, "min-vram", &g.vram), typed(f, "gpu-share", &g.share), typed(f, "priority", &g.priority)
	g.spec.SleepShare, g.spec.MinCUDA = typed(f, "sleep-gpu-share", &g.keep), typed(f, "min-cuda", &g.cuda)
	return g.spec
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
