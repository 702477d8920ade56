package bus

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/retry"
)

const (
	// trimInterval is the pause between two looks at the size of a log.
	trimInterval = 5 * time.Second
	// warnedTrims is how many looks that fail in a row are a line: those of a minute.
	warnedTrims = int(time.Minute / trimInterval)
)

// KeepTrimmed calls trim with maxBytes every 5 s until ctx ends, and logs what it
// removed of the named log. If maxBytes is 0, there is no bound, and it returns at once.
func KeepTrimmed(ctx context.Context, log *slog.Logger, name string, maxBytes int64, trim func(context.Context, int64) (uint64, error)) {
	if maxBytes <= 0 {
		return
	}
	for failures := 0; ; {
		removed, err := trim(ctx, maxBytes)
		switch {
		case err != nil && failures%warnedTrims == 0 && ctx.Err() == nil:
			log.WarnContext(ctx, "the size of a log was not read", "log", name, "err", err)
		case removed > 0:
			log.WarnContext(ctx, "the oldest messages of a log were removed: it has reached its size", "log", name, "messages", removed, "max_bytes", maxBytes)
		}
		if failures++; err == nil {
			failures = 0
		}
		if retry.Sleep(ctx, trimInterval) != nil {
			return
		}
	}
}

// Trim removes the oldest messages of a stream that holds more than maxBytes, so
// that about nine tenths of maxBytes are left, and returns how many it removed.
// No message of the sequence keep or later is removed. Unlike MaxBytes of a stream,
// it reserves no space, and may wait for a reader.
func Trim(ctx context.Context, js jetstream.JetStream, stream string, maxBytes int64, keep uint64) (uint64, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("trim %s: %w", stream, err)
	}
	before := s.CachedInfo().State
	to := trimTo(before, uint64(max(1, maxBytes)))
	if to = min(to, keep); to <= before.FirstSeq {
		return 0, nil
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(to)); err != nil {
		return 0, fmt.Errorf("trim %s: %w", stream, err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("trim %s: %w", stream, err)
	}
	return before.Msgs - min(before.Msgs, info.State.Msgs), nil
}

// trimTo is the first sequence that is to stay, 0 if all are. It takes the messages to be
// spread evenly: many sequences may have none any more.
func trimTo(state jetstream.StreamState, maxBytes uint64) uint64 {
	if state.Bytes <= maxBytes || state.Msgs == 0 {
		return 0
	}
	share := float64(maxBytes) * 0.9 / float64(state.Bytes)
	left := uint64(share * float64(state.LastSeq-state.FirstSeq+1))
	return state.LastSeq - min(left, state.LastSeq) + 1
}
