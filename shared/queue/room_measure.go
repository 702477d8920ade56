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
		due := q.rooms.due(time.Now())
		answered := len(due) == 0
		for _, r := range due {
			answered = q.measureRoom(ctx, r) || answered
		}
		if answered {
			q.rooms.wasAnswered(time.Now())
		}
	}
}

// due are copies of the rooms to be measured.
func (s *rooms) due(now time.Time) []room {
	s.mu.Lock()
	defer s.mu.Unlock()
	near := s.near()
	var due []room
	for _, r := range s.of {
		if r.due(now) || r.dueFor(near, now) {
			due = append(due, *r)
		}
	}
	return due
}

func (s *rooms) wasAnswered(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = now
}

// measureRoom asks the server, and reports whether it answered. Without an answer
// the last measurement stands: a submission is not to fail for that.
func (q *Queue) measureRoom(ctx context.Context, before room) (answered bool) {
	asked, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	got, err := q.measureQueue(asked, before.at)
	q.rooms.mu.Lock()
	defer q.rooms.mu.Unlock()
	r := q.rooms.of[before.at.endpoint]
	switch {
	case errors.Is(err, errNoMessage): // the endpoint is gone
		r.history.trim(0, time.Time{}, q.rooms.drop)
		delete(q.rooms.of, before.at.endpoint)
		return true
	case err != nil:
		q.log.DebugContext(ctx, "queue not measured", "endpoint", before.at.endpoint, "err", err)
		return false
	}
	r.used, r.measured = got.used, time.Now()
	r.asked -= before.asked
	r.accepted = r.accepted.minus(before.accepted)
	r.history.trim(r.used.jobs+r.accepted.jobs, got.first, q.rooms.drop)
	return true
}

// measurement is how a queue is.
type measurement struct {
	used load
	// first is a time by the local clock; what was accepted before has ended.
	first time.Time
}

// submitTimeout is longer than it takes from the acceptance of a job until the
// server has it.
const submitTimeout = answerWithin + time.Second

// measureQueue counts an endpoint's queue messages, one for each job that waits or
// runs, and what they and the inputs beside them take. The latter are counted,
// and taken to be as large as the partition's payloads on average.
func (q *Queue) measureQueue(ctx context.Context, at place) (measurement, error) {
	queued, err := q.streamState(ctx, streams.Jobs(at.endpoint))
	if err != nil {
		return measurement{}, err
	}
	m := measurement{used: load{queued.Bytes, queued.Messages}}
	if queued.Messages > 0 {
		m.first = time.Now().Add(q.Until(queued.FirstTime) - submitTimeout)
	}
	parts, err := q.inputParts(ctx, at)
	if err != nil || parts == 0 {
		return m, err
	}
	payloads, err := q.streamState(ctx, streams.Payloads(at.partition))
	if err != nil {
		return measurement{}, err
	}
	m.used.bytes += payloads.Bytes / max(1, payloads.Messages) * parts
	return m, nil
}

type streamState struct {
	Bytes    int64 `json:"bytes"`
	Messages int64 `json:"messages"`
	// FirstTime is when the oldest message was stored, by the server's clock.
	FirstTime time.Time `json:"first_ts"` //nolint:tagliatelle // the server's name
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
