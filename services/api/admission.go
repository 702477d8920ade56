package api

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"flightline/shared/web"
)

const (
	// maxSubmitting is how many submissions of an instance may be with the bus at a
	// time: enough to keep it busy, and few enough to be answered within its timeouts.
	maxSubmitting = 256
	// turnTimeout is how long a submission waits for its turn before it is refused.
	turnTimeout = time.Second
)

// errTooMany is the answer to a submission that gets no turn.
var errTooMany = &web.Error{Code: web.Unavailable, Text: "too many submissions are under way; try again"}

// turn is the permission of one submission to use the bus
// (docs/adr/0064-submissions-take-turns.md). The zero value is over.
type turn struct{ of *semaphore.Weighted }

// takeTurn waits for a turn, for turnTimeout at most. The error is errTooMany, or that
// of ctx. Its owner calls end.
func takeTurn(ctx context.Context, of *semaphore.Weighted) (turn, error) {
	if !of.TryAcquire(1) {
		waiting, cancel := context.WithTimeout(ctx, turnTimeout)
		defer cancel()
		if of.Acquire(waiting, 1) != nil {
			if err := ctx.Err(); err != nil {
				return turn{}, err
			}
			return turn{}, errTooMany
		}
	}
	return turn{of}, nil
}

// end lets another submission have the turn. Further calls do nothing.
func (t *turn) end() {
	if t.of != nil {
		t.of.Release(1)
		t.of = nil
	}
}
