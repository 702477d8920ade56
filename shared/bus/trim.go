package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Trim removes the oldest messages of a stream that holds more than maxBytes, so
// that about nine tenths of maxBytes are left, and returns how many it removed.
// No message of the sequence keep or later is removed. Unlike MaxBytes of a stream,
// it reserves no space, and may wait for a reader.
func Trim(ctx context.Context, js jetstream.JetStream, stream string, maxBytes int64, keep uint64) (uint64, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("trim %s: %w", stream, err)
	}
	to := trimTo(s.CachedInfo().State, uint64(max(1, maxBytes)))
	if to = min(to, keep); to <= s.CachedInfo().State.FirstSeq {
		return 0, nil
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(to)); err != nil {
		return 0, fmt.Errorf("trim %s: %w", stream, err)
	}
	return to - s.CachedInfo().State.FirstSeq, nil
}

// trimTo is the first sequence that is to stay, 0 if all are.
func trimTo(state jetstream.StreamState, maxBytes uint64) uint64 {
	if state.Bytes <= maxBytes || state.Msgs == 0 {
		return 0
	}
	average := max(1, state.Bytes/state.Msgs)
	left := maxBytes / 10 * 9 / average
	return state.LastSeq - min(left, state.LastSeq) + 1
}
