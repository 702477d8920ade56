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

	"flightline/shared/endpoint"
	"flightline/streams"
)

// maxUpdates is how often Update begins anew when others change the same
// endpoint at the same time.
const maxUpdates = 10

// Endpoints are the endpoints by id.
type Endpoints struct {
	table *Table[endpoint.Endpoint]
	cache *cache[endpoint.Endpoint]
	shown *Table[shownEndpoint] // to workers; nil in one of them
}

func newEndpoints(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*Endpoints, error) {
	t, err := OpenTable[endpoint.Endpoint](ctx, js, streams.BucketEndpoints)
	if err != nil {
		return nil, err
	}
	shown, err := OpenTable[shownEndpoint](ctx, js, streams.BucketWorkerEndpoints)
	if err != nil {
		return nil, err
	}
	return &Endpoints{table: t, cache: newCache(t, log), shown: shown}, nil
}

// Get returns the endpoint, from memory if it can. One that is being deleted
// is endpoint.ErrNotFound like one that never was.
func (e *Endpoints) Get(ctx context.Context, id string) (endpoint.Endpoint, error) {
	if !endpoint.ValidID(id) {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	got, found, vouched := e.cache.get(id)
	if !found || !vouched {
		var err error
		if got, err = e.table.get(ctx, id); err != nil {
			return endpoint.Endpoint{}, unknown(err)
		}
	}
	if got.value.Deleting {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	return got.value, nil
}

// Find returns the endpoint as the bucket has it, also one that is being
// deleted, or endpoint.ErrNotFound.
func (e *Endpoints) Find(ctx context.Context, id string) (endpoint.Endpoint, error) {
	if !endpoint.ValidID(id) {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	got, err := e.table.get(ctx, id)
	return got.value, unknown(err)
}

// unknown turns the table's "not found" into the endpoint's.
func unknown(err error) error {
	if errors.Is(err, ErrNotFound) {
		return endpoint.ErrNotFound
	}
	return err
}

// Create stores a new endpoint with its defaults filled in and Version 1. It
// returns endpoint.ErrExists if the id is taken, also by one that is being
// deleted, or an *endpoint.FieldError.
func (e *Endpoints) Create(ctx context.Context, made endpoint.Endpoint) (endpoint.Endpoint, error) {
	made, err := made.Complete()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	made.Version = 1
	revision, err := e.table.Create(ctx, made.ID, made)
	if errors.Is(err, ErrExists) {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint %s: %w", made.ID, endpoint.ErrExists)
	}
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	e.cache.put(entry[endpoint.Endpoint]{key: made.ID, value: made, revision: revision})
	return made, e.show(ctx, made, revision)
}

// Update stores what change makes of the endpoint, with its Version raised by
// one, and returns it. The identity of an endpoint (id, partition, created)
// stays what it is. Change is called again if somebody else was faster; its
// errors are returned as they are, besides endpoint.ErrNotFound and
// *endpoint.FieldError.
func (e *Endpoints) Update(ctx context.Context, id string, change func(endpoint.Endpoint) (endpoint.Endpoint, error)) (endpoint.Endpoint, error) {
	got, _, err := e.update(ctx, id, func(old endpoint.Endpoint) (endpoint.Endpoint, error) {
		if old.Deleting {
			return old, endpoint.ErrNotFound
		}
		changed, err := change(old)
		if err != nil {
			return old, err
		}
		changed.ID, changed.Partition, changed.Created, changed.Deleting = old.ID, old.Partition, old.Created, false
		changed.QueueMade, changed.Version = old.QueueMade, old.Version+1
		return changed.Complete()
	})
	return got, err
}

// MarkDeleting makes the endpoint refuse everything from now on and returns it
// with the revision of the mark, for Instances.WaitSeen. Marking it again is
// fine. One that was made anew since is endpoint.ErrNotFound.
func (e *Endpoints) MarkDeleting(ctx context.Context, which endpoint.Endpoint) (endpoint.Endpoint, uint64, error) {
	return e.update(ctx, which.ID, func(old endpoint.Endpoint) (endpoint.Endpoint, error) {
		switch {
		case !old.Created.Equal(which.Created):
			return old, endpoint.ErrNotFound
		case old.Deleting:
			return old, errUnchanged
		}
		old.Deleting = true
		old.Version++
		return old, nil
	})
}

// errUnchanged is how a change says that there is nothing to write.
var errUnchanged = errors.New("registry: nothing to change")

// Unmark takes the mark back: the endpoint serves again. One that was made anew
// since is endpoint.ErrNotFound.
func (e *Endpoints) Unmark(ctx context.Context, which endpoint.Endpoint) error {
	_, _, err := e.update(ctx, which.ID, func(old endpoint.Endpoint) (endpoint.Endpoint, error) {
		if !old.Created.Equal(which.Created) {
			return old, endpoint.ErrNotFound
		}
		old.Deleting = false
		old.Version++
		return old, nil
	})
	return err
}

// MarkQueueMade notes that the endpoint's queue exists, so that a queue that is
// missing later is known to be lost. The Version stays.
func (e *Endpoints) MarkQueueMade(ctx context.Context, which endpoint.Endpoint) error {
	_, _, err := e.update(ctx, which.ID, func(old endpoint.Endpoint) (endpoint.Endpoint, error) {
		if old.QueueMade || !old.Created.Equal(which.Created) {
			return old, errUnchanged
		}
		old.QueueMade = true
		return old, nil
	})
	return err
}

func (e *Endpoints) update(ctx context.Context, id string, change func(endpoint.Endpoint) (endpoint.Endpoint, error)) (endpoint.Endpoint, uint64, error) {
	if !endpoint.ValidID(id) {
		return endpoint.Endpoint{}, 0, endpoint.ErrNotFound
	}
	for range maxUpdates {
		old, err := e.table.get(ctx, id)
		if err != nil {
			return endpoint.Endpoint{}, 0, unknown(err)
		}
		changed, err := change(old.value)
		if errors.Is(err, errUnchanged) {
			return old.value, old.revision, nil
		}
		if err != nil {
			return endpoint.Endpoint{}, 0, err
		}
		revision, err := e.table.Update(ctx, id, changed, old.revision)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return endpoint.Endpoint{}, 0, err
		}
		e.cache.put(entry[endpoint.Endpoint]{key: id, value: changed, revision: revision})
		return changed, revision, e.show(ctx, changed, revision)
	}
	return endpoint.Endpoint{}, 0, fmt.Errorf("update endpoint %s: %w", id, ErrConflict)
}

// Delete forgets the endpoint. It is the last step of a deletion: the id is
// free from here on. One that does not exist any more is no error, and one that
// was made anew since stays. It returns ErrConflict if the endpoint was changed
// at the same time.
func (e *Endpoints) Delete(ctx context.Context, which endpoint.Endpoint) error {
	old, err := e.table.get(ctx, which.ID)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && !old.value.Created.Equal(which.Created):
		return nil
	case err != nil:
		return err
	}
	if err := e.table.deleteAt(ctx, which.ID, old.revision); err != nil {
		return err
	}
	return e.hide(ctx, which.ID)
}

// Deleted is when the last endpoint of this id was deleted, the zero time if
// there is one or never was.
func (e *Endpoints) Deleted(ctx context.Context, id string) (time.Time, error) {
	got, err := e.table.get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return got.written, nil
	}
	return time.Time{}, err
}

// List returns the endpoints by id, without those being deleted.
func (e *Endpoints) List(ctx context.Context) ([]endpoint.Endpoint, error) {
	return e.list(ctx, false)
}

// Deleting returns those whose deletion has begun and not ended.
func (e *Endpoints) Deleting(ctx context.Context) ([]endpoint.Endpoint, error) {
	return e.list(ctx, true)
}

// Known is List from memory if it can; then it may lack what was written a
// moment ago.
func (e *Endpoints) Known(ctx context.Context) ([]endpoint.Endpoint, error) {
	entries, vouched := e.cache.all(func(x entry[endpoint.Endpoint]) bool { return !x.value.Deleting })
	if !vouched {
		return e.List(ctx)
	}
	all := make([]endpoint.Endpoint, 0, len(entries))
	for _, x := range entries {
		all = append(all, x.value)
	}
	slices.SortFunc(all, func(a, b endpoint.Endpoint) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func (e *Endpoints) list(ctx context.Context, deleting bool) ([]endpoint.Endpoint, error) {
	all, err := e.table.List(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(x endpoint.Endpoint) bool { return x.Deleting != deleting })
	slices.SortFunc(all, func(a, b endpoint.Endpoint) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}
