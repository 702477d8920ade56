package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/streams"
)

// ErrFull is what every FullError unwraps to.
var ErrFull = errors.New("queue: full")

// FullError means that the jobs that wait or run at an endpoint take as many
// bytes as they may. The job was not accepted.
type FullError struct {
	Endpoint string
	// Size is that of the job's input, Used what the queue holds, Limit the
	// endpoint's MaxQueueBytes, all in bytes.
	Size, Used, Limit int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the queue of endpoint %s is full: it holds %d bytes, the job has %d, and maxQueueBytes is %d", e.Endpoint, e.Used, e.Size, e.Limit)
}

// Unwrap makes errors.Is(err, ErrFull) hold.
func (e *FullError) Unwrap() error { return ErrFull }

const (
	// measureInterval is the pause between two rounds of measurements.
	measureInterval = time.Second
	// maxMeasureAge is how old a measurement of a queue gets while jobs come and
	// less than half of the limit is used.
	maxMeasureAge = 30 * time.Second
	// maxRefusalAge is how old a measurement may be for a submission to be refused
	// by it: nobody has submitted since, and jobs may have ended.
	maxRefusalAge = 10 * time.Second
)

// rooms knows how much the queues hold that this process submits to. A queue is
// measured in the background: a submission is compared with the last
// measurement and what this process accepted since.
type rooms struct {
	mu sync.Mutex
	of map[string]*room
}

type room struct {
	at       place
	limit    int64
	measured time.Time // when used was true; zero if never
	used     int64     // bytes
	added    int64     // bytes of submissions since then, refused ones too
	accepted int64     // bytes of those accepted
}

// due reports whether a queue has to be measured: as soon as there are jobs,
// often while it is half full, and seldom otherwise.
func (r *room) due(now time.Time) bool {
	switch {
	case r.added == 0:
		return false
	case r.measured.IsZero(), now.Sub(r.measured) >= maxMeasureAge:
		return true
	}
	return r.used+r.accepted > r.limit/2 || r.accepted > r.limit/10
}

// admit counts a submission of size bytes, or returns a *FullError.
func (s *rooms) admit(e endpoint.Endpoint, size int64, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*room{}
	}
	r := s.of[e.ID]
	if r == nil {
		r = &room{at: placeOf(e)}
		s.of[e.ID] = r
	}
	r.limit = e.QueueBytes()
	r.added += size + 1 // an empty input counts, too
	if used := r.used + r.accepted; used+size > r.limit && now.Sub(r.measured) < maxRefusalAge {
		return &FullError{Endpoint: e.ID, Size: size, Used: used, Limit: r.limit}
	}
	r.accepted += size
	return nil
}

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
	used, err := q.usedBytes(asked, before.at)
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
		r.added -= before.added
		r.accepted -= before.accepted
	}
}

// usedBytes is what an endpoint's queue messages and the inputs beside them
// take. The latter are counted, and taken to be as large as the partition's
// payloads on average.
func (q *Queue) usedBytes(ctx context.Context, at place) (int64, error) {
	queued, err := q.streamState(ctx, streams.Jobs(at.endpoint))
	if err != nil {
		return 0, err
	}
	parts, err := q.inputParts(ctx, at)
	if err != nil || parts == 0 {
		return queued.Bytes, err
	}
	payloads, err := q.streamState(ctx, streams.Payloads(at.partition))
	if err != nil {
		return 0, err
	}
	return queued.Bytes + payloads.Bytes/max(1, payloads.Messages)*parts, nil
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
