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

// Lost returns the shared streams and buckets that Apply made here before and that do not
// exist any more: what was in them is gone, and the next Apply makes them again. It returns
// none of a NATS that has an older schema, or on which no job was run yet, and none of
// partitions that have no records.
func Lost(ctx context.Context, js jetstream.JetStream, c Config) (lost []string, err error) {
	version, found, err := SchemaOf(ctx, js)
	if err != nil || found && version < Schema {
		return nil, err
	}
	records, err := infoOf(ctx, js, Records(0))
	if err != nil || !found && (records == nil || records.State.LastSeq == 0) {
		return nil, err
	}
	for p := 1; p < c.PartitionCount(); p++ {
		if records, err = infoOf(ctx, js, Records(p)); err != nil {
			return nil, err
		}
		if records == nil { // it is new
			c.Partitions = p
		}
	}
	for _, name := range Shared(c) {
		info, err := infoOf(ctx, js, name)
		if err != nil {
			return nil, err
		}
		if info == nil {
			lost = append(lost, name)
		}
	}
	return lost, nil
}
