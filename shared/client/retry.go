package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// maxAttempts counts the first one too.
	maxAttempts = 4
	firstPause  = 100 * time.Millisecond
	// maxPause bounds what the server may ask for; beyond it the caller
	// should decide.
	maxPause = 30 * time.Second
)

// retry decides whether a read that was refused in its nth attempt, from 1, is
// sent again, and after which pause: the one the server asks for, else one
// that doubles.
func retry(attempt int, refused *Error) (time.Duration, bool) {
	if attempt >= maxAttempts || !refused.Temporary() || refused.RetryAfter > maxPause {
		return 0, false
	}
	return max(refused.RetryAfter, backoff(attempt)), true
}

// backoff is between half of and the whole doubled pause, so that many callers
// do not come back at the same moment.
func backoff(attempt int) time.Duration {
	pause := min(maxPause, firstPause<<min(attempt-1, 10))
	return pause/2 + rand.N(pause/2) //nolint:gosec // spreads load, keeps no secret
}

// sleep waits and reports true, or false at once if ctx ends before: waiting
// for an attempt that can no longer be made helps nobody.
func sleep(ctx context.Context, pause time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
