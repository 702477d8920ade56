package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/streams"
)

// ErrNotFound means that the log has no such event, or no longer.
var ErrNotFound = errors.New("events: not found")

const (
	// answerTimeout bounds the wait for one answer.
	answerTimeout = 1500 * time.Millisecond
	// maxPage is how many events are read in one request.
	maxPage = 1000
	// pollInterval is the pause between two looks for new events.
	pollInterval = 100 * time.Millisecond
	// retryDelay is the pause after a failure.
	retryDelay = 500 * time.Millisecond
)

// Log is a process's access to the events. It is safe for concurrent use. Calls
// return bus.ErrUnavailable when JetStream does not answer in time; whether a write
// took place is unknown then, and every call may be repeated.
type Log struct {
	nc  *nats.Conn
	bus *bus.Client
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
	return &Log{nc: nc, bus: bus.Bind(nc), js: js, log: log, buckets: map[string]jetstream.KeyValue{}}, nil
}

// Server names the start of the server that the connection leads to, "" while
// it is away. What a server acknowledged without having it on the disk may be
// gone once this changed.
func (l *Log) Server() string { return l.nc.ConnectedServerId() }

// Last returns the latest event of a job. It returns ErrNotFound for a job
// that has none, also if it is too old, and bus.ErrUnavailable.
func (l *Log) Last(ctx context.Context, endpoint string, id job.ID) (Event, error) {
	return l.last(ctx, streams.EventFilter(endpoint, "", id))
}

// Has reports whether the event is in the log. It returns bus.ErrUnavailable.
func (l *Log) Has(ctx context.Context, e Event) (bool, error) {
	_, err := l.last(ctx, streams.EventSubject(e.Endpoint, string(e.Kind), e.Job, e.Attempt, e.Run))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// last reads from the leader: a replica may not have the newest.
func (l *Log) last(ctx context.Context, subject string) (Event, error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := l.bus.LeaderLast(within, streams.Events, subject)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return Event{}, ErrNotFound
	case err != nil:
		return Event{}, away(ctx, "read "+subject, err)
	}
	return decode(m.Msg())
}

// Follow calls each for every event after the sequence after, in the order of
// EVENTS, and for further ones as they come, about 0.1 s late. They need not be
// on the disk: with --sync interval or group a power loss may take back an event
// that was read, and give its sequence to another. It sits out an outage; it
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
	pause := pollInterval
	switch {
	case err != nil && ctx.Err() == nil:
		l.log.WarnContext(ctx, "trying again", "doing", doing, "err", err)
		pause = retryDelay
	case got == maxPage:
		return
	}
	_ = retry.Sleep(ctx, pause) // the caller's loop ends with ctx
}

// page reads the next events after a sequence; none is no error.
func (l *Log) page(ctx context.Context, after uint64) ([]Event, error) {
	const all = ">" // narrower than it could be, but the server need not match
	return l.matching(ctx, all, after, maxPage)
}

// matching reads the next events of a filter after a sequence, at most most.
func (l *Log) matching(ctx context.Context, filter string, after uint64, most int) ([]Event, error) {
	got, err := bus.BatchGet(ctx, l.nc, streams.Events, bus.Batch{From: after + 1, Filter: filter, Most: most})
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
	within, cancel := context.WithTimeout(ctx, answerTimeout)
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

// away makes err a bus.ErrUnavailable, unless the caller's own ctx was cancelled.
func away(ctx context.Context, doing string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if errors.Is(err, bus.ErrUnavailable) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, bus.ErrUnavailable, err)
}

// window is how many events are on their way to the server at once.
const window = 512

// Append writes the events that are not in the log yet. Those of one job get
// there in the order given, each once the one before is acknowledged; those of
// different jobs side by side. It returns nil when all are there, and else
// bus.ErrUnavailable or ctx's error: some may be there then, and it can be
// repeated. The server's own setting decides when they are on the disk.
func (l *Log) Append(ctx context.Context, list ...Event) error {
	if len(list) == 0 {
		return nil
	}
	p, err := l.openPipe()
	if err != nil {
		return away(ctx, "append events", err)
	}
	defer p.close()
	for _, wave := range waves(list) {
		if err := p.send(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

// waves splits the list so that no wave has two events of one job, and each
// job's come in order.
func waves(list []Event) [][]Event {
	type key struct{ endpoint, id string }
	var waves [][]Event
	next := make(map[key]int, len(list))
	for _, e := range list {
		k := key{e.Endpoint, string(e.Job)}
		n := next[k]
		next[k] = n + 1
		if n == len(waves) {
			waves = append(waves, nil)
		}
		waves[n] = append(waves[n], e)
	}
	return waves
}

// pipe sends many writes without waiting for each answer. It has an inbox of
// its own, so answers that come too late reach nobody.
type pipe struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	answers chan *nats.Msg
	timeout *time.Timer
	inbox   string
	sent    int
}

// openPipe does not use SubscribeSync, which makes half a megabyte of room for the
// answers: no more than window of them are waited for.
func (l *Log) openPipe() (*pipe, error) {
	p := &pipe{nc: l.nc, inbox: l.nc.NewInbox(), answers: make(chan *nats.Msg, window), timeout: time.NewTimer(answerTimeout)}
	var err error
	p.sub, err = l.nc.ChanSubscribe(p.inbox+".*", p.answers)
	return p, err
}

func (p *pipe) close() {
	p.timeout.Stop()
	_ = p.sub.Unsubscribe() // it fails with the connection, which took it along
}

// send returns once all of the wave are acknowledged or were there.
func (p *pipe) send(ctx context.Context, wave []Event) error {
	waiting := 0
	for _, e := range wave {
		if waiting == window {
			if err := p.settle(ctx); err != nil {
				return err
			}
			waiting--
		}
		m, err := e.message()
		if err != nil {
			return err
		}
		p.sent++
		m.Reply = p.inbox + "." + strconv.Itoa(p.sent)
		if err := p.nc.PublishMsg(m); err != nil {
			return away(ctx, "append events", err)
		}
		waiting++
	}
	for range waiting {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle takes one answer. Whose it is does not matter: one failure makes all
// be sent again.
func (p *pipe) settle(ctx context.Context) error {
	p.timeout.Reset(answerTimeout)
	var m *nats.Msg
	select {
	case m = <-p.answers:
	case <-ctx.Done():
		return away(ctx, "append events", ctx.Err())
	case <-p.timeout.C:
		return away(ctx, "append events", nats.ErrTimeout)
	}
	if len(m.Data) == 0 { // no responders
		return away(ctx, "append events", nats.ErrNoResponders)
	}
	var ack struct {
		Error *bus.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("append to %s: %w", streams.Events, err)
	}
	if ack.Error == nil || ack.Error.ErrorCode == int(jetstream.JSErrCodeStreamWrongLastSequence) { // it is there already
		return nil
	}
	// Another write of the same event may be in flight, and may still fail.
	return away(ctx, "append events", ack.Error)
}

// Trim removes the oldest events if the log holds more than maxBytes, and returns
// how many. An event that is not counted yet stays, however large the log is. A
// reader whose place was removed goes on with the oldest event that there is. It
// returns bus.ErrUnavailable.
func (l *Log) Trim(ctx context.Context, maxBytes int64) (uint64, error) {
	counted, err := l.Position(ctx, countsPosition)
	if err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	removed, err := bus.Trim(within, l.js, streams.Events, maxBytes, counted+1)
	if err != nil {
		return 0, away(ctx, "trim the log", err)
	}
	return removed, nil
}
