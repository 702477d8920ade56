package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/streams"
)

// Endpoints are the endpoints by id.
type Endpoints struct {
	table      *Table[endpoint.Endpoint]
	cache      *cache[endpoint.Endpoint]
	forWorkers *Table[workerEndpoint] // what workers read; nil in one of them
	known      knownEndpoints
}

// knownEndpoints is what Known last made of the cache.
type knownEndpoints struct {
	mu      sync.Mutex
	changes uint64 // the cache's version before it was read
	list    []endpoint.Endpoint
}

func newEndpoints(ctx context.Context, o *opener) *Endpoints {
	t := open[endpoint.Endpoint](ctx, o, streams.BucketEndpoints)
	return &Endpoints{table: t, cache: newCache(t, o.log), forWorkers: open[workerEndpoint](ctx, o, streams.BucketWorkerEndpoints)}
}

// Get returns the endpoint, from memory if it can. An endpoint that is
// being deleted is endpoint.ErrNotFound, as if it never was.
func (e *Endpoints) Get(ctx context.Context, id string) (endpoint.Endpoint, error) {
	got, err := e.Load(ctx, id)
	if err == nil && got.Deleting {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	return got, err
}

// Load is Get, also while the endpoint is being deleted.
func (e *Endpoints) Load(ctx context.Context, id string) (endpoint.Endpoint, error) {
	if !endpoint.ValidID(id) {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	got, err := e.cache.load(ctx, id)
	if err != nil {
		return endpoint.Endpoint{}, notFoundAs(endpoint.ErrNotFound, err)
	}
	return got.value, nil
}

// Find returns the endpoint as the bucket has it, also while it is being
// deleted, or endpoint.ErrNotFound.
func (e *Endpoints) Find(ctx context.Context, id string) (endpoint.Endpoint, error) {
	if !endpoint.ValidID(id) {
		return endpoint.Endpoint{}, endpoint.ErrNotFound
	}
	got, err := e.table.get(ctx, id)
	return got.value, notFoundAs(endpoint.ErrNotFound, err)
}

// Create stores a new endpoint with its defaults filled in and Version 1. It
// returns endpoint.ErrExists if the id is taken, also by an endpoint that is being
// deleted, or an *endpoint.FieldError.
func (e *Endpoints) Create(ctx context.Context, made endpoint.Endpoint) (endpoint.Endpoint, error) {
	made, err := made.Complete()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	made.Version, made.Release = 1, 1
	revision, err := e.table.Create(ctx, made.ID, made)
	if errors.Is(err, ErrExists) {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint %s: %w", made.ID, endpoint.ErrExists)
	}
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	e.cache.put(entry[endpoint.Endpoint]{key: made.ID, value: made, revision: revision})
	_ = e.copyForWorkers(ctx, made, revision) // else RepairWorkerCopies does: the endpoint is made
	return made, nil
}

// Update stores what change makes of the endpoint, with its Version raised by
// one, and returns it; Release says whether workers are started from something else now.
// The identity of an endpoint (id, partition, created)
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
		changed, err = changed.Complete()
		return changed.Released(old), err
	})
	return got, err
}

// MarkDeleting makes the endpoint refuse everything from now on and returns it
// with the revision of the mark, for Instances.WaitSeen. Marking it again is
// fine, and a mark that has Force keeps it. An endpoint that was made again since is
// endpoint.ErrNotFound.
func (e *Endpoints) MarkDeleting(ctx context.Context, which endpoint.Endpoint) (endpoint.Endpoint, uint64, error) {
	return e.update(ctx, which.ID, func(old endpoint.Endpoint) (endpoint.Endpoint, error) {
		switch {
		case !old.Created.Equal(which.Created):
			return old, endpoint.ErrNotFound
		case old.Deleting && (old.Force || !which.Force):
			return old, errUnchanged
		}
		old.Deleting, old.Force = true, which.Force
		old.Version++
		return old, nil
	})
}

