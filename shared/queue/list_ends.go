package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/streams"
)

// ends are the first and the last sequence of a stream; 0 if it is empty.
func (q *Queue) ends(ctx context.Context, stream string) (first, last uint64, err error) {
	var info struct {
		Error *apiError `json:"error"`
		State struct {
			Messages uint64 `json:"messages"`
			First    uint64 `json:"first_seq"` //nolint:tagliatelle // the server's name
			Last     uint64 `json:"last_seq"`  //nolint:tagliatelle // as above
		} `json:"state"`
	}
	if err := q.inquire(ctx, streams.StreamInfo(stream), &info); err != nil {
		return 0, 0, err
	}
	switch {
	case info.Error != nil:
		return 0, 0, q.explain(ctx, info.Error, stream, "look at "+stream)
	case info.State.Messages == 0:
		return 0, 0, nil
	}
	return info.State.First, info.State.Last, nil
}

// delivered is the sequence that all messages come before that a worker was
// ever given; 0 if there is none.
func (q *Queue) delivered(ctx context.Context, endpoint string) (uint64, error) {
	var before uint64
	for _, class := range job.Classes() {
		var info struct {
			Error     *apiError `json:"error"`
			Delivered struct {
				Stream uint64 `json:"stream_seq"` //nolint:tagliatelle // the server's name
			} `json:"delivered"`
		}
		if err := q.inquire(ctx, streams.ConsumerInfo(streams.Jobs(endpoint), streams.Consumer(class)), &info); err != nil {
			return 0, err
		}
		if info.Error != nil {
			return 0, q.explain(ctx, info.Error, streams.Jobs(endpoint), "look at "+streams.Jobs(endpoint))
		}
		if info.Delivered.Stream > 0 {
			before = max(before, info.Delivered.Stream+1)
		}
	}
	return before, nil
}

// inquire sends a JetStream API request until it is answered and reads the answer.
func (q *Queue) inquire(ctx context.Context, subject string, into any) error {
	return q.inquireFor(ctx, subject, nil, into)
}

// inquireFor is inquire with a question.
func (q *Queue) inquireFor(ctx context.Context, subject string, question []byte, into any) error {
	answer, err := untilAnswered(ctx, func() (*nats.Msg, error) { return q.request(ctx, subject, question) })
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		return fmt.Errorf("read %s: %w", subject, err)
	}
	return nil
}
