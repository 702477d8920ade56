package dev

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/operate"
	"flightline/shared/bus/embedded"
	"flightline/streams"
)

// tellDamage logs what is damaged in the store and what that means, a line for
// each place, and marks the queues that lost messages: the records of jobs that
// ran there must not be taken for forgotten ones.
func tellDamage(ctx context.Context, nc *nats.Conn, found []embedded.Damage, kept string, log *slog.Logger) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	for _, d := range found {
		facts := []any{"stream", d.Stream, "file", d.File, "offset", d.Offset, "bytes", d.Bytes, "messages_at_most", d.Messages, "means", meaningOf(d), "copy_in", kept}
		if d.Torn {
			log.WarnContext(ctx, "the end of a file of the store is torn, as after a power loss; what was written last there is left out", facts...)
		} else {
			log.ErrorContext(ctx, "a file of the store is damaged; what can be read is kept", facts...)
		}
		if _, queue := streams.EndpointOfQueue(d.Stream); queue && !d.Settings() {
			if err := streams.MarkRecovered(ctx, js, d.Stream, time.Now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// meaningOf says what it means for people that a part of a stream is damaged.
func meaningOf(d embedded.Damage) string {
	if d.Settings() {
		return "the stream or consumer is made again, with the messages that it has"
	}
	return operate.MeaningOfLoss(d.Stream)
}
