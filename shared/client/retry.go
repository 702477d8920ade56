package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// defaultPatience outlasts the restart of a server, and of its NATS.
	defaultPatience = 30 * time.Second
	firstPause      = 100 * time.Millisecond
	// maxPause bounds the pauses that double.
	maxPause = 4 * time.Second
)

// errNotSent marks an attempt that ended before a byte was sent. It has no text:
// what it is wrapped with says why.
var errNotSent error = notSentError{}

type notSentError struct{}

func (notSentError) Error() string { return "" }

// tries are the attempts at one call that failed.
type tries struct {
	patience time.Duration
	places   int // how many addresses there are
	made     int
	since    time.Time // the first failure
}

// after decides whether to try again after an attempt that ended with err, and
// after which pause: none while there are addresses that were not tried, else
// what the server asks for, or one that doubles.
func (t *tries) after(err error) (time.Duration, bool) {
	t.made++
	if t.since.IsZero() {
		t.since = time.Now()
	}
	pause := time.Duration(0)
	if t.made%t.places == 0 || !away(err) {
		pause = backoff(t.made / t.places)
		if refused, ok := errors.AsType[*Error](err); ok {
			pause = max(pause, refused.RetryAfter)
		}
	}
	return pause, t.patience > 0 && time.Since(t.since)+pause < t.patience
}

// away tells whether another address may do better: a rate limit is the same
// everywhere.
func away(err error) bool {
	refused, answered := errors.AsType[*Error](err)
	return errors.Is(err, ErrUnreachable) || answered && refused.Status == http.StatusServiceUnavailable
}

// backoff is between half of and the whole doubled pause, so that many callers
// do not come back at the same moment.
func backoff(attempt int) time.Duration {
	pause := min(maxPause, firstPause<<max(0, min(attempt-1, 10)))
	return pause/2 + rand.N(pause/2) //nolint:gosec // spreads load, keeps no secret
}

// sleep waits and reports true, or false at once if ctx ends before: waiting
// for an attempt that can no longer be made helps nobody.
func sleep(ctx context.Context, pause time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
		return false
	}
	return rest(ctx, pause) == nil
}
