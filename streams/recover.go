package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
)

// recoveredKey is, in the metadata of a queue, when it was found to have lost
// messages.
const recoveredKey = "flightline.recovered"

// Recovered is when a queue with this metadata was made again after it had been
// lost, or was found to have lost messages to damaged files; zero for never. That
// a message is not in it proves nothing about jobs that are older.
func Recovered(metadata map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, metadata[recoveredKey])
	if err != nil {
		return time.Time{}
	}
	return at
}

// MarkRecovered notes in a queue that it lost messages. A queue that does not
// exist is passed over.
func MarkRecovered(ctx context.Context, js jetstream.JetStream, stream string, at time.Time) error {
	info, err := infoOf(ctx, js, stream)
	if err != nil || info == nil {
		return err
	}
	cfg := info.Config
	cfg.Metadata = map[string]string{recoveredKey: at.Format(time.RFC3339Nano)}
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("mark stream %s: %w", stream, err)
	}
	return nil
}

// RecoverEndpoint is ApplyEndpoint for a caller that wants to know of a loss: if
// the queue was missing although e.QueueMade, it returns the stream as it was
// made again. It has messages if the server found the files of the old one.
// Nil means that nothing was lost.
func RecoverEndpoint(ctx context.Context, js jetstream.JetStream, c Config, e endpoint.Endpoint) (*jetstream.StreamInfo, error) {
	has, err := infoOf(ctx, js, Jobs(e.ID))
	if err != nil {
		return nil, err
	}
	lost := has == nil && e.QueueMade && !e.Deleting
	if has != nil {
		c.Replicas = max(c.replicas(), has.Config.Replicas)
	}
	cfg := JobsConfig(c, e.ID)
	if has != nil && !Recovered(has.Config.Metadata).IsZero() {
		cfg.Metadata = map[string]string{recoveredKey: has.Config.Metadata[recoveredKey]}
	}
	if err := ensureStream(ctx, js, cfg); err != nil {
		return nil, err
	}
	var again *jetstream.StreamInfo
	if lost {
		if again, err = infoOf(ctx, js, cfg.Name); err != nil {
			return nil, err
		}
		if again == nil {
			return nil, fmt.Errorf("apply stream %s: %w", cfg.Name, jetstream.ErrStreamNotFound)
		}
		// This also writes damaged settings again, as the creation does not.
		if err := MarkRecovered(ctx, js, cfg.Name, again.Created); err != nil {
			return nil, err
		}
	}
	for _, consumer := range jobConsumers(e) {
		if err := ensureConsumer(ctx, js, cfg.Name, consumer); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// infoOf describes a stream; nil if it does not exist.
func infoOf(ctx context.Context, js jetstream.JetStream, name string) (info *jetstream.StreamInfo, err error) {
	err = untilAnswered(ctx, "look at stream "+name, func(ctx context.Context) error {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	return info, err
}
