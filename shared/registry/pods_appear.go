package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"flightline/shared/pod"
)

// Appear says that the worker of this pod lives, so that there is a true
// record of it: one is made if there is none, and a pod that its owner runs
// and that was EXITED runs again, as of now. What seen knows of the machine,
// the spec and the start is kept; its zero values change nothing. A pod of a
// driver is left to that driver, but for facts that it did not know. That an
// earlier life was to drain is past. Repeating it writes nothing.
//
// A pod that was removed stays so, unless that was before began, when this
// life of the worker began; then it is another pod of the same id. Appear
// returns a *pod.TransitionError for one that stays removed, and a
// pod.ErrConflict for the worker of another endpoint.
func (p *Pods) Appear(ctx context.Context, seen pod.Pod, began, now time.Time) (pod.Pod, error) {
	for range maxUpdates {
		old, err := p.Get(ctx, seen.ID)
		switch {
		case errors.Is(err, pod.ErrNotFound):
			made := appeared(seen, now)
			if err := p.Create(ctx, made); !errors.Is(err, ErrExists) {
				return made, err
			}
			continue
		case err != nil:
			return pod.Pod{}, err
		case old.Endpoint != seen.Endpoint:
			return old, fmt.Errorf("pod %s: %w: it works for endpoint %q", seen.ID, pod.ErrConflict, old.Endpoint)
		case old.Driver != "" && old.Status != pod.Running:
			return old, nil
		case old.Status == pod.Terminated && old.Changed.Before(began):
			if err := p.Forget(ctx, seen.ID); err != nil {
				return old, err
			}
			continue
		}
		if next := completed(old, seen, began); old.Status == pod.Running && reflect.DeepEqual(old, next) {
			return old, nil
		}
		return p.Move(ctx, seen.ID, pod.Start, "its worker is back", now, func(x *pod.Pod) { *x = completed(*x, seen, began) })
	}
	return pod.Pod{}, fmt.Errorf("pod %s appears: %w", seen.ID, ErrConflict)
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
	if old.Driver != "" {
		if known && reflect.DeepEqual(old.Machine, pod.Machine{}) {
			old.Machine = seen.Machine
		}
		return old
	}
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
