package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/pod"
)

// podBucket is a bucket of pods, and its copy in memory.
type podBucket struct {
	table *Table[pod.Pod]
	cache *cache[pod.Pod]
}

func newPodBucket(ctx context.Context, js jetstream.JetStream, log *slog.Logger, bucket string) (podBucket, error) {
	t, err := OpenTable[pod.Pod](ctx, js, bucket)
	if err != nil {
		return podBucket{}, err
	}
	return podBucket{table: t, cache: newCache(t, log)}, nil
}

func (b podBucket) create(ctx context.Context, key string, made pod.Pod) error {
	revision, err := b.table.Create(ctx, key, made)
	if err == nil {
		b.cache.put(entry[pod.Pod]{key: key, value: made, revision: revision})
	}
	return err
}

// update is Pods.Update for a key.
func (b podBucket) update(ctx context.Context, key string, change func(pod.Pod) (pod.Pod, error)) (pod.Pod, error) {
	for range maxUpdates {
		old, err := b.table.get(ctx, key)
		if err != nil {
			return pod.Pod{}, unknownPod(err)
		}
		changed, err := change(old.value)
		if err != nil {
			return pod.Pod{}, err
		}
		revision, err := b.table.Update(ctx, key, changed, old.revision)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return pod.Pod{}, err
		}
		b.cache.put(entry[pod.Pod]{key: key, value: changed, revision: revision})
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
	return b.table.list(ctx, jetstream.AllKeys)
}
