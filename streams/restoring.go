package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Restoring is the name of the stream that marks a NATS while a backup is brought back to
// it. It has no messages, and is made before all streams of the backup and deleted
// after them.
const Restoring = "RESTORING"

// ErrRestoring means that a restore has not come to its end. The error that wraps it says
// what to do.
var ErrRestoring = errors.New("streams: a restore has not come to its end")

func restoringConfig(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Restoring, Subjects: []string{"restoring"}, Storage: jetstream.FileStorage, Replicas: c.replicas(),
		Description: "A restore of Flightline runs, or was interrupted: run it again. It deletes this stream at its end.",
		Metadata:    map[string]string{"flightline.restoring": "true"},
	}
}

// BeginRestore makes the mark of a restore, which may be there already.
func BeginRestore(ctx context.Context, js jetstream.JetStream, c Config) error {
	return ensureStream(ctx, js, restoringConfig(c))
}

// EndRestore takes the mark away, which may be gone already.
func EndRestore(ctx context.Context, js jetstream.JetStream) error {
	return untilAnswered(ctx, "delete stream "+Restoring, func(ctx context.Context) error {
		if err := js.DeleteStream(ctx, Restoring); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil
	})
}

// CheckRestored returns an ErrRestoring while the mark is there.
func CheckRestored(ctx context.Context, js jetstream.JetStream) error {
	info, err := infoOf(ctx, js, Restoring)
	if err != nil || info == nil {
		return err
	}
	return fmt.Errorf("%w: stream %s is there; wait for its end or, if it was interrupted, run flightline restore again: it removes what it left", ErrRestoring, Restoring)
}