// Unmark takes the mark back: the endpoint serves again. An endpoint that was made
// again since is endpoint.ErrNotFound.
func (e *Endpoints) Unmark(ctx context.Context, which endpoint.Endpoint) error {
	_, _, err := e.update(ctx, which.ID, func(old endpoint.Endpoint) (endpoint.Endpoint, error) {
		if !old.Created.Equal(which.Created) {
			return old, endpoint.ErrNotFound
		}
		old.Deleting, old.Force = false, false
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
	got, err := e.table.change(ctx, id, func(old endpoint.Endpoint, found bool) (endpoint.Endpoint, error) {
		if !found {
			return old, endpoint.ErrNotFound
		}
		return change(old)
	})
	if err != nil {
		return got.value, got.revision, ignoreUnchanged(err)
	}
	e.cache.put(got)
	return got.value, got.revision, e.copyForWorkers(ctx, got.value, got.revision)
}

// ApplyPause applies the pause of an endpoint's record to its queue, until both agree:
// others may pause or resume it at the same time. It returns the endpoint whose pause was
// applied last, the errors of apply as they are, endpoint.ErrNotFound or ErrConflict.
func (e *Endpoints) ApplyPause(ctx context.Context, of endpoint.Endpoint, apply func(context.Context, endpoint.Endpoint) error) (endpoint.Endpoint, error) {
	for range maxUpdates {
		if err := apply(ctx, of); err != nil {
			return of, err
		}
		now, err := e.Find(ctx, of.ID)
		if err != nil || now.PausedUntil.Equal(of.PausedUntil) {
			return of, err
		}
		of = now
	}
	return of, fmt.Errorf("pause %s: %w", of.ID, ErrConflict)
}

// Delete forgets the endpoint. It is the last step of a deletion: the id is
// free from here on. It is no error if the endpoint is gone; an endpoint
// that was made again since stays. It returns ErrConflict if the endpoint was changed
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
	return e.removeWorkerCopy(ctx, which.ID)
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
// moment ago. Callers share the list, and must not change it.
func (e *Endpoints) Known(ctx context.Context) ([]endpoint.Endpoint, error) {
	changes, vouched := e.cache.version()
	if !vouched {
		return e.List(ctx)
	}
	e.known.mu.Lock()
	defer e.known.mu.Unlock()
	if e.known.list == nil || e.known.changes != changes {
		entries, _ := e.cache.all(func(x entry[endpoint.Endpoint]) bool { return !x.value.Deleting })
		e.known.changes, e.known.list = changes, sortedByID(valuesOf(entries))
	}
	return e.known.list, nil
}

func sortedByID(list []endpoint.Endpoint) []endpoint.Endpoint {
	slices.SortFunc(list, func(a, b endpoint.Endpoint) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// KnownOf counts the endpoints that the key has created, from memory if it can; then
// it may be wrong about the last moment.
func (e *Endpoints) KnownOf(ctx context.Context, key string) (int, error) {
	all, err := e.Known(ctx)
	return countOwned(all, key), err
}

// CountOf counts the endpoints that the key has created. It reads all endpoints.
func (e *Endpoints) CountOf(ctx context.Context, key string) (int, error) {
	all, err := e.List(ctx)
	return countOwned(all, key), err
}

func countOwned(all []endpoint.Endpoint, key string) (n int) {
	for _, x := range all {
		if x.Owner == key {
			n++
		}
	}
	return n
}

func (e *Endpoints) list(ctx context.Context, deleting bool) ([]endpoint.Endpoint, error) {
	all, err := e.table.List(ctx)
	if err != nil {
		return nil, err
	}
	return sortedByID(slices.DeleteFunc(all, func(x endpoint.Endpoint) bool { return x.Deleting != deleting })), nil
}

// workerEndpoint is an endpoint as workers may read it. They have no access to
// the bucket of endpoints, which holds secrets: the environment, and what signs
// webhooks.
type workerEndpoint struct {
	endpoint.Endpoint
	// Source is the revision of the endpoint that this was made from.
	Source uint64 `json:"source"`
}

// copyForWorkers writes what workers may read of the endpoint at this revision, unless
// they have a later one already.
func (e *Endpoints) copyForWorkers(ctx context.Context, of endpoint.Endpoint, revision uint64) error {
	_, err := e.forWorkers.change(ctx, of.ID, func(old workerEndpoint, found bool) (workerEndpoint, error) {
		if found && old.Source >= revision {
			return old, errUnchanged
		}
		return workerEndpoint{of.ForWorkers(), revision}, nil
	})
	return ignoreUnchanged(err)
}

// removeWorkerCopy removes what workers read of an endpoint, if there is no such endpoint.
func (e *Endpoints) removeWorkerCopy(ctx context.Context, id string) error {
	copied, err := e.forWorkers.get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := e.table.get(ctx, id); !errors.Is(err, ErrNotFound) {
		return err // nil: it was made again
	}
	if err := e.forWorkers.deleteAt(ctx, id, copied.revision); !errors.Is(err, ErrConflict) {
		return err
	}
	return nil
}

// RepairWorkerCopies makes what workers read of the endpoints true, after an upgrade or a
// crash between the two writes.
func (e *Endpoints) RepairWorkerCopies(ctx context.Context) error {
	all, err := e.table.list(ctx, jetstream.AllKeys)
	if err != nil {
		return err
	}
	copies, err := e.forWorkers.list(ctx, jetstream.AllKeys)
	if err != nil {
		return err
	}
	left := make(map[string]uint64, len(copies))
	for _, c := range copies {
		left[c.key] = c.value.Source
	}
	for _, x := range all {
		if left[x.key] < x.revision {
			if err := e.copyForWorkers(ctx, x.value, x.revision); err != nil {
				return err
			}
		}
		delete(left, x.key)
	}
	for id := range left {
		if err := e.removeWorkerCopy(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
