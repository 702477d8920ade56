// Package retry repeats what failed, with a pause before each further try.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pause before each further try: First after the first failure,
// then twice as long each time, up to Max. Max 0 means that all are First.
type Backoff struct{ First, Max time.Duration }

// Every is the Backoff whose pauses are all the same.
func Every(pause time.Duration) Backoff { return Backoff{First: pause} }

// Delay is the pause after so many failures in a row; none after none.
func (b Backoff) Delay(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	delay := b.First
	for n := 1; n < failures && delay < b.Max; n++ {
		delay = min(2*delay, b.Max)
	}
	return delay
}

// Jitter is between half of d and d, so that many who failed at the same moment
// do not come back at the same moment.
func Jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // spreads load, keeps no secret
}

// Do calls try until it returns nil or an error that retryable refuses, or until
// ctx ends. It returns the last error of try, not that of ctx.
func Do(ctx context.Context, b Backoff, retryable func(error) bool, try func() error) error {
	for failures := 1; ; failures++ {
		err := try()
		if err == nil || !retryable(err) || Sleep(ctx, b.Delay(failures)) != nil {
			return err
		}
	}
}

// Sleep returns after d, or once ctx ends, and then the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
