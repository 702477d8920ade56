package registry

import (
	"context"
	"fmt"

	"flightline/shared/pod"
)

// Store are values by an id like that of a pod, changed by people only.
type Store[T any] struct{ table *Table[T] }

// Create stores v, or returns ErrExists, or ErrInvalid for an id that cannot be.
func (t *Store[T]) Create(ctx context.Context, id string, v T) error {
	if !pod.ValidID(id) {
		return fmt.Errorf("%w: id %q", ErrInvalid, id)
	}
	_, err := t.table.Create(ctx, id, v)
	return err
}

// Get returns the value, or pod.ErrNotFound.
func (t *Store[T]) Get(ctx context.Context, id string) (T, error) {
	var none T
	if !pod.ValidID(id) {
		return none, pod.ErrNotFound
	}
	v, _, err := t.table.Get(ctx, id)
	return v, notFoundAs(pod.ErrNotFound, err)
}

// Update stores what change makes of the value and returns it, as Pods.Update does.
func (t *Store[T]) Update(ctx context.Context, id string, change func(T) (T, error)) (T, error) {
	var none T
	if !pod.ValidID(id) {
		return none, pod.ErrNotFound
	}
	got, err := t.table.change(ctx, id, func(old T, found bool) (T, error) {
		if !found {
			return old, pod.ErrNotFound
		}
		return change(old)
	})
	return got.value, err
}

// Delete forgets the value; that none exists is no error.
func (t *Store[T]) Delete(ctx context.Context, id string) error { return t.table.Delete(ctx, id) }

// List returns all values in no particular order.
func (t *Store[T]) List(ctx context.Context) ([]T, error) { return t.table.List(ctx) }
