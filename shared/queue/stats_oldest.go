package queue

import (
	"context"
	"encoding/json"
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
	answer, err := q.request(ctx, streams.ConsumerInfo(stream, streams.Consumer(class)), nil)
	if err != nil {
		return 0, err
	}
	var info struct {
		Error     *apiError `json:"error"`
		Pending   int       `json:"num_pending"` //nolint:tagliatelle // the server's name
		Delivered struct {
			Stream uint64 `json:"stream_seq"` //nolint:tagliatelle // as above
		} `json:"delivered"`
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	if info.Error != nil {
		return 0, q.explain(ctx, info.Error, stream, doing)
	}
	if info.Pending == 0 {
		return 0, nil
	}
	// Jobs are handed out in the order of their sequences.
	found, err := bus.BatchGet(ctx, q.nc, streams.DirectGet(stream), bus.Batch{
		From: info.Delivered.Stream + 1, Filter: streams.ClassFilter(e.ID, class), Most: 1,
	})
	if errors.Is(err, bus.ErrNoAnswer) {
		return 0, fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	if err != nil || len(found) == 0 { // it was taken meanwhile
		return 0, err
	}
	stored, err := time.Parse(time.RFC3339Nano, found[0].Header.Get(nats.JSTimeStamp))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	return max(0, -q.Until(stored)), nil
}
