package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
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
		for _, id := range due {
			answered = q.measureRoom(ctx, id) || answered
		}
		if answered {
			q.rooms.wasAnswered(time.Now())
		}
	}
}

// due are the endpoints whose queues have to be measured.
func (s *rooms) due(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	near := s.near()
	var due []string
	for id, r := range s.of {
		if r.due(now) || r.dueFor(near, now) {
			due = append(due, id)
		}
	}
	return due
}

// measuredAt is when the endpoint's queue was last measured.
func (s *rooms) measuredAt(endpointID string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[endpointID]; r != nil {
		return r.measured
	}
	return time.Time{}
}

func (s *rooms) wasAnswered(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = now
}

// admit counts a submission of so many bytes, or returns a *FullError. A queue is
// measured before it refuses a job, unless that was done just now: jobs may have
// ended since the last measurement.
func (q *Queue) admit(ctx context.Context, e endpoint.Endpoint, bytes int64, by job.Caller) error {
	err := q.rooms.admit(e, bytes, by, time.Now())
	full, isFull := errors.AsType[*FullError](err)
	if !isFull || full.Endpoint == "" || time.Since(q.rooms.measuredAt(e.ID)) < minMeasureAge || !q.measureRoom(ctx, e.ID) {
		return err
	}
	return q.rooms.admit(e, bytes, by, time.Now())
}

// measureRoom asks the server, and reports whether it answered. Without an answer
// the last measurement stands. Calls for one endpoint at the same time share an
// answer.
func (q *Queue) measureRoom(ctx context.Context, endpointID string) (answered bool) {
	got, _, _ := q.rooms.measuring.Do(endpointID, func() (any, error) {
		return q.measureRoomOnce(context.WithoutCancel(ctx), endpointID), nil
	})
	return got.(bool) //nolint:forcetypeassert // it is
}

func (q *Queue) measureRoomOnce(ctx context.Context, endpointID string) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	q.rooms.mu.Lock()
	r := q.rooms.of[endpointID]
	if r == nil { // the endpoint is gone
		q.rooms.mu.Unlock()
		return true
	}
	before := *r
	q.rooms.mu.Unlock()
	got, err := q.measureQueue(ctx, before.at)
	q.rooms.mu.Lock()
	defer q.rooms.mu.Unlock()
	switch {
	case errors.Is(err, errNoMessage): // the endpoint is gone
		r.history.trim(0, time.Time{}, q.rooms.drop)
		delete(q.rooms.of, endpointID)
		return true
	case err != nil:
		q.log.DebugContext(ctx, "queue not measured", "endpoint", endpointID, "err", err)
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
