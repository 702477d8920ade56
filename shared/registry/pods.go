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

// Pods are the pods by id, those of the last day included that are gone.
type Pods struct {
	table *Table[pod.Pod]
	cache *cache[pod.Pod]
}

func newPods(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*Pods, error) {
	t, err := OpenTable[pod.Pod](ctx, js, streams.BucketPods)
	if err != nil {
		return nil, err
	}
	return &Pods{table: t, cache: newCache(t, log)}, nil
}

// Create stores a pod. It returns ErrExists if its id is taken, and an
// ErrInvalid for an id that cannot be.
func (p *Pods) Create(ctx context.Context, made pod.Pod) error {
	if !pod.ValidID(made.ID) {
		return fmt.Errorf("%w: pod %q", ErrInvalid, made.ID)
	}
	revision, err := p.table.Create(ctx, made.ID, made)
	if err == nil {
		p.cache.put(entry[pod.Pod]{key: made.ID, value: made, revision: revision})
	}
	return err
}

// Changed returns a channel that is closed when this process learns of a later
// write to a pod, of its own or of another's; without Run that is never.
func (p *Pods) Changed() <-chan struct{} {
	_, changed := p.cache.seen()
	return changed
}

// Get returns the pod as the bucket has it, or pod.ErrNotFound.
func (p *Pods) Get(ctx context.Context, id string) (pod.Pod, error) {
	if !pod.ValidID(id) {
		return pod.Pod{}, pod.ErrNotFound
	}
	got, err := p.table.get(ctx, id)
	return got.value, unknownPod(err)
}

// Update stores what change makes of the pod and returns it. Change is called
// again if somebody else was faster; its errors are returned as they are,
// besides pod.ErrNotFound. An id never changes.
func (p *Pods) Update(ctx context.Context, id string, change func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
	if !pod.ValidID(id) {
		return pod.Pod{}, pod.ErrNotFound
	}
	for range maxUpdates {
		old, err := p.table.get(ctx, id)
		if err != nil {
			return pod.Pod{}, unknownPod(err)
		}
		changed, err := change(old.value)
		if err != nil {
			return pod.Pod{}, err
		}
		changed.ID = id
		revision, err := p.table.Update(ctx, id, changed, old.revision)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return pod.Pod{}, err
		}
		p.cache.put(entry[pod.Pod]{key: id, value: changed, revision: revision})
		return changed, nil
	}
	return pod.Pod{}, fmt.Errorf("update pod %s: %w", id, ErrConflict)
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
		return kept, nil
	}
	return asked, err
}

// Forget removes what is known of the pod; that there is none is no error.
func (p *Pods) Forget(ctx context.Context, id string) error { return p.table.Delete(ctx, id) }

// List returns all pods by id, from memory if it can; then it may lack what
// was written a heartbeat ago.
func (p *Pods) List(ctx context.Context) ([]pod.Pod, error) {
	entries, vouched := p.cache.all(func(entry[pod.Pod]) bool { return true })
	if !vouched {
		var err error
		if entries, err = p.table.list(ctx, jetstream.AllKeys); err != nil {
			return nil, err
		}
	}
	pods := make([]pod.Pod, 0, len(entries))
	for _, e := range entries {
		pods = append(pods, e.value)
	}
	slices.SortFunc(pods, func(a, b pod.Pod) int { return strings.Compare(a.ID, b.ID) })
	return pods, nil
}

func unknownPod(err error) error {
	if errors.Is(err, ErrNotFound) {
		return pod.ErrNotFound
	}
	return err
}

// Things are values by an id like that of a pod, changed by people only.
type Things[T any] struct{ table *Table[T] }

// Create stores v, or returns ErrExists, or ErrInvalid for an id that cannot be.
func (t *Things[T]) Create(ctx context.Context, id string, v T) error {
	if !pod.ValidID(id) {
		return fmt.Errorf("%w: id %q", ErrInvalid, id)
	}
	_, err := t.table.Create(ctx, id, v)
	return err
}

// Get returns the value, or pod.ErrNotFound.
func (t *Things[T]) Get(ctx context.Context, id string) (T, error) {
	var none T
	if !pod.ValidID(id) {
		return none, pod.ErrNotFound
	}
	v, _, err := t.table.Get(ctx, id)
	return v, unknownPod(err)
}

// Update stores what change makes of the value and returns it, as Pods.Update does.
func (t *Things[T]) Update(ctx context.Context, id string, change func(T) (T, error)) (T, error) {
	var none T
	if !pod.ValidID(id) {
		return none, pod.ErrNotFound
	}
	for range maxUpdates {
		old, revision, err := t.table.Get(ctx, id)
		if err != nil {
			return none, unknownPod(err)
		}
		changed, err := change(old)
		if err != nil {
			return none, err
		}
		_, err = t.table.Update(ctx, id, changed, revision)
		if errors.Is(err, ErrConflict) {
			continue
		}
		return changed, err
	}
	return none, fmt.Errorf("update %s: %w", id, ErrConflict)
}

// Delete forgets the value; that there is none is no error.
func (t *Things[T]) Delete(ctx context.Context, id string) error { return t.table.Delete(ctx, id) }

// List returns all values in no particular order.
func (t *Things[T]) List(ctx context.Context) ([]T, error) { return t.table.List(ctx) }
