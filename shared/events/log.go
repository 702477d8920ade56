package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/streams"
)

// ErrNotFound means that the log has no such event, or no longer.
var ErrNotFound = errors.New("events: not found")

const (
	// answerTimeout bounds the wait for one answer.
	answerTimeout = 1500 * time.Millisecond
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
}

// New binds a log to a connection; the streams must exist when it is used
// (streams.Apply). It starts nothing. A nil log is silence.
func New(nc *nats.Conn, js jetstream.JetStream, log *slog.Logger) (*Log, error) {
	if nc == nil || js == nil {
		return nil, errors.New("events: a connection is needed")
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Log{nc: nc, bus: bus.Bind(nc), js: js, log: log}, nil
}

// Server names the start of the server that the connection leads to, "" while
// it is away. What a server acknowledged without having it on the disk may be
// gone once this changed.
func (l *Log) Server() string { return l.nc.ConnectedServerId() }

// waitDurable waits at the barrier; nil stands for a server that needs no asking.
func waitDurable(ctx context.Context, durable barrier.Func, stream string) error {
	if durable == nil {
		return nil
	}
	if err := durable(ctx, stream); err != nil {
		return away(ctx, "wait for "+stream+" to be on the disk", err)
	}
	return nil
}

// safe returns once what was read from a server is on the disk. It returns
// bus.ErrUnavailable if that is not known.
func (l *Log) safe(ctx context.Context, durable barrier.Func, server string) error {
	if err := waitDurable(ctx, durable, streams.Events); err != nil {
		return err
	}
	if l.Server() != server {
		return fmt.Errorf("read events: %w: the server was restarted", bus.ErrUnavailable)
	}
	return nil
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

// Trim removes the oldest entries if the log holds more than maxBytes, and returns
// how many. The entry keep and those after it stay, and those whose events are not
// counted yet, however large the log is. A reader whose place was removed goes on
// with the oldest event that there is. It returns bus.ErrUnavailable.
func (l *Log) Trim(ctx context.Context, maxBytes int64, keep uint64) (uint64, error) {
	counted, err := l.Position(ctx, countsPosition)
	if err != nil {
		return 0, err
	}
	folded, err := l.Position(ctx, statsPosition)
	if err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	removed, err := bus.Trim(within, l.js, streams.Events, maxBytes, min(keep, counted+1, folded+1))
	if err != nil {
		return 0, away(ctx, "trim the log", err)
	}
	return removed, nil
}
