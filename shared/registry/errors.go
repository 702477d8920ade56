package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
)

// Errors of the tables and of the kinds above them.
var (
	// ErrNotFound means that the bucket holds nothing under the key.
	ErrNotFound = errors.New("registry: not found")
	// ErrExists means that Create met a value.
	ErrExists = errors.New("registry: exists already")
	// ErrConflict means that somebody else changed the value since it was read.
	ErrConflict = errors.New("registry: changed meanwhile")
	// ErrUnauthorized means that no such API key exists.
	ErrUnauthorized = errors.New("registry: unknown API key")
	// ErrInvalid means a scope, name or id that cannot be; the text says which.
	ErrInvalid = errors.New("registry: invalid")
)

// callTimeout bounds one call to the bus, so that a request is answered within
// the 5 s that the API promises when JetStream is away.
const callTimeout = 2 * time.Second

// explain gives err one of the sentinels above, and says what was being done.
// The end of the caller's own ctx stays what it is.
func explain(ctx context.Context, doing string, err error) error {
	var api *jetstream.APIError
	var refused *bus.APIError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, bus.ErrNoMessage):
		return fmt.Errorf("%s: %w", doing, ErrNotFound)
	// First: its code makes it an ErrKeyExists too.
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return fmt.Errorf("%s: %w", doing, ErrConflict)
	case errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("%s: %w", doing, ErrExists)
	case errors.Is(err, jetstream.ErrInvalidKey):
		return fmt.Errorf("%s: %w: not a key", doing, ErrInvalid)
	case errors.As(err, &api) && api.Code < 500, errors.As(err, &refused), errors.Is(err, bus.ErrUnavailable):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, bus.ErrUnavailable, err)
}

// notFoundAs is err, but the kind's own error for ErrNotFound.
func notFoundAs(own, err error) error {
	if errors.Is(err, ErrNotFound) {
		return own
	}
	return err
}
