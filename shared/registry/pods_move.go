package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"flightline/shared/pod"
)

// Move lets trigger happen to the pod: it is the only writer of a pod's
// status. Change tells people what happened, as of now; both are kept with the
// trigger, and Started with a start, only if the status became another; secrets
// of the pod's environment are kept out of Change. Mutate, if it is not nil, may
// set anything else, and is called again if somebody else was faster. Repeating
// a Move writes nothing.
//
// It returns the pod as it is then, or pod.ErrNotFound, a *pod.TransitionError
// if the pod's status does not allow it, or pod.ErrLocked for the stop or the
// removal of a locked pod.
func (p *Pods) Move(ctx context.Context, id string, by pod.Trigger, change string, now time.Time, mutate func(*pod.Pod)) (pod.Pod, error) {
	return movePod(func(do func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) { return p.Update(ctx, id, do) }, by, change, now, mutate)
}

// movePod is Move with the update of one pod's record.
func movePod(update func(func(pod.Pod) (pod.Pod, error)) (pod.Pod, error), by pod.Trigger, change string, now time.Time, mutate func(*pod.Pod)) (pod.Pod, error) {
	var kept pod.Pod
	moved, err := update(func(old pod.Pod) (pod.Pod, error) {
		kept = old
		next, err := moveOf(old, by, change, now, mutate)
		if err == nil && reflect.DeepEqual(old, next) {
			return next, errUnchanged
		}
		return next, err
	})
	if errors.Is(err, errUnchanged) {
		return kept, nil
	}
	return moved, err
}

// moveOf is the pod after the trigger. It leaves the maps and slices of old alone
// as far as mutate does.
func moveOf(old pod.Pod, by pod.Trigger, change string, now time.Time, mutate func(*pod.Pod)) (pod.Pod, error) {
	next := old
	var err error
	if next.Status, err = old.Status.Next(by); err != nil {
		return old, err
	}
	if old.Locked && old.Status != next.Status && (by == pod.Stop || by == pod.Remove) {
		return old, fmt.Errorf("%s pod %s: %w", by, old.ID, pod.ErrLocked)
	}
	if next.Status != old.Status {
		next.Changed, next.Change, next.By = now.UTC(), pod.Conceal(change, old.Spec.Env), by
		if by == pod.Start {
			next.Started = next.Changed
			if old.Driver != "" {
				next.Drain = pod.Drain{} // else its worker's start decides; see Appear
				next.Starts++
			}
		}
	}
	if mutate != nil {
		mutate(&next)
	}
	return next, nil
}
