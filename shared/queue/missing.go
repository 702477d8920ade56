package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// missing explains streams that do not exist, and remembers them.
type missing struct {
	bus    *bus.Client
	bucket string // of endpoints
	now    func() time.Time
	log    *slog.Logger
	mu     sync.Mutex
	of     map[string]sighting
}

type sighting struct{ seen, logged time.Time }

// note adds a sighting and reports whether it is to be logged.
func (m *missing) note(stream string, now time.Time) bool {
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

func (m *missing) clear(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, stream)
}

// Missing lists the streams that this process found missing in the last two
// minutes, by name.
func (q *Queue) Missing() []string { return q.missing.names() }

func (m *missing) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var names []string
	for name, s := range m.of {
		if now.Sub(s.seen) < missingAge {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// explain says that the stream or a consumer of it does not exist: a
// *bus.MissingError, or errDeleted if it is the queue of an endpoint that was
// deleted.
func (m *missing) explain(ctx context.Context, stream, doing string) error {
	if id, ok := streams.EndpointOfQueue(stream); ok {
		state, err := m.registered(ctx, id)
		switch {
		case err != nil:
			return err
		case state == unregistered:
			return fmt.Errorf("%s: %w", doing, errDeleted)
		case state == changing:
			return &bus.MissingError{Stream: stream, Doing: doing, Changing: true}
		}
	}
	if m.note(stream, m.now()) {
		m.log.ErrorContext(ctx, "a stream is missing or cannot be read: calls that need it are refused, and no record is removed; run 'flightline doctor'",
			"stream", stream, "doing", doing)
	}
	return &bus.MissingError{Stream: stream, Doing: doing}
}

// registration is what the bucket of endpoints says of one.
type registration int

const (
	unregistered registration = iota
	changing                  // its queue is not made yet, or its deletion has begun
	serving
)

func (m *missing) registered(ctx context.Context, id string) (registration, error) {
	e, err := m.endpoint(ctx, id)
	switch {
	case errors.Is(err, endpoint.ErrNotFound):
		return unregistered, nil
	case err != nil:
		return unregistered, err
	case e.Deleting || !e.QueueMade:
		return changing, nil
	}
	return serving, nil
}

// endpoint is the endpoint as it is on record now. It returns endpoint.ErrNotFound and
// bus.ErrUnavailable.
func (m *missing) endpoint(ctx context.Context, id string) (e endpoint.Endpoint, err error) {
	stored, err := m.bus.LeaderLast(ctx, streams.Bucket(m.bucket), streams.KeySubject(m.bucket, id))
	if errors.Is(err, bus.ErrNoMessage) || err == nil && len(stored.Data) == 0 { // a delete marker
		return e, endpoint.ErrNotFound
	}
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(stored.Data, &e); err != nil {
		return e, fmt.Errorf("read endpoint %s: %w", id, err)
	}
	return e, nil
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

// recovered logs what became of a queue that was lost, and is made again.
func (m *missing) recovered(ctx context.Context, endpoint string, lost *jetstream.StreamInfo) {
	m.clear(streams.Jobs(endpoint))
	switch {
	case lost == nil:
	case lost.State.Msgs > 0:
		m.log.ErrorContext(ctx, "the queue of an endpoint was missing; it was made again from its old files",
			"endpoint", endpoint, "stream", lost.Config.Name, "messages", lost.State.Msgs)
	default:
		m.log.ErrorContext(ctx, "the queue of an endpoint was lost; it was made again, empty: jobs that waited there are gone, records of running jobs are kept until their deadline",
			"endpoint", endpoint, "stream", lost.Config.Name)
	}
}
