package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// Schema is the version of what this program keeps on the bus: the streams and
// buckets, and the form of what is in them. It is raised by each change that a
// program of the version before could not live with; upgrade leads to it.
//
// 1 only gives a version to what had none. 2 brought messages of DELIVERIES that several
// deliveries share, which the program before cannot read, and values with a ttl in the
// bucket of destinations, which it would take back: what is there already may stay as it is.
// 3 moves the pods that no driver runs to a bucket of their own (moveOwnersPods).
// 4 brought values with a TTL to the buckets of tokens and pods, which the program
// before would not renew, and a setting of theirs that it would try to take back.
// 5 brought entries of many events (docs/adr/0057); what is in the log may stay as it is.
// 6 brought STATS (docs/adr/0059), which older programs do not know.
// It also brought the buckets machines and gpus (docs/adr/0061): an older autoscaler claims no GPU.
// It also brought LOGS_<p> (docs/adr/0063): an older program would not copy it in a backup.
// It also brought times that the attempts of an entry share (docs/adr/0057), which an older recorder would take for 0.
// It also brought the buckets sessions and actions of the console (docs/adr/0058), which older programs leave alone.
const Schema = 6

// schemaKey is where the version stands: in the metadata of the bucket of
// endpoints, without which nothing can start.
const schemaKey = "flightline.schema"

// ErrSchema means that a newer program wrote the bus, or the backup. The error that
// wraps it names both versions.
var ErrSchema = errors.New("streams: the schema is newer than this program")

// upgrade leads from the schema from to this one. Apply makes what is missing; only what
// has to be moved is done here. It may run twice, also in several processes at once, and
// programs of the schema before go on meanwhile.
func upgrade(ctx context.Context, js jetstream.JetStream, c Config, from int) error {
	const ownersPods = 3
	if from >= ownersPods {
		return nil
	}
	if err := moveOwnersPods(ctx, js, c); err != nil {
		return fmt.Errorf("upgrade to schema %d: %w", ownersPods, err)
	}
	return nil
}

// SchemaOf reads the version that the bus has: 0 for a bus from before
// there were versions. found is false if nothing is there yet.
func SchemaOf(ctx context.Context, js jetstream.JetStream) (version int, found bool, err error) {
	s, err := js.Stream(ctx, Bucket(BucketEndpoints))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the schema: %w", err)
	}
	text, ok := s.CachedInfo().Config.Metadata[schemaKey]
	if !ok {
		return 0, true, nil
	}
	if version, err = strconv.Atoi(text); err != nil {
		return 0, true, fmt.Errorf("read the schema: %w", err)
	}
	return version, true, nil
}

// CheckSchema returns an ErrSchema if this program does not know the
// version.
func CheckSchema(version int) error {
	if version > Schema {
		return fmt.Errorf("%w: it has %d, this program knows %d; start a newer one, or restore a backup of schema %d", ErrSchema, version, Schema, Schema)
	}
	return nil
}

// prepare refuses half a restore, a newer schema and fewer copies, and upgrades from an
// older schema. The version is written by Apply, after all else.
func prepare(ctx context.Context, js jetstream.JetStream, c Config) error {
	if err := CheckRestored(ctx, js); err != nil {
		return err
	}
	version, found, err := SchemaOf(ctx, js)
	if err != nil {
		return err
	}
	if err := CheckSchema(version); err != nil {
		return err
	}
	if err := keepsCopies(ctx, js, c, Shared(c)...); err != nil || !found {
		return err
	}
	return upgrade(ctx, js, c, version)
}

// schemaMetadata is what the bucket that carries the version is made with.
func schemaMetadata() map[string]string { return map[string]string{schemaKey: strconv.Itoa(Schema)} }
