package streams

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// Apply makes the shared streams, consumers and buckets exist as this version
// wants them, after the upgrades that lead here from an older schema. It may be
// repeated, by several processes at once. It returns ErrSchema and touches
// nothing if a newer program was here.
func Apply(ctx context.Context, js jetstream.JetStream, c Config) error {
	if err := prepare(ctx, js, c); err != nil {
		return err
	}
	for p := range c.PartitionCount() {
		for _, s := range []jetstream.StreamConfig{recordsConfig(c, p), outputConfig(c, p), payloadsConfig(c, p)} {
			if _, err := js.CreateOrUpdateStream(ctx, s); err != nil {
				return fmt.Errorf("apply stream %s: %w", s.Name, err)
			}
		}
		if _, err := js.CreateOrUpdateConsumer(ctx, Records(p), dueConfig(p)); err != nil {
			return fmt.Errorf("apply consumer %s of %s: %w", DueConsumer, Records(p), err)
		}
	}
	for _, s := range sharedConfigs(c) {
		if _, err := js.CreateOrUpdateStream(ctx, s); err != nil {
			return fmt.Errorf("apply stream %s: %w", s.Name, err)
		}
	}
	if _, err := js.CreateOrUpdateConsumer(ctx, Webhooks, webhookConsumer()); err != nil {
		return fmt.Errorf("apply consumer %s of %s: %w", WebhookConsumer, Webhooks, err)
	}
	for _, b := range bucketConfigs(c) {
		if _, err := js.CreateOrUpdateKeyValue(ctx, b); err != nil {
			return fmt.Errorf("apply bucket %s: %w", b.Bucket, err)
		}
	}
	return nil
}

// sharedConfigs are the streams that are there once, without the buckets.
func sharedConfigs(c Config) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{eventsConfig(c), webhooksConfig(c), undeliveredConfig(c), deliveriesConfig(c), destinationsConfig(c), cursorsConfig(c), scalingConfig(c)}
}

// ApplyEndpoint makes the work queue of an endpoint and its consumers exist
// with its present lease. It may be repeated.
func ApplyEndpoint(ctx context.Context, js jetstream.JetStream, c Config, e endpoint.Endpoint) error {
	if _, err := js.CreateOrUpdateStream(ctx, JobsConfig(c, e.ID)); err != nil {
		return fmt.Errorf("apply stream %s: %w", Jobs(e.ID), err)
	}
	for _, class := range job.Classes() {
		if _, err := js.CreateOrUpdateConsumer(ctx, Jobs(e.ID), ConsumerConfig(e, class)); err != nil {
			return fmt.Errorf("apply consumer %s of %s: %w", Consumer(class), Jobs(e.ID), err)
		}
	}
	return nil
}
