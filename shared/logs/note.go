package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/pod"
	"flightline/shared/retry"
	"flightline/streams"
)

// noteRetryDelay is the pause after lines of the worker came in between.
const noteRetryDelay = 20 * time.Millisecond

// Note keeps a System line about a worker. A note with the same id within 2 min is the
// same line. The text may be of any length and hold secrets; level is as in Line. It
// returns bus.ErrUnavailable: then the line may be kept.
func Note(ctx context.Context, b *bus.Client, s Source, id string, at time.Time, level, text string) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	l := wireLine{Time: at.UnixNano(), Stream: System, Level: level}
	l.Text, l.Cut = textOf([]byte(text), false, pod.Concealer(s.Env))
	conflict := func(err error) bool { return errors.Is(err, bus.ErrConflict) }
	err := retry.Do(ctx, retry.Every(noteRetryDelay), conflict, func() error {
		printed, last, err := lastPrinted(ctx, b, s)
		if err != nil {
			return err
		}
		data := messageData{Lines: []wireLine{l}}
		if !printed.IsZero() {
			data.Printed = printed.UnixNano()
		}
		body, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("encode a line: %w", err)
		}
		m := &nats.Msg{
			Subject: streams.LogSubject(s.Partition, s.Endpoint, s.Worker), Data: body, Header: nats.Header{jetstream.MsgIDHeader: {id}},
		}
		_, err = b.Publish(ctx, streams.Logs(s.Partition), m, last)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what happened to worker %s: %w", s.Worker, err)
	}
	return nil
}

// LastTime is the time of the last line that is kept of what a worker printed, zero for
// none. It returns bus.ErrUnavailable.
func LastTime(ctx context.Context, b *bus.Client, s Source) (time.Time, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at, _, err := lastPrinted(ctx, b, s)
	return at, err
}

// lastPrinted is LastTime, with the sequence of the worker's last message.
func lastPrinted(ctx context.Context, b *bus.Client, s Source) (at time.Time, last uint64, err error) {
	m, err := b.LeaderLast(ctx, streams.Logs(s.Partition), streams.LogSubject(s.Partition, s.Endpoint, s.Worker))
	if errors.Is(err, bus.ErrNoMessage) {
		return time.Time{}, 0, nil
	}
	if err != nil {
		return time.Time{}, 0, err
	}
	var data messageData
	if json.Unmarshal(m.Data, &data) != nil {
		data = messageData{} // of a later version
	}
	if len(data.Lines) == 0 {
		return m.Time, m.Seq, nil // what is older is in it
	}
	printed := data.Printed
	if l := data.Lines[len(data.Lines)-1]; l.Stream != System { // a message has notes or lines
		printed = l.Time
	}
	if printed == 0 {
		return time.Time{}, m.Seq, nil
	}
	return time.Unix(0, printed).UTC(), m.Seq, nil
}
