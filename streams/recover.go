package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// recoveredKey marks, in the metadata of a queue, one that was made again after
// it had been lost. The time is that of the stream's creation.
const recoveredKey = "flightline.recovered"

// Recovered reports whether a queue with this metadata was made again after it
// had been lost: that a message is not in it proves nothing about jobs that are
// older than the stream.
func Recovered(metadata map[string]string) bool { return metadata[recoveredKey] != "" }

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
	recovered := map[string]string{recoveredKey: "yes"}
	if has != nil {
		c.Replicas = max(c.replicas(), has.Config.Replicas)
	}
	cfg := JobsConfig(c, e.ID)
	if has != nil && Recovered(has.Config.Metadata) {
		cfg.Metadata = recovered
	}
	if err := ensureStreams(ctx, js, cfg); err != nil {
		return nil, err
	}
	var again *jetstream.StreamInfo
	if lost {
		// The server writes damaged settings again when they change, not before.
		cfg.Metadata = recovered
		if err := ensureStreams(ctx, js, cfg); err != nil {
			return nil, err
		}
		if again, err = infoOf(ctx, js, cfg.Name); err != nil {
			return nil, err
		}
	}
	for _, class := range job.Classes() {
		if err := ensureConsumer(ctx, js, cfg.Name, ConsumerConfig(e, class)); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// infoOf describes a stream; nil if it does not exist.
func infoOf(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", name, err)
	}
	return s.CachedInfo(), nil
}
