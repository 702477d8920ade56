package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/streams"
)

// MissingError means that JetStream does not have a stream that must exist, or a
// consumer of it: its files are damaged or gone, or it was deleted by hand. Nothing was decided and
// nothing was changed. It wraps ErrMissing.
type MissingError struct {
	// Stream is the name of the stream, such as JOBS_<endpoint>.
	Stream string
	// Doing is what failed.
	Doing string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: stream %s, or a consumer of it, is missing or cannot be read", e.Doing, e.Stream)
}

// Unwrap makes errors.Is(err, ErrMissing) hold.
func (e *MissingError) Unwrap() error { return ErrMissing }

// errDeleted: the queue is missing because its endpoint was deleted.
var errDeleted = fmt.Errorf("%w: %w", errNoMessage, endpoint.ErrNotFound)

const (
	// alarmInterval is the pause between two log lines about the same stream.
	alarmInterval = time.Minute
	// missingAge is how long a stream counts as missing after it was last found so.
	missingAge = 2 * alarmInterval
)

// missing remembers which streams were found missing.
type missing struct {
	mu sync.Mutex
	of map[string]sighting
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

// explain turns an API error of a stream into one of this package's. That the
// stream or a consumer of it does not exist is a *MissingError, or errDeleted if it is the queue of
// an endpoint that was deleted.
func (q *Queue) explain(ctx context.Context, e *apiError, stream, doing string) error {
	if e.ErrorCode != codeNoStream && e.ErrorCode != codeNoConsumer {
		return e.explain(doing)
	}
	if id, ok := streams.EndpointOfQueue(stream); ok {
		state, err := q.registered(ctx, id)
		switch {
		case err != nil:
			return err
		case state == unregistered:
			return fmt.Errorf("%s: %w", doing, errDeleted)
		case state == changing:
			return &MissingError{stream, doing}
		}
	}
	if q.missing.note(stream, q.cfg.Now()) {
		q.log.ErrorContext(ctx, "a stream is missing or cannot be read: calls that need it are refused, and no record is removed; run 'flightline doctor'",
			"stream", stream, "doing", doing)
	}
	return &MissingError{stream, doing}
}

// registration is what the bucket of endpoints says of one.
type registration int

const (
	unregistered registration = iota
	changing                  // its queue is not made yet, or its deletion has begun
	serving
)

func (q *Queue) registered(ctx context.Context, id string) (registration, error) {
	bucket := cmp.Or(q.cfg.EndpointsBucket, streams.BucketEndpoints)
	m, err := q.leaderLast(ctx, streams.Bucket(bucket), streams.EndpointSubject(bucket, id))
	if errors.Is(err, errNoMessage) || err == nil && len(m.data) == 0 { // a delete marker
		return unregistered, nil
	}
	if err != nil {
		return unregistered, err
	}
	var e endpoint.Endpoint
	if err := json.Unmarshal(m.data, &e); err != nil {
		return unregistered, fmt.Errorf("read endpoint %s: %w", id, err)
	}
	if e.Deleting || !e.QueueMade {
		return changing, nil
	}
	return serving, nil
}

// QueueExists reports whether JetStream has the endpoint's queue. It returns
// ErrUnavailable.
func (q *Queue) QueueExists(ctx context.Context, e endpoint.Endpoint) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, _, err := q.ends(ctx, streams.Jobs(e.ID))
	if errors.Is(err, ErrMissing) || errors.Is(err, errDeleted) {
		return false, nil
	}
	return err == nil, err
}

// recovered logs what became of a queue that was lost, and is made again.
func (q *Queue) recovered(ctx context.Context, endpoint string, lost *jetstream.StreamInfo) {
	q.missing.clear(streams.Jobs(endpoint))
	switch {
	case lost == nil:
	case lost.State.Msgs > 0:
		q.log.ErrorContext(ctx, "the queue of an endpoint was missing; it was made again from its old files",
			"endpoint", endpoint, "stream", lost.Config.Name, "messages", lost.State.Msgs)
	default:
		q.log.ErrorContext(ctx, "the queue of an endpoint was lost; it was made again, empty: jobs that waited there are gone, records of running jobs are kept until their deadline",
			"endpoint", endpoint, "stream", lost.Config.Name)
	}
}

// nobody finds out why nobody listened on the subject of a write: a
// *MissingError or errDeleted if the stream does not exist, nil if that is not
// the reason.
func (q *Queue) nobody(ctx context.Context, stream string) error {
	answer, err := q.request(ctx, streams.StreamInfo(stream), nil)
	if err != nil {
		return nil //nolint:nilerr // JetStream is away: the caller knows
	}
	var info struct {
		Error *apiError `json:"error"`
	}
	read := json.Unmarshal(answer.Data, &info) == nil
	if !read || info.Error == nil || info.Error.ErrorCode != codeNoStream {
		return nil
	}
	return q.explain(ctx, info.Error, stream, "write to "+stream)
}

// store sends m to its stream and waits for the acknowledgement.
func (q *Queue) store(ctx context.Context, stream string, m *nats.Msg) (uint64, error) {
	answer, err := q.lines.ask(ctx, q.nc, m)
	if errors.Is(err, nats.ErrNoResponders) {
		if why := q.nobody(ctx, stream); why != nil {
			return 0, why
		}
	}
	if err != nil {
		return 0, q.noAnswer(ctx, err)
	}
	return readAck(stream, answer.Data)
}
