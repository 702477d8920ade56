package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"flightline/shared/pod"
)

// ErrTaken means that what is left of a GPU is less than what was asked for.
var ErrTaken = errors.New("registry: the GPU is taken")

// Inventory is what a machine reports of its GPUs and its cached models. It expires 15 s after the last report.
type Inventory struct {
	// ID is the machine's, as Instances.Machines has it; it runs pods by Driver.
	ID       string     `json:"id"`
	Driver   pod.Driver `json:"driver"`
	Hostname string     `json:"hostname,omitempty"`
	// GPUs are by no order; one without a UUID is left out, for it cannot be claimed.
	GPUs []pod.GPU `json:"gpus"`
	// Models are those of its cache, by name.
	Models []pod.Model `json:"models,omitempty"`
}

// GPUHolder is a pod that has claimed a GPU, or a share of it.
type GPUHolder struct {
	Pod string `json:"pod"`
	// Endpoint is "" for a pod that works for none.
	Endpoint string `json:"endpoint,omitempty"`
	// Machine and Driver are what runs the pod.
	Machine string     `json:"machine"`
	Driver  pod.Driver `json:"driver"`
	// Share is in hundredths, 1 to pod.WholeGPU; of a worker that sleeps what it keeps, 0
	// or more.
	Share int `json:"share"`
	// Since is when it was claimed, in server time.
	Since time.Time `json:"since"`
	// Woken is when the pod was last asked to wake. A claim writes it, so that a Shrink of
	// the sleep before that is still under way finds another revision and fails.
	Woken time.Time `json:"woken,omitzero"`
}

// GPUClaims are who holds one GPU, and whether it is quarantined: of a claim and a
// quarantine that are written at once, the later one sees the other.
type GPUClaims struct {
	UUID       string      `json:"uuid"`
	Holders    []GPUHolder `json:"holders,omitempty"`
	Quarantine Quarantine  `json:"quarantine,omitzero"`
}

// Used is the sum of the shares, in hundredths.
func (c GPUClaims) Used() int {
	used := 0
	for _, h := range c.Holders {
		used += h.Share
	}
	return used
}

// Without is c without the claim of a pod on a machine.
func (c GPUClaims) Without(podID, machine string) GPUClaims {
	c.Holders = slices.DeleteFunc(slices.Clone(c.Holders), func(x GPUHolder) bool { return x.Pod == podID && x.Machine == machine })
	return c
}

// GPUs are the accelerators of all machines, and who holds them. A claim is keyed by
// the UUID alone, which is the same whatever program reports the card (docs/adr/0061).
type GPUs struct {
	machines *Table[Inventory]
	claims   *Table[GPUClaims]
}

// Report says which GPUs and models a machine has; it is to be repeated every BeatEvery. It
// returns an ErrInvalid for an id that cannot be.
func (g *GPUs) Report(ctx context.Context, i Inventory) error {
	if !pod.ValidID(i.ID) {
		return fmt.Errorf("%w: machine %q", ErrInvalid, i.ID)
	}
	i.GPUs = slices.DeleteFunc(slices.Clone(i.GPUs), func(c pod.GPU) bool { return !pod.ValidGPU(c.UUID) })
	return g.machines.Put(ctx, i.ID, i)
}

// Withdraw says that a machine has left; its claims stay.
func (g *GPUs) Withdraw(ctx context.Context, machine string) error {
	return g.machines.Delete(ctx, machine)
}

