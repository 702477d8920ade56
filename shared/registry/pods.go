package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/pod"
	"flightline/streams"
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
}

func newPods(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*Pods, error) {
	own, err := newWorkerPods(ctx, js, log)
	if err != nil {
		return nil, err
	}
	driven, err := newPodBucket(ctx, js, log, streams.BucketPods)
	if err != nil {
		return nil, err
	}
	return &Pods{driven: driven, own: own}, nil
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
		_, err := p.own.create(ctx, ownKey(made.Endpoint, made.ID), made)
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
		return found, unknownPod(err) // one of an older program may be there
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
// none, as of now; why tells people what for. Asking again changes nothing. It
// returns the pod, or pod.ErrNotFound, or pod.ErrLocked.
func (p *Pods) Drain(ctx context.Context, id, why string, now time.Time) (pod.Pod, error) {
	var kept pod.Pod
	asked, err := p.Update(ctx, id, func(old pod.Pod) (pod.Pod, error) {
		kept = old
		switch {
		case old.Drains(old.Started):
			return old, errUnchanged
		case old.Locked:
			return old, fmt.Errorf("drain pod %s: %w", id, pod.ErrLocked)
		}
		old.Drain = pod.Drain{At: now.UTC(), Why: pod.Conceal(why, old.Spec.Env)}
		return old, nil
	})
	if errors.Is(err, errUnchanged) {
		asked, err = kept, nil
	}
	if err == nil && asked.Driver != "" && asked.Endpoint != "" {
		err = p.own.tellDrain(ctx, asked, now)
	}
	return asked, err
}

// Forget removes what is known of the pod, and what its worker said; that there
// is none is no error.
func (p *Pods) Forget(ctx context.Context, gone pod.Pod) error {
	err := p.driven.table.clear(ctx, gone.ID)
	if err != nil || gone.Endpoint == "" {
		return err
	}
	return p.own.table.clear(ctx, ownKey(gone.Endpoint, gone.ID))
}

// Renew keeps the records of pods that run from expiring. It is to be called at
// least three times in podTTL; one call before a third of it is over writes nothing.
func (p *Pods) Renew(ctx context.Context) error {
	return errors.Join(p.driven.renew(ctx), p.own.renew(ctx))
}

// List returns all pods by id, from memory if it can; then it may lack what
// was written a heartbeat ago.
func (p *Pods) List(ctx context.Context) ([]pod.Pod, error) {
	driven, err := p.driven.all(ctx)
	if err != nil {
		return nil, err
	}
	own, err := p.own.all(ctx)
	if err != nil {
		return nil, err
	}
	pods := mergePods(driven, own)
	slices.SortFunc(pods, func(a, b pod.Pod) int { return strings.Compare(a.ID, b.ID) })
	return pods, nil
}

// mergePods returns the driven pods, and those of their owners that no driven
// one hides.
func mergePods(driven, own []entry[pod.Pod]) []pod.Pod {
	pods, hidden, newer := make([]pod.Pod, 0, len(driven)+len(own)), map[string]bool{}, map[string]bool{}
	for _, e := range driven {
		hidden[e.key] = !isOwners(e.value)
	}
	for _, e := range own {
		if p := ownersView(e); !hidden[p.ID] {
			pods, newer[e.key] = append(pods, p), true
		}
	}
	for _, e := range driven {
		if !isOwners(e.value) || !newer[ownKey(e.value.Endpoint, e.key)] {
			pods = append(pods, e.value)
		}
	}
	return pods
}

func unknownPod(err error) error {
	if errors.Is(err, ErrNotFound) {
		return pod.ErrNotFound
	}
	return err
}
