package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"flightline/shared/bus"
	"flightline/streams"
)

// measureRooms measures the queues that are due until ctx ends.
func (q *Queue) measureRooms(ctx context.Context) error {
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, r := range q.rooms.due(time.Now()) {
			q.measureRoom(ctx, r)
		}
	}
}

// due are copies of the rooms to be measured.
func (s *rooms) due(now time.Time) []room {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []room
	for _, r := range s.of {
		if r.due(now) {
			due = append(due, *r)
		}
	}
	return due
}

// measureRoom asks the server. Without an answer the last measurement stands:
// a submission is not to fail for that.
func (q *Queue) measureRoom(ctx context.Context, before room) {
	asked, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	used, err := q.usedRoom(asked, before.at)
	q.rooms.mu.Lock()
	defer q.rooms.mu.Unlock()
	switch {
	case errors.Is(err, errNoMessage): // the endpoint is gone
		delete(q.rooms.of, before.at.endpoint)
	case err != nil:
		q.log.DebugContext(ctx, "queue not measured", "endpoint", before.at.endpoint, "err", err)
	default:
		r := q.rooms.of[before.at.endpoint]
		r.used, r.measured = used, time.Now()
		r.asked -= before.asked
		r.accepted = r.accepted.minus(before.accepted)
	}
}

// usedRoom is how many messages an endpoint's queue has, one for each job that
// waits or runs, and what they and the inputs beside them take. The latter are
// counted, and taken to be as large as the partition's payloads on average.
func (q *Queue) usedRoom(ctx context.Context, at place) (load, error) {
	queued, err := q.streamState(ctx, streams.Jobs(at.endpoint))
	if err != nil {
		return load{}, err
	}
	used := load{queued.Bytes, queued.Messages}
	parts, err := q.inputParts(ctx, at)
	if err != nil || parts == 0 {
		return used, err
	}
	payloads, err := q.streamState(ctx, streams.Payloads(at.partition))
	if err != nil {
		return load{}, err
	}
	used.bytes += payloads.Bytes / max(1, payloads.Messages) * parts
	return used, nil
}

type streamState struct {
	Bytes    int64 `json:"bytes"`
	Messages int64 `json:"messages"`
}

// streamState returns errNoMessage if there is no such stream.
func (q *Queue) streamState(ctx context.Context, stream string) (streamState, error) {
	var info struct {
		Error *apiError   `json:"error"`
		State streamState `json:"state"`
	}
	if err := q.inquire(ctx, streams.StreamInfo(stream), &info); err != nil {
		return streamState{}, err
	}
	if info.Error != nil && info.Error.ErrorCode == codeNoStream {
		return streamState{}, errNoMessage
	}
	if info.Error != nil {
		return streamState{}, fmt.Errorf("measure %s: %w", stream, info.Error)
	}
	return info.State, nil
}

// inputParts counts the messages that hold inputs beside an endpoint's queue.
func (q *Queue) inputParts(ctx context.Context, at place) (int64, error) {
	first, err := bus.BatchGet(ctx, q.nc, streams.DirectGet(streams.Payloads(at.partition)),
		bus.Batch{Filter: streams.InputFilter(at.partition, at.endpoint), Most: 1, MaxBytes: 1})
	if err != nil || len(first) == 0 {
		return 0, err
	}
	more, err := strconv.ParseInt(first[0].Header.Get("Nats-Num-Pending"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count inputs of %s: %w", at.endpoint, err)
	}
	return 1 + more, nil
}
