package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/streams"
)

// errDeleted: the queue is missing because its endpoint was deleted.
var errDeleted = fmt.Errorf("%w: %w", bus.ErrNoMessage, endpoint.ErrNotFound)

const (
	// alarmInterval is the pause between two log lines about the same stream.
	alarmInterval = time.Minute
	// missingAge is how long a stream counts as missing after it was last found so.
	missingAge = 2 * alarmInterval
)

// missingStreams are the streams that this process found missing, by name.
type missingStreams struct {
	mu sync.Mutex
	of map[string]sighting
}

type sighting struct{ seen, logged time.Time }

// note adds a sighting and reports whether it is to be logged.
func (m *missingStreams) note(stream string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]sighting{}
	}
	s := m.of[stream]
	s.seen = now
	due := s.logged.IsZero() || now.Sub(s.logged) >= alarmInterval
	if due {
		s.logged = now
	}
	m.of[stream] = s
	return due
}

func (m *missingStreams) clear(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, stream)
}

// Missing lists the streams that this process found missing in the last two
// minutes, by name.
func (q *Queue) Missing() []string {
	q.missing.mu.Lock()
	defer q.missing.mu.Unlock()
	now := q.cfg.Now()
	var names []string
	for name, s := range q.missing.of {
		if now.Sub(s.seen) < missingAge {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// explainMissing says that the stream or a consumer of it does not exist: a
// *bus.MissingError, or errDeleted if it is the queue of an endpoint that was
// deleted.
func (q *Queue) explainMissing(ctx context.Context, stream, doing string) error {
	if id, ok := streams.EndpointOfQueue(stream); ok {
		e, err := q.readEndpoint(ctx, id)
		switch {
		case errors.Is(err, endpoint.ErrNotFound):
			return fmt.Errorf("%s: %w", doing, errDeleted)
		case err != nil:
			return err
		case e.Deleting || !e.QueueMade: // its queue is not made yet, or its deletion has begun
			return &bus.MissingError{Stream: stream, Doing: doing, Changing: true}
		}
	}
	if q.missing.note(stream, q.cfg.Now()) {
		q.log.ErrorContext(ctx, "a stream is missing or cannot be read: calls that need it are refused, and no record is removed; run 'flightline doctor'",
			"stream", stream, "doing", doing)
	}
	return &bus.MissingError{Stream: stream, Doing: doing}
}

// QueueExists reports whether JetStream has the endpoint's queue. It returns
// bus.ErrUnavailable.
func (q *Queue) QueueExists(ctx context.Context, e endpoint.Endpoint) (bool, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	_, err := q.bus.StreamState(ctx, streams.Jobs(e.ID))
	if errors.Is(err, bus.ErrMissing) || errors.Is(err, errDeleted) {
		return false, nil
	}
	return err == nil, err
}

// reportRecovered logs what became of a queue that was lost, and is made again.
func (q *Queue) reportRecovered(ctx context.Context, endpointID string, lost *jetstream.StreamInfo) {
	q.missing.clear(streams.Jobs(endpointID))
	switch {
	case lost == nil:
	case lost.State.Msgs > 0:
		q.log.ErrorContext(ctx, "the queue of an endpoint was missing; it was made again from its old files",
			"endpoint", endpointID, "stream", lost.Config.Name, "messages", lost.State.Msgs)
	default:
		q.log.ErrorContext(ctx, "the queue of an endpoint was lost; it was made again, empty: jobs that waited there are gone, records of running jobs are kept until their deadline",
			"endpoint", endpointID, "stream", lost.Config.Name)
	}
}
