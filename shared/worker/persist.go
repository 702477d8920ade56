package worker

import (
	"context"
	"errors"
	"time"

	"flightline/shared/queue"
)

// Pauses between tries while NATS is away: short at first, as most outages
// are, and short enough in the end that a job does not wait for its worker.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// persist repeats try, with pauses, until it succeeds, fails with an error
// that final holds for, or ctx ends; then the last error is returned.
func persist(ctx context.Context, final func(error) bool, try func() error) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := try()
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// known holds for errors that a repetition would meet again.
func known(err error) bool { return !errors.Is(err, queue.ErrUnavailable) }
