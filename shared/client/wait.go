package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"flightline/shared/job"
)

// statusWait is how long one request of Wait is held: below the 60 s after
// which many proxies cut a silent connection.
const statusWait = 50 * time.Second

// leastWait is the shortest wait that the API allows.
const leastWait = time.Second

// Pauses between two looks at a server without status-sync.
const (
	firstPoll = 50 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// Wait returns the job once it has ended. It sits out a server that is busy or
// has lost its JetStream, for as long as ctx allows; at the end of ctx it
// returns ctx's error. A job that expired meanwhile is an Error with
// CodeJobNotFound.
func (c *Client) Wait(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return c.WaitEach(ctx, endpoint, id, nil)
}

// WaitEach is Wait that calls each, unless it is nil, with the job each time it
// looked, the last time included. With each it looks at least once a second.
func (c *Client) WaitEach(ctx context.Context, endpoint string, id job.ID, each func(*Job)) (*Job, error) {
	hold := statusWait
	if each != nil {
		hold = leastWait
	}
	polling := false
	for look := 1; ; look++ {
		j, err := c.look(ctx, endpoint, id, hold, &polling)
		var refused *Error
		if err != nil && (!errors.As(err, &refused) || !refused.Temporary()) {
			return nil, err
		}
		if err == nil && each != nil {
			each(j)
		}
		if err == nil && j.Status.Terminal() {
			return j, nil
		}
		if err := rest(ctx, pauseAfter(look, polling, refused)); err != nil {
			return nil, err
		}
	}
}

// look asks once, held if the server can, and learns if it cannot.
func (c *Client) look(ctx context.Context, endpoint string, id job.ID, hold time.Duration, polling *bool) (*Job, error) {
	if !*polling {
		j, err := c.StatusSync(ctx, endpoint, id, hold)
		if !noSuchOperation(err) {
			return j, err
		}
		*polling = true
	}
	return c.Status(ctx, endpoint, id)
}

// noSuchOperation tells a server without the operation from one without the
// job or endpoint.
func noSuchOperation(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented ||
		e.Status == http.StatusNotFound && e.Code != CodeJobNotFound && e.Code != CodeEndpointNotFound
}

// pauseAfter is the pause after the nth look, from 1. A held look needs none,
// and there is no hurry with a server that is away.
func pauseAfter(look int, polling bool, refused *Error) time.Duration {
	switch {
	case refused != nil:
		return max(refused.RetryAfter, time.Second)
	case polling:
		return min(lastPoll, firstPoll*time.Duration(look))
	}
	return 0
}

// rest waits for the pause, or returns ctx's error.
func rest(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
