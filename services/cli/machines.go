package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/pod"
)

func machineCommand(sh *shell) *cobra.Command {
	c := &cobra.Command{Use: "machine", Short: "Show the machines that run pods, their GPUs and models; keep pods off a GPU"}
	c.AddCommand(listMachinesCommand(sh), machineModelsCommand(sh), quarantineGPUCommand(sh), restoreGPUCommand(sh))
	return c
}

func machines(ctx context.Context, api *client.Client, _ []string) ([]client.MachineInventory, error) {
	return api.Machines(ctx)
}

func listMachinesCommand(sh *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the machines, their GPUs and who holds them",
		Long: "List the machines on which an autoscaler starts pods, a line for each GPU. HOLDERS are\n" +
			"the pods that have claimed it, with their share of its memory if it is not all.",
		RunE: runAndShow(sh, machines, func(list []client.MachineInventory) [][]string {
			rows := [][]string{{"MACHINE", "DRIVER", "HOST", "GPU", "NAME", "MEMORY", "HEALTH", "HOLDERS"}}
			for _, m := range list {
				at := []string{m.ID, clean(m.Driver), clean(m.Hostname)}
				for _, g := range m.GPUs {
					rows = append(rows, append(at[:3:3], g.UUID, clean(g.Name), fmt.Sprintf("%d MB", g.MemoryMb), healthOf(g), holdersOf(g)))
				}
				if len(m.GPUs) == 0 {
					rows = append(rows, append(at, "none", "", "", "", ""))
				}
			}
			return rows
		}),
	}
}

// modelCacheHelp is that of --model-cache.
const modelCacheHelp = "`model` for which the cache of the machine is used, like Qwen/Qwen3-8B; repeat it for more"

func machineModelsCommand(sh *shell) *cobra.Command {
	return &cobra.Command{
		Use: "models", Short: "List the models that the machines have",
		Long: "List the complete models in the cache of each machine, where the workers of endpoints\n" +
			"with modelCache find them. SIZE is that of all revisions of the model.",
		RunE: runAndShow(sh, machines, func(list []client.MachineInventory) [][]string {
			rows := [][]string{{"MACHINE", "HOST", "MODEL", "SIZE"}}
			for _, m := range list {
				for _, model := range m.Models {
					size := ""
					if model.Bytes > 0 {
						size = api.Size(model.Bytes)
					}
					rows = append(rows, []string{m.ID, clean(m.Hostname), clean(model.Name), size})
				}
			}
			return rows
		}),
	}
}

func quarantineGPUCommand(sh *shell) *cobra.Command {
	var length time.Duration
	var reason string
	c := &cobra.Command{
		Use: "quarantine MACHINE GPU", Short: "Keep pods off a GPU for a while",
		Long: "Keep pods off a GPU for a while. Its workers get no more jobs and leave once they have\n" +
			"none. At the deadline the GPU is on probation: one worker at a time may be started on\n" +
			"it. If it works the quarantine ends, if it fails the next one begins.",
		Example: "  flightline machine quarantine m1 GPU-1 --for 2h --reason 'fan is loud'",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.MachineGPU, error) {
			return api.QuarantineGPU(ctx, args[0], args[1], length, reason)
		}, func(g *client.MachineGPU) [][]string {
			rows := [][]string{{"QUARANTINED", g.UUID}}
			if q := g.Quarantine; q != nil {
				rows = append(rows, []string{"UNTIL", q.Until}, []string{"REASON", clean(q.Reason)})
			}
			return rows
		}),
	}
	bounded(c.Flags(), &length, "for", pod.MinQuarantine, pod.MaxQuarantine, "how long", "default 1h")
	c.Flags().StringVar(&reason, "reason", "", "why, for people (at most 200 characters)")
	return c
}

func restoreGPUCommand(sh *shell) *cobra.Command {
	return &cobra.Command{
		Use: "restore MACHINE GPU", Short: "End the quarantine of a GPU",
		Long: "End the quarantine of a GPU, also while it is on probation. A GPU that is unhealthy is\n" +
			"quarantined again as long as it says so.",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.MachineGPU, error) {
			return api.RestoreGPU(ctx, args[0], args[1])
		}, func(g *client.MachineGPU) [][]string { return [][]string{{"RESTORED", g.UUID}} }),
	}
}

// healthOf is the state of a GPU: "ok", what is wrong, or its quarantine.
func healthOf(g client.MachineGPU) string {
	text := "ok"
	if !g.Healthy {
		text = clean(g.Problem)
	}
	switch q := g.Quarantine; {
	case q == nil:
		return text
	case q.State == client.Probation:
		text = "on probation: " + clean(q.Reason)
	default:
		text = "quarantined until " + q.Until + ": " + clean(q.Reason)
	}
	return text
}

// holdersOf are the pods that hold a GPU, as "a-0-1 b-0-1:0.25".
func holdersOf(g client.MachineGPU) string {
	if len(g.Claims) == 0 {
		return "free"
	}
	names := make([]string, len(g.Claims))
	for i, c := range g.Claims {
		names[i] = clean(c.PodID)
		if c.Share < 1 {
			names[i] += fmt.Sprintf(":%v", c.Share)
		}
	}
	return strings.Join(names, " ")
}
