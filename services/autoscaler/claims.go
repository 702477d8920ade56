package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// claimsInterval is the pause between two readings of what this machine has claimed,
// which it otherwise remembers.
const claimsInterval = 5 * time.Second

// errNoGPU means that this machine has no GPU for the pod now; the text says why.
var errNoGPU = errors.New("no GPU for it")

// lacks says what of the spec this machine does not have, as far as that is
// known, "" for nothing. An engine says so itself.
func (a *agent) lacks(s pod.Spec) string {
	if have := len(a.gpus()); a.driver.Name() == pod.Process && s.GPUs > have {
		return fmt.Sprintf("gpuCount is %d, and the machine has %d GPUs", s.GPUs, have)
	}
	return ""
}

// claimGPUs takes the GPUs of a pod that is about to start: those chosen for it, else
// some that are free here. It returns none for a pod that needs none, and an errNoGPU
// if another pod has them. All of it may run twice.
func (a *agent) claimGPUs(ctx context.Context, p pod.Pod) ([]pod.GPU, error) {
	r := placement.RequestOf(p.Spec)
	if r.Count == 0 {
		return nil, a.releaseSurplus(ctx, p.ID, nil)
	}
	uuids := slices.Sorted(slices.Values(p.Devices))
	if len(uuids) == 0 {
		var err error
		if uuids, err = a.chooseGPUs(ctx, p, r); err != nil {
			return nil, err
		}
	}
	here := map[string]pod.GPU{}
	for _, g := range a.gpus() {
		here[g.UUID] = g
	}
	var got []pod.GPU
	for _, uuid := range uuids {
		g, exists := here[uuid]
		if !exists {
			return nil, fmt.Errorf("%w: the machine has no GPU %s any more", errNoGPU, uuid)
		}
		if err := a.claimGPU(ctx, p, uuid); err != nil {
			return nil, err // what was claimed is released by the next look
		}
		got = append(got, g)
	}
	if err := a.releaseSurplus(ctx, p.ID, uuids); err != nil {
		return nil, err
	}
	return got, a.checkUnused(ctx, p.ID, uuids)
}

