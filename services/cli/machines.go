package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

func machineCommand(sh *shell) *cobra.Command {
	c := &cobra.Command{Use: "machine", Short: "Show the machines that run pods, and their GPUs", Args: cobra.NoArgs, RunE: needsVerb}
	c.AddCommand(listMachinesCommand(sh))
	return c
}

func listMachinesCommand(sh *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the machines, their GPUs and who holds them", Args: cobra.NoArgs,
		Long: "List the machines on which an autoscaler starts pods, a line for each GPU. HOLDERS are\n" +
			"the pods that have claimed it, with their share of its memory if it is not all.",
		RunE: sh.with(func(ctx context.Context, api *client.Client, _ []string) error {
			list, err := api.Machines(ctx)
			if err != nil {
				return err
			}
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
			return sh.show(list, rows)
		}),
	}
}

func healthOf(g client.MachineGPU) string {
	if g.Healthy {
		return "ok"
	}
	return clean(g.Problem)
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
