package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
)

// shownEndpoint is an endpoint as workers may read it. They have no access to
// the bucket of endpoints, which holds secrets: the environment, and what signs
// webhooks.
type shownEndpoint struct {
	endpoint.Endpoint
	// Source is the revision of the endpoint that this was made from.
	Source uint64 `json:"source"`
}

// show writes what workers may read of the endpoint at this revision, unless a
// later one is shown already.
func (e *Endpoints) show(ctx context.Context, of endpoint.Endpoint, revision uint64) error {
	made := shownEndpoint{of.ForWorkers(), revision}
	for range maxUpdates {
		old, err := e.shown.get(ctx, of.ID)
		switch {
		case errors.Is(err, ErrNotFound):
			_, err = e.shown.Create(ctx, of.ID, made)
		case err == nil && old.value.Source >= revision:
			return nil
		case err == nil:
			_, err = e.shown.Update(ctx, of.ID, made, old.revision)
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists) {
			return err
		}
	}
	return fmt.Errorf("show endpoint %s to workers: %w", of.ID, ErrConflict)
}

// hide removes what workers read of an endpoint, if there is no such endpoint.
func (e *Endpoints) hide(ctx context.Context, id string) error {
	shown, err := e.shown.get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := e.table.get(ctx, id); !errors.Is(err, ErrNotFound) {
		return err // nil: it was made again
	}
	if err := e.shown.deleteAt(ctx, id, shown.revision); !errors.Is(err, ErrConflict) {
		return err
	}
	return nil
}

// ShowAll makes what workers read of the endpoints true, after an upgrade or a
// crash between the two writes.
func (e *Endpoints) ShowAll(ctx context.Context) error {
	all, err := e.table.list(ctx, jetstream.AllKeys)
	if err != nil {
		return err
	}
	shown, err := e.shown.list(ctx, jetstream.AllKeys)
	if err != nil {
		return err
	}
	left := make(map[string]uint64, len(shown))
	for _, s := range shown {
		left[s.key] = s.value.Source
	}
	for _, x := range all {
		if left[x.key] < x.revision {
			if err := e.show(ctx, x.value, x.revision); err != nil {
				return err
			}
		}
		delete(left, x.key)
	}
	for id := range left {
		if err := e.hide(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
