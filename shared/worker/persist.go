package worker

import (
	"context"
	"errors"
	"time"

	"flightline/shared/bus"
	"flightline/shared/retry"
)

// awayBackoff is for the time that NATS is away: short at first, as most outages
// are, and short enough in the end that a job does not wait for its worker.
var awayBackoff = retry.Backoff{First: 50 * time.Millisecond, Max: time.Second}

// persist repeats try, with pauses, until it succeeds, fails with an error
// that final holds for, or ctx ends; then the last error is returned.
func persist(ctx context.Context, final func(error) bool, try func() error) error {
	return retry.Do(ctx, awayBackoff, func(err error) bool { return !final(err) }, try)
}

// known holds for errors that a repetition would meet again.
func known(err error) bool { return !errors.Is(err, bus.ErrUnavailable) }
