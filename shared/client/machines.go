package client

import (
	"context"
	"time"

	"flightline/shared/api"
)

// MachineInventory is a machine that runs pods.
type MachineInventory = api.MachineInventory

// MachineGPU is one GPU of a machine, with who holds it.
type MachineGPU = api.MachineGPU

// GPUQuarantine keeps pods off a GPU until its deadline.
type GPUQuarantine = api.GPUQuarantine

// The states of a quarantine.
const (
	Quarantined = api.Quarantined
	Probation   = api.Probation
)

// Machines returns the machines on which an autoscaler runs pods now, with their GPUs,
// who holds them, and their cached models. The key needs the scope pods or control.
func (c *Client) Machines(ctx context.Context) ([]MachineInventory, error) {
	return allPages[MachineInventory](ctx, c, v1("machines"), nil)
}

// QuarantineGPU keeps pods off a GPU for this long, 1 s to 7 days; 0 means 1 h. Workers on
// it get no more jobs and leave. The reason has at most 200 characters, "" for none. It
// returns the GPU. The key needs the scope control.
func (c *Client) QuarantineGPU(ctx context.Context, machine, uuid string, length time.Duration, reason string) (*MachineGPU, error) {
	body := api.Quarantine{Reason: reason, DurationMs: optionalMillis(length)}
	return one[MachineGPU](ctx, c, post(v1("machines", machine, "gpus", uuid, "quarantine"), body))
}

// RestoreGPU ends the quarantine of a GPU; that it has none is no error. It returns the
// GPU. The key needs the scope control.
func (c *Client) RestoreGPU(ctx context.Context, machine, uuid string) (*MachineGPU, error) {
	return one[MachineGPU](ctx, c, post(v1("machines", machine, "gpus", uuid, "restore"), nil))
}
