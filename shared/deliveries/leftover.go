package deliveries

import (
	"context"
	"fmt"
	"time"

	"flightline/shared/bus"
	"flightline/shared/retry"
	"flightline/streams"
)

// An acknowledgement is two steps of the server: its consumer notes it, then its
// stream removes the message. A single server that stops or is killed in between
// keeps the message, delivers it no more, and does not look for it when it starts
// (docs/design/jetstream.md#f14). Such a leftover would stand for seven days in the
// way of a replay of its job.

// leftoverPause is the pause between two looks for leftovers.
const leftoverPause = 5 * time.Second

// ackFloor is the sequence up to which all tasks were acknowledged, as numbered by
// server, for the consumer that was made at created. The zero value is before all.
type ackFloor struct {
	seq     uint64
	server  string
	created time.Time
}

// settled is the sequence up to which the acks have had the time between two looks
// for their second step. It is 0 if both do not number the same messages.
func settled(before, now ackFloor) uint64 {
	if before.server != now.server || !before.created.Equal(now.created) {
		return 0
	}
	return min(before.seq, now.seq)
}

// removeLeftovers removes them until ctx ends.
func (s *Store) removeLeftovers(ctx context.Context) {
	var before ackFloor
	for {
		removed := 0
		now, err := s.readAckFloor(ctx)
		if err == nil {
			removed, err = s.removeUpTo(ctx, settled(before, now), now.server)
			before = now
		}
		if err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "acknowledged webhook tasks not looked for, trying again", "err", err)
		}
		if removed > 0 {
			s.log.InfoContext(ctx, "webhook tasks removed: they were acknowledged as the server stopped", "tasks", removed)
		}
		if retry.Sleep(ctx, s.leftoverPause) != nil {
			return
		}
	}
}

// removeUpTo removes the tasks up to a sequence of server's, as replicas do by
// themselves, and returns how many. A leftover behind a task that is put off waits
// for that one.
func (s *Store) removeUpTo(ctx context.Context, last uint64, server string) (removed int, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	for last > 0 {
		state, err := s.bus.StreamState(ctx, streams.Webhooks)
		if err != nil {
			return removed, err
		}
		if state.Messages == 0 || state.FirstSeq > last || server != s.bus.Conn().ConnectedServerId() {
			break
		}
		if err := s.bus.Remove(ctx, streams.Webhooks, state.FirstSeq); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

func (s *Store) readAckFloor(ctx context.Context) (ackFloor, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	server := s.bus.Conn().ConnectedServerId()
	consumer, err := s.js.Consumer(ctx, streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		return ackFloor{}, fmt.Errorf("look at consumer %s: %w", streams.WebhookConsumer, err)
	}
	info := consumer.CachedInfo()
	return ackFloor{seq: info.AckFloor.Stream, server: server, created: info.Created}, nil
}
