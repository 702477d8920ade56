package queue

import (
	"context"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Pause makes the endpoint hand out no jobs until its PausedUntil, or hand them
// out again if that is over: what its record says takes effect. Jobs are
// accepted meanwhile, those that run go on, and cancel, ttl and timeout hold.
// It may be repeated. It returns ErrUnavailable.
func (q *Queue) Pause(ctx context.Context, e endpoint.Endpoint) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := untilAnswered(ctx, func() (struct{}, error) {
		return struct{}{}, foreign(streams.Pause(ctx, q.js, e, q.Now()))
	})
	return err
}

// consumerInfo is what a class's consumer says of itself.
type consumerInfo struct {
	Error     *apiError `json:"error"`
	Delivered struct {
		// Stream is the last message that was handed out for the first time.
		Stream uint64 `json:"stream_seq"` //nolint:tagliatelle // the server's name
	} `json:"delivered"`
	// AckFloor is a message that no unacknowledged one comes before.
	AckFloor struct {
		Stream uint64 `json:"stream_seq"` //nolint:tagliatelle // as above
	} `json:"ack_floor"` //nolint:tagliatelle // as above
	// Pending counts those that come after the last delivered one, Out those that
	// were delivered and are not acknowledged.
	Pending int `json:"num_pending"`     //nolint:tagliatelle // as above
	Out     int `json:"num_ack_pending"` //nolint:tagliatelle // as above
}

func (q *Queue) consumerInfo(ctx context.Context, endpoint string, c job.Class) (info consumerInfo, err error) {
	err = q.inquire(ctx, streams.ConsumerInfo(streams.Jobs(endpoint), streams.Consumer(c)), &info)
	if err == nil && info.Error != nil {
		err = q.explain(ctx, info.Error, streams.Jobs(endpoint), "look at "+streams.Jobs(endpoint))
	}
	return info, err
}
