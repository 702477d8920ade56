package events

import (
	"context"

	"flightline/shared/bus"
	"flightline/streams"
)

// Trim removes the oldest events if the log holds more than maxBytes, and returns
// how many. An event that is not counted yet stays, however large the log is. A
// reader whose place was removed goes on with the oldest event that there is. It
// returns ErrUnavailable.
func (l *Log) Trim(ctx context.Context, maxBytes int64) (uint64, error) {
	counted, err := l.Position(ctx, countsPosition)
	if err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	removed, err := bus.Trim(within, l.js, streams.Events, maxBytes, counted+1)
	if err != nil {
		return 0, away(ctx, "trim the log", err)
	}
	return removed, nil
}
