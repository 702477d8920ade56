package dev

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// partitionsOf is how many partitions there are once the wanted ones exist.
// Fewer must not be used: the deadlines of jobs in the rest would fire unseen.
func partitionsOf(ctx context.Context, js jetstream.JetStream, wanted int) (int, error) {
	for n := max(1, wanted); ; n++ {
		_, err := js.Stream(ctx, streams.Records(n)) // counted from 0
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return n, nil
		}
		if err != nil {
			return 0, fmt.Errorf("count partitions: %w", err)
		}
	}
}