// Machines returns what the machines that live have reported, by id.
func (g *GPUs) Machines(ctx context.Context) ([]Inventory, error) {
	all, err := g.machines.List(ctx)
	slices.SortFunc(all, func(a, b Inventory) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Claims returns the claims of all GPUs that somebody holds or that were ever
// quarantined, by UUID.
func (g *GPUs) Claims(ctx context.Context) (map[string]GPUClaims, error) {
	all, err := g.claims.List(ctx)
	if err != nil {
		return nil, err
	}
	held := map[string]GPUClaims{}
	for _, c := range all {
		if len(c.Holders) > 0 || !c.Quarantine.Since.IsZero() {
			held[c.UUID] = c
		}
	}
	return held, nil
}

// Claim gives the pod its share of a GPU, or returns ErrTaken if less is left, or
// ErrQuarantined at h.Since. A GPU on probation is given to one pod at a time, beside those
// that sleep and keep nothing of it. A pod that holds it already keeps what it has, and
// gets what it gave back while it slept. Of two that claim at once one has it: the value
// is written by its revision.
func (g *GPUs) Claim(ctx context.Context, uuid string, h GPUHolder) error {
	if !pod.ValidGPU(uuid) || h.Share < 1 || h.Share > pod.WholeGPU {
		return fmt.Errorf("%w: claim of %d hundredths of GPU %q", ErrInvalid, h.Share, uuid)
	}
	return g.change(ctx, uuid, func(c GPUClaims) (GPUClaims, error) {
		if i := c.indexOf(h.Pod, h.Machine); i >= 0 {
			return c.regained(i, h)
		}
		switch {
		case c.Quarantine.Holds(h.Since):
			return c, fmt.Errorf("claim GPU %s for pod %s: %w", uuid, h.Pod, ErrQuarantined)
		case c.Used()+h.Share > pod.WholeGPU, c.Quarantine.Probation(h.Since) && c.Used() > 0:
			return c, fmt.Errorf("claim GPU %s for pod %s: %w", uuid, h.Pod, ErrTaken)
		}
		c.Holders = append(slices.Clone(c.Holders), h)
		return c, nil
	})
}

// indexOf is where the claim of a pod on a machine is, -1 if it has none.
func (c GPUClaims) indexOf(podID, machine string) int {
	return slices.IndexFunc(c.Holders, func(x GPUHolder) bool { return x.Pod == podID && x.Machine == machine })
}

// regained is c with the share of h for the holder at i, which has it already unless it
// has slept.
func (c GPUClaims) regained(i int, h GPUHolder) (GPUClaims, error) {
	has := c.Holders[i]
	switch {
	case has.Share >= h.Share && !h.Woken.After(has.Woken):
		return c, errUnchanged
	case has.Share < h.Share && c.Used()-has.Share+h.Share > pod.WholeGPU:
		return c, fmt.Errorf("claim GPU %s again for pod %s: %w", c.UUID, h.Pod, ErrTaken)
	}
	c.Holders = slices.Clone(c.Holders)
	c.Holders[i].Share, c.Holders[i].Woken = max(has.Share, h.Share), h.Woken
	return c, nil
}

// Shrink leaves the pod this share of a GPU, if it has more; Claim gives the rest back to
// it. That it has no claim is no error.
func (g *GPUs) Shrink(ctx context.Context, uuid, podID, machine string, share int) error {
	return g.change(ctx, uuid, func(c GPUClaims) (GPUClaims, error) {
		i := c.indexOf(podID, machine)
		if i < 0 || c.Holders[i].Share <= share {
			return c, errUnchanged
		}
		c.Holders = slices.Clone(c.Holders)
		c.Holders[i].Share = max(0, share)
		return c, nil
	})
}

// Release takes the claim of a pod on a machine back; that it has none is no error.
func (g *GPUs) Release(ctx context.Context, uuid, podID, machine string) error {
	return g.change(ctx, uuid, func(c GPUClaims) (GPUClaims, error) {
		left := c.Without(podID, machine)
		if len(left.Holders) == len(c.Holders) {
			return c, errUnchanged
		}
		return left, nil
	})
}

// change stores what f makes of the claims of a GPU.
func (g *GPUs) change(ctx context.Context, uuid string, f func(GPUClaims) (GPUClaims, error)) error {
	_, err := g.claims.change(ctx, uuid, func(c GPUClaims, _ bool) (GPUClaims, error) {
		c.UUID = uuid
		return f(c)
	})
	return ignoreUnchanged(err)
}
