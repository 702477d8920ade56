package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrMissing means that Apply is still to be called by somebody else.
var ErrMissing = errors.New("streams: not made yet")

// Check is for a process that may not Apply: it returns nil if all that Apply
// makes exists, ErrMissing if something does not or is yet to be upgraded from
// an older schema, and ErrSchema if a newer program was here. It changes nothing,
// and does not look at settings.
func Check(ctx context.Context, js jetstream.JetStream, c Config) error {
	version, found, err := SchemaOf(ctx, js)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: there is nothing", ErrMissing)
	}
	if err := CheckSchema(version); err != nil {
		return err
	}
	if version < Schema {
		return fmt.Errorf("%w: the bus has schema %d, this program needs %d; start a process that makes the streams, such as control, first", ErrMissing, version, Schema)
	}
	for _, name := range Shared(c) {
		_, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("%w: %s", ErrMissing, name)
		}
		if err != nil {
			return fmt.Errorf("look for stream %s: %w", name, err)
		}
	}
	return nil
}
