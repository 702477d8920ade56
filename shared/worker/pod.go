package worker

import (
	"context"
	"errors"
	"time"

	"flightline/shared/host"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// maxBeatGap is how long the worker may not have been heard of before it makes
// sure that its pod is not taken for gone: less than a heartbeat lives.
const maxBeatGap = 2 * registry.BeatEvery

// podOf is the pod of this worker, with what its machine is.
func podOf(ctx context.Context, cfg Config, endpoint string, version int, started time.Time) pod.Pod {
	machine := host.Look(ctx, cfg.Log)
	machine.Version = cfg.Version
	return pod.Pod{
		ID: cfg.ID, Endpoint: endpoint, EndpointVersion: version, Spec: pod.Spec{Image: cfg.Image, Command: cfg.Command},
		MachineID: host.ID(), Machine: machine, Started: started.UTC(),
	}
}

// hostOf is what the heartbeat says of the machine.
func hostOf(m pod.Machine) registry.Host {
	return registry.Host{
		Name: m.Hostname, OS: m.OS, Arch: m.Arch, CPUs: m.CPU.Threads, Version: m.Version,
	}
}

// recordRunning makes the pod's record say that it runs: at the start, and when the
// worker was not heard of for so long that somebody may have thought it gone.
func (p *presence) recordRunning(ctx context.Context) {
	if p.appeared && time.Since(p.heard) < maxBeatGap {
		return
	}
	kept, err := p.pods.Appear(ctx, p.pod, p.pod.Started, p.clock())
	switch {
	case err == nil:
		p.appeared, p.ownsRecord, p.looked = true, kept.Driver == "", time.Now()
		p.applyDrain(kept)
	case errors.Is(err, pod.ErrConflict), errors.Is(err, registry.ErrInvalid):
		p.appeared, p.ownsRecord = true, false // it will not be otherwise
		p.log.WarnContext(ctx, "no pod of this worker is shown", "err", err)
	default:
		p.appeared = false
		p.log.DebugContext(ctx, "pod not registered, trying again", "err", err)
	}
}

// recordLeft makes the pod's record say that it ended in order. How one of a driver ended, that
// driver says; a pod that another worker has is not this one's to end.
func (p *presence) recordLeft(ctx context.Context) {
	if !p.ownsRecord {
		return
	}
	change := "its worker left"
	if why := p.drainReason(); why != "" {
		change = "its worker was drained, and left: " + why
	}
	_, err := p.pods.Move(ctx, p.pod.Endpoint, p.pod.ID, pod.Leave, change, p.clock())
	if err != nil && !errors.Is(err, pod.ErrNotFound) {
		p.log.DebugContext(ctx, "end of the pod not recorded", "err", err)
	}
}
