package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
)

// ErrReplicas means that a stream has more copies than it was to get. The error
// that wraps it names both numbers.
var ErrReplicas = errors.New("streams: a stream has more copies than that")

// Apply makes the shared streams, consumers and buckets exist as this version
// wants them, after the upgrades that lead here from an older schema. It may be
// repeated, by several processes at once. It touches nothing and returns ErrSchema
// if a newer program was here, ErrRestoring while there may be half a backup, and
// ErrReplicas if it would take copies away from a stream: a process that was started
// with too few would undo what others rely on.
func Apply(ctx context.Context, js jetstream.JetStream, c Config) error {
	if err := prepare(ctx, js, c); err != nil {
		return err
	}
	for _, w := range AllWanted(c, nil) {
		if err := w.ensure(ctx, js); err != nil {
			return err
		}
	}
	return nil
}

// keepsCopies returns an ErrReplicas if one of these streams has more copies
// than are wanted.
func keepsCopies(ctx context.Context, js jetstream.JetStream, c Config, names ...string) error {
	for _, name := range names {
		info, err := infoOf(ctx, js, name)
		if err != nil {
			return err
		}
		if info == nil {
			continue
		}
		if has := info.Config.Replicas; has > c.replicas() {
			return fmt.Errorf("%w: %s has %d, not %d; give --replicas %d, or take copies away by hand first", ErrReplicas, name, has, c.replicas(), has)
		}
	}
	return nil
}

// ApplyEndpoint makes the work queue of an endpoint and its consumers exist
// with its present lease. It may be repeated. A queue that has more copies than
// c says keeps them. A lost queue is made again (RecoverEndpoint).
func ApplyEndpoint(ctx context.Context, js jetstream.JetStream, c Config, e endpoint.Endpoint) error {
	_, err := RecoverEndpoint(ctx, js, c, e)
	return err
}
