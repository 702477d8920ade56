package autoscaler

import (
	"context"
	"errors"
	"slices"
	"time"

	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// absentProcess and absentDocker are how long the machine of a claim whose pod is over
	// must be away until others release it: processes end with their autoscaler, containers
	// go on.
	absentProcess = 2 * time.Second
	absentDocker  = 10 * time.Minute
	// sweepInterval is the pause between two looks at claims where no endpoint needs a GPU.
	sweepInterval = 10 * time.Second
)

// superviseGPUs looks after the GPUs of all machines: it quarantines those that fail and
// restores those that work again, drains the workers of those that are quarantined, and
// releases what machines that are gone have claimed.
func (l *leader) superviseGPUs(ctx context.Context, v *view) error {
	if len(l.gpus) == 0 && v.now.Sub(l.swept) < sweepInterval {
		return nil
	}
	l.swept = v.now
	claims, err := l.registry.GPUs.Claims(ctx)
	if err != nil {
		return err
	}
	machines, err := l.registry.GPUs.Machines(ctx)
	if err != nil {
		return err
	}
	return errors.Join(l.quarantineGPUs(ctx, v, machines, claims), l.drainQuarantined(ctx, v, claims), l.sweepClaims(ctx, v, machines, claims))
}

// quarantineGPUs begins and ends quarantines. claims has those that hold afterwards.
func (l *leader) quarantineGPUs(ctx context.Context, v *view, machines []registry.Inventory, claims map[string]registry.GPUClaims) error {
	j := gpuEvidence{now: v.now, pods: gpuPodsOf(v.pods)}
	for _, m := range machines {
		for _, g := range m.GPUs {
			c := card{Device: placement.Device{GPU: g, Machine: m.ID, Driver: m.Driver}, quarantine: claims[g.UUID].Quarantine}
			j.cards = append(j.cards, c)
		}
	}
	j.passed = l.followProbes(v, j)
	var errs []error
	for _, d := range j.decide() {
		if d.restore {
			err := l.registry.GPUs.Restore(ctx, d.uuid, d.since, v.now, d.forget)
			if errs = append(errs, err); err == nil {
				l.log.WarnContext(ctx, "GPU restored", "gpu", d.uuid, "machine", d.machine, "reason", d.reason)
			}
			continue
		}
		q, begun, err := l.registry.GPUs.Quarantine(ctx, d.uuid, registry.Quarantine{Machine: d.machine, Reason: d.reason, Since: v.now.UTC()}, l.cfg.quarantineLength)
		if errs = append(errs, err); err != nil {
			continue
		}
		if begun {
			l.log.WarnContext(ctx, "GPU quarantined", "gpu", d.uuid, "machine", d.machine, "until", q.Until, "count", q.Count, "reason", d.reason)
		}
		held := claims[d.uuid]
		held.Quarantine = q
		claims[d.uuid] = held
	}
	return errors.Join(errs...)
}

// followProbes looks at the workers on GPUs on probation, and returns those that have
// shown that these work.
func (l *leader) followProbes(v *view, j gpuEvidence) map[string]bool {
	passed, before := map[string]bool{}, l.probes
	l.probes = map[string]probe{}
	for _, p := range j.pods {
		tries := slices.ContainsFunc(j.cards, func(c card) bool {
			return c.quarantine.Probation(v.now) && slices.Contains(p.Devices, c.UUID) && !p.Created.Before(c.quarantine.Until)
		})
		w, heard := v.worker(p.Pod)
		if !tries || p.Status != pod.Running || !heard || w.State == registry.WorkerInitializing || w.State == registry.WorkerUnhealthy {
			continue
		}
		next := before[p.ID].next(w, v.now)
		l.probes[p.ID] = next
		passed[p.ID] = next.passed(w, v.now)
	}
	return passed
}

// drainQuarantined lets the workers on quarantined GPUs get no more jobs; those that they
// have go on. A locked worker stays.
func (l *leader) drainQuarantined(ctx context.Context, v *view, claims map[string]registry.GPUClaims) error {
	var errs []error
	for _, p := range v.pods {
		if p.Status != pod.Running || !fleet(p) || p.Locked {
			continue
		}
		e, exists := v.endpoint(p.Endpoint)
		if !exists {
			continue
		}
		for _, uuid := range p.Devices {
			if q := claims[uuid].Quarantine; q.Holds(v.now) && !l.drains(ctx, p) {
				l.log.InfoContext(ctx, "worker drained, its GPU is quarantined", "pod", p.ID, "endpoint", p.Endpoint, "gpu", uuid)
				errs = append(errs, l.drain(ctx, e, p.ID, "its GPU "+uuid+" is quarantined: "+q.Reason))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// drains reports whether a worker was asked to drain and is handed no more jobs. A drain
// that failed in between may have got no further than the pod's record.
func (l *leader) drains(ctx context.Context, p pod.Pod) bool {
	if p.Drain.At.IsZero() {
		return false
	}
	token, err := l.registry.Tokens.Find(ctx, p.Endpoint, p.ID)
	return err != nil || token.Draining
}

// sweepClaims releases the claims of machines that are gone, once their pods are over.
// A machine that is there releases its own.
func (l *leader) sweepClaims(ctx context.Context, v *view, machines []registry.Inventory, claims map[string]registry.GPUClaims) error {
	there := map[string]bool{} // machines, and pods that run on one
	for _, m := range machines {
		there[m.ID] = true
	}
	for _, p := range v.pods {
		if p.Status == pod.Running {
			there[p.MachineID+" "+p.ID] = true
		}
	}
	before := l.orphaned
	l.orphaned = map[string]time.Time{}
	for uuid, c := range claims {
		for _, h := range c.Holders {
			if there[h.Machine] || there[h.Machine+" "+h.Pod] {
				continue
			}
			if err := l.sweepClaim(ctx, v.now, uuid, h, before); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepClaim releases a claim without a pod and a machine, if that was so for long
// enough. before has since when that is known.
func (l *leader) sweepClaim(ctx context.Context, now time.Time, uuid string, h registry.GPUHolder, before map[string]time.Time) error {
	key := h.Machine + " " + h.Pod + " " + uuid
	absent := lasting(key, before, l.orphaned, now)
	away := absentProcess
	if h.Driver == pod.Docker {
		away = absentDocker
	}
	if absent < away {
		return nil
	}
	l.log.InfoContext(ctx, "GPU released, its machine is gone", "gpu", uuid, "pod", h.Pod, "machine", h.Machine)
	return l.registry.GPUs.Release(ctx, uuid, h.Pod, h.Machine)
}
