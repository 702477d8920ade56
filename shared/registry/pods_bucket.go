package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/pod"
)

// podBucket is a bucket of pods, and its copy in memory.
type podBucket struct {
	table *agingTable[pod.Pod]
	cache *cache[pod.Pod]
}

func newPodBucket(ctx context.Context, js jetstream.JetStream, log *slog.Logger, bucket string) (podBucket, error) {
	t, err := openAgingTable(ctx, js, bucket, podTTL, func(p pod.Pod) bool { return p.Expires })
	if err != nil {
		return podBucket{}, err
	}
	return podBucket{table: t, cache: newAgingCache(t, log)}, nil
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
	entries, err := b.all(ctx)
	if err != nil {
		return err
	}
	return b.table.renew(ctx, slices.DeleteFunc(entries, func(e entry[pod.Pod]) bool { return e.value.Status != pod.Running }))
}

// update is Pods.Update for a key.
func (b podBucket) update(ctx context.Context, key string, change func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
	for range maxUpdates {
		old, err := b.table.read(ctx, key)
		if err != nil {
			return pod.Pod{}, unknownPod(err)
		}
		changed, err := change(old.value)
		if err != nil {
			return pod.Pod{}, err
		}
		changed.Expires = expires(changed)
		written, err := b.table.replace(ctx, key, changed, old)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return pod.Pod{}, err
		}
		b.cache.put(written)
		return changed, nil
	}
	return pod.Pod{}, fmt.Errorf("update pod %s: %w", key, ErrConflict)
}

// all returns every entry, from memory if it can.
func (b podBucket) all(ctx context.Context) ([]entry[pod.Pod], error) {
	entries, vouched := b.cache.all(func(entry[pod.Pod]) bool { return true })
	if vouched {
		return entries, nil
	}
	entries, err := b.table.list(ctx, jetstream.AllKeys)
	return b.table.valid(entries), err
}
