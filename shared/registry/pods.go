package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/pod"
)

// Pods are the pods by id, those of the last day included that are gone. Pods
// of a driver are in a bucket that only control and autoscalers write, since
// what it holds is run; the others are WorkerPods. A driver's pod hides another
// of its id.
type Pods struct {
	driven podBucket
	own    *WorkerPods
	// endpoint narrows the pods that no driver runs; "" means those of all.
	endpoint string
	last     *lastKnownPods
}

// At returns the same pods, but looks for those that no driver runs at one
// endpoint only: workers of two endpoints may have the same id.
func (p *Pods) At(endpoint string) *Pods {
	at := *p
	at.endpoint = endpoint
	return &at
}

// Create stores a pod. It returns ErrExists if its id is taken, and an
// ErrInvalid for an id that cannot be.
func (p *Pods) Create(ctx context.Context, made pod.Pod) error {
	if !pod.ValidID(made.ID) {
		return fmt.Errorf("%w: pod %q", ErrInvalid, made.ID)
	}
	if isOwners(made) {
		_, err := p.own.create(ctx, workerKey(made.Endpoint, made.ID), made)
		return err
	}
	_, err := p.driven.create(ctx, made.ID, made)
	return err
}

// Changed returns a channel that is closed when this process learns of a later
// write to a driver's pod, of its own or of another's; without Run that is never.
func (p *Pods) Changed() <-chan struct{} {
	_, changed := p.driven.cache.seen()
	return changed
}

// Get returns the pod as its bucket has it, or pod.ErrNotFound. Of several pods
// of one id that no driver runs it returns the one that was written last.
func (p *Pods) Get(ctx context.Context, id string) (pod.Pod, error) {
	found, err := p.find(ctx, id)
	return found.pod, err
}

// foundPod is a pod with its bucket and its key there.
type foundPod struct {
	pod pod.Pod
	in  podBucket
	key string
	own bool // it is one of WorkerPods
}

// find returns the pod of this id, or pod.ErrNotFound.
func (p *Pods) find(ctx context.Context, id string) (foundPod, error) {
	if !pod.ValidID(id) {
		return foundPod{}, pod.ErrNotFound
	}
	driven, err := p.driven.table.read(ctx, id)
	found := foundPod{pod: driven.value, in: p.driven, key: id}
	switch {
	case err != nil && !errors.Is(err, ErrNotFound), err == nil && !isOwners(driven.value):
		return found, err
	case err == nil && p.endpoint != "" && driven.value.Endpoint != p.endpoint:
		err = pod.ErrNotFound
	}
	own, ownErr := p.own.find(ctx, p.endpoint, id)
	if errors.Is(ownErr, ErrNotFound) {
		return found, notFoundAs(pod.ErrNotFound, err) // one of an older program may be there
	}
	return foundPod{pod: ownersView(own), in: p.own.podBucket, key: own.key, own: true}, ownErr
}

// Update stores what change makes of the pod and returns it. Change is called
// again if somebody else was faster; its errors are returned as they are,
// besides pod.ErrNotFound. An id never changes.
func (p *Pods) Update(ctx context.Context, id string, change func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
	found, err := p.find(ctx, id)
	if err != nil {
		return pod.Pod{}, err
	}
	return found.in.update(ctx, found.key, func(old pod.Pod) (pod.Pod, error) {
		if found.own {
			old = ownersView(entry[pod.Pod]{key: found.key, value: old})
		}
		changed, err := change(old)
		changed.ID = id
		return changed, err
	})
}

// Drain asks the pod's worker to take no more jobs and to leave once it has
// none, as of now, or as of the worker's start if its clock is ahead; why is the reason, for
// people. Asking again changes nothing. It returns the pod, or pod.ErrNotFound, or
// pod.ErrLocked.
func (p *Pods) Drain(ctx context.Context, id, why string, now time.Time) (pod.Pod, error) {
	asked, err := p.Update(ctx, id, func(old pod.Pod) (pod.Pod, error) {
		switch {
		case old.Drains(old.Started):
			return old, errUnchanged
		case old.Locked:
			return old, fmt.Errorf("drain pod %s: %w", id, pod.ErrLocked)
		}
		old.Drain = pod.Drain{At: job.Later(now.UTC(), old.Started), Why: pod.Conceal(why, old.Spec.Env)}
		return old, nil
	})
	if err = ignoreUnchanged(err); err == nil && asked.Driver != "" && asked.Endpoint != "" {
		err = p.own.show(ctx, asked, now, func(x *pod.Pod) bool {
			changed := x.Drain != asked.Drain
			x.Drain = asked.Drain
			return changed
		})
	}
	return asked, err
}

// ShowSleep lets the worker of a driver's pod read the pod's Sleep. Repeating it writes
// nothing.
func (p *Pods) ShowSleep(ctx context.Context, asked pod.Pod, now time.Time) error {
	return p.own.show(ctx, asked, now, func(x *pod.Pod) bool {
		changed := !x.Sleep.At.Equal(asked.Sleep.At) || !x.Sleep.Wake.Equal(asked.Sleep.Wake)
		x.Sleep = pod.Sleep{At: asked.Sleep.At, Wake: asked.Sleep.Wake}
		return changed
	})
}

// Forget removes what is known of the pod, and what its worker said; that there
// is none is no error.
func (p *Pods) Forget(ctx context.Context, gone pod.Pod) error {
	err := p.driven.table.clear(ctx, gone.ID)
	if err != nil || gone.Endpoint == "" {
		return err
	}
	return p.own.table.clear(ctx, workerKey(gone.Endpoint, gone.ID))
}