// releaseSurplus gives back what the pod holds beside these GPUs: it was changed, and is
// not started again yet.
func (a *agent) releaseSurplus(ctx context.Context, podID string, uuids []string) error {
	for _, uuid := range a.claimsByPod()[podID] {
		if slices.Contains(uuids, uuid) {
			continue
		}
		if err := a.registry.GPUs.Release(ctx, uuid, podID, a.machine); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(uuids) == 0 {
		delete(a.held, podID)
	} else {
		a.held[podID] = slices.Clone(uuids)
	}
	return nil
}

// claimFree claims the GPUs of a pod that has no machine yet, and reports whether it could.
// If another machine gets the pod, the claims are released by this look or the next.
func (a *agent) claimFree(ctx context.Context, p pod.Pod) bool {
	_, err := a.claimGPUs(ctx, p)
	a.warn(ctx, "pod not claimed, trying again", p.ID, ignoreNoGPU(err))
	return err == nil
}

// claimGPU claims one GPU for the pod. It returns an errNoGPU if another pod has it.
func (a *agent) claimGPU(ctx context.Context, p pod.Pod, uuid string) error {
	err := a.registry.GPUs.Claim(ctx, uuid, a.holder(p))
	switch {
	case errors.Is(err, registry.ErrTaken):
		return fmt.Errorf("%w: GPU %s is held by another pod", errNoGPU, uuid)
	case errors.Is(err, registry.ErrQuarantined):
		return fmt.Errorf("%w: GPU %s is quarantined", errNoGPU, uuid)
	case err != nil:
		return err
	}
	a.noteClaim(p.ID, uuid)
	return nil
}

// holder is what claims a GPU of this machine for the pod.
func (a *agent) holder(p pod.Pod) registry.GPUHolder {
	return registry.GPUHolder{
		Pod: p.ID, Endpoint: p.Endpoint, Machine: a.machine, Driver: a.driver.Name(), Share: placement.RequestOf(p.Spec).Share, Since: a.queue.Now().UTC(),
	}
}

// checkUnused returns an error while a pod that holds none of these GPUs runs on one here:
// the leader released its claims while this machine was away. To be called once the GPUs
// are claimed: then no such pod can claim them again, and each is stopped.
func (a *agent) checkUnused(ctx context.Context, podID string, uuids []string) error {
	for _, other := range a.agents { // their drivers may have the same cards
		running, err := other.driver.List(ctx)
		machine := "" // what another agent's is, that may not know yet
		if other == a {
			if err != nil {
				return err
			}
			machine = a.machine
		}
		claims, err := a.registry.GPUs.Claims(ctx) // after the list: what has started since holds its own
		if err != nil {
			return err
		}
		for _, i := range running {
			for _, uuid := range uuids {
				if i.PodID != podID && i.Running && slices.Contains(i.GPUs, uuid) && !holdsGPU(claims[uuid], i.PodID, machine) {
					return fmt.Errorf("GPU %s is in use until pod %s has ended", uuid, i.PodID)
				}
			}
		}
	}
	return nil
}

// holdsGPU reports whether the pod of this machine, "" for any, has a claim.
func holdsGPU(c registry.GPUClaims, podID, machine string) bool {
	return slices.ContainsFunc(c.Holders, func(h registry.GPUHolder) bool { return h.Pod == podID && (machine == "" || h.Machine == machine) })
}

// reclaimGPUs claims the GPUs that a pod uses here and does not hold: the leader released
// its claims while this machine was away. It returns an errNoGPU if another pod has one.
func (a *agent) reclaimGPUs(ctx context.Context, p pod.Pod, i driver.Instance) error {
	if len(i.GPUs) == 0 {
		return nil
	}
	claims, err := a.registry.GPUs.Claims(ctx)
	if err != nil {
		return err
	}
	for _, uuid := range i.GPUs {
		if holdsGPU(claims[uuid], p.ID, a.machine) {
			continue
		}
		if err := a.claimGPU(ctx, p, uuid); err != nil {
			return err
		}
	}
	return nil
}

func ignoreNoGPU(err error) error {
	if errors.Is(err, errNoGPU) {
		return nil
	}
	return err
}

// adopt notes that a pod went on while its autoscaler was away, as containers do. It
// returns true if another pod has its GPUs now, so that it is to be stopped.
func (a *agent) adopt(ctx context.Context, p pod.Pod, i driver.Instance) (stop bool) {
	err := a.reclaimGPUs(ctx, p, i)
	if errors.Is(err, errNoGPU) {
		a.log.WarnContext(ctx, "pod went on while its autoscaler was away, and is stopped", "pod", p.ID, "err", err)
		return true
	}
	if err == nil {
		_, err = a.registry.Pods.Move(ctx, p.ID, pod.Start, "its autoscaler is back", a.queue.Now(), func(x *pod.Pod) error {
			x.Started, x.Starts = p.Started, i.Life
			return nil
		})
	}
	a.warn(ctx, "pod that runs not noted, trying again", p.ID, err)
	return false
}

// chooseGPUs are the GPUs of this machine for a pod that nobody has chosen any for:
// of those that it holds already and that would do, else of those that are free.
func (a *agent) chooseGPUs(ctx context.Context, p pod.Pod, r placement.Request) ([]string, error) {
	claims, err := a.registry.GPUs.Claims(ctx)
	if err != nil {
		return nil, err
	}
	var mine, devices []placement.Device
	for _, g := range a.gpus() {
		c := claims[g.UUID]
		d := placement.Device{GPU: g, Machine: a.machine, Driver: a.driver.Name(), Used: c.Without(p.ID, a.machine).Used()}
		d = quarantinedDevice(d, c.Quarantine, a.queue.Now())
		if devices = append(devices, d); holdsGPU(c, p.ID, a.machine) {
			mine = append(mine, d)
		}
	}
	chosen, ok := placement.Choose(r, mine, nil)
	if !ok {
		chosen, ok = placement.Choose(r, devices, nil)
	}
	if !ok {
		there, _ := placement.Refusal(r, devices)
		return nil, fmt.Errorf("%w: it needs %s; on its machine %s", errNoGPU, r, there)
	}
	return chosen.UUIDs, nil
}

// noteClaim notes that the pod has claimed a GPU here.
func (a *agent) noteClaim(podID, uuid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.held[podID], uuid) {
		a.held[podID] = append(a.held[podID], uuid)
	}
}

