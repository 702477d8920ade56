package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// ApplyPause pauses the consumers of an endpoint until its PausedUntil, or resumes them if
// that is not after now, the server's time. It may be repeated. The server ends a pause by
// itself.
func ApplyPause(ctx context.Context, js jetstream.JetStream, e endpoint.Endpoint, now time.Time) error {
	for _, class := range job.Classes() {
		var err error
		if e.Paused(now) {
			_, err = js.PauseConsumer(ctx, Jobs(e.ID), Consumer(class), e.PausedUntil)
		} else {
			_, err = js.ResumeConsumer(ctx, Jobs(e.ID), Consumer(class))
		}
		if err != nil {
			return fmt.Errorf("pause consumer %s of %s: %w", Consumer(class), Jobs(e.ID), err)
		}
	}
	return nil
}

// pausedUntil is the pause that a consumer is made with; nil means none.
func pausedUntil(e endpoint.Endpoint) *time.Time {
	if e.PausedUntil.IsZero() {
		return nil
	}
	return &e.PausedUntil
}