// Renew keeps the records of pods that run from expiring. It is to be called at
// least three times in podTTL; one call before a third of it is over writes nothing.
func (p *Pods) Renew(ctx context.Context) error {
	return errors.Join(p.driven.renew(ctx), p.own.renew(ctx))
}

// podBucket is a bucket of pods, and its copy in memory.
type podBucket struct {
	table *agingTable[pod.Pod]
	cache *cache[pod.Pod]
}

func newPodBucket(ctx context.Context, o *opener, bucket string) podBucket {
	t := openAging(ctx, o, bucket, podTTL, func(p pod.Pod) bool { return p.Expires })
	return podBucket{table: t, cache: newAgingCache(t, o.log)}
}

// create stores the pod and returns it as it is then, or ErrExists.
func (b podBucket) create(ctx context.Context, key string, made pod.Pod) (pod.Pod, error) {
	made.Expires = expires(made)
	written, err := b.table.create(ctx, key, made)
	if err == nil {
		b.cache.put(written)
	}
	return made, err
}

// expires reports whether the record of a pod expires unless it is renewed. Programs
// make the pods of endpoints, in numbers without bound; people make the others.
func expires(p pod.Pod) bool { return p.Endpoint != "" }

// renew keeps the records of pods that run from expiring.
func (b podBucket) renew(ctx context.Context) error {
	runs := func(e entry[pod.Pod]) bool { return e.value.Status == pod.Running }
	entries, err := b.cache.list(ctx, jetstream.AllKeys, runs)
	if err != nil {
		return err
	}
	return b.table.renew(ctx, slices.DeleteFunc(entries, func(e entry[pod.Pod]) bool { return !runs(e) }))
}

// update is Pods.Update for a key.
func (b podBucket) update(ctx context.Context, key string, change func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
	return b.change(ctx, key, func(old pod.Pod, found bool) (pod.Pod, error) {
		if !found {
			return old, pod.ErrNotFound
		}
		return change(old)
	})
}

// change is agingTable.change, which this process sees at once.
func (b podBucket) change(ctx context.Context, key string, change func(old pod.Pod, found bool) (pod.Pod, error)) (pod.Pod, error) {
	return b.cache.stored(b.table.change(ctx, key, func(old pod.Pod, found bool) (pod.Pod, error) {
		changed, err := change(old, found)
		changed.Expires = expires(changed)
		return changed, err
	}))
}

// all returns every entry, from memory if it can.
func (b podBucket) all(ctx context.Context) ([]entry[pod.Pod], error) {
	return b.cache.list(ctx, jetstream.AllKeys, nil)
}

// Move lets trigger happen to the pod: it is the only writer of a pod's
// status. Change says, for people, what happened, as of now; both are kept with the
// trigger, and Started with a start, only if the status became another; secrets
// of the pod's environment are kept out of Change. Mutate, if it is not nil, may
// set anything else or refuse the move by an error, which is returned as it is; it is
// called again if somebody else was faster. Repeating a Move writes nothing.
//
// It returns the pod as it is then, or pod.ErrNotFound, a *pod.TransitionError
// if the pod's status does not allow it, or pod.ErrLocked for the stop or the
// removal of a locked pod.
func (p *Pods) Move(ctx context.Context, id string, by pod.Trigger, change string, now time.Time, mutate func(*pod.Pod) error) (pod.Pod, error) {
	return movePod(func(do func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) { return p.Update(ctx, id, do) }, by, change, now, mutate)
}

// movePod is Move with the update of one pod's record.
func movePod(update func(func(pod.Pod) (pod.Pod, error)) (pod.Pod, error), by pod.Trigger, change string, now time.Time, mutate func(*pod.Pod) error) (pod.Pod, error) {
	moved, err := update(func(old pod.Pod) (pod.Pod, error) {
		next, err := moveOf(old, by, change, now, mutate)
		if err == nil && reflect.DeepEqual(old, next) {
			return next, errUnchanged
		}
		return next, err
	})
	return moved, ignoreUnchanged(err)
}

// moveOf is the pod after the trigger. It leaves the maps and slices of old alone
// as far as mutate does.
func moveOf(old pod.Pod, by pod.Trigger, change string, now time.Time, mutate func(*pod.Pod) error) (pod.Pod, error) {
	next := old
	var err error
	if next.Status, err = old.Status.Next(by); err != nil {
		return old, err
	}
	if old.Locked && (by == pod.Restart || old.Status != next.Status && (by == pod.Stop || by == pod.Remove)) {
		return old, fmt.Errorf("%s pod %s: %w", by, old.ID, pod.ErrLocked)
	}
	if next.Status != old.Status || by == pod.Restart {
		next.Changed, next.Change, next.By = now.UTC(), pod.Conceal(change, old.Spec.Env), by
		if by == pod.Start || by == pod.Restart {
			next.Started = next.Changed
			if old.Driver != "" {
				next.Drain, next.Sleep = pod.Drain{}, pod.Sleep{} // else its worker's start decides; see Appear
				next.Cut, next.Gone = nil, time.Time{}
				next.Starts++
			}
		}
	}
	if mutate != nil {
		err = mutate(&next)
	}
	return next, err
}

// Appear is WorkerPods.Appear, but leaves a pod of a driver to that driver. It
// returns a pod.ErrConflict if a driver runs the pod for another endpoint.
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
