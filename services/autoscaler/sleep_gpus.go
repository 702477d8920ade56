package autoscaler

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/shared/endpoint"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// freedGPU is what a worker of the endpoint gives back of each of its GPUs while it sleeps,
// in hundredths of the card.
func freedGPU(e endpoint.Endpoint, spec pod.Spec) int {
	if spec.GPUs == 0 || e.SleepGPUShare == nil {
		return 0
	}
	share := placement.RequestOf(spec).Share
	return max(0, share-int(math.Round(*e.SleepGPUShare*pod.WholeGPU)))
}

// withFreedGPUs is the worker with what it gives back of its GPUs while it sleeps, and
// whether it has, and could wake now.
func withFreedGPUs(w member, e endpoint.Endpoint, p pod.Pod, claims map[string]registry.GPUClaims) member {
	switch {
	case w.asked:
		w.frees = p.Sleep.GPUFreed
	case w.sleeps && !w.stale && e.SleepTimeout > 0:
		w.frees = freedGPU(e, p.Spec)
	}
	if w.state != sleeping {
		return w
	}
	share := placement.RequestOf(p.Spec).Share
	for _, c := range claims {
		for _, h := range c.Holders {
			if h.Pod == p.ID && h.Share < share {
				w.small = true
				w.taken = w.taken || c.Used()-h.Share+share > pod.WholeGPU
			}
		}
	}
	return w
}

// splitWakes takes those of the workers to wake out of the decision that must regain their
// GPUs first.
func (s *postponed) splitWakes() {
	s.wakes = nil
	var at []string
	for _, id := range s.out.wake {
		if i := slices.IndexFunc(s.in.members, func(w member) bool { return w.id == id }); i >= 0 && s.in.members[i].small {
			s.wakes = append(s.wakes, id)
		} else {
			at = append(at, id)
		}
	}
	s.out.wake = at
}

// sleepers are the workers of the endpoint that sleep, have given back a part of their
// GPUs, and may be woken; those first that fell asleep last.
func (s *postponed) sleepers(held []arbiter.Worker) []arbiter.Sleeper {
	small := slices.DeleteFunc(pick(s.in.members, sleeping), func(w member) bool { return !w.small || !w.mayWake() })
	share := placement.RequestOf(s.in.spec).Share
	var all []arbiter.Sleeper
	for _, w := range lastAsleep(small, len(small)) {
		i := slices.IndexFunc(held, func(x arbiter.Worker) bool { return x.Pod == w.id })
		if i >= 0 && held[i].Share < share {
			all = append(all, arbiter.Sleeper{Pod: w.id, Machine: held[i].Machine, Devices: held[i].Devices, Share: share - held[i].Share})
		}
	}
	return all
}

// grantWakes makes the decision wake the workers that regain their GPUs, and returns how
// many those are. What is left to wake stays in s.wakes.
func (s *postponed) grantWakes(d arbiter.Decision) int {
	n := 0
	for _, w := range d.Wakes {
		if w.Endpoint == s.e.ID {
			s.out.wake = append(s.out.wake, w.Pod)
			s.wakes = slices.DeleteFunc(s.wakes, func(id string) bool { return id == w.Pod })
			n++
		}
	}
	return n
}

// describeSleep says of a worker what it gives back and keeps when it sleeps.
func (s *postponed) describeSleep(w *arbiter.Worker, x member) {
	switch {
	case x.frees == 0:
	case x.state == sleeping && x.small:
		w.Asleep = true
	case x.state == sleeping, slices.Contains(s.out.sleep, x.id): // it is about to give that back
		w.State, w.Keeps = arbiter.Leaving, max(0, w.Share-x.frees)
	case x.state == idle:
		w.CanSleep, w.Keeps = true, max(0, w.Share-x.frees)
	}
}

// shrinkGPUs gives back what a worker that was seen asleep does not keep of its GPUs. All
// of it may run twice.
func (a *agent) shrinkGPUs(ctx context.Context, p pod.Pod) error {
	if p.Sleep.GPUFreed == 0 {
		return nil
	}
	keeps := placement.RequestOf(p.Spec).Share - p.Sleep.GPUFreed
	for _, uuid := range a.claimsByPod()[p.ID] {
		if err := a.registry.GPUs.Shrink(ctx, uuid, p.ID, a.machine, keeps); err != nil {
			return err
		}
	}
	return nil
}

// regainGPUs claims again what a worker that is to wake gave back while it slept. It
// returns false if others have that now: the worker sleeps on, and the leader decides
// again. The worker learns that it is to wake only after regainGPUs has returned true. All
// of it may run twice.
func (a *agent) regainGPUs(ctx context.Context, p pod.Pod) (ok bool, err error) {
	if !p.Sleep.Wakes() || p.Sleep.GPUFreed == 0 {
		return true, nil
	}
	claim := a.holder(p)
	claim.Woken = p.Sleep.Wake
	for _, uuid := range slices.Sorted(slices.Values(a.claimsByPod()[p.ID])) {
		if err = a.registry.GPUs.Claim(ctx, uuid, claim); err != nil {
			break
		}
	}
	if !errors.Is(err, registry.ErrTaken) {
		return err == nil, err
	}
	if err := a.shrinkGPUs(ctx, p); err != nil {
		return false, err
	}
	a.log.InfoContext(ctx, "worker sleeps on, its GPU is taken", "pod", p.ID, "endpoint", p.Endpoint)
	return false, a.changePod(ctx, p.ID, func(x *pod.Pod) bool {
		if x.Sleep.At != p.Sleep.At || x.Sleep.Wake != p.Sleep.Wake {
			return false
		}
		x.Sleep.Wake = time.Time{}
		return true
	})
}

// clearSleep notes that a worker which is about to start is awake.
func (a *agent) clearSleep(ctx context.Context, p pod.Pod) error {
	if p.Sleep.At.IsZero() {
		return nil
	}
	return a.changePod(ctx, p.ID, func(x *pod.Pod) bool {
		x.Sleep = pod.Sleep{Took: x.Sleep.Took}
		return true
	})
}
