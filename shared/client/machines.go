package client

import (
	"context"

	"flightline/shared/api"
)

// MachineInventory is a machine that runs pods.
type MachineInventory = api.MachineInventory

// MachineGPU is one GPU of a machine, with who holds it.
type MachineGPU = api.MachineGPU

// Machines returns the machines on which an autoscaler runs pods now, with their GPUs
// and who holds them. The key needs the scope pods or control.
func (c *Client) Machines(ctx context.Context) ([]MachineInventory, error) {
	return allPages[MachineInventory](ctx, c, v1("machines"), nil)
}
