package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

var (
	// ErrNotFound means that the log has no such event, or no longer.
	ErrNotFound = errors.New("events: not found")
	// ErrUnavailable means that JetStream did not answer in time. Whether a
	// write took place is unknown; every call of this package may be repeated.
	ErrUnavailable = errors.New("events: JetStream is not available")
)

const (
	// answerWithin bounds the wait for one answer.
	answerWithin = 1500 * time.Millisecond
	// pageMost is how many events are read in one request.
	pageMost = 1000
	// lookEvery is the pause between two looks for new events.
	lookEvery = 100 * time.Millisecond
	// retryAfter is the pause after a failure.
	retryAfter = 500 * time.Millisecond
)

// Log is a process's door to the events. It is safe for concurrent use.
type Log struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	log *slog.Logger

	mu      sync.Mutex
	buckets map[string]jetstream.KeyValue
}

// New binds a log to a connection; the streams must exist when it is used
// (streams.Apply). It starts nothing. A nil log is silence.
func New(nc *nats.Conn, js jetstream.JetStream, log *slog.Logger) (*Log, error) {
	if nc == nil || js == nil {
		return nil, errors.New("events: a connection is needed")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Log{nc: nc, js: js, log: log, buckets: map[string]jetstream.KeyValue{}}, nil
}

// Server names the start of the server that the connection leads to, "" while
// it is away. What a server acknowledged without having it on the disk may be
// gone once this changed.
func (l *Log) Server() string { return l.nc.ConnectedServerId() }

// Last returns the latest event of a job. It returns ErrNotFound for a job
// that has none, also if it is too old, and ErrUnavailable.
func (l *Log) Last(ctx context.Context, endpoint string, id job.ID) (Event, error) {
	return l.last(ctx, streams.EventFilter(endpoint, "", id))
}

// Has reports whether the event is in the log. It returns ErrUnavailable.
func (l *Log) Has(ctx context.Context, e Event) (bool, error) {
	_, err := l.last(ctx, streams.EventSubject(e.Endpoint, string(e.Kind), e.Job, e.Attempt, e.Run))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// codeNoMessage is the server's error code if nothing is on a subject.
const codeNoMessage = 10037

// last reads from the leader: a replica may not have the newest.
func (l *Log) last(ctx context.Context, subject string) (Event, error) {
	body, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return Event{}, fmt.Errorf("read %s: %w", subject, err)
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := l.nc.RequestWithContext(within, streams.LeaderGet(streams.Events), body)
	if err != nil {
		return Event{}, away(ctx, "read "+subject, err)
	}
	var got struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return Event{}, fmt.Errorf("read %s: %w", subject, err)
	}
	switch {
	case got.Error != nil && got.Error.ErrorCode == codeNoMessage:
		return Event{}, ErrNotFound
	case got.Error != nil:
		return Event{}, away(ctx, "read "+subject, got.Error)
	case got.Message == nil:
		return Event{}, fmt.Errorf("read %s: %w: an empty answer", subject, ErrUnavailable)
	}
	return parse(got.Message.Subject, got.Message.Data, got.Message.Seq, got.Message.Time)
}

// Follow calls each for every event after the sequence after, in the order of
// EVENTS, and for further ones as they come, about 0.1 s late. They need not be
// on the disk: with --sync interval or group a power loss may take back an event
// that was told, and give its sequence to another. It sits out an outage; it
// ends with nil when ctx ends, and with the error that each returned.
func (l *Log) Follow(ctx context.Context, after uint64, each func(Event) error) error {
	for ctx.Err() == nil {
		page, err := l.page(ctx, after)
		for _, e := range page {
			if err := each(e); err != nil {
				return err
			}
			after = e.Seq
		}
		l.rest(ctx, "follow events", len(page), err)
	}
	return nil
}

// rest waits before the next page: not at all if the last one was full.
func (l *Log) rest(ctx context.Context, doing string, got int, err error) {
	pause := lookEvery
	switch {
	case err != nil && ctx.Err() == nil:
		l.log.WarnContext(ctx, "trying again", "doing", doing, "err", err)
		pause = retryAfter
	case got == pageMost:
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// page reads the next events after a sequence; none is no error.
func (l *Log) page(ctx context.Context, after uint64) ([]Event, error) {
	const all = ">" // narrower than it could be, but the server need not match
	return l.matching(ctx, all, after, pageMost)
}

// matching reads the next events of a filter after a sequence, at most most.
func (l *Log) matching(ctx context.Context, filter string, after uint64, most int) ([]Event, error) {
	got, err := bus.BatchGet(ctx, l.nc, streams.DirectGet(streams.Events), bus.Batch{From: after + 1, Filter: filter, Most: most})
	if err != nil {
		return nil, away(ctx, "read events", err)
	}
	page := make([]Event, 0, len(got))
	for _, m := range got {
		e, err := decode(m)
		if err != nil {
			return page, err
		}
		page = append(page, e)
	}
	return page, nil
}

// bucket opens a bucket at its first use.
func (l *Log) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	l.mu.Lock()
	kv := l.buckets[name]
	l.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	kv, err := l.js.KeyValue(within, name)
	if err != nil {
		return nil, away(ctx, "open bucket "+name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buckets[name] = kv
	return kv, nil
}

// apiError is the error of a JetStream answer.
type apiError struct {
	Code        int    `json:"code"`
	ErrorCode   int    `json:"err_code"` //nolint:tagliatelle // the server's name
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrorCode) }

// away makes err an ErrUnavailable, unless the caller's own ctx was cancelled.
func away(ctx context.Context, doing string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}
