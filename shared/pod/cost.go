package pod

import (
	"math"
	"time"
)

// GPUs is how many GPUs the pod has and of which kind, as far as that is
// known. A container has those it was made with, a process all of its machine's
// unless it was made with fewer.
func (p Pod) GPUs() (kind string, count int) {
	count = p.Spec.GPUs
	if count == 0 && p.Driver != Docker {
		count = len(p.Machine.GPUs)
	}
	if count > 0 && len(p.Machine.GPUs) > 0 {
		kind = p.Machine.GPUs[0].Name
	}
	return kind, count
}

// VCPUs is how many virtual CPUs the pod has, 0 if that is not known. A process
// has all of its machine's: nothing limits it.
func (p Pod) VCPUs() float64 {
	if p.Spec.VCPUs > 0 && p.Driver != Process {
		return p.Spec.VCPUs
	}
	return p.Machine.VCPUs
}

// MemoryGB is how much memory the pod has, 0 if that is not known. A process has
// all of its machine's.
func (p Pod) MemoryGB() float64 {
	if p.Spec.MemoryGB > 0 && p.Driver != Process {
		return p.Spec.MemoryGB
	}
	return p.Machine.MemoryGB
}

// Place is what the catalogue has of the pod's machine. A nil catalogue knows
// nothing.
func (c *Catalog) Place(p Pod) (Place, bool) {
	if c == nil {
		return Place{}, false
	}
	place, ok := c.Machines[p.MachineID]
	if !ok {
		place, ok = c.Machines[p.Machine.Hostname]
	}
	return place, ok
}

// GPUType is what the catalogue has of a kind of GPU.
func (c *Catalog) GPUType(kind string) GPUType {
	if c == nil {
		return GPUType{}
	}
	return c.GPUTypes[kind]
}

// CPUType is what the catalogue has of a processor.
func (c *Catalog) CPUType(model string) CPUType {
	if c == nil {
		return CPUType{}
	}
	return c.CPUTypes[model]
}

// GPUPrice is what one GPU of the pod costs in an hour, nil if the catalogue
// does not say. A machine counts as secure unless it is said not to be.
func (c *Catalog) GPUPrice(p Pod) *float64 {
	kind, _ := p.GPUs()
	t := c.GPUType(kind)
	place, _ := c.Place(p)
	secure := place.SecureCloud == nil || *place.SecureCloud
	switch {
	case secure && p.Interruptible && t.SecureSpotPrice != nil:
		return t.SecureSpotPrice
	case secure:
		return t.SecurePrice
	case p.Interruptible && t.CommunitySpotPrice != nil:
		return t.CommunitySpotPrice
	}
	return t.CommunityPrice
}

// Plans are the savings plans that hold for the pod now; never nil.
func (c *Catalog) Plans(p Pod, now time.Time) []SavingsPlan {
	plans := []SavingsPlan{}
	if c == nil {
		return plans
	}
	kind, _ := p.GPUs()
	for _, plan := range c.SavingsPlans {
		mine := plan.PodID == p.ID || plan.PodID == "" && kind != "" && plan.GPUTypeID == kind
		if mine && !now.Before(plan.StartTime) && now.Before(plan.EndTime) {
			plans = append(plans, plan)
		}
	}
	return plans
}

// Cost is what the pod costs in an hour without savings plans, and with the
// cheapest that holds now. Both are nil if the catalogue does not say.
func (c *Catalog) Cost(p Pod, now time.Time) (full, adjusted *float64) {
	_, gpus := p.GPUs()
	count := float64(max(1, gpus))
	if gpus > 0 {
		full = times(c.GPUPrice(p), count)
	} else {
		full = times(c.CPUType(p.Machine.CPU.Model).VCPUPrice, p.VCPUs())
	}
	if place, _ := c.Place(p); full == nil && p.Driver == "" {
		full = place.CostPerHr // whoever runs its own worker has the machine
	}
	adjusted = full
	for _, plan := range c.Plans(p, now) {
		if cost := cents(plan.CostPerHr * count); adjusted == nil || cost < *adjusted {
			adjusted = &cost
		}
	}
	return full, adjusted
}

// times is price × n, nil if either is not known.
func times(price *float64, n float64) *float64 {
	if price == nil || n == 0 {
		return nil
	}
	cost := cents(*price * n)
	return &cost
}

// cents rounds to a millionth of a credit: 3 × 0.1 is 0.3.
func cents(cost float64) float64 { return math.Round(cost*1e6) / 1e6 }
