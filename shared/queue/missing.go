package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	log *slog.Logger
	now func() time.Time

	mu sync.Mutex
	of map[string]sighting
}

func newMissingStreams(log *slog.Logger, now func() time.Time) *missingStreams {
	return &missingStreams{log: log, now: now, of: map[string]sighting{}}
}

type sighting struct{ seen, logged time.Time }

// note adds a sighting, and logs it unless that was done a moment ago.
func (m *missingStreams) note(ctx context.Context, stream, doing string) {
	if m.seen(stream) {
		m.log.ErrorContext(ctx, "a stream is missing or cannot be read: calls that need it are refused, and no record is removed; run 'flightline doctor'",
			"stream", stream, "doing", doing)
	}
}

// seen adds a sighting and reports whether it is to be logged.
func (m *missingStreams) seen(stream string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.of[stream]
	s.seen = now
	due := s.logged.IsZero() || now.Sub(s.logged) >= alarmInterval
	if due {
		s.logged = now
	}
	m.of[stream] = s
	return due
}

// recovered notes that a queue exists, and logs what became of it if it was lost and is
// made again.
func (m *missingStreams) recovered(ctx context.Context, endpointID string, lost *jetstream.StreamInfo) {
	m.mu.Lock()
	delete(m.of, streams.Jobs(endpointID))
	m.mu.Unlock()
	switch {
	case lost == nil:
	case lost.State.Msgs > 0:
		m.log.ErrorContext(ctx, "the queue of an endpoint was missing; it was made again from its old files",
			"endpoint", endpointID, "stream", lost.Config.Name, "messages", lost.State.Msgs)
	default:
		m.log.ErrorContext(ctx, "the queue of an endpoint was lost; it was made again, empty: jobs that waited there are gone, records of running jobs are kept until their deadline",
			"endpoint", endpointID, "stream", lost.Config.Name)
	}
}

// Missing lists the streams that this process found missing in the last two
// minutes, by name.
func (q *Queue) Missing() []string { return q.missing.names() }

func (m *missingStreams) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	maps.DeleteFunc(m.of, func(_ string, s sighting) bool { return now.Sub(s.seen) >= missingAge })
	return slices.Sorted(maps.Keys(m.of))
}

// explainMissing says that the stream or a consumer of it does not exist: a
// *bus.MissingError, or errDeleted if it is the queue of an endpoint that was
// deleted.
func (q *Queue) explainMissing(ctx context.Context, stream, doing string) error {
	if id, ok := streams.EndpointOfQueue(stream); ok {
		e, err := q.read.endpoint(ctx, id)
		switch {
		case errors.Is(err, endpoint.ErrNotFound):
			return fmt.Errorf("%s: %w", doing, errDeleted)
		case err != nil:
			return err
		case e.Deleting || !e.QueueMade: // its queue is not made yet, or its deletion has begun
			return &bus.MissingError{Stream: stream, Doing: doing, Changing: true}
		}
	}
	q.missing.note(ctx, stream, doing)
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