// claimsByPod are the claims of this machine, by pod, as far as they are remembered.
func (a *agent) claimsByPod() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.held)
}

// recallClaims reads what this machine has claimed, also in an earlier life.
func (a *agent) recallClaims(ctx context.Context) error {
	if time.Since(a.recalled) < claimsInterval {
		return nil
	}
	claims, err := a.registry.GPUs.Claims(ctx)
	if err != nil {
		return err
	}
	for uuid, c := range claims {
		for _, h := range c.Holders {
			if h.Machine == a.machine {
				a.noteClaim(h.Pod, uuid)
			}
		}
	}
	a.recalled = time.Now()
	return nil
}

// releaseGone gives back the GPUs of pods that neither run here nor should.
func (a *agent) releaseGone(ctx context.Context, running, wanted map[string]bool) {
	for id := range a.claimsByPod() {
		if !running[id] && !wanted[id] {
			a.begin(id, func() { a.release(ctx, id) })
		}
	}
}

// release gives the pod's GPUs back, if its record says that it is over and then the
// driver has nothing of it that runs. It is to be called by begin: a start of the same
// pod reads its record afterwards.
func (a *agent) release(ctx context.Context, id string) {
	p, err := a.registry.Pods.Get(ctx, id)
	if err != nil && !errors.Is(err, pod.ErrNotFound) || err == nil && p.Status == pod.Running && a.here(p) {
		return
	}
	running, err := a.driver.List(ctx)
	if err != nil || slices.ContainsFunc(running, func(i driver.Instance) bool { return i.PodID == id && i.Running }) {
		return
	}
	a.releaseClaims(ctx, id)
}

// releaseClaims gives back what the pod has claimed here; what fails is tried again.
func (a *agent) releaseClaims(ctx context.Context, id string) {
	for _, uuid := range a.claimsByPod()[id] {
		if err := a.registry.GPUs.Release(ctx, uuid, id, a.machine); err != nil {
			a.warn(ctx, "GPU of a pod not released, trying again", id, err)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, id)
}

// withGPUs is the environment with what lets the programs of a pod see its GPUs and no
// others.
func withGPUs(env map[string]string, devices []pod.GPU, spec pod.Spec) map[string]string {
	if len(devices) == 0 {
		return env
	}
	if env == nil {
		env = map[string]string{}
	}
	share := placement.RequestOf(spec).Share
	var all []string
	by := map[string][]string{}
	memory := 0
	for _, g := range devices {
		all, by[g.Vendor] = append(all, g.UUID), append(by[g.Vendor], g.UUID)
		memory += g.MemoryMB * share / pod.WholeGPU
	}
	env["FLIGHTLINE_GPU_UUIDS"] = strings.Join(all, ",")
	env["FLIGHTLINE_GPU_SHARE"] = fmt.Sprint(float64(share) / pod.WholeGPU)
	if !slices.ContainsFunc(devices, func(g pod.GPU) bool { return g.MemoryMB == 0 }) { // else it is unknown
		env["FLIGHTLINE_GPU_MEMORY_MB"] = fmt.Sprint(memory)
	}
	if uuids := by[pod.NVIDIA]; len(uuids) > 0 {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(uuids, ",")
	}
	if uuids := by[pod.AMD]; len(uuids) > 0 {
		env["ROCR_VISIBLE_DEVICES"] = strings.Join(uuids, ",")
	}
	return env
}
