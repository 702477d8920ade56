package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"flightline/shared/pod"
)

// Appear is WorkerPods.Appear, but leaves a pod of a driver to that driver. It
// returns a pod.ErrConflict for one that a driver runs for another endpoint.
func (p *Pods) Appear(ctx context.Context, seen pod.Pod, began, now time.Time) (pod.Pod, error) {
	old, err := p.driven.table.read(ctx, seen.ID)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && isOwners(old.value):
		return p.own.Appear(ctx, seen, began, now)
	case err == nil && old.value.Endpoint != seen.Endpoint:
		return old.value, fmt.Errorf("pod %s: %w: it works for endpoint %q", seen.ID, pod.ErrConflict, old.value.Endpoint)
	}
	return old.value, err
}

// appeared is the record of a pod that nobody here started.
func appeared(seen pod.Pod, now time.Time) pod.Pod {
	seen.Status, seen.Driver = pod.Running, ""
	seen.Created, seen.Changed, seen.Change = now.UTC(), now.UTC(), "its worker appeared"
	if seen.Started.IsZero() {
		seen.Started = seen.Created
	}
	if seen.Name == "" {
		seen.Name = seen.ID
	}
	return seen
}

// completed is old with what its worker knows better.
func completed(old, seen pod.Pod, began time.Time) pod.Pod {
	known := !reflect.DeepEqual(seen.Machine, pod.Machine{})
	if !old.Drains(began) {
		old.Drain = pod.Drain{}
	}
	if known {
		old.Machine = seen.Machine
	}
	if seen.MachineID != "" {
		old.MachineID = seen.MachineID
	}
	if seen.Spec.Image != "" || len(seen.Spec.Command) > 0 {
		old.Spec.Image, old.Spec.Command = seen.Spec.Image, seen.Spec.Command
	}
	if !seen.Started.IsZero() {
		old.Started = seen.Started
	}
	old.EndpointVersion = max(old.EndpointVersion, seen.EndpointVersion)
	return old
}
