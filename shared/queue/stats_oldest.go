package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// OldestWait returns how long the first waiting job of a class has waited, 0 if
// none waits. A job that comes back from a lost worker does not count as
// waiting. It takes two requests, however many jobs there are, and returns
// ErrUnavailable.
func (q *Queue) OldestWait(ctx context.Context, e endpoint.Endpoint, class job.Class) (time.Duration, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	doing := "find the oldest job of " + e.ID
	stream := streams.Jobs(e.ID)
	info, err := q.consumerInfo(ctx, e.ID, class)
	if err != nil {
		return 0, err
	}
	// The server's count of those that wait may be too low: see bothClasses.
	// Jobs are handed out in the order of their sequences.
	found, err := bus.BatchGet(ctx, q.nc, streams.DirectGet(stream), bus.Batch{
		From: info.Delivered.Stream + 1, Filter: streams.ClassFilter(e.ID, class), Most: 1,
	})
	if errors.Is(err, bus.ErrNoAnswer) {
		return 0, fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	if err != nil || len(found) == 0 {
		return 0, err
	}
	stored, err := time.Parse(time.RFC3339Nano, found[0].Header.Get(nats.JSTimeStamp))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	return max(0, -q.Until(stored)), nil
}
